"""Time to target from losses and step times that are known: values by hand, or by scipy's regression and t."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from reports.analysis.attribution import time_judges
from reports.analysis.cautions import Caution
from reports.analysis.time_estimates import decompositions, time_effects, time_estimates
from reports.analysis.time_model import REACH, TimeModel
from reports.stats.contrasts import Sample
from reports.stats.loss_model import Slope, fit

ARMS = ("base", "arm")
TARGET = 3.28
NOISE = (0.0006, -0.0004, -0.0005, 0.0003, 0.0007, -0.0002, -0.0006, 0.0001)


def losses(
    effects: Sequence[float] = (0.0, -0.004),
    *,
    budgets: Sequence[int] = (2700, 3300),
    n: int = 4,
    slopes: Sequence[float] = (-0.19, -0.19),
) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    for arm, effect, slope in zip(ARMS, effects, slopes, strict=True):
        for budget in budgets:
            for i in range(n):
                noise = NOISE[(len(rows) * 3 + i) % len(NOISE)]
                loss = TARGET + effect + slope * math.log(budget / 3000) + noise
                rows.append({"arm": arm, "budget": budget, "val_loss": loss, "block": None})
    return pd.DataFrame(rows)


def model_of(
    runs: pd.DataFrame,
    *,
    step_ms: Mapping[str, Sequence[float]] | None = None,
    slope: Slope | None = None,
    target: float = TARGET,
    comparable: Sequence[str] = ARMS,
) -> TimeModel:
    fitted = fit(
        arm=np.array([ARMS.index(arm) for arm in runs["arm"]]),
        budget=runs["budget"].to_numpy(float),
        loss=runs["val_loss"].to_numpy(float),
        block=list(runs["block"]),
        target=target,
        slope=slope,
    )
    times = step_ms or {"base": (100.0, 102.0, 99.0), "arm": (90.0, 91.0, 93.0, 89.0)}
    step = {
        arm: Sample(values=np.log(np.asarray(ms, float)), blocks=(None,) * len(ms))
        for arm, ms in times.items()
    }
    return TimeModel(
        arms=ARMS,
        target=target,
        model=fitted,
        runs=runs,
        step=step,
        comparable=frozenset(comparable),
        why_not="",
        warnings=(),
    )


def satterthwaite(parts: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """(se, df) of a sum of independent estimates, each (se, df)."""
    variance = sum(se**2 for se, _ in parts)
    return math.sqrt(variance), variance**2 / sum(se**4 / df for se, df in parts)


# ---------------------------------------------------------------- intervals


@pytest.mark.parametrize("m", [1, 3, 8])
def test_the_interval_of_a_ratio_of_times_is_shared_among_the_planned_arms(m: int) -> None:
    """Welch's difference of log step times beside the shift in log steps, at 5 % / m."""
    time = model_of(losses())
    effect = time_effects(time, m=m, level=0.95, anytime=False)["arm"]
    assert time.model is not None
    shift = time.model.shift(1)
    x, y = time.step["arm"].values, time.step["base"].values
    welch = stats.ttest_ind(x, y, equal_var=False)
    step_se = math.sqrt(x.var(ddof=1) / len(x) + y.var(ddof=1) / len(y))
    se, df = satterthwaite([(shift.se, shift.df), (step_se, welch.df)])
    delta = shift.value + x.mean() - y.mean()
    assert (effect.delta, effect.se) == pytest.approx((delta, se))
    assert effect.df == pytest.approx(df)
    ends = stats.t.interval(1 - 0.05 / m, df, delta, se)
    assert (effect.low, effect.high) == pytest.approx(ends)
    assert effect.p == pytest.approx(min(1.0, m * 2 * stats.t.sf(abs(delta) / se, df)))


def test_what_a_sequence_could_show_at_all_is_shared_among_the_planned_arms() -> None:
    n = 12
    runs = losses(n=n)
    runs["block"] = [i % n for i in range(len(runs))]
    step_ms = {
        arm: [ms + NOISE[i % 8] * 1e3 for i in range(n)] for arm, ms in zip(ARMS, (100.0, 60.0))
    }
    blocked = model_of(runs, step_ms=step_ms)
    step = {arm: replace(of_arm, blocks=tuple(range(n))) for arm, of_arm in blocked.step.items()}
    time = replace(blocked, step=step)
    alone, of_three, of_many = (
        time_effects(time, m=m, level=0.95, anytime=True)["arm"] for m in (1, 3, 10**9)
    )
    assert 0 < alone.p_attainable < 1 / 3
    assert of_three.p_attainable == pytest.approx(3 * alone.p_attainable)
    assert of_many.p_attainable == 1.0
    always, once = (time_estimates(time, anytime=anytime)["arm"] for anytime in (True, False))
    assert always.n_star == once.n_star and always.seconds == once.seconds
    for low, value, high in (
        ((always.n_low, once.n_low), always.n_star, (once.n_high, always.n_high)),
        (
            (always.seconds_low, once.seconds_low),
            always.seconds,
            (once.seconds_high, always.seconds_high),
        ),
    ):
        ends = (*low, value, *high)
        assert None not in ends and list(ends) == sorted(ends) and len({*ends}) == 5


