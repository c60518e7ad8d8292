"""What this node has room for: disjoint sets of devices, one run at a time on each."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Slot:
    """Devices that one run has to itself: GPUs by index or identifier, or none for a CPU slot with its threads per process."""

    gpus: tuple[str, ...] = ()
    threads: int = 1


def find_gpus() -> list[str]:
    """This node's visible NVIDIA GPUs, as CUDA_VISIBLE_DEVICES names them, without importing torch."""
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    count = sum(line.startswith("GPU ") for line in done.stdout.splitlines()) if done.returncode == 0 else 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if count == 0 or visible is None:
        return [str(i) for i in range(count)]
    names = [name.strip() for name in visible.split(",")]
    end = next((i for i, name in enumerate(names) if name in ("", "-1")), len(names))  # CUDA stops at the first invalid one
    return names[:end]


def find_device() -> Literal["cpu", "cuda"]:
    return "cuda" if find_gpus() else "cpu"


def find_cpus() -> int:
    """CPUs that this process may use: those it is bound to, fewer where its container's share is smaller."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(bound, int(quota) // int(period)))
    except (OSError, ValueError):
        return bound


def make_slots(
    device: str,
    *,
    gpus_per_run: int = 1,
    max_parallel: int | None = None,
    gpus: Sequence[str] | None = None,
    n_cpus: int | None = None,
) -> list[Slot]:
    """Disjoint slots of this node; raises UserError where a run needs more than there is."""
    if device == "cuda":
        found = list(find_gpus() if gpus is None else gpus)
        if gpus_per_run > len(found):
            raise UserError(f"--gpus-per-run {gpus_per_run}: this node shows {len(found)} GPUs; ask for fewer")
        groups = [tuple(found[i : i + gpus_per_run]) for i in range(0, len(found) - gpus_per_run + 1, gpus_per_run)]
        slots = [Slot(gpus=g) for g in groups]
    else:
        cpus = n_cpus or find_cpus()
        n_slots = max(1, min(cpus // gpus_per_run, max_parallel or cpus))
        slots = [Slot(threads=max(1, cpus // (n_slots * gpus_per_run)))] * n_slots
    return slots[: max_parallel or len(slots)]
