"""What was trained: the compared runs as each of them recorded itself, by arm.

What no run recorded is unknown, and never the plan's word for it where a run says otherwise.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from harness.run.document import Content, Document, Fields
from harness.run.plan import Plan
from harness.run.results import Result
from reports.analysis import samples
from reports.inputs.experiment import Experiment

PLUGIN = "plugin."  # settings of a plug-in: one that is not there is its default


def flat(mapping: Document, above: str = "") -> Content:
    """Nested mappings as dotted fields."""
    out: Content = {}
    for key, value in mapping.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping) and value:
            out |= flat(value, f"{name}.")
        else:
            out[name] = value
    return out


def without_plugins(fields: Content) -> Content:
    """Dotted fields, without the word that no plug-in is on: it is no setting."""
    if fields.get("plugin") == {}:
        del fields["plugin"]
    return fields


def distinct(values: Iterable[Any]) -> list[Any]:
    """The values that are known, each once, in their order."""
    once: list[Any] = []
    for value in values:
        if value is not None and value not in once:
            once.append(value)
    return once


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What the compared runs recorded of themselves."""

    plan: Plan
    budget: int | None
    by_arm: Mapping[str, Sequence[Document]]  # config.yaml of every compared run that has one
    results_by_arm: Mapping[str, Sequence[Result]]  # of the same runs
    environments: Sequence[Document]
    plugins: Mapping[str, str]  # file of a plug-in -> its source
    accelerators: Sequence[str] = ()  # as the table of the same runs names them
    steps: Sequence[int] = ()  # that the same runs made, each number once

    @classmethod
    def of(cls, experiment: Experiment, budget: int | None) -> "Recipe":
        """The runs whose losses are compared at the budget."""
        run_ids = compared_runs(experiment, budget)
        by_arm: dict[str, list[Document]] = {arm.name: [] for arm in experiment.plan.arms}
        results: dict[str, list[Result]] = {arm.name: [] for arm in experiment.plan.arms}
        environments = []
        for arm, run_id in run_ids:
            if run_id in experiment.configs:
                by_arm[arm].append(experiment.configs[run_id])
            if run_id in experiment.results:
                results[arm].append(experiment.results[run_id])
            if run_id in experiment.environments:
                environments.append(experiment.environments[run_id])
        return cls(
            plan=experiment.plan,
            budget=budget,
            by_arm=by_arm,
            results_by_arm=results,
            environments=environments,
            plugins=experiment.plugins,
            accelerators=accelerators(experiment, [run_id for _, run_id in run_ids]),
            steps=steps_made(experiment, budget),
        )

    @cached_property
    def documents(self) -> list[Document]:
        """Of all arms."""
        return [document for documents in self.by_arm.values() for document in documents]

    @cached_property
    def results(self) -> list[Result]:
        """Of all arms."""
        return [result for results in self.results_by_arm.values() for result in results]

    @cached_property
    def settings(self) -> Mapping[str, Sequence[Fields]]:
        """Arm -> the configurations of its runs as dotted fields; planned ones where none ran."""
        settings: dict[str, Sequence[Fields]] = {}
        for arm, documents in self.by_arm.items():
            # runs of an arm differ by their seed: one configuration is flattened once
            configs = distinct(document.get("config") for document in documents)
            settings[arm] = [without_plugins(flat(config)) for config in configs]
        planned = settings[self.plan.baseline] or [self._planned_baseline()]
        for planned_arm in self.plan.arms:
            if not settings[planned_arm.name]:
                of_arm = [{**of_run, **planned_arm.fields} for of_run in planned]
                settings[planned_arm.name] = of_arm
        return settings

    def _planned_baseline(self) -> Content:
        planned = without_plugins(flat(self.plan.baseline_config))
        if planned and self.budget is not None:
            planned["schedule.steps"] = self.budget
        return planned

    def values(self, arm: str, field: str) -> list[Any]:
        """A field's values in the arm's runs, each once; [] where they tell none."""
        return [*self._values(arm, field)]

    def _values(self, arm: str, field: str) -> Iterator[Any]:
        seen: list[Any] = []
        for settings in self.settings[arm]:
            if field in settings and settings[field] not in seen:
                seen.append(settings[field])
                yield settings[field]

    def of_baseline(self, field: str) -> list[Any]:
        """The baseline's values of a field."""
        return self.values(self.plan.baseline, field)

    @property
    def differing(self) -> list[str]:
        """The fields in which an arm is not as the baseline, those of the first arms first."""
        fields: set[str] = set()
        for arm in self.by_arm:
            for settings in self.settings[arm]:
                fields.update(settings)
        apart: dict[str, int] = {}  # field -> the place of the first arm that differs in it
        for field in sorted(fields):
            usual = self.of_baseline(field)
            for place, arm in enumerate(self.by_arm):
                if self.values(arm, field) != usual:
                    apart.setdefault(field, place)
        return sorted(apart, key=apart.__getitem__)


def accelerators(experiment: Experiment, run_ids: Sequence[str]) -> list[str]:
    """What the rows of runs say that they ran on, each once; [] where they do not."""
    runs = experiment.runs
    named = runs[runs["run_id"].isin(run_ids)]["gpu"].dropna()
    return distinct(named.astype(str))


def steps_made(experiment: Experiment, budget: int | None) -> list[int]:
    """The numbers of steps of the compared runs; a script's own are known once it has run."""
    losses = samples.of_role(samples.usable(experiment).runs, "loss")
    made = samples.at_budget(losses, budget)["budget"]
    return sorted({int(steps) for steps in made if steps > 0})


def compared_runs(experiment: Experiment, budget: int | None) -> list[tuple[str, str]]:
    """(arm, run_id) of the runs whose losses are compared, in the table's order."""
    losses = samples.of_role(samples.usable(experiment).runs, "loss")
    compared = samples.at_budget(losses, budget)
    return [*zip(compared["arm"], compared["run_id"], strict=True)]
