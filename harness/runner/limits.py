"""What a runner allows a run, and how often it looks."""

from dataclasses import dataclass

POLL_S = 0.2  # between two looks at what may have changed


@dataclass(frozen=True, kw_only=True)
class RunLimits:
    """What the runner allows a run of our own trainer."""

    wall_s: float | None = None
    silence_s: float = 3600.0  # without a step; long enough for the longest compilation
    deaths: int = 2  # a run whose worker died (killed, crashed) is tried this many times more
    oom_retries: int = 0  # each with half the tokens in a forward pass
