"""The clock of a run: it counts training steps alone and never waits inside one."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, kw_only=True)
class Counted:
    """What a clock has counted while it stands."""

    elapsed_s: float
    step_ms: list[float]
    n_told: int  # steps that a validation has told


class Clock:
    """Seconds of training, device work included.

    The device is waited for only where the clock starts and stops.

    Per-step times come from marks: device events read once the clock has stopped, or the host's
    time on a CPU.
    """

    def __init__(self, device: torch.device, now: Callable[[], float] = time.perf_counter) -> None:
        self.cuda, self.now = device.type == "cuda", now
        self.elapsed_s = 0.0
        self.step_ms: list[float] = []  # one entry for each step since the last reset
        self.spans: list[tuple[float, float]] = []  # when it ran, since the last reset
        self._n_told = 0
        self._n_before = 0  # steps that another process counted
        self._since: float | None = None

    def _wait(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()

    def start(self) -> None:
        assert self._since is None
        self._wait()
        self._since = self.now()
        self.marks: list[Any] = []  # device events, or the host's seconds
        self.mark()

    def mark(self) -> None:
        """Note the end of a step (or the start of the first one after a stop)."""
        if self.cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.marks.append(event)
        else:
            self.marks.append(self.now())

    def stop(self) -> None:
        assert self._since is not None
        self._wait()
        now = self.now()
        self.elapsed_s += now - self._since
        self.spans.append((self._since, now))
        self._since = None
        for a, b in zip(self.marks, self.marks[1:], strict=False):
            self.step_ms.append(a.elapsed_time(b) if self.cuda else (b - a) * 1000)

    def restart(self) -> None:
        """Forget what was counted so far, and go on."""
        self.stop()
        self.elapsed_s, self.step_ms, self.spans, self._n_told = 0.0, [], [], 0
        self._n_before = 0
        self.start()

    def counted(self) -> Counted:
        return Counted(elapsed_s=self.elapsed_s, step_ms=self.step_ms, n_told=self._n_told)

    def go_on(self, before: Counted) -> None:
        """Count on from where another process's clock stood."""
        self.elapsed_s, self.step_ms = before.elapsed_s, list(before.step_ms)
        self._n_told, self._n_before = before.n_told, len(before.step_ms)

    def own_step_ms(self) -> list[float]:
        """The steps that this process counted."""
        return self.step_ms[self._n_before :]

    def new_step_ms(self) -> list[float]:
        """The steps counted since this was last asked, while the clock stands."""
        told, self._n_told = self._n_told, len(self.step_ms)
        return self.step_ms[told:]


class Stopwatch:
    """Wall seconds by phase, for the account of where a run's time went."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self.now, self.seconds = now, dict[str, float]()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        began = self.now()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + self.now() - began
