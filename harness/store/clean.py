"""What a results folder weighs, and what of it may go.

Nothing that a report counts, nothing that somebody works on.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness.run.guarded import (
    IN_FOLDER,
    IN_ROOT,
    KEPT,
    RefusedFileError,
    entries_in,
    folders_in,
    is_file,
)
from harness.run.spec import TRUNK_FILE
from harness.store.claims import last_attempt
from harness.store.plans import readable_plans, up_to_date
from harness.store.store import Store


@dataclass(frozen=True, kw_only=True)
class Removable:
    """One kind of what may go: where it lies, in words."""

    name: str
    meaning: str
    find: Callable[[Store], Iterator[Path]]


def _stale(store: Store) -> Iterator[Path]:
    current: set[str] = set()
    older: set[str] = set()
    for _, plan, _ in readable_plans(store.root):
        if plan is None:
            return  # what cannot be read may name any run
        for run in up_to_date(store.root, plan).runs:
            current.add(run.run_id)
            older.update(run.older)
    there = set(folders_in(store.runs, below=IN_ROOT))
    for run_id in sorted(older - current):
        if run_id in there and store.state(run_id).status != "running":
            yield store.directory(run_id)


def _trunks(store: Store) -> Iterator[Path]:
    """Trunks that no planned run without a result goes on from."""
    needed: set[str | None] = set()
    for _, plan, _ in readable_plans(store.root):
        if plan is None:
            return  # what cannot be read may need any trunk
        needed.update(run.trunk for run in plan.runs if not store.is_done(run.run_id))
    for run_id, state in store.states():
        there = is_file(store.directory(run_id) / TRUNK_FILE)
        if there and run_id not in needed and state.status != "running":
            yield store.directory(run_id)


def _attempts(store: Store) -> Iterator[Path]:
    """Folders of attempts that are over, and what killed processes left half-written."""
    states = list(store.states())
    for run_id, state in states:
        run = store.directory(run_id)
        at_work = str(last_attempt(run)) if state.status == "running" else None
        for attempt in _entries(run / "attempts", below=IN_FOLDER):
            if at_work is None or (attempt.name != at_work and attempt.name.isdigit()):
                yield attempt
        if at_work is None:
            yield from _entries(run, below=KEPT, beginning=".")
    yield from _entries(store.runs, below=IN_ROOT, beginning=".removed-")
    if not any(state.status == "running" for _, state in states):
        for kind in ("code", "environments"):
            yield from _entries(store.root / kind, below=IN_ROOT, beginning=".")
        for name in folders_in(store.root / "experiments", below=IN_ROOT):
            yield from _entries(store.root / "experiments" / name, below=KEPT, beginning=".")


def _entries(folder: Path, *, below: int, beginning: str = "") -> Iterator[Path]:
    """What a folder holds under names that begin so; nothing that a link leads to."""
    with suppress(RefusedFileError):
        for name in entries_in(folder, below=below):
            if name.startswith(beginning):
                yield folder / name


def _aside(store: Store) -> Iterator[Path]:
    yield from _entries(store.root / "aside", below=IN_ROOT)


def _reruns(store: Store) -> Iterator[Path]:
    if entries_in(store.root, below=0).get("reruns") != "folder":
        return
    again = Store(store.root / "reruns")
    for run_id, state in again.states():
        if state.status != "running":
            yield again.directory(run_id)


def _caches(store: Store) -> Iterator[Path]:
    if not any(state.status == "running" for _, state in store.states()):
        yield from _entries(store.root / "cache", below=IN_ROOT)


KINDS = (
    Removable(name="stale", meaning="runs whose code is no longer the present one", find=_stale),
    Removable(name="trunks", meaning="trunks that every run has gone on from", find=_trunks),
    Removable(
        name="attempts", meaning="what attempts left that did not give the result", find=_attempts
    ),
    Removable(name="aside", meaning="runs that were found damaged, set aside", find=_aside),
    Removable(name="reruns", meaning="finished runs done again by `ablate rerun`", find=_reruns),
    Removable(
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
