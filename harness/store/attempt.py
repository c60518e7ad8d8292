"""One attempt at a run: its files while it is made, and its result, written last."""

import json
import os
import shutil
import socket
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial, wraps
from pathlib import Path
from typing import IO, Any

from harness.provenance.redact import redact, redact_file
from harness.provenance.redacted_lines import RedactedLines
from harness.run.attempts import AttemptRow, note_attempt, read_attempts
from harness.run.document import Document
from harness.run.files import now_iso, write_json, write_new, write_text, write_whole
from harness.run.guarded import IN_FOLDER
from harness.run.metrics import MetricRow, Validation
from harness.run.results import DIGESTED, Result, digests_of, finite, result_text, sealed
from harness.run.spec import RESULT_STATUSES, TRUNK_FILE, Outcome, RunSpec
from harness.run.versions import RESULT
from harness.store.claims import SIGNS, bury, dead_after_s, owns, read_owner, take
from harness.store.errors import ResultsError
from harness.store.log_file import HeadAndTail
from harness.store.shown import ShownProgress
from harness.store.state import Progress
from harness.store.store import Store
from harness.store.written import WrittenFiles

LEFT_BEHIND = (*DIGESTED, "log.txt", "checkpoint.pt", TRUNK_FILE)


class TakenOverError(Exception):
    """Another process took this attempt for dead, and the run is that one's now."""


