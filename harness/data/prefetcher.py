"""The next training step is read while the current one trains."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from harness.data.loader import Batch, LoaderState


class StepLoader(Protocol):
    """Endless training steps, one (x_MBT, y_MBT) for each virtual rank played here."""

    def __next__(self) -> list[Batch]: ...

    def reset(self) -> None: ...

    def skip(self, n_steps: int) -> None: ...

    def state_dict(self) -> LoaderState: ...

    def load_state_dict(self, state: LoaderState) -> None: ...


class Prefetcher(Iterator[list[Batch]]):
    """A loader of training steps whose next one is made by a thread while the current one trains.

    Gives the same steps and states.
    """

    def __init__(self, loader: StepLoader) -> None:
        self.loader = loader
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
        self._restart()

    def _restart(self) -> None:
        self._state = self.loader.state_dict()
        self._ahead: Future[tuple[list[Batch], LoaderState]] = self._pool.submit(self._draw)

    def _draw(self) -> tuple[list[Batch], LoaderState]:
        return next(self.loader), self.loader.state_dict()

    def __next__(self) -> list[Batch]:
        step, self._state = self._ahead.result()
        self._ahead = self._pool.submit(self._draw)
        return step

    def reset(self) -> None:
        self._ahead.result()
        self.loader.reset()
        self._restart()

    def skip(self, n_steps: int) -> None:
        self._ahead.result()
        self.loader.load_state_dict(self._state)
        self.loader.skip(n_steps)
        self._restart()

    def state_dict(self) -> LoaderState:
        """The state after the steps that were handed out, whatever the thread has read ahead."""
        return self._state

    def load_state_dict(self, state: LoaderState) -> None:
        self._ahead.result()
        self.loader.load_state_dict(state)
        self._restart()

    def close(self) -> None:
        self._pool.shutdown(wait=True)
