"""The table of a page of published evidence: each row against that above it, or the first.

What was measured once has no deviation of its own; the interval is the noise that many logs of its
era show (reports.inputs.published), 1.96 standard errors for a loss, turned into time by the slope
of loss over steps: a record's steps were tuned until its loss just met the target.
"""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

from harness.run.plan import Plan
from reports.analysis.types import Comparisons
from reports.format import plural, show
from reports.inputs.experiment import Experiment
from reports.inputs.published import NATS_PER_LOG_STEP
from reports.page.cells import EMPTY, Part, VerdictCell, measured_cell, number, step_cell
from reports.page.verdicts import Head, VerdictRow
from reports.stats.digits import settled

Z = 1.96
AGAINST = {"above": "the row above", "first": "the first row"}


def against(plan: Plan) -> str:
    """What a row is compared with, in words."""
    assert plan.evidence is not None, "only a page of published evidence has such a table"
    return AGAINST[plan.evidence]


def evidence_heads(plan: Plan) -> list[Head]:
    other = against(plan)
    return [
        Head(
            text="loss",
            css="num",
            meaning=(
                "Final validation loss, nats per token, and the standard deviation where there "
                "are several logs."
            ),
        ),
        Head(
            text="Δ loss",
            css="num",
            meaning=(
                f"Against {other}; the interval is the noise of single runs of that era, not "
                "of these."
            ),
        ),
        Head(
            text="step, ms",
            css="num",
            meaning="Mean time of a training step as the log prints it, and the number of steps.",
        ),
        Head(
            text="Δ step time",
            css="num",
            meaning=f"Against {other}, in milliseconds and percent.",
        ),
        Head(
            text="time, s",
            css="num",
            meaning=(
                "The training clock of the logs: validation excluded, the first 10 steps untimed."
            ),
        ),
        Head(
            text="Δ time",
            css="num",
            meaning=(
                f"Against {other}, as a ratio; the interval is the noise of the loss turned "
                "into time."
            ),
        ),
        Head(text="runs", css="count", meaning="Logs that the row is made of."),
    ]


def evidence_lead(plan: Plan) -> str:
    return (
        f"Published runs on 8 x H100, every row against {against(plan)}; nothing of this was run "
        "here."
    )


@dataclass(frozen=True, kw_only=True)
class Logged:
    """What the logs of an arm say: means over them, and the standard error of the loss."""

    mean: Mapping[str, float]  # metric -> mean
    noise: float  # nats, from the spread of the logs of its era
    n_logs: int  # behind it
    n_rows: int  # of the table of runs: one may be the mean of several logs

    @property
    def loss(self) -> float:
        return self.mean["val_loss"]

    @property
    def step_ms(self) -> float:
        return self.mean["step_ms"]

    @property
    def time_s(self) -> float:
        return self.mean["train_time_s"]

    def half_width(self, other: "Logged") -> float:
        """Half of the 95 % interval of a difference of losses."""
        return Z * math.hypot(self.noise, other.noise)


def logged_arms(plan: Plan, outcome: Comparisons) -> dict[str, Logged]:
    arms = {}
    for arm in plan.arms:
        assert arm.noise_sd is not None and arm.n_logs is not None, "an arm of published evidence"
        cell = outcome.cells[arm.name]
        arms[arm.name] = Logged(
            mean=cell.mean,
            noise=arm.noise_sd / math.sqrt(arm.n_logs),
            n_logs=arm.n_logs,
            n_rows=cell.n_finished,
        )
    return arms


def evidence_rows(
    experiment: Experiment, outcome: Comparisons, css: Mapping[str, str]
) -> list[VerdictRow]:
    """One row per arm in the plan's order; css: of every arm."""
    plan = experiment.plan
    rows = []
    logged = logged_arms(plan, outcome)
    tuned = experiment.name == "published/ladder"
    first: Logged | None = None
    above: Logged | None = None
    for place, (arm, logs) in enumerate(logged.items()):
        other = first
        if plan.evidence == "above":
            other = above
        cells = [
            measured_cell(outcome, arm, "val_loss", "loss"),
            loss_difference(logs, other),
            step_cell(outcome, arm),
            step_difference(logs, other),
            measured_time(logs),
            time_cell(logs, other, tuned=tuned),
            logs_cell(logs),
        ]
        rows.append(
            VerdictRow(arm=arm, place=place, css=css[arm], baseline=place == 0, cells=cells)
        )
        first = first or logs
        above = logs
    return rows


