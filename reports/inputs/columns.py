"""A statistic is declared once, as a Column; whatever prints or writes it reads the declaration.

Of a run: reports/inputs/run_columns.py; of an arm: reports/analysis/arm_columns.py; of a
comparison: reports/analysis/comparison_columns.py. The page, the command line, the exports and
docs/columns.md show what is declared there; `ablate verify` alone has a path of its own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from harness.run.document import Cells

RowT = TypeVar("RowT", contravariant=True)


class Between(NamedTuple):
    """The ends of an interval; one that is not finite is unbounded."""

    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True)
class Column(Generic[RowT]):
    """A statistic of a row: what it is called, how it is computed and written, what it means.

    A value is None where the row has none: then nothing is printed. A tuple is several values that
    are written as one text.
    """

    key: str  # of what the page prints
    meaning: str
    value: Callable[[RowT], Any] | None = None  # None: the row's own field `key`
    format: str = ""  # on the page, with kinds of reports/format.py: 'sd {:sd}'; '': not there
    head: str = ""  # the heading on the page that it stands below
    place: int = 0  # on the page: the lower ones come first, equal ones as they are declared
    is_always_shown: bool = False  # on the page, if it says nothing too
    json_name: str | None = None  # in JSON, CSV and the terminal; None: on the page alone
    in_terminal: bool = False
    hides_zero: bool = False  # on the page
    is_nested: bool = False  # a list or a mapping that JSON alone can hold

    def of(self, row: RowT) -> Any:
        """The statistic of a row."""
        if self.value is None:
            return getattr(row, self.key)
        return self.value(row)


def json_row(columns: Sequence[Column[RowT]], row: RowT) -> Cells:
    """A row as JSON holds it."""
    values = {}
    for column in columns:
        if column.json_name is not None:
            values[column.json_name] = column.of(row)
    return values


def flat_row(columns: Sequence[Column[RowT]], row: RowT) -> Cells:
    """A row as a table holds it: without nested values, names of a list as one text."""
    values = json_row([column for column in columns if not column.is_nested], row)
    for name, value in values.items():
        if isinstance(value, list):
            values[name] = " ".join(value)
    return values


def terminal_names(columns: Sequence[Column[Any]]) -> list[str]:
    """What the terminal shows of JSON's rows."""
    return [str(column.json_name) for column in columns if column.in_terminal]
