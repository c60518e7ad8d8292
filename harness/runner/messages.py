"""What a runner and its workers tell each other as JSON lines: requests, and events in answer."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from harness.run.code import Digests
from harness.run.document import Document
from harness.run.spec import RunSpec


@dataclass(frozen=True, kw_only=True)
class WorkerRequest:
    """One run that a worker is to do."""

    results: Path  # the results folder
    spec: RunSpec
    command: str | None = None  # as the user gave it, for the run's environment.json
    token: str  # by which the attempt is known
    cache: Path | None = None  # the configuration's mark among the compiled kernels
    micro_tokens: int | None = None  # tokens in a forward pass, where memory ran out before
    digests: Digests = field(default_factory=dict)  # of the source, as the runner has read it

    def to_line(self) -> bytes:
        message: dict[str, object] = {
            "results": str(self.results),
            "spec": self.spec.to_mapping(),
            "command": self.command,
            "cache": None if self.cache is None else str(self.cache),
        }
        if self.micro_tokens is not None:
            message["micro_tokens"] = self.micro_tokens
        if self.digests:
            message["digests"] = self.digests
        message["token"] = self.token
        return json.dumps(message).encode() + b"\n"

    @classmethod
    def from_line(cls, line: str) -> Self:
        message = json.loads(line)
        cache = message.get("cache")
        return cls(
            results=Path(message["results"]),
            spec=RunSpec.from_mapping(message["spec"]),
            command=message.get("command"),
            token=message["token"],
            cache=Path(cache) if cache else None,
            micro_tokens=message.get("micro_tokens"),
            digests=message.get("digests", {}),
        )


@dataclass(frozen=True, kw_only=True)
class WorkerEvent:
    """How a run ended, or what became of the worker.

    status: of the run; else "ready", "taken" (the run is done, or somebody else's), "broken"
    (nothing can go on), or "died".
    """

    status: str
    reason: str | None = None
    val_loss: float | None = None
    unnoted: bool = False  # the worker could not write it into the run's attempts: the runner does
    died: bool = False  # the run failed because its worker died

    def to_message(self) -> dict[str, str | float | None]:
        return {"status": self.status, "reason": self.reason, "val_loss": self.val_loss}

    def to_line(self) -> str:
        return json.dumps(self.to_message()) + "\n"

    @classmethod
    def from_message(cls, message: Document) -> Self:
        return cls(
            status=message["status"],
            reason=message.get("reason"),
            val_loss=message.get("val_loss"),
        )

    @classmethod
    def from_line(cls, line: bytes) -> Self:
        return cls.from_message(json.loads(line))
