"""What is measured of a run, and what else its result says of how it was made."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from harness.run.document import Content, Document


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The numbers of a run; None where one is not known."""

    val_loss: float | None = None  # nats per token
    heldout_loss: float | None = None
    train_time_s: float | None = None
    step_ms: float | None = None  # the mean
    step_ms_median: float | None = None
    step_ms_p95: float | None = None
    steps: int | None = None  # updates
    tokens: int | None = None  # trained on
    parameters: int | None = None  # of the model, shared ones once
    tokens_per_s: float | None = None
    mfu: float | None = None
    peak_allocated_mib: float | None = None
    peak_reserved_mib: float | None = None


@dataclass(frozen=True, kw_only=True)
class OwnMarks:
    """What result.json says besides of a run of our own trainer."""

    gpu: Document | None  # the state of its GPUs (harness/node/gpus.py)
    environment_effect: str | None = None  # in words, of an interpreter of its own

    def to_json(self) -> Content:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class ForeignMarks:
    """What result.json says besides of a run of a foreign trainer."""

    budget: int  # updates that it turned out to have
    own: Mapping[str, float] = field(default_factory=dict)  # metrics of the script's own
    stopped_at: int | None = None  # the step at which it was to be stopped
    environment_effect: str | None = None
    self_reported: bool = field(default=True, init=False)

    def to_json(self) -> Content:
        content = asdict(self)
        for name in ("own", "stopped_at"):  # of few runs
            if not content[name]:
                del content[name]
        return content


@dataclass(frozen=True, kw_only=True)
class ImportMarks:
    """What result.json says besides of a log that was imported."""

    budget: int  # updates
    log: str  # its name
    code: str | None  # digest of the code at its head
    program: str | None  # digest of it that comments do not move
    recipe: str | None  # digest of it that whole numbers do not move, such as its steps
    seed_of_log: int | None  # that the log prints, or its path names
    imported: bool = field(default=True, init=False)
    self_reported: bool = field(default=True, init=False)

    def to_json(self) -> Content:
        return asdict(self)


Marks = OwnMarks | ForeignMarks | ImportMarks
