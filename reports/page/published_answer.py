"""The headline of a page of published evidence: the answer with intervals, and which hold zero."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reports.analysis.types import Comparisons
from reports.format import show, with_interval
from reports.inputs.columns import Between
from reports.inputs.experiment import Experiment
from reports.inputs.published import nats_per_log_step, predecessor, published_record
from reports.page.naming import listing, verb_for
from reports.page.published import (
    EvidenceRow,
    Z,
    loss_difference,
    loss_interval,
    rows_as_compared,
    time_change,
    time_interval,
)
from reports.stats.digits import settled
from reports.stats.rules import TARGET

NAMED_STEPS = 3  # steps of a ladder that its headline names
NAMED_PARTS = 5  # parts of a record


@dataclass(frozen=True, kw_only=True)
class NoisyDifference:
    """A row's difference to the one that it is held against, with the noise of single runs."""

    arm: str
    kind: str  # how the number is written
    value: float
    low: float
    high: float

    @property
    def is_apart(self) -> bool:
        """Whether its interval leaves zero out."""
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        return f"{self.arm} ({with_interval(self.value, self.low, self.high, self.kind)})"


def in_loss(rows: Sequence[EvidenceRow]) -> list[NoisyDifference]:
    """The rows' differences in loss, where they have one."""
    return noisy_differences(rows, "loss_delta", loss_difference, loss_interval)


def in_time(rows: Sequence[EvidenceRow]) -> list[NoisyDifference]:
    """The same in training time, of rows that were tuned to the target loss."""
    return noisy_differences(rows, "percent", time_change, time_interval)


def noisy_differences(
    rows: Sequence[EvidenceRow],
    kind: str,
    value_of: Callable[[EvidenceRow], float | None],
    ends_of: Callable[[EvidenceRow], Between | None],
) -> list[NoisyDifference]:
    """Those of the rows that have one, by how the number is written."""
    differences = []
    for row in rows:
        value, ends, name = value_of(row), ends_of(row), row.arm.removeprefix("+ ")
        if value is not None and ends is not None:
            low, high = float(ends.low or 0.0), float(ends.high or 0.0)
            differences.append(
                NoisyDifference(arm=name, kind=kind, value=value, low=low, high=high)
            )
    return differences


def evidence_answer(experiment: Experiment, outcome: Comparisons) -> str:
    """From the first row to the last, the parts, and what the noise of single runs leaves open."""
    rows = [*rows_as_compared(experiment, outcome)]
    if experiment.plan.evidence == "first":
        return against_the_first(rows)
    if rows[0].is_tuned:
        return times_to_target(rows)
    record = experiment.name.removeprefix("published/").removesuffix("_ladder")
    return f"{losses_at_equal_steps(rows)} {whole_record(record)}"


def by_size(differences: Sequence[NoisyDifference]) -> str:
    """The differences as a sentence has them, the largest first."""
    ordered = sorted(differences, key=lambda d: -abs(d.value))
    return listing([str(d) for d in ordered], most=NAMED_PARTS)


def told_apart(differences: Sequence[NoisyDifference], verbs: tuple[str, str]) -> str:
    """Which of them are below zero, which above, and whose interval holds it.

    verbs: of a row below, and of one above; {s} stands for the ending of the singular.
    """
    below = [d for d in differences if d.is_apart and d.value < 0]
    above = [d for d in differences if d.is_apart and d.value > 0]
    close = [d for d in differences if not d.is_apart]
    clauses = []
    for told, verb in zip((below, above), verbs, strict=True):
        if told:
            ending = verb_for([d.arm for d in told], "s", "")
            clauses.append(f"{by_size(told)} {verb.format(s=ending)}")
    if close:
        clauses.append(holding_zero(close))
    return "; ".join(clauses)


def holding_zero(close: Sequence[NoisyDifference]) -> str:
    """Whose intervals hold zero."""
    arms = [d.arm for d in close]
    noun, verb = verb_for(arms, "interval", "intervals"), verb_for(arms, "holds", "hold")
    return f"the {noun} of {by_size(close)} {verb} zero"


def against_the_first(rows: Sequence[EvidenceRow]) -> str:
    """Which rows end apart from the first, which cannot be told from it, and at what price."""
    first, lowest = rows[0], min(rows, key=lambda row: row.logs.loss)
    clauses = told_apart(in_loss(rows), ("end{s} lower", "end{s} higher"))
    steps = f"{first.logs.mean['steps']:.0f} steps"
    text = f"In loss (nats per token) after {steps}, against {first.arm}: {clauses}."
    change = time_change(lowest)
    if change is None:
        return text
    more = "more"
    if change < 0:
        more = "less"
    by = show(abs(lowest.logs.loss - first.logs.loss), "loss")
    percents = show(abs(change), "percent").removeprefix("+")
    return f"{text} {lowest.arm}, the lowest by {by}, took {percents} {more} training time."


def losses_at_equal_steps(rows: Sequence[EvidenceRow]) -> str:
    """What all parts do together, which of them do, and what they cost a step."""
    first, last = rows[0].logs, rows[-1].logs
    total, half = last.loss - first.loss, last.half_width(first)
    ratio = last.step_ms / first.step_ms - 1.0
    return (
        f"After {last.mean['steps']:.0f} steps all parts together change the loss (nats per token) "
        f"by {with_interval(total, total - half, total + half, 'loss_delta')}, at "
        f"{settled(100 * ratio):.0f} % more time a step. {parts_on_top(in_loss(rows))}."
    )


def parts_on_top(parts: Sequence[NoisyDifference]) -> str:
    """What every part adds to those above it, and that none can be told from noise."""
    told = told_apart(parts, ("lower{s} it", "raise{s} it"))
    if any(part.is_apart for part in parts):
        return f"Each on top of those above it, {told}"
    return (
        "No single part, each on top of those above it, can be told from the noise of single runs"
        " by 95 % intervals that hold for all rows at once, wider than that of all together:"
        f" {told}"
    )


def whole_record(record: str) -> str:
    """What the record took to the target, and the one before it."""
    now, before = published_record(record), published_record(predecessor(record))
    change = now.time_s / before.time_s - 1.0
    half = Z * math.hypot(now.log_time_se, before.log_time_se)
    low, high = (1.0 + change) * math.exp(-half) - 1.0, (1.0 + change) * math.exp(half) - 1.0
    return (
        f"To the target of {TARGET:g} {record} took {show(now.time_s, 's')} s ({now.steps} steps), "
        f"{before.record} {show(before.time_s, 's')} s ({before.steps} steps): "
        f"{with_interval(change, low, high, 'percent')}."
    )


def times_to_target(rows: Sequence[EvidenceRow]) -> str:
    """The share that is left of the first row's time, the largest steps, and the open ones."""
    first, last = rows[0], rows[-1]
    share = last.logs.time_s / first.logs.time_s
    half = last.logs.half_width(first.logs) / nats_per_log_step()
    ends = ", ".join(f"{settled(100 * share * math.exp(sign * half)):.0f}" for sign in (-1, 1))
    steps = in_time(rows)
    largest = sorted(steps, key=lambda d: d.value)[:NAMED_STEPS]
    close = [d for d in steps if not d.is_apart]
    text = (
        f"{last.arm} reaches the target in {settled(100 * share):.0f} % [{ends}] of the training "
        f"time of {first.arm}. Against the one before, the largest steps are {by_size(largest)}"
    )
    if not close:
        return f"{text}; no interval of the {len(steps)} holds zero."
    return f"{text}; of all {len(steps)} {holding_zero(close)}."
