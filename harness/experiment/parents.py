"""What each arm of a chain is held against: the one before it, or a parent of the file's."""

from collections.abc import Collection, Mapping, Sequence

from harness.errors import near
from harness.experiment.designs import CHAIN
from harness.experiment.file import ExperimentFile


def read_parents(
    file: ExperimentFile, design: str, arms: Sequence[str], listed: Sequence[str] = ()
) -> Mapping[str, str]:
    """Arm -> the arm it is held against; empty for other designs.

    arms: the baseline first. listed: all of the file's, where this machine leaves some out; in
    the place of such a parent comes its own. Raises UserError for an arm that there is not, for
    a circle, and for axes.
    """
    named = file.value("parents", dict, {}, "a mapping of arms to arms")
    if design != CHAIN:
        if named:
            raise file.fail(f"design {design} has no parents: `design: {CHAIN}` has", "parents")
        return {}
    if file.data.get("axes") and file.data.get("estimand") != "retuned":
        raise file.fail(
            f"design {CHAIN} and axes do not go together: at a point of an axis every arm is "
            "judged against the baseline: leave one of them out, or set estimand: retuned",
            "axes",
        )
    listed = listed or arms
    baseline, *others = listed
    if baseline in named:
        raise file.fail(f"parents: {baseline!r} has none", "parents", baseline)
    for arm, parent in named.items():
        for name in (arm, parent):
            if name not in listed:
                raise file.fail(
                    f"parents: {name!r} is no arm{near(str(name), listed)}", "parents", str(arm)
                )
    parents = dict(zip(others, listed, strict=False)) | named
    for arm in others:
        _check_line(file, arm, parents, baseline)
    return {arm: _first_of(arms, arm, parents) for arm in others if arm in arms}


def _check_line(file: ExperimentFile, arm: str, parents: Mapping[str, str], baseline: str) -> None:
    """Refuse an arm whose line of parents never reaches the baseline."""
    line = [arm]
    while line[-1] != baseline:
        parent = parents[line[-1]]
        if parent in line:
            circle = " -> ".join([*line, parent])
            raise file.fail(f"parents go in a circle: {circle}", "parents")
        line.append(parent)


def _first_of(arms: Collection[str], arm: str, parents: Mapping[str, str]) -> str:
    """The first in an arm's line of parents that this machine has."""
    parent = parents[arm]
    while parent not in arms:
        parent = parents[parent]
    return parent
