"""Where a run is, written by a thread of its own: the one that trains waits for no disk."""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

from harness.store.state import Progress

PROGRESS_S = 1.0  # progress.json is written at most once in this time


class ShownProgress:
    """progress.json of an attempt: at its first step at once, then at most once a second."""

    def __init__(self, folder: Path, still_mine: Callable[[], bool]) -> None:
        """folder: of the attempt. still_mine: whether no other process has the run."""
        self.folder = folder
        self.still_mine = still_mine
        self.progress: Progress | None = None
        self.error: OSError | None = None  # what kept it from being written
        self._moved, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def show(self, progress: Progress) -> None:
        """Raises OSError where an earlier one could not be written."""
        self.progress = progress
        self._moved.set()
        if self.error is not None:
            raise self.error

    def end(self) -> None:
        """Nothing is written from now on."""
        self._ended.set()
        self._moved.set()
        self._thread.join()

    def _run(self) -> None:
        while self._moved.wait() and not self._ended.is_set():
            self._moved.clear()
            try:
                self._write()
            except OSError as error:
                self.error = error
            self._ended.wait(PROGRESS_S)

    def _write(self) -> None:
        assert self.progress is not None  # it moved
        beside = self.folder / ".progress.json"
        try:
            beside.write_text(json.dumps(self.progress.to_json()))
            os.replace(beside, self.folder / "progress.json")
        except FileNotFoundError:
            if self.still_mine():
                raise
