"""Designs: which sets of changes become arms, and what each arm is called.

Pure functions of names and of what is feasible. An infeasible set is never an arm.
`feasible(changes)` tells; it is asked for sets in the order of the experiment's changes. A design
of another kind (fractional, Plackett-Burman, sampled orderings) is one more function in DESIGNS.
"""

from collections.abc import Callable, Mapping
from itertools import combinations

Changes = tuple[str, ...]
Feasible = Callable[[Changes], bool]
NamedSets = dict[str, Changes]  # arm name -> its changes, no two alike
BASELINE = "baseline"
CHAIN = "chain"  # a ladder whose arms the file may list, each with a parent
MAX_SUBSETS = 10  # changes of a factorial design; shapley stays exact up to five


def add_one(changes: Changes, feasible: Feasible) -> NamedSets:
    """Each change alone on the baseline, where it can stand alone."""
    return {c: (c,) for c in changes if feasible((c,))}


def leave_one_out(changes: Changes, feasible: Feasible) -> NamedSets:
    """All changes, and all but each one of them; nothing where they cannot stand together."""
    if not feasible(changes):
        return {}
    arms = {"all": changes}
    for left_out in changes:
        kept = largest_feasible(changes, left_out, feasible)
        with_it = [c for c in changes if c not in (*kept, left_out)]
        needing = ""
        if with_it:
            verb = "needs" if len(with_it) == 1 else "need"
            needing = f" (and {' and '.join(with_it)}, which {verb} it)"
        if kept and kept not in arms.values():
            arms[f"all but {left_out}{needing}"] = kept
    return arms


def largest_feasible(changes: Changes, without: str, feasible: Feasible) -> Changes:
    """The changes without one of them and without whatever then lacks what it needs.

    Grown from nothing by one change, or by two that need each other, until no more can stand:
    the largest such set, since sets that can stand side by side within `changes` can also stand
    together.
    """
    others = tuple(c for c in changes if c != without)
    if feasible(others):
        return others
    kept: Changes = ()
    grew = True
    while grew:
        grew = False
        for size in (1, 2):
            missing = [c for c in changes if c != without and c not in kept]
            for more in combinations(missing, size):
                candidate = tuple(c for c in changes if c in kept or c in more)
                if not set(more) & set(kept) and feasible(candidate):
                    kept, grew = candidate, True
            if grew:
                break
    return kept


def ladder(changes: Changes, feasible: Feasible) -> NamedSets:
    """The changes added one after the other; a step that cannot stand yet waits for the next."""
    arms: NamedSets = {}
    before = 0
    for n in range(1, len(changes) + 1):
        if feasible(changes[:n]):
            added = [f"+{name}" for name in changes[before:n]]
            arms[" ".join(added)] = changes[:n]
            before = n
    return arms


def factorial(changes: Changes, feasible: Feasible) -> NamedSets:
    """Every feasible subset but the empty one, which is the baseline."""
    arms = {}
    for n in range(1, len(changes) + 1):
        for subset in combinations(changes, n):
            if feasible(subset):
                arms[" + ".join(subset)] = subset
    return arms


def shapley(changes: Changes, feasible: Feasible) -> NamedSets:
    """Every feasible subset too.

    Nothing unless the changes can be added one by one in some order, which the shares are of.
    """
    arms = factorial(changes, feasible)
    reached = {frozenset[str]()}
    for subset in sorted(map(frozenset, arms.values()), key=len):
        if any(subset - {name} in reached for name in subset):
            reached.add(subset)
    if frozenset(changes) not in reached:
        return {}
    return arms


DESIGNS: Mapping[str, Callable[[Changes, Feasible], NamedSets]] = {
    "add-one": add_one,
    "leave-one-out": leave_one_out,
    "ladder": ladder,
    CHAIN: ladder,
    "factorial": factorial,
    "shapley": shapley,
}
MAX_CHANGES = 1000  # of a design that has no limit of its own: more are a mistake
LIMITS = {"factorial": MAX_SUBSETS, "shapley": 5}


def most_changes(design: str) -> int:
    """How many changes a design takes."""
    return LIMITS.get(design, MAX_CHANGES)
