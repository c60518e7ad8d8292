"""A table beside the verdicts, and the cells that hold numbers with their intervals."""

from collections.abc import Sequence
from dataclasses import dataclass

from reports.analysis.judges import Share
from reports.format import interval, show
from reports.page.tables import TableCell
from reports.stats.digits import kept

BLANK = TableCell(text="", css="num")
StudyRow = tuple[str, Sequence[TableCell]]  # its name, its cells


@dataclass(frozen=True, kw_only=True)
class Study:
    """One table: its title, what it means, its heads after the first column, its rows."""

    key: str
    title: str
    lead: str
    first: str
    heads: Sequence[str]
    rows: Sequence[StudyRow]

    def is_number(self, column: int) -> bool:
        return all(cells[column].css == "num" for _, cells in self.rows)


def unknown(kind: str) -> TableCell:
    return TableCell(text=show(None, kind), css="num")


def share_cell(share: Share | None, kind: str) -> TableCell:
    """A number with its interval."""
    if share is None:
        return unknown(kind)
    printed = f"{show(share.value, kind)} {interval(share.low, share.high, kind)}"
    carried = ",".join(map(carried_end, (share.value, share.low, share.high)))
    if share.is_extrapolated:
        printed += " extrapolated"
    return TableCell(text=printed.strip(), v=carried, css="num")


def carried_end(value: float | None) -> str:
    """A number as a page carries it; '' for none."""
    rounded = kept(value)
    if rounded is None:
        return ""
    return repr(rounded)
