"""The curves of an arm's runs brought together: mean, lowest and highest loss at every step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from reports.figures.base import AxisScale, path_of
from reports.inputs.recorded import TOKENS
from reports.stats.digits import kept

MAX_POINTS = 60  # per drawn line: what 700 px can show; the table behind keeps every point
# Share of the steps; the vertical axis is fitted to what comes after: the first drop is steep.
BURN_IN = 0.25


@dataclass(frozen=True, kw_only=True)
class Course:
    """One run's validations: its steps, the training clock at each in seconds, and the losses.

    Where steps are no unit, the tokens that it had read.
    """

    steps: np.ndarray
    times: np.ndarray
    losses: np.ndarray
    tokens: np.ndarray | None = None  # where a step is no unit


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """One arm's curves on common steps: per step the mean and extreme losses and the mean time."""

    arm: str
    steps: np.ndarray
    time_s: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    runs: dict[str, Course]  # by run_id
    tokens: np.ndarray | None = None  # where a step is no unit

    @cached_property
    def rows(self) -> Sequence[tuple[Any, ...]]:
        """The points of the mean, as the page keeps them; several figures have the same."""
        rows: list[tuple[Any, ...]] = []
        for step, time, *losses in zip(self.steps, self.time_s, self.mean, self.low, self.high):
            rounded = [kept(loss, 6) for loss in losses]
            rows.append((self.arm, int(step), kept(time, 4), *rounded, len(self.runs)))
        if self.tokens is not None:
            rows = [(*row, kept(n, 0)) for row, n in zip(rows, self.tokens, strict=True)]
        return rows


def finished_at(runs: pd.DataFrame, budget: int | None) -> pd.DataFrame:
    """The finished runs at the budget (None: each arm's longest), those of role `loss` if any."""
    finished = runs[runs["status"] == "finished"]
    if not len(finished):
        return finished
    if (finished["role"] == "loss").any():
        finished = finished[finished["role"] == "loss"]
    if budget:
        return finished[finished["budget"] == budget]
    longest = finished.groupby("arm")["budget"].transform("max")
    return finished[finished["budget"] == longest]


def bundles(
    curves: pd.DataFrame,
    runs: pd.DataFrame,
    arms: Sequence[str],
    budget: int | None = None,
    step_tokens: Mapping[str, float] | None = None,
) -> dict[str, Bundle]:
    """The curves of finished runs by arm, of `arms`, at the budget (None: each arm's longest).

    step_tokens: arm -> tokens of a step, where that is no unit.
    """
    counted = set(finished_at(runs, budget)["run_id"])
    arm_of = dict(zip(curves["run_id"], curves["arm"]))
    steps = curves["step"].to_numpy(float)
    times = curves["train_time_s"].to_numpy(float)
    losses = curves["val_loss"].to_numpy(float)
    read = curves[TOKENS].to_numpy(float) if TOKENS in curves else np.full(len(curves), np.nan)
    of_arms: dict[str, dict[str, Course]] = {}
    for run_id, at in curves.groupby("run_id", sort=False).indices.items():
        if run_id in counted:
            arm = str(arm_of[run_id])
            of_arms.setdefault(arm, {})[str(run_id)] = Course(
                steps=steps[at],
                times=times[at],
                losses=losses[at],
                tokens=tokens_read(steps[at], read[at], (step_tokens or {}).get(arm)),
            )
    return {arm: bundle(arm, of_arms[arm]) for arm in arms if arm in of_arms}


def tokens_read(steps: np.ndarray, read: np.ndarray, of_step: float | None) -> np.ndarray | None:
    """The tokens at a run's validations: as it recorded them, or where each step reads as many.

    read: nan where none were recorded. of_step: tokens of a step; None where steps are the unit.
    """
    if of_step is None:
        return None
    return read if np.isfinite(read).all() else of_step * steps


def bundle(arm: str, runs: Mapping[str, Course]) -> Bundle:
    """The runs of an arm on the steps at which any of them has a loss.

    A run without a loss at one of them is left out of that step.
    """
    measured = [run.steps[np.isfinite(run.losses)] for run in runs.values()]
    steps = np.unique(np.concatenate(measured))
    times, losses = np.full((2, len(runs), len(steps)), np.nan)
    for i, run in enumerate(runs.values()):
        there = np.isin(run.steps, steps)
        places = np.searchsorted(steps, run.steps[there])
        times[i, places] = run.times[there]
        losses[i, places] = run.losses[there]
    return Bundle(
        arm=arm,
        steps=steps,
        time_s=column_means(times),
        mean=column_means(losses),
        low=np.nanmin(losses, axis=0),
        high=np.nanmax(losses, axis=0),
        runs=dict(runs),
        tokens=tokens_at(steps, runs),
    )


def tokens_at(steps: np.ndarray, runs: Mapping[str, Course]) -> np.ndarray | None:
    """The tokens at these steps of an arm's runs, which read alike."""
    read: dict[float, float] = {}
    for run in runs.values():
        if run.tokens is None:
            return None
        read |= dict(zip(run.steps, run.tokens))
    return np.array([read[step] for step in steps])


def column_means(table: np.ndarray) -> np.ndarray:
    """Means over what is known in each column, nan where nothing is."""
    is_finite = np.isfinite(table)
    n = is_finite.sum(axis=0)
    sums = np.where(is_finite, table, 0.0).sum(axis=0)
    return np.where(n > 0, sums / np.maximum(n, 1), np.nan)


def thin(n: int) -> np.ndarray:
    """At most MAX_POINTS indices of n, the first and the last among them."""
    if not n:
        return np.array([], int)
    places = np.linspace(0, n - 1, min(n, MAX_POINTS))
    return np.unique(places.round().astype(int))


def is_late(steps: np.ndarray) -> np.ndarray:
    """Which steps come after the first drop."""
    return steps >= BURN_IN * steps[-1]


def points_of(
    xs: np.ndarray, ys: np.ndarray, x: AxisScale, y: AxisScale
) -> list[tuple[float, float]]:
    return [(x(a), y(b)) for a, b in zip(xs, ys)]


def band(xs: np.ndarray, low: np.ndarray, high: np.ndarray, x: AxisScale, y: AxisScale) -> str:
    """The area between two lines, over the points where both are known; '' where none is.

    xs, low, high: the lines' points, in the units of the scales x and y.
    """
    there = np.isfinite(low) & np.isfinite(high)
    if not there.any():
        return ""
    forth = points_of(xs[there], high[there], x, y)
    back = points_of(xs[there][::-1], low[there][::-1], x, y)
    return f'<path class="band" d="{path_of(forth + back)}Z"/>'
