"""The results folder: runs are claimed, finished and set aside here, and nowhere else.

results/runs/<run_id>/      config.yaml metrics.jsonl environment.json log.txt attempts.jsonl,
                            result.json (written last); trunk.pt, checkpoint.pt where asked
    attempts/<n>/           owner.json progress.json while somebody works on it; what earlier
                            attempts left
results/code/<digest>.zip   results/environments/<digest>.json   results/experiments/<name>/
results/aside/              damaged runs
results/reruns/             a results folder of its own: finished runs done again
results/cache/              compiled kernels, and sound.json (run/remembered.py)
"""

import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from harness.errors import UserError
from harness.provenance.redact import redact, redact_file
from harness.run.attempts import AttemptRow, note_attempt, read_attempts
from harness.run.files import now_iso, write_whole
from harness.run.guarded import (
    IN_FOLDER,
    IN_ROOT,
    KEPT,
    OF_ATTEMPT,
    check_folder,
    folders_in,
    is_file,
)
from harness.run.read import read_json
from harness.run.results import Result, examine, read_known, stats_of
from harness.run.spec import TRUNK_FILE, RunSpec
from harness.store.claims import bury, last_attempt, owner_of, read_owner, take
from harness.store.errors import ResultsError
from harness.store.state import Progress, RunState

FAILED = ("failed", "timeout", "oom")  # the run's own fault: not tried again in the same call


def ended_now(attempt: int | None, status: str, reason: str, node: str | None = None) -> AttemptRow:
    """The end of an attempt that could not note it itself."""
    return AttemptRow(
        attempt=attempt, ended=now_iso(), status=status, reason=redact(reason), node=node
    )


