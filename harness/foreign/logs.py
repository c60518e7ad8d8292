"""The public benchmark's log format, all eras: lines in, points out. Nothing of a log is ever executed.

    step:125/6200 val_loss:5.2017 train_time:24564ms step_avg:213.60ms     since record 3; any of its words may be missing
    s:128 tel:6.0344      s:129 trl:6.1                                    before: validation and training loss, no times

A log may open with the code that made it, set off by lines of ====, and that code may hold lines of this very format. So only
what follows the last line of code, and the last line of ====, counts: each of them throws away what was read before.
"""

import hashlib
import math
import os
import re
import stat
from array import array
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from harness.run.digests import canonical

LINE_LIMIT = 1 << 16  # bytes: a longer line is no line of a log
MAX_POINTS = 5_000_000
UNTIMED_STEPS = 10  # the clock of records 3 to 20 starts again after them
EXPLODED = 2.0  # as in our own trainer: a validation loss beyond this many times that of step 0
SEPARATOR = re.compile(rb"={20,}\s*$")
CODE = re.compile(rb"(?:import \w|from [\w.]+ import |(?:async )?def \w+\(|class \w+\s*[(:]|if __name__ ?==|with open\(|@\w|#!)")
POINT = re.compile(
    rb"step:(\d{1,9})/(\d{1,9})(?: (val|train)_loss:(\S{1,40}))?(?: train_time:(\S{1,40}?)ms)?(?: step_avg:(\S{1,40}?)ms)?"
    rb"(?: [a-z_]{1,40}:\S{1,40})*\s*$"
)
OLD_POINT = re.compile(rb"s:(\d{1,9})[ \t]+(tel|trl):(\S{1,40})\s*$")
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
GPU = re.compile(rb"\|\s+\d{1,3}\s+([A-Z][\w \-/.]{0,60}?)\s+(?:On|Off|N/A)\s*\|")  # a row of nvidia-smi's table
UNREADABLE = {  # how a file opens -> what it is
    b"\xff\xfe": "it is UTF-16 text: save it as UTF-8",
    b"\xfe\xff": "it is UTF-16 text: save it as UTF-8",
    b"\x1f\x8b": "it is compressed: unpack it first",
    b"PK\x03\x04": "it is compressed: unpack it first",
}


class LogError(ValueError):
    """Why a log is not taken, in words that follow its name."""


class Point(NamedTuple):
    """One line of the log proper. loss: nan where it has none; total: None in the old format; the times None where unknown."""

    kind: Literal["val", "train", "time"]
    step: int
    total: int | None
    loss: float
    train_time_s: float | None
    step_ms: float | None


def read_point(line: bytes) -> Point | None:
    """The point that a line holds, None if it is another line. Raises LogError where its numbers are none."""
    if match := POINT.match(line):
        step, total, kind, loss, time, average = match.groups()
        if kind is None and time is None:
            return None
        time_s = None if time is None or (ms := _milliseconds(time)) is None else ms / 1000
        step_ms = None if average is None else _milliseconds(average)
        name: Any = "time" if kind is None else kind.decode()
        return Point(name, int(step), int(total), math.nan if kind is None else _loss(loss), time_s, step_ms)
    if match := OLD_POINT.match(line):
        return Point("val" if match[2] == b"tel" else "train", int(match[1]), None, _loss(match[3]), None, None)
    return None


def _loss(text: bytes) -> float:
    try:
        value = float(text)
    except ValueError:
        raise LogError(f"the loss {_shown(text)} is not a number") from None
    if value <= 0:
        raise LogError(f"the loss {_shown(text)} is impossible: cross entropy is above zero")
    return value


def _milliseconds(text: bytes) -> float | None:
    """None for nanms, which scripts print while they have not timed a step."""
    try:
        value = float(text)
    except ValueError:
        raise LogError(f"the time {_shown(text)} is not a number of ms") from None
    if value < 0:
        raise LogError(f"the time {_shown(text)} is below zero")
    return value if math.isfinite(value) else None


def _shown(text: bytes) -> str:
    return repr(text.decode("utf-8", "replace")[:40])


