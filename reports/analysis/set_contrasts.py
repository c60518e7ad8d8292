"""Contrasts over the sets of changes that were run: a change alone, its Shapley share, left out."""

from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction

Subset = frozenset[str]
Contrast = Mapping[Subset, Fraction]  # set of changes -> coefficient of its mean

NOTHING: Subset = frozenset()


def shapley_contrasts(sets: Collection[Subset], changes: Collection[str]) -> dict[str, Contrast]:
    """Change -> its share's contrast over the sets that can stand, the empty one among them.

    {} where no order leads to all."""
    everything = frozenset(changes)
    stand = sorted({*sets, NOTHING}, key=len)
    down = _ways_from_nothing(stand)
    up = _ways_to(everything, stand)
    orders = down.get(everything, 0)
    if not orders:
        return {}
    shares: dict[str, dict[Subset, Fraction]] = {change: {} for change in changes}
    for with_it in stand:
        for change in with_it:
            without = with_it - {change}
            weight = Fraction(down.get(without, 0) * up[with_it], orders)
            if weight:
                share = shares[change]
                share[with_it] = share.get(with_it, Fraction()) + weight
                share[without] = share.get(without, Fraction()) - weight
    return {change: _without_zeros(share) for change, share in shares.items()}


def _ways_from_nothing(stand: Iterable[Subset]) -> dict[Subset, int]:
    """In how many orders of changes every set is reached; the sets by size."""
    ways: dict[Subset, int] = {}
    for s in stand:
        ways[s] = sum(ways.get(s - {change}, 0) for change in s)
        if s == NOTHING:
            ways[s] = 1
    return ways


def _ways_to(everything: Subset, stand: list[Subset]) -> dict[Subset, int]:
    """In how many orders every set grows to all changes; the sets by size."""
    ways: dict[Subset, int] = {}
    for s in reversed(stand):
        ways[s] = sum(ways.get(s | {change}, 0) for change in everything - s)
        if s == everything:
            ways[s] = 1
    return ways


def _without_zeros(contrast: Contrast) -> Contrast:
    return {s: weight for s, weight in contrast.items() if weight}


def alone_contrasts(sets: Collection[Subset], changes: Collection[str]) -> dict[str, Contrast]:
    """Change -> it alone against nothing, where it was run alone."""
    contrasts: dict[str, Contrast] = {}
    for change in changes:
        alone = frozenset({change})
        if alone in sets:
            contrasts[change] = {alone: Fraction(1), NOTHING: Fraction(-1)}
    return contrasts


def added_contrasts(sets: Collection[Subset], changes: Collection[str]) -> dict[str, Contrast]:
    """Change -> the smallest set with it against that without it, else against nothing.

    Of sets that each are a change with what it needs: what it adds to that, where that was run."""
    ran = sorted({*sets, NOTHING}, key=lambda s: (len(s), sorted(s)))
    contrasts: dict[str, Contrast] = {}
    for change in changes:
        with_it = next(s for s in ran if change in s)
        rest = with_it - {change}
        if rest not in ran:
            rest = NOTHING
        contrasts[change] = {with_it: Fraction(1), rest: Fraction(-1)}
    return contrasts


def rung_contrasts(sets: Iterable[Subset]) -> dict[str, Contrast]:
    """What each rung of a ladder adds, in its order -> the rung against the one before it.

    sets: of the rungs in order; the empty one may be among them."""
    contrasts: dict[str, Contrast] = {}
    before = NOTHING
    for rung in sets:
        if before < rung:
            added = " and ".join(sorted(rung - before))
            contrasts[added] = {rung: Fraction(1), before: Fraction(-1)}
            before = rung
    return contrasts


def left_out_contrasts(
    sets: Collection[Subset], changes: Collection[str], *, with_what_needs_it: bool
) -> dict[str, Contrast]:
    """Change -> all changes against all but it.

    with_what_needs_it: against the largest set without it, which was run then; of several, the
    first by the names of its changes."""
    everything, ran = frozenset(changes), sorted({*sets, NOTHING}, key=sorted)
    if everything not in sets:
        return {}
    contrasts: dict[str, Contrast] = {}
    for change in changes:
        rest = everything - {change}
        if with_what_needs_it:
            rest = max((s for s in ran if change not in s), key=len)
        if rest in ran:
            contrasts[change] = {everything: Fraction(1), rest: Fraction(-1)}
    return contrasts