class Store:
    """One results folder.

    Reading needs no rights to write; `create` makes the folder and raises ResultsError if it
    cannot.
    """

    def __init__(self, root: Path, *, clock: Callable[[], float] = time.time) -> None:
        self.root, self.clock, self.runs = root, clock, root / "runs"

    @classmethod
    def create(cls, root: Path) -> "Store":
        store = cls(root)
        try:
            for name in ("runs", "experiments", "code", "environments"):
                (root / name).mkdir(parents=True, exist_ok=True)
                check_folder(root / name, below=IN_ROOT)
            with tempfile.TemporaryFile(dir=store.runs) as probe:
                probe.write(b"ok" * 4096)
        except OSError as error:
            raise ResultsError(root, error) from None
        return store

    def directory(self, run_id: str) -> Path:
        return self.runs / run_id

    def trunk_file(self, spec: RunSpec) -> Path:
        """What a run's trunk leaves to it; no file where it has none."""
        return Path() if spec.trunk is None else self.directory(spec.trunk.run_id) / TRUNK_FILE

    # ------------------------------------------------------------ what is done

    def is_done(self, run_id: str) -> bool:
        """Whether a run has a result, sound or not."""
        return is_file(f"{self.runs}/{run_id}/result.json")

    def repair(self, run_id: str) -> tuple[Result | None, str | None]:
        """A run's sound result, None if it has none, and what was wrong with it.

        A damaged run is set aside, to be run again.
        """
        while True:
            result, wrong = self._look(run_id)
            if wrong is None:
                return result, None
            n = self.hold(run_id)
            if n is None:
                time.sleep(0.02)  # another runner mends it in this moment
                continue
            if self._look(run_id)[1] is not None:
                self.set_aside(run_id)
                return None, wrong
            self.let_go(run_id, n)

    def _look(self, run_id: str) -> tuple[Result | None, str | None]:
        """A run's result, and what is wrong with it or with the files it vouches for.

        None, None if it has no result.
        """
        run = f"{self.runs}/{run_id}"
        try:
            return examine(run, run_id, stats=stats_of(run))
        except OSError:  # without all its files: which one it lacks, if it has a result at all
            return examine(run, run_id)

    def hold(self, run_id: str) -> int | None:
        """Keep everybody else from a run, finished or not.

        The number of an attempt, None if somebody alive has it.
        """
        run = self.directory(run_id)
        try:
            return take(run, token="", gone=lambda: not run.is_dir()) if run.is_dir() else None
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ResultsError(self.root, error) from None

    def let_go(self, run_id: str, n: int) -> None:
        """Give a run back that `hold` gave, with nothing done to it."""
        shutil.rmtree(self.directory(run_id) / "attempts" / str(n), ignore_errors=True)

    def set_aside(self, run_id: str) -> Path:
        """Move a run that this process holds out of the way; returns where it lies now."""
        aside = self.root / "aside" / f"{run_id}-{uuid.uuid4().hex[:8]}"
        try:
            aside.parent.mkdir(exist_ok=True)
            check_folder(aside.parent, below=IN_ROOT)
            os.rename(self.directory(run_id), aside)
        except OSError as error:
            raise ResultsError(self.root, error) from None
        shutil.rmtree(aside / "attempts" / str(last_attempt(aside)), ignore_errors=True)
        return aside

    def find(self, text: str) -> str:
        """The run id that begins with this; raises UserError where none or several do."""
        matches: list[str] = []
        if text:
            names = folders_in(self.runs, below=IN_ROOT)
            matches = [name for name in names if name.startswith(text)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise UserError(
                f"run '{text}': {len(matches)} runs begin with it ({', '.join(matches[:3])}, ...):"
                " give more of its name"
            )
        raise UserError(
            f"run '{text}': no such run in {self.runs}: `ablate status` lists their names; the"
            " beginning of one is enough"
        )

    def states(self) -> Iterator[tuple[str, RunState]]:
        """Every run directory with its state."""
        for run_id in folders_in(self.runs, below=IN_ROOT):
            yield run_id, self.state(run_id)

    def state(self, run_id: str) -> RunState:
        """How a run stands, by its files and by who lives."""
        result, wrong = read_known(f"{self.runs}/{run_id}", run_id)
        if wrong:
            return RunState(status="damaged", reason=wrong)
        if result is not None:
            return RunState.of_result(result)
        run = self.directory(run_id)
        n = last_attempt(run)
        owner = owner_of(run / "attempts" / str(n), self.clock()) if n else None
        if owner is not None:
            return RunState.running(n, owner.host, self.progress(run_id))
        return RunState.of_attempts(read_attempts(run))

    def progress(self, run_id: str) -> Progress | None:
        """Where the run is; None before its first step."""
        run = self.directory(run_id)
        path = run / "attempts" / str(last_attempt(run)) / "progress.json"
        content = read_json(path, below=OF_ATTEMPT)
        if not isinstance(content, dict):
            return None
        try:
            return Progress.from_json(content)
        except ValueError:
            return None

    # ------------------------------------------------------------ how attempts end

    def note_end(self, run_id: str, *, token: str, status: str, reason: str) -> None:
        """Note how an attempt ended whose process could not do it itself, and give the run back."""
        run = self.directory(run_id)
        rows = read_attempts(run)
        n = next((row.attempt for row in rows if row.token == token), None)
        try:
            if n is not None and not any(row.attempt == n and row.is_end for row in rows):
                if not self.is_done(run_id):  # a sealed log was looked at
                    redact_file(run / "log.txt")
                note_attempt(run, ended_now(n, status, reason))
            for number in folders_in(run / "attempts", below=IN_FOLDER):
                path = run / "attempts" / number / "owner.json"
                owner = read_owner(path)
                if owner is not None and owner.token == token:
                    bury(path.parent)
        except FileNotFoundError:
            pass  # set aside meanwhile
        except OSError as error:
            raise ResultsError(self.root, error) from None

    def note_lost(self, run_id: str, *, status: str, reason: str, node: str | None = None) -> None:
        """Note how a run ended before its process made an attempt. node: of a cluster."""
        try:
            self.directory(run_id).mkdir(exist_ok=True)
            note_attempt(self.directory(run_id), ended_now(None, status, reason, node))
        except OSError as error:
            raise ResultsError(self.root, error) from None

    def keep_once(self, kind: str, digest: str, suffix: str, content: Callable[[], bytes]) -> None:
        """Store code or an environment under its digest, if it is not there yet."""
        path = self.root / kind / f"{digest}{suffix}"
        if not path.exists():
            try:
                write_whole(path, lambda file: file.write(content()), below=KEPT)
            except OSError as error:
                raise ResultsError(self.root, error) from None
