"""Which atoms a choice of groups turns on, and what a choice lacks; groups that lack are mended."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from harness.split.check import Checker
from harness.split.groups import MEASURED, NEUTRAL, ChangeGroup, Parts, with_needs
from harness.split.search import smallest


def measured(groups: Iterable[ChangeGroup]) -> list[ChangeGroup]:
    """The groups that are changes of an experiment."""
    return [group for group in groups if group.kind in MEASURED and not group.always]


def names_on(groups: Collection[ChangeGroup], chosen: Iterable[str]) -> set[str]:
    """The groups that a choice turns on: what it needs, what is always on, what only tells."""
    by_name = {group.name: group for group in groups}
    judged = {group.name for group in measured(groups)}
    on = set(chosen) | {group.name for group in groups if group.always}
    on |= needs_of(by_name, on)
    for group in groups:
        if group.kind == NEUTRAL and judged & set(group.needs) <= on:
            on |= {group.name, *group.needs}
    return on


def needs_of(by_name: Mapping[str, ChangeGroup], chosen: Iterable[str]) -> set[str]:
    """What groups need, directly or not."""
    needed: set[str] = set()
    for name in chosen:
        needed |= set(by_name[name].needs)
    return needed


def atoms_on(groups: Collection[ChangeGroup], chosen: Iterable[str]) -> set[int]:
    """The atoms of a choice."""
    on = names_on(groups, chosen)
    return {atom for group in groups if group.name in on for atom in group.atoms}


def stands(groups: Collection[ChangeGroup], chosen: Collection[str]) -> bool:
    """Whether a choice has all that it needs, and nothing that conflicts."""
    by_name = {group.name: group for group in groups}
    judged = {group.name for group in measured(groups)}
    if not needs_of(by_name, chosen) & judged <= set(chosen):
        return False
    on = names_on(groups, chosen)
    return not any(set(by_name[name].conflicts) & on for name in on)


def without(groups: Collection[ChangeGroup], name: str) -> list[str]:
    """All measured groups but one and those that need it."""
    return [g.name for g in measured(groups) if g.name != name and name not in g.needs]


def alone(groups: Collection[ChangeGroup], name: str) -> list[str]:
    """A measured group and the measured ones that it needs."""
    by_name = {group.name: group for group in groups}
    needed = {name, *by_name[name].needs}
    return [group.name for group in measured(groups) if group.name in needed]


def problems_of(parts: Parts, checker: Checker, chosen: Iterable[str]) -> list[str]:
    """What the script of a choice lacks."""
    return checker.problems(parts.difference.text(atoms_on(parts.groups, chosen)))


def mended(parts: Parts, checker: Checker) -> Parts:
    """The same with further needs, so that every group passes alone and may be left out.

    Where the baseline itself lacks something, what it is beyond OLD becomes arms."""
    if problems_of(parts, checker, ()):
        parts = replace(parts, groups=_nothing_for_all(parts.groups))
    for group in measured(parts.groups):
        if problems_of(parts, checker, alone(parts.groups, group.name)):
            parts = _with_more(parts, checker, group.name)
    for group in measured(parts.groups):
        if problems_of(parts, checker, without(parts.groups, group.name)):
            parts = _with_users(parts, checker, group.name)
    return parts


def _nothing_for_all(groups: Collection[ChangeGroup]) -> tuple[ChangeGroup, ...]:
    """The groups, those of the baseline measured as others are."""
    on = names_on(groups, ())
    changed = []
    for group in groups:
        is_on = group.name in on
        changed.append(replace(group, kind="learning", always=False) if is_on else group)
    return tuple(changed)


def _with_more(parts: Parts, checker: Checker, name: str) -> Parts:
    """A group that lacks something needs the first other one with which it lacks nothing."""
    present = alone(parts.groups, name)
    everything = [group.name for group in measured(parts.groups)]
    others = [other for other in everything if other not in present]
    needed = smallest(
        others,
        lambda more: not problems_of(parts, checker, _with_needs(parts.groups, [*present, *more])),
    )
    return _needing(parts, {name: needed})


def _with_users(parts: Parts, checker: Checker, name: str) -> Parts:
    """Those that lack something without a group need it."""
    kept = without(parts.groups, name)

    def passes(left_out: list[str]) -> bool:
        rest = set(kept)
        for other in left_out:
            rest -= {other, *(g.name for g in parts.groups if other in g.needs)}
        return not problems_of(parts, checker, rest)

    needing = smallest(kept, passes)
    return _needing(parts, {other: [name] for other in needing})


def _with_needs(groups: Collection[ChangeGroup], chosen: Iterable[str]) -> list[str]:
    present: set[str] = set()
    for name in chosen:
        present |= set(alone(groups, name))
    return [group.name for group in measured(groups) if group.name in present]


def _needing(parts: Parts, more: Mapping[str, list[str]]) -> Parts:
    groups = []
    for group in parts.groups:
        groups.append(replace(group, needs=(*group.needs, *more.get(group.name, ()))))
    return replace(parts, groups=with_needs(groups, parts.edges))
