"""The published effect of single changes beside our own: a record published as a ladder.

Its parts were published rung by rung, one run each. A loss has the noise of its era, a step time
that of a node (single nodes differ by 1 % or more, and which ones ran is not known). Losses are
compared in nats per token, step times as log ratios, never in milliseconds.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from reports.analysis import samples
from reports.analysis.machines import cut_by_node, on_several_nodes
from reports.analysis.published import in_percent, judge, not_at_full_size
from reports.analysis.types import PublishedWord
from reports.inputs.experiment import Experiment
from reports.inputs.noise import PUBLISHED, benchmark_noise
from reports.inputs.published import era_sd, read_table
from reports.stats.contrasts import paired_t
from reports.stats.digits import settled
from reports.stats.intervals import Estimate, total


@dataclass(frozen=True, kw_only=True)
class Step:
    """One change on one metric: what was published for it, and what these runs say."""

    change: str
    metric: Literal["val_loss", "step_ms"]
    published: Estimate  # nats, or a log ratio of step times
    ours: Estimate | None
    verdict: PublishedWord
    why: str


@dataclass(frozen=True, kw_only=True)
class _Rung:
    """A change of the published ladder of which this experiment ran both ends."""

    change: str
    after: str  # the arm with the change
    before: str  # and the one without
    loss: Estimate  # published
    log_step: Estimate  # published


def published_steps(experiment: Experiment) -> list[Step]:
    """Every rung of the published ladder of which this experiment ran both ends.

    [] where its record has none."""
    path = PUBLISHED / f"{experiment.plan.published}_ladder.csv"
    if not path.is_file():
        return []
    use = samples.usable(experiment)
    losses, times = samples.of_role(use.runs, "loss"), samples.of_role(use.runs, "timing")
    losses = samples.at_budget(losses, samples.shared_budget(losses, use.arms))
    times = samples.at_budget(times, samples.shared_budget(times, use.arms))
    steps = []
    for rung in _rungs(experiment, read_table(path)):
        steps.append(_step(experiment, rung, "val_loss", losses))
        steps.append(_step(experiment, rung, "step_ms", times))
    return steps


def _rungs(experiment: Experiment, rows: Sequence[Mapping[str, str]]) -> list[_Rung]:
    """rows: of the published table, each the one above it with one more change."""
    plan = experiment.plan
    arms = {frozenset(arm.changes): arm.name for arm in samples.arms_off_the_axes(plan)}
    before: frozenset[str] = frozenset()
    rungs = []
    for above, row in itertools.pairwise(rows):
        after = before | {row["change"]}
        if before in arms and after in arms:
            rungs.append(
                _Rung(
                    change=row["change"],
                    after=arms[after],
                    before=arms[before],
                    loss=_published_loss(row, above, str(plan.published)),
                    log_step=_published_log_step(row, above),
                )
            )
        before = after
    return rungs


def _published_loss(row: Mapping[str, str], above: Mapping[str, str], record: str) -> Estimate:
    delta = float(row["val_loss"]) - float(above["val_loss"])
    return Estimate(value=delta, se=math.sqrt(2) * era_sd(record))


def _published_log_step(row: Mapping[str, str], above: Mapping[str, str]) -> Estimate:
    log_ratio = math.log(float(row["step_ms"]) / float(above["step_ms"]))
    return Estimate(value=log_ratio, se=math.sqrt(2) * benchmark_noise().nodes.sd)


def _step(
    experiment: Experiment,
    rung: _Rung,
    metric: Literal["val_loss", "step_ms"],
    runs: pd.DataFrame,
) -> Step:
    """The rung on a metric."""
    published = rung.loss if metric == "val_loss" else rung.log_step
    say = in_nats if metric == "val_loss" else in_percent
    ours, missing = own_effect(runs, (rung.after, rung.before), metric)
    elsewhere = not_at_full_size(experiment.plan)
    verdict: PublishedWord
    if elsewhere:
        verdict, why = "not testable here", elsewhere
    elif samples.watched(experiment):
        verdict = "not resolved"
        why = "runs are still to come, and this judgement is made once"
    elif ours is None:
        verdict, why = "not resolved", missing
    else:
        verdict, why = judge(ours, published, say=say)
    return Step(
        change=rung.change,
        metric=metric,
        published=published,
        ours=ours,
        verdict=verdict,
        why=why,
    )


def own_effect(
    runs: pd.DataFrame, pair: tuple[str, str], metric: str
) -> tuple[Estimate | None, str]:
    """(effect, '') paired over shared blocks; (None, why) where it or its error is unknown.

    pair: the arm with the change and the one without."""
    if metric == "step_ms":
        runs = cut_by_node(runs)
    after, before = samples.sample(runs, pair[0], metric), samples.sample(runs, pair[1], metric)
    if after.n_diverged + before.n_diverged:
        return None, "runs diverged"
    if not len(after.values) or not len(before.values):
        return None, "one of the two arms has no finished run"
    if metric == "step_ms" and not samples.same_hardware(runs, *pair):
        return None, "the two arms ran on different hardware"
    value, se, df, n_blocks = paired_t(after, before)
    if not se > 0:
        return None, "one run each has no error to judge by"
    effect = Estimate(value=value, se=se, df=df)
    if metric == "step_ms" and not n_blocks and on_several_nodes(runs, *pair):
        effect = total(effect, benchmark_noise().nodes.of_two)
    return effect, ""


def in_nats(value: float) -> str:
    """A loss, as a sentence has it."""
    return f"{settled(value):.4f} nats per token"
