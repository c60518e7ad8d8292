"""What looks at a machine in the background while a run trains."""

import threading
from abc import ABC, abstractmethod
from typing import Self


class Background(ABC):
    """A thread of its own from `with` to its end, where there is something to look at."""

    def __init__(self) -> None:
        self.done = threading.Event()  # the end of `with`: the watch is over
        self.thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._begins():
            self.thread = threading.Thread(target=self._watch, daemon=True)
            self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        if self.thread is not None:
            self.thread.join()

    def _begins(self) -> bool:
        """Whether there is something to look at."""
        return True

    @abstractmethod
    def _watch(self) -> None:
        """Look again and again until `done` is set."""
