"""One process at a time between a results folder and a place."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from harness.run.digests import text_digest
from harness.run.guarded import IN_ROOT, KEPT, check_folder, open_to_append
from harness.store.store import Store


def cache_of(store: Store) -> Path:
    """The folder for what may be made anew, which is no link."""
    folder = store.root / "cache"
    folder.mkdir(exist_ok=True)
    check_folder(folder, below=IN_ROOT)
    return folder


@contextmanager
def alone(store: Store, name: str) -> Iterator[None]:
    """While no other process is between a folder and the place of this name."""
    path = cache_of(store) / f"push-{text_digest(name)}.lock"
    with os.fdopen(open_to_append(path, below=KEPT), "ab") as file:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
