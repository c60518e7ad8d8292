"""What a plan may assume before its runs are in: noise, slope and step time.

Of the nearest runs there are, else as published."""

import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from harness.run.document import Document
from harness.run.guarded import experiments_in
from harness.run.plan import Plan
from harness.run.plan_file import read_plan_file
from harness.run.plural import plural
from harness.run.results import read_result
from reports.analysis import samples
from reports.analysis.prior import sd_beside_blocks
from reports.analysis.time_estimates import time_estimates
from reports.analysis.time_model import TimeModel
from reports.inputs.experiment import Experiment
from reports.inputs.published import era_sd, nats_per_log_step, published_record
from reports.stats.loss_model import Slope
from reports.stats.planning import bears_out, upper_sd

RUNS_NAMED = 3  # experiments named in a source
FULL_SIZE = "gpt2"


@dataclass(frozen=True, kw_only=True)
class Noise:
    """One run's sd of the final loss with its df, pooled within configurations."""

    sd: float
    df: int
    source: str  # where it was seen, in words


def pooled_sd(groups: Iterable[Iterable[float]]) -> tuple[float, int]:
    """(sd, df) within groups; nan with 0 df."""
    df, squares = 0, []
    for group in groups:
        x = np.array([*group], float)
        if len(x) > 1:
            df += len(x) - 1
            squares.append(float(((x - x.mean()) ** 2).sum()))
    if not df:
        return math.nan, 0
    return math.sqrt(sum(squares) / df), df


def plans_of_ours(results: Path) -> list[Plan]:
    """Plans of the folder's experiments that ran our own trainer."""
    plans = []
    for other in experiments_in(results):
        with suppress(OSError, ValueError):  # a damaged one says nothing
            plan = read_plan_file(results / "experiments" / other / "experiment.json")
            if plan.baseline_config and not plan.foreign and not plan.imported:
                plans.append(plan)
    return plans


def baseline_losses(results: Path, plan: Plan) -> dict[tuple[int, str], float]:
    """(budget, run_id) -> final loss of the baseline's finished runs."""
    losses = {}
    for run in plan.runs:
        if run.arm != plan.baseline:
            continue
        for run_id in (run.run_id, *run.older):
            loss = _final_loss(results / "runs" / run_id)
            if loss is not None:
                losses[run.budget, run_id] = loss
                break
    return losses


def _final_loss(run: Path) -> float | None:
    """None of a run that has not finished."""
    result = read_result(run)
    if result is None or result.status != "finished" or result.val_loss is None:
        return None
    return float(result.val_loss)


def same_baseline(
    results: Path, plans: Iterable[Plan], config: Document, *, branch_at: int | None = None
) -> str | None:
    """The experiment with the same baseline that has most finished runs of it.

    branch_at: where its arms part; arms that share a trunk differ by less than those that do not.
    """
    name, most = None, 0
    for plan in plans:
        if plan.baseline_config == config and plan.branch_at == branch_at:
            n = len(baseline_losses(results, plan))
            if n > most:
                name, most = plan.name, n
    return name


def noise_at_scale(
    results: Path, plans: Iterable[Plan], scale: str, *, corpus: str | None = None
) -> Noise | None:
    """Pooled over the baselines of every experiment at a scale, on one corpus or on any.

    A run that several share counts once."""
    groups: dict[tuple[str, int], dict[str, float]] = {}
    names = []
    for plan in plans:
        if plan.scale != scale or corpus not in (None, plan.corpus.name):
            continue
        losses = baseline_losses(results, plan)
        if losses:
            names.append(plan.name)
        for (budget, run_id), loss in losses.items():
            groups.setdefault((repr(plan.baseline_config), budget), {})[run_id] = loss
    sd, df = pooled_sd(group.values() for group in groups.values())
    if not df:
        return None
    n = sum(len(group) for group in groups.values())
    named = ", ".join(names[:RUNS_NAMED])
    if len(names) > RUNS_NAMED:
        named += ", ..."
    return Noise(sd=sd, df=df, source=f"{n} runs of other baselines at scale {scale}: {named}")


@dataclass(frozen=True, kw_only=True)
class Known:
    """Each number with its source in words; None where there is none."""

    # of one run's loss, beside its block where that was seen to help: the 80 % upper bound of what
    # was seen, or the era's published
    sd: float
    sd_source: str
    sd_is_of_scale: bool  # not of another scale, for want of any of this one
    alone: float | None = None  # the bound at this scale without blocks
    slope: Slope  # loss per step near `steps`
    slope_is_of_scale: bool = True  # not of full size, for want of any of this one
    step_ms: float | None = None
    step_source: str = "known after one run"
    n_star: tuple[float, ...] = ()  # of every arm whose steps to target are resolved
    bracketed: bool = False  # all arms' budgets lie on both sides of the target


