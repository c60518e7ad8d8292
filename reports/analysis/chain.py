"""A chain of arms, each against its parent: what is resolved, learning apart from systems.

Time at equal loss is steps at equal loss times milliseconds a step. An arm at the steps it ran
reaches another loss than its parent; the era's slope turns that into steps.
"""

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from reports.analysis.machines import environment_change
from reports.inputs.history import ArmFigures, Link
from reports.inputs.noise import BenchmarkNoise
from reports.stats.contrasts import Sample, analyse
from reports.stats.node_noise import with_nodes
from reports.stats.simultaneous import Array

LEVEL = 0.95  # of one row's interval; a chain of k rows has k chances to err
POWER_Z = float(stats.norm.isf(0.025) + stats.norm.isf(0.2))  # 80 % power at 95 %
GPUS = 8  # of a node, where no log says how many
PRICE_PER_GPU_HOUR = 2.5  # US dollars, of a rented H100 in 2026
COMPILE_MINUTES = 7  # of an arm's first start, by the benchmark's README; later ones find kernels


class ChainVerdict(enum.StrEnum):
    """What the runs say of a claimed gain."""

    RESOLVED = "resolved"
    UNRESOLVED = "unresolved"
    CONTRADICTED = "contradicted"
    NOT_COMPARABLE = "not comparable"


UNRESOLVED = ChainVerdict.UNRESOLVED
STEPS_WORDS = {"resolved": "fewer", "contradicted": "more", "unresolved": "not told apart"}
TIME_WORDS = {"resolved": "shorter", "contradicted": "longer", "unresolved": "not told apart"}


@dataclass(frozen=True, kw_only=True)
class Gain:
    """A log ratio to the parent, below zero where it is a gain; no interval without enough runs."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def verdict(self) -> ChainVerdict:
        """By the side of zero on which the interval lies."""
        if self.low is None or self.high is None or self.low <= 0 <= self.high:
            return ChainVerdict.UNRESOLVED
        return ChainVerdict.RESOLVED if self.high < 0 else ChainVerdict.CONTRADICTED


@dataclass(frozen=True, kw_only=True)
class Settling:
    """What would settle an unresolved row: runs of both arms in turn on one node."""

    runs: int  # of both arms together
    gpu_hours: float  # of training
    compiling: float  # GPU-hours of both arms' first starts
    price: float  # US dollars, of both


@dataclass(frozen=True, kw_only=True)
class ChainRow:
    """One link: an arm against its parent."""

    link: Link
    arm: ArmFigures | None
    parent: ArmFigures | None
    loss: Gain | None = None  # nats, arm minus parent
    time_s: Gain | None = None  # seconds of the runs as they were made
    learning: Gain | None = None  # log steps at equal loss
    systems: Gain | None = None  # log milliseconds a step
    total: Gain | None = None  # log time at equal loss
    verdict: ChainVerdict = ChainVerdict.NOT_COMPARABLE
    why: str = ""
    environment: str | None = None  # what differs, in words
    settling: Settling | None = None


def chain_rows(
    links: Sequence[Link], arms: Mapping[str, ArmFigures], noise: BenchmarkNoise
) -> list[ChainRow]:
    """Every link of a chain, in order."""
    return [_row(link, arms, noise) for link in links]


def _row(link: Link, arms: Mapping[str, ArmFigures], noise: BenchmarkNoise) -> ChainRow:
    arm = arms.get(link.arm) if link.arm else None
    parent = arms.get(link.parent) if link.parent else None
    row = ChainRow(link=link, arm=arm, parent=parent)
    if arm is None or parent is None:
        missing = "the record" if arm is None else "its predecessor"
        return replace(row, why=f"no log of {missing}")
    if arm is parent:
        return replace(row, why="the same program as before")
    for figures in (arm, parent):
        if figures.n_diverged:
            of_all = f"{figures.n_diverged} of {figures.n + figures.n_diverged}"
            return replace(row, why=f"{of_all} runs of {figures.name} diverged")
    row = replace(row, loss=_difference(arm.losses, parent.losses))
    if link.by_steps:  # a track that counts steps alone: steps at equal loss are the whole gain
        return _with_gain(row, arm, parent, noise)
    machines = _machines_differ(arm, parent)
    if machines is not None:
        return replace(row, why=machines)
    if not len(arm.log_times) or not len(parent.log_times):
        return replace(row, why="no times in the logs")
    return _timed(row, arm, parent, noise)


def _timed(row: ChainRow, arm: ArmFigures, parent: ArmFigures, noise: BenchmarkNoise) -> ChainRow:
    """Of a track that counts time: steps at equal loss, and the milliseconds of one."""
    time = _across_nodes(arm.log_times, parent.log_times, noise)
    reference = math.exp(float(parent.log_times.mean()))
    seconds = Gain(
        value=reference * math.expm1(time.value),
        low=None if time.low is None else reference * math.expm1(time.low),
        high=None if time.high is None else reference * math.expm1(time.high),
    )
    systems = _across_nodes(arm.log_step_ms, parent.log_step_ms, noise)
    return _with_gain(replace(row, time_s=seconds, systems=systems), arm, parent, noise)


def _with_gain(
    row: ChainRow, arm: ArmFigures, parent: ArmFigures, noise: BenchmarkNoise
) -> ChainRow:
    """With steps at equal loss, the gain of all that the row has, and what that comes to."""
    assert row.loss is not None  # of two arms that are compared
    learning = _learning(arm, parent, row.loss, noise)
    total = learning if row.systems is None else _sum(learning, row.systems)
    verdict = total.verdict
    return replace(
        row,
        learning=learning,
        total=total,
        verdict=verdict,
        why=_why(verdict, learning, row.systems, min(arm.n, parent.n)),
        environment=environment_change(arm.environment, parent.environment),
        settling=_settling(arm, parent, total, noise) if verdict is UNRESOLVED else None,
    )


def _difference(a: Array, b: Array) -> Gain:
    """a minus b as independent samples: Welch's interval, widened where runs are few."""
    effect = analyse({"arm": _sample(a)}, _sample(b), level=LEVEL)["arm"]
    return Gain(value=effect.delta, low=effect.low, high=effect.high)


