"""The page of harness/bench/gpu_check.py: one HTML file without anything from elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from harness.run.document import Cells

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
body { color: #222; }
table { border-collapse: collapse; margin: .5rem 0 1.5rem; }
td, th { padding: .2rem .8rem .2rem 0; text-align: left; }
th { border-bottom: 1px solid #999; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
.failed, .error { color: #a40000; font-weight: 600; } .passed { color: #14641b; }
"""
SUMMARY = ("check", "preset", "status", "seconds", "reason")  # of a row, without its figures


CheckFigures = dict[str, Any]  # of a check, in gpu-check.json; with "passed" where it has a bound


@dataclass(frozen=True, kw_only=True)
class CheckRow:
    """How a check of one preset ended; its fields are the keys of a row in gpu-check.json."""

    check: str
    preset: str
    status: str  # passed, failed, error or not run
    seconds: float = 0.0
    reason: str | None = None
    figures: CheckFigures = field(default_factory=dict)

    @property
    def is_bad(self) -> bool:
        """Whether the machine may not be accepted with it."""
        return self.status in ("failed", "error")

    @property
    def exception(self) -> str | None:
        """What is not known of the machine for want of it: one GPU has nothing to gather."""
        nothing_to_do = self.check == "gather" and "skipped" in self.figures
        if self.status != "not run" or nothing_to_do:
            return None
        return f"{self.check} {self.preset} ({self.reason})"


@dataclass(frozen=True, kw_only=True)
class GpuCheck:
    """gpu-check.json."""

    schema: int = 2
    dry_run: bool
    passed: bool  # no check failed
    excepted: Sequence[str]  # what was not run, and why
    wall_s: float
    environment: CheckFigures  # versions and GPUs of the machine
    presets: Sequence[str]
    checks: Sequence[CheckRow]

    @property
    def verdict(self) -> str:
        """The machine's, in words."""
        if not self.passed:
            return "FAILED"
        if self.excepted:
            return f"accepted, except: {', '.join(self.excepted)}"
        return "accepted"


def text(value: Any) -> str:
    """A cell: numbers short, nothing as a dash."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}"
    return escape(", ".join(map(text, value)) if isinstance(value, list) else str(value))


def cell(value: Any) -> str:
    """A cell of a table; numbers stand to the right."""
    if isinstance(value, int | float):
        return f'<td class="number">{text(value)}</td>'
    return f"<td>{text(value)}</td>"


def table(rows: Sequence[Cells]) -> str:
    """A table with a column for every key of its rows."""
    columns: dict[str, None] = {}
    for row in rows:
        columns.update(dict.fromkeys(row))
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = ""
    for row in rows:
        cells = "".join(cell(row.get(column)) for column in columns)
        body += f"<tr>{cells}</tr>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def section(row: CheckRow) -> str:
    """One check: its status, its figures, and the lists among them as tables."""
    figures = row.figures
    single: list[Cells] = []
    tables: list[str] = []
    for name, value in figures.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            tables.append(table(value))
        elif name != "passed":
            single.append({"figure": name, "value": value})
    if single:
        tables.insert(0, table(single))
    reason = f" {escape(row.reason)}" if row.reason else ""
    kind = row.status.replace(" ", "-")
    return (
        f"<h2>{escape(row.check)} {escape(row.preset)}: <span"
        f' class="{kind}">{row.status}</span></h2>'
        f"<p>{row.seconds:.1f} s{reason}</p>" + "".join(tables)
    )


def page(result: GpuCheck) -> str:
    """The whole page of a result."""
    title = "GPU check"
    if result.dry_run:
        title += " (dry run: tiny sizes on a CPU, the figures mean nothing)"
    kind = "passed" if result.passed else "failed"
    summary = []
    for row in result.checks:
        summary.append({key: getattr(row, key) for key in SUMMARY})
    machine = [{"what": key, "found": value} for key, value in result.environment.items()]
    return (
        '<!doctype html><html lang="en"><meta'
        f' charset="utf-8"><title>{title}</title><style>{STYLE}</style><h1>{title}</h1><p>All'
        f' checks: <span class="{kind}">{escape(result.verdict)}</span>, {result.wall_s:.0f} s</p>'
        + table(machine)
        + table(summary)
        + "".join(map(section, result.checks))
        + "</html>\n"
    )
