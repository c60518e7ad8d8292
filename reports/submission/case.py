"""An arm that is to be a record: its runs, those of the baseline, and what they executed."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from harness.run.document import Document
from harness.run.plan import PlanArm
from reports.inputs.experiment import Experiment
from reports.submission.scripts import Scripts, diff_of, kept_scripts

Said = Literal["passes", "fails", "cannot be known", "waived"]
RuleAnswer = tuple[Said, str]  # what a rule says, and why


@dataclass(frozen=True, kw_only=True)
class RuleCheck:
    """One rule, what it says of this arm, and why."""

    rule: str
    said: Said
    reason: str


@dataclass(frozen=True, kw_only=True)
class Case:
    """What the rules look at: the arm's runs and the baseline's."""

    experiment: Experiment
    arm: str
    planned: pd.DataFrame
    runs: pd.DataFrame  # finished runs of the arm
    baseline: pd.DataFrame  # finished runs of the baseline
    target: float
    results: Path | None = None  # the folder with the runs' files
    systems_only: bool = False  # that the arm leaves the learning as it is, as its author claims

    @classmethod
    def of(
        cls,
        experiment: Experiment,
        arm: str,
        target: float,
        *,
        results: Path | None = None,
        systems_only: bool = False,
    ) -> "Case":
        """An arm's case. arm: its name. target: the benchmark's loss.

        results: the folder with the runs' files. systems_only: what its author claims.
        """
        counted = experiment.runs
        if not experiment.accept_stale:
            counted = counted[~counted["stale"].astype(bool)]
        done = counted[counted["status"] == "finished"]
        longest = done[done["budget"] == done.groupby("arm")["budget"].transform("max")]
        runs = longest[longest["arm"] == arm]
        of_arm = counted[counted["arm"] == arm]
        return cls(
            experiment=experiment,
            arm=arm,
            planned=of_arm[of_arm["budget"].isin(runs["budget"])],
            runs=runs,
            baseline=longest[longest["arm"] == experiment.plan.baseline],
            target=target,
            results=results,
            systems_only=systems_only,
        )

    @property
    def plan_arm(self) -> PlanArm:
        return self.experiment.plan.by_arm[self.arm]

    @property
    def is_imported(self) -> bool:
        """Whether its runs are logs that were made elsewhere."""
        return bool(self.runs["imported"].astype(bool).any())

    @property
    def is_foreign(self) -> bool:
        """Whether its runs are a script's own, run here."""
        return any("trainer" in (config or {}) for config in self.facts("config"))

    @cached_property
    def scripts(self) -> Scripts | None:
        """The foreign code that the arm executed; None where it is not kept, or several."""
        return self._scripts_of(self.runs)

    @cached_property
    def baseline_scripts(self) -> Scripts | None:
        return self._scripts_of(self.baseline)

    def _scripts_of(self, runs: pd.DataFrame) -> Scripts | None:
        digests = {(self.config(r).get("source") or {}).get("digest") for r in runs["run_id"]}
        if self.results is None or len(digests) != 1:
            return None
        return kept_scripts(self.results, digests.pop())

    @cached_property
    def changes(self) -> str:
        """The diff from the baseline's code to the arm's; empty where none differs or is kept."""
        if not self.is_foreign or self.scripts is None or self.baseline_scripts is None:
            return ""
        return diff_of(self.baseline_scripts, self.scripts)

    def trainers(self, runs: pd.DataFrame) -> list[Document]:
        """What was asked of each run's foreign trainer."""
        configs = [self.config(run_id).get("config") or {} for run_id in runs["run_id"]]
        return [config["trainer"] for config in configs if config.get("trainer")]

    def config(self, run_id: str) -> Document:
        """A run's config.yaml; empty where there is none."""
        return self.experiment.configs.get(run_id, {})

    def field(self, dotted: str) -> set[Any]:
        """The distinct values of a configuration field over the arm's runs, None if unrecorded."""
        section, _, name = dotted.partition(".")
        values = set()
        for config in self.facts("config"):
            fields = (config or {}).get(section) or {}
            values.add(fields.get(name))
        return values

    def facts(self, key: str) -> list[Any]:
        """A part of each run's record; None where a run has none."""
        return [self.config(run_id).get(key) for run_id in self.runs["run_id"]]


def passes_if(holds: bool) -> Said:
    if holds:
        return "passes"
    return "fails"
