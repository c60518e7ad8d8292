"""Why a foreign run failed, from what it printed: the exception of its last own traceback."""

import re
from dataclasses import dataclass

MAX_REASON = 300  # characters of a line that becomes part of a reason
MAX_RANKS = 4096  # whose last exceptions are kept
MAX_SIGNAL = 64  # a guard's exit code is 128 and the signal that killed its command
OUT_OF_MEMORY = ("CUDA out of memory", "OutOfMemoryError", "can't allocate memory")
OF_RANK = re.compile(r"\[(?:rank|default)(\d+)\]:? ?")
TRACEBACK = "Traceback (most recent call last):"
FRAME = re.compile(r'\s+File "([^"]+)", line (\d+)')
EXCEPTION = re.compile(r"([A-Za-z_][\w.]*)(?::\s*(.*))?")  # ends a traceback
OF_LAUNCHER = re.compile(r"[\w.]*(?:ChildFailedError|SignalException)\b")
RAISED = re.compile(r"[A-Za-z_.]*(?:Error|Exception|Interrupt|Exit)\b.*")  # outside a traceback
# torchrun's words on the rank that failed first
RANK_ENDED = re.compile(r".*failed \(exitcode: (-?\d+)\) local_rank: (\d+)")
Rank = str | None  # as a line names it; None before its process group is up


@dataclass(kw_only=True)
class _Traceback:
    """A traceback as far as it was printed."""

    file: str = ""  # of the last frame
    line: str = ""
    source: str = ""  # the frame's own line of code, empty until it came

    def take(self, text: str) -> None:
        """One line of it that is indented."""
        frame = FRAME.match(text)
        if frame is not None:
            self.file, self.line, self.source = frame[1], frame[2], ""
        elif self.file and not self.source:
            self.source = text.strip()

    def ended_by(self, exception: str) -> str:
        """The exception; one without words is told by the line of code that raised it."""
        match = EXCEPTION.fullmatch(exception)
        if match is None or match[2] or not self.source:
            return exception
        place = f"{self.file.rpartition('/')[2]}, line {self.line}"
        return f"{match[1]}: {self.source} ({place})"


class FailureReason:
    """The lines of a run as they come, and what they tell of why it fails."""

    def __init__(self) -> None:
        self.no_memory = False
        self.last_line = ""  # that says something
        self.rank_ended: re.Match[str] | None = None
        self._ranks: set[Rank] = {None}  # whose lines are read
        self.tracebacks: dict[Rank, _Traceback] = {}
        self.traced: dict[Rank, str] = {}  # the exception of the last traceback
        self.raised: dict[Rank, str] = {}  # the last other line that names one

    def feed(self, text: str) -> None:
        """Read one line that is no measurement."""
        if any(phrase in text for phrase in OUT_OF_MEMORY):
            self.no_memory = True
        self.last_line = text.strip()[:MAX_REASON]
        if self.rank_ended is None:
            self.rank_ended = RANK_ENDED.match(text)
        rank: Rank = None
        prefix = OF_RANK.match(text)
        if prefix is not None:
            rank = prefix[1]
            text = text[prefix.end() :]
        if len(self._ranks) <= MAX_RANKS:
            self._ranks.add(rank)
        if rank in self._ranks:
            self._take(rank, text)

    def _take(self, rank: Rank, text: str) -> None:
        if text.startswith(TRACEBACK):
            self.tracebacks[rank] = _Traceback()
            return
        if text[:1].isspace():
            if rank in self.tracebacks:
                self.tracebacks[rank].take(text)
            return
        traceback = self.tracebacks.pop(rank, None)
        if OF_LAUNCHER.match(text):
            return
        if traceback is not None and EXCEPTION.fullmatch(text.strip()):
            self.traced[rank] = traceback.ended_by(text.strip())[:MAX_REASON]
        elif RAISED.match(text):
            self.raised[rank] = text.strip()[:MAX_REASON]

    def reason(self, code: int) -> str:
        """What ended with which code, and the exception that tells most."""
        if self.rank_ended is not None:
            rank, code = self.rank_ended[2], int(self.rank_ended[1])
            reason = f"rank {rank} {_ended(code)}"
            said = self._said_by(rank, code)
        else:
            if 128 < code <= 128 + MAX_SIGNAL:
                code = 128 - code
            reason = f"its command {_ended(code)}"
            said = self._said()
        if said:
            reason += f": {said}"
        return reason

    def _said_by(self, rank: str, code: int) -> str:
        """What a rank told; before its process group is up it tells it without its number."""
        line = self.traced.get(rank) or self.raised.get(rank)
        if line is None and code > 0:
            line = self.traced.get(None)
        return line or ""

    def _said(self) -> str:
        told = (self.traced.get(None), self.raised.get(None))
        others = (*self.traced.values(), *self.raised.values(), self.last_line)
        return next(filter(None, (*told, *others)), "")


def _ended(code: int) -> str:
    if code < 0:
        return f"was killed by signal {-code}"
    return f"ended with exit code {code}"
