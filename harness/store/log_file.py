"""A run's log while it is written: whole up to a size, beyond it its head and its tail."""

from collections import deque
from collections.abc import Callable
from typing import IO

HEAD = TAIL = 4 << 20  # characters


class HeadAndTail:
    """Writes into a file of which the beginning is on the disk, the end in memory until `end`."""

    def __init__(
        self, file: IO[str], clean: Callable[[str], str], *, head: int = HEAD, tail: int = TAIL
    ) -> None:
        """clean: what is done to a text that is kept, before it is written."""
        self.clean = clean
        self.file, self.head, self.tail = file, head, tail
        self.n_written = 0  # characters of the head
        self.kept: deque[str] = deque()
        self.n_kept = 0
        self.n_left_out = 0

    def write(self, text: str) -> None:
        """Whole lines."""
        room = self.head - self.n_written
        if not self.kept and len(text) <= room:
            self.file.write(self.clean(text))
            self.file.flush()
            self.n_written += len(text)
            return
        self.kept.append(text)
        self.n_kept += len(text)
        while self.n_kept - len(self.kept[0]) >= self.tail:
            dropped = self.kept.popleft()
            self.n_kept -= len(dropped)
            self.n_left_out += len(dropped)

    def end(self) -> None:
        """Write the tail behind a line that says what is missing."""
        if self.n_left_out:
            mib = self.n_left_out / 2**20
            self.file.write(f"[... {mib:.1f} MiB of the log are left out here ...]\n")
        self.file.write(self.clean("".join(self.kept)))
        self.file.flush()
        self.kept.clear()
        self.n_kept = self.n_left_out = 0
