"""Designs under random graphs of requirements and conflicts: what is planned can stand, what can stand is planned."""

from itertools import combinations, permutations

import hypothesis.strategies as st
from hypothesis import given, settings

from harness.experiment.designs import (
    DESIGNS,
    Changes,
    Feasible,
    add_one,
    factorial,
    ladder,
    largest_feasible,
    leave_one_out,
    shapley,
)

NAMES = ("a", "b", "c", "d", "e")
PAIRS = [(x, y) for x in NAMES for y in NAMES if x != y]
EXAMPLES = settings(max_examples=300, deadline=None, derandomize=True)


def feasible_under(
    requires: set[tuple[str, str]], conflicts: set[tuple[str, str]] = frozenset()
) -> Feasible:  # type: ignore[assignment]
    """A set stands if every member has what it requires and none that it conflicts with."""

    def feasible(chosen: Changes) -> bool:
        have = set(chosen)
        return all(y in have for x, y in requires if x in have) and not any(
            {x, y} <= have for x, y in conflicts
        )

    return feasible


def graphs(
    *, conflicting: bool = True, acyclic: bool = False
) -> st.SearchStrategy[tuple[Changes, Feasible]]:
    """Up to five changes in a random order, with random requirements and conflicts."""
    edges = [p for p in PAIRS if not acyclic or p[0] > p[1]]
    return st.builds(
        lambda changes, requires, conflicts: (
            tuple(changes),
            feasible_under(*(within(e, changes) for e in (requires, conflicts))),
        ),
        st.lists(st.sampled_from(NAMES), min_size=1, max_size=5, unique=True),
        st.sets(st.sampled_from(edges), max_size=4),
        st.sets(st.sampled_from(PAIRS), max_size=2) if conflicting else st.just(set()),
    )


def within(edges: set[tuple[str, str]], changes: list[str]) -> set[tuple[str, str]]:
    return {(x, y) for x, y in edges if x in changes and y in changes}


def subsets(changes: Changes) -> list[Changes]:
    return [s for n in range(len(changes) + 1) for s in combinations(changes, n)]


@EXAMPLES
@given(graphs(), st.sampled_from(sorted(DESIGNS)))
def test_every_planned_arm_can_stand_and_none_is_planned_twice(
    graph: tuple[Changes, Feasible], design: str
) -> None:
    changes, feasible = graph
    arms = DESIGNS[design](changes, feasible)
    assert all(feasible(arm) for arm in arms.values())
    assert len({frozenset(arm) for arm in arms.values()}) == len(arms)
    assert all(
        list(arm) == [c for c in changes if c in arm] for arm in arms.values()
    )  # in the file's order


@EXAMPLES
@given(graphs())
def test_every_arm_that_can_stand_is_there(graph: tuple[Changes, Feasible]) -> None:
    changes, feasible = graph
    stand = {s for s in subsets(changes) if s and feasible(s)}
    assert set(factorial(changes, feasible).values()) == stand
    assert set(add_one(changes, feasible).values()) == {s for s in stand if len(s) == 1}
    assert (
        set(ladder(changes, feasible).values())
        == {changes[:n] for n in range(1, len(changes) + 1)} & stand
    )
    one_by_one = any(
        all(feasible(order[:n]) for n in range(1, len(order) + 1))
        for order in permutations(changes)
    )
    assert set(shapley(changes, feasible).values()) == (stand if one_by_one else set())


@EXAMPLES
@given(graphs(conflicting=False))
def test_leaving_one_out_keeps_the_most_that_can_stand(graph: tuple[Changes, Feasible]) -> None:
    changes, feasible = graph
    arms = leave_one_out(changes, feasible)
    assert ("all" in arms) == feasible(changes)
    for without in changes if arms else ():
        best = max((s for s in subsets(changes) if without not in s and feasible(s)), key=len)
        kept = largest_feasible(changes, without, feasible)
        if pairwise(changes, feasible):
            assert len(kept) == len(best)
        assert not best or kept in arms.values() or not pairwise(changes, feasible)


def pairwise(changes: Changes, feasible: Feasible) -> bool:
    """Whether every set that can stand is reached from nothing by adding one change, or two that need each other."""
    reached = {frozenset[str]()}
    stand = sorted((frozenset(s) for s in subsets(changes) if feasible(s)), key=len)
    for s in stand:
        if any(s - set(more) in reached for n in (1, 2) for more in combinations(sorted(s), n)):
            reached.add(s)
    return reached == set(stand)


@EXAMPLES
@given(graphs(conflicting=False, acyclic=True))
def test_the_label_says_what_was_left_out_with_what(graph: tuple[Changes, Feasible]) -> None:
    changes, feasible = graph
    for label, arm in leave_one_out(changes, feasible).items():
        missing = {c for c in changes if c not in arm}
        named = set(label.replace("(", " ").replace(")", " ").replace(",", " ").split()) & set(
            NAMES
        )
        assert named == missing
        assert ("need" in label) == (len(missing) > 1)


def test_changes_that_need_each_other_have_no_order_and_no_shares() -> None:
    feasible = feasible_under({("a", "b"), ("b", "a")})
    assert shapley(("a", "b"), feasible) == {}
    assert list(factorial(("a", "b"), feasible).values()) == [("a", "b")]
    assert leave_one_out(("a", "b", "c"), feasible) == {
        "all": ("a", "b", "c"),
        "all but a (and b, which needs it)": ("c",),
        "all but c": ("a", "b"),
    }


def test_a_ladders_step_that_cannot_stand_waits_for_the_next() -> None:
    assert ladder(("a", "b", "c"), feasible_under({("a", "b")})) == {
        "+a +b": ("a", "b"),
        "+c": ("a", "b", "c"),
    }
