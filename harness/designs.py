"""Designs: which sets of changes become arms. Pure functions of the changes' names and of what is feasible.

An infeasible set is never an arm. `feasible(changes)` tells; it is asked for sets in the order of the experiment's changes.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

Changes = tuple[str, ...]
Feasible = Callable[[Changes], bool]
BASELINE = "baseline"
MAX_SUBSETS = 10  # changes of a factorial design; shapley stays exact up to five


def largest_feasible(changes: Changes, without: str, feasible: Feasible) -> Changes:
    """The changes without one of them and without whatever then lacks what it needs: the largest such set, earliest first."""
    rest = tuple(c for c in changes if c != without)
    for size in range(len(rest), -1, -1):
        for kept in combinations(rest, size):
            if feasible(kept):
                return kept
    return ()


def add_one(changes: Changes, feasible: Feasible) -> list[Changes]:
    """Each change alone on the baseline, where it can stand alone."""
    return [(c,) for c in changes if feasible((c,))]


def leave_one_out(changes: Changes, feasible: Feasible) -> list[Changes]:
    """All changes, and all but each one of them."""
    return [changes, *(largest_feasible(changes, c, feasible) for c in changes)]


def ladder(changes: Changes, feasible: Feasible) -> list[Changes]:
    """The changes added one after the other; a step that cannot stand yet waits for the next."""
    return [changes[:n] for n in range(1, len(changes) + 1) if feasible(changes[:n])]


def factorial(changes: Changes, feasible: Feasible) -> list[Changes]:
    """Every feasible subset but the empty one, which is the baseline."""
    return [s for n in range(1, len(changes) + 1) for s in combinations(changes, n) if feasible(s)]


DESIGNS: Mapping[str, Callable[[Changes, Feasible], list[Changes]]] = {
    "add-one": add_one,
    "leave-one-out": leave_one_out,
    "ladder": ladder,
    "factorial": factorial,
    "shapley": factorial,
}
LIMITS = {"factorial": MAX_SUBSETS, "shapley": 5}


def labels(design: str, changes: Changes, arms: Sequence[Changes]) -> list[str]:
    """A name for every arm that says what it holds: 'a', 'a + b', or 'all but b (and c, which needs it)'."""
    out = []
    for arm in arms:
        missing = [c for c in changes if c not in arm]
        if design == "leave-one-out":
            out.append(
                "all" if not missing else f"all but {missing[0]}" if len(missing) == 1 else f"all but {' and '.join(missing)}"
            )
        elif design == "ladder":
            previous = arms[arms.index(arm) - 1] if arms.index(arm) else ()
            out.append(" ".join(f"+{c}" for c in arm if c not in previous))
        else:
            out.append(" + ".join(arm))
    return out
