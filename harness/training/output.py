"""What a trainer writes to: its measurements, its log, where it is, and further files."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from harness.run.metrics import MetricRow


class RunOutput(Protocol):
    """The writer that a trainer is handed.

    harness/store/attempt.py has the one that keeps what is written.
    """

    def metric(self, row: MetricRow) -> None: ...
    def log(self, line: str) -> None: ...
    def heartbeat(self, step: int, n_steps: int) -> None: ...
    def save(self, name: str, write: Callable[[IO[bytes]], Any]) -> None: ...
    @property
    def trunk_file(self) -> Path:
        """Of a run that goes on from another one: what that left."""
        ...


@dataclass(frozen=True, kw_only=True)
class Silent:
    """The writer of every rank but the first: it writes nothing."""

    trunk_file: Path = Path()

    def metric(self, row: MetricRow) -> None: ...
    def log(self, line: str) -> None: ...
    def heartbeat(self, step: int, n_steps: int) -> None: ...
    def save(self, name: str, write: Callable[[IO[bytes]], Any]) -> None: ...
