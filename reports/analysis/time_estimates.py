"""Time to target per arm and against the baseline, and what of it is steps and what is speed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from reports.analysis.cautions import Caution
from reports.analysis.step_tokens import is_alike
from reports.analysis.time_model import ALPHA, TimeModel
from reports.analysis.types import Decomposition, TimeEstimate
from reports.stats.contrasts import Effect, Method, correlation, difference_only, paired
from reports.stats.intervals import Estimate, Interval, total
from reports.stats.sequential import smallest_alpha
from reports.stats.time_sequences import attainable


def time_estimates(time_model: TimeModel, *, anytime: bool = False) -> dict[str, TimeEstimate]:
    """N* and time to target of every arm that has runs; empty without a target."""
    if time_model.target is None:
        return {}
    return {arm: _estimate(time_model, arm, anytime) for arm in time_model.arms}


def _estimate(time_model: TimeModel, arm: str, anytime: bool) -> TimeEstimate:
    model, target = time_model.model, float(time_model.target or 0.0)
    budgets = set(time_model.runs.loc[time_model.runs["arm"] == arm, "budget"])
    unresolved = TimeEstimate(
        arm=arm,
        target=target,
        budgets=tuple(sorted(map(int, budgets))),
        reason=time_model.why_not,
        warnings=time_model.warnings,
    )
    if model is None:
        return unresolved
    i = time_model.arms.index(arm)
    with_slope = replace(
        unresolved,
        slope=float(model.beta[i]),
        slope_se=model.slope_se(i),
        slope_given=model.given,
    )
    if not time_model.resolved(arm):
        return replace(
            with_slope,
            reason=Caution.SLOPE_UNSURE.text,
            warnings=(*time_model.warnings, Caution.SLOPE_UNSURE),
        )
    log_steps = model.log_steps(i).value
    seconds, log_step = None, time_model.step[arm].values
    if len(log_step):
        seconds = math.exp(log_steps + float(log_step.mean()) - math.log(1e3))
    n_low, n_high = _exponentials(_log_steps_interval(time_model, arm, anytime))
    ms_low, ms_high = _exponentials(_log_ms_interval(time_model, arm, anytime))
    n_star, of_step = math.exp(log_steps), time_model.step_tokens.get(arm)
    extrapolated = time_model.extrapolated(arm)
    warnings = time_model.warnings
    if extrapolated:
        warnings = (*warnings, Caution.NOT_BRACKETED)
    return replace(
        with_slope,
        n_star=n_star,
        n_low=n_low,
        n_high=n_high,
        tokens=times(n_star, of_step),
        tokens_low=times(n_low, of_step),
        tokens_high=times(n_high, of_step),
        seconds=seconds,
        seconds_low=None if ms_low is None else ms_low / 1e3,
        seconds_high=None if ms_high is None else ms_high / 1e3,
        extrapolated=extrapolated,
        reason="",
        warnings=warnings,
    )


def times(steps: float | None, of_step: float | None) -> float | None:
    """The tokens of so many steps; None where either is not known."""
    return None if steps is None or of_step is None else steps * of_step


def _exponentials(interval: Interval | None) -> tuple[float, float] | tuple[None, None]:
    if interval is None:
        return None, None
    low, high = interval
    return math.exp(low), math.exp(high)


def _log_steps_interval(time_model: TimeModel, arm: str, anytime: bool) -> Interval | None:
    """The 95 % interval of log N*."""
    assert time_model.model is not None
    if anytime:
        return time_model.sequence((arm,), ALPHA, steps_only=True)[0]
    theta = time_model.model.theta_interval(time_model.arms.index(arm), ALPHA)
    low, high = theta or (-math.inf, math.inf)
    return time_model.model.x0 + low, time_model.model.x0 + high


def _log_ms_interval(time_model: TimeModel, arm: str, anytime: bool) -> Interval | None:
    """The 95 % interval of log milliseconds to the target."""
    assert time_model.model is not None
    if anytime:
        return time_model.sequence((arm,), ALPHA)[0]
    log_step = time_model.log_step(arm)
    if log_step is None:
        return None
    log_steps = time_model.model.log_steps(time_model.arms.index(arm))
    return total(log_steps, log_step).interval(ALPHA)


def time_effects(
    time_model: TimeModel, *, m: int, level: float, anytime: bool
) -> dict[str, Effect]:
    """log time to target against the baseline, Bonferroni over m planned arms.

    Only where both N* are resolved and bracketed."""
    if not time_model.arms:
        return {}
    pairs = [(arm, time_model.arms[0]) for arm in time_model.arms[1:]]
    effects = time_effects_of(time_model, pairs, m=m, level=level, anytime=anytime)
    return {arm: effect for (arm, _), effect in effects.items()}


def time_effects_of(
    time_model: TimeModel,
    pairs: Sequence[tuple[str, str]],
    *,
    m: int,
    level: float,
    anytime: bool,
) -> dict[tuple[str, str], Effect]:
    """The same of any pairs of arms, the first against the second.

    m: pairs that are planned; level: simultaneous over them; anytime: by sequences."""
    effects = {}
    for pair in pairs:
        log_ratio = time_model.log_ratio(*pair)
        if log_ratio is not None:
            effects[pair] = _time_effect(time_model, pair, log_ratio, (1 - level) / m, m, anytime)
    return effects


def _time_effect(
    time_model: TimeModel,
    pair: tuple[str, str],
    log_ratio: Estimate,
    alpha: float,
    m: int,
    anytime: bool,
) -> Effect:
    """One pair's at its share `alpha` of the error rate of m of them."""
    arm, baseline = pair
    steps = time_model.step[arm], time_model.step[baseline]
    r = correlation(*steps)
    df: float | None
    if anytime:

        def interval_at(a: float) -> Interval | None:
            return time_model.sequence((arm, baseline), a)[0]

        bounded, n_blocks = time_model.sequence((arm, baseline), alpha)
        low, high = bounded or (-math.inf, math.inf)
        p, p_attainable, df = smallest_alpha(interval_at), attainable(n_blocks), None
        method = Method.SLOPE_SEQUENCE
    else:
        low, high = log_ratio.interval(alpha)
        n_blocks = len(paired(*steps)[0])
        p, p_attainable, df = log_ratio.p, 0.0, log_ratio.df
        method = Method.SLOPE
    if not math.isfinite(log_ratio.se):
        return difference_only(log_ratio.value, n_blocks=n_blocks, correlation=r)
    return Effect(
        delta=log_ratio.value,
        low=low,
        high=high,
        p=min(1.0, m * p),
        p_attainable=min(1.0, m * p_attainable),
        df=df,
        se=log_ratio.se,
        method=method,
        n_blocks=n_blocks,
        correlation=r,
    )


