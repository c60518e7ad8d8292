"""Files behind a URL that fsspec knows: a bucket, for example.

A file there is written whole; a folder is not, so that a run's result.json comes last.
"""

import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.errors import UserError, how_to_install, visible
from harness.push.errors import PushError
from harness.push.remote import FilesOfRuns

try:
    import fsspec
except ImportError:  # an extra
    fsspec = None


@contextmanager
def told() -> Iterator[None]:
    """Whatever a client raises is a PushError of one line."""
    try:
        yield
    except Exception as error:
        lines = str(error).splitlines() or [""]
        raise PushError(visible(f"{type(error).__name__}: {lines[0]}")) from None


class UrlFiles:
    """`Files` of a URL."""

    def __init__(self, url: str) -> None:
        """Raises UserError where fsspec knows no such URL, or lacks the library for it."""
        self.name = url
        if fsspec is None:
            raise UserError(f"{url}: fsspec is not installed: {how_to_install('push')}")
        try:
            self.system, root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise UserError(f"{url}: {visible(str(error))}") from None
        except Exception as error:  # whatever a client may raise
            raise UserError(f"{url}: {type(error).__name__}: {visible(str(error))}") from None
        self.root = root.rstrip("/")

    def open(self) -> None:
        probe = f"{self.root}/runs/.sent-{uuid.uuid4().hex[:8]}"
        with told():
            self.system.makedirs(f"{self.root}/runs", exist_ok=True)
            self.system.pipe_file(probe, b"ok")
            self.system.rm_file(probe)

    def connect(self) -> None:
        """There is nothing to keep open."""

    def fitting(self, *patterns: str) -> list[str]:
        names = []
        with told():
            self.system.invalidate_cache()
            for pattern in patterns:
                for entry in self.system.glob(f"{self.root}/{pattern}", detail=True).values():
                    if entry["type"] == "file":
                        names.append(entry["name"].removeprefix(self.root).lstrip("/"))
        return names

    def get(self, names: Sequence[str], into: Path) -> None:
        for name in names:
            place = into / name
            if not place.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                beside = place.with_name(f".{place.name}.part")
                with told():
                    self.system.get_file(f"{self.root}/{name}", str(beside))
                    os.replace(beside, place)

    def put(self, root: Path, names: Sequence[str]) -> None:
        for name in names:
            self.send(root / name, f"{self.root}/{name}")

    def put_runs(self, runs: Path, files: FilesOfRuns) -> list[str]:
        for run_id, names in files.items():
            place = f"{self.root}/runs/{run_id}"
            if self._of(lambda path: self.system.exists(path), f"{place}/result.json"):
                continue
            for name in names:
                if name != "result.json":
                    self.send(runs / run_id / name, f"{place}/{name}")
            self.send(runs / run_id / "result.json", f"{place}/result.json")
        return []

    def set_aside(self, run_id: str) -> None:
        place = f"{self.root}/runs/{run_id}"
        with told():
            self.system.mv(f"{place}/result.json", f"{place}/.damaged-result.json")

    def send(self, file: Path, place: str) -> None:
        """Send a file beside its place, then rename it: as much as the file system has of that."""
        folder, _, name = place.rpartition("/")
        beside = f"{folder}/.{name}.{uuid.uuid4().hex[:8]}"
        with told():
            self.system.makedirs(folder, exist_ok=True)
            self.system.put_file(str(file), beside)
            self.system.mv(beside, place)

    def _of(self, ask: Callable[[str], Any], path: str) -> Any:
        """What the file system answers, not what it remembers."""
        with told():
            self.system.invalidate_cache()
            return ask(path)
