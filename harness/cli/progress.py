"""How a running matrix shows itself: a live line on a terminal, plain lines elsewhere."""

import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from harness.run.results import where_time_went

if TYPE_CHECKING:
    from harness.runner.executor import Executor, RunEnded, RunProgress

CLEAR = "\r\033[K"  # back to the line's beginning, and empty it
REDRAW_S = 1.0
WIDEST = 200  # characters of the live line
LEAST_SHARE = 0.0005  # that is shown


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def wall_words(walls: Sequence[Mapping[str, float]]) -> str:
    """Where the wall time of runs went, as shares of it; idle: workers that waited for a run."""
    seconds, useful = where_time_went(walls)
    whole = sum(seconds.values())
    parts = []
    for name, spent in seconds.items():
        if whole and spent / whole >= LEAST_SHARE:
            parts.append(f"{name} {100 * spent / whole:.1f} %")
    shares = ", ".join(parts)
    return f"{duration(whole)}, {100 * useful:.1f} % of it training or validation: {shares}"


class ProgressDisplay:
    """Told of every run that ends; on a terminal it also redraws the runs in progress."""

    def __init__(self, n_done: int, n_all: int) -> None:
        self.n_done = n_done
        self.n_all = n_all
        self.began = time.monotonic()
        self.n_ended = 0
        self.lock = threading.Lock()
        self.live = sys.stdout.isatty()

    def on_end(self, ended: "RunEnded") -> None:
        with self.lock:
            self.n_ended += 1
            self.n_done += ended.status in ("finished", "diverged")
            left = self.left()
        run = ended.run
        which = f"{run.arm}, seed {run.spec.seed}, {run.spec.budget} steps"
        line = f"[{self.n_done}/{self.n_all}] {which}: {ended.status}"
        if ended.val_loss is not None:
            line += f" val_loss {ended.val_loss:.4f}"
        if ended.reason:
            line += f": {ended.reason}"
        if self.live:
            line = CLEAR + line
        elif left:
            line += f", about {left} left"
        print(line, flush=True)

    def left(self) -> str:
        """Time left, from the pace so far; nothing before the first run ended."""
        remaining = self.n_all - self.n_done
        if not self.n_ended or remaining <= 0:
            return ""
        return duration(self.elapsed() / self.n_ended * remaining)

    def elapsed(self) -> float:
        return time.monotonic() - self.began

    def watch(self, executor: "Executor", done: threading.Event) -> None:
        """Redraw one line for the runs in progress until `done` is set; only on a terminal."""
        if not self.live:
            return
        while not done.wait(REDRAW_S):
            text = self.live_line(executor.progress())
            print(CLEAR + text[:WIDEST], end="", flush=True)
        print(CLEAR, end="", flush=True)

    def live_line(self, runs: "Sequence[RunProgress]") -> str:
        parts = [in_words(progress) for progress in runs]
        left = self.left()
        text = f"[{self.n_done}/{self.n_all}] " + " | ".join(parts)
        if left:
            text += f" | {left} left"
        return text


def in_words(progress: "RunProgress") -> str:
    """Where a run is."""
    run = progress.run
    text = f"{run.arm} seed {run.spec.seed} step {progress.step}/{run.spec.budget}"
    if progress.val_loss is not None:
        text += f" loss {progress.val_loss:.3f}"
    return text
