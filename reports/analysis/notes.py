"""Sentences about an analysis that belong above its table."""

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime

import numpy as np
import pandas as pd

from harness.run.plan import Plan
from reports.analysis.machines import environment_change, environment_of, nodes_unknown
from reports.analysis.types import COMPARED_TIMES, Comparison, Comparisons
from reports.format import show
from reports.inputs.experiment import Experiment
from reports.inputs.noise import benchmark_noise
from reports.stats.pool import DRIFT, drift_p

TOO_NOISY = "Too noisy for any time claim"
TELLING = 0.05  # of a step time: a change that a page should tell, as records bring


def environment_notes(plan: Plan, losses: pd.DataFrame, timed: pd.DataFrame) -> list[str]:
    """What environments differ, as the plan says or, of imported runs, as their logs do."""
    notes = []
    for arm in plan.arms:
        effect = arm.environment_effect
        if plan.imported and arm.name != plan.baseline:
            of_baseline = environment_of(losses, plan.baseline)
            effect = environment_change(environment_of(losses, arm.name), of_baseline)
        if effect:
            notes.append(f"{arm.name}: environment effect: {effect}.")
    if plan.imported and nodes_unknown(timed, *plan.by_arm):
        nodes = benchmark_noise().nodes
        notes.append(
            f"On which node a run was made is not known: intervals of times carry an sd of "
            f"{nodes.sd:.1%} between nodes ({nodes.df} df, up to {nodes.largest:.1%} between two)."
        )
    return notes


def session_notes(timed: pd.DataFrame, compared: pd.DataFrame) -> list[str]:
    """How many of the timed runs have no partner that was made beside them."""
    if "borrowed" in timed:
        timed = timed[~timed["borrowed"].astype(bool)]
    n_left = int((timed["status"] == "finished").sum())
    n_left -= int((compared["status"] == "finished").sum())
    if not n_left:
        return []
    runs = "run was" if n_left == 1 else "runs were"
    return [
        f"{n_left} {runs} made without a partner in the same session: losses count, times do not."
    ]


def pool_notes(experiment: Experiment, losses: pd.DataFrame) -> list[str]:
    """How many of the baseline's losses are borrowed, how old they are, how fresh ones agree."""
    finished = losses[
        (losses["status"] == "finished") & (losses["arm"] == experiment.plan.baseline)
    ]
    if "borrowed" not in finished or not finished["borrowed"].any():
        return []
    is_borrowed = finished["borrowed"].astype(bool)
    pool, fresh = finished[is_borrowed], finished[~is_borrowed]
    p = drift_p(pool["val_loss"].to_numpy(float), fresh["val_loss"].to_numpy(float))
    agree = "agree with them" if p >= DRIFT else "do not agree with them: run it without --pool"
    return [
        f"{len(pool)} of {len(finished)} losses of {experiment.plan.baseline} are borrowed from "
        f"earlier experiments{_ages(experiment, pool, fresh)}; {len(fresh)} fresh ones {agree} "
        f"(p = {p:.2g}). Their times are not compared."
    ]


def _ages(experiment: Experiment, pool: pd.DataFrame, fresh: pd.DataFrame) -> str:
    """How long before the first fresh run the borrowed ones were begun."""
    borrowed, of_fresh = _starts(experiment, pool), _starts(experiment, fresh)
    if not borrowed or not of_fresh:
        return ""
    hours = [max(0.0, (min(of_fresh) - begun).total_seconds() / 3600) for begun in borrowed]
    if max(hours) < 24:
        return f", begun {min(hours):.1f} to {max(hours):.1f} h before"
    return f", begun {min(hours) / 24:.1f} to {max(hours) / 24:.1f} days before"


def _starts(experiment: Experiment, runs: pd.DataFrame) -> list[datetime]:
    """When the runs began, of those that say it."""
    starts = []
    for run_id in runs["run_id"]:
        started = experiment.results[run_id].started if run_id in experiment.results else None
        if started:
            with suppress(ValueError):
                starts.append(datetime.fromisoformat(started))
    return starts


def time_notes(comparisons: Iterable[Comparison]) -> list[str]:
    """That no time is told from another, where step times scatter too much to tell a change.

    Every interval of a time then holds no difference, and those of step times one of TELLING."""
    comparisons = list(comparisons)
    times = [c for c in comparisons if c.metric in COMPARED_TIMES and c.ratio_low is not None]
    steps = [c for c in times if c.metric == "step_ms"]
    if not steps or any(c.kind != "undecided" for c in times):
        return []
    for c in steps:
        if c.ratio_high is not None and c.ratio_high < 1 + TELLING and _low(c) > 1 - TELLING:
            return []
    samples = {c.arm: c.of_arm for c in steps} | {c.baseline: c.of_baseline for c in steps}
    spans = {arm: float(np.ptp(sample.values)) for arm, sample in samples.items()}
    widest = max(spans, key=spans.__getitem__)
    least, most = np.exp([samples[widest].values.min(), samples[widest].values.max()])
    return [
        f"{TOO_NOISY}: no arm's time is told from another's, every interval of a step time reaches"
        f" beyond {100 * TELLING:g} %, and runs of {widest} alone took from {show(least, 'ms')} to"
        f" {show(most, 'ms')} ms a step."
    ]


def is_too_noisy(outcome: Comparisons) -> bool:
    """Whether the notes say so of all times."""
    return any(note.startswith(TOO_NOISY) for note in outcome.notes)


def _low(c: Comparison) -> float:
    return -math.inf if c.ratio_low is None else c.ratio_low


def loss_notes(losses_at: pd.DataFrame, arms: Sequence[str], budget: int | None) -> list[str]:
    """On arms without a loss, and on losses at different steps.

    losses_at: runs for losses at the compared budget, None where every arm has its own."""
    notes = []
    for arm in arms:
        status = losses_at.loc[losses_at["arm"] == arm, "status"]
        if len(status) and (status == "diverged").all():
            every = f"All {len(status)} runs" if len(status) > 1 else "The run"
            notes.append(
                f"{every} of {arm} diverged: there is no loss to compare, see the outcomes."
            )
    if budget is None and len(losses_at):
        notes.append(
            "The arms share no number of steps: losses are compared where each arm's own "
            "schedule ends."
        )
    return notes
