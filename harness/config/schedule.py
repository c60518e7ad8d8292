"""What an update's schedules are: their values, from a configuration and the step alone."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TypeVar

from harness.config.plugins import PlugIn, named, switched_on
from harness.config.run import BLOCK, RunConfig
from harness.errors import UserError
from harness.optim.schedule import (
    IN_BLOCKS,
    adam_acts,
    changed_within,
    last_tied_step,
    lr_factor,
    muon_momentum,
    next_token_weights,
    passed_fractions,
    prefix_weight,
    rate_step,
    stage_at,
    stage_starts,
    stages_passed,
    window_tokens,
)

Listed = TypeVar("Listed")

# toggles that act through the values of ScheduleValues alone, and by how many updates there are
SCHEDULED = (
    "schedule.steps",
    "schedule.warmup_steps",
    "schedule.cooldown_steps",
    "schedule.cooldown_frac",
    "schedule.cooldown_from",
    "schedule.lr_floor",
    "schedule.extension_steps",
    "schedule.extension_rate",
    "schedule.stages",
    "schedule.stage_start",
    "schedule.stage_rates",
    "schedule.stage_rates_after",
    "schedule.batch_growth",
    "data.max_doc_len",
    "loss.next_tokens",
    "loss.prefix_weight",
    "schedule.window_tokens",
    "schedule.window_warmup",
    "schedule.windows",
    "schedule.windows_short",
    "schedule.window_last_layer",
    "schedule.yarn_until",
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
    windows: tuple[int, ...]  # as windows_at has them, tokens or blocks; (): there is none
    followed: tuple[int, ...]  # long windows that YaRN went through, in tokens; (): it is off
    growth: int  # of passes and of the batch, in multiples of what the configuration says
    max_doc_len: int | None  # tokens of a document at most
    next_tokens: tuple[float, ...]  # weights of the losses on them; (1,): the next one alone
    prefix_weight: float  # of the loss on the next token's prefix
    adam_acts: bool
    scalars_rest: bool
    tied: bool  # token table and head are one


def schedule_at(config: RunConfig, step: int) -> ScheduleValues:
    """Of update `step`, 0-based."""
    o, loss = config.optim, config.loss
    factor = factor_at(config, step, rates_of(config))
    momentum = muon_momentum(
        step,
        end=o.muon_momentum,
        warmup_steps=o.muon_momentum_warmup_steps,
        steps=config.schedule.steps,
        cooldown_steps=o.muon_momentum_cooldown_steps,
    )
    passed = passed_at(config, step)
    return ScheduleValues(
        lr_factor=factor,
        momentum=momentum,
        windows=windows_at(config, step),
        followed=followed_at(config, step),
        growth=growth_at(config, step),
        max_doc_len=max_doc_len_at(config, step),
        next_tokens=next_token_weights(passed, loss.next_tokens or (1.0,)),
        prefix_weight=prefix_weight(passed, loss.prefix_weight),
        adam_acts=adam_acts(step, every=o.adam_every),
        scalars_rest=changed_within(
            step, updates=o.scalar_freeze_steps, changes=partial(changes_stage, config)
        ),
        tied=is_tied(config, step),
    )


def changes_stage(config: RunConfig, step: int) -> bool:
    """Whether update `step` is the first one of another long window or batch."""
    return step > 0 and (
        windows_at(config, step)[:1] != windows_at(config, step - 1)[:1]
        or growth_at(config, step) != growth_at(config, step - 1)
    )


def is_tied(config: RunConfig, step: int) -> bool:
    """Whether token table and head are one at update `step`."""
    o = config.optim
    if o.tie_until is None or o.tie_until == 1:
        return o.tie_until is not None
    last = last_tied_step(
        scheduled_steps(config),
        until=o.tie_until,
        every=o.adam_every,
        rounding=config.schedule.stage_start,
        ends=o.tie_ends,
    )
    return step <= last


def scheduled_steps(config: RunConfig) -> int:
    """Updates before the extension, through which the stages go."""
    return config.schedule.steps - config.schedule.extension_steps


def starts_of(config: RunConfig) -> list[int]:
    """The first update of each stage."""
    s = config.schedule
    return stage_starts(scheduled_steps(config), s.stages, s.stage_start)


def first_of_a_kind(config: RunConfig) -> list[int]:
    """The first update of every kind: those of one kind compute the same graph."""
    firsts: dict[tuple[int, int, bool], int] = {}
    starts = [*starts_of(config), scheduled_steps(config)]
    for step in (start for start in starts if start < config.schedule.steps):
        values = schedule_at(config, step)
        kind = values.growth, len(values.next_tokens), values.prefix_weight > 0
        firsts.setdefault(kind, step)
    return list(firsts.values())


def passed_at(config: RunConfig, step: int) -> float:
    """How many stages have passed at update `step`, with the fraction of the present one."""
    s = config.schedule
    return stages_passed(
        step, steps=scheduled_steps(config), n_stages=s.stages, rounding=s.stage_start
    )


def of_stage(config: RunConfig, step: int, values: Sequence[Listed]) -> Listed:
    """The value that is listed for the stage of update `step`; in the extension the last one's."""
    return values[stage_at(step, starts_of(config))]