def test_the_time_of_an_arm_has_the_error_of_its_mean_step_time() -> None:
    time = model_of(losses())
    estimate = time_estimates(time)["arm"]
    assert time.model is not None and estimate.n_star is not None
    x = time.step["arm"].values
    steps = time.model.log_steps(1)
    se, df = satterthwaite([(steps.se, steps.df), (float(stats.sem(x)), len(x) - 1)])
    log_ms = steps.value + x.mean()
    low, high = np.exp(stats.t.interval(0.95, df, log_ms, se)) / 1e3
    assert estimate.seconds == pytest.approx(math.exp(log_ms) / 1e3)
    assert (estimate.seconds_low, estimate.seconds_high) == pytest.approx((low, high))
    geometric_mean_ms = (90 * 91 * 93 * 89) ** 0.25
    assert estimate.seconds == pytest.approx(estimate.n_star * geometric_mean_ms / 1e3)


def test_one_timed_run_gives_a_time_and_no_interval() -> None:
    time = model_of(losses(), step_ms={"base": (100.0, 102.0), "arm": (90.0,)})
    estimate = time_estimates(time)["arm"]
    assert estimate.seconds is not None
    assert (estimate.seconds_low, estimate.seconds_high) == (None, None)
    effect = time_effects(time, m=1, level=0.95, anytime=False)["arm"]
    assert (effect.low, effect.high) == (None, None)


@pytest.mark.parametrize("common", [True, False])
def test_the_steps_of_an_arm_with_a_slope_of_its_own_are_those_of_its_own_regression(
    common: bool,
) -> None:
    """Draper and Smith's inverse regression of this arm's 12 runs alone: 10 degrees of freedom."""
    slopes = (-0.19, -0.19 if common else -0.30)
    runs = losses((0.0, -0.001), budgets=(2700, 3000, 3300), slopes=slopes)
    time = model_of(runs)
    assert time.model is not None and time.model.common == common
    own = runs[runs["arm"] == "arm"]
    x, y = np.log(own["budget"].to_numpy(float)), own["val_loss"].to_numpy()
    line, n = stats.linregress(x, y), len(x)
    assert n == 12
    s = math.sqrt(((y - line.intercept - line.slope * x) ** 2).sum() / (n - 2))
    t, sxx = stats.t.isf(0.025, n - 2), ((x - x.mean()) ** 2).sum()
    g = t**2 * s**2 / (line.slope**2 * sxx)
    shift = (TARGET - y.mean()) / line.slope
    half = t * s / abs(line.slope) * math.sqrt((1 - g) / n + shift**2 / sxx)
    expected = np.exp(x.mean() + np.array([shift - half, shift + half]) / (1 - g))
    estimate = time_estimates(time)["arm"]
    same = (estimate.n_low, estimate.n_high) == pytest.approx(tuple(expected), rel=1e-6)
    assert same != common


def test_steps_to_target_are_those_of_the_average_block() -> None:
    """Blocks far apart and of unequal size: the mean over blocks, not over runs nor of the first one.

    By numpy's line through every arm's mean losses in every block, one slope a block."""
    rows = []
    for block, shift in ((0, 0.0), (1, 0.030), (2, -0.009)):
        for arm, effect in (("base", 0.0), ("arm", -0.004)):
            for budget in (2700, 3300) if block else (2700, 3000, 3300):
                for copy in range(3 if block == 0 else 1):
                    noise = NOISE[(len(rows) + copy) % len(NOISE)] / 10
                    loss = TARGET + effect + shift - 0.19 * math.log(budget / 3000) + noise
                    rows.append({"arm": arm, "budget": budget, "val_loss": loss, "block": block})
    runs = pd.DataFrame(rows)
    slopes, levels = [], {arm: [] for arm in ARMS}
    for _, in_block in runs.groupby("block"):
        means = in_block.groupby(["arm", "budget"])["val_loss"].mean()
        slope = np.mean([np.polyfit(np.log(means[arm].index), means[arm], 1)[0] for arm in ARMS])
        slopes.append(slope)
        for arm in ARMS:
            x = np.log(means[arm].index)
            levels[arm].append(means[arm].mean() - slope * x.to_numpy().mean())
    estimates = time_estimates(model_of(runs))
    x0 = np.log([2700, 3000, 3300]).mean()
    for name in ARMS:
        at_x0 = np.mean(
            [level + slope * x0 for level, slope in zip(levels[name], slopes, strict=True)]
        )
        expected = math.exp(x0 + (TARGET - at_x0) / np.mean(slopes))
        assert estimates[name].n_star == pytest.approx(expected, rel=1e-9)
    assert estimates["base"].n_star == pytest.approx(3000 * math.exp(0.007 / 0.19), rel=1e-3)


# ---------------------------------------------------------------- what is not answered


