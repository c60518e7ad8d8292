"""Looks are noted in the ledger, as far as it can be written; seeds with results are refused."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UserError

if TYPE_CHECKING:
    from harness.run.plan import Plan
    from harness.store.state import RunState


def remember_look(plan: "Plan", results: Path, look: str) -> None:
    """Note a look in the ledger, as far as it can be written."""
    from harness.store.looks import note_look

    with _forgotten_if_unwritable(results):
        note_look(results, plan, look)


def note_looks(results: Path, states: "Mapping[str, RunState]") -> None:
    """Note a look at all runs of a folder, as far as it can be written."""
    from harness.run.spec import RESULT_STATUSES
    from harness.store.looks import note_looks_at

    done = [run_id for run_id, state in states.items() if state.status in RESULT_STATUSES]
    with _forgotten_if_unwritable(results):
        note_looks_at(results, done, "status")


@contextmanager
def _forgotten_if_unwritable(results: Path) -> Iterator[None]:
    """What cannot be noted is said and forgotten."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        print(f"{results}: cannot be written ({reason}): this look is not noted", file=sys.stderr)


def refuse_seen_seeds(plan: "Plan", results: Path) -> None:
    """Raises UserError where a confirmatory experiment begins with seeds that have results."""
    from harness.store.looks import seeds_with_results

    experiment_of = seeds_with_results(results, plan)
    seen = [seed for seed in plan.seeds if seed in experiment_of]
    if seen:
        first = max([*experiment_of, *plan.seeds]) + 1
        fresh = list(range(first, first + len(plan.seeds)))
        raise UserError(
            f"{plan.name}: seeds {', '.join(map(str, seen[:4]))} have results already (in "
            f"{experiment_of[seen[0]]}), and would confirm nothing: set seeds: {fresh}"
        )