def growth_at(config: RunConfig, step: int) -> int:
    """How many times as long a pass, and as large a batch, is as the configuration says."""
    growth = config.schedule.batch_growth
    return of_stage(config, step, growth) if growth else 1


def max_doc_len_at(config: RunConfig, step: int) -> int | None:
    """Tokens of a document that are read at most; None: all."""
    listed = config.data.max_doc_len
    if len(listed) > 1:
        return of_stage(config, step, listed)
    return listed[0] if listed else None


def tokens_trained(config: RunConfig, updates: range) -> int:
    """What these updates read, of all ranks together."""
    if not config.schedule.batch_growth:
        return config.data.batch_tokens * len(updates)
    return config.data.batch_tokens * sum(growth_at(config, step) for step in updates)


def longest_sequence(config: RunConfig) -> int:
    """Tokens of the longest sequence of training and validation."""
    trained = config.data.seq_len * max(config.schedule.batch_growth, default=1)
    return max(trained, config.data.val_portion[1])


def peak_at(config: RunConfig, step: int) -> float:
    """What multiplies the rates by the stage that they are in at update `step`."""
    s = config.schedule
    if not s.stage_rates:
        return 1.0
    if s.stage_rates_after is None:
        return of_stage(config, step, s.stage_rates)
    passed = passed_fractions(
        step,
        steps=scheduled_steps(config),
        n_stages=s.stages,
        hundredths=s.stage_rates_after == "hundredth",
    )
    return s.stage_rates[passed]


def rates_of(config: RunConfig) -> list[PlugIn]:
    """The plug-ins that are on and have learning rates of their own."""
    return [plug for plug in switched_on(config.plugin) if plug.hook("lr_factor")]


def factor_at(config: RunConfig, step: int, plugs: Iterable[PlugIn]) -> float:
    """What multiplies every learning rate, by the preset and then by rates_of it.

    Raises UserError where a plug-in gives no number.
    """
    s = config.schedule
    of, steps = rate_step(
        step, steps=s.steps, extension_steps=s.extension_steps, form=s.extension_rate
    )
    factor = lr_factor(
        of,
        steps=steps,
        warmup_steps=s.warmup_steps,
        cooldown_steps=s.cooldown_steps,
        cooldown_frac=s.cooldown_frac,
        whole_updates=s.cooldown_from == "update",
        floor=s.lr_floor,
        peak=peak_at(config, step),
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


def windows_at(config: RunConfig, step: int) -> tuple[int, ...]:
    """The attention windows of update `step`, or of the validation before it.

    Of the long layers, of the short ones where there are any, and of the last layer where that has
    its own; none where there is no window.
    """
    kind, s = config.model.attn_window, config.schedule
    if not kind:
        return ()
    unit = BLOCK if kind in IN_BLOCKS else 1
    long = window_tokens(
        step, steps=s.steps, end=s.window_tokens, kind=kind, warmup=s.window_warmup
    )
    if s.windows:
        long = of_phase(config, step, s.windows) // unit
    if not config.model.attn_window_layers:
        return (long,)
    short = of_phase(config, step, s.windows_short) // unit if s.windows_short else long // 2
    if s.window_last_layer is None:
        return long, short
    return long, short, s.window_last_layer // unit if step >= s.steps else long


def followed_at(config: RunConfig, step: int) -> tuple[int, ...]:
    """The long windows, in tokens, that YaRN has followed at update `step`, the present one last.

    Or at the validation before it; none where it is off.
    """
    s = config.schedule
    if not config.model.window_yarn:
        return ()
    changes = (at for at in (*starts_of(config), scheduled_steps(config), s.steps) if at <= step)
    windows = (of_phase(config, at, s.windows) for at in changes)
    if s.yarn_until is not None:
        windows = (min(window, s.yarn_until) for window in windows)
    return tuple(window for window, _ in groupby(windows))


def of_phase(config: RunConfig, step: int, values: Sequence[Listed]) -> Listed:
    """The value of the stage, of the extension or of the last validation; the last one goes on."""
    if step >= config.schedule.steps:
        return values[-1]
    if step >= scheduled_steps(config):
        return values[min(config.schedule.stages, len(values) - 1)]
    return of_stage(config, step, values)