def decompose(
    n_baseline: float, s_baseline: float, n_arm: float, s_arm: float
) -> tuple[float, float]:
    """(learning, systems) parts of n_arm * s_arm - n_baseline * s_baseline.

    n: steps, s: seconds per step, or both of tokens; at mid-points, so that they sum exactly."""
    learning = (s_arm + s_baseline) / 2 * (n_arm - n_baseline)
    return learning, (n_arm + n_baseline) / 2 * (s_arm - s_baseline)


def decompositions(
    time_model: TimeModel,
    estimates: Mapping[str, TimeEstimate],
    times_at: pd.DataFrame,
    budget: int | None,
    *,
    alpha: float = ALPHA,
    anytime: bool = False,
) -> dict[str, Decomposition]:
    """Learning and systems gain of every arm timed on the baseline's hardware.

    estimates: of every arm; times_at: timed runs at one budget; budget: that of the losses, None
    where arms share none; alpha, anytime: of an arm's interval of tokens to the target."""
    arms = list(time_model.step)
    baseline = arms[0]
    parts = {}
    for arm in arms[1:]:
        timed = len(time_model.step[arm].values) and len(time_model.step[baseline].values)
        if arm not in time_model.comparable or not timed:
            continue
        ratio = time_model.step_ratio(arm, baseline)
        steps = _steps_to_target(time_model, estimates, baseline, arm)
        if steps is not None and ratio != 1:
            told = _tokens_told(time_model, (arm, baseline), alpha, anytime=anytime)
            steps = replace(steps, is_learning_told=told)
        if steps is None:
            steps = _steps_that_were_run(times_at, budget, (baseline, arm), ratio)
        if steps is not None:
            parts[arm] = _decomposition(time_model, baseline, arm, steps, ratio)
    return parts


