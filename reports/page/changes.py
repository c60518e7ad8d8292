"""What each change sets, from the runs of an arm with it and of the same arm without it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reports.analysis.recipe import Recipe
from reports.analysis.samples import arms_off_the_axes
from reports.page.embed import page_json
from reports.page.settings import Setting, settings_in_words

MOST_CHANGES = 12  # beyond which the table of what differed tells them


@dataclass(frozen=True, kw_only=True)
class ChangeSet:
    """A change by its name, with the settings that it brings."""

    name: str
    settings: Sequence[Setting]


def change_sets(recipe: Recipe) -> list[ChangeSet]:
    """The changes that two arms tell apart; [] where nobody knows what arms set."""
    plan = recipe.plan
    if plan.evidence or plan.imported or plan.foreign:
        return []
    arms = {frozenset(arm.changes): arm.name for arm in arms_off_the_axes(plan)}
    changes = list(dict.fromkeys(change for arm in plan.arms for change in arm.changes))
    if len(changes) > MOST_CHANGES:
        return []
    sets = []
    for place, change in enumerate(changes):
        settings = settings_of(recipe, change, place, arms)
        if settings:
            sets.append(ChangeSet(name=change, settings=settings))
    return sets


def settings_of(
    recipe: Recipe, change: str, place: int, arms: Mapping[frozenset[str], str]
) -> list[Setting]:
    """Of the smallest arm that has the change and runs without it, too; place: the change's."""
    pairs = [(s, s - {change}) for s in arms if change in s and s - {change} in arms]
    if not pairs:
        return []
    with_it, without = min(pairs, key=lambda pair: (len(pair[0]), sorted(pair[0])))
    there, before = arms[with_it], arms[without]
    settings = []
    for field in recipe.differing:
        if page_json(recipe.values(there, field)) != page_json(recipe.values(before, field)):
            setting = Setting(
                key=f"sets {place} {field}",
                field=field,
                text=settings_in_words(recipe, there, field),
                usual=settings_in_words(recipe, before, field),
                differs=True,
            )
            settings.append(setting)
    return settings
