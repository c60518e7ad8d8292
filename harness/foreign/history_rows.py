"""What is taken of the public repository's history: a row a run, a record, a printed list."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class HistoryRun:
    """A finished run of a log; '' is what its log does not say."""

    track: str
    arm: str
    date: str = ""  # of the record's folder
    run: str = ""  # the beginning of its name
    steps: int | str = ""
    val_loss: float  # nats
    train_time_s: float | str = ""
    step_ms: float | str = ""
    peak_mib: float | str = ""
    gpu: str = ""
    n_gpus: int | str = ""
    driver: str = ""
    cuda: str = ""
    torch: str = ""
    program: str = ""  # its digest
    recipe: str = ""


@dataclass(frozen=True, kw_only=True)
class HistoryRecord:
    """A record of a track's table, with its arm and the arm it is held against."""

    track: str
    record: str
    date: str
    published: str  # seconds or steps
    arm: str
    parent: str
    beside: str  # yes: the parent is a baseline that its authors ran beside it


@dataclass(frozen=True, kw_only=True)
class PrintedRow:
    """A list of losses that a record's own page prints."""

    track: str
    folder: str
    arm: str  # whose logs hold most of the losses, '' for none
    n: int
    n_in_logs: int  # of them, that the arm's logs hold
    mean: float
    sd: float
