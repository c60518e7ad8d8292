"""The results folder: runs are claimed, finished and set aside here, and nowhere else.

    results/runs/<run_id>/   config.yaml metrics.jsonl environment.json log.txt attempts.jsonl result.json (written last)
                             attempts/<n>/  owner.json progress.json while somebody works on it; what earlier attempts left
    results/code/<digest>.zip   results/environments/<digest>.json   results/experiments/<name>/   results/aside/

A file is written whole or not at all: beside, fsync, rename. Whoever makes attempts/<n>/ owns attempt n, and making it is
one rename of a folder that already names its owner: exactly one succeeds, on file systems without locks or hard links too.
A dead owner's run is taken over by making n + 1, so no claim is ever taken away from anybody.
"""

import errno
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from harness.errors import UserError
from harness.records import RunSpec, damage, read_json, read_lines, read_result

if TYPE_CHECKING:
    from harness.writer import RunWriter

DEAD_AFTER_S = 120.0  # an owner on another machine counts as dead after this silence
FAILED = ("failed", "timeout", "oom")  # the run's own fault: not tried again in the same call


class ResultsError(UserError):
    """The results folder cannot be written: nothing can go on, nothing that is there is lost."""

    def __init__(self, root: Path, error: OSError) -> None:
        words = f"results folder {root}: {error.strerror or error}"
        super().__init__(f"{words}: make it writable, free some space, or name another with --results")


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
    """A mapping or a list, one entry a line."""

    def lines(v: Any) -> str:
        if isinstance(v, Mapping) and v:
            return "{\n" + ",\n".join(f" {json.dumps(k)}: {entries(x)}" for k, x in v.items()) + "\n}"
        return entries(v)

    def entries(v: Any) -> str:
        if isinstance(v, list) and any(isinstance(x, Mapping) for x in v):
            return "[\n" + ",\n".join(f"  {json.dumps(x, ensure_ascii=False)}" for x in v) + "\n ]"
        return json.dumps(v, ensure_ascii=False)

    write_text(path, lines(value) + "\n")


