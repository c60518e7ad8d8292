"""What an update's schedules are: their values, from a configuration and the step alone."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from harness.config.plugins import PlugIn, named, switched_on
from harness.config.run import RunConfig
from harness.errors import UserError
from harness.optim.schedule import (
    adam_acts,
    changed_within,
    last_tied_step,
    lr_factor,
    muon_momentum,
    window_tokens,
)

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
    "optim.muon_momentum_cooldown_steps",
    "optim.adam_every",
    "optim.scalar_freeze_steps",
)


@dataclass(frozen=True, kw_only=True)
class ScheduleValues:
    """The schedules of one update."""

    lr_factor: float  # of every learning rate
    momentum: float  # of the matrices' updates
    window: int | None  # in tokens or blocks; None: attention has none
    adam_acts: bool
    scalars_rest: bool
    tied: bool  # token table and head are one


def schedule_at(config: RunConfig, step: int) -> ScheduleValues:
    """Of update `step`, 0-based."""
    o = config.optim
    factor = factor_at(config, step, rates_of(config))
    momentum = muon_momentum(
        step,
        end=o.muon_momentum,
        warmup_steps=o.muon_momentum_warmup_steps,
        steps=config.schedule.steps,
        cooldown_steps=o.muon_momentum_cooldown_steps,
    )
    tied = o.tie_until is not None and step <= last_tied_step(
        config.schedule.steps, until=o.tie_until, every=o.adam_every
    )
    return ScheduleValues(
        lr_factor=factor,
        momentum=momentum,
        window=window_at(config, step),
        adam_acts=adam_acts(step, every=o.adam_every),
        scalars_rest=changed_within(
            step, updates=o.scalar_freeze_steps, changes=partial(changes_stage, config)
        ),
        tied=tied,
    )


def changes_stage(config: RunConfig, step: int) -> bool:
    """Whether update `step` is the first one of another window."""
    return step > 0 and window_at(config, step) != window_at(config, step - 1)


def rates_of(config: RunConfig) -> list[PlugIn]:
    """The plug-ins that are on and have learning rates of their own."""
    return [plug for plug in switched_on(config.plugin) if plug.hook("lr_factor")]


def factor_at(config: RunConfig, step: int, plugs: Iterable[PlugIn]) -> float:
    """What multiplies every learning rate, by the preset and then by rates_of it.

    Raises UserError where a plug-in gives no number.
    """
    s = config.schedule
    factor = lr_factor(
        step,
        steps=s.steps,
        warmup_steps=s.warmup_steps,
        cooldown_steps=s.cooldown_steps,
        cooldown_frac=s.cooldown_frac,
        floor=s.lr_floor,
    )
    at = min(step, s.steps - 1)  # a warm-up makes two updates, of a run of one, too
    for plug in plugs:
        try:
            factor = plug.module.lr_factor(at, s.steps, factor, plug.toggles)
        except UserError:
            raise
        except Exception as error:
            raised = f"raises {type(error).__name__} ({error}) at update {at} of {s.steps}"
            raise plug.fail("lr_factor", f"{raised}: mend its arithmetic there") from error
        if not isinstance(factor, int | float) or not math.isfinite(factor):
            raise plug.fail(
                "lr_factor",
                f"gives {named(factor)} at update {at} of {s.steps}, but must give a finite "
                "number: mend its arithmetic there",
            )
    return factor


def check_factors(config: RunConfig) -> None:
    """Try every update of a plug-in's learning rates, so that none fails at a run's end."""
    plugs = rates_of(config)
    for step in range(config.schedule.steps) if plugs else ():
        factor_at(config, step, plugs)


def window_at(config: RunConfig, step: int) -> int | None:
    """The attention window of update `step`, or of the validation before it."""
    kind = config.model.attn_window
    if not kind:
        return None
    s = config.schedule
    return window_tokens(
        step, steps=s.steps, end=s.window_tokens, kind=str(kind), warmup=s.window_warmup
    )
