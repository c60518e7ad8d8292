"""The rows of metrics.jsonl, a type for each kind."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Protocol, Self

from harness.run.document import Content, Document
from harness.run.typed import typed

VALIDATION, TRAINING, HELDOUT, OWN = "val", "train", "heldout", "own"  # kinds of rows


class MetricRow(Protocol):
    """A row of metrics.jsonl: one of this file's, or a reading of a GPU (harness/node/gpus.py)."""

    def to_json(self) -> Content: ...


@dataclass(frozen=True, kw_only=True, slots=True)  # a log may have a million
class Validation:
    """A point of a run's curve."""

    step: int  # updates before it
    val_loss: float | None  # nats per token
    train_time_s: float | None
    tokens: int | None = None  # trained on before it; None: every step reads as many
    # of the single steps since the last one, in ms; None: they were not recorded
    step_times_ms: Sequence[float | None] | None = None

    @classmethod
    def from_json(cls, row: Document) -> Self:
        """Raises KeyError or ValueError where the row is none."""
        validation = cls(
            step=row["step"],
            val_loss=row.get("val_loss"),
            train_time_s=row.get("train_time_s"),
            tokens=row.get("tokens"),
            step_times_ms=row.get("step_times_ms"),
        )
        return typed(validation)

    def to_json(self) -> Content:
        row: Content = {
            "kind": VALIDATION,
            "step": self.step,
            "val_loss": self.val_loss,
            "train_time_s": self.train_time_s,
        }
        if self.tokens is not None:
            row["tokens"] = self.tokens
        if self.step_times_ms is not None:
            row["step_times_ms"] = self.step_times_ms
        return row


@dataclass(frozen=True, kw_only=True)
class TrainingLoss:
    """The loss of one update's batches, before it."""

    step: int
    train_loss: float

    def to_json(self) -> Content:
        return {"kind": TRAINING, "step": self.step, "train_loss": self.train_loss}


@dataclass(frozen=True, kw_only=True)
class HeldoutLoss:
    """The second metric: the last weights on other text."""

    step: int
    heldout_loss: float

    def to_json(self) -> Content:
        return {"kind": HELDOUT, "step": self.step, "heldout_loss": self.heldout_loss}


@dataclass(frozen=True, kw_only=True)
class OwnValue:
    """A reading of a metric of a foreign script's own."""

    step: int | None  # None: the script does not tell
    name: str
    value: float
    elapsed_s: float  # since the script was started, by our clock

    def to_json(self) -> Content:
        return {"kind": OWN, **asdict(self)}
