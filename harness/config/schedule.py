"""What an update's schedules are: their values, from a configuration and the step alone."""

from dataclasses import dataclass

from harness.config.run import RunConfig
from harness.optim.schedule import lr_factor, muon_momentum, window_tokens

# toggles that act through the values of ScheduleValues alone, and by how many updates there are
SCHEDULED = (
    "schedule.steps",
    "schedule.warmup_steps",
    "schedule.cooldown_steps",
    "schedule.cooldown_frac",
    "schedule.lr_floor",
    "schedule.window_tokens",
    "schedule.window_warmup",
    "optim.muon_momentum",
    "optim.muon_momentum_warmup_steps",
)


@dataclass(frozen=True, kw_only=True)
class ScheduleValues:
    """The schedules of one update."""

    lr_factor: float  # of every learning rate
    momentum: float  # of the matrices' updates
    window: int | None  # in tokens or blocks; None: attention has none


def schedule_at(config: RunConfig, step: int) -> ScheduleValues:
    """Of update `step`, 0-based."""
    s, o = config.schedule, config.optim
    factor = lr_factor(
        step,
        steps=s.steps,
        warmup_steps=s.warmup_steps,
        cooldown_steps=s.cooldown_steps,
        cooldown_frac=s.cooldown_frac,
        floor=s.lr_floor,
    )
    momentum = muon_momentum(step, end=o.muon_momentum, warmup_steps=o.muon_momentum_warmup_steps)
    return ScheduleValues(lr_factor=factor, momentum=momentum, window=window_at(config, step))


def window_at(config: RunConfig, step: int) -> int | None:
    """The attention window of update `step`, or of the validation before it."""
    kind = config.model.attn_window
    if not kind:
        return None
    s = config.schedule
    return window_tokens(
        step, steps=s.steps, end=s.window_tokens, kind=str(kind), warmup=s.window_warmup
    )
