"""What a training in a test writes to, and how long it is."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.run.metrics import MetricRow

STEPS = 14


class Recorder:
    """A writer that keeps what it is told."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.files: dict[str, bytes] = {}
        self.trunk_file = Path()

    def metric(self, row: MetricRow) -> None:
        self.rows.append(row.to_json())

    def log(self, line: str) -> None: ...

    def heartbeat(self, step: int, n_steps: int) -> None: ...

    def save(self, name: str, write: Callable[[Any], Any]) -> None:
        buffer = io.BytesIO()
        write(buffer)
        self.files[name] = buffer.getvalue()

    def losses(self) -> list[tuple[Any, ...]]:
        return [(r["kind"], r["step"], r.get("val_loss", r.get("train_loss"))) for r in self.rows]
