"""A run's log while it is written: whole up to a size, beyond it its head and its tail."""

import time
from collections import deque
from collections.abc import Callable
from typing import IO

HEAD = TAIL = 4 << 20  # characters
SHARE = 0.1  # of its time that a process may spend on a tail that is to be cut again


class HeadAndTail:
    """Writes into a file: its beginning, and behind that the end as far as it is known.

    The file holds at most twice the tail, then it is cut to one tail again. What a flood prints is
    written now and then, everything else at once: a process that is killed leaves its last words.
    """

    def __init__(
        self, file: IO[str], clean: Callable[[str], str], *, head: int = HEAD, tail: int = TAIL
    ) -> None:
        """clean: what is done to a text that is kept, before it is written."""
        self.clean = clean
        self.file, self.head, self.tail = file, head, tail
        self.n_written = 0  # characters of the head
        self.in_file: list[str] = []  # what this process has written there, in order
        self.n_of_head = 0  # of these
        self.tail_at: int | None = None  # where the tail begins in the file
        self.kept: deque[str] = deque()
        self.n_kept = 0
        self.n_left_out = 0
        self.fresh: list[str] = []  # what of the tail is not in the file
        self.n_fresh = self.n_in_file = 0
        self.next_s = 0.0  # when the tail may be written again
        self.ended = False

    def write(self, text: str) -> None:
        """Whole lines."""
        room = self.head - self.n_written
        if self.tail_at is None and len(text) <= room:
            self._add(self.clean(text))
            self.file.flush()
            self.n_written += len(text)
            self.n_of_head += 1
            return
        if self.tail_at is None:
            self.tail_at = self.file.tell()
        self.kept.append(text)
        self.n_kept += len(text)
        self.fresh.append(text)
        self.n_fresh += len(text)
        while self.n_kept - len(self.kept[0]) >= self.tail:
            dropped = self.kept.popleft()
            self.n_kept -= len(dropped)
            self.n_left_out += len(dropped)
        if self.n_fresh > self.tail:
            self.fresh.clear()  # the file is cut to what is kept
        if time.monotonic() >= self.next_s:
            began = time.thread_time()
            self._write_tail()
            self.next_s = time.monotonic() + (time.thread_time() - began) / SHARE

    def _add(self, text: str) -> None:
        self.file.write(text)
        self.in_file.append(text)

    def is_in(self, content: bytes) -> bool:
        """Whether a content has all that was written here, in order.

        Between that may stand what others print into the same file.
        """
        at = 0
        for raw in map(str.encode, self.in_file):
            place = content.find(raw, at)
            if place < 0:
                return False
            at = place + len(raw)
        return True

    def _write_tail(self) -> None:
        """Add what is fresh; cut the file to head and tail where that is too much."""
        if self.n_fresh > self.tail or self.n_in_file + self.n_fresh > 2 * self.tail:
            self._cut()
        else:
            self._add(self.clean("".join(self.fresh)))
            self.n_in_file += self.n_fresh
        self.file.flush()
        self.fresh.clear()
        self.n_fresh = 0

    def _cut(self) -> None:
        """Head, what is missing, tail; until it is cut the file ends as before."""
        assert self.tail_at is not None
        self.file.seek(self.tail_at)
        del self.in_file[self.n_of_head :]
        if self.n_left_out:
            mib = self.n_left_out / 2**20
            self._add(f"[... {mib:.1f} MiB of the log are left out here ...]\n")
        self._add(self.clean("".join(self.kept)))
        self.file.flush()
        self.file.truncate()
        self.n_in_file = self.n_kept

    def end(self) -> None:
        """Write what is left; nothing is written after it, and a second time does nothing."""
        if self.ended:
            return
        self.ended = True
        if self.n_left_out:
            self._cut()
        elif self.tail_at is not None:
            self._write_tail()
        self.file.flush()