def _across_nodes(a: Array, b: Array, noise: BenchmarkNoise) -> Gain:
    """The same of log times, with the noise of two unknown nodes."""
    effect = analyse({"arm": _sample(a)}, _sample(b), level=LEVEL)["arm"]
    effect = with_nodes(effect, noise.nodes, alpha=1 - LEVEL, m=1)
    return Gain(value=effect.delta, low=effect.low, high=effect.high)


def _sample(values: Array) -> Sample:
    return Sample(values=values, blocks=(None,) * len(values))


def _learning(arm: ArmFigures, parent: ArmFigures, loss: Gain, noise: BenchmarkNoise) -> Gain:
    """log of steps at the parent's loss over the parent's steps.

    The slope's own error goes into the half width in proportion to what it carries."""
    slope = noise.slope.nats_per_log_step
    steps = math.log(arm.steps / parent.steps)
    value = steps + loss.value / slope
    if loss.low is None or loss.high is None:
        return Gain(value=value)
    half = (loss.high - loss.low) / 2 / slope
    of_slope = 1.96 * noise.slope.se / slope * abs(loss.value) / slope
    half = math.hypot(half, of_slope)
    return Gain(value=value, low=value - half, high=value + half)


def _sum(a: Gain, b: Gain) -> Gain:
    """Of independent parts: half widths add in squares."""
    value = a.value + b.value
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return Gain(value=value)
    half = math.hypot((a.high - a.low) / 2, (b.high - b.low) / 2)
    return Gain(value=value, low=value - half, high=value + half)


def _machines_differ(arm: ArmFigures, parent: ArmFigures) -> str | None:
    if arm.n_gpus and parent.n_gpus and arm.n_gpus != parent.n_gpus:
        return f"other hardware: {arm.n_gpus} GPUs against {parent.n_gpus}"
    if arm.gpu and parent.gpu and arm.gpu != parent.gpu:
        return f"other hardware: {arm.gpu} against {parent.gpu}"
    return None


def _why(verdict: ChainVerdict, learning: Gain, systems: Gain | None, n: int) -> str:
    if learning.low is None:
        return f"too few runs for an interval (n = {n} in the smaller arm)"
    reasons = [f"steps at equal loss: {STEPS_WORDS[learning.verdict]}"]
    if systems is not None:
        reasons.append(f"step time: {TIME_WORDS[systems.verdict]}")
    if verdict is ChainVerdict.UNRESOLVED and systems is not None:
        reasons.append("the node is unknown")
    return "; ".join(reasons)


def _settling(
    arm: ArmFigures, parent: ArmFigures, gain: Gain, noise: BenchmarkNoise
) -> Settling | None:
    """Runs that tell the gain, or loss, as it was measured, from zero.

    In blocks on one node, with 80 % power."""
    if gain.value == 0:
        return None
    sd = noise.era_of(arm.track, arm.date).sd / noise.slope.nats_per_log_step
    n = max(3, math.ceil(2 * (POWER_Z * sd / gain.value) ** 2) + 1)
    if len(arm.log_times) and len(parent.log_times):
        seconds = float(np.exp(arm.log_times).mean() + np.exp(parent.log_times).mean())
    else:
        return Settling(runs=2 * n, gpu_hours=math.nan, compiling=math.nan, price=math.nan)
    n_gpus = max(arm.n_gpus, parent.n_gpus) or GPUS
    hours = n * seconds * n_gpus / 3600
    compiling = 2 * COMPILE_MINUTES / 60 * n_gpus
    price = (hours + compiling) * PRICE_PER_GPU_HOUR
    return Settling(runs=2 * n, gpu_hours=hours, compiling=compiling, price=price)