def _tokens_told(
    time_model: TimeModel, pair: tuple[str, str], alpha: float, *, anytime: bool
) -> bool:
    """Whether the tokens to the target of two arms are told apart."""
    assert time_model.model is not None
    if anytime:
        ends = time_model.sequence(pair, alpha, steps_only=True)[0]
    else:
        arm, baseline = map(time_model.arms.index, pair)
        ends = time_model.model.shift(arm, baseline).interval(alpha)
    if ends is None:
        return False
    moved = math.log(time_model.step_ratio(*pair))
    return ends[0] + moved > 0 or ends[1] + moved < 0


@dataclass(frozen=True, kw_only=True)
class _Steps:
    """The steps that an arm's time is compared at, and whether their difference is learning."""

    baseline: float
    arm: float
    resolved: bool
    note: str
    is_learning_told: bool | None = None


def _steps_to_target(
    time_model: TimeModel, estimates: Mapping[str, TimeEstimate], baseline: str, arm: str
) -> _Steps | None:
    n_stars = []
    for name in (baseline, arm):
        estimate = estimates.get(name)
        if estimate is None or estimate.n_star is None or estimate.extrapolated:
            return None
        n_stars.append(estimate.n_star)
    note = f"steps to reach {time_model.target:g}"
    return _Steps(baseline=n_stars[0], arm=n_stars[1], resolved=True, note=note)


def _steps_that_were_run(
    times_at: pd.DataFrame, budget: int | None, pair: tuple[str, str], ratio: float
) -> _Steps | None:
    """pair: baseline and arm; ratio: tokens of the arm's step over those of the baseline's."""
    n_steps = []
    for name in pair:
        steps = times_at.loc[times_at["arm"] == name, "steps"].dropna()
        if not len(steps):
            return None
        n_steps.append(float(budget or steps.mean()))
    differ = n_steps[0] != n_steps[1]
    if ratio != 1:  # schedules of as many tokens are of one length, those of as many steps are not
        differ = budget is None and not is_alike(n_steps[1] * ratio / n_steps[0])
    if differ:
        note = "at each arm's own steps, whatever loss they reach"
        return _Steps(baseline=n_steps[0], arm=n_steps[1], resolved=True, note=note)
    note = "at the steps that were run; what learning gained is not resolved in time"
    return _Steps(baseline=n_steps[0], arm=n_steps[1], resolved=False, note=note)


def _decomposition(
    time_model: TimeModel, baseline: str, arm: str, steps: _Steps, ratio: float
) -> Decomposition:
    """ratio: tokens of the arm's step over those of the baseline's, by whose step both count."""
    s_baseline, s_arm = _seconds_per_step(time_model, baseline), _seconds_per_step(time_model, arm)
    learning, systems = decompose(steps.baseline, s_baseline, steps.arm * ratio, s_arm / ratio)
    both = learning + systems if steps.resolved else systems
    time_baseline = steps.baseline * s_baseline
    return Decomposition(
        arm=arm,
        learning_s=learning if steps.resolved else None,
        systems_s=systems,
        total_s=both,
        learning_percent=100 * learning / time_baseline if steps.resolved else None,
        systems_percent=100 * systems / time_baseline,
        total_percent=100 * both / time_baseline,
        n_baseline=steps.baseline,
        n_arm=steps.arm,
        step_ms_baseline=s_baseline * 1e3,
        step_ms_arm=s_arm * 1e3,
        note=steps.note,
        step_ratio=ratio,
        is_learning_told=steps.is_learning_told,
    )


def _seconds_per_step(time_model: TimeModel, arm: str) -> float:
    return float(np.exp(time_model.step[arm].values.mean())) / 1e3
