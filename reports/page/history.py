"""The page of a history: a row a record, with what it says and what would settle it."""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path

import jinja2

from harness.run.plural import plural
from reports.analysis.chain import (
    COMPILE_MINUTES,
    PRICE_PER_GPU_HOUR,
    ChainRow,
    ChainVerdict,
    Gain,
)
from reports.inputs.files import write_page
from reports.inputs.history import ArmFigures
from reports.inputs.noise import BenchmarkNoise

TITLES = {
    "short": "Short track",
    "medium": "Medium track",
    "optimization": "Optimization track",
}
MINUS = "\N{MINUS SIGN}"


def write_history(
    chains: Mapping[str, Sequence[ChainRow]],
    noise: BenchmarkNoise,
    out: Path,
    *,
    title: str,
    command: str,
    about: str = "",
    results: Path | None = None,
) -> Path:
    """The page of one or several chains; returns out.

    title: its heading. command: what makes it again. about: what it tells, in a sentence.
    results: the folder of results."""
    tracks = []
    for name, rows in chains.items():
        tracks.append(
            {
                "name": name,
                "title": TITLES.get(name, name),
                "counts": counts(rows),
                "rows": [cells(row) for row in rows],
            }
        )
    text = _template().render(
        title=title,
        command=command,
        about=about,
        tracks=tracks,
        noise=noise,
        price=PRICE_PER_GPU_HOUR,
        compile_minutes=COMPILE_MINUTES,
        css=resources.files("reports.page").joinpath("templates/report.css").read_text("utf-8"),
    )
    return write_page(out, text, results=results)


@cache
def _template() -> jinja2.Template:
    source = resources.files("reports.page").joinpath("templates/history.html.j2")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(source.read_text("utf-8"))


def counts(rows: Sequence[ChainRow]) -> dict[str, int]:
    """How many records have each verdict."""
    n_of = dict.fromkeys((str(verdict) for verdict in ChainVerdict), 0)
    for row in rows:
        n_of[str(row.verdict)] += 1
    return n_of


def cells(row: ChainRow) -> dict[str, str]:
    """What is printed of a record."""
    link, arm, parent = row.link, row.arm, row.parent
    unit = " steps" if link.by_steps else " s"
    shown = {
        "anchor": f"{link.track}-{link.record}",
        "subject": link.subject,
        "record": link.record,
        "date": link.date,
        "arm": link.arm or "no log",
        "parent": link.parent or "none",
        "beside": "beside it" if link.beside else "before it",
        "n": _n_words(arm, parent),
        "mean": "",
        "sd": "",
        "loss": _gain(row.loss, 4),
        "time": _gain(row.time_s, 1),
        "learning": _gain_percent(row.learning),
        "systems": _gain_percent(row.systems),
        "total": _gain_percent(row.total),
        "published": "" if link.published is None else f"{link.published:g}{unit}",
        "published_delta": _signed(link.published_delta, 1),
        "verdict": str(row.verdict),
        "why": row.why,
        "changed": _changed(row),
        "settling": _settling_words(row),
        "printed": _printed_words(row),
    }
    if arm is not None and arm.n > 0:
        shown["mean"] = f"{arm.losses.mean():.4f}"
    if arm is not None and arm.n > 1:
        shown["sd"] = f"{arm.losses.std(ddof=1):.4f}"
    return shown


def _n_words(arm: ArmFigures | None, parent: ArmFigures | None) -> str:
    if arm is None or parent is None:
        return "" if arm is None else str(arm.n)
    return f"{arm.n} against {parent.n}"


def _changed(row: ChainRow) -> str:
    """What is known to differ beside the code: the steps and the environment."""
    arm, parent = row.arm, row.parent
    if arm is None or parent is None:
        return ""
    parts = []
    if arm.steps != parent.steps:
        parts.append(f"steps {parent.steps} to {arm.steps}")
    if row.environment is not None:
        parts.append(row.environment)
    return "; ".join(parts)


def _printed_words(row: ChainRow) -> str:
    """The losses that the record's own page prints, beside those of its logs."""
    arm, parent = row.arm, row.parent
    if arm is None or arm.printed is None:
        return ""
    printed = arm.printed
    text = f"its page prints {printed.n}, mean {printed.mean:.4f}"
    if printed.n_in_logs < printed.n:
        text += f" ({printed.n_in_logs} of them in the logs)"
    if parent is not None and parent.printed is not None:
        text += f", {_signed(printed.mean - parent.printed.mean, 4)} to its parent's"
    return text


def _settling_words(row: ChainRow) -> str:
    needed = row.settling
    if needed is None:
        return ""
    runs = f"{plural(needed.runs, 'run')}, both arms in turn on one node"
    if math.isnan(needed.gpu_hours):
        return f"{runs}; no times in the logs, so no price"
    digits = 1 if needed.gpu_hours < 100 else 0
    return (
        f"{runs}: {needed.gpu_hours:.{digits}f} GPU-hours of training and {needed.compiling:.1f} "
        f"of compilation, ${needed.price:.0f}"
    )


def _signed(value: float | None, digits: int) -> str:
    if value is None or math.isnan(value):
        return ""
    return f"{value:+.{digits}f}".replace("-", MINUS)


def _gain(gain: Gain | None, digits: int) -> str:
    if gain is None:
        return ""
    text = _signed(gain.value, digits)
    if gain.low is None or gain.high is None:
        return text
    return f"{text} [{_signed(gain.low, digits)}, {_signed(gain.high, digits)}]"


def _gain_percent(gain: Gain | None) -> str:
    if gain is None:
        return ""
    text = _signed(100 * math.expm1(gain.value), 1)
    if gain.low is None or gain.high is None:
        return text
    low, high = 100 * math.expm1(gain.low), 100 * math.expm1(gain.high)
    return f"{text} [{_signed(low, 1)}, {_signed(high, 1)}]"
