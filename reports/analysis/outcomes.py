"""What became of an arm's runs, and how much the baseline's losses differ by chance."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from reports.analysis import samples
from reports.analysis.machines import columns_of
from reports.analysis.types import ArmOutcomes, NoiseFloor
from reports.inputs.experiment import Experiment
from reports.stats.intervals import Interval
from reports.stats.outcomes import exact_rate
from reports.stats.sequential import rate_sequence
from reports.stats.simultaneous import Array

# taken from the timed runs, every other measurement from those whose losses are compared
OF_TIMED_RUNS = ("step_ms", "step_ms_median", "step_ms_p95", "train_time_s", "tokens_per_s", "mfu")


def arm_outcomes(
    experiment: Experiment, losses: pd.DataFrame, times: pd.DataFrame, arm: str, *, anytime: bool
) -> ArmOutcomes:
    """One arm's counts and means; losses and times: the runs that are compared.

    anytime: intervals hold at every look.
    """
    planned, stale = columns_of(experiment.runs, arm, "status", "stale")
    is_outcome, is_pending = np.isin(planned, samples.OUTCOMES), np.isin(planned, samples.PENDING)
    n_stale = 0
    if not experiment.accept_stale:
        n_stale = int((stale.astype(bool) & is_outcome).sum())
    (ended,) = columns_of(losses, arm, "status")
    n, n_diverged = len(ended), int((ended == "diverged").sum())
    diverged_rate, diverged_low, diverged_high = None, None, None
    if n:
        diverged_rate = n_diverged / n
        diverged_low, diverged_high = _rate_interval(n_diverged, n, anytime)
    values = _measured(losses, times, arm)
    mean, sd = _means(values)
    return ArmOutcomes(
        arm=arm,
        n_finished=int((ended == "finished").sum()),
        n_diverged=n_diverged,
        n_failed=int((~is_outcome & ~is_pending).sum()),
        n_pending=int(is_pending.sum()),
        n_stale=n_stale,
        diverged_rate=diverged_rate,
        diverged_low=diverged_low,
        diverged_high=diverged_high,
        values=values,
        mean=mean,
        sd=sd,
        outliers=samples.outliers(losses, arm),
    )


def _rate_interval(count: int, n: int, anytime: bool) -> Interval:
    if anytime:
        return rate_sequence(count, n, 0.05)
    return exact_rate(count, n)


def _measured(losses: pd.DataFrame, times: pd.DataFrame, arm: str) -> dict[str, tuple[float, ...]]:
    """Column of runs -> what the arm's finished ones measured, without columns that none did."""
    values = {}
    of_losses, of_times = _rows_of_finished(losses, arm), _rows_of_finished(times, arm)
    for column in map(str, losses.columns[losses.dtypes == "float64"]):
        measured = losses[column].to_numpy()[of_losses]
        if column in OF_TIMED_RUNS:
            measured = times[column].to_numpy()[of_times]
        measured = measured[~np.isnan(measured)]
        if len(measured):
            values[column] = tuple(measured.tolist())
    return values


def _rows_of_finished(runs: pd.DataFrame, arm: str) -> NDArray[np.intp]:
    """The rows of an arm's finished runs."""
    is_finished = runs["status"].to_numpy() == "finished"
    return np.flatnonzero(is_finished & (runs["arm"].to_numpy() == arm))


def _means(values: Mapping[str, Sequence[float]]) -> tuple[dict[str, float], dict[str, float]]:
    """(metric -> mean, metric -> sd, absent for one value)."""
    mean: dict[str, float] = {}
    sd: dict[str, float] = {}
    for metric, measured in values.items():
        mean[metric], spread = samples.mean_sd(np.array(measured))
        if spread is not None:
            sd[metric] = spread
    return mean, sd


def noise_floor(values: Array, level: float = 0.95, *, anytime: bool = False) -> NoiseFloor:
    """sd of the baseline's losses with its chi square interval.

    The interval holds for a planned number of runs only."""
    n = len(values)
    _, sd = samples.mean_sd(values)
    if sd is None or anytime:
        return NoiseFloor(n=n, sd=sd, low=None, high=None)
    low = sd * math.sqrt((n - 1) / stats.chi2.ppf((1 + level) / 2, n - 1))
    high = sd * math.sqrt((n - 1) / stats.chi2.ppf((1 - level) / 2, n - 1))
    return NoiseFloor(n=n, sd=sd, low=low, high=high)
