"""The page of a history: a row a record, with what it says and what would settle it."""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path

import jinja2

from reports.analysis.chain import PRICE_PER_GPU_HOUR, ChainRow, ChainVerdict, Gain
from reports.inputs.files import write_page
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
    results: Path | None = None,
) -> Path:
    """The page of one or several chains; returns out.

    title: its heading. command: what makes it again. results: the folder of results."""
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
        tracks=tracks,
        noise=noise,
        price=PRICE_PER_GPU_HOUR,
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
    found = dict.fromkeys((str(verdict) for verdict in ChainVerdict), 0)
    for row in rows:
        found[str(row.verdict)] += 1
    return found


def cells(row: ChainRow) -> dict[str, str]:
    """What is printed of a record."""
    link, arm, parent = row.link, row.arm, row.parent
    unit = " steps" if link.by_steps else " s"
    shown = {
        "anchor": f"{link.track}-{link.record}",
        "record": link.record,
        "date": link.date,
        "arm": link.arm or "none",
        "parent": link.parent or "none",
        "beside": "beside it" if link.beside else "before it",
        "n": "" if arm is None else str(arm.n),
        "n_parent": "" if parent is None else str(parent.n),
        "mean": "",
        "sd": "",
        "steps": "",
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
    }
    if arm is not None and arm.n > 0:
        shown["mean"] = f"{arm.losses.mean():.4f}"
    if arm is not None and arm.n > 1:
        shown["sd"] = f"{arm.losses.std(ddof=1):.4f}"
    if arm is not None and parent is not None:
        shown["steps"] = f"{parent.steps} to {arm.steps}"
    return shown


def _changed(row: ChainRow) -> str:
    """What is known to differ: the steps and the environment; the code always does."""
    arm, parent = row.arm, row.parent
    if arm is None or parent is None:
        return ""
    parts = ["code"]
    if arm.steps != parent.steps:
        parts.append(f"steps {parent.steps} to {arm.steps}")
    if row.environment is not None:
        parts.append(row.environment)
    return "; ".join(parts)


def _settling_words(row: ChainRow) -> str:
    needed = row.settling
    if needed is None:
        return ""
    runs = f"{needed.runs} runs, both arms in turn on one node"
    if math.isnan(needed.gpu_hours):
        return runs
    return f"{runs}: {needed.gpu_hours:.1f} GPU-hours, ${needed.price:.0f}"


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
        return f"{text} %"
    low, high = 100 * math.expm1(gain.low), 100 * math.expm1(gain.high)
    return f"{text} [{_signed(low, 1)}, {_signed(high, 1)}] %"
