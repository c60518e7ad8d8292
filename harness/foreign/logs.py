"""A log of the public benchmark, read line by line. Nothing of a log is ever executed.

A log may open with the code that made it, set off by lines of ====, and that code may hold lines
of this very format. So only what follows the last line of code, and the last line of ====,
counts: each of them throws away what was read before.
"""

import hashlib
import math
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.config.run import EXPLODED, UNTIMED_STEPS
from harness.foreign.log_facts import LogFacts
from harness.foreign.log_lines import (
    CODE,
    FACT_STARTS,
    MEMORY,
    POINT_STARTS,
    SEPARATOR,
    LogError,
    LogPoint,
    read_point,
)
from harness.run.digests import canonical
from harness.run.measured import Measured
from harness.run.metrics import OwnValue

MAX_LOG_POINTS = 5_000_000  # of one log
DIGEST_DIGITS = 16  # of a digest
TEXT_MARKS = (b'"""', b"'''")  # open and close a text of several lines


class Reading:
    """A log as far as it was read, line by line; its numbers lie in arrays of 8 bytes each."""

    stopped_at: int | None = None  # the step at which it was to be ended, once it is read there

    def __init__(self) -> None:
        self.dropped = 0  # points that turned out to stand in the head
        self.new: list[OwnValue] = []  # readings of metrics of its own, since they were last taken
        self._begin()

    def _begin(self) -> None:
        """Forget everything but that it was there."""
        self.total: int | None = None
        self.steps = {"val": array("q"), "train": array("q")}
        self.losses = {"val": array("d"), "train": array("d")}
        self.times = array("d")  # of the validations, seconds; nan where unknown
        self.last: LogPoint | None = None
        self.clock: LogPoint | None = None  # the last point that knows the time
        self.exploded: int | None = None  # the first step whose loss was not finite, or exploded
        self.facts = LogFacts()
        self.problem: str | None = None  # the first
        self.values: dict[str, float] = {}  # metric of its own -> its last reading
        self._barrier = False  # a line of ==== since the last point

    @property
    def n_points(self) -> int:
        return len(self.steps["val"]) + len(self.steps["train"])

    def feed(self, line: bytes) -> LogPoint | None:
        """Read one line; the point it holds, if it holds one."""
        if b"\r" in line:  # a progress bar draws over its line
            line = line.rstrip(b"\r\n").rpartition(b"\r")[2]
        if not line.startswith(POINT_STARTS):
            self._feed_other(line)
            return None
        try:
            point = read_point(line)
        except LogError as error:
            self._note_problem(str(error))
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

    def _feed_other(self, line: bytes) -> None:
        """A line that holds no point: of code, of ====, or of the machine."""
        if is_code(line):
            self._drop()
        elif SEPARATOR.match(line):
            self._barrier = True
        elif line.startswith(FACT_STARTS):
            self.facts.feed(line)

    def _note_problem(self, problem: str | None) -> None:
        """The first problem is the one that is told."""
        if self.problem is None:
            self.problem = problem

    # ------------------------------------------------------------ one point more

    def _add(self, point: LogPoint) -> None:
        if self.last is None:
            self.total = point.total
        self.last = point
        wrong_step = self._wrong_step(point)
        wrong_time = self._wrong_time(point)
        if point.train_time_s is not None:
            self.clock = point
        wrong_loss = None
        if point.kind != "time":
            wrong_loss = self._keep(point)
        self._note_problem(wrong_loss or wrong_time or wrong_step)

    def _wrong_step(self, point: LogPoint) -> str | None:
        """What is wrong with a point's step and total, None if nothing is."""
        beyond_end = point.total is not None and point.step > point.total
        if point.total != self.total or beyond_end:
            run = f"a run of {self.total} steps"
            return f"step {point.step} of {point.total} stands in {run}"
        return None

    def _wrong_time(self, point: LogPoint) -> str | None:
        """What is wrong with a point's time against the clock before it."""
        before = self.clock
        if point.train_time_s is None or before is None:
            return None
        restarts = before.step <= UNTIMED_STEPS <= point.step
        if point.train_time_s < (before.train_time_s or 0) and not restarts:
            return f"its clock runs backwards at step {point.step}: two runs in one file?"
        return None

    def _keep(self, point: LogPoint) -> str | None:
        """Keep a loss; returns what is wrong with it."""
        steps, losses = self.steps[point.kind], self.losses[point.kind]
        if steps and point.step <= steps[-1]:
            # every process printed it; nan is like nan
            same = point.step == steps[-1] and repr(point.loss) == repr(losses[-1])
            if same:
                return None
            return f"step {point.step} comes after step {steps[-1]}: two runs in one file?"
        if self.n_points >= MAX_LOG_POINTS:
            return f"it has more than {MAX_LOG_POINTS} points"
        steps.append(point.step)
        losses.append(point.loss)
        if point.kind == "val":
            time_s = math.nan if point.train_time_s is None else point.train_time_s
            self.times.append(time_s)
        if self.exploded is None and self._explodes(point):
            self.exploded = point.step
        return None

    def _explodes(self, point: LogPoint) -> bool:
        """Whether a loss is not finite, or a validation's far above that of step 0."""
        if not math.isfinite(point.loss):
            return True
        if point.kind != "val" or self.steps["val"][0] != 0:
            return False
        return point.loss > EXPLODED * self.losses["val"][0]

    # ------------------------------------------------------------ what it comes to

    @property
    def n_steps(self) -> int:
        """Updates of the whole run: what the log says, else its last step."""
        if self.total is not None:
            return self.total
        return self.n_done

    @property
    def n_done(self) -> int:
        if self.last is None:
            return 0
        return self.last.step

    def lacks(self) -> str | None:
        """Why this is not a run that came to its end, None if it is one.

        A run that diverged came to its end there."""
        if self.problem or self.exploded is not None:
            return self.problem
        steps = self.steps["val"]
        if not steps:
            return (
                "it has no validation loss in the benchmark's format "
                "(step:1/2 val_loss:3.1, or s:1 tel:3.1)"
            )
        # where no line tells the run's length, one that ends with training was cut off
        trained_on = self.total is None and self.last is not None and self.last.kind == "train"
        if steps[-1] < self.n_steps or trained_on:
            end = f"the last one is at step {steps[-1]} of {self.total or 'more'}"
            return f"it ends without its final validation: {end}"
        return None

    def final(self) -> Measured:
        """The numbers of result.json; None where the log does not say.

        Loss in nats, seconds, ms per step, updates, MiB."""
        val_loss = train_time_s = step_ms = None
        if self.losses["val"]:
            val_loss = self.losses["val"][-1]
        if self.clock is not None:
            train_time_s = self.clock.train_time_s or None  # a clock that never ran tells nothing
            step_ms = self.clock.step_ms or None
        if step_ms is None and train_time_s is not None and self.n_done:
            step_ms = train_time_s * 1000 / self.n_done
        return Measured(
            val_loss=val_loss,
            train_time_s=train_time_s,
            step_ms=step_ms,
            steps=self.n_done,
            **self.facts.memory,
        )

    def lines(self) -> Iterator[str]:
        """metrics.jsonl: training losses and validations, each in the order of its steps.

        Formatted here: there are millions."""
        for step, loss in zip(self.steps["train"], self.losses["train"]):
            yield f'{{"kind": "train", "step": {step}, "train_loss": {_json_number(loss)}}}\n'
        for step, loss, time_s in zip(self.steps["val"], self.losses["val"], self.times):
            losses = f'"val_loss": {_json_number(loss)}'
            times = f'"train_time_s": {_json_number(time_s)}'
            yield f'{{"kind": "val", "step": {step}, {losses}, {times}}}\n'

    def read_rest(self, copy: Path) -> None:
        """What is known of a run once its script has ended: of these formats, nothing more."""

    def digest(self) -> str:
        """16 hex digits of what was measured: copies of a log have the same.

        Other line ends do not move it."""
        memory = {name: self.facts.memory.get(name) for name in MEMORY}
        sha = hashlib.sha256(canonical([self.total, memory]))
        columns: list[array[Any]] = [*self.steps.values(), *self.losses.values(), self.times]
        for column in columns:
            sha.update(column.tobytes() + b"|")
        return sha.hexdigest()[:DIGEST_DIGITS]


def is_code(line: bytes) -> bool:
    """Whether a line can only be code: it opens or closes a text, or defines something."""
    opens_text = any(mark in line for mark in TEXT_MARKS)
    return opens_text or CODE.match(line) is not None


def _json_number(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "null"
