"""What a difference in loss is worth in steps and seconds, by arms that differ in length alone.

Where NEW changes the number of steps, the other arms keep the baseline's; the arms with NEW's give
the slope: per block the mean over the pairs of lengths of the loss gained per log step. A contrast
of losses d is then worth N d / slope steps, with N the baseline's, to first order; in seconds the
same part of the baseline's training time, and the contrast of the times themselves. Half of alpha
pays for the slope, half for the contrast: the interval is the union over all slopes that the first
half admits, whose ends lie at the ends of the slope's interval.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from harness.run.plan import Plan
from reports.analysis.judges import Judge, Judged, Share, blocked, share
from reports.analysis.set_contrasts import Subset
from reports.stats.intervals import Estimate

OF_ALPHA = 0.5  # of alpha, to the slope


def of_one_length(runs: pd.DataFrame, plan: Plan, arms: Mapping[Subset, str]) -> dict[Subset, str]:
    """The arms that train as long as the baseline; of a foreign trainer, whose script says it.

    runs: those that count; arms: the name of every set of changes."""
    if not plan.foreign:
        return dict(arms)
    length = _lengths(runs)
    of_baseline = length.get(plan.baseline)
    return {s: name for s, name in arms.items() if length.get(name) == of_baseline}


def _lengths(runs: pd.DataFrame) -> dict[str, int]:
    """Steps of every arm whose finished runs all have as many."""
    done = runs[runs["status"] == "finished"]
    steps: dict[str, int] = {}
    for arm, budgets in done.groupby("arm")["budget"]:
        if budgets.nunique() == 1 and budgets.iloc[0] > 0:
            steps[str(arm)] = int(budgets.iloc[0])
    return steps


@dataclass(frozen=True, kw_only=True)
class Worth:
    """The slope and what it is held against."""

    slope: Estimate  # nats that a log step more gains
    steps: float  # of the baseline
    seconds: float  # of its training, nan where that is not known
    log_range: float  # how far its lengths lie apart

    @classmethod
    def of(cls, runs: pd.DataFrame, plan: Plan, arms: Mapping[Subset, str]) -> "Worth | None":
        """None where no two arms differ in length alone, or too few blocks have both.

        runs: those that count; arms: the name of every set of changes."""
        if not plan.foreign:
            return None
        length, same = _lengths(runs), of_one_length(runs, plan, arms)
        others = [s for s, name in arms.items() if name in length and s not in same]
        if not others or plan.baseline not in length:
            return None
        longer = min(others, key=len)
        table = runs[runs["status"] == "finished"].pivot_table(
            index="block", columns="arm", values="val_loss", aggfunc="mean"
        )
        slopes, ranges = [], []
        for s in others:
            if not longer <= s or s - longer not in same:
                continue
            one, other = same[s - longer], arms[s]
            if {one, other} <= {*table.columns} and one in length:
                log_ratio = math.log(length[other] / length[one])
                slopes.append((table[one] - table[other]) / log_ratio)
                ranges.append(abs(log_ratio))
        if not slopes:
            return None
        per_block = pd.concat(slopes, axis=1).dropna().mean(axis=1).to_numpy(float)
        if len(per_block) < 2:
            return None
        of_baseline = runs[(runs["arm"] == plan.baseline) & (runs["status"] == "finished")]
        return cls(
            slope=Estimate(
                value=float(per_block.mean()),
                se=float(per_block.std(ddof=1) / np.sqrt(len(per_block))),
                df=len(per_block) - 1.0,
            ),
            steps=float(length[plan.baseline]),
            seconds=float(of_baseline["train_time_s"].mean()),
            log_range=max(ranges),
        )

    def slopes(self, alpha: float) -> tuple[float, float] | None:
        """The ends of its interval at 1 - alpha times OF_ALPHA; None where it reaches zero."""
        low, high = self.slope.interval(alpha * OF_ALPHA)
        return (low, high) if low > 0 else None


def worth_judges(
    worth: Worth, runs: pd.DataFrame, arms: list[str], *, anytime: bool
) -> list[Judged]:
    """Steps and seconds that a loss is worth; the seconds with those that steps themselves take."""
    note = (
        "at equal steps, a loss converted to first order by the measured slope of "
        f"{worth.slope.value:.4g} nats per log step at {worth.steps:g} steps (extrapolated where "
        f"it is worth more than a factor of {math.exp(worth.log_range):.3g} in steps, further "
        "than the lengths that were run lie apart)"
    )
    judges = []
    for metric, unit, of_slope, of_time in (
        ("steps", "steps", worth.steps, 0.0),
        ("seconds", "s", worth.seconds, 1.0),
    ):
        if math.isfinite(of_slope):
            judge = _converted(worth, runs, arms, (of_slope, of_time), anytime=anytime)
            judges.append(Judged(metric=metric, unit=unit, judge=judge, note=note))
    return judges


def _converted(
    worth: Worth,
    runs: pd.DataFrame,
    arms: list[str],
    weights: tuple[float, float],
    *,
    anytime: bool,
) -> Judge | None:
    """Judges contrasts of a loss over the slope, plus a time; the union over its interval.

    weights: of the loss over the slope, of the training time."""
    of_slope, of_time = weights
    of_loss = blocked(runs, "val_loss", arms, anytime=anytime)

    def judged(slope: float, contrast: Mapping[str, float], alpha: float) -> Share:
        times = of_time * runs["train_time_s"] if of_time else 0.0
        converted = runs.assign(converted=of_slope / slope * runs["val_loss"] + times)
        judge = blocked(converted, "converted", arms, anytime=anytime)
        return share(math.nan) if judge is None else judge(contrast, alpha)

    if worth.slope.value <= 0 or of_loss is None:
        return None
    if of_time and blocked(runs, "train_time_s", arms, anytime=anytime) is None:
        return None

    def judge(contrast: Mapping[str, float], alpha: float) -> Share:
        is_far = abs(of_loss(contrast, alpha).value) > worth.slope.value * worth.log_range
        told = share(judged(worth.slope.value, contrast, alpha).value)
        slopes = worth.slopes(alpha)
        if slopes is not None and not anytime:
            ends = [judged(slope, contrast, alpha * (1 - OF_ALPHA)) for slope in slopes]
            lows = [end.low for end in ends if end.low is not None]
            highs = [end.high for end in ends if end.high is not None]
            if len(lows) == len(ends):
                told = share(told.value, min(lows), max(highs))
        return replace(told, is_extrapolated=is_far)

    return judge