def _reported(method: Callable[..., Any]) -> Callable[..., Any]:
    """A failing disk is the results folder's fault, not the trainer's."""

    @wraps(method)
    def inner(self: "RunWriter", *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except OSError as error:
            raise ResultsError(self.store.root, error) from error

    return inner


class RunWriter:
    """One attempt at a run by this process, made by claim.

    Until the result is written, last, the run has none. A host may stand still for so long that
    another one takes the run over: from then on nothing is written but to this attempt's own files.
    """

    @_reported
    def __init__(self, store: Store, spec: RunSpec, attempt: int, *, token: str, mark: str) -> None:
        """mark: of the claim. token: whoever asked for the attempt knows it by that.

        Raises TakenOverError."""
        self.store, self.spec, self.attempt, self.mark = store, spec, attempt, mark
        self.lost = False  # another process has the run
        self.run, self.trunk_file = store.directory(spec.run_id), store.trunk_file(spec)
        self.folder = self.run / "attempts" / str(attempt)
        self._files: list[IO[str]] = []
        self._released, self._writing = threading.Event(), threading.Lock()
        self._last_val = None
        self._log: HeadAndTail | None = None
        self._written = WrittenFiles(self.run)
        self.shown = ShownProgress(self.folder, self.still_mine)
        try:
            self._refuse_lost()
            self._clear()
            self.started = now_iso()
            begun = AttemptRow(
                attempt=attempt,
                started=self.started,
                host=socket.gethostname(),
                node=os.environ.get("SLURMD_NODENAME"),
                pid=os.getpid(),
                token=token,
            )
            note_attempt(self.run, begun)
            self._written.note_beginning("attempts.jsonl")
            self._refuse_lost()
            write_text(self.run / "config.yaml", spec.to_yaml(), below=IN_FOLDER)
            self._written.note("config.yaml")
            self._metrics = self._open("metrics.jsonl")
            self.log_file = self._open("log.txt")
            self._log = self._written.log = HeadAndTail(self.log_file, RedactedLines())
        except BaseException:
            self.release()
            raise
        threading.Thread(target=self._stay_alive, daemon=True).start()

    def _open(self, name: str) -> IO[str]:
        file = (self.run / name).open("w", encoding="utf-8")
        self._files.append(file)
        return file

    def _clear(self) -> None:
        """Note the end of an attempt that could not, and move what it left out of the way."""
        rows = read_attempts(self.run)
        if rows and not rows[-1].is_end:
            died = AttemptRow(
                attempt=rows[-1].attempt,
                ended=now_iso(),
                status="interrupted",
                reason="its process died",
            )
            note_attempt(self.run, died)
        for name in LEFT_BEHIND:
            if (self.run / name).exists():
                old = self.run / "attempts" / str(self.attempt - 1)
                old.mkdir(exist_ok=True)
                os.replace(self.run / name, old / name)
        redact_file(self.run / "attempts" / str(self.attempt - 1) / "log.txt")
        for stray in self.run.glob(".*"):
            stray.unlink(missing_ok=True)

    def _stay_alive(self) -> None:
        """Tell other machines that this process lives, whatever the training thread does."""
        while not self._released.wait(dead_after_s() / SIGNS):
            with suppress(OSError):  # a file system that stands still: the next sign tells
                self.lost = self.lost or not self.still_mine()
                if not self.lost:
                    os.utime(self.folder / "owner.json")

    def still_mine(self) -> bool:
        """False if another machine took this attempt for dead and started the next one.

        Raises OSError where the file system does not say.
        """
        return owns(self.folder, self.mark) and not (self.run / "result.json").exists()

    def _refuse_lost(self) -> None:
        if not self.still_mine():
            raise TakenOverError

    def _holds_metrics(self) -> bool:
        """Whether the run's curve is the one that this attempt has written."""
        with suppress(FileNotFoundError):
            written = os.fstat(self._metrics.fileno())
            return os.path.samestat(written, os.stat(self.run / "metrics.jsonl"))
        return False

    @_reported
    def describe(self, environment: Document) -> None:
        """environment.json, and the head of the log: which toggles were on, in words.

        Raises TakenOverError.
        """
        self._refuse_lost()
        write_json(self.run / "environment.json", environment, below=IN_FOLDER)
        self._written.note("environment.json")
        spec = self.spec
        steps = f"{spec.budget} steps" if spec.budget else "its own number of steps"
        for line in (
            f"run {spec.run_id}: seed {spec.seed}, {steps} on {spec.device}",
            *spec.toggles,
        ):
            self.log(line)

    @_reported
    def metric(self, row: MetricRow) -> None:
        """Append a row to metrics.jsonl; numbers that are not finite become null.

        Validation rows reach the disk at once. Raises UserError beyond what is read again.
        """
        line = json.dumps(finite(row.to_json())) + "\n"
        with self._writing:  # the GPUs are read in the background
            self._written.add_metrics(line)
            self._metrics.write(line)
        if isinstance(row, Validation):
            self._metrics.flush()
            os.fsync(self._metrics.fileno())
            self._last_val = finite(row.val_loss)
            if "trainer" in self.spec.config:
                return  # a foreign trainer has printed it
            at = f"step:{row.step}/{self.spec.budget}"
            time_ms = (row.train_time_s or 0.0) * 1000
            self.log(f"{at} val_loss:{row.val_loss:.4f} train_time:{time_ms:.0f}ms")

    @_reported
    def forget_metrics(self) -> None:
        """Empty metrics.jsonl: what was taken for measurements was none."""
        with self._writing:
            self._metrics.seek(0)
            self._metrics.truncate()
            self._written.forget_metrics()

    @_reported
    def log(self, line: str) -> None:
        """A line, or several at once; of a log of many MiB the head and the tail are kept."""
        assert self._log is not None
        self._log.write(line + "\n")

    @_reported
    def heartbeat(self, step: int, n_steps: int) -> None:
        """Say where the run is; what kept an earlier step from being shown is raised now."""
        self.shown.show(Progress(step=step, steps=n_steps, val_loss=self._last_val))

    @_reported
    def save(self, name: str, write: Callable[[IO[bytes]], Any]) -> None:
        """A further file of the run (a checkpoint), whole or not at all."""
        if self.still_mine():
            write_whole(self.run / name, write, below=IN_FOLDER)
            if name == TRUNK_FILE:
                self._written.note(name)

    @_reported
    def checked(self, outcome: Outcome) -> Outcome:
        """How the run ended: a failure where its files do not hold what this attempt wrote."""
        self._metrics.flush()
        return self._written.checked(outcome)

    @_reported
    def finish(self, outcome: Outcome) -> bool:
        """End the attempt; a run that finished or diverged gets its result, written last.

        False if another process has taken the run over: it counts, this attempt does not.
        """
        try:
            assert self._log is not None
            self._log.end()
            for file in self._files:
                file.flush()
                os.fsync(file.fileno())
            has_result = outcome.status in RESULT_STATUSES
            if not self.still_mine() or (has_result and not self._holds_metrics()):
                return False
            redact_file(self.run / "log.txt")
            ended = now_iso()
            if has_result:
                result = result_of(
                    self.run,
                    self.spec,
                    outcome,
                    started=self.started,
                    ended=ended,
                    attempt=self.attempt,
                )
                try:
                    write_new(self.run / "result.json", result_text(result), below=IN_FOLDER)
                except FileExistsError:
                    return False
            note_attempt(self.run, self._end_of(outcome, ended))
            if has_result:
                self._bury()
            return True
        finally:
            self.release()

    def _bury(self) -> None:
        """What is no longer needed of the attempt with the result; one of several stays known."""
        if self.attempt == 1:
            shutil.rmtree(self.folder.parent, ignore_errors=True)
            return
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def _end_of(self, outcome: Outcome, ended: str) -> AttemptRow:
        end = AttemptRow(
            attempt=self.attempt,
            ended=ended,
            status=outcome.status,
            reason=outcome.reason and redact(outcome.reason),
        )
        if outcome.status != "oom":
            return end
        return replace(
            end,
            peak_allocated_mib=outcome.final.peak_allocated_mib,
            peak_rss_mib=outcome.peak_rss_mib,
        )

    def release(self) -> None:
        """Give the run back."""
        self._released.set()
        self.shown.end()
        ends = [] if self._log is None else [self._log.end]
        for end in (*ends, *(file.close for file in self._files)):
            with suppress(OSError):  # a full disk: what is not written is not needed
                end()
        owner = read_owner(self.folder / "owner.json")
        if owner is not None and owner.mark == self.mark:
            bury(self.folder)


def claim(store: Store, spec: RunSpec, *, token: str = "") -> RunWriter | None:
    """Take a run for this process and start an attempt.

    None if it is finished or somebody alive has it.
    """
    run = store.directory(spec.run_id)
    is_done = partial(store.is_done, spec.run_id)
    mark = uuid.uuid4().hex
    if is_done():
        return None
    try:
        n = take(run, token=token, gone=is_done, mark=mark)
    except FileNotFoundError:
        return None  # the run was finished, or set aside, in this moment
    except OSError as error:
        raise ResultsError(store.root, error) from None
    if n is None:
        return None
    try:
        return RunWriter(store, spec, n, token=token, mark=mark)
    except TakenOverError:
        return None


def result_of(
    run: Path, spec: RunSpec, outcome: Outcome, *, started: str | None, ended: str, attempt: int
) -> Result:
    """The result that vouches for the files that lie in the folder `run`.

    started, ended: ISO 8601. attempt: its number among the run's.
    """
    return sealed(
        {
            "schema": RESULT,
            "run_id": spec.run_id,
            "intent_id": spec.intent_id,
            "status": outcome.status,
            "reason": outcome.reason and redact(outcome.reason),
            "started": started,
            "ended": ended,
            "attempt": attempt,
            "host": socket.gethostname(),
            **finite(asdict(outcome.final)),
            "wall": dict(outcome.wall),
            "substituted": list(spec.substituted),
            "environment_effect": None,
            **({} if outcome.marks is None else outcome.marks.to_json()),
            **({"disturbed": [asdict(d) for d in outcome.disturbed]} if outcome.disturbed else {}),
            **digests_of(run),
        }
    )
