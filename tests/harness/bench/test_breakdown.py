"""Where a step's time goes: every part by hand, from events that are told."""

import os
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.bench import breakdown as module
from harness.bench.breakdown import breakdown, host_time, part_of


def event(name: str, us: float, within: Any = None, *, on: str = "CPU") -> SimpleNamespace:
    kind = getattr(torch.autograd.DeviceType, on)
    facts = {"kernels": [], "is_user_annotation": False, "device_type": kind}
    return SimpleNamespace(name=name, cpu_parent=within, cpu_time_total=us, **facts)


def events() -> list[SimpleNamespace]:
    """Of one step of 1000 µs: data 100, gradients 600 with 350 of them backward, Muon 120 with 20 of a collective."""
    data = event("bench::data", 100)
    gradients = event("bench::gradients", 600)
    library = event("aten::mm", 200, gradients)
    backward = event("autograd::engine::evaluate_function: MmBackward0", 350, library)
    inner = event("aten::mm", 300, backward)
    muon = event("Optimizer.step#Muon.step", 120)
    collective = event("c10d::allgather_", 20, event("aten::empty", 25, muon))
    adam = event("Optimizer.step#Adam.step", 30)
    zero = event("Optimizer.zero_grad#Adam.zero_grad", 10)
    stray = event("aten::item", 7)
    return [data, gradients, library, backward, inner, muon, collective, adam, zero, stray]


def test_an_event_is_of_the_part_that_its_name_says() -> None:
    parts = [part_of(e.name) for e in events()]
    assert parts == [
        *("data", "forward", None, "backward", None, "optimizer Muon", "communication"),
        *("optimizer Adam", "optimizer", None),
    ]
    assert part_of("nccl:all_reduce") == part_of("gloo:all_reduce") == "communication"


def test_what_lies_within_an_inner_part_is_taken_off_the_outer_one() -> None:
    sums: dict[str, float] = {}
    for part, us in host_time(events()):
        sums[part] = sums.get(part, 0.0) + us
    assert sums == {
        "data": 100,
        "forward": 250,
        "backward": 350,
        "optimizer Muon": 100,
        "communication": 20,
        "optimizer Adam": 30,
        "optimizer": 10,
    }


class Recorded:
    """Stands for the profiler."""

    def __init__(self, **how: Any) -> None:
        self.how = how

    def __enter__(self) -> "Recorded":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def events(self) -> list[SimpleNamespace]:
        return [*events(), *events(), event("bench::data", 9999, on="CUDA")]


def test_the_parts_and_the_gaps_are_shares_of_a_step_the_dearest_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[Any] = []
    made: list[Recorded] = []
    core = SimpleNamespace(
        set_step=lambda step: told.append(step) or f"window {step}",
        gradients=lambda batches, window: told.append((batches, window)),
        step=lambda: told.append("step"),
    )
    config = SimpleNamespace(schedule=SimpleNamespace(steps=6))
    candidate: Any = SimpleNamespace(
        device="cpu", core=core, config=config, steps_done=4, batches=lambda: "batches",
        timed=lambda n: told.append(f"timed {n}"),
    )  # fmt: skip
    times = iter([10.0, 10.002])
    monkeypatch.setattr(module, "profile", lambda **how: made.append(Recorded(**how)) or made[-1])
    monkeypatch.setattr(module.time, "perf_counter", lambda: next(times))
    monkeypatch.setenv("KINETO_LOG_LEVEL", "5")
    found = breakdown(candidate, steps=2)
    assert [(row.part, row.ms, row.share) for row in found] == [
        ("backward", pytest.approx(0.35), pytest.approx(0.35)),
        ("forward", pytest.approx(0.25), pytest.approx(0.25)),
        ("gaps", pytest.approx(0.14), pytest.approx(0.14)),
        ("data", pytest.approx(0.1), pytest.approx(0.1)),
        ("optimizer Muon", pytest.approx(0.1), pytest.approx(0.1)),
        ("optimizer Adam", pytest.approx(0.03), pytest.approx(0.03)),
        ("communication", pytest.approx(0.02), pytest.approx(0.02)),
        ("optimizer", pytest.approx(0.01), pytest.approx(0.01)),
    ]
    assert told == [
        *("timed 1", 4, ("batches", "window 4"), "step"),
        *(5, ("batches", "window 5"), "step"),
    ]
    assert candidate.steps_done == 6 and os.environ["KINETO_LOG_LEVEL"] == "5"
    assert made[0].how["activities"] == [module.ProfilerActivity.CPU]
    times = iter([0.0, 1.0])
    breakdown(candidate, steps=1)
    assert 5 in told[-3:]  # beyond the run its last step is taken again
    candidate.device = "cuda"
    times = iter([0.0, 1.0])
    waited: list[str] = []
    monkeypatch.setattr(module.torch.cuda, "synchronize", lambda: waited.append("for the GPU"))
    monkeypatch.setattr(module, "kernel_time", lambda recorded: [("forward", 5e5)])
    assert [(row.part, row.share) for row in breakdown(candidate, steps=1)] == [
        *(("forward", 0.5), ("gaps", 0.5))
    ]
    both = [module.ProfilerActivity.CPU, module.ProfilerActivity.CUDA]
    assert made[-1].how["activities"] == both and waited == ["for the GPU"]
