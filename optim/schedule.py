"""Schedules: functions of the step that return a number and touch nothing.

The step is the 0-based index of the update.
"""

import math
from collections.abc import Callable


def lr_factor(
    step: int,
    *,
    steps: int,
    warmup_steps: int = 0,
    cooldown_steps: int | None = None,
    cooldown_frac: float | None = None,
    floor: float = 0.0,
) -> float:
    """What multiplies every learning rate at update `step` of `steps`.

    (step+1)/warmup_steps while warming up; then 1; then a linear cooldown towards `floor`, reached
    at step == steps, which is never used for an update. The cooldown is given by steps,
    (steps-step)/cooldown_steps (records 2 to 17), or as a fraction of all steps, (1 -
    step/steps)/cooldown_frac (record 18). Floor: record 19.
    """
    assert cooldown_steps is None or cooldown_frac is None, "a cooldown has one length"
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    factor = 1.0
    if cooldown_steps is not None and step >= steps - cooldown_steps:
        factor = (steps - step) / cooldown_steps
    if cooldown_frac is not None and 1 - step / steps < cooldown_frac:
        factor = (1 - step / steps) / cooldown_frac
    return factor + (1.0 - factor) * floor


def muon_momentum(
    step: int,
    *,
    end: float,
    warmup_steps: int,
    start: float = 0.85,
    steps: int = 0,
    cooldown_steps: int = 0,
) -> float:
    """Momentum of update `step` of `steps`.

    From `start` linearly to `end` over `warmup_steps` (record 9), or `end` throughout; over the
    last `cooldown_steps` back towards `start` (record 39), which is reached at step == steps.
    """
    cooling = step - (steps - cooldown_steps)
    if cooldown_steps and cooling > 0:
        return end - (end - start) * cooling / cooldown_steps
    if warmup_steps == 0:
        return end
    fraction = min(step / warmup_steps, 1)
    return (1 - fraction) * start + fraction * end


def window_tokens(step: int, *, steps: int, end: int, kind: str, warmup: str | None) -> int:
    """Attention window at `step`.

    In tokens for the kinds token and clipped, in blocks of 128 for the kind block.

    end: the window, or where its warm-up ends, in tokens for every kind. The warm-up rises
    linearly: from 64 tokens to `end` in multiples of 64 (record 13), rounded to the nearest block
    for the kind block (record 16), or from one block to (end + 64) tokens, rounded down (record
    18). Blocks are interpolated in the scripts' own floating-point order, which decides at a
    boundary. `end` is only reached at step == steps, the last validation.
    warmup: its form, None where the window is `end` from the first step.
    """
    f = step / steps
    if kind == "block":
        blocks = {
            None: end,
            "tokens": (1 - f) * 64 + f * end + 64,
            "blocks": (1 - f) * 128 + f * (end + 64),
        }
        return int(blocks[warmup] // 128)
    return 64 * ((64 * steps + (end - 64) * step) // (64 * steps)) if warmup else end


def adam_acts(step: int, *, every: int) -> bool:
    """Whether Adam moves at `step`: at the last of every so many updates (record 39)."""
    return (step + 1) % every == 0


def changed_within(step: int, *, updates: int, changes: Callable[[int], bool]) -> bool:
    """Whether one of the last so many updates, `step` the last of them, changed the stage.

    changes: whether an update did, by the schedule.
    """
    return any(changes(step - back) for back in range(min(updates, step + 1)))


def last_tied_step(steps: int, *, until: float, every: int) -> int:
    """The last update of token table and head as one (record 54).

    Adam's first one at or after the share `until` of all steps.
    """
    step = math.ceil(until * steps)
    return step + -(step + 1) % every
