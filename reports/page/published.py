"""The table of a page of published evidence: each row against that above it, or the first.

What was measured once has no deviation of its own; the interval is the noise that many logs of its
era show (reports.inputs.published), 1.96 standard errors for a loss, turned into time by the slope
of loss over steps: a record's steps were tuned until its loss just met the target.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from harness.run.plan import Plan
from reports.analysis.arm_columns import ARM_COLUMNS, ArmColumn
from reports.analysis.arm_values import ArmRow
from reports.analysis.headings import Heading
from reports.analysis.types import Comparisons
from reports.format import plural, show
from reports.inputs.columns import Between, Column
from reports.inputs.experiment import Experiment
from reports.inputs.published import NATS_PER_LOG_STEP
from reports.page.cells import cell_of
from reports.page.verdicts import Head, VerdictRow
from reports.stats.digits import settled

Z = 1.96
AGAINST = {"above": "the row above", "first": "the first row"}


def against(plan: Plan) -> str:
    """What a row is compared with, in words."""
    assert plan.evidence is not None, "only a page of published evidence has such a table"
    return AGAINST[plan.evidence]


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


@dataclass(frozen=True, kw_only=True)
class EvidenceRow(ArmRow):
    """An arm of published evidence, with the arm that it is compared with."""

    logs: Logged
    other: Logged | None
    is_tuned: bool  # both step counts were tuned to the target loss


def rows_as_compared(experiment: Experiment, outcome: Comparisons) -> Iterator[EvidenceRow]:
    """The arms in the plan's order, each with the one that the page sets it against."""
    plan = experiment.plan
    is_tuned = experiment.name == "published/ladder"
    first: Logged | None = None
    above: Logged | None = None
    for arm, logs in logged_arms(plan, outcome).items():
        other = first
        if plan.evidence == "above":
            other = above
        yield EvidenceRow(arm=arm, outcome=outcome, logs=logs, other=other, is_tuned=is_tuned)
        first = first or logs
        above = logs


def evidence_rows(
    experiment: Experiment, outcome: Comparisons, css: Mapping[str, str]
) -> list[VerdictRow]:
    """One row per arm in the plan's order; css: of every arm."""
    rows = []
    for place, row in enumerate(rows_as_compared(experiment, outcome)):
        cells = []
        for heading in EVIDENCE_HEADINGS:
            cells.append(cell_of(heading.columns, row, heading.css))
        of_arm = css[row.arm]
        rows.append(
            VerdictRow(arm=row.arm, place=place, css=of_arm, baseline=place == 0, cells=cells)
        )
    return rows


def evidence_heads(plan: Plan) -> list[Head]:
    other = against(plan)
    heads = []
    for heading in EVIDENCE_HEADINGS:
        meaning = heading.meaning.format(other=other)
        heads.append(Head(text=heading.text, css=heading.css, meaning=meaning))
    return heads


def n_logs(row: EvidenceRow) -> tuple[int, str]:
    """Rows of the table of runs, and in words what they are."""
    text = plural(row.logs.n_rows, "log")
    if row.logs.n_logs > row.logs.n_rows:
        text = f"mean of {row.logs.n_logs} logs"
    return row.logs.n_rows, text


def loss_difference(row: EvidenceRow) -> float | None:
    if row.other is None:
        return None
    return row.logs.loss - row.other.loss


def loss_interval(row: EvidenceRow) -> Between | None:
    delta = loss_difference(row)
    if row.other is None or delta is None:
        return None
    half = row.logs.half_width(row.other)
    return Between(delta - half, delta + half)


def step_difference(row: EvidenceRow) -> float | None:
    if row.other is None:
        return None
    return row.logs.step_ms - row.other.step_ms


def step_change(row: EvidenceRow) -> float | None:
    if row.other is None:
        return None
    return row.logs.step_ms / row.other.step_ms - 1.0


def time_change(row: EvidenceRow) -> float | None:
    if row.other is None:
        return None
    return row.logs.time_s / row.other.time_s - 1.0


def time_interval(row: EvidenceRow) -> Between | None:
    """Of the ratio of times, which has the noise of the losses where steps were tuned to them."""
    if row.other is None or not row.is_tuned:
        return None
    ratio = row.logs.time_s / row.other.time_s
    half = row.logs.half_width(row.other) / NATS_PER_LOG_STEP
    return Between(ratio * math.exp(-half) - 1.0, ratio * math.exp(half) - 1.0)


def arm_columns(*keys: str) -> tuple[ArmColumn, ...]:
    """Statistics that any arm has, by key."""
    return tuple(column for column in ARM_COLUMNS if column.key in keys)


@dataclass(frozen=True, kw_only=True)
class EvidenceHeading(Heading):
    """A heading ({other} in its meaning: what a row is compared with), what stands below it."""

    columns: tuple[Column[EvidenceRow], ...]


EVIDENCE_HEADINGS = (
    EvidenceHeading(
        text="loss",
        meaning=(
            "Final validation loss, nats per token, and the standard deviation where there "
            "are several logs."
        ),
        columns=arm_columns("val_loss.mean", "val_loss.sd"),
    ),
    EvidenceHeading(
        text="Δ loss",
        meaning=(
            "Against {other}; the interval is the noise of single runs of that era, not of these."
        ),
        columns=(
            Column(
                key="evidence.loss",
                value=loss_difference,
                format="{:loss_delta}",
                meaning="Difference of the losses.",
            ),
            Column(
                key="evidence.loss_interval",
                value=loss_interval,
                format="{:loss_delta}",
                meaning="Its 95 % interval by the noise of single runs.",
            ),
        ),
    ),
    EvidenceHeading(
        text="step time, ms",
        meaning="Mean time of a training step as the log prints it, and the number of steps.",
        columns=arm_columns("step_ms.mean", "step_ms.sd", "steps.mean"),
    ),
    EvidenceHeading(
        text="Δ step time",
        meaning="Against {other}, in milliseconds and percent.",
        columns=(
            Column(
                key="evidence.step",
                value=step_difference,
                format="{:ms_delta} ms",
                meaning="Difference of the step times.",
            ),
            Column(
                key="evidence.step_ratio",
                value=step_change,
                format="{:percent}",
                meaning="The same in percent.",
            ),
        ),
    ),
    EvidenceHeading(
        text="training time, s",
        meaning="The training clock of the logs: validation excluded, the first 10 steps untimed.",
        columns=arm_columns("train_time_s.mean"),
    ),
    EvidenceHeading(
        text="Δ time",
        meaning=(
            "Against {other}, as a ratio; the interval is the noise of the loss turned into time."
        ),
        columns=(
            Column(
                key="evidence.time",
                value=time_change,
                format="{:percent}",
                meaning="Change of the training time.",
            ),
            Column(
                key="evidence.time_interval",
                value=time_interval,
                format="{:percent}",
                meaning="Its 95 % interval, where steps were tuned to the target loss.",
            ),
        ),
    ),
    EvidenceHeading(
        text="runs",
        meaning="Logs that the row is made of.",
        columns=(
            Column(
                key="n.finished",
                value=n_logs,
                format="{1}",
                meaning="Logs that the row is made of.",
            ),
        ),
        css="count",
    ),
)


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
    named = "none beyond the noise of single runs"
    if apart:
        named = f"beyond the noise of single runs only {', '.join(apart)}"
    return (
        f"{best} ends lowest at {show(logged[best].loss, 'loss')}; different from {first} {named}."
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
