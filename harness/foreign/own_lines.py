"""A script's own lines, read as its experiment's patterns say; times with their units."""

import json
import math
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.foreign.log_lines import LogError, LogPoint, loss_of, number_of
from harness.foreign.logs import Reading
from harness.run.document import Document
from harness.run.measured import Measured
from harness.run.metrics import OwnValue
from harness.run.readings import VAL_LOSS, OwnMetric, Readings

FILE_LIMIT = 1 << 20  # bytes of a file that a metric is read from
UNITS_S = {
    **dict.fromkeys(("ns",), 1e-9),
    **dict.fromkeys(("us", "µs", "μs"), 1e-6),
    **dict.fromkeys(("ms",), 1e-3),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600.0),
}
TIME = re.compile(r"\s*([-+]?[0-9.]+(?:[eE][-+]?\d+)?)\s*(.*?)\s*")
CLOCK = re.compile(r"\s*(?:(\d+):)?(\d{1,2}):(\d{1,2}(?:\.\d+)?)\s*")  # 1:02:03, 02:03.5


def seconds_of(text: str, unit: str = "") -> float:
    """Seconds of a time with its unit, or of a clock's hh:mm:ss; raises LogError.

    unit: where the text has none."""
    clock = CLOCK.fullmatch(text)
    if clock is not None:
        return int(clock[1] or 0) * 3600 + int(clock[2]) * 60 + float(clock[3])
    match = TIME.fullmatch(text)
    if match is None:
        raise LogError(f"the time {text[:40]!r} is not a number with its unit")
    written = match[2] or unit
    if not written:
        raise LogError(
            f"the time {text[:40]!r} has no unit: let the pattern's group hold it, or bear its "
            "name, (?P<ms>...)"
        )
    if written not in UNITS_S:
        raise LogError(
            f"the time {text[:40]!r} has a unit that is not understood: ns, us, ms, s, min or h"
        )
    value = number_of(match[1], "time") * UNITS_S[written]
    if value < 0:
        raise LogError(f"the time {text[:40]!r} is below zero")
    return value


