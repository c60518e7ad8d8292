"""What of NEW may go: scripts without the groups whose loss costs little, the smallest first."""

from collections.abc import Collection, Mapping

from harness.split.arms import measured
from harness.split.groups import ChangeGroup

MOST = 3  # scripts that are tried: each widens the intervals of all


def kept_without(groups: Collection[ChangeGroup], dropped: Collection[str]) -> tuple[str, ...]:
    """The measured groups without these and without what needs one of them."""
    kept = []
    for group in measured(groups):
        if group.name not in dropped and not set(group.needs) & set(dropped):
            kept.append(group.name)
    return tuple(kept)


def smaller_scripts(
    groups: Collection[ChangeGroup], costs: Mapping[str, float], margin: float
) -> list[tuple[str, ...]]:
    """The groups of each script to try, the one with the fewest lines first; none where none goes.

    costs: group -> the largest loss that leaving it out, with what needs it, may cost; margin: of
    the loss. Without all groups below the margin, without the cheaper half, without the cheapest.
    """
    cheap = sorted((name for name in costs if costs[name] <= margin), key=lambda n: (costs[n], n))
    lines = {group.name: group.lines for group in groups}
    tried: list[tuple[str, ...]] = []
    for n in (len(cheap), (len(cheap) + 1) // 2, 1):
        kept = kept_without(groups, cheap[:n])
        if cheap and kept not in tried:
            tried.append(kept)
    return sorted(tried[:MOST], key=lambda kept: sum(lines[name] for name in kept))
