"""Under which name `ablate ab` keeps its runs: other scripts never take an experiment over."""

import sys
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UserError

if TYPE_CHECKING:
    from harness.foreign.experiment import ForeignExperiment
    from harness.run.foreign import TrainerSpec
    from harness.run.plan import Plan

CodePlace = tuple[str, ...]  # where an arm's code comes from


class NameTakenError(UserError):
    """Another call took the name for other scripts after it was chosen: nothing was started."""


def with_own_name(e: "ForeignExperiment", results: Path) -> "ForeignExperiment":
    """The experiment, under another name where its own holds other scripts; that is said.

    Called again it finds the same name."""
    from harness.store.plans import read_plan

    for name in chain([e.name], (f"{e.name}-{i}" for i in count(2))):
        before = read_plan(results, name)
        if before is None or not before.foreign or is_of_these(before, e):
            break
    if name != e.name:
        first = read_plan(results, e.name)
        assert first is not None
        others = ", ".join(arm.name for arm in first.arms)
        print(
            f"experiment '{e.name}' holds other scripts ({others}): this one is named '{name}'",
            file=sys.stderr,
        )
    return replace(e, name=name)


def is_of_these(before: "Plan", e: "ForeignExperiment") -> bool:
    """Whether a plan's arms are among the experiment's, or the other way round, in one place."""
    theirs = {arm.name: arm.side for arm in before.arms}
    ours = {arm.name: arm.written for arm in e.arms}
    if not (theirs.keys() <= ours.keys() or ours.keys() <= theirs.keys()):
        return False
    return all(_is_same(theirs[name], ours[name]) for name in theirs.keys() & ours.keys())


def _is_same(before: "TrainerSpec | None", now: "TrainerSpec") -> bool:
    """Whether a script is the one that was there, edited or not; one that is gone was moved."""
    if before is None or _place(before) == _place(now):
        return True
    return before.file is not None and now.file is not None and not before.file.exists()


def _place(spec: "TrainerSpec") -> CodePlace:
    if spec.file is not None:
        return (str(spec.file), *map(str, spec.patches))
    return (str(spec.repo), str(spec.ref), spec.script, *map(str, spec.patches))
