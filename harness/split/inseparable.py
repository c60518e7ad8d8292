"""What of a bundle no arm tells apart, and why: for its page and for the report of its runs."""

from collections import Counter
from collections.abc import Collection, Mapping

from harness.split.arms import measured
from harness.split.calls import Edge
from harness.split.groups import ChangeGroup, Parts, reach


def inseparable(parts: Parts) -> list[str]:
    """A sentence each on what is one group, goes with another, or is in every arm; never none."""
    judged = {group.name for group in measured(parts.groups)}
    told: list[str] = []
    for group in parts.groups:
        n_atoms = f"{len(group.atoms)} atom{'s' if len(group.atoms) > 1 else ''}"
        others = [name for name in group.needs if name in judged]
        if group.always:
            told.append(
                f"{group.name}: {n_atoms} in every arm, the baseline too: what they do is in no "
                "difference"
            )
            continue
        if group.name in judged and len(group.atoms) > 1:
            told.append(f"{group.name}: {n_atoms} are one, by {_why(group, parts.edges)}")
        if group.name in judged and others:
            told.append(
                f"{group.name} is never without {', '.join(others)}: what is lost without "
                "one of those holds it too"
            )
        elif others:
            told.append(f"{group.name}: goes with {', '.join(others)}, whose effect holds it")
        elif group.name not in judged:
            users = [other.name for other in parts.groups if group.name in other.needs]
            told.append(f"{group.name}: is with what needs it: {', '.join(users) or 'nothing'}")
        for other in group.conflicts:
            told.append(f"{group.name} is never with {other}: how they work together is not told")
    return told or ["nothing: every group is one atom and needs no other"]


def _why(group: ChangeGroup, edges: Mapping[Edge, str]) -> str:
    """What ties the atoms of a group, what ties most of them first."""
    within = {edge: why for edge, why in edges.items() if {*edge} <= {*group.atoms}}
    reasons = [why for why, _ in Counter(within.values()).most_common()]
    if not _is_connected(group.atoms, within):
        reasons.append("being nothing alone, or an edit of changes.yaml")
    return "; ".join(reasons)


def _is_connected(atoms: Collection[int], edges: Collection[Edge]) -> bool:
    """Whether edges lead from each atom to each other, in whatever direction."""
    place = {atom: n for n, atom in enumerate(atoms)}
    both = [(place[one], place[other]) for one, other in edges]
    both += [(other, one) for one, other in both]
    return len(reach(len(place), both)[0]) == len(place)
