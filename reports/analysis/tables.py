"""The declared statistics as tables for `ablate export`: a row per arm, or per comparison."""

import pandas as pd

from harness.run.document import Cells
from reports.analysis.arm_columns import ARM_COLUMNS, IN_TOKENS
from reports.analysis.arm_values import ArmRow
from reports.analysis.compare import compare_all
from reports.analysis.comparison_columns import COMPARISON_COLUMNS
from reports.analysis.types import Comparisons
from reports.inputs.columns import flat_row, json_row
from reports.inputs.experiment import Experiment


def arm_table(experiment: str, outcome: Comparisons) -> pd.DataFrame:
    """Every arm, the baseline first; experiment: its name, the first column."""
    rows = []
    for arm in (outcome.baseline, *outcome.arms):
        row = flat_row(ARM_COLUMNS, ArmRow(arm=arm, outcome=outcome))
        rows.append({"experiment": experiment} | row)
    return pd.DataFrame(rows)


def comparison_table(experiment: str, outcome: Comparisons) -> pd.DataFrame:
    """Every comparison; experiment: its name, the first column."""
    rows = []
    for comparison in outcome.comparisons.values():
        row = flat_row(COMPARISON_COLUMNS, comparison)
        rows.append({"experiment": experiment} | row)
    names = ["experiment"]
    for column in COMPARISON_COLUMNS:
        if column.json_name is not None and not column.is_nested:
            names.append(column.json_name)
    return pd.DataFrame(rows, columns=names)


def comparison_frame(experiment: Experiment) -> pd.DataFrame:
    """Every arm against the baseline on every metric, as the page has it: a row each."""
    return comparison_table(experiment.name, compare_all(experiment))


def tokens_rows(outcome: Comparisons) -> list[Cells]:
    """What is told in tokens of each arm; [] where a step reads as many of them in all."""
    columns = [column for column in ARM_COLUMNS if column.json_name in IN_TOKENS]
    return [json_row(columns, ArmRow(arm=arm, outcome=outcome)) for arm in outcome.step_tokens]
