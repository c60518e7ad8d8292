"""The published effect of single changes beside our own: a record whose parts were published as a ladder, rung by rung.

Published rungs are one run each. A loss has the noise of its era, a step time that of a node (single nodes differ by 1 % or
more, and which ones ran is not known). Losses are compared in nats per token, step times as log ratios, never in milliseconds.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from reports.analysis import samples
from reports.analysis.published import judge, not_at_full_size
from reports.format import settled
from reports.inputs.experiment import Experiment
from reports.inputs.published import PUBLISHED, era_sd, read_table
from reports.stats.contrasts import paired_t
from reports.stats.intervals import Estimate

NODE_SD = 0.01  # of a log step time: nodes differ by 1 to 3 %


@dataclass(frozen=True, kw_only=True)
class Step:
    """One change on one metric: what was published for it, what these runs say, and one of the verdicts of PublishedVerdict."""

    change: str
    metric: Literal["val_loss", "step_ms"]
    published: Estimate  # nats, or a log ratio of step times
    own: Estimate | None
    verdict: str
    why: str


def published_steps(experiment: Experiment) -> list[Step]:
    """Every rung of the published ladder of which this experiment ran both ends; [] where its record has none."""
    plan = experiment.plan
    path = PUBLISHED / f"{plan.get('published')}_ladder.csv"
    if not path.is_file():
        return []
    arms = {frozenset(a.get("changes") or ()): a["name"] for a in plan["arms"] if a.get("of", a["name"]) == a["name"]}
    use = samples.usable(experiment)
    tables = {}
    for metric, role in (("val_loss", "loss"), ("step_ms", "timing")):
        runs = samples.of_role(use.runs, role)
        tables[metric] = samples.at_budget(runs, samples.shared_budget(runs, use.arms))
    rows = read_table(path)
    before: frozenset[str] = frozenset()
    steps = []
    for above, row in itertools.pairwise(rows):
        after = before | {row["change"]}
        if before in arms and after in arms:
            losses, times = (tuple(float(r[k]) for r in (row, above)) for k in ("val_loss", "step_ms"))
            noise = math.sqrt(2) * era_sd(str(plan["published"]))
            loss = Estimate(value=losses[0] - losses[1], se=noise)
            time = Estimate(value=math.log(times[0] / times[1]), se=math.sqrt(2) * NODE_SD)
            pair = arms[after], arms[before]
            steps.append(step_of(experiment, row["change"], "val_loss", loss, tables["val_loss"], pair))
            steps.append(step_of(experiment, row["change"], "step_ms", time, tables["step_ms"], pair))
        before = after
    return steps


def step_of(
    experiment: Experiment, change: str, metric: Literal["val_loss", "step_ms"], side: Estimate, runs: pd.DataFrame,
    pair: tuple[str, str],
) -> Step:  # fmt: skip
    """`pair`: the arm with the change and the one without; the margin is half the published effect."""
    own, missing = own_effect(runs, pair, metric)
    elsewhere = not_at_full_size(experiment.plan)
    if elsewhere:
        verdict, why = "not testable here", elsewhere
    elif samples.watched(experiment):
        verdict, why = "not resolved", "runs are still to come, and this judgement is made once"
    elif own is None:
        verdict, why = "not resolved", missing
    else:
        say = in_nats if metric == "val_loss" else in_percent
        verdict, why = judge(own, side, margin=max(abs(side.value) / 2, 1e-9), say=say)
    return Step(change=change, metric=metric, published=side, own=own, verdict=verdict, why=why)


def own_effect(runs: pd.DataFrame, pair: tuple[str, str], metric: str) -> tuple[Estimate | None, str]:
    """(effect, '') paired over shared blocks; (None, why) where there is none or its error is unknown."""
    after, before = (samples.sample(runs, arm, metric) for arm in pair)
    if after.n_diverged + before.n_diverged:
        return None, "runs diverged"
    if not len(after.values) or not len(before.values):
        return None, "one of the two arms has no finished run"
    if metric == "step_ms" and not samples.same_hardware(runs, *pair):
        return None, "the two arms ran on different hardware"
    value, se, df, _ = paired_t(after, before)
    return (Estimate(value=value, se=se, df=df), "") if se > 0 else (None, "one run each has no error to judge by")


def in_nats(value: float) -> str:
    return f"{settled(value):.4f} nats per token"


def in_percent(value: float) -> str:
    return f"{settled(100 * value):.1f} %"
