"""Files that a run reads, brought by Ray to nodes that do not have them: named by their digests.

What the results folder keeps (code, versions) goes through Ray's object store; data, which may be
large, is read piece by piece from the machine of the call, once per node.
"""

import os
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from harness.corpora.cache import cache_root
from harness.corpora.lock import lock
from harness.errors import UserError
from harness.provenance.data import data_fingerprint, files_under
from harness.run.digests import file_digest
from harness.run.files import write_whole
from harness.run.spec import RunSpec
from harness.runner.trainers import RunTrainer

PIECE = 1 << 25  # bytes
CURE = "make room there, or name another folder in ABLATE_CACHE"


@dataclass(frozen=True, kw_only=True)
class Freight:
    """What a run reads beside the corpora, as its task is told of it."""

    kept: Mapping[str, object] = field(default_factory=dict)  # path in a results folder -> Ray's
    # reference to the content
    data: Mapping[str, str] = field(default_factory=dict)  # path -> data_fingerprint
    server: Any = None  # who reads it on the machine of the call: a FileServer

    def unload_kept(self, results: Path) -> None:
        """Put what was kept into a results folder of this node's own."""
        for name, content in self.kept.items():
            path = results / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(ray.get(content))

    def moved(self) -> dict[str, str]:
        """Where data lies here that is not, or is other, at its path: path -> place."""
        moved = {}
        for path, fingerprint in self.data.items():
            if not Path(path).exists() or data_fingerprint([Path(path)]) != fingerprint:
                moved[path] = str(_brought(path, fingerprint, self.server))
        return moved


class FileServer:
    """Reads data on the machine of the call; an actor of Ray's."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.files: dict[str, dict[str, Path]] = {}
        for path in paths:
            of_path = {}
            for file in files_under(Path(path)):
                of_path[os.path.relpath(file, path)] = file
            self.files[path] = of_path

    def digests(self, path: str) -> dict[str, str]:
        """The files of a path, relative to it, each with the digest of its content."""
        return {name: file_digest(file) for name, file in self.files[path].items()}

    def piece(self, path: str, name: str, offset: int) -> bytes:
        """Of one of them; empty at its end."""
        with self.files[path][name].open("rb") as file:
            file.seek(offset)
            return file.read(PIECE)


class Carrier:
    """What a call sends with its runs."""

    def __init__(self, results: Path, trainer: RunTrainer, runs: Iterable[RunSpec]) -> None:
        self.results, self.trainer = results, trainer
        paths = {path for spec in runs for path in trainer.data(spec)}
        self.sent: dict[str, object] = {}  # kept file -> Ray's reference
        self.fingerprints = {path: data_fingerprint([Path(path)]) for path in paths}
        self.server: Any = None
        if self.fingerprints:
            here = NodeAffinitySchedulingStrategy(
                ray.get_runtime_context().get_node_id(), soft=False
            )
            server = ray.remote(FileServer).options(num_cpus=0, scheduling_strategy=here)
            self.server = server.remote(tuple(self.fingerprints))

    def freight(self, spec: RunSpec) -> Freight:
        """What one of its runs reads."""
        kept = self.trainer.kept(spec)
        for name in kept:
            if name not in self.sent:
                self.sent[name] = ray.put((self.results / name).read_bytes())
        return Freight(
            kept={name: self.sent[name] for name in kept},
            data={path: self.fingerprints[path] for path in self.trainer.data(spec)},
            server=self.server,
        )

    def close(self) -> None:
        if self.server is not None:
            ray.kill(self.server)


def _brought(path: str, fingerprint: str, server: Any) -> Path:
    """The same data in this node's folder for copies, brought there unless it is."""
    root = cache_root() / f"data-{os.getuid()}"
    place = root / fingerprint
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with lock(place):
            if not place.exists():
                half = root / f".{uuid.uuid4().hex}"
                digests = ray.get(server.digests.remote(path))
                for name, digest in digests.items():
                    _bring(path, name, digest, half / name, server)
                if not digests:  # a folder that has no file
                    half.mkdir()
                half.rename(place)
    except OSError as error:
        raise UserError(f"{error.filename or root}: {error.strerror}: {CURE}") from None
    return place


def _bring(path: str, name: str, digest: str, file: Path, server: Any) -> None:
    """One file, checked by its digest."""

    def write(out: IO[bytes]) -> None:
        offset = 0
        while piece := ray.get(server.piece.remote(path, name, offset)):
            out.write(piece)
            offset += len(piece)

    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, write)
    if file_digest(file) != digest:
        raise UserError(f"{path}/{name}: it changed while it was sent: run the same command again")
