"""The cells of the verdict table: nothing is computed here, declared statistics are put into words.

Every printed number is a Part with a key; the page carries its value with more digits beside
the text, so that `ablate verify` can recompute it.  Keys are `arm / metric.what`, unique within one
experiment.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.run.plural import plural
from reports.analysis.types import Comparison
from reports.format import interval, show
from reports.inputs.columns import Between, Column, RowT
from reports.stats.digits import kept, kept_p

METRIC_WORDS = {
    "val_loss": "validation loss",
    "heldout_loss": "held-out loss",
    "step_ms": "step time",
    "train_time_s": "training time",
    "time_to_target": "time to target",
}
TONES = {"helps": "good", "hurts": "bad", "equal": "even", "undecided": "open", "none": "open"}


def metric_words(metric: str) -> str:
    """A metric in words; one of a script's own by its name."""
    return METRIC_WORDS.get(metric, metric)


@dataclass(frozen=True, kw_only=True)
class Part:
    """One printed piece of a cell: its text and the values it was made from, () for words."""

    text: str
    key: str
    values: tuple[float | None, ...] = ()

    @property
    def v(self) -> str | None:
        """The values as the page carries them: comma-separated, empty where unknown."""
        if not self.values:
            return None
        return ",".join(self.written(value) for value in self.values)

    def written(self, value: float | None) -> str:
        if value is None:
            return ""
        rounded = kept(value)
        if self.key.endswith(".p"):
            rounded = kept_p(value)
        return repr(float(rounded or 0.0))


@dataclass(frozen=True, kw_only=True)
class VerdictCell:
    """One cell: the first part large, the others small below it; `tone` colours a verdict."""

    parts: tuple[Part, ...] = ()
    css: str = ""
    tone: str = ""


EMPTY = VerdictCell(css="num")


def number(key: str, kind: str, *values: float | None) -> Part:
    """One value, or with two the interval between them."""
    printed = show(values[0], kind)
    if len(values) == 2:
        printed = interval(values[0], values[1], kind)
    return Part(text=printed, key=key, values=values)


def words(key: str, text: str) -> Part:
    return Part(text=text, key=key)


def said(parts: Sequence[Part]) -> tuple[Part, ...]:
    """The parts that have something to say."""
    return tuple(part for part in parts if part.text)


class Written:
    """A value that Python's format language writes by a kind of reports/format.py."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __format__(self, kind: str) -> str:
        if isinstance(self.value, Between):
            return interval(self.value.low, self.value.high, kind)
        if kind:
            return show(self.value, kind)
        return str(self.value)


def carried(values: Sequence[Any]) -> tuple[float | None, ...]:
    """The numbers among values, the ends of intervals one by one."""
    numbers: list[float | None] = []
    for value in values:
        if isinstance(value, Between):
            numbers += value
        elif not isinstance(value, str):
            numbers.append(value)
    return tuple(numbers)


def part_of(column: Column[RowT], row: RowT) -> Part | None:
    """What is printed of a statistic; None where the row has none."""
    value = column.of(row)
    if value is None or (column.hides_zero and value == 0):
        return None
    values = (value,)
    if type(value) is tuple:
        values = value
    text = column.format.format(*map(Written, values))
    if isinstance(value, Between) and not text:
        if value == (None, None):
            return None
        return words(column.key, "interval still unbounded")
    return Part(text=text, key=column.key, values=carried(values))


def cell_of(columns: Sequence[Column[RowT]], row: RowT, css: str) -> VerdictCell:
    """The statistics below one heading; css: of a cell that is not empty."""
    printed = [part_of(column, row) for column in columns]
    parts = tuple(part for part in printed if part is not None)
    if not parts:
        return EMPTY
    return VerdictCell(parts=parts, css=css)


def typed(action: str, experiment: str) -> str:
    """A next step with its command as it is typed: the experiment in it, set as code."""
    asked = re.compile(r"ablate confirm( --detect [^\s:]+)?")
    return asked.sub(lambda match: f"`ablate confirm {experiment}{match[1] or ''}`", action)


def verdict_cell(c: Comparison | None, n_waiting: int, next_step: str = "") -> VerdictCell:
    """The verdict, whether it is exploratory, what is still to come and what to do next."""
    to_come = ""
    if n_waiting:
        to_come = f"unfinished: {plural(n_waiting, 'run')} to come"
    waiting = words("unfinished", to_come)
    if c is None:
        nothing = words("verdict", "no result yet")
        return VerdictCell(parts=said([nothing, waiting]), css="words", tone="open")
    parts = [words("verdict", c.verdict)]
    if c.exploratory and c.kind in ("helps", "hurts"):
        parts.append(words("exploratory", "exploratory"))
    parts.append(waiting)
    parts.append(words("next_action", next_step))
    return VerdictCell(parts=said(parts), css="words", tone=TONES[c.kind])
