"""What experiment.json keeps of foreign trainers: as they were written, their limits, hints."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from harness.run.document import Content, Document
from harness.run.readings import Readings
from harness.run.typed import typed

OWN_LOG = "own-"  # begins the name under which a run keeps a log file that its script wrote


@dataclass(frozen=True, kw_only=True)
class ClockHint:
    """What was seen at a line of a script; doubt: its times may mean something else."""

    line: int
    text: str
    doubt: bool = False
    compared: bool = False  # the baseline's clock counts otherwise

    @classmethod
    def from_mapping(cls, content: Document) -> Self:
        doubt, compared = content.get("doubt", False), content.get("compared", False)
        return typed(
            cls(line=content["line"], text=content["text"], doubt=doubt, compared=compared)
        )


@dataclass(frozen=True, kw_only=True)
class TrainerLimits:
    """What a run of a foreign trainer is allowed."""

    wall_s: float | None = None  # seconds in all
    silence_s: float = 3600.0  # without a line of output; long enough for the longest compilation
    retries: int = 0  # further tries after a failure
    output_mib: float = 1024.0  # that it may print, and write into its own logs

    @classmethod
    def from_mapping(cls, content: Document) -> Self:
        return typed(cls(**content))


@dataclass(frozen=True, kw_only=True)
class TrainerSpec:
    """A foreign trainer as it was written: where its code is, and what is asked of it."""

    file: Path | None = None  # the script on disk; else it is taken from the repository
    repo: Path | None = None
    ref: str | None = None  # of the repository
    script: str  # its path in the repository
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str]
    patches: tuple[Path, ...] = ()
    extra: tuple[str, ...] = ()  # files and folders that are copied too
    data: Mapping[str, str]  # place in the clean copy -> path
    gpus: int = 1
    # {python: PATH} or {container: COMMAND}; empty: this environment
    environment: Mapping[str, str]
    log: str | None = None  # pattern of the log files that it writes itself, as in logs/*.txt
    readings: Readings | None = None  # None: the benchmark's lines alone

    @property
    def script_name(self) -> str:
        """The script's path in a clean copy."""
        if self.file is None:
            return self.script
        return self.file.name

    @classmethod
    def from_mapping(cls, content: Document) -> Self:
        """What `to_mapping` has written."""
        given = dict(content)
        for name in ("file", "repo"):
            if given[name] is not None:
                given[name] = Path(given[name])
        for name in ("args", "extra"):
            given[name] = tuple(given[name])
        given["patches"] = tuple(Path(patch) for patch in given["patches"])
        if given.get("readings"):
            given["readings"] = Readings.from_mapping(given["readings"])
        return typed(cls(**given))

    def to_mapping(self) -> Content:
        content = asdict(self)
        for name in ("file", "repo"):
            if content[name] is not None:
                content[name] = str(content[name])
        for name in ("args", "extra", "patches"):
            content[name] = [str(entry) for entry in content[name]]
        del content["readings"]
        if self.readings is not None:
            content["readings"] = self.readings.to_mapping()
        return content
