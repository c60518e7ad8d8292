"""How a running matrix shows itself: a live table on a terminal, plain lines elsewhere."""

import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.run.results import where_time_went

if TYPE_CHECKING:
    from harness.runner.local import Runner


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def wall_words(walls: Sequence[Mapping[str, float]]) -> str:
    """Where the wall time of runs went, as shares of it all; idle: workers that waited for a run."""
    seconds, useful = where_time_went(walls)
    whole = sum(seconds.values())
    parts = [f"{name} {100 * s / whole:.1f} %" for name, s in seconds.items() if whole and s / whole >= 0.0005]
    return f"{duration(whole)}, {100 * useful:.1f} % of it training or validation: {', '.join(parts)}"


class Progress:
    """Listens to a runner's events; on a terminal it also redraws the runs in progress."""

    def __init__(self, n_done: int, n_all: int) -> None:
        self.n_done, self.n_all = n_done, n_all
        self.began, self.n_ended = time.monotonic(), 0
        self.lock, self.live = threading.Lock(), sys.stdout.isatty()

    def on_event(self, event: dict[str, Any]) -> None:
        if event["event"] != "ended":
            return
        run, status = event["run"], event["status"]
        with self.lock:
            self.n_ended += 1
            self.n_done += status in ("finished", "diverged")
            left = self.left()
        why = f": {event['reason']}" if event["reason"] else ""
        loss = f" val_loss {event['val_loss']:.4f}" if event.get("val_loss") is not None else ""
        line = f"[{self.n_done}/{self.n_all}] {run.arm}, seed {run.spec.seed}: {status}{loss}{why}"
        print(f"\r\033[K{line}" if self.live else f"{line}{f', about {left} left' if left else ''}", flush=True)

    def left(self) -> str:
        """Time left, from the pace so far; nothing before the first run ended."""
        remaining = self.n_all - self.n_done
        if not self.n_ended or remaining <= 0:
            return ""
        return duration(self.elapsed() / self.n_ended * remaining)

    def elapsed(self) -> float:
        return time.monotonic() - self.began

    def watch(self, runner: "Runner", done: threading.Event) -> None:
        """Redraw one line for the runs in progress until `done` is set; only on a terminal."""
        while self.live and not done.wait(1.0):
            parts = [
                f"{r.arm} seed {r.spec.seed} step {h.get('step', 0)}/{r.spec.budget}"
                + (f" loss {h['val_loss']:.3f}" if h.get("val_loss") is not None else "")
                for r, h in runner.progress()
            ]
            text = f"[{self.n_done}/{self.n_all}] " + " | ".join(parts) + (f" | {self.left()} left" if self.left() else "")
            print(f"\r\033[K{text[:200]}", end="", flush=True)
        if self.live:
            print("\r\033[K", end="", flush=True)