def test_a_loss_that_rises_with_the_steps_reaches_no_target() -> None:
    """Its line crosses the target, too, at a number of steps that does not exist."""
    time = model_of(losses(slopes=(-0.19, 0.19)))
    assert time.model is not None and time.model.theta_interval(1, 0.05) is not None
    estimate = time_estimates(time)["arm"]
    assert (estimate.n_star, estimate.seconds) == (None, None)
    assert estimate.reason == Caution.SLOPE_UNSURE.text
    assert time_effects(time, m=1, level=0.95, anytime=False) == {}


def test_times_of_other_hardware_are_not_compared() -> None:
    time = model_of(losses(), comparable=("base",))
    assert time_effects(time, m=1, level=0.95, anytime=False) == {}
    estimates = time_estimates(time)
    assert estimates["arm"].seconds is not None  # the arm's own time stands
    assert decompositions(time, estimates, timed_at(3000), 3000) == {}


@pytest.mark.parametrize(
    ("target", "extrapolated"),
    [(TARGET, False), (TARGET + 0.015, False), (TARGET + 0.03, True), (TARGET - 0.03, True)],
)
def test_a_target_that_the_budgets_do_not_bracket_is_extrapolated_on_either_side(
    target: float, extrapolated: bool
) -> None:
    """Mean losses reach from 3.262 (3300 steps) to 3.300 (2700)."""
    time = model_of(losses((0.0, 0.0)), target=target)
    for arm in ARMS:
        assert time.extrapolated(arm) == extrapolated
        assert time_estimates(time)[arm].extrapolated == extrapolated
    assert (time_effects(time, m=1, level=0.95, anytime=False) == {}) == extrapolated
    table = pd.DataFrame({"arm": ARMS, "block": 0, "train_time_s": 270.0, "status": "finished"})
    judged = time_judges(time, table, list(ARMS), anytime=False)
    unresolved = (
        "at equal steps (steps to target are not resolved for every arm), as differences of mean "
        "seconds, where the table of verdicts has ratios within blocks"
    )
    assert [(j.metric, j.note) for j in judged] == (
        [("seconds", unresolved)]
        if extrapolated
        else [("steps", "to the target"), ("seconds", "to the target")]
    )


@pytest.mark.parametrize(
    ("factor", "extrapolated"),
    [(REACH * 0.99, False), (REACH * 1.01, True), (0.99 / REACH, True), (1.01 / REACH, False)],
)
def test_a_slope_from_outside_carries_as_far_up_as_down(factor: float, extrapolated: bool) -> None:
    """N* at this factor of the one budget."""
    slope = Slope(per_step=0.19 / 3000, se=0.0)
    runs = losses((0.0, 0.0), budgets=(3000,))
    base = runs.loc[runs["arm"] == "base", "val_loss"].mean()
    time = model_of(runs, slope=slope, target=float(base) - 0.19 * math.log(factor))
    estimate = time_estimates(time)["base"]
    assert estimate.n_star == pytest.approx(3000 * factor)
    assert estimate.extrapolated == extrapolated


# ---------------------------------------------------------------- learning and systems


def timed_at(budget: int) -> pd.DataFrame:
    return pd.DataFrame([{"arm": arm, "steps": budget} for arm in ARMS for _ in range(3)])


def test_a_gain_is_what_learning_saves_in_steps_and_systems_in_milliseconds() -> None:
    """By hand: N* and seconds per step of both, at mid-points."""
    time = model_of(losses())
    estimates = time_estimates(time)
    part = decompositions(time, estimates, timed_at(3000), 3000)["arm"]
    n0, n1 = estimates["base"].n_star, estimates["arm"].n_star
    assert n0 is not None and n1 is not None
    s0, s1 = (100 * 102 * 99) ** (1 / 3) / 1e3, (90 * 91 * 93 * 89) ** 0.25 / 1e3
    assert part.learning_s == pytest.approx((s0 + s1) / 2 * (n1 - n0))
    assert part.systems_s == pytest.approx((n0 + n1) / 2 * (s1 - s0))
    assert part.total_s == pytest.approx(n1 * s1 - n0 * s0)
    assert part.total_percent == pytest.approx(100 * (n1 * s1 / (n0 * s0) - 1))
    assert (part.step_ms_baseline, part.step_ms_arm) == pytest.approx((1e3 * s0, 1e3 * s1))


@pytest.mark.parametrize("which", ARMS)
def test_no_learning_gain_is_told_from_an_extrapolation(which: str) -> None:
    """Neither the arm's nor the baseline's: what is left is the time of the steps that were run."""
    time = model_of(losses())
    estimates = time_estimates(time)
    estimates[which] = replace(estimates[which], extrapolated=True)
    part = decompositions(time, estimates, timed_at(3000), 3000)["arm"]
    assert (part.learning_s, part.learning_percent) == (None, None)
    assert (part.n_baseline, part.n_arm) == (3000, 3000)
    assert (
        part.total_s
        == part.systems_s
        == pytest.approx(3000 * (part.step_ms_arm - part.step_ms_baseline) / 1e3)
    )
