"""Who else computes on this process's GPUs while a run trains: its times are then not its own.

NVML tells which processes kept a GPU busy lately. A run's own processes carry a mark in their
environment that its runner has made for them.
"""

import ctypes
import os
import time
from collections import Counter
from collections.abc import Callable
from ctypes import byref, c_uint, c_ulonglong
from dataclasses import dataclass
from pathlib import Path

from harness.node.background import Background
from harness.node.gpus import handle_of_gpu, nvml, visible

EVERY_S = 5.0  # between two looks
BUSY = 5  # percent of the time: less is a glance, not a load
LOOKS = 2  # in which a process was busy
MARK = "ABLATE_WORKER"  # variable of a run's processes


class ProcessSample(ctypes.Structure):
    """nvml.h: nvmlProcessUtilizationSample_t."""

    _fields_ = (
        ("pid", c_uint),
        ("time_us", c_ulonglong),
        ("sm_percent", c_uint),
        ("memory_percent", c_uint),
        ("encoder_percent", c_uint),
        ("decoder_percent", c_uint),
    )


@dataclass(frozen=True, kw_only=True)
class Busy:
    """A process that kept a GPU busy."""

    gpu: str
    pid: int


def read_busy(since_us: int) -> set[Busy]:
    """Processes that kept this process's GPUs busy since then. Raises OSError as NVML fails."""
    busy = set()
    for gpu in visible():
        library = nvml()
        ask = getattr(library, "nvmlDeviceGetProcessUtilization", None)
        if ask is None:
            continue
        handle, count = handle_of_gpu(library, gpu), c_uint(0)
        ask(handle, None, byref(count), c_ulonglong(since_us))  # how many there are
        samples = (ProcessSample * max(1, count.value))()
        if count.value and ask(handle, samples, byref(count), c_ulonglong(since_us)) == 0:
            for sample in samples[: count.value]:
                if sample.sm_percent >= BUSY:
                    busy.add(Busy(gpu=gpu, pid=sample.pid))
    return busy


def is_foreign(pid: int) -> bool:
    """Whether a process is none of this run's; one that this system does not know may be."""
    mark = f"\0{MARK}={os.environ.get(MARK)}\0".encode()
    try:
        return mark not in b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
    except PermissionError:
        return True  # another user's
    except OSError:
        return False


class ForeignLoad(Background):
    """Looks every few seconds in the background, from `with` to its end."""

    def __init__(
        self, read: Callable[[int], set[Busy]] = read_busy, *, every_s: float = EVERY_S
    ) -> None:
        super().__init__()
        self.read, self.every_s = read, every_s
        self.seen: Counter[Busy] = Counter()

    def _begins(self) -> bool:
        return MARK in os.environ and bool(visible())

    def _watch(self) -> None:
        since_us = int(time.time() * 1e6)
        while not self.done.wait(self.every_s):
            now_us = int(time.time() * 1e6)
            try:
                busy = self.read(since_us)
            except OSError:  # of the driver: the sampler of clocks says so
                return
            since_us = now_us
            self.seen.update(process for process in busy if is_foreign(process.pid))

    def words(self) -> list[str]:
        """Who computed beside the run."""
        neighbours = sorted((b.gpu, b.pid) for b, n in self.seen.items() if n >= LOOKS)
        return [f"process {pid} computed on GPU {gpu} beside it" for gpu, pid in neighbours]
