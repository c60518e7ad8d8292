"""A results folder looked at in full, whatever is remembered of it: every file, every digest."""

import os
from collections.abc import Iterator
from pathlib import Path

from harness.run.guarded import is_file
from harness.run.plan import Plan
from harness.run.plan_file import wrong_lock
from harness.store.kept import Kept, kept_of
from harness.store.merge import what_is_wrong


def wrong_in(results: Path, plan: Plan) -> Iterator[str]:
    """What is not sound of an experiment, and of the code and environments that its runs name.

    Code that is gone is not wrong: no number comes from it. Raises NewerError.
    """
    folder = results / "experiments" / plan.name
    if is_file(folder / "experiment.json"):
        wrong = wrong_lock(folder / "plan.lock", plan)
        if wrong:
            yield wrong
    named: dict[Kept, None] = {}
    for planned in plan.runs:
        for run_id in (planned.run_id, *planned.older):
            run = results / "runs" / run_id
            if not is_file(run / "result.json"):
                continue
            wrong = what_is_wrong(run)
            if wrong:
                yield wrong
            else:
                named.update(dict.fromkeys(kept_of(run)))
    for kept in named:
        if os.path.lexists(kept.path(results)) and kept.read(results) is None:
            yield kept.wrong(results)