def append_row(path: Path, row: Mapping[str, Any]) -> None:
    """Add a row to a .jsonl file and flush it to the disk; a torn line before it stays a line of its own."""
    with path.open("ab+") as file:
        torn = file.tell() > 0 and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n"
        file.write((b"\n" if torn else b"") + json.dumps(row).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    with suppress(OSError):  # some network file systems cannot flush a folder; the rename is still atomic there
        os.fsync(fd)
    os.close(fd)


def _read(path: str) -> str:
    with suppress(OSError):
        return Path(path).read_text().strip()
    return ""


@cache
def machine() -> str:
    """Where a process number means something: this host since its last start, in this container."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return f"{socket.gethostname()} {_read('/proc/sys/kernel/random/boot_id')} {namespace}".strip()


def process_start(pid: int) -> str | None:
    """When a process started, None if there is none: a number alone may have been given again."""
    if Path("/proc/self/stat").exists():
        fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        return None if not fields or fields[0] == "Z" else fields[19]
    done = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


class Store:
    """One results folder. Reading needs no rights to write; `create` makes the folder and raises ResultsError if it cannot."""

    def __init__(self, root: Path, *, clock: Callable[[], float] = time.time) -> None:
        self.root, self.clock, self.runs = root, clock, root / "runs"

    @classmethod
    def create(cls, root: Path) -> "Store":
        store = cls(root)
        try:
            for name in ("runs", "experiments", "code", "environments"):
                (root / name).mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=store.runs) as probe:
                probe.write(b"ok" * 4096)
        except OSError as error:
            raise ResultsError(root, error) from None
        return store

    def directory(self, run_id: str) -> Path:
        return self.runs / run_id

    # ------------------------------------------------------------ what is done

    def is_done(self, run_id: str) -> bool:
        """Whether a run has a result; repair() has looked at it before."""
        return os.path.exists(f"{self.runs}/{run_id}/result.json")

    def repair(self, run_id: str) -> str | None:
        """Set a damaged finished run aside, so that it is run again; returns what was wrong with it, None if nothing."""
        run = self.directory(run_id)
        result = read_result(run)
        if result is None and not self.is_done(run_id):
            return None
        wrong = f"{run / 'result.json'} is damaged" if result is None else damage(run, result, every_byte=False)
        if wrong is not None:
            aside = self.root / "aside" / f"{run_id}-{uuid.uuid4().hex[:8]}"
            try:
                aside.parent.mkdir(exist_ok=True)
                os.rename(run, aside)
            except FileNotFoundError:
                return None  # another runner was faster
            except OSError as error:
                raise ResultsError(self.root, error) from None
        return wrong

    def states(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every run directory with its state."""
        with os.scandir(self.runs) as entries:
            for entry in entries:
                if not entry.name.startswith(".") and entry.is_dir():
                    yield entry.name, self.state(entry.name)

    def state(self, run_id: str) -> dict[str, Any]:
        """status: finished, diverged, running, pending, or how the last attempt ended; with what else is known."""
        run = self.directory(run_id)
        if (result := read_result(run)) is not None:
            return result
        n = last_attempt(run)
        owner = self._owner(run / "attempts" / str(n), self.clock()) if n else None
        if owner is not None:
            return {"status": "running", "attempt": n, "host": owner.get("host"), **(self.progress(run_id) or {})}
        rows = read_lines(run / "attempts.jsonl")
        known = {k: v for row in rows if row.get("attempt") == rows[-1].get("attempt") for k, v in row.items()}
        return {"status": "interrupted" if rows else "pending", **known}

    def progress(self, run_id: str) -> dict[str, Any] | None:
        """Where the run is: step, steps, val_loss; None before its first step."""
        run = self.directory(run_id)
        return read_json(run / "attempts" / str(last_attempt(run)) / "progress.json")

    # ------------------------------------------------------------ claims

    def _owner(self, attempt: Path, now: float) -> dict[str, Any] | None:
        """Who holds this attempt, None if nobody alive does. now: as the file system's clock tells it."""
        path = attempt / "owner.json"
        owner = read_json(path)
        if not isinstance(owner, dict):
            return None
        if owner.get("machine") == machine():
            return owner if process_start(int(owner.get("pid", 0))) == owner.get("process_start") else None
        try:
            return owner if abs(now - path.stat().st_mtime) < DEAD_AFTER_S else None
        except OSError:
            return None

    def claim(self, spec: RunSpec, *, token: str = "") -> "RunWriter | None":
        """Take a run for this process and start an attempt; None if it is finished or somebody alive has it."""
        from harness.writer import RunWriter

        run = self.directory(spec.run_id)
        if (run / "result.json").exists():
            return None
        attempts = run / "attempts"
        me = {
            "host": socket.gethostname(),
            "machine": machine(),
            "pid": os.getpid(),
            "process_start": process_start(os.getpid()),
            "token": token,
        }
        try:
            attempts.mkdir(parents=True, exist_ok=True)
            beside = Path(tempfile.mkdtemp(prefix=".claim-", dir=attempts))
        except FileNotFoundError:
            return None  # finished, or set aside, in this moment
        except OSError as error:
            raise ResultsError(self.root, error) from None
        try:
            beside.chmod(0o755)
            (beside / "owner.json").write_text(json.dumps(me))
            now = (beside / "owner.json").stat().st_mtime  # the file system's clock: machines' clocks may differ
            while not (run / "result.json").exists():
                n = last_attempt(run)
                if n and self._owner(attempts / str(n), now) is not None:
                    return None
                mine = attempts / str(n + 1)
                try:
                    os.rename(beside, mine)
                except OSError as error:
                    if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                        continue  # somebody was faster: look again
                    raise
                if (run / "result.json").exists():  # finished and released while we looked
                    shutil.rmtree(mine, ignore_errors=True)
                    return None
                return RunWriter(self, spec, n + 1, token=token)
            return None
        except FileNotFoundError:
            return None  # the run was finished, or set aside, in this moment
        except OSError as error:
            raise ResultsError(self.root, error) from None
        finally:
            shutil.rmtree(beside, ignore_errors=True)

    def note_end(self, run_id: str, *, token: str, status: str, reason: str) -> None:
        """Note how an attempt ended whose process could not do it itself, and give the run back."""
        run = self.directory(run_id)
        rows = read_lines(run / "attempts.jsonl")
        n = next((r["attempt"] for r in rows if r.get("token") == token), None)
        try:
            if n is not None and not any(r.get("attempt") == n and "ended" in r for r in rows):
                append_row(run / "attempts.jsonl", {"attempt": n, "ended": now_iso(), "status": status, "reason": reason})
            for owner in (run / "attempts").glob("*/owner.json"):
                if (read_json(owner) or {}).get("token") == token:
                    owner.unlink(missing_ok=True)
        except FileNotFoundError:
            pass  # set aside meanwhile
        except OSError as error:
            raise ResultsError(self.root, error) from None

    def keep_once(self, kind: str, digest: str, suffix: str, content: Callable[[], bytes]) -> None:
        """Store code or an environment under its digest, if it is not there yet."""
        path = self.root / kind / f"{digest}{suffix}"
        if not path.exists():
            try:
                write_whole(path, lambda file: file.write(content()))
            except OSError as error:
                raise ResultsError(self.root, error) from None


def last_attempt(run: Path) -> int:
    """The number of the newest attempt that a run directory knows as a folder, 0 if none."""
    try:
        return max((int(name) for name in os.listdir(run / "attempts") if name.isdigit()), default=0)
    except OSError:
        return 0


def remove_run(store: Store, run_id: str) -> None:
    """Delete a run directory whole: it is renamed first, so that no half of it can be taken for a run."""
    grave = store.runs / f".removed-{run_id}-{uuid.uuid4().hex[:8]}"
    os.rename(store.directory(run_id), grave)
    shutil.rmtree(grave)
