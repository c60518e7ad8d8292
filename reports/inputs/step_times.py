"""How long single steps took: a run's distribution as quantiles, and the mixture of many runs.

A run's quantile function is linear between LEVELS, so an arm's distribution is the mean of its
runs' distribution functions, weighted with their numbers of steps. Where a log has no single steps
(imported ones, runs of an older harness), the means between two validations stand for them:
narrower than steps, and said so where they are shown. Milliseconds throughout.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from harness.run.metrics import Validation

LEVELS = (0.0, 1.0, *(float(q) for q in range(5, 100, 5)), 99.0, 100.0)  # percent
DIGITS = 3  # decimals of a time in ms


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """`n` steps (stretches, where not `single`) and quantiles of their times at LEVELS, in ms."""

    n: int
    quantiles: tuple[float, ...]
    single: bool = True


def of_steps(times_ms: Sequence[float], *, single: bool = True) -> StepTimes | None:
    """None without a finite time above zero."""
    times = np.array(times_ms, float)
    times = np.sort(times[np.isfinite(times) & (times > 0)])
    if not len(times):
        return None
    places = np.array(LEVELS) / 100 * (len(times) - 1)
    quantiles = np.interp(places, np.arange(len(times)), times).round(DIGITS)
    return StepTimes(n=len(times), quantiles=tuple(quantiles.tolist()), single=single)


def of_points(points: Iterable[Validation]) -> StepTimes | None:
    """The single steps that the points of a curve list; None where they list none."""
    times = []
    for point in points:
        times += [ms for ms in point.step_times_ms or () if ms is not None]
    return of_steps(times)


def of_stretches(curves: pd.DataFrame, *, skip_first: bool) -> dict[str, StepTimes]:
    """run_id -> mean times per step between two validations.

    skip_first: the first stretch holds steps that the clock did not count (protocol skip10).
    """
    per_run = curves.groupby("run_id", sort=False)
    ms = 1e3 * per_run["train_time_s"].diff() / per_run["step"].diff()
    good = ms[per_run.cumcount() > int(skip_first)]
    of_runs = {}
    for run_id, stretches in good.groupby(curves["run_id"], sort=False):
        times = of_steps(stretches.tolist(), single=False)
        if times is not None:
            of_runs[str(run_id)] = times
    return of_runs


def shares_below(runs: Sequence[StepTimes], at_ms: np.ndarray) -> np.ndarray:
    """The share of all the runs' steps at or below each time."""
    parts = np.array(LEVELS) / 100
    weight = np.array([r.n for r in runs], float)
    below = [np.interp(at_ms, r.quantiles, parts, left=0.0, right=1.0) for r in runs]
    return np.asarray(weight @ np.array(below) / weight.sum())


def percentiles(runs: Sequence[StepTimes], levels: Sequence[float]) -> list[float]:
    """Percentiles of the mixture of the runs' steps, ms."""
    grid = np.unique(np.concatenate([r.quantiles for r in runs]))
    shares = shares_below(runs, grid)
    times: list[float] = np.interp(np.array(levels) / 100, shares, grid).tolist()
    return times
