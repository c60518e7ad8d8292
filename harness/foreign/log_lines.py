"""The lines of the public benchmark's logs, all eras, as tables of patterns.

    step:125/6200 val_loss:5.2017 train_time:24564ms step_avg:213.60ms     since record 3
    s:128 tel:6.0344      s:129 trl:6.1                                    before

Since record 3 any of the words may be missing. Before, tel is a validation, trl a training loss,
and there are no times. Another format is one more row of LINE_FORMATS.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from harness.run.typed import FARTHEST

MEASURED = frozenset((b"val_loss", b"train_loss", b"train_time", b"tel", b"trl"))
LINE_LIMIT = 1 << 16  # bytes: a longer line is no line of a log
MAX_SHOWN = 40  # characters of a text that is no number
SEPARATOR = re.compile(rb"={20,}\s*$")
CODE = re.compile(
    rb"(?:import \w|from [\w.]+ import |(?:async )?def \w+\(|class \w+\s*[(:]|if __name__ ?=="
    rb"|with open\(|@\w|#!)"
)

PointKind = Literal["val", "train", "time"]


@dataclass(frozen=True, kw_only=True)
class LineFormat:
    """How one era writes a measurement.

    pattern: with the groups step, kind and loss, and, where the era has them, total (steps of the
    run), time and average (per step), each with its unit, ms or s, in a group of its own
    (time_unit, average_unit): a time without one is not taken. kinds: the era's word for a loss ->
    its kind.
    """

    start: bytes  # of every such line
    pattern: re.Pattern[bytes]
    kinds: Mapping[bytes, PointKind]


LINE_FORMATS = (
    LineFormat(
        start=b"step:",
        pattern=re.compile(
            rb"step:(?P<step>\d{1,9})/(?P<total>\d{1,9})"
            rb"(?: (?P<kind>val|train)_loss:(?P<loss>\S{1,40}))?"
            rb"(?: train_time:(?P<time>\S{1,40}?)(?P<time_unit>m?s))?"
            rb"(?: step_avg:(?P<average>\S{1,40}?)(?P<average_unit>m?s))?"
            rb"(?: (?!train_time:|step_avg:|val_loss:|train_loss:)[a-z_]{1,40}:\S{1,40})*\s*$"
        ),
        kinds={b"val": "val", b"train": "train"},
    ),
    LineFormat(
        start=b"s:",
        pattern=re.compile(rb"s:(?P<step>\d{1,9})[ \t]+(?P<kind>tel|trl):(?P<loss>\S{1,40})\s*$"),
        kinds={b"tel": "val", b"trl": "train"},
    ),
)
POINT_STARTS = tuple(era.start for era in LINE_FORMATS)
MEASUREMENT = re.compile(rb"step:\d{1,9}/\d{1,9} ")
TIME = re.compile(rb"\s(?P<word>train_time|step_avg):(?P<text>\S{0,40})(?=\s|$)")
UNIT = re.compile(rb"[a-zA-Z\xb5\xc2\xce\xbc]+$")
NO_NUMBER = (b"nan", b"inf")
UNITS_MS = {b"ms": 1.0, b"s": 1000.0}
FACT_STARTS = (b"Running", b"peak", b"|", b"Using seed", b"seed", b"Seed", b"SEED")
MEMORY = {
    "peak_allocated_mib": re.compile(rb"peak memory (?:allocated|consumption): (\d{1,9}) MiB"),
    "peak_reserved_mib": re.compile(rb"peak memory .{0,60}reserved: (\d{1,9}) MiB"),
}
VERSIONS = {
    "python": re.compile(rb"Running python (\d[\w.+]*)", re.IGNORECASE),
    "torch": re.compile(rb"Running pytorch (\d[\w.+]*)", re.IGNORECASE),
    "cuda": re.compile(rb"Running pytorch .{0,100}compiled for CUDA (\d[\w.]*)", re.IGNORECASE),
    "triton": re.compile(rb"Running triton version (\d[\w.+]*)", re.IGNORECASE),
    "driver": re.compile(rb"\| NVIDIA-SMI .{0,60}Driver Version: (\d[\w.]*)"),
}
SEED = re.compile(rb"(?:Using )?seed ?[:=] ?(\d{1,18})\b", re.IGNORECASE)
# rows of nvidia-smi's table
GPU_MEMORY = re.compile(rb"\|.{0,60}/\s*(\d{3,9})MiB \|")
GPU = re.compile(rb"\|\s+\d{1,3}\s+([A-Z][\w \-/.]{0,60}?)\s+(?:On|Off|N/A)\s*\|")


class LogError(ValueError):
    """Why a log is not taken, in words that follow its name."""


class LogPoint(NamedTuple):
    """One measurement of the log proper; None where its line does not say."""

    kind: PointKind
    step: int
    total: int | None  # steps of the run
    loss: float  # nan where the line has none
    train_time_s: float | None
    step_ms: float | None


def read_point(line: bytes) -> LogPoint | None:
    """The point that a line holds, None if it is another line.

    Raises LogError where its numbers are none."""
    for era in LINE_FORMATS:
        match = era.pattern.match(line)
        if match is not None:
            return _point(match.groupdict(), era.kinds)
    if MEASUREMENT.match(line):
        for time in TIME.finditer(line):
            _check_unit(time["word"].decode(), time["text"])
    return None


def _check_unit(word: str, text: bytes) -> None:
    """Raises LogError for a time that is not in ms or s: it is never dropped."""
    unit = UNIT.search(text)
    if unit is None or unit[0] in NO_NUMBER:
        raise LogError(f"the {word} {_shown(text)} has no unit: its line is cut")
    if unit[0].lower().removeprefix(b"nan").removeprefix(b"inf") not in UNITS_MS:
        raise LogError(f"the {word} {_shown(text)} has a unit that is not understood: ms or s")


class Shape(NamedTuple):
    """How a measurement's line is written: its words, and how the last number ends."""

    words: tuple[bytes, ...]
    has_unit: bool  # a number with its unit was printed whole
    n_decimals: int


