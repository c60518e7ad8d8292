"""The table of a page of published evidence: every row against the row above it, or against the first, with the era's noise.

What was measured once has no deviation of its own; the interval is the noise that many logs of its era show (reports.inputs.published),
1.96 standard errors for a loss, turned into time by the slope of loss over steps: a record's steps were tuned until its loss
just met the target.
"""

import itertools
import math
from collections.abc import Mapping
from typing import Any

from reports.analysis.types import Comparisons
from reports.format import settled, show
from reports.inputs.experiment import Experiment
from reports.inputs.published import NATS_PER_LOG_STEP
from reports.page.verdicts import (
    Head,
    Part,
    VerdictCell,
    VerdictRow,
    measured_cell,
    number,
    step_cell,
)

# ruff: noqa: E501  # a table of sentences
Z = 1.96
AGAINST = {"above": "the row above", "first": "the first row"}


def evidence_heads(plan: Mapping[str, Any]) -> list[Head]:
    other = AGAINST[plan["evidence"]]
    return [
        Head(text="loss", css="num", meaning="Final validation loss, nats per token, and the standard deviation where there are several logs."),
        Head(text="Δ loss", css="num", meaning=f"Against {other}; the interval is the noise of single runs of that era, not of these."),
        Head(text="step, ms", css="num", meaning="Mean time of a training step as the log prints it, and the number of steps."),
        Head(text="Δ step time", css="num", meaning=f"Against {other}, in milliseconds and percent."),
        Head(text="time, s", css="num", meaning="The training clock of the logs: validation excluded, the first 10 steps untimed."),
        Head(text="Δ time", css="num", meaning=f"Against {other}, as a ratio; the interval is the noise of the loss turned into time."),
        Head(text="runs", css="count", meaning="Logs that the row is made of."),
    ]  # fmt: skip


def evidence_lead(plan: Mapping[str, Any]) -> str:
    return f"Published runs on 8 x H100, every row against {AGAINST[plan['evidence']]}; nothing of this was run here."


def evidence_rows(experiment: Experiment, outcome: Comparisons, css: Mapping[str, str]) -> list[VerdictRow]:
    """One row per arm in the plan's order."""
    arms, rows = [a["name"] for a in experiment.plan["arms"]], []
    noise = noises(experiment.plan)
    for place, arm in enumerate(arms):
        other = None if place == 0 else arms[place - 1 if experiment.plan["evidence"] == "above" else 0]
        means = {a: outcome.cells[a].mean for a in (arm, other) if a is not None}
        n = outcome.cells[arm].n_finished
        cells = [
            measured_cell(outcome, arm, "val_loss", "loss"),
            loss_cell(means, arm, other, noise),
            step_cell(outcome, arm),
            step_difference(means, arm, other),
            VerdictCell(parts=(number("train_time_s.mean", "s", means[arm].get("train_time_s")),), css="num"),
            time_cell(means, arm, other, noise, tuned=experiment.name == "published/ladder"),
            VerdictCell(
                parts=(Part(text=logs_words(experiment.plan["arms"][place]["n_logs"], n), key="n.finished", values=(n,)),),
                css="count",
            ),
        ]
        rows.append(VerdictRow(arm=arm, place=place, css=css[arm], baseline=place == 0, cells=cells))
    return rows


def logs_words(n_logs: int, n_rows: int) -> str:
    return f"mean of {n_logs} logs" if n_logs > n_rows else f"{n_rows} {'log' if n_rows == 1 else 'logs'}"


def noises(plan: Mapping[str, Any]) -> dict[str, float]:
    """Standard error of each arm's mean loss, from the spread of the logs of its era."""
    return {a["name"]: a["noise_sd"] / math.sqrt(a["n_logs"]) for a in plan["arms"]}


def loss_cell(means: Mapping[str, Mapping[str, float]], arm: str, other: str | None, noise: Mapping[str, float]) -> VerdictCell:
    if other is None:
        return VerdictCell(css="num")
    delta, half = means[arm]["val_loss"] - means[other]["val_loss"], Z * math.hypot(noise[arm], noise[other])
    ends = number("evidence.loss_interval", "loss_delta", delta - half, delta + half)
    return VerdictCell(parts=(number("evidence.loss", "loss_delta", delta), ends), css="num")


def step_difference(means: Mapping[str, Mapping[str, float]], arm: str, other: str | None) -> VerdictCell:
    if other is None:
        return VerdictCell(css="num")
    own, base = means[arm]["step_ms"], means[other]["step_ms"]
    percent = number("evidence.step_ratio", "percent", own / base - 1.0)
    return VerdictCell(parts=(number("evidence.step", "ms_delta", own - base, unit=" ms"), percent), css="num")


def time_cell(
    means: Mapping[str, Mapping[str, float]], arm: str, other: str | None, noise: Mapping[str, float], *, tuned: bool
) -> VerdictCell:
    """The ratio of times; `tuned`: both step counts were tuned to the target loss, so the ratio has the noise of that."""
    if other is None:
        return VerdictCell(css="num")
    ratio = means[arm]["train_time_s"] / means[other]["train_time_s"]
    parts = [number("evidence.time", "percent", ratio - 1.0)]
    if tuned:
        half = Z * math.hypot(noise[arm], noise[other]) / NATS_PER_LOG_STEP
        parts.append(number("evidence.time_interval", "percent", ratio * math.exp(-half) - 1.0, ratio * math.exp(half) - 1.0))
    return VerdictCell(parts=tuple(parts), css="num")


def evidence_answer(experiment: Experiment, outcome: Comparisons) -> str:
    """The headline: from the first row to the last, and the largest step between."""
    arms = [a["name"] for a in experiment.plan["arms"]]
    first, last = (outcome.cells[a].mean for a in (arms[0], arms[-1]))
    noise = noises(experiment.plan)
    if experiment.plan["evidence"] == "first":
        best = min(arms, key=lambda a: outcome.cells[a].mean["val_loss"])
        apart = [
            a
            for a in arms[1:]
            if abs(outcome.cells[a].mean["val_loss"] - first["val_loss"]) > Z * math.hypot(noise[a], noise[arms[0]])
        ]
        words = f"beyond the noise of single runs only {', '.join(apart)}" if apart else "none beyond the noise of single runs"
        return f"{best} ends lowest at {show(outcome.cells[best].mean['val_loss'], 'loss')}; different from {arms[0]} {words}."
    deltas = {b: outcome.cells[b].mean["val_loss"] - outcome.cells[a].mean["val_loss"] for a, b in itertools.pairwise(arms)}
    if first["steps"] == last["steps"]:
        parts = "; ".join(f"{a.removeprefix('+ ')} {show(d, 'loss_delta')}" for a, d in deltas.items())
        total, ratio = last["val_loss"] - first["val_loss"], last["step_ms"] / first["step_ms"] - 1.0
        return f"At equal steps the loss falls by {show(-total, 'loss')}, and a step takes {settled(100 * ratio):.0f} % longer. {parts}."
    times = {a: outcome.cells[a].mean["train_time_s"] for a in arms}
    ratios = {b: times[b] / times[a] - 1.0 for a, b in itertools.pairwise(arms)}
    most = sorted(ratios, key=lambda a: ratios[a])[:3]
    named = ", ".join(f"{a} ({show(ratios[a], 'percent')})" for a in most)
    share = 100 * times[arms[-1]] / times[arms[0]]
    return f"{arms[-1]} reaches the target in {settled(share):.0f} % of the training time of {arms[0]}; the largest steps are {named}."
