"""One process at a time: a lock beside a folder."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from harness.errors import UserError

try:
    import fcntl
except ImportError:  # not of this system
    fcntl = None  # type: ignore[assignment]

WAIT_S = 3600.0  # longer than any copy or preparation should take


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Holds the lock of `folder` (`.<name>.lock` beside it), after waiting for whoever has it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    path = folder.parent / f".{folder.name}.lock"
    with open(path, "a") as file:
        if flock(file):  # let go by the kernel when the file is closed or the process dies
            yield
            return
    with folder_lock(path.with_suffix(".lock.d")):
        yield


def flock(file: IO[str]) -> bool:
    """Take the file's advisory lock; False where the system or the file system has none."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError:
        return False
    return True


@contextmanager
def folder_lock(path: Path) -> Iterator[None]:
    """The same by making a folder, which every file system does atomically.

    A holder that died on this machine is replaced.
    """
    start = time.monotonic()
    while True:
        try:
            path.mkdir()
            break
        except FileExistsError:
            release_if_dead(path)
        if time.monotonic() - start > WAIT_S:
            raise UserError(
                f"{path}: locked for more than {WAIT_S:.0f} s: if no other process is at work, "
                "remove it"
            )
        time.sleep(0.05)
    owner = path / f"{socket.gethostname()}.{os.getpid()}"
    owner.touch()
    try:
        yield
    finally:
        owner.unlink()
        path.rmdir()


def release_if_dead(path: Path) -> None:
    """Remove the lock of a process of this machine that no longer lives."""
    try:
        owners = list(path.glob("*"))
    except FileNotFoundError:  # it was freed meanwhile
        return
    for owner in owners:
        host, _, pid = owner.name.rpartition(".")
        try:
            if host == socket.gethostname():
                os.kill(int(pid), 0)
        except ProcessLookupError:
            owner.unlink(missing_ok=True)
            try:
                path.rmdir()
            except OSError:
                return  # another waiter was faster
        except PermissionError:
            return  # it lives, under another user
