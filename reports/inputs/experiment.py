"""One experiment as the reports see it: its plan, its runs and their curves."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.run.document import Document
from harness.run.plan import Plan
from harness.run.plural import plural
from harness.run.results import Result
from reports.inputs.memory import Memory

if TYPE_CHECKING:
    import pandas as pd

    from reports.inputs.step_times import StepTimes


@dataclass(frozen=True, kw_only=True, repr=False)
class Experiment:
    """A results directory's view of one experiment; made by reports.inputs.load.

    runs: one row per planned run, columns RUN_KEYS of reports/inputs/run_columns.py; curves:
    one row per validation point.
    """

    name: str
    plan: Plan
    runs: "pd.DataFrame"
    curves: "pd.DataFrame"
    environments: Mapping[str, Document]  # run_id -> environment.json
    configs: Mapping[str, Document]  # run_id -> config.yaml
    results: Mapping[str, Result]  # run_id -> result.json
    # run_id -> times of single steps, where they were recorded
    step_times: "Mapping[str, StepTimes]" = field(default_factory=dict)
    accept_stale: bool = False
    # file of a plug-in and the digest of its code -> its source, where that was kept
    plugins: Mapping[str, str] = field(default_factory=dict)
    retired: tuple[str, ...] = ()  # places that were given no more runs, in words
    memory: Memory = field(default_factory=Memory)  # of what was seen before
    pages: Mapping[str, str] = field(default_factory=dict)  # experiment -> address of its page
    # that asked its question again on fresh seeds, so far as they are there
    confirmations: "tuple[Experiment, ...]" = ()
    unsound: tuple[str, ...] = ()  # runs that are left out: which, and what of them is not sound

    def __repr__(self) -> str:
        """What it holds, in one line."""
        finished = int((self.runs["status"] == "finished").sum())
        return (
            f"<Experiment {self.name!r}: {plural(len(self.plan.arms), 'arm')}, "
            f"{plural(len(self.runs), 'run')}, {finished} finished, "
            f"{len(self.curves)} validation points>"
        )


def target_loss(plan: Plan) -> float | None:
    """The validation loss that training is to reach, where the plan names one, or runs set it."""
    if plan.target is None:
        return None
    return plan.target.val_loss
