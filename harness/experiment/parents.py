"""What each arm of a chain is held against: the one before it, or a parent of the file's."""

from collections.abc import Mapping, Sequence

from harness.errors import near
from harness.experiment.designs import CHAIN
from harness.experiment.file import ExperimentFile


def read_parents(file: ExperimentFile, design: str, arms: Sequence[str]) -> Mapping[str, str]:
    """Arm -> the arm it is held against; empty for other designs.

    arms: the baseline first. Raises UserError for an arm that there is not, and for a circle.
    """
    named = file.value("parents", dict, {}, "a mapping of arms to arms")
    if design != CHAIN:
        if named:
            raise file.fail(f"design {design} has no parents: `design: {CHAIN}` has", "parents")
        return {}
    baseline, *others = arms
    if baseline in named:
        raise file.fail(f"parents: {baseline!r} has none", "parents", baseline)
    for arm, parent in named.items():
        for name in (arm, parent):
            if name not in arms:
                raise file.fail(
                    f"parents: {name!r} is no arm{near(str(name), arms)}", "parents", str(arm)
                )
    parents = dict(zip(others, arms, strict=False)) | named
    for arm in others:
        _check_line(file, arm, parents, baseline)
    return parents


def _check_line(file: ExperimentFile, arm: str, parents: Mapping[str, str], baseline: str) -> None:
    """Refuse an arm whose line of parents never reaches the baseline."""
    line = [arm]
    while line[-1] != baseline:
        parent = parents[line[-1]]
        if parent in line:
            circle = " -> ".join([*line, parent])
            raise file.fail(f"parents go in a circle: {circle}", "parents")
        line.append(parent)
