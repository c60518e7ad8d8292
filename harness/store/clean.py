"""What a results folder weighs, and what of it may go.

Nothing that a report counts, nothing that somebody works on.
"""

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.store.claims import last_attempt
from harness.store.plans import read_plan, up_to_date
from harness.store.store import Store


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of what may go: where it lies, in words."""

    name: str
    meaning: str
    find: Callable[[Store], Iterator[Path]]


def _stale(store: Store) -> Iterator[Path]:
    current: set[str] = set()
    older: set[str] = set()
    for path in store.root.glob("experiments/*/experiment.json"):
        plan = read_plan(store.root, path.parent.name)
        if plan is None:
            continue
        for run in up_to_date(store.root, plan).runs:
            current.add(run.run_id)
            older.update(run.older)
    for run_id in sorted(older - current):
        if store.directory(run_id).is_dir() and store.state(run_id).status != "running":
            yield store.directory(run_id)


def _attempts(store: Store) -> Iterator[Path]:
    """Folders of attempts that are over, and what killed processes left half-written."""
    states = list(store.states())
    for run_id, state in states:
        run = store.directory(run_id)
        if state.status == "running":
            at_work = str(last_attempt(run))
            for attempt in run.glob("attempts/*"):
                if attempt.name != at_work and attempt.name.isdigit():
                    yield attempt
        else:
            yield from run.glob("attempts/*")
            yield from run.glob(".*")
    yield from store.runs.glob(".removed-*")
    if not any(state.status == "running" for _, state in states):
        for torn in ("code/.*", "environments/.*", "experiments/*/.*"):
            yield from store.root.glob(torn)


def _aside(store: Store) -> Iterator[Path]:
    yield from store.root.glob("aside/*")


def _reruns(store: Store) -> Iterator[Path]:
    again = Store(store.root / "reruns")
    if again.runs.is_dir():
        for run_id, state in again.states():
            if state.status != "running":
                yield again.directory(run_id)


def _caches(store: Store) -> Iterator[Path]:
    if not any(state.status == "running" for _, state in store.states()):
        yield from store.root.glob("cache/*")


KINDS = (
    Kind(name="stale", meaning="runs whose code is no longer the present one", find=_stale),
    Kind(
        name="attempts", meaning="what attempts left that did not give the result", find=_attempts
    ),
    Kind(name="aside", meaning="runs that were found damaged, set aside", find=_aside),
    Kind(name="reruns", meaning="finished runs done again by `ablate rerun`", find=_reruns),
    Kind(
        name="caches",
        meaning="which results were looked at, kernels of older versions; made again when needed",
        find=_caches,
    ),
)


def weight(path: Path) -> int:
    """Bytes under a path."""
    if not path.is_dir() or path.is_symlink():
        return path.lstat().st_size
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            total += (Path(folder) / name).lstat().st_size
    return total


def remove(path: Path) -> None:
    """Delete a file, or a folder whole.

    It is renamed first, so that no half of it can be taken for a run.
    """
    if not path.is_dir() or path.is_symlink():
        path.unlink(missing_ok=True)
        return
    grave = path.with_name(f".removed-{path.name}-{uuid.uuid4().hex[:8]}")
    os.rename(path, grave)
    shutil.rmtree(grave)