class Reading:
    """A log as far as it was read, line by line; its numbers lie in arrays of 8 bytes each."""

    def __init__(self) -> None:
        self.dropped = 0  # points that turned out to stand in the head
        self._begin()

    def _begin(self) -> None:
        """Forget everything but that it was there."""
        self.total: int | None = None
        self.steps = {"val": array("q"), "train": array("q")}
        self.losses = {"val": array("d"), "train": array("d")}
        self.times = array("d")  # of the validations, seconds; nan where unknown
        self.last: Point | None = None
        self.clock: Point | None = None  # the last point that knows the time
        self.exploded: int | None = None  # the first step whose loss was not finite, or exploded
        self.facts: dict[str, Any] = {}  # versions, driver, gpus, peak memory
        self.problem: str | None = None
        self._barrier = False  # a line of ==== since the last point

    @property
    def n_points(self) -> int:
        return len(self.steps["val"]) + len(self.steps["train"])

    def feed(self, line: bytes) -> Point | None:
        """Read one line; the point it holds, if it holds one."""
        if b"\r" in line:  # a progress bar draws over its line
            line = line.rstrip(b"\r\n").rpartition(b"\r")[2]
        if not line.startswith((b"step:", b"s:")):
            self._other(line)
            return None
        try:
            point = read_point(line)
        except LogError as error:
            self.problem = self.problem or str(error)
            return None
        if point is not None:
            if self._barrier:
                facts = self.facts  # they stand above the last ====
                self._drop()
                self.facts = facts
            self._add(point)
        return point

    def _drop(self) -> None:
        self.dropped += self.n_points
        self._begin()

    def _other(self, line: bytes) -> None:
        if b'"""' in line or b"'''" in line or CODE.match(line):
            self._drop()
        elif SEPARATOR.match(line):
            self._barrier = True
        elif line.startswith((b"Running", b"peak", b"|")):
            self.facts |= {k: m[1].decode() for k, pattern in VERSIONS.items() if (m := pattern.match(line))}
            self.facts |= {k: int(m[1]) for k, pattern in MEMORY.items() if (m := pattern.match(line))}
            if match := GPU.match(line):
                self.facts.setdefault("gpus", []).append(match[1].decode().strip())

    def _add(self, p: Point) -> None:
        self.total = p.total if self.last is None else self.total
        wrong = None
        if p.total != self.total or (p.total is not None and p.step > p.total):
            wrong = f"step {p.step} of {p.total} stands in a run of {self.total} steps"
        if p.train_time_s is not None:
            before, self.clock = self.clock, p
            if before and p.train_time_s < (before.train_time_s or 0) and not before.step <= UNTIMED_STEPS < p.step + 1:
                wrong = f"its clock runs backwards at step {p.step}: two runs in one file?"
        self.last = p
        if p.kind != "time":
            wrong = self._keep(p) or wrong
        self.problem = self.problem or wrong

    def _keep(self, p: Point) -> str | None:
        """Keep a loss; returns what is wrong with it."""
        steps, losses = self.steps[p.kind], self.losses[p.kind]
        if steps and p.step <= steps[-1]:
            same = p.step == steps[-1] and repr(p.loss) == repr(losses[-1])  # every process printed it; nan is like nan
            return None if same else f"step {p.step} comes after step {steps[-1]}: two runs in one file?"
        if self.n_points >= MAX_POINTS:
            return f"it has more than {MAX_POINTS} points"
        steps.append(p.step)
        losses.append(p.loss)
        if p.kind == "val":
            self.times.append(math.nan if p.train_time_s is None else p.train_time_s)
        val = self.steps["val"]
        bound = EXPLODED * self.losses["val"][0] if p.kind == "val" and val[0] == 0 else math.inf
        if self.exploded is None and not (math.isfinite(p.loss) and p.loss <= bound):
            self.exploded = p.step
        return None

    # ------------------------------------------------------------ what it comes to

    @property
    def n_steps(self) -> int:
        """Updates of the whole run: what the log says, else its last step."""
        return self.total if self.total is not None else self.n_done

    @property
    def n_done(self) -> int:
        return self.last.step if self.last else 0

    def lacks(self) -> str | None:
        """Why this is not a run that came to its end, None if it is one. A run that diverged came to its end there."""
        val = self.steps["val"]
        if self.problem or self.exploded is not None:
            return self.problem
        if not val:
            return "it has no validation loss in the benchmark's format (step:1/2 val_loss:3.1, or s:1 tel:3.1)"
        trained_on = self.total is None and self.last is not None and self.last.kind == "train"
        if val[-1] < self.n_steps or trained_on:
            return f"it ends without its final validation: the last one is at step {val[-1]} of {self.total or 'more'}"
        return None

    def final(self) -> dict[str, Any]:
        """The numbers of result.json: loss, seconds, ms per step, updates, MiB; None where the log does not say."""
        time_s, step_ms = (self.clock.train_time_s, self.clock.step_ms) if self.clock else (None, None)
        return {
            "val_loss": self.losses["val"][-1] if self.losses["val"] else None,
            "train_time_s": time_s or None,  # a clock that never ran tells nothing
            "step_ms": step_ms or (time_s * 1000 / self.n_done if time_s and self.n_done else None),
            "steps": self.n_done,
            **{name: self.facts.get(name) for name in MEMORY},
        }

    def lines(self) -> Iterator[str]:
        """metrics.jsonl: training losses and validations, each in the order of its steps. Formatted here: there are millions."""

        def number(value: float) -> str:
            return repr(value) if math.isfinite(value) else "null"

        for step, loss in zip(self.steps["train"], self.losses["train"]):
            yield f'{{"kind": "train", "step": {step}, "train_loss": {number(loss)}}}\n'
        for step, loss, time_s in zip(self.steps["val"], self.losses["val"], self.times):
            yield f'{{"kind": "val", "step": {step}, "val_loss": {number(loss)}, "train_time_s": {number(time_s)}}}\n'

    def digest(self) -> str:
        """16 hex digits of what was measured: copies of a log, with other line ends too, have the same."""
        sha = hashlib.sha256(canonical([self.total, {k: self.facts.get(k) for k in MEMORY}]))
        columns: list[array[Any]] = [*self.steps.values(), *self.losses.values(), self.times]
        for column in columns:
            sha.update(column.tobytes() + b"|")
        return sha.hexdigest()[:16]


