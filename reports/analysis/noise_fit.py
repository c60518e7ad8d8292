"""The constants of noise from runs as figures: losses by era, the slope of steps, the nodes."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from reports.inputs.noise import TRACK, BenchmarkNoise, EraNoise, HistorySlope
from reports.stats.moderated import Prior, fitted_prior
from reports.stats.node_noise import NodeNoise, between_nodes
from reports.stats.simultaneous import Array
from reports.stats.slope import StepPair, pooled_slope

FiguresOfRun = Mapping[str, str]  # a run, as HISTORY_KEYS names its figures
OF_MACHINE = ("gpu", "n_gpus", "driver", "cuda", "torch")
NEAR = 1.5  # the longer schedule over the shorter one: beyond, loss is no line in log steps
KEPT_DIGITS = 4  # of what is kept
FEWEST_RUNS = 3  # of a group that tells its own noise


@dataclass(frozen=True, kw_only=True)
class FittedPair:
    """Two arms of one recipe that differ in steps."""

    shorter: str
    longer: str
    date: str  # of the later one
    era: str
    pair: StepPair


@dataclass(frozen=True, kw_only=True)
class NoiseFit:
    """What the runs say, and the pairs behind its slope."""

    noise: BenchmarkNoise
    pairs: tuple[FittedPair, ...]


def fit_noise(
    rows: Sequence[FiguresOfRun], was: BenchmarkNoise, *, slope_until: str, date: str, source: str
) -> NoiseFit:
    """The constants of one track's runs, in the eras of those that hold now.

    slope_until: the last date of the pairs that make the slope. date, source: kept as they are.
    Raises ValueError where there is nothing to fit one of them from."""
    for row in rows:
        if not row["date"]:
            raise ValueError(
                f"{row['arm']}: no date in its folder's name (2026-01-31_name): no era"
            )
    eras = _eras(rows, was)
    pairs = _pairs(rows, replace(was, eras=eras))
    early = [fitted for fitted in pairs if fitted.date <= slope_until]
    late = [fitted for fitted in pairs if fitted.date > slope_until]
    if not early:
        raise ValueError(f"no program ran at two lengths up to {slope_until}: no slope")
    by_era = []
    for era in eras:
        of_era = [fitted for fitted in pairs if fitted.era == era.name]
        if of_era:
            by_era.append(_slope(of_era, era.name))
    noise = BenchmarkNoise(
        date=date,
        source=source,
        eras=tuple(_rounded(era) for era in eras),
        slope=_slope(early),
        slope_until=slope_until,
        slope_later=_slope(late) if late else None,
        slope_by_era=tuple(by_era),
        nodes=_nodes(rows),
        of_records=was.of_records,
        slope_of_records=was.slope_of_records,
    )
    return NoiseFit(noise=noise, pairs=pairs)


def _rounded(era: EraNoise) -> EraNoise:
    return replace(era, sd=round(era.sd, KEPT_DIGITS + 1))


def _slope(fitted: Iterable[FittedPair], name: str = "") -> HistorySlope:
    pairs = [one.pair for one in fitted]
    pooled = pooled_slope(pairs)
    return HistorySlope(
        nats_per_log_step=round(pooled.value, KEPT_DIGITS),
        se=round(pooled.se, KEPT_DIGITS),
        n_pairs=len(pairs),
        name=name,
    )


def _eras(rows: Sequence[FiguresOfRun], was: BenchmarkNoise) -> tuple[EraNoise, ...]:
    """The eras of which there are runs: the pooled sd within their arms."""
    of_era: dict[str, list[FiguresOfRun]] = defaultdict(list)
    for row in rows:
        of_era[was.era_of(TRACK, row["date"]).name].append(row)
    fitted = []
    for era in was.eras:
        runs = of_era.get(era.name, [])
        groups = groups_alike(runs)
        variance, df = _pooled_variance(groups)
        if df and variance > 0:
            measured = replace(era, sd=math.sqrt(variance), df=df, n_runs=len(runs))
            fitted.append(_with_prior(measured, prior_of_groups(groups)))
    if not fitted:
        raise ValueError("no arm has two runs of one program whose losses differ: no noise")
    return tuple(fitted)


def groups_alike(rows: Iterable[FiguresOfRun]) -> list[Array]:
    """Final losses of the runs of one arm, program and machine, for each of those."""
    groups: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for row in rows:
        key = (row["arm"], row["program"], row["steps"], *(row[name] for name in OF_MACHINE))
        groups[key].append(float(row["val_loss"]))
    return [np.array(losses) for losses in groups.values()]


def _pooled_variance(groups: Iterable[Array]) -> tuple[float, int]:
    """(the pooled variance of losses within groups, its df)."""
    squares, df = 0.0, 0
    for losses in groups:
        squares += float(np.var(losses)) * len(losses)
        df += len(losses) - 1
    return (squares / df if df else math.nan), df


def prior_of_groups(groups: Iterable[Array]) -> Prior | None:
    """What is known of the noise of one more group of runs; None where too few tell theirs."""
    telling = [losses for losses in groups if len(losses) >= FEWEST_RUNS and np.ptp(losses) > 0]
    variances = np.array([losses.var(ddof=1) for losses in telling])
    return fitted_prior(variances, np.array([len(losses) - 1.0 for losses in telling]))


def _with_prior(era: EraNoise, prior: Prior | None) -> EraNoise:
    if prior is None:
        return replace(era, prior_sd=None, prior_df=None)
    sd, df = round(prior.sd, KEPT_DIGITS + 1), round(prior.df, 1)
    return replace(era, prior_sd=sd, prior_df=df)


def _pairs(rows: Sequence[FiguresOfRun], noise: BenchmarkNoise) -> tuple[FittedPair, ...]:
    """Successive lengths of one recipe that are near each other, by date.

    A length's runs are one sample, whichever arms they are in."""
    lengths: dict[str, dict[int, list[FiguresOfRun]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row["recipe"]:
            lengths[row["recipe"]][int(row["steps"])].append(row)
    fitted = []
    for of_length in lengths.values():
        for shorter, longer in pairwise(sorted(of_length)):
            if longer <= NEAR * shorter:
                fitted.append(_pair(of_length[shorter], of_length[longer], noise))
    return tuple(sorted(fitted, key=lambda one: (one.date, one.shorter)))


def _pair(
    shorter: Sequence[FiguresOfRun], longer: Sequence[FiguresOfRun], noise: BenchmarkNoise
) -> FittedPair:
    means, variance = [], 0.0
    for rows in (shorter, longer):
        means.append(float(np.mean([float(row["val_loss"]) for row in rows])))
        variance += noise.era_of(TRACK, rows[0]["date"]).sd ** 2 / len(rows)
    date = max(row["date"] for row in (*shorter, *longer))
    pair = StepPair(
        log_steps=math.log(int(longer[0]["steps"]) / int(shorter[0]["steps"])),
        gained=means[0] - means[1],
        se=math.sqrt(variance),
    )
    return FittedPair(
        shorter=shorter[0]["arm"],
        longer=longer[0]["arm"],
        date=date,
        era=noise.era_of(TRACK, date).name,
        pair=pair,
    )


def _nodes(rows: Sequence[FiguresOfRun]) -> NodeNoise:
    """One program on one kind of machine and build of torch, under other folders or drivers."""
    programs: dict[tuple[str, ...], dict[tuple[str, str], list[float]]] = {}
    for row in rows:
        if not row["program"] or not row["train_time_s"]:
            continue
        alike = (*(row[name] for name in ("program", "steps", "gpu", "n_gpus", "cuda", "torch")),)
        node = (_folder(row["arm"]), row["driver"])
        nodes = programs.setdefault(alike, defaultdict(list))
        nodes[node].append(math.log(float(row["train_time_s"])))
    fit = between_nodes([_arrays(nodes) for nodes in programs.values()])
    return replace(fit, sd=round(fit.sd, KEPT_DIGITS), largest=round(fit.largest, KEPT_DIGITS))


def _arrays(nodes: Mapping[tuple[str, str], Sequence[float]]) -> list[Array]:
    return [np.array(times) for times in nodes.values()]


def _folder(arm: str) -> str:
    return arm.partition("/")[0].partition(" (")[0]
