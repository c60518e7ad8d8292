"""environment.json of a run: on what it was made, in the shapes that its readers rely on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from harness.run.document import Content, Document
from harness.run.guarded import is_file, read_bytes
from harness.run.parse import parse_json
from harness.run.typed import typed

# that are told of a machine -> in words
SHOWN_VERSIONS = {"driver": "driver", "cuda": "CUDA", "torch": "torch"}


@dataclass(frozen=True, kw_only=True)
class _Facts:
    host: str | None
    cpu: str | None
    system: str | None
    command: str | None
    torch: str | None
    cuda: str | None
    gpus: Sequence[str | Document] | None  # the first releases kept names alone
    lock: Mapping[str, str] | None
    git: Mapping[str, str | float | bool | None] | None
    variables: Mapping[str, str | None] | None


@dataclass(frozen=True, kw_only=True)
class _Gpu:
    name: str | None
    driver_version: str | None
    memory_mib: float | None


def read_environment(path: Path) -> Content:
    """The file's content, empty where there is none.

    Raises ValueError where it cannot be read or is not what a run writes.
    """
    if not is_file(path):
        return {}
    try:
        content = parse_json(read_bytes(path))
        _check(_Facts, content)
        for gpu in content.get("gpus") or ():
            if not isinstance(gpu, str):
                _check(_Gpu, gpu)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is not what a run writes ({error})") from None
    return dict(content)


def _check(kind: type[_Facts | _Gpu], content: Any) -> None:
    if not isinstance(content, dict):
        raise ValueError("it holds no mapping")
    typed(kind(**{field.name: content.get(field.name) for field in fields(kind)}))
