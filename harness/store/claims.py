"""Who works on a run.

Whoever makes attempts/<n>/ owns attempt n, and making it is one rename of a folder that already
names its owner. Exactly one succeeds, on file systems without locks or hard links too. A dead
owner's run is taken over by making n + 1. Numbers are never given again while a run has no result:
the folder of an attempt that is over stays as its tombstone. An owner that was only paused finds a
newer one, or a result, and keeps its hands off (`owns`).
"""

import errno
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Self

from harness.errors import UserError
from harness.run.document import Content, Document
from harness.run.guarded import IN_FOLDER, OF_ATTEMPT, entries_in, folders_in, read_bytes
from harness.run.parse import parse_json
from harness.run.read import read_json
from harness.run.typed import typed
from harness.run.versions import CLAIM, check_version

DEAD_AFTER_S = 120.0  # an owner on another machine counts as dead after this silence
LIMIT = "ABLATE_DEAD_AFTER_S"  # instead, for the owners of this environment
LONGEST_LIMIT_S = 86400.0
IS_NUMBER = re.compile(r"[0-9]{1,9}")  # of an attempt
TOMBSTONE = "gone.json"  # owner.json of an attempt that is over
PROGRESS = ("progress.json", ".progress.json")  # of an attempt; the second is half-written
SIGNS = 12  # of life, in the time after which it would be dead


def _read(path: str) -> str:
    with suppress(OSError):
        return Path(path).read_text().strip()
    return ""


def dead_after_s() -> float:
    """The silence that this environment's owners may keep; raises UserError where it is none."""
    text = os.environ.get(LIMIT, "")
    if not text:
        return DEAD_AFTER_S
    with suppress(ValueError):
        limit = float(text)
        if 0 < limit <= LONGEST_LIMIT_S:
            return limit
    raise UserError(
        f"{LIMIT}={text}: must be a number of seconds, at most {LONGEST_LIMIT_S:g}: change it"
    )


def _silence_of(owner: "Owner") -> float:
    """What an owner said of itself."""
    limit = owner.dead_after_s
    if isinstance(limit, int | float) and 0 < limit <= LONGEST_LIMIT_S:
        return float(limit)
    return DEAD_AFTER_S


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
    done = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or None


def last_attempt(run: Path) -> int:
    """The number of the newest attempt that a run directory knows as a folder, 0 if none."""
    if os.path.islink(f"{run}/attempts"):
        return 0  # there are none of ours behind it
    names = folders_in(f"{run}/attempts", below=IN_FOLDER)
    return max((int(name) for name in names if IS_NUMBER.fullmatch(name)), default=0)


@dataclass(frozen=True, kw_only=True)
class Owner:
    """owner.json of an attempt: the process that holds it."""

    host: str | None = None
    machine: str | None = None  # as machine() has it there
    pid: int = 0
    process_start: str | None = None
    token: str | None = None  # by which whoever ordered the attempt knows it
    mark: str | None = None  # by which the owner knows its attempt again
    dead_after_s: float | None = None  # the silence that it may keep

    @classmethod
    def of_this_process(cls, token: str, mark: str) -> Self:
        return cls(
            host=socket.gethostname(),
            machine=machine(),
            pid=os.getpid(),
            process_start=process_start(os.getpid()),
            token=token,
            mark=mark,
            dead_after_s=dead_after_s(),
        )

    @classmethod
    def from_json(cls, content: Document) -> Self:
        """Raises ValueError where the content is none."""
        owner = cls(
            host=content.get("host"),
            machine=content.get("machine"),
            pid=content.get("pid", 0),
            process_start=content.get("process_start"),
            token=content.get("token"),
            mark=content.get("mark"),
            dead_after_s=content.get("dead_after_s"),
        )
        if typed(owner).pid < 0:
            raise ValueError(f"pid {owner.pid} is no process")
        return owner

    def to_json(self) -> Content:
        return {"schema": CLAIM, **asdict(self)}


