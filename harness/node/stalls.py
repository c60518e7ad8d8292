"""When this process stood still: stopped, suspended, moved with its virtual machine."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from harness.node.background import Background

TICK_S = 0.5  # between two ticks
LONGEST_S = 5.0  # between two ticks beyond this a busy machine has an excuse
Span = tuple[float, float]  # of time.monotonic, which the clock of a run goes by too


@dataclass(frozen=True, kw_only=True)
class Stall:
    """A time in which no thread of this process ran."""

    began: float  # of time.monotonic
    ended: float
    seconds: float  # in which the machine may have slept too

    def overlaps(self, spans: Sequence[Span]) -> bool:
        return any(self.began < end and begin < self.ended for begin, end in spans)


def since_boot() -> float:
    """Seconds that go on while the machine sleeps, where the system counts them."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    if clock is None:
        return time.monotonic()
    return time.clock_gettime(clock)


class Stalls(Background):
    """Looks at the time twice a second in the background, from `with` to its end."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Stall] = []

    def _watch(self) -> None:
        over = False
        while not over:
            began, boot = time.monotonic(), since_boot()
            over = self.done.wait(TICK_S)
            seconds = since_boot() - boot
            if seconds > LONGEST_S:
                stall = Stall(began=began, ended=time.monotonic(), seconds=seconds)
                self.found.append(stall)

    def seconds(self, spans: Sequence[Span] | None) -> float:
        """How long it stood still while a clock ran. None: the clock's times are not known."""
        of_clock = [s.seconds for s in self.found if spans is None or s.overlaps(spans)]
        return sum(of_clock)
