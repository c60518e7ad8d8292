"""The files under what was named that may be logs, each read, or refused with a reason."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from harness.errors import UserError
from harness.foreign.log_arms import PLAIN_FOLDER, LogPlace, Program
from harness.foreign.log_facts import machine_words
from harness.foreign.log_lines import LogError
from harness.foreign.log_runs import read_logs
from harness.foreign.logs import Reading
from harness.node.slots import find_cpus

# what lies beside the logs of a record and is none; everything else in a folder is tried
NOT_LOGS = {
    *(".py", ".ipynb", ".sh", ".cu", ".cpp", ".h"),
    *(".md", ".rst", ".html", ".json", ".csv", ".yaml", ".yml", ".toml", ".cfg"),
    *(".png", ".jpg", ".jpeg", ".svg", ".gif", ".pdf", ".diff", ".patch"),
}
NOT_LOG_NAMES = ("LICENSE", "Makefile", "requirements.txt")
MANY = 32  # files: fewer are read before other processes have started
MAX_READERS = 8  # processes
FILES_AT_ONCE = 8  # of a process


@dataclass(frozen=True, kw_only=True)
class FoundFile:
    """A file that may be a log, and where it was found."""

    path: Path  # as it was given
    place: LogPlace

    @property
    def is_trace(self) -> bool:
        """Whether its name says that it is a profiler's trace."""
        return "trace" in self.path.name.lower() and ".json" in self.path.suffixes


@dataclass(frozen=True, kw_only=True)
class ReadLog:
    """A run that was read from a file, or why the file is refused."""

    reading: Reading
    code: str | None  # digest of the code at its head
    program: str | None = None  # digest that comments do not move
    recipe: str | None = None  # digest that whole numbers do not move
    refused: str | None = None
    number: int | None = None  # of several runs in one file

    @property
    def is_bare(self) -> bool:
        """Whether it holds no code: a summary, or what a run printed beside its log."""
        return self.code is None

    def ran(self) -> Program:
        """What it shares with the other runs of its arm."""
        return Program(
            code=self.program,
            steps=self.reading.n_steps,
            machine=machine_words(self.reading.facts),
        )

    @cached_property
    def points(self) -> frozenset[tuple[object, ...]]:
        """Its validations: (steps of the run, step, loss, seconds)."""
        reading = self.reading
        rows = zip(reading.steps["val"], reading.losses["val"], reading.times, strict=True)
        return frozenset(
            (reading.n_steps, step, repr(loss), repr(round(time_s, 6)))
            for step, loss, time_s in rows
        )


def files_under(paths: Sequence[Path]) -> Iterator[FoundFile]:
    """Every file that may be a log, in the order given, in a folder in that of names.

    Raises UserError for a path that does not exist."""
    for path in paths:
        if not os.path.lexists(path):
            raise UserError(f"{path}: no such file or folder: name a log, or a folder of logs")
        if not path.is_dir():
            folder = path.absolute().parent.name or "logs"
            yield FoundFile(path=path, place=LogPlace(folder=folder, name=path.stem))
            continue
        for file in _logs_in(path):
            inner = file.relative_to(path).parts[:-1]
            if inner and not PLAIN_FOLDER.fullmatch(inner[0]):
                place = LogPlace(folder=inner[0], inner=inner[1:], name=file.stem)
            else:
                place = LogPlace(folder=path.absolute().name, inner=inner, name=file.stem)
            yield FoundFile(path=file, place=place)


def _logs_in(root: Path) -> Iterator[Path]:
    """What may be a log in a folder and those under it, in the order of their names."""
    for folder, inner, names in os.walk(root):
        inner[:] = sorted(name for name in inner if not name.startswith((".", "__")))
        for name in sorted(names):
            file = Path(folder) / name
            if not name.startswith(".") and not _is_other(file):
                yield file


def _is_other(file: Path) -> bool:
    """Whether a file's name says that it is no log; a packed one has to be looked into."""
    return file.suffix in NOT_LOGS or file.name in NOT_LOG_NAMES


def read_all(paths: Sequence[Path]) -> Iterator[list[ReadLog]]:
    """The runs of every file, in order; many files are read on all CPUs."""
    n_cpus = find_cpus()
    if len(paths) < MANY or n_cpus == 1:
        yield from map(read_one, paths)
        return
    with ProcessPoolExecutor(min(MAX_READERS, n_cpus)) as pool:
        yield from pool.map(read_one, paths, chunksize=FILES_AT_ONCE)


def read_one(path: Path) -> list[ReadLog]:
    """The runs of a file; one that is refused has a single row with the reason."""
    try:
        runs = read_logs(path)
    except LogError as error:
        return [ReadLog(reading=Reading(), code=None, refused=str(error))]
    logs = []
    for number, run in enumerate(runs, start=1):
        log = ReadLog(
            reading=run.reading,
            code=run.code,
            program=run.program,
            recipe=run.recipe,
            number=number if len(runs) > 1 else None,
        )
        logs.append(log)
    return logs
