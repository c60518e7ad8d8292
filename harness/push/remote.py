"""A results folder of which files can be listed, fetched and put, and nothing else.

What is joined or verified of it is so on this machine, in the cache of the own results folder.
"""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from harness.push.alone import alone, cache_of
from harness.run.digests import text_digest
from harness.run.guarded import IN_ROOT, folders_in, is_name
from harness.store.kept import Kept, kept_of
from harness.store.merge import (
    Merged,
    files_of_run,
    goes_along,
    is_damaged,
    merge,
    merge_plans,
    what_is_wrong,
)
from harness.store.store import Store

RESULTS = "runs/*/result.json"
PLANS = ("experiments/*/experiment.json", "experiments/*/plan.lock", "ledger.jsonl")
OF_RUNS = ("runs/*/*", "runs/*/attempts/*/*")
FilesOfRuns = Mapping[str, Sequence[str]]  # run -> names below its folder


class Files(Protocol):
    """Files of a folder elsewhere, by names below it. Every method raises PushError."""

    name: str

    def open(self) -> None:
        """Make the folders of a results folder, and see that they can be written."""

    def connect(self) -> None:
        """Be ready for many messages."""

    def fitting(self, *patterns: str) -> list[str]:
        """The files that fit a pattern, a * for anything in a name."""

    def get(self, names: Sequence[str], into: Path) -> None:
        """Fetch files; those that are whole from an earlier try need not come again."""

    def put(self, root: Path, names: Sequence[str]) -> None:
        """Send files of a folder, each whole or not at all; they replace what is there."""

    def put_runs(self, runs: Path, files: FilesOfRuns) -> list[str]:
        """Send runs of a folder, each whole or not at all; those that could not be placed."""

    def set_aside(self, run_id: str) -> None:
        """Let a run there have no result any more."""


class RemotePlace:
    """A results folder behind `Files`."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.kept: set[str] = set()  # names of code and environments that are there
        self.open, self.connect = files.open, files.connect

    def runs(self) -> set[str]:
        names = [name.split("/")[1] for name in self.files.fitting(RESULTS)]
        return {name for name in names if is_name(name)}

    def send(self, store: Store, run_ids: Sequence[str]) -> Merged:
        sent = Merged()
        files: dict[str, Sequence[str]] = {}
        kept: dict[str, None] = {}
        for run_id in run_ids:
            run = store.directory(run_id)
            wrong = what_is_wrong(run)
            if wrong:
                sent.problems.append(wrong)
                continue
            files[run_id], left_out = files_of_run(run)
            sent.problems += left_out
            for named in kept_of(run):
                name = _name_of(named)
                if name not in self.kept and named.read(store.root) is not None:
                    kept[name] = None
        if kept:
            self.files.put(store.root, list(kept))
            self.kept |= kept.keys()
        if files:
            busy = self.files.put_runs(store.runs, files)
            for run_id in files:
                if run_id in busy:
                    sent.problems.append(f"{run_id}: somebody makes this run there: not replaced")
                else:
                    sent.copied.append(run_id)
        return sent

    def send_plans(self, store: Store) -> Merged:
        """Join the plans and the ledger there with ours: on a copy of them, which goes back."""
        sent = Merged()
        with tempfile.TemporaryDirectory(dir=cache_of(store)) as folder:
            joined = Store.create(Path(folder))
            self.files.get(self.files.fitting(*PLANS), joined.root)
            for run_id in self.runs():  # that there is a result is all that a plan asks
                joined.directory(run_id).mkdir()
                (joined.directory(run_id) / "result.json").touch()
            merge_plans(store.root, joined, sent)
            names = []
            for path in sorted(joined.root.glob("experiments/*/*")):
                name = str(path.relative_to(joined.root))
                if path.parent.name in sent.experiments and goes_along(path.name):
                    names.append(name)
            if (joined.root / "ledger.jsonl").is_file():
                names.append("ledger.jsonl")
            self.files.put(joined.root, names)
        for i, problem in enumerate(sent.problems):
            sent.problems[i] = problem.replace(folder, self.files.name)
        return sent

    def bring(self, store: Store, *, mend: bool = False) -> Merged:
        with alone(store, self.files.name):
            folder = cache_of(store) / f"brought-{text_digest(self.files.name)}"
            theirs = Store.create(folder)
            self._fetch(store, theirs)
            try:
                brought = merge(folder, store)
                for run_id in folders_in(theirs.runs, below=IN_ROOT):
                    if mend and is_damaged(theirs.directory(run_id)):
                        self.files.set_aside(run_id)
                return brought
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    def _fetch(self, store: Store, theirs: Store) -> None:
        """Copy the plans, the runs that have no result here, and what these name."""
        wanted = {run_id for run_id in self.runs() if not store.is_done(run_id)}
        names = self.files.fitting(*PLANS, *OF_RUNS)
        self.files.get([name for name in names if _is_wanted(name, wanted)], theirs.root)
        there = set(self.files.fitting("code/*", "environments/*"))
        kept: dict[str, None] = {}
        for run_id in folders_in(theirs.runs, below=IN_ROOT):
            with suppress(OSError, ValueError):  # which `merge` tells
                for named in kept_of(theirs.directory(run_id)):
                    if not named.path(store.root).exists():
                        kept[_name_of(named)] = None
        self.files.get([name for name in kept if name in there], theirs.root)


def _name_of(kept: Kept) -> str:
    return str(kept.path(Path()))


def _is_wanted(name: str, runs: set[str]) -> bool:
    """Whether a file there is to come: of a plan, or of one of the runs that are wanted."""
    parts = name.split("/")
    if not all(map(is_name, parts)) or not goes_along(parts[-1]):
        return False
    return parts[0] != "runs" or parts[1] in runs
