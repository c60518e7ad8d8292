"""Which groups a choice turns on, which choices stand, and which needs are found where a script lacks something."""

from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any

import pytest

from harness.split.arms import (
    alone,
    atoms_on,
    measured,
    mended,
    names_on,
    stands,
    without,
)
from harness.split.groups import ChangeGroup, Parts


def group(name: str, atom: int, kind: str = "learning", **how: Any) -> ChangeGroup:
    return ChangeGroup(name=name, about="", kind=kind, atoms=(atom,), **how)


GROUPS = (
    group("imports", 0, "neutral", always=True),
    group("prints", 1, "neutral", needs=("a", "helper")),
    group("helper", 2, "support"),
    group("a", 3, needs=("helper",)),
    group("b", 4, "system", needs=("helper", "a")),
    group("c", 5, "data", conflicts=("a",)),
    group("d", 6, "budget", conflicts=("helper",)),
    group("fixed", 7, always=True),
)


def test_changes_are_what_is_measured_and_may_be_off() -> None:
    assert [g.name for g in measured(GROUPS)] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("chosen", "more"),
    [
        ("", set()),
        ("a", {"helper", "prints"}),
        ("ab", {"helper", "prints"}),
        ("c", set()),
        ("cd", set()),
    ],
)
def test_a_choice_turns_on_what_it_needs_and_what_tells_of_it(chosen: str, more: set[str]) -> None:
    expected = {"imports", "fixed", *chosen, *more}
    assert names_on(GROUPS, chosen) == expected
    assert atoms_on(GROUPS, chosen) == {g.atoms[0] for g in GROUPS if g.name in expected}


def test_what_only_tells_is_on_with_its_helper_where_no_change_is_asked_for() -> None:
    groups = (
        group("prints", 0, "neutral", needs=("helper",)),
        group("helper", 1, "support"),
        group("a", 2),
    )
    assert names_on(groups, ()) == {"prints", "helper"}
    assert names_on((group("tells", 0, "neutral"), *groups[2:]), ()) == {"tells"}


@pytest.mark.parametrize(
    ("chosen", "holds"),
    [
        ("", True),
        ("a", True),
        ("b", False),  # without a, which it needs
        ("ab", True),
        ("c", True),
        ("ac", False),  # they conflict
        ("ad", False),  # d conflicts with what a needs
        ("cd", True),
        ("abc", False),
    ],
)
def test_a_choice_stands_with_all_it_needs_and_no_conflict(chosen: str, holds: bool) -> None:
    assert stands(GROUPS, chosen) == holds


def test_without_a_group_goes_what_needs_it_and_alone_comes_what_it_needs() -> None:
    assert without(GROUPS, "a") == ["c", "d"]
    assert without(GROUPS, "b") == ["a", "c", "d"]
    assert alone(GROUPS, "b") == ["a", "b"]
    assert alone(GROUPS, "c") == ["c"]


# ---------------------------------------------------------------- what is mended

Lacks = Callable[[Collection[str]], bool]  # of the groups that are on


def mend(groups: tuple[ChangeGroup, ...], lacks: Lacks) -> dict[str, ChangeGroup]:
    """The groups, mended where a script of these groups lacks something."""
    names = {g.atoms[0]: g.name for g in groups}
    difference = SimpleNamespace(text=lambda atoms: {names[atom] for atom in atoms})
    checker: Any = SimpleNamespace(problems=lambda on: ["lacks"] if lacks(on) else [])
    whole: Any = difference
    found = mended(Parts(difference=whole, atoms=[], edges=set(), groups=groups), checker)
    return {g.name: g for g in found.groups}


XYZ = tuple(group(name, n) for n, name in enumerate("xyz"))


def test_groups_that_lack_nothing_stay_as_they_are() -> None:
    assert tuple(mend(GROUPS, lambda on: False).values()) == GROUPS


def test_a_group_that_lacks_something_alone_needs_the_first_that_gives_it() -> None:
    def needs_of(lacks: Lacks, groups: tuple[ChangeGroup, ...] = XYZ) -> dict[str, tuple[str, ...]]:
        return {name: g.needs for name, g in mend(groups, lacks).items()}

    nothing = dict.fromkeys("xyz", ())
    assert needs_of(lambda on: "y" in on and "x" not in on) == nothing | {"y": ("x",)}
    either = needs_of(lambda on: "x" in on and not {"y", "z"} & set(on))
    assert either == nothing | {"x": ("y",)}
    both = needs_of(lambda on: "x" in on and not {"y", "z"} <= set(on))
    assert both == nothing | {"x": ("y", "z")}
    second = group("y", 1, needs=("z",))  # brings what it needs itself
    whole = needs_of(lambda on: "x" in on and "y" not in on, (XYZ[0], second, XYZ[2]))
    assert whole == {"x": ("y", "z"), "y": ("z",), "z": ()}


def test_a_baseline_that_lacks_something_has_its_own_groups_measured() -> None:
    groups = (group("imports", 0, "neutral", always=True), group("a", 1))
    found = mend(groups, lambda on: "imports" in on and "a" not in on)
    assert (found["imports"].kind, found["imports"].always) == ("learning", False)
    assert found["imports"].needs == ("a",)
    assert found["a"] == groups[1]


def test_those_that_lack_something_together_without_a_group_need_it() -> None:
    """v beside w lacks g: without u, which w needs, both go, so that u is the first to need g."""
    groups = (group("g", 0), group("u", 1), group("v", 2), group("w", 3, needs=("u",)))
    found = mend(groups, lambda on: {"v", "w"} <= set(on) and "g" not in on)
    needs = {name: g.needs for name, g in found.items()}
    assert needs == {"g": (), "u": ("g",), "v": (), "w": ("g", "u")}