def nearest_known(
    experiment: Experiment | None,
    *,
    base: str,
    scale: str,
    steps: int,
    slope: Slope | None = None,
    alike: Experiment | None = None,
    noise: Noise | None = None,
    as_published: bool = True,
) -> Known:
    """Each number from the nearest source there is.

    experiment: with its runs; base: a record, whose published figures come last; steps: the budget
    at which a difference in loss is turned into steps; slope: as the experiment gives it; alike: an
    experiment with the same baseline; noise: what was seen at this scale; as_published: whether the
    baseline is, but for its length, what the record was published with, its text too."""
    assumed = _published_figures(base, steps, is_it=as_published and scale == FULL_SIZE)
    if noise is not None:
        assumed = _with_noise(assumed, noise)
    if slope is not None:
        assumed = replace(assumed, slope=slope, slope_is_of_scale=True)
    if alike is not None:
        assumed = _with_runs(assumed, alike, steps, f" in {alike.name}")
        assumed = replace(assumed, n_star=(), bracketed=False)  # its target may be another
    if experiment is not None:
        assumed = _with_runs(assumed, experiment, steps, "")
    return assumed


def _published_figures(base: str, steps: int, *, is_it: bool) -> Known:
    """The published figures of a record. is_it: whether they are of what is asked about."""
    sd_source = f"published for the era of {base}"
    if not is_it:
        sd_source += (
            ", at full size on FineWeb; smaller runs are noisier: "
            "yours is known after two of the baseline"
        )
    slope = Slope(
        per_step=nats_per_log_step() / steps,
        se=0.0,
        source="published for late 2024, at full size on FineWeb",
    )
    assumed = Known(
        sd=era_sd(base),
        sd_source=sd_source,
        sd_is_of_scale=is_it,
        slope=slope,
        slope_is_of_scale=is_it,
    )
    if not is_it:
        return assumed
    step_ms = published_step_ms(base)
    if not step_ms:
        return assumed
    return replace(assumed, step_ms=step_ms, step_source=f"published for {base} on 8 H100")


def published_step_ms(record: str) -> float | None:
    """Of a record at full size on 8 H100; None where it is not published."""
    try:
        published = published_record(record)
    except ValueError:
        return None
    return published.time_s / published.steps * 1e3


def _with_noise(assumed: Known, noise: Noise) -> Known:
    bound = upper_sd(noise.sd, noise.df + 1)
    return replace(
        assumed,
        sd=bound,
        alone=bound,
        sd_source=f"upper 80 % bound of {noise.sd:.4f} from {noise.source}",
        sd_is_of_scale=True,
    )


def _with_runs(assumed: Known, experiment: Experiment, steps: int, where: str) -> Known:
    """With what an experiment's finished runs tell; `where` says whose they are."""
    use = samples.usable(experiment)
    baseline = use.arms[0]
    losses = _finished(samples.of_role(use.runs, "loss"), baseline)
    by_budget = losses.dropna(subset=["val_loss"]).groupby("budget")["val_loss"]
    sd, df = pooled_sd(group for _, group in by_budget)
    narrowest = sd  # what a bound beside blocks must be below
    if df >= 1 and assumed.alone is not None and bears_out(sd, df, assumed.alone):
        narrowest = min(sd, assumed.sd)
    elif df >= 1:
        source = f"{plural(len(losses), 'run')} of the baseline{where}"
        assumed = _with_noise(assumed, Noise(sd=sd, df=df, source=source))
    paired, df = sd_beside_blocks(samples.of_role(use.runs, "loss"), use.arms)
    if df >= 1 and upper_sd(paired, df + 1) < narrowest:
        source = f"runs of {len(use.arms)} arms beside their blocks{where}, {df} df: pairing helped"
        alone = assumed.alone
        assumed = _with_noise(assumed, Noise(sd=paired, df=df, source=source))
        assumed = replace(assumed, alone=alone)
    step_ms = _finished(samples.of_role(use.runs, "timing"), baseline)["step_ms"].dropna()
    if len(step_ms):
        assumed = replace(
            assumed,
            step_ms=float(np.exp(np.log(step_ms).mean())),
            step_source=f"measured in {plural(len(step_ms), 'run')} of the baseline{where}",
        )
    time_model = _time_model(experiment, use)
    model = time_model.model
    if model is not None and not model.given and model.beta[0] < 0:
        budgets = sorted({int(budget) for budget in losses["budget"]})
        slope = Slope(
            per_step=abs(float(model.beta[0])) / steps,
            se=abs(model.slope_se(0)) / steps,
            source=f"measured over budgets {', '.join(map(str, budgets))}{where}",
        )
        assumed = replace(assumed, slope=slope, slope_is_of_scale=True)
    return _with_times(assumed, time_model)


def _with_times(assumed: Known, time_model: TimeModel) -> Known:
    """With the arms' steps to the experiment's target."""
    n_stars, extrapolated = [], False
    for estimate in time_estimates(time_model).values():
        if estimate.n_star is not None:
            n_stars.append(float(estimate.n_star))
            extrapolated = extrapolated or estimate.extrapolated
    bracketed = bool(n_stars) and not extrapolated
    return replace(assumed, n_star=tuple(n_stars), bracketed=bracketed)


def _finished(runs: pd.DataFrame, arm: str) -> pd.DataFrame:
    return runs[(runs["arm"] == arm) & (runs["status"] == "finished")]


def _time_model(experiment: Experiment, use: samples.Usable) -> TimeModel:
    losses, timed = samples.of_role(use.runs, "loss"), samples.of_role(use.runs, "timing")
    times_at = samples.at_budget(timed, samples.shared_budget(timed, use.arms))
    return TimeModel.of(experiment, losses, times_at, use.arms)
