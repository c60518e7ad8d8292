"""Declared statistics: each has one name, one place on the page, and comes out wherever it says."""

import statistics
from typing import Any

import pandas as pd
import pytest

from harness.__main__ import main
from reports.analysis.arm_columns import ARM_COLUMNS
from reports.analysis.arm_values import ArmRow
from reports.analysis.compare import compare_all
from reports.analysis.comparison_columns import COMPARISON_COLUMNS
from reports.analysis.headings import HEADINGS
from reports.inputs.columns import Between, Column, flat_row, json_row
from reports.inputs.load import load
from reports.inputs.run_columns import RUN_COLUMNS
from reports.page.cells import EMPTY, cell_of
from reports.page.published import EVIDENCE_HEADINGS
from tests.report_fixtures import write_experiment

LISTS = {"run": RUN_COLUMNS, "arm": ARM_COLUMNS, "comparison": COMPARISON_COLUMNS}


@pytest.mark.parametrize("columns", LISTS.values(), ids=LISTS)
def test_a_statistic_is_declared_once(columns):
    keys = [column.key for column in columns]
    names = [column.json_name for column in columns if column.json_name]
    assert len(set(keys)) == len(keys)
    assert len(set(names)) == len(names)


def test_whatever_has_a_format_stands_below_a_heading():
    headings = {heading.text for heading in (*HEADINGS, *EVIDENCE_HEADINGS)}
    assert {column.head for column in ARM_COLUMNS if column.format} <= headings
    assert all(column.head for column in RUN_COLUMNS if column.format)


def test_a_statistic_of_an_arm_has_all_that_its_runs_measured(tmp_path):
    write_experiment(tmp_path, n_seeds=4)
    experiment = load("split", tmp_path)
    runs = experiment.runs[experiment.runs["arm"] == "r08"]
    row = ArmRow(arm="r08", outcome=compare_all(experiment))
    measured = [name for name in runs.select_dtypes("float") if not runs[name].isna().all()]
    assert {"val_loss", "step_ms", "first_crossing_s"} <= {*measured}
    for name in measured:
        assert sorted(row.values(name)) == pytest.approx(sorted(runs[name].dropna()))
    assert row.values("heldout_loss") == ()
    median = Column(
        key="val_loss.median",
        meaning="A test.",
        value=lambda row: statistics.median(row.values("val_loss")),
        format="median {:loss}",
    )
    (part,) = cell_of([median], row, "num").parts
    assert part.text == f"median {runs['val_loss'].median():.4f}"


def column(**declared: Any) -> Column[dict[str, Any]]:
    return Column(key="x", meaning="A test.", **{"value": lambda row: row.get("x"), **declared})


@pytest.mark.parametrize(
    ("declared", "value", "text", "carried"),
    [
        ({"format": "sd {:sd}"}, 0.0123, "sd 0.012", "0.0123"),
        ({"format": "{:loss_delta}"}, Between(-0.1, 0.1), "[−0.1000, +0.1000]", "-0.1,0.1"),
        ({"format": "{:count} of {:count}"}, (1, 2), "1 of 2", "1.0,2.0"),
        ({"format": "{1}"}, (2, "mean of 2 logs"), "mean of 2 logs", "2.0"),
        ({"format": "{}"}, "not resolved", "not resolved", None),
        (
            {"format": "{:s}"},
            Between(float("-inf"), float("inf")),
            "interval still unbounded",
            None,
        ),
        ({"format": "{:count} failed", "hides_zero": False}, 0, "0 failed", "0.0"),
    ],
    ids=["number", "interval", "several", "in words", "text", "unbounded", "zero"],
)
def test_a_cell_prints_a_statistic_by_its_format(declared, value, text, carried):
    (part,) = cell_of([column(**declared)], {"x": value}, "num").parts
    assert (part.key, part.text, part.v) == ("x", text, carried)


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ({"format": "{:loss}"}, None),
        ({"format": "{:s}"}, Between(None, None)),
        ({"format": "{:count} failed", "hides_zero": True}, 0),
    ],
    ids=["none", "no interval", "hidden zero"],
)
def test_what_a_row_has_not_is_not_printed(declared, value):
    assert cell_of([column(**declared)], {"x": value}, "count") == EMPTY


def test_a_table_has_names_as_one_text_and_nothing_nested():
    names = column(json_name="warnings", value=lambda row: ["one_node", "stale"])
    pair = Column(
        key="pair", meaning="A test.", value=lambda row: [1, 2], json_name="pair", is_nested=True
    )
    assert json_row([names, pair], {}) == {"warnings": ["one_node", "stale"], "pair": [1, 2]}
    assert flat_row([names, pair], {}) == {"warnings": "one_node stale"}


def exported(tmp_path, *options: str) -> pd.DataFrame:
    out = tmp_path / "table.csv"
    with pytest.raises(SystemExit) as ended:
        main(["export", "published/ladder", *options, "-o", str(out)])
    assert ended.value.code == 0
    return pd.read_csv(out)


def test_arms_and_comparisons_are_exported_with_their_declared_columns(tmp_path):
    arms = exported(tmp_path, "--arms")
    declared = [column.json_name for column in ARM_COLUMNS if column.json_name]
    assert list(arms.columns) == ["experiment", *declared]
    assert arms["arm"].tolist()[:2] == ["r04", "r05"]
    assert arms.loc[arms["arm"] == "r05", "step_ms"].item() == 178.89
    comparisons = exported(tmp_path, "--comparisons")
    of_r05 = comparisons[(comparisons["arm"] == "r05") & (comparisons["metric"] == "val_loss")]
    assert of_r05["delta"].item() == pytest.approx(3.2741 - 3.2785)
    assert not {"interval", "next_cost"} & set(comparisons.columns)


def test_one_table_is_exported_at_a_time(tmp_path, capsys):
    out = str(tmp_path / "table.csv")
    with pytest.raises(SystemExit) as ended:
        main(["export", "published/ladder", "--arms", "--curves", "-o", out])
    assert ended.value.code == 2
    assert "--curves, --arms and --comparisons are different tables" in capsys.readouterr().err