def shape_of(line: bytes) -> Shape | None:
    """How a line is written; None where it holds no measurement."""
    names = []
    text = b""
    for word in line.split()[1:]:
        name, colon, text = word.partition(b":")
        if not colon:
            return None
        names.append(name)
    if not MEASURED.intersection(names):
        return None
    number = text.rstrip(b"ms")
    _, _, decimals = number.partition(b".")
    return Shape(
        words=tuple(names),
        has_unit=text.removeprefix(number) in UNITS_MS,
        n_decimals=len(decimals),
    )


def _point(groups: Mapping[str, bytes | None], kinds: Mapping[bytes, PointKind]) -> LogPoint | None:
    word, loss = groups["kind"], groups["loss"]
    total, time = groups.get("total"), groups.get("time")
    if word is None and time is None:
        return None
    assert groups["step"] is not None
    time_ms = _milliseconds(time, groups.get("time_unit"))
    step_ms = _milliseconds(groups.get("average"), groups.get("average_unit"))
    kind: PointKind = "time"
    value = math.nan
    if word is not None and loss is not None:
        kind = kinds[word]
        value = loss_of(loss)
    return LogPoint(
        kind=kind,
        step=int(groups["step"]),
        total=int(total or 0) or None,  # step:50/0: a script that does not tell its length
        loss=value,
        train_time_s=None if time_ms is None else time_ms / 1000,
        step_ms=step_ms,
    )


def number_of(text: str, what: str) -> float:
    """A number as a script printed it; raises LogError for what is none, or too far."""
    try:
        value = float(text)
    except ValueError:
        raise LogError(f"the {what} {text[:MAX_SHOWN]!r} is not a number") from None
    _check_far(value, f"the {what} {text[:MAX_SHOWN]!r}")
    return value


def loss_of(text: bytes) -> float:
    """A loss as a script printed it; raises LogError for what is none."""
    try:
        value = float(text)
    except ValueError:
        raise LogError(f"the loss {_shown(text)} is not a number") from None
    if value <= 0:
        raise LogError(f"the loss {_shown(text)} is impossible: cross entropy is above zero")
    _check_far(value, f"the loss {_shown(text)}")
    return value


def _milliseconds(text: bytes | None, unit: bytes | None) -> float | None:
    """None for no time, and for nanms, which scripts print while they have not timed a step."""
    if text is None or unit is None:
        return None
    try:
        value = float(text)
    except ValueError:
        raise LogError(f"the time {_shown(text)} is not a number of ms") from None
    if value < 0:
        raise LogError(f"the time {_shown(text)} is below zero")
    if not math.isfinite(value):
        return None
    value *= UNITS_MS[unit]
    _check_far(value, f"the time {_shown(text)}")
    return value


def _check_far(value: float, what: str) -> None:
    """Raises LogError for a number that no result can hold."""
    if math.isfinite(value) and abs(value) > FARTHEST:
        raise LogError(f"{what} is impossible: it is beyond {FARTHEST:g}")


def _shown(text: bytes) -> str:
    return repr(text.decode("utf-8", "replace")[:MAX_SHOWN])