def logs_cell(arm: Logged) -> VerdictCell:
    text = plural(arm.n_rows, "log")
    if arm.n_logs > arm.n_rows:
        text = f"mean of {arm.n_logs} logs"
    return VerdictCell(
        parts=(Part(text=text, key="n.finished", values=(arm.n_rows,)),), css="count"
    )


def loss_difference(arm: Logged, other: Logged | None) -> VerdictCell:
    if other is None:
        return EMPTY
    delta, half = arm.loss - other.loss, arm.half_width(other)
    ends = number("evidence.loss_interval", "loss_delta", delta - half, delta + half)
    return VerdictCell(parts=(number("evidence.loss", "loss_delta", delta), ends), css="num")


def step_difference(arm: Logged, other: Logged | None) -> VerdictCell:
    if other is None:
        return EMPTY
    difference = number("evidence.step", "ms_delta", arm.step_ms - other.step_ms, unit=" ms")
    percent = number("evidence.step_ratio", "percent", arm.step_ms / other.step_ms - 1.0)
    return VerdictCell(parts=(difference, percent), css="num")


def measured_time(arm: Logged) -> VerdictCell:
    time = number("train_time_s.mean", "s", arm.mean.get("train_time_s"))
    return VerdictCell(parts=(time,), css="num")


def time_cell(arm: Logged, other: Logged | None, *, tuned: bool) -> VerdictCell:
    """The ratio of times.

    tuned: both step counts were tuned to the target loss, so the ratio has the noise of that.
    """
    if other is None:
        return EMPTY
    ratio = arm.time_s / other.time_s
    percent = number("evidence.time", "percent", ratio - 1.0)
    if not tuned:
        return VerdictCell(parts=(percent,), css="num")
    half = arm.half_width(other) / NATS_PER_LOG_STEP
    low, high = ratio * math.exp(-half) - 1.0, ratio * math.exp(half) - 1.0
    ends = number("evidence.time_interval", "percent", low, high)
    return VerdictCell(parts=(percent, ends), css="num")


def evidence_answer(experiment: Experiment, outcome: Comparisons) -> str:
    """The headline: from the first row to the last, and the largest step between."""
    logged = logged_arms(experiment.plan, outcome)
    arms = list(logged.values())
    if experiment.plan.evidence == "first":
        return lowest_loss(logged)
    if arms[0].mean["steps"] == arms[-1].mean["steps"]:
        return losses_at_equal_steps(logged)
    return times_to_target(logged)


def lowest_loss(logged: Mapping[str, Logged]) -> str:
    (first, base), *others = logged.items()
    best = min(logged, key=lambda arm: logged[arm].loss)
    apart = [arm for arm, logs in others if abs(logs.loss - base.loss) > logs.half_width(base)]
    words = "none beyond the noise of single runs"
    if apart:
        words = f"beyond the noise of single runs only {', '.join(apart)}"
    return (
        f"{best} ends lowest at {show(logged[best].loss, 'loss')}; different from {first} {words}."
    )


def losses_at_equal_steps(logged: Mapping[str, Logged]) -> str:
    arms = list(logged.values())
    parts = []
    for (_, above), (arm, logs) in itertools.pairwise(logged.items()):
        delta = show(logs.loss - above.loss, "loss_delta")
        parts.append(f"{arm.removeprefix('+ ')} {delta}")
    total = arms[-1].loss - arms[0].loss
    ratio = arms[-1].step_ms / arms[0].step_ms - 1.0
    return (
        f"At equal steps the loss falls by {show(-total, 'loss')}, and a step takes "
        f"{settled(100 * ratio):.0f} % longer. {'; '.join(parts)}."
    )


def times_to_target(logged: Mapping[str, Logged]) -> str:
    names = list(logged)
    first, last = names[0], names[-1]
    ratios = {}
    for (_, above), (arm, logs) in itertools.pairwise(logged.items()):
        ratios[arm] = logs.time_s / above.time_s - 1.0
    largest = sorted(ratios, key=ratios.__getitem__)[:3]
    named = ", ".join(f"{arm} ({show(ratios[arm], 'percent')})" for arm in largest)
    share = 100 * logged[last].time_s / logged[first].time_s
    return (
        f"{last} reaches the target in {settled(share):.0f} % of the training time of {first}; "
        f"the largest steps are {named}."
    )
