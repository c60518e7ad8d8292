"""The environment lock of a run, read from what is installed: nothing is started."""

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from harness.run.digests import short_digest

LOCKED = (
    "torch",
    "numpy",
    "triton",
    "nvidia-cudnn-cu13",
    "nvidia-cudnn-cu12",
    "nvidia-nccl-cu13",
    "nvidia-nccl-cu12",
    "nvidia-cuda-runtime",
    "nvidia-cuda-runtime-cu12",
)


@dataclass(frozen=True, kw_only=True)
class EnvironmentLock:
    """The versions that can change a number, and their digest."""

    digest: str
    versions: Mapping[str, str]


@cache
def environment_lock() -> EnvironmentLock:
    """Python, torch and what it computes with, read without importing torch.

    torch's local version names CUDA or CPU.
    """
    versions = {"python": platform.python_version(), "machine": platform.machine()}
    for name in LOCKED:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return EnvironmentLock(digest=short_digest(versions), versions=versions)
