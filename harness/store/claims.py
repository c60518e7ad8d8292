"""Who works on a run.

Whoever makes attempts/<n>/ owns attempt n, and making it is one rename of a folder that already
names its owner. Exactly one succeeds, on file systems without locks or hard links too. A dead
owner's run is taken over by making n + 1, so no claim is ever taken away from anybody.
"""

import errno
import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from harness.run.read import read_json

DEAD_AFTER_S = 120.0  # an owner on another machine counts as dead after this silence


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
    done = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or None


def last_attempt(run: Path) -> int:
    """The number of the newest attempt that a run directory knows as a folder, 0 if none."""
    try:
        return max(
            (int(name) for name in os.listdir(run / "attempts") if name.isdigit()), default=0
        )
    except OSError:
        return 0


def owner_of(attempt: Path, now: float) -> dict[str, Any] | None:
    """Who holds this attempt, None if nobody alive does.

    now: as the file system's clock tells it.
    """
    path = attempt / "owner.json"
    owner = read_json(path)
    if not isinstance(owner, dict):
        return None
    if owner.get("machine") == machine():
        is_alive = process_start(int(owner.get("pid", 0))) == owner.get("process_start")
        return owner if is_alive else None
    try:
        return owner if abs(now - path.stat().st_mtime) < DEAD_AFTER_S else None
    except OSError:
        return None


def take(run: Path, *, token: str, gone: Callable[[], bool]) -> int | None:
    """Own the next attempt at a run.

    Its number, None if somebody alive has the run or it is `gone`, by now too.

    Raises OSError where the folder cannot be written, FileNotFoundError where it was moved away in
    this moment.
    """
    attempts = run / "attempts"
    attempts.mkdir(parents=True, exist_ok=True)
    me = {
        "host": socket.gethostname(),
        "machine": machine(),
        "pid": os.getpid(),
        "process_start": process_start(os.getpid()),
        "token": token,
    }
    beside = Path(tempfile.mkdtemp(prefix=".claim-", dir=attempts))
    try:
        beside.chmod(0o755)
        (beside / "owner.json").write_text(json.dumps(me))
        # the file system's clock: machines' clocks may differ
        now = (beside / "owner.json").stat().st_mtime
        while not gone():
            n = last_attempt(run)
            if n and owner_of(attempts / str(n), now) is not None:
                return None
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