class CodeDigest:
    """Digest of the code at the head of a log: the section between lines of ==== that holds code."""

    def __init__(self) -> None:
        self.section, self.is_code = hashlib.sha256(), False
        self.digest: str | None = None

    def feed(self, line: bytes) -> None:
        if SEPARATOR.match(line):
            self.digest = self.section.hexdigest()[:16] if self.is_code else self.digest
            self.section, self.is_code = hashlib.sha256(), False
            return
        self.section.update(line.rstrip(b"\r\n") + b"\n")
        self.is_code = self.is_code or bool(CODE.match(line))


def read_log(path: Path) -> tuple[Reading, str | None]:
    """A log in bounded memory, with the digest of its code. Raises LogError, in one line, for what is not a run's whole log."""
    reading, code = Reading(), CodeDigest()
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):  # never wait for a pipe or a device
            raise LogError("it is not a file")
        if not status.st_size:
            raise LogError("it is empty")
        with path.open("rb") as file:
            head, whole = file.read(4), True  # whole: the last piece ended its line
            if kind := UNREADABLE.get(head[:2]) or UNREADABLE.get(head):
                raise LogError(kind)
            file.seek(0)
            for piece in iter(partial(file.readline, LINE_LIMIT), b""):
                if b"\0" in piece:
                    raise LogError("it is binary, or damaged: it holds zero bytes")
                if whole and reading.feed(piece) is None:
                    code.feed(piece)
                whole = piece.endswith(b"\n")
    except OSError as error:
        raise LogError(f"it cannot be read: {error.strerror}") from None
    if (wrong := reading.lacks()) is not None:
        raise LogError(wrong)
    return reading, code.digest
