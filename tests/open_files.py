"""Which files this process has open, by name: how many there are is not one test's affair."""

import os
from contextlib import suppress
from pathlib import Path


def open_files() -> list[str]:
    """Of every descriptor what it is open on."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the listing itself
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return sorted(found)


def open_below(folder: Path) -> list[str]:
    """A folder and what is in it, as far as they are open."""
    return [name for name in open_files() if f"{name}/".startswith(f"{folder}/")]
