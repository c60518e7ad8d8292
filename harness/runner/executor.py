"""What every executor shares: limits, signals, the summary of a call."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from harness.run.digests import short_digest
from harness.run.spec import RunSpec
from harness.store.store import Store


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the runner allows a run."""

    wall_s: float | None = None
    silence_s: float = 3600.0  # without a step; long enough for the longest compilation
    deaths: int = 2  # a run whose worker died (killed, crashed interpreter) is tried this many times more
    oom_retries: int = 0  # each with half the tokens in a forward pass


TRAINER = "harness.training.train:train"
STOPS = {signal.SIGINT: "interrupted", signal.SIGHUP: "interrupted", signal.SIGTERM: "preempted"}


@dataclass(kw_only=True)
class Summary:
    """How the matrix stands when the runner stops: run_id -> status, with reasons where there are any."""

    found: dict[str, str] = field(default_factory=dict)  # runs that had their result before
    statuses: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    stopped: str | None = None  # "interrupted" or "preempted"


@contextmanager
def stop_signals(tell: Callable[[str], None]) -> Iterator[None]:
    """Meanwhile a signal that asks this process to stop is told as the status that it means."""
    before = {n: h for n in STOPS if (h := signal.getsignal(n)) is not signal.SIG_IGN}  # nohup stays nohup
    for number in before:
        signal.signal(number, lambda number, frame: tell(STOPS[signal.Signals(number)]))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def kernel_cache(spec: RunSpec, store: Store) -> Path | None:
    """A configuration's mark, made when its first run starts, in the folder of all compiled kernels; None if it compiles none.

    One folder for all, since kernels go by their content: what one process holds in memory for one configuration would be
    missing from another's.
    """
    wish = spec.config["system"]["compile"]
    if wish == "off" or (wish == "auto" and spec.device != "cuda"):
        return None
    return store.root / "cache" / spec.environment_digest / short_digest([spec.config, spec.device, spec.world_size])
