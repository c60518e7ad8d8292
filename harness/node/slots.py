"""What this node has room for: disjoint sets of devices, one run on each."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.errors import UserError
from harness.node.device_locks import DeviceLocks
from harness.node.nvidia import list_gpus

LISTED = re.compile(r"GPU (\d+): .*\(UUID: ([^)]+)\)")  # a line of nvidia-smi -L


@dataclass(frozen=True, kw_only=True)
class Slot:
    """What one run has to itself.

    The devices it holds, the GPUs among them that its processes see, threads per process.
    """

    held: tuple[str, ...]
    gpus: tuple[str, ...] = ()
    threads: int = 1
    size: int = 1  # processes

    @property
    def variables(self) -> dict[str, str]:
        """Of its processes: the GPUs that they see, counted as the driver's tools count them."""
        return {
            "CUDA_VISIBLE_DEVICES": ",".join(self.gpus),
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # by itself CUDA counts the fastest first
        }


def find_gpus() -> list[str]:
    """This node's visible NVIDIA GPUs, as CUDA_VISIBLE_DEVICES names them, without torch.

    Raises UserError where there is a driver that does not tell.
    """
    return list(find_identified_gpus())


def find_identified_gpus() -> dict[str, str]:
    """This node's visible NVIDIA GPUs, each with what everybody on the node calls it: its UUID.

    The driver is asked once. Raises UserError where there is one that does not tell.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in ("", "-1"):
        return {}
    listed = list_gpus()
    return identifiers_of(_visible(visible, len(listed)), listed)


def _visible(visible: str | None, count: int) -> list[str]:
    """Of so many GPUs those that a variable names."""
    if count == 0 or visible is None:
        return [str(i) for i in range(count)]
    names: list[str] = []
    for name in visible.split(","):
        if name.strip() in ("", "-1"):  # CUDA stops at the first invalid one
            break
        names.append(name.strip())
    return names


def identifiers_of(gpus: Sequence[str], listed: Sequence[str]) -> dict[str, str]:
    """What everybody on this node calls these GPUs: their UUIDs, where the driver lists them."""
    uuids = {}
    for line in listed:
        match = LISTED.match(line)
        if match is not None:
            uuids[match[1]] = match[2]
    return {gpu: uuids.get(gpu, gpu if gpu.startswith("GPU-") else f"GPU-{gpu}") for gpu in gpus}


def find_device() -> Literal["cpu", "cuda"]:
    return "cuda" if find_gpus() else "cpu"


def find_cpus() -> int:
    """CPUs that this process may use.

    Those it is bound to, fewer where its container's share is smaller.
    """
    if hasattr(os, "sched_getaffinity"):
        bound = len(os.sched_getaffinity(0))
    else:
        bound = os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(bound, int(quota) // int(period)))
    except (OSError, ValueError):
        return bound


class Node:
    """The devices that runs may use here: GPUs by index or identifier, else CPUs.

    No device is ever in two runs.
    """

    def __init__(
        self,
        *,
        gpus: Sequence[str] = (),
        n_cpus: int = 1,
        max_parallel: int | None = None,
        identifiers: Mapping[str, str] | None = None,
    ) -> None:
        """identifiers: of the GPUs, by which they are locked on this node; None: without locks."""
        self.gpus, self.n_cpus = tuple(gpus), n_cpus
        self.devices = self.gpus or tuple(f"cpu{i}" for i in range(n_cpus))
        self.free = list(self.devices)
        self.max_parallel, self.n_running = max_parallel or len(self.devices), 0
        self.locks = None if identifiers is None else DeviceLocks(identifiers)

    @classmethod
    def here(cls, device: str, *, max_parallel: int | None = None) -> "Node":
        """This machine, as the processes started now will see it."""
        if device != "cuda":
            return cls(n_cpus=find_cpus(), max_parallel=max_parallel)
        gpus = find_identified_gpus()
        return cls(gpus=list(gpus), n_cpus=find_cpus(), max_parallel=max_parallel, identifiers=gpus)

    def check(self, size: int) -> None:
        """Raises UserError where a run of this size can never start.

        CPUs may be shared by more processes than there are.
        """
        if self.gpus and size > len(self.gpus):
            raise UserError(
                f"--gpus-per-run {size}: this node shows {len(self.gpus)} GPUs; ask for fewer"
            )

    def at_once(self, size: int, *, exclusive: bool = False) -> int:
        """How many runs of this size fit."""
        if exclusive:
            return 1
        return max(1, min(len(self.devices) // size, self.max_parallel))

    def threads(self, size: int) -> int:
        """Threads of each process of a run, so that as many runs as fit share the CPUs evenly."""
        if self.gpus:
            return 1
        return max(1, self.n_cpus // (self.at_once(size) * size))

    def take(
        self, size: int, *, exclusive: bool = False, prefer: Sequence["Slot"] = ()
    ) -> "Slot | None":
        """Devices for a run of `size` processes, None if it does not fit now.

        exclusive: nothing else runs beside it.

        prefer: slots to use again if they are free (their workers are warm).
        """
        threads = self.threads(size)
        n_held = len(self.devices) if exclusive else min(size * threads, len(self.devices))
        if self.n_running >= self.max_parallel or n_held > len(self.free):
            return None
        held = None
        for slot in prefer:
            same_shape = (slot.size, slot.threads, len(slot.held)) == (size, threads, n_held)
            if same_shape and set(self.free).issuperset(slot.held):
                held = self.hold(slot.held, n_held)
                break
        held = held or self.hold(self.free, n_held)
        if held is None:
            return None
        self.free = [d for d in self.free if d not in held]
        self.n_running += 1
        return Slot(held=held, gpus=held[:size] if self.gpus else (), threads=threads, size=size)

    def hold(self, devices: Sequence[str], n: int) -> tuple[str, ...] | None:
        """So many of these devices, those that no other runner on this node has."""
        if not self.gpus or self.locks is None:
            return tuple(devices[:n])
        return self.locks.take(devices, n)

    def give(self, slot: "Slot") -> None:
        """The devices of a run that ended."""
        if self.locks is not None:
            self.locks.release(slot.held)
        self.free = [d for d in self.devices if d in self.free or d in slot.held]
        self.n_running -= 1

    def keep_out(self, devices: Sequence[str]) -> None:
        """Give these devices to no run."""
        self.devices = tuple(d for d in self.devices if d not in devices)
        self.free = [d for d in self.free if d not in devices]

    def bring_back(self, devices: Sequence[str]) -> None:
        """Devices that were kept out, which no run holds."""
        in_use = {*self.devices, *devices}
        self.devices = tuple(d for d in self.gpus if d in in_use)
        self.free = [d for d in self.devices if d in self.free or d in devices]
