"""One experiment as the reports see it: its plan, its runs and their curves."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.run.plan import Plan

if TYPE_CHECKING:
    import pandas as pd

    from reports.inputs.step_times import StepTimes


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A results directory's view of one experiment; made by reports.load.

    runs: one row per planned run, columns RUN_COLUMNS of reports/load.py; curves: one row per validation point."""

    name: str
    plan: Plan
    runs: "pd.DataFrame"
    curves: "pd.DataFrame"
    environments: Mapping[str, Mapping[str, Any]]  # run_id -> environment.json
    configs: Mapping[str, Mapping[str, Any]]  # run_id -> config.yaml
    results: Mapping[str, Mapping[str, Any]]  # run_id -> result.json
    step_times: "Mapping[str, StepTimes]" = field(default_factory=dict)  # run_id -> of single steps, where they were recorded
    accept_stale: bool = False
