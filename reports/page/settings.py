"""The tables of a page on what was run: settings that differ between arms, machines, software."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from harness.run.document import Content, Document, Fields
from harness.run.plan import Plan
from reports.page.embed import canonical
from reports.page.tables import missing

SIDE_BY_SIDE = 8  # arms whose settings stand in one table across; more do not fit a sheet of paper


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


def setting_in_words(value: Any) -> str:
    """A setting as a person reads it."""
    if value is False or value is None:
        return "off"
    if value is True:
        return "on"
    if isinstance(value, str):
        return value
    return canonical(value)


@dataclass(frozen=True, kw_only=True)
class Differences:
    """Fields in which some arm differs from the baseline."""

    arms: Sequence[str]
    rows: Sequence[tuple[str, Sequence[tuple[str, bool]]]]  # field, per arm (text, differs)
    # where arms are too many to stand side by side: arm, [(field, text, the baseline's text)]
    by_arm: Sequence[tuple[str, Sequence[tuple[str, str, str]]]] = ()


def config_differences(
    plan: Plan, configs: Mapping[str, Document], runs: pd.DataFrame
) -> Differences:
    """Fields in which some arm differs from the baseline.

    Read from what the runs were given where an arm has a run, from the plan where it has none yet.
    """
    names = list(plan.by_arm)
    given = given_fields(configs, runs)
    values = {arm.name: given.get(arm.name, arm.fields) for arm in plan.arms}
    base = names.index(plan.baseline)
    rows = []
    for field in sorted(differing_fields(plan, given)):
        of_arms = [values[name].get(field) for name in names]
        usual = canonical(of_arms[base])
        cells = [(setting_in_words(value), canonical(value) != usual) for value in of_arms]
        rows.append((field, cells))
    if len(names) <= SIDE_BY_SIDE:
        return Differences(arms=names, rows=rows)
    by_arm = []
    for place, name in enumerate(names):
        changed = []
        for field, cells in rows:
            value_text, differs = cells[place]
            if differs:
                changed.append((field, value_text, cells[base][0]))
        if place != base:
            by_arm.append((name, changed))
    return Differences(arms=names, rows=rows, by_arm=by_arm)


def given_fields(configs: Mapping[str, Document], runs: pd.DataFrame) -> dict[str, Fields]:
    """Arm -> the configuration of its first run, of arms with a run."""
    given: dict[str, Fields] = {}
    for arm, run_id in zip(runs["arm"], runs["run_id"]):
        if arm not in given and run_id in configs:
            given[arm] = flat(configs[run_id].get("config", {}))
    return given


def differing_fields(plan: Plan, given: Mapping[str, Fields]) -> set[str]:
    """What the plan changes, and what the runs were given otherwise than the baseline's."""
    fields: set[str] = set()
    for arm in plan.arms:
        fields.update(arm.fields)
    base = given.get(plan.baseline)
    if base is None:
        return fields
    for config in given.values():
        names = config.keys() | base.keys()
        fields.update(name for name in names if config.get(name) != base.get(name))
    return fields


YES_NO = {"True": "yes", "False": "no"}
ENVIRONMENT_WORDS = {
    "host": "node",
    "cpu": "processor",
    "gpus": "accelerators",
    "driver": "driver",
    "python": "Python",
    "torch": "torch",
    "cuda": "CUDA",
    "cudnn": "cuDNN",
    "nccl": "NCCL",
}
UNPRINTED = ("packages", "command", "pip_freeze", "freeze")
# what it is, its values with the runs that had each
EnvironmentFact = tuple[str, Sequence[tuple[str, int]]]


def environment_table(environments: Mapping[str, Document]) -> list[EnvironmentFact]:
    """Per fact of the environment its distinct values, those of most runs first."""
    keys = dict.fromkeys(ENVIRONMENT_WORDS)
    for environment in environments.values():
        keys |= dict.fromkeys(environment)
    facts: list[EnvironmentFact] = []
    for key in keys:
        if key in UNPRINTED:
            continue
        counts: Counter[str] = Counter()
        for environment in environments.values():
            fact = fact_in_words(environment.get(key))
            if not missing(fact):
                counts[str(fact)] += 1
        if counts:
            facts.append((ENVIRONMENT_WORDS.get(key, key), counts.most_common()))
    return facts


def fact_in_words(value: Any) -> Any:
    """A fact of the environment with lists and mappings in words."""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        parts = [f"{k} {YES_NO.get(str(v), v)}" for k, v in flat(value).items() if not missing(v)]
        return ", ".join(parts)
    return value
