"""Schedules: functions of the step that return a number and touch nothing.

The step is the 0-based index of the update.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence


def stage_starts(steps: int, n_stages: int, rounding: str) -> list[int]:
    """The first update of each of n_stages equal parts of `steps` updates.

    rounding: of the boundary j steps/n_stages, "nearest" (record 65, halves to even), "next"
    (record 42), or "next_of_one_more", the same of steps + 1 (record 29).
    """
    if rounding == "nearest":
        return [round(steps * (j / n_stages)) for j in range(n_stages)]
    whole = steps + 1 if rounding == "next_of_one_more" else steps
    return [-(-whole * j // n_stages) for j in range(n_stages)]


def stages_passed(step: int, *, steps: int, n_stages: int, rounding: str) -> float:
    """How many stages have passed at update `step`, with the fraction of the present one.

    Of its own updates where boundaries are the nearest (record 65), else of all `steps`; after them
    n_stages. rounding: as in stage_starts.
    """
    if step >= steps:
        return float(n_stages)
    if rounding != "nearest":
        return n_stages * (step / steps)
    starts = stage_starts(steps, n_stages, rounding)
    i = stage_at(step, starts)
    end = [*starts, steps][i + 1]
    return i + (step - starts[i]) / (end - starts[i])


def stage_at(step: int, starts: Sequence[int]) -> int:
    """The number of the stage that update `step` is in, from the first updates of all."""
    return max(bisect_right(starts, step) - 1, 0)


def passed_fractions(step: int, *, steps: int, n_stages: int, hundredths: bool) -> int:
    """How many of the fractions j/n_stages of all `steps` lie before update `step`.

    hundredths: of these fractions rounded down to hundredths (record 46), else as they are (49).
    """
    fractions = (j / n_stages for j in range(1, n_stages))
    if hundredths:
        fractions = (100 * j // n_stages / 100 for j in range(1, n_stages))
    return sum(step / steps > fraction for fraction in fractions)


def lr_factor(
    step: float,
    *,
    steps: int,
    warmup_steps: int = 0,
    cooldown_steps: int | None = None,
    cooldown_frac: float | None = None,
    whole_updates: bool = False,
    floor: float = 0.0,
    peak: float = 1.0,
) -> float:
    """What multiplies every learning rate at update `step` of `steps`.

    peak (step+1)/warmup_steps while warming up; then `peak`; then a linear cooldown from it towards
    `floor`, reached at step == steps, and kept. The cooldown is given by steps,
    (steps-step)/cooldown_steps (records 2 to 17), or as a fraction of all steps, (1 -
    step/steps)/cooldown_frac (record 18), of which whole_updates takes the updates that begin in
    it (record 65). Floor: record 19.
    """
    assert cooldown_steps is None or cooldown_frac is None, "a cooldown has one length"
    if step < warmup_steps:
        return peak * ((step + 1) / warmup_steps)
    if cooldown_frac is not None and whole_updates:
        cooldown_steps, cooldown_frac = steps - int(steps * (1 - cooldown_frac)), None
    factor = 1.0
    if cooldown_steps and step >= steps - cooldown_steps:
        factor = (steps - step) / cooldown_steps
    if cooldown_frac is not None and 1 - step / steps < cooldown_frac:
        factor = (1 - step / steps) / cooldown_frac
    factor = max(factor, 0.0)
    return peak * factor + (1.0 - factor) * floor


def rate_step(step: int, *, steps: int, extension_steps: int, form: str) -> tuple[float, int]:
    """The update that the rates are those of, and by how many updates they go.

    Of `steps` the last extension_steps are the extension. form: "floor", where they stay at the
    cooldown's end (record 46), "almost_floor", at 0.9999 of it (record 35), or "cooling", where the
    cooldown ends with the extension (record 41).
    """
    if form == "cooling":
        return step, steps
    before = steps - extension_steps
    return min(step, 0.9999 * before if form == "almost_floor" else before), before


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


IN_BLOCKS = ("block", "counted")  # window kinds that count blocks of 128 tokens


def window_tokens(step: int, *, steps: int, end: int, kind: str, warmup: str | None) -> int:
    """Attention window at `step`.

    In blocks of 128 for the kinds of IN_BLOCKS, else in tokens.

    end: the window, or where its warm-up ends, in tokens for every kind. The warm-up rises
    linearly: from 64 tokens to `end` in multiples of 64 (record 13), rounded to the nearest block
    for the kind block (record 16); from one block to (end + 64) tokens, rounded down (record 18);
    or from 0, rounded up, to one block at least (record 19). Blocks are interpolated in the
    scripts' own floating-point order, which decides at a boundary. `end` is only reached at
    step == steps, the last validation.
    warmup: its form, None where the window is `end` from the first step.
    """
    f = step / steps
    if warmup == "next_block":
        return max(1, -(-end * step // (128 * steps)))
    if kind in IN_BLOCKS:
        blocks = {
            None: end,
            "tokens": (1 - f) * 64 + f * end + 64,
            "blocks": (1 - f) * 128 + f * (end + 64),
        }
        return int(blocks[warmup] // 128)
    return 64 * ((64 * steps + (end - 64) * step) // (64 * steps)) if warmup else end


def next_token_weights(passed: float, full: Sequence[float]) -> tuple[float, ...]:
    """What the losses on the next token, the one after it, ... weigh.

    full: at the start. The last one falls to 0 over the first stage, the one before it over the
    second, and so on; the next token's stays (record 53). What has fallen to 0 is left out.
    passed: how many stages, as stages_passed has it.
    """
    n = len(full)
    weights = [w * min(max(n - k - passed, 0.0), 1.0) for k, w in enumerate(full[1:], start=1)]
    return (*full[:1], *(w for w in weights if w > 0))


def prefix_weight(passed: float, full: float) -> float:
    """What the loss on a target's prefix weighs: full for a stage, then to 0 over the second.

    passed: how many stages, as stages_passed has it (record 88).
    """
    return full * min(max(2 - passed, 0.0), 1.0)


def adam_acts(step: int, *, every: int) -> bool:
    """Whether Adam moves at `step`: at the last of every so many updates (record 39)."""
    return (step + 1) % every == 0


def changed_within(step: int, *, updates: int, changes: Callable[[int], bool]) -> bool:
    """Whether one of the last so many updates, `step` the last of them, changed the stage.

    changes: whether an update did, by the schedule.
    """
    return any(changes(step - back) for back in range(min(updates, step + 1)))


def last_tied_step(
    steps: int, *, until: float, every: int, rounding: str = "next", ends: str = "after_adam"
) -> int:
    """The last update of token table and head as one.

    until: the share of all steps; every: at how manieth Adam acts; rounding: of that share, as in
    stage_starts ("nearest": record 65). ends: "after_adam", with its first update there or later
    (record 54), or "before_pass", with the update before (record 53).
    """
    share = until * steps
    step = round(share) if rounding == "nearest" else math.ceil(share)
    if ends == "before_pass":
        return step - 1
    return step + -(step + 1) % every