def read_owner(path: Path) -> Owner | None:
    """The owner that a file names; None where it is gone or damaged. Raises NewerError."""
    content = read_json(path, below=OF_ATTEMPT)
    if not isinstance(content, dict):
        return None
    try:
        check_version(content, CLAIM, path)
        return Owner.from_json(content)
    except ValueError:
        return None


def attempt_with(token: str, run: Path) -> Path | None:
    """The folder of the attempt at a run that was ordered with this token, once it was begun."""
    for name in folders_in(run / "attempts", below=IN_FOLDER):
        attempt = run / "attempts" / name
        owner = read_owner(attempt / "owner.json")
        if owner is not None and owner.token == token:
            return attempt
    return None


def told_by_ranks(attempt: Path) -> list[Path]:
    """What the further ranks of a group left of their ends in an attempt's folder."""
    names = entries_in(attempt, below=OF_ATTEMPT - 1)
    return [attempt / name for name in names if fnmatch(name, "rank*.json")]


def owner_of(attempt: Path, now: float) -> Owner | None:
    """Who holds this attempt, None if nobody alive does.

    now: as the file system's clock tells it.
    """
    path = attempt / "owner.json"
    owner = read_owner(path)
    if owner is None:
        return None
    if owner.machine == machine():
        is_alive = process_start(owner.pid) == owner.process_start
        return owner if is_alive else None
    try:
        return owner if abs(now - path.stat().st_mtime) < _silence_of(owner) else None
    except OSError:
        return None


def owns(attempt: Path, mark: str) -> bool:
    """Whether an attempt is still that of its mark, and the newest one.

    Raises OSError where the file system does not say.
    """
    try:
        owner = Owner.from_json(parse_json(read_bytes(attempt / "owner.json", below=OF_ATTEMPT)))
        newest = max(int(n) for n in os.listdir(attempt.parent) if IS_NUMBER.fullmatch(n))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    return owner.mark == mark and attempt.name == str(newest)


def bury(attempt: Path) -> None:
    """Give an attempt back: nobody has it, and no rename ever takes its number again.

    A folder that holds something is not replaced. Where the attempt was is no longer told.
    """
    owner = attempt / "owner.json"
    try:
        os.replace(owner, attempt / TOMBSTONE)
    except OSError:  # gone, or a full disk, which lets go at least
        owner.unlink(missing_ok=True)
    for name in PROGRESS:
        (attempt / name).unlink(missing_ok=True)


def take(run: Path, *, token: str, gone: Callable[[], bool], mark: str = "") -> int | None:
    """Own the next attempt at a run.

    Its number, None if somebody alive has the run or it is `gone`, by now too.

    mark: by which the owner knows its attempt again, whatever happened meanwhile.

    Raises OSError where the folder cannot be written, FileNotFoundError where it was moved away in
    this moment.
    """
    attempts = run / "attempts"
    attempts.mkdir(parents=True, exist_ok=True)
    me = Owner.of_this_process(token, mark)
    beside = Path(tempfile.mkdtemp(prefix=".claim-", dir=attempts))
    try:
        beside.chmod(0o755)
        (beside / "owner.json").write_text(json.dumps(me.to_json()))
        # the file system's clock: machines' clocks may differ
        now = (beside / "owner.json").stat().st_mtime
        while not gone():
            n = last_attempt(run)
            if n and owner_of(attempts / str(n), now) is not None:
                return None
            if not IS_NUMBER.fullmatch(str(n + 1)):
                raise OSError(errno.EOVERFLOW, f"no attempt can come after {attempts / str(n)}")
            mine = attempts / str(n + 1)
            try:
                os.rename(beside, mine)
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                    continue  # somebody was faster: look again
                raise
            if gone():  # finished and released while we looked
                shutil.rmtree(mine, ignore_errors=True)
                return None
            return n + 1
        return None
    finally:
        shutil.rmtree(beside, ignore_errors=True)
