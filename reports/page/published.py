"""The table of a page of published evidence: each row against that above it, or the first.

What was measured once has no deviation of its own; the interval is the noise that many logs of its
era show (reports.inputs.published), turned into time by the slope of loss over steps: a record's
steps were tuned until its loss just met the target. The intervals of a table hold for all its rows
at once (Bonferroni); one that stands alone has 1.96 standard errors.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import NormalDist

from harness.run.plan import Plan
from harness.run.plural import plural
from reports.analysis.arm_columns import ARM_COLUMNS, ArmColumn
from reports.analysis.arm_values import ArmRow
from reports.analysis.headings import Heading
from reports.analysis.types import Comparisons
from reports.inputs.columns import Between, Column
from reports.inputs.experiment import Experiment
from reports.inputs.published import nats_per_log_step
from reports.page.cells import cell_of
from reports.page.verdicts import Head, VerdictRow

OFTEN_MISSED = 0.05  # how often some interval of a table may miss
Z = 1.96  # of one interval alone
LADDER = "published/ladder"  # whose steps were tuned until the loss just met the target
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

    def half_width(self, other: "Logged", z: float = Z) -> float:
        """Half of the interval of a difference of losses; z: standard errors on either side."""
        return z * math.hypot(self.noise, other.noise)


def n_judged(plan: Plan) -> int:
    """Rows with a difference: all but the first."""
    return len(plan.arms) - 1


def z_of_all(plan: Plan) -> float:
    """Standard errors on either side of which all rows' intervals hold at once."""
    return NormalDist().inv_cdf(1.0 - OFTEN_MISSED / (2 * max(n_judged(plan), 1)))


def evidence_notes(plan: Plan) -> list[str]:
    """For what the intervals hold, then the remarks of the page."""
    at_once = (
        f"The intervals of the table hold for its {n_judged(plan)} differences at once (95 %, "
        f"Bonferroni: {z_of_all(plan):.2f} standard errors); one of the first row against the last "
        "or of a whole record stands alone (1.96)."
    )
    return [at_once, *plan.remarks]


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
    z: float  # standard errors on either side of a difference
    is_tuned: bool  # both step counts were tuned to the target loss
    note: str  # what it changed


def rows_as_compared(experiment: Experiment, outcome: Comparisons) -> Iterator[EvidenceRow]:
    """The arms in the plan's order, each with the one that the page sets it against."""
    plan = experiment.plan
    is_tuned, z = experiment.name == LADDER, z_of_all(plan)
    first: Logged | None = None
    above: Logged | None = None
    for arm, logs in logged_arms(plan, outcome).items():
        other = first
        if plan.evidence == "above":
            other = above
        yield EvidenceRow(
            arm=arm,
            outcome=outcome,
            logs=logs,
            other=other,
            z=z,
            is_tuned=is_tuned,
            note=plan.by_arm[arm].note,
        )
        first = first or logs
        above = logs


def evidence_rows(
    experiment: Experiment, outcome: Comparisons, css: Mapping[str, str]
) -> list[VerdictRow]:
    """One row per arm in the plan's order; css: of every arm."""
    rows = []
    headings = evidence_headings(experiment.plan)
    for place, row in enumerate(rows_as_compared(experiment, outcome)):
        cells = []
        for heading in headings:
            cells.append(cell_of(heading.columns, row, heading.css))
        of_arm = css[row.arm]
        rows.append(
            VerdictRow(arm=row.arm, place=place, css=of_arm, baseline=place == 0, cells=cells)
        )
    return rows


def evidence_headings(plan: Plan) -> list["EvidenceHeading"]:
    """The headings of a page; what a row changed where its name does not tell."""
    is_told = any(arm.note for arm in plan.arms)
    return [heading for heading in EVIDENCE_HEADINGS if is_told or heading is not CHANGED]


def evidence_heads(plan: Plan) -> list[Head]:
    other = against(plan)
    heads = []
    for heading in evidence_headings(plan):
        meaning = heading.meaning.format(other=other, n=n_judged(plan))
        if plan.name == LADDER:
            meaning += heading.if_tuned
        heads.append(Head(text=heading.text, css=heading.css, meaning=meaning))
    return heads


def what_it_changed(row: EvidenceRow) -> str | None:
    """In words, where its name does not tell."""
    return row.note or None


def n_logs(row: EvidenceRow) -> tuple[int, str]:
    """Rows of the table of runs, and in words what they are."""
    text = plural(row.logs.n_rows, "log")
    if row.logs.n_logs > row.logs.n_rows:
        text = f"mean of {plural(row.logs.n_logs, 'log')}"
    return row.logs.n_rows, text


def loss_difference(row: EvidenceRow) -> float | None:
    if row.other is None:
        return None
    return row.logs.loss - row.other.loss


def loss_interval(row: EvidenceRow) -> Between | None:
    delta = loss_difference(row)
    if row.other is None or delta is None:
        return None
    half = row.logs.half_width(row.other, row.z)
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
    half = row.logs.half_width(row.other, row.z) / nats_per_log_step()
    return Between(ratio * math.exp(-half) - 1.0, ratio * math.exp(half) - 1.0)


def arm_columns(*keys: str) -> tuple[ArmColumn, ...]:
    """Statistics that any arm has, by key."""
    return tuple(column for column in ARM_COLUMNS if column.key in keys)


@dataclass(frozen=True, kw_only=True)
class EvidenceHeading(Heading):
    """A heading ({other} in its meaning: what a row is compared with), what stands below it."""

    columns: tuple[Column[EvidenceRow], ...]
    if_tuned: str = ""  # what else it means where steps were tuned to the target loss


CHANGED = EvidenceHeading(
    text="what it changed",
    meaning="What the row changed, in our words or the log's.",
    columns=(
        Column(
            key="evidence.change",
            value=what_it_changed,
            format="{}",
            meaning="What the row changed.",
        ),
    ),
    css="words",
)
EVIDENCE_HEADINGS = (
    CHANGED,
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
            "Against {other}; the interval is the noise of single runs of that era, not of these, "
            "and holds for all {n} differences at once."
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
                meaning="Its interval by the noise of single runs, 95 % for all rows at once.",
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
        text="Δ training time",
        meaning="Against {other}, as a ratio.",
        if_tuned=" The interval is the noise of the loss turned into time.",
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
                meaning=(
                    "Its interval where steps were tuned to the target loss, 95 % for all rows "
                    "at once."
                ),
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
