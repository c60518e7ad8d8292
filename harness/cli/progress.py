"""How a running matrix shows itself: a live line on a terminal, plain lines elsewhere."""

import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from harness.run.results import where_time_went
from harness.run.spec import RESULT_STATUSES

if TYPE_CHECKING:
    from harness.run.spec import PlannedRun
    from harness.runner.executor import Executor, RunEnded, RunProgress

CLEAR = "\r\033[K"  # back to the line's beginning, and empty it
REDRAW_S = 1.0  # between two drawings of the live line
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


class Pace:
    """How long what is left will take: lanes in which a run begins where an earlier one ended.

    The first run of a lane starts a worker and may compile: once others have ended, it no longer
    counts.
    """

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.starts = [0.0] * lanes  # seconds, of all runs that ended or are in progress
        self.took: list[tuple[float, float]] = []  # of every run that ended: seconds, steps

    def end(self, at: float, steps: float) -> None:
        """A run of so many steps ended, `at` seconds after the first began."""
        self.took.append((at - self.starts[len(self.took)], steps))
        self.starts.append(at)

    @property
    def is_known(self) -> bool:
        """Whether a run ended that did not begin with a worker's start."""
        return len(self.took) > self.lanes

    def left(self, steps: Sequence[float], now: float) -> float | None:
        """Seconds that runs of these steps still take, those in progress among them.

        now: seconds after the first began. None before the first run ended."""
        if not self.took or not steps:
            return None
        counted = self.took[self.lanes :] if self.is_known else self.took
        per_step = sum(seconds for seconds, _ in counted) / max(1.0, sum(n for _, n in counted))
        lanes = min(self.lanes, len(steps))
        each = per_step * sum(steps) / len(steps)
        begun = [min(each, now - start) for start in self.starts[len(self.took) :][:lanes]]
        return (per_step * sum(steps) - sum(begun)) / lanes


class ProgressDisplay:
    """Told of every run that ends; on a terminal it also redraws the runs in progress."""

    def __init__(self, runs: "Sequence[PlannedRun]", n_done: int) -> None:
        """runs: to be done. n_done: how many further ones have a result."""
        self.n_done = n_done
        self.n_all = n_done + len(runs)
        self.steps = {run.spec.run_id: float(run.spec.budget) for run in runs}  # of what is left
        self.pace = Pace(1)
        self.began = time.monotonic()
        self.lock = threading.Lock()
        self.live = sys.stdout.isatty()

    def begin(self, at_once: int) -> None:
        """From now on so many runs are in progress at a time: all of them, where jobs may wait."""
        self.pace = Pace(at_once if 0 < at_once < len(self.steps) else 1)
        self.began = time.monotonic()

    def on_end(self, ended: "RunEnded") -> None:
        with self.lock:
            run = ended.run
            self.pace.end(self.elapsed(), run.spec.budget)
            if ended.status in RESULT_STATUSES:
                self.n_done += 1
                self.steps.pop(run.spec.run_id, None)
            left = self.left()
        which = f"{run.arm}, seed {run.spec.seed}, {run.spec.budget} steps"
        line = f"[{self.n_done}/{self.n_all}] {which}: {ended.status}"
        if ended.val_loss is not None:
            line += f" val_loss {ended.val_loss:.4f}"
        if ended.reason:
            line += f": {ended.reason}"
        if self.live:
            line = CLEAR + line
        elif left:
            line += f", {left} left"
        print(line, flush=True)

    def left(self) -> str:
        """Time left, by the pace so far; nothing before the first run ended."""
        seconds = self.pace.left([*self.steps.values()], self.elapsed())
        if seconds is None:
            return ""
        bound = "" if self.pace.is_known else "at most "
        return f"{bound}about {duration(seconds)}"

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
