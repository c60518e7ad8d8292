"""The runs of a log file: mostly one, several where whole logs stand one after the other.

A head may hold a sample of such a log. So a log that another one follows counts as a run only where
it is whole from step 0 on, and where it had a head of its own, or the next one follows without any.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.foreign.log_code import CodeDigest
from harness.foreign.log_facts import LogFacts
from harness.foreign.log_lines import (
    POINT_STARTS,
    SEPARATOR,
    LogError,
    read_point,
)
from harness.foreign.log_text import log_lines
from harness.foreign.logs import TEXT_MARKS, Reading, is_code


@dataclass(frozen=True, kw_only=True)
class WholeRun:
    """A whole run of a file."""

    reading: Reading
    code: str | None  # digest of the code at its head, by its letters
    program: str | None  # the same, by its syntax tree
    recipe: str | None  # the same, but for whole numbers


class LogRuns:
    """The runs of a file as far as it was read, line by line."""

    def __init__(self) -> None:
        self.whole: list[WholeRun] = []  # but the one that is being read
        self.reading = Reading()
        self.code = CodeDigest()
        self._in_text = False  # between the marks of a text of several lines
        self._head = False  # code or versions were read since the last run
        self._headed = False  # the run being read follows a head
        self._barrier = False  # a line of ==== since the last point

    def feed(self, line: bytes) -> None:
        """Read one line."""
        if line.startswith(POINT_STARTS):
            self._feed_point(line)
            return
        if is_code(line):
            if self._headed and self._is_whole():
                self._close()
                self.code = CodeDigest()
            n_marks = sum(line.count(mark) for mark in TEXT_MARKS)
            self._in_text = self._in_text != bool(n_marks % 2)
            self._head = True
        elif SEPARATOR.match(line):
            self._barrier = True
        elif line.startswith(b"Running"):
            self._head = True
        self.reading.feed(line)
        self.code.feed(line)

    def _feed_point(self, line: bytes) -> None:
        first = self.reading.last is None
        if not first and self._starts_again(line):
            versions, gpus = self.reading.facts.versions, self.reading.facts.gpus
            memory_mib = self.reading.facts.gpu_memory_mib
            headed = self._headed
            self._close()
            facts = LogFacts(versions=versions, gpus=gpus, gpu_memory_mib=memory_mib)
            self.reading.facts = facts
            self._headed = headed
        if self.reading.feed(line) is None:
            self.code.feed(line)
            return
        if first or self._barrier:
            self._headed = self._head and not self._in_text
        self._barrier = False

    def _starts_again(self, line: bytes) -> bool:
        """Whether a point is the first of another run, right after the end of a whole one."""
        if self._barrier and not self._headed:
            return False
        try:
            point = read_point(line)
        except LogError:
            return False
        steps = self.reading.steps["val"]
        if point is None or not steps or point.step > 0 or steps[-1] == 0:
            return False
        return self._is_whole()

    def _is_whole(self) -> bool:
        reading = self.reading
        steps = reading.steps["val"]
        return bool(steps) and steps[0] == 0 and steps[-1] > 0 and reading.lacks() is None

    def _close(self) -> None:
        """The run being read is a run of its own."""
        self.whole.append(self._run())
        self.reading = Reading()
        self._head = self._headed = self._barrier = False

    def _run(self) -> WholeRun:
        return WholeRun(
            reading=self.reading,
            code=self.code.digest,
            program=self.code.program,
            recipe=self.code.recipe,
        )

    def runs(self) -> list[WholeRun]:
        """Every run of the file; raises LogError where the last one is no whole run."""
        lacks = self.reading.lacks()
        if lacks is None:
            return [*self.whole, self._run()]
        if not self.whole:
            raise LogError(lacks)
        if self.reading.n_points:
            raise LogError(f"its run {len(self.whole) + 1} of several: {lacks}")
        return self.whole


def runs_of(lines: Iterable[bytes]) -> list[WholeRun]:
    """The runs that stand in lines; raises LogError, in one line, where one is not whole."""
    runs = LogRuns()
    for line in lines:
        runs.feed(line)
    return runs.runs()


def read_logs(path: Path) -> list[WholeRun]:
    """The runs of a file, in bounded memory; raises LogError for what is no run's whole log."""
    return runs_of(log_lines(path))
