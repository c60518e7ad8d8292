"""What an update's schedules are: their values, from a configuration and the step alone."""

import math
from dataclasses import dataclass

from harness.config.plugins import named, switched_on
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
    factor = own_factor(config, step, factor)
    momentum = muon_momentum(step, end=o.muon_momentum, warmup_steps=o.muon_momentum_warmup_steps)
    return ScheduleValues(lr_factor=factor, momentum=momentum, window=window_at(config, step))


def own_factor(config: RunConfig, step: int, factor: float) -> float:
    """What plug-ins make of the factor of the learning rates; raises UserError for no number."""
    steps = config.schedule.steps
    at = min(step, steps - 1)  # a warm-up makes two updates, of a run of one, too
    for plug in switched_on(config.plugin):
        own = plug.hook("lr_factor")
        if own is None:
            continue
        factor = own(at, steps, factor, plug.toggles)
        if not isinstance(factor, int | float) or not math.isfinite(factor):
            raise plug.fail(
                "lr_factor",
                f"gives {named(factor)} at update {at} of {steps}, but must give a finite "
                "number: mend its arithmetic there",
            )
    return factor


def check_factors(config: RunConfig) -> None:
    """Try every update of a plug-in's learning rates, so that none fails at a run's end."""
    if any(plug.hook("lr_factor") for plug in switched_on(config.plugin)):
        for step in range(config.schedule.steps):
            schedule_at(config, step)


def window_at(config: RunConfig, step: int) -> int | None:
    """The attention window of update `step`, or of the validation before it."""
    kind = config.model.attn_window
    if not kind:
        return None
    s = config.schedule
    return window_tokens(
        step, steps=s.steps, end=s.window_tokens, kind=str(kind), warmup=s.window_warmup
    )
