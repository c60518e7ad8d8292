"""The tables of a page on what was run: settings that differ between arms, machines, software."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.run.document import Document
from harness.run.plural import plural
from reports.analysis.recipe import PLUGIN, Recipe, flat
from reports.analysis.recipe_facts import setting_words
from reports.page.embed import page_json
from reports.page.tables import missing

SIDE_BY_SIDE = 8  # arms whose settings stand in one table across; more do not fit a sheet of paper
LONG_NUMBER = 10  # digits of a number beyond which four are printed
MANY_VALUES = 3  # values of one setting that a cell lists; of more it tells how many


def settings_in_words(recipe: Recipe, arm: str, field: str) -> str:
    """What the runs of an arm had of a setting; unknown where they do not tell."""
    values = recipe.values(arm, field)
    if not values and field.startswith(PLUGIN) and any(recipe.settings[arm]):
        of_plugin = ".".join(field.split(".")[:2]) + "."
        told = [name for settings in recipe.settings[arm] for name in settings]
        is_on = any(name.startswith(of_plugin) for name in told)
        return "as the plug-in has it" if is_on else "off"
    if not values:
        return "unknown"
    if len(values) > MANY_VALUES:
        return f"{len(values)} values"
    return " or ".join(in_short(value) for value in values)


def in_short(value: Any) -> str:
    """A setting in words; a number with so many digits as the box has of a rate."""
    text = setting_words(value)
    if isinstance(value, float) and len(text) > LONG_NUMBER:
        return f"{value:.4g}"
    return text


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A setting of an arm."""

    key: str  # of what the page prints
    field: str
    text: str
    usual: str  # the baseline's
    differs: bool


@dataclass(frozen=True, kw_only=True)
class Differences:
    """Settings in which some arm differs from the baseline."""

    arms: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Setting]]]  # field, per arm
    lead: str
    # where arms are too many to stand side by side: arm, its place, what differs
    by_arm: Sequence[tuple[str, int, Sequence[Setting]]] = ()


def config_differences(recipe: Recipe) -> Differences:
    """Settings in which some arm's compared runs differ from the baseline's."""
    names = [*recipe.by_arm]
    base = names.index(recipe.plan.baseline)
    rows = []
    for field in recipe.differing:
        usual = recipe.of_baseline(field)
        settings = []
        for place, name in enumerate(names):
            values = recipe.values(name, field)
            setting = Setting(
                key=f"differs {field} {place}",
                field=field,
                text=settings_in_words(recipe, name, field),
                usual=settings_in_words(recipe, recipe.plan.baseline, field),
                differs=page_json(values) != page_json(usual),
            )
            settings.append(setting)
        rows.append((field, settings))
    lead = lead_of_differences(recipe, many=len(names) > SIDE_BY_SIDE)
    if len(names) <= SIDE_BY_SIDE:
        return Differences(arms=names, rows=rows, lead=lead)
    by_arm = []
    for place, name in enumerate(names):
        changed = [settings[place] for _, settings in rows if settings[place].differs]
        if place != base:
            by_arm.append((name, place, changed))
    return Differences(arms=names, rows=rows, lead=lead, by_arm=by_arm)


def lead_of_differences(recipe: Recipe, *, many: bool) -> str:
    """What was compared, and what nobody can tell."""
    at_budget = ""
    if recipe.budget is not None:
        at_budget = f" at {plural(recipe.budget, 'step')}"
    if not recipe.differing:
        if not any(map(any, recipe.settings.values())) or recipe.plan.imported:
            return "Unknown: what was recorded tells no setting by which the arms differ."
        if recipe.plan.foreign:
            return f"The arms' runs{at_budget} were started alike. {code_words(recipe)}"
        return f"The arms' runs{at_budget} have the same configuration."
    text = f"Every setting in which some arm's runs{at_budget} differ from the baseline's"
    if many:
        text += "; where arms are many, they are rows."
    else:
        text += "; what differs is set in bold."
    if recipe.plan.evidence:
        text += evidence_words(recipe)
    elif recipe.plan.imported or recipe.plan.foreign:
        text += " What a script set inside is unknown: its code alone is compared."
    return text


def code_words(recipe: Recipe) -> str:
    """Whether the code of the arms' scripts, which alone tells them apart, differs."""
    of_arms = []
    for documents in recipe.by_arm.values():
        sources = [document.get("source") or {} for document in documents]
        of_arms.append({source["digest"] for source in sources if source.get("digest")})
    base = [*recipe.by_arm].index(recipe.plan.baseline)
    others = [codes for arm, codes in enumerate(of_arms) if codes and arm != base]
    if not of_arms[base] or not others:
        return "Whether their code differs is unknown."
    n_apart = sum(codes != of_arms[base] for codes in others)
    if not n_apart:
        return "Their code is the same, too."
    if n_apart < len(others):
        apart = f"{n_apart} of {len(others)} arms have other code than the baseline"
        return f"Their code differs, and nothing else that is known: {apart}."
    return "Their code differs, and nothing else that is known."


def evidence_words(recipe: Recipe) -> str:
    """Where what a published row changed is told, and that the rest is unknown."""
    if any(arm.note for arm in recipe.plan.arms):
        return " What it changed stands in the table above; what else it differed in is unknown."
    return " What else a published row differed in is unknown."


YES_NO = {"True": "yes", "False": "no"}
ENVIRONMENT_WORDS = {
    "host": "node",
    "cpu": "processor",
    "n_cpus": "processors",
    "gpus": "accelerators",
    "driver": "driver",
    "python": "Python",
    "torch": "torch",
    "cuda": "CUDA",
    "cudnn": "cuDNN",
    "nccl": "NCCL",
}
UNPRINTED = ("packages", "command", "pip_freeze", "freeze", "schema", "lock")
OURS = "ABLATE_WORKER"  # the variable that marks the processes of a run
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


def name_of(item: Any) -> str:
    """An item of a list of facts by its name, where it has one (an accelerator's)."""
    if isinstance(item, dict) and "name" in item:
        return str(item["name"])
    return str(item)


def fact_in_words(value: Any) -> Any:
    """A fact of the environment with lists and mappings in words."""
    if isinstance(value, list):
        counts = Counter(name_of(item) for item in value)
        return ", ".join(name if n == 1 else f"{n} x {name}" for name, n in counts.items())
    if isinstance(value, dict):
        told = {k: v for k, v in flat(value).items() if k != OURS and not missing(v)}
        parts = [f"{k} {YES_NO.get(str(v), v)}" for k, v in told.items()]
        return ", ".join(parts)
    return value
