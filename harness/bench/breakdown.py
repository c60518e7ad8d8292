"""Where a step's time goes.

Data, forward, backward, each optimizer, communication, and the gaps between them.

From torch.profiler, whose events nest: an event belongs to the part that its name says, else to
that of the event around it. On CUDA the parts hold the time of the kernels they launched, and a
gap is time in which the device waits.
"""

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from harness.bench.steps import Candidate

# beginning of an event's name -> part; the library names backward nodes, optimizers and collectives
# by itself
PARTS = (
    ("bench::data", "data"),
    ("bench::gradients", "forward"),
    ("autograd::engine::evaluate_function", "backward"),
    ("Optimizer.step#", "optimizer"),
    ("Optimizer.zero_grad#", "optimizer"),
    ("c10d::", "communication"),
    ("nccl:", "communication"),
    ("gloo:", "communication"),
)
# of the profiler's own: they can have the number of an event, and with it its kernels once more
OVERHEADS = ("Command Buffer Full", "Activity Buffer Request")


@dataclass(frozen=True, kw_only=True)
class StepPart:
    """One part of a step."""

    part: str
    ms: float
    share: float  # of the step's time under the profiler


def part_of(name: str) -> str | None:
    for beginning, part in PARTS:
        if name.startswith(beginning):
            kind = name.partition("#")[2].partition(".")[0]
            return f"{part} {kind}" if kind and name.startswith("Optimizer.step") else part
    return None


def owner(event: Any) -> Any:
    """The next event outwards that has a part."""
    event = event.cpu_parent
    while event is not None and part_of(event.name) is None:
        event = event.cpu_parent
    return event


def host_time(events: Iterable[Any]) -> Iterator[tuple[str, float]]:
    """(part, microseconds) of every event that has a part.

    What lies within an inner part is taken off the outer one.
    """
    for event in events:
        part, outer = part_of(event.name), owner(event)
        if part is not None:
            yield part, event.cpu_time_total
            if outer is not None:
                yield str(part_of(outer.name)), -event.cpu_time_total


def kernel_time(events: Iterable[Any]) -> Iterator[tuple[str, float]]:
    """(part, microseconds) of every event that launched kernels.

    A range appears among its own kernels: it is none; a compiled kernel has the name of the event
    that launched it.
    """
    for event in events:
        if event.name in OVERHEADS:
            continue
        spent = 0
        for kernel in event.kernels:
            if not (event.is_user_annotation and kernel.name == event.name):
                spent += kernel.duration
        if spent:
            yield _part_around(event), spent


def _part_around(event: Any) -> str:
    """The part of an event, or of the next one outwards that has one."""
    part = part_of(event.name)
    if part is not None:
        return part
    outer = owner(event)
    return "other" if outer is None else str(part_of(outer.name))


def breakdown(candidate: Candidate, *, steps: int = 3) -> list[StepPart]:
    """Parts of a step with their share of its time under the profiler, the dearest first.

    `gaps` is what no part accounts for.
    """
    # the profiler's own progress lines are no output of ours
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    cuda = candidate.device == "cuda"
    activities = [ProfilerActivity.CPU]
    if cuda:
        activities.append(ProfilerActivity.CUDA)
    candidate.timed(1)
    with profile(activities=activities, acc_events=True) as recorded:  # torch 2.11 warns without it
        began = time.perf_counter()
        for _ in range(steps):
            with record_function("bench::data"):
                batches = candidate.batches()
            window = candidate.core.set_step(
                min(candidate.steps_done, candidate.config.schedule.steps - 1)
            )
            with record_function("bench::gradients"):
                candidate.core.gradients(batches, window)
            candidate.core.step()
            candidate.steps_done += 1
        if cuda:
            torch.cuda.synchronize()
        wall_us = (time.perf_counter() - began) * 1e6
    parts: dict[str, float] = {}
    events = [e for e in recorded.events() if e.device_type == torch.autograd.DeviceType.CPU]
    for part, microseconds in (kernel_time if cuda else host_time)(events):
        parts[part] = parts.get(part, 0.0) + microseconds
    parts["gaps"] = wall_us - sum(parts.values())
    of_step = []
    for part, us in parts.items():
        of_step.append(StepPart(part=part, ms=us / steps / 1000, share=us / wall_us))
    return sorted(of_step, key=attrgetter("share"), reverse=True)