class OwnReading(Reading):
    """A run as far as it was read, by its experiment's own patterns."""

    def __init__(self, readings: Readings) -> None:
        self.readings = readings
        self.began = time.monotonic()
        self.patterns = {m: re.compile(m.pattern) for m in readings.metrics if m.pattern}
        self.reads_objects = any(m.field and m.file is None for m in readings.metrics)
        self.step_pattern = _compiled(readings.step_pattern)
        self.time_pattern = _compiled(readings.time_pattern)
        self.time_unit = next(iter(self.time_pattern.groupindex), "") if self.time_pattern else ""
        super().__init__()

    def _begin(self) -> None:
        super()._begin()
        self.step: int | None = None
        self.time_s: float | None = None
        self.n_losses = 0
        self.last_object: Document | None = None  # of the lines that are JSON
        self.read_at: dict[str, int] = {}  # metric -> the step of its last reading

    def feed(self, line: bytes) -> LogPoint | None:
        """Read one line by the benchmark's formats, where they count, and by the own patterns."""
        point = None
        if self.readings.replaces_lines:
            self._feed_other(line.rpartition(b"\r")[2] or line)
        else:
            point = super().feed(line)
            if point is not None:
                self.step = point.step
        try:
            by_pattern = self._feed_own(line.decode("utf-8", "replace"))
        except LogError as error:
            self._note_problem(str(error))
            return point
        if point is not None and point.kind == "val":
            self.read_at[VAL_LOSS] = point.step
        self._look_for_stop()
        return by_pattern or point

    def _feed_own(self, text: str) -> LogPoint | None:
        """What a line holds of the own patterns; the point, where it holds a validation loss."""
        if self.reads_objects and text.startswith("{"):
            self._keep_object(text)
        step = self.step_pattern.search(text) if self.step_pattern else None
        if step is not None:
            self.step = _whole(step[1])
        clock = self.time_pattern.search(text) if self.time_pattern else None
        if clock is not None:
            self.time_s = seconds_of(clock[1], self.time_unit)
        point = None
        for metric, pattern in self.patterns.items():
            match = pattern.search(text)
            if match is None:
                continue
            if metric.name == VAL_LOSS:
                point = self._loss_point(match[1])
            else:
                self._keep_value(metric, number_of(match[1], metric.name))
        return point

    def _loss_point(self, text: str) -> LogPoint:
        self.n_losses += 1
        step = self.n_losses if self.step is None else self.step
        point = LogPoint(
            kind="val",
            step=step,
            total=None,
            loss=loss_of(text.encode()),
            train_time_s=self.time_s,
            step_ms=None,
        )
        self._add(point)
        self.read_at[VAL_LOSS] = step
        return point

    def _keep_value(self, metric: OwnMetric, value: float) -> None:
        if not math.isfinite(value):
            self.exploded = self.step or 0
            return
        self.values[metric.name] = value
        elapsed_s = round(time.monotonic() - self.began, 6)
        self.new.append(
            OwnValue(step=self.step, name=metric.name, value=value, elapsed_s=elapsed_s)
        )
        if self.step is not None:
            self.read_at[metric.name] = self.step

    def _keep_object(self, text: str) -> None:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return
        if isinstance(value, dict):
            self.last_object = value

    # ------------------------------------------------------------ its end

    def _look_for_stop(self) -> None:
        """Whether every metric was read at the step where the run is to be stopped."""
        stop = self.readings.stop_step
        if stop is None or self.stopped_at is not None or self.step is None:
            return
        names = [metric.name for metric in self.readings.metrics]
        if not names or (self.losses["val"] and VAL_LOSS not in names):
            names.append(VAL_LOSS)
        if all(self.read_at.get(name) == stop for name in names):
            self.stopped_at = stop
        elif self.step > stop:
            missing = next(name for name in names if self.read_at.get(name) != stop)
            self._note_problem(
                f"it passes step {stop}, where it was to be stopped, without {missing} there"
            )

    def read_rest(self, copy: Path) -> None:
        """What is known once the script has ended: the last line that is JSON, and its files."""
        for metric in self.readings.metrics:
            if metric.pattern is not None:
                continue
            try:
                value = self._value_at_end(metric, copy)
            except LogError as error:
                self._note_problem(str(error))
                continue
            if value is None:
                continue
            if metric.name == VAL_LOSS:
                self._loss_point(repr(value))
            else:
                self._keep_value(metric, value)

    def _value_at_end(self, metric: OwnMetric, copy: Path) -> float | None:
        """A metric that no line's pattern gives; None where there is none."""
        content: Any = self.last_object
        if metric.file is not None:
            text = _text_of(copy / metric.file)
            if text is None:
                return None
            if metric.field is None:
                return number_of(text.strip(), metric.name)
            try:
                content = json.loads(text)
            except (ValueError, RecursionError):
                raise LogError(f"{metric.file}, which holds {metric.name}, is no JSON") from None
        for key in (metric.field or "").split("."):
            content = content.get(key) if isinstance(content, dict) else None
        if content is None:
            return None
        if isinstance(content, bool) or not isinstance(content, int | float):
            raise LogError(f"the {metric.name} {str(content)[:40]!r} is not a number")
        return number_of(repr(content), metric.name)

    def final(self) -> Measured:
        """As of any log; what the own patterns do not tell is not known."""
        measured = super().final()
        if not self.readings.replaces_lines:
            return measured
        steps = self.n_done or None
        step_ms = self.time_s * 1000 / steps if self.time_s and steps else None
        return replace(measured, train_time_s=self.time_s or None, step_ms=step_ms, steps=steps)

    @property
    def n_steps(self) -> int:
        """Updates of the whole run: 0 where nothing tells them."""
        if self.stopped_at is not None:
            return self.stopped_at
        return super().n_steps

    @property
    def n_done(self) -> int:
        if not self.readings.replaces_lines:
            return super().n_done
        return self.step or 0

    def lacks(self) -> str | None:
        """Why this is not a run that came to its end; a metric that was never read is named."""
        if self.problem or self.exploded is not None:
            return self.problem
        stop = self.readings.stop_step
        if stop is not None and self.stopped_at is None:
            return f"it ends at step {self.step or 0}, before the stop at step {stop}"
        missing = [metric for metric in self.readings.own if metric.name not in self.values]
        if missing:
            return f"it has no {missing[0].name}: {missing[0].words}"
        if self.stopped_at is not None:
            return None
        if self.readings.replaces_lines:
            of_loss = [m for m in self.readings.metrics if m.name == VAL_LOSS]
            if of_loss and not self.losses["val"]:
                return f"it has no {VAL_LOSS}: {of_loss[0].words}"
            return None
        if self.readings.own and not self.losses["val"]:
            return None
        return super().lacks()


def _compiled(pattern: str | None) -> re.Pattern[str] | None:
    return None if pattern is None else re.compile(pattern)


def _whole(text: str) -> int:
    if not text.strip().isdecimal() or len(text) > 12:
        raise LogError(f"the step {text[:40]!r} is not a whole number")
    return int(text)


def _text_of(path: Path) -> str | None:
    """The text of a file that a script wrote, None where it wrote none that can be read."""
    try:
        if not path.is_file() or path.stat().st_size > FILE_LIMIT:
            return None
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
