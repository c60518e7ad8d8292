"""Exact Shapley shares as contrasts: what each change adds, averaged over every order in which changes can be added one by one.

Requirements leave only some orders possible; all of those weigh the same (uniform linear extensions; drawing the next feasible
change at random would not). The weight of the step S -> S+c is  paths(nothing -> S) * paths(S+c -> all) / paths(nothing -> all)
in the lattice of the sets that can stand, counted exactly. The shares sum to the total as fractions do, without rounding.
"""

from collections.abc import Collection, Mapping
from fractions import Fraction

Subset = frozenset[str]
Contrast = Mapping[Subset, Fraction]  # set of changes -> coefficient of its mean


def shapley_contrasts(sets: Collection[Subset], changes: Collection[str]) -> dict[str, Contrast]:
    """Change -> its share's contrast over the sets that can stand, the empty one among them; {} where no order leads to all."""
    everything, nothing = frozenset(changes), frozenset[str]()
    stand = sorted({*sets, nothing}, key=len)
    down = {s: int(s == nothing) for s in stand}  # ways to reach a set from nothing
    for s in stand[1:]:
        down[s] = sum(down.get(s - {c}, 0) for c in s)
    up = {s: int(s == everything) for s in stand}  # ways from a set to all changes
    for s in reversed(stand):
        up[s] = up[s] or sum(up.get(s | {c}, 0) for c in everything - s)
    total = down.get(everything, 0)
    if not total:
        return {}
    out: dict[str, dict[Subset, Fraction]] = {c: {} for c in changes}
    for s in stand:
        for c in s:
            weight = Fraction(down.get(s - {c}, 0) * up[s], total)
            for place, sign in ((s, 1), (s - {c}, -1)) if weight else ():
                out[c][place] = out[c].get(place, Fraction()) + sign * weight
    return {c: {s: w for s, w in contrast.items() if w} for c, contrast in out.items()}


def alone_contrasts(sets: Collection[Subset], changes: Collection[str]) -> dict[str, Contrast]:
    """Change -> it alone against nothing, where it was run alone."""
    return {c: {frozenset({c}): Fraction(1), frozenset[str](): Fraction(-1)} for c in changes if frozenset({c}) in sets}


def left_out_contrasts(sets: Collection[Subset], changes: Collection[str], *, with_what_needs_it: bool) -> dict[str, Contrast]:
    """Change -> all changes against all but it; `with_what_needs_it`: against the largest set without it, which was run then."""
    everything, ran = frozenset(changes), {*sets, frozenset[str]()}
    rest = {c: max((s for s in ran if c not in s), key=len) if with_what_needs_it else everything - {c} for c in changes}
    return {c: {everything: Fraction(1), rest[c]: Fraction(-1)} for c in changes if everything in sets and rest[c] in ran}
