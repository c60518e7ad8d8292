"""The results folder: runs are claimed, written, finished and set aside here, and nowhere else.

    results/runs/<run_id>/   config.yaml metrics.jsonl environment.json log.txt attempts.jsonl result.json (written last)
                             claim.json heartbeat.json (while somebody works on it), attempts/<n>/ (what earlier attempts left)
    results/code/<digest>.zip   results/environments/<digest>.json   results/experiments/<name>/

A file is written whole or not at all: beside, fsync, rename. A claim belongs to a process; a dead owner's is taken over.
"""

import json
import os
import shutil
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from harness.errors import UserError
from harness.records import DIGESTED, RESULT_STATUSES, SCHEMA, Outcome, RunSpec, damage, file_digest, read_json, read_lines, read_result

HEARTBEAT_S = 1.0  # at most one heartbeat in this time
DEAD_AFTER_S = 120.0  # an owner on another machine counts as dead after this silence


def now_iso() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def write_whole(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write a file beside its place, flush it to the disk, rename it into place."""
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        with beside.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    write_whole(path, lambda file: file.write(text.encode()))


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError:
        pass  # some network file systems cannot flush a folder; the rename is still atomic there
    finally:
        os.close(fd)


def _process_start(pid: int) -> str | None:
    """Start time of a process in clock ticks, None if there is no such process: a pid alone may have been given again."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]


class Store:
    """One results folder; raises UserError where it cannot be written."""

    def __init__(self, root: Path, *, clock: Callable[[], float] = time.time) -> None:
        self.root, self.clock = root, clock
        self.runs = root / "runs"
        try:
            for name in ("runs", "experiments", "code", "environments"):
                (root / name).mkdir(parents=True, exist_ok=True)
            probe = self.runs / f".probe-{uuid.uuid4().hex[:8]}"
            probe.write_bytes(b"ok")
            probe.unlink()
        except OSError as error:
            raise UserError(f"results folder {root}: {error.strerror}: make it writable or name another with --results") from None

    def directory(self, run_id: str) -> Path:
        return self.runs / run_id

    # ------------------------------------------------------------ what is done

    def result(self, run_id: str) -> dict[str, Any] | None:
        """The result of a finished run, None if it has none or not the one it wrote."""
        run = self.directory(run_id)
        result = read_result(run)
        return result if result is not None and damage(run, result) is None else None

    def repair(self, run_id: str) -> str | None:
        """Set a damaged finished run aside, so that it is run again; returns what was wrong with it, None if nothing."""
        run = self.directory(run_id)
        if not (run / "result.json").exists():
            return None
        result = read_result(run)
        wrong = f"{run / 'result.json'} is damaged" if result is None else damage(run, result)
        if wrong is not None:
            aside = self.root / "aside" / f"{run_id}-{uuid.uuid4().hex[:8]}"
            aside.parent.mkdir(exist_ok=True)
            os.rename(run, aside)
        return wrong

    def states(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every run directory with its state: status, and the result or the heartbeat it has."""
        with os.scandir(self.runs) as entries:
            for entry in entries:
                if not entry.name.startswith(".") and entry.is_dir():
                    yield entry.name, self.state(entry.name)

    def state(self, run_id: str) -> dict[str, Any]:
        """status: finished, diverged, running, pending, or how the last attempt ended."""
        run = self.directory(run_id)
        if (result := read_result(run)) is not None:
            return {**result, "attempts": None}
        if not run.is_dir():
            return {"status": "pending"}
        attempts = read_lines(run / "attempts.jsonl")
        if self._owner_alive(run):
            return {"status": "running", **(read_json(run / "heartbeat.json") or {})}
        return {"status": "pending", **(attempts[-1] if attempts else {})}

    # ------------------------------------------------------------ claims

    def _owner_alive(self, run: Path, claim: Mapping[str, Any] | None = None) -> bool:
        claim = claim or read_json(run / "claim.json")
        if not isinstance(claim, dict):
            return False
        if claim.get("host") == socket.gethostname():
            return _process_start(int(claim.get("pid", 0))) == claim.get("process_start")
        try:
            seen = max(p.stat().st_mtime for p in (run / "claim.json", run / "heartbeat.json") if p.exists())
        except (OSError, ValueError):
            return False
        return self.clock() - seen < DEAD_AFTER_S

    def claim(self, spec: RunSpec) -> "RunWriter | None":
        """Take a run for this process and start an attempt; None if it is finished or somebody alive has it."""
        run = self.directory(spec.run_id)
        run.mkdir(parents=True, exist_ok=True)
        path = run / "claim.json"
        mine = {"host": socket.gethostname(), "pid": os.getpid(), "process_start": _process_start(os.getpid()), "token": uuid.uuid4().hex}
        for _ in range(3):
            if (run / "result.json").exists():
                return None
            beside = run / f".claim-{mine['token']}"
            beside.write_text(json.dumps(mine))
            try:
                os.link(beside, path)  # fails if there is a claim: atomic, on NFS too
                return RunWriter(run, spec, self)
            except FileExistsError:
                old = read_json(path)
                if isinstance(old, dict) and self._owner_alive(run, old):
                    return None
                self._release_dead(path, old)
            except OSError:  # a file system without links
                try:
                    with path.open("x") as file:
                        file.write(json.dumps(mine))
                    return RunWriter(run, spec, self)
                except FileExistsError:
                    old = read_json(path)
                    if isinstance(old, dict) and self._owner_alive(run, old):
                        return None
                    self._release_dead(path, old)
            finally:
                beside.unlink(missing_ok=True)
        return None

    @staticmethod
    def _release_dead(path: Path, dead: Any) -> None:
        """Take a dead owner's claim away; of two that try, one succeeds."""
        away = path.with_name(f".dead-{uuid.uuid4().hex}")
        try:
            os.rename(path, away)
        except FileNotFoundError:
            return
        if read_json(away) != dead:  # somebody alive took it over in between: give it back
            try:
                os.link(away, path)
            except OSError:
                pass
        away.unlink(missing_ok=True)

    def keep_once(self, kind: str, digest: str, suffix: str, content: Callable[[], bytes]) -> None:
        """Store code or an environment under its digest, if it is not there yet."""
        path = self.root / kind / f"{digest}{suffix}"
        if not path.exists():
            write_whole(path, lambda file: file.write(content()))


class RunWriter:
    """One attempt at a run by this process. The result is written last; until then the run has none."""

    def __init__(self, run: Path, spec: RunSpec, store: Store) -> None:
        self.run, self.spec, self.store = run, spec, store
        earlier = read_lines(run / "attempts.jsonl")
        self.attempt = 1 + sum("started" in a for a in earlier)
        if earlier and "ended" not in earlier[-1]:
            self._attempt({"ended": now_iso(), "status": "interrupted", "reason": "its process died"}, attempt=self.attempt - 1)
        left = [p for p in (*DIGESTED, "log.txt", "checkpoint.pt") if (run / p).exists()]
        if left:
            old = run / "attempts" / str(self.attempt - 1)
            old.mkdir(parents=True, exist_ok=True)
            for name in left:
                os.replace(run / name, old / name)
        for stray in run.glob(".*"):
            stray.unlink(missing_ok=True) if stray.is_file() else None
        self.started = now_iso()
        self._attempt({"started": self.started, "host": socket.gethostname(), "pid": os.getpid()})
        write_text(run / "config.yaml", spec.to_yaml())
        self._metrics = (run / "metrics.jsonl").open("a", encoding="utf-8")
        self._log = (run / "log.txt").open("a", encoding="utf-8")
        self._beat, self._last_val = 0.0, None
        self.heartbeat(0, spec.budget)

    def _attempt(self, row: Mapping[str, Any], attempt: int | None = None) -> None:
        with (self.run / "attempts.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"attempt": attempt or self.attempt, **row}) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def describe(self, environment: Mapping[str, Any]) -> None:
        """environment.json, and the head of the log: which toggles were on, in words."""
        write_json(self.run / "environment.json", environment)
        for line in (f"run {self.spec.run_id}: seed {self.spec.seed}, {self.spec.budget} steps on {self.spec.device}", *self.spec.toggles):
            self.log(line)

    def metric(self, row: Mapping[str, Any]) -> None:
        """Append a row to metrics.jsonl; numbers that are not finite become null. Validation rows reach the disk at once."""
        clean = {k: None if isinstance(v, float) and not abs(v) < float("inf") else v for k, v in row.items()}
        self._metrics.write(json.dumps(clean) + "\n")
        if row.get("kind") == "val":
            self._metrics.flush()
            os.fsync(self._metrics.fileno())
            self._last_val = clean["val_loss"]
            self.log(f"step:{row['step']}/{self.spec.budget} val_loss:{row['val_loss']:.4f} train_time:{row['train_time_s'] * 1000:.0f}ms")

    def log(self, line: str) -> None:
        self._log.write(line + "\n")
        self._log.flush()

    def heartbeat(self, step: int, n_steps: int) -> None:
        """Say that the run is alive and where it is; at most once a second."""
        now = self.store.clock()
        if abs(now - self._beat) >= HEARTBEAT_S:  # a clock that jumps back beats at once
            self._beat = now
            beside = self.run / ".heartbeat"
            beside.write_text(json.dumps({"step": step, "steps": n_steps, "val_loss": self._last_val, "pid": os.getpid()}))
            os.replace(beside, self.run / "heartbeat.json")

    def save(self, name: str, write: Callable[[IO[bytes]], Any]) -> None:
        """A further file of the run (a checkpoint), whole or not at all."""
        write_whole(self.run / name, write)

    def finish(self, outcome: Outcome) -> None:
        """End the attempt; a run that finished or diverged gets its result, written last."""
        for file in (self._metrics, self._log):
            file.flush()
            os.fsync(file.fileno())
        ended = now_iso()
        if outcome.status in RESULT_STATUSES:
            write_json(self.run / "result.json", {
                "schema": SCHEMA, "run_id": self.spec.run_id, "intent_id": self.spec.intent_id, "status": outcome.status,
                "reason": outcome.reason, "started": self.started, "ended": ended, "attempt": self.attempt,
                **{k: None if isinstance(v, float) and not abs(v) < float("inf") else v for k, v in outcome.final.items()},
                "wall": dict(outcome.wall), "substituted": list(self.spec.substituted), "environment_effect": None,
                "digests": {name: file_digest(self.run / name) for name in DIGESTED},
            })
        self._attempt({"ended": ended, "status": outcome.status, "reason": outcome.reason,
                       **({k: v for k, v in outcome.final.items() if k.startswith("peak")} if outcome.status == "oom" else {})})
        self.release()

    def release(self) -> None:
        """Give the claim back."""
        self._metrics.close()
        self._log.close()
        for name in ("claim.json", "heartbeat.json"):
            (self.run / name).unlink(missing_ok=True)


class Silent:
    """The writer of every rank but the first: it writes nothing."""

    def metric(self, row: Mapping[str, Any]) -> None: ...
    def log(self, line: str) -> None: ...
    def heartbeat(self, step: int, n_steps: int) -> None: ...
    def save(self, name: str, write: Callable[[IO[bytes]], Any]) -> None: ...


def remove_run(store: Store, run_id: str) -> None:
    """Delete a run directory whole: it is renamed first, so that no half of it can be taken for a run."""
    grave = store.runs / f".removed-{run_id}-{uuid.uuid4().hex[:8]}"
    os.rename(store.directory(run_id), grave)
    shutil.rmtree(grave)
