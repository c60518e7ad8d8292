"""What is read of a foreign script beside, or instead of, the benchmark's lines."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal, Self

from harness.run.document import Content, Document
from harness.run.typed import typed

Better = Literal["lower", "higher"]
VAL_LOSS = "val_loss"  # a metric of this name is the validation loss: in nats, lower is better


@dataclass(frozen=True, kw_only=True)
class OwnMetric:
    """A number that a script prints or writes, by its name; the last one of a run counts.

    pattern: a regular expression whose group is the number. field: of JSON, dotted, in the last
    line that is an object, or in `file`. file: in the clean copy; without `field` the number alone.
    """

    name: str
    better: Better = "lower"
    pattern: str | None = None
    field: str | None = None
    file: str | None = None

    @property
    def is_higher_better(self) -> bool:
        """Whether a difference above zero helps."""
        return self.better == "higher"

    @property
    def words(self) -> str:
        """Where it is read, in words that follow its name."""
        if self.pattern is not None:
            return f"no line holds '{self.pattern}'"
        if self.file is None:
            return f"no line is a JSON object with the field {self.field}"
        if self.field is None:
            return f"it wrote no number alone to {self.file}"
        return f"it wrote no JSON with the field {self.field} to {self.file}"


@dataclass(frozen=True, kw_only=True)
class Readings:
    """Metrics of a script's own, how it prints its steps and its clock, and where it is stopped."""

    metrics: tuple[OwnMetric, ...] = ()
    step_pattern: str | None = None  # whose group is the step
    time_pattern: str | None = None  # whose group is the training time so far, with its unit
    stop_step: int | None = None  # at whose reading every run is ended

    @classmethod
    def from_mapping(cls, content: Document) -> Self:
        """What `to_mapping` has written."""
        metrics = tuple(typed(OwnMetric(**metric)) for metric in content.get("metrics", ()))
        return typed(cls(**{**content, "metrics": metrics}))

    def to_mapping(self) -> Content:
        content = asdict(self)
        content["metrics"] = [asdict(metric) for metric in self.metrics]
        return content

    @property
    def own(self) -> Sequence[OwnMetric]:
        """The metrics that are not the validation loss."""
        return tuple(metric for metric in self.metrics if metric.name != VAL_LOSS)

    @property
    def replaces_lines(self) -> bool:
        """Whether its patterns stand for the benchmark's lines, which are then not read."""
        has_loss = len(self.own) < len(self.metrics)
        return has_loss or bool(self.step_pattern or self.time_pattern)
