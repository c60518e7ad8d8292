"""Placement: no device twice, nothing beside an exclusive run, the order of the plan kept, nothing left waiting that fits."""

import os
import random
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.config.run import RunConfig, with_fields
from harness.errors import UserError
from harness.node import slots as slots_module
from harness.node.slots import Node, Slot, find_device, find_gpus, identifiers_of
from harness.run.spec import PlannedRun, is_exclusive
from harness.runner import local as runner_module
from harness.runner.execute import Execution
from harness.runner.executor import ExecutorOptions
from harness.runner.kernels import kernel_cache
from harness.runner.local import Runner
from harness.runner.messages import WorkerEvent
from harness.runner.process import Worker
from harness.store.store import Store
from tests.fake_driver import FakeDriver
from tests.one_run import SPEC

counts = st.integers(1, 16)
SIZES = (1, 2, 4, 8)
wishes = st.lists(
    st.tuples(st.sampled_from(SIZES), st.booleans(), st.booleans()), min_size=1, max_size=24
)


def node_of(n_devices: int, gpus: bool, most: int | None = None) -> Node:
    return Node(
        gpus=[str(i) for i in range(n_devices)] if gpus else (), n_cpus=n_devices, max_parallel=most
    )


@given(n_devices=counts, gpus=st.booleans(), size=counts, most=st.none() | counts)
def test_as_many_runs_of_one_size_as_fit_start_at_once(
    n_devices: int, gpus: bool, size: int, most: int | None
) -> None:
    node = node_of(n_devices, gpus, most)
    if gpus and size > n_devices:
        with pytest.raises(UserError, match=f"this node shows {n_devices} GPUs"):
            node.check(size)
        return
    node.check(size)
    slots: list[Slot] = []
    while (slot := node.take(size)) is not None:
        slots.append(slot)
    held = [d for s in slots for d in s.held]
    assert len(slots) == node.at_once(size) == max(1, min(n_devices // size, most or n_devices))
    assert len(held) == len(set(held)) <= n_devices
    assert all(len(s.gpus) == (size if gpus else 0) and s.threads >= 1 for s in slots)
    assert sum(s.threads * s.size for s in slots) <= max(n_devices, size)
    for slot in slots:
        node.give(slot)
    assert node.free == list(node.devices)
    assert node.take(size, prefer=slots[-1:]) == slots[-1]  # its worker is warm


class Held:
    """A thread that waits to be told to run."""

    waiting: list["Held"] = []

    def __init__(self, *, target: Callable[..., None], args: tuple[Any, ...], daemon: bool) -> None:
        self.target, self.args = target, args

    def start(self) -> None:
        Held.waiting.append(self)

    def run(self) -> None:
        self.target(*self.args)


class NoWorker:
    """A worker that does nothing, and stays warm."""

    def __init__(self, slot: Slot) -> None:
        self.slot, self.open = slot, True

    def make(self, run: Execution) -> WorkerEvent:
        return WorkerEvent(status="finished")

    def is_like(self, other: "NoWorker") -> bool:
        return self.slot == other.slot

    def alive(self) -> bool:
        return self.open

    def close(self) -> None:
        self.open = False


def planned(i: int, size: int, exclusive: bool, timing: bool) -> PlannedRun:
    config = {"timing": {"exclusive_node": exclusive}, "system": {"compile": "off"}}
    spec = replace(
        SPEC, config=config, seed=i, world_size=size, role="timing" if timing else "loss"
    )
    return PlannedRun(arm="a", block=i, place=0, spec=spec)


@settings(max_examples=60, deadline=None)
@given(
    wishes=wishes,
    n_devices=st.sampled_from([8, 9, 16]),
    gpus=st.booleans(),
    most=st.none() | counts,
    seed=st.integers(0, 999),
)
def test_a_mixed_matrix_is_placed_lawfully_to_its_end(
    wishes: list[tuple[int, bool, bool]], n_devices: int, gpus: bool, most: int | None, seed: int
) -> None:
    rng, plan = random.Random(seed), [planned(i, *w) for i, w in enumerate(wishes)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner_module.threading, "Thread", Held)
        Held.waiting = []
        node = node_of(n_devices, gpus, most)
        trainer: Any = SimpleNamespace(maker=lambda spec, slot, **_: NoWorker(slot))
        r = Runner(plan, Store(Path("nowhere")), node, ExecutorOptions(trainer=trainer))
        started: list[int] = []
        while r.go_on():
            running = [(p.spec, slot) for p, slot, _ in (h.args for h in Held.waiting)]
            held = [d for _, slot in running for d in slot.held]
            assert len(held) == len(set(held))
            assert set(held) <= set(node.devices)
            assert set(held).isdisjoint(node.free)
            assert 1 <= len(running) <= node.max_parallel
            assert all(len(slot.gpus) == (spec.world_size if gpus else 0) for spec, slot in running)
            if any(is_exclusive(spec) for spec, _ in running):
                assert len(running) == 1
            started += [s.seed for s, _ in running if s.seed not in started]
            assert started == list(range(len(started)))  # none overtakes another
            if r.todo:  # what waits does not fit
                spec = r.todo[0].spec
                assert node.take(spec.world_size, exclusive=is_exclusive(spec)) is None
            Held.waiting.pop(rng.randrange(len(Held.waiting))).run()
            idle = [d for w in r.idle for d in w.slot.held]
            assert len(idle) == len(set(idle))  # no device is kept by two warm workers
        assert sorted(started) == list(range(len(plan)))
        assert set(r.summary.statuses.values()) == {"finished"}


def test_the_first_run_of_a_configuration_compiles_before_its_siblings_start(
    tmp_path: Path, monkeypatch: Any
) -> None:
    """Siblings wait until it has made a step; others do not overtake them."""
    Held.waiting = []
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "node"))
    monkeypatch.setattr(runner_module.threading, "Thread", Held)
    plan = [planned(i, 1, False, False) for i in range(3)]
    compiled = [
        replace(p, spec=replace(p.spec, config={**p.spec.config, "system": {"compile": "on"}}))
        for p in plan
    ]
    r = Runner(compiled, Store(tmp_path), node_of(8, True), ExecutorOptions())
    assert r.go_on()
    assert len(Held.waiting) == 1
    cache = Held.waiting[0].args[2]
    assert cache.parent.parent == tmp_path / "node" / f"kernels-{os.getuid()}"
    other = kernel_cache(replace(compiled[0].spec, config={**compiled[0].spec.config, "model": {}}))
    assert other is not None
    assert other.parent == cache.parent  # kernels of every configuration lie together
    assert other != cache
    assert r.go_on()
    assert len(Held.waiting) == 1
    r.filling.discard(cache)  # what its first step does
    cache.mkdir(parents=True)  # what the worker does
    assert r.go_on()
    assert len(Held.waiting) == 3


@pytest.mark.parametrize(
    ("visible", "listed", "found"),
    [
        (None, 3, ["0", "1", "2"]),
        ("1,2", 3, ["1", "2"]),
        ("", 3, []),
        ("-1", 3, []),
        ("0,-1,1", 3, ["0"]),
        ("GPU-aa,MIG-bb", 2, ["GPU-aa", "MIG-bb"]),
        ("0", 0, []),
    ],
)
def test_what_is_visible_is_what_is_found(
    visible: str | None, listed: int, found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def smi(*_: Any, **__: Any) -> Any:
        lines = "".join(f"GPU {i}: NVIDIA H100 (UUID: GPU-{i})\n" for i in range(listed))
        return subprocess.CompletedProcess([], 0 if listed else 9, stdout=lines)

    monkeypatch.setattr(subprocess, "run", smi)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert find_gpus() == found
    assert find_device() == ("cuda" if found else "cpu")


def test_groups_that_run_at_once_meet_on_ports_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each has a rendezvous of its own, on a port that the system chooses; that of a group we run in is not handed on."""
    monkeypatch.setenv("MASTER_PORT", "29500")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    for size in SIZES[1:]:
        devices = tuple(str(i) for i in range(size))
        worker = Worker(Slot(held=devices, gpus=devices, size=size), "module:train", device="cuda")
        words = worker.group.arguments("module:train", "cuda")
        assert "--standalone" in words
        assert words[words.index("--nproc-per-node") + 1] == str(size)
        assert not [w for w in words if "port" in w or "29500" in w]
        assert not {"MASTER_PORT", "MASTER_ADDR"} & set(worker.environment())
        assert worker.environment()["CUDA_VISIBLE_DEVICES"] == ",".join(devices)
        assert worker.environment()["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_memory_statistics_begin_anew_with_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from harness.training import runtime

    reset: list[int] = []
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: reset.append(1))
    monkeypatch.setattr(runtime, "set_allocator", lambda text: None)
    config = with_fields(RunConfig(), {"system.compile": "off", "system.cuda_warm_start": False})
    for n in (1, 2, 3):
        runtime.set_runtime(config, "cuda", seed=n)
        assert len(reset) == n


def test_the_driver_is_asked_once_for_a_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = FakeDriver(tmp_path, 3)
    for name, value in driver.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    asked: list[object] = []
    real = slots_module.list_gpus
    monkeypatch.setattr(slots_module, "list_gpus", lambda: asked.append(1) or real())
    node = Node.here("cuda")
    assert node.gpus == ("2", "0")
    assert node.locks is not None
    assert node.locks.identifiers == {"2": "GPU-2", "0": "GPU-0"}
    assert len(asked) == 1
    assert (node.n_cpus, node.max_parallel) == (slots_module.find_cpus(), 2)
    assert Node.here("cuda", max_parallel=1).max_parallel == 1


@pytest.mark.parametrize(("most", "n"), [(None, 6), (2, 2)])
def test_a_node_without_gpus_runs_on_its_processors_and_locks_none(
    most: int | None, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots_module, "find_cpus", lambda: 6)
    node = Node.here("cpu", max_parallel=most)
    assert node.devices == ("cpu0", "cpu1", "cpu2", "cpu3", "cpu4", "cpu5")
    assert (node.gpus, node.n_cpus, node.max_parallel, node.locks) == ((), 6, n, None)
    slot = node.take(1)
    assert slot is not None and slot.variables["CUDA_VISIBLE_DEVICES"] == ""
    assert (len(slot.held), slot.threads, node.n_running) == (6 // n, 6 // n, 1)


def test_of_several_warm_workers_the_first_is_used_and_the_others_devices_stay_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABLATE_LOCKS", str(tmp_path))
    node = Node(gpus=["0", "1"], identifiers={"0": "GPU-0", "1": "GPU-1"})
    assert node.locks is not None
    first, second = node.take(1), node.take(1)
    assert first is not None and second is not None
    node.give(first)
    node.give(second)
    assert node.take(1, prefer=[second, first]) == second
    assert node.free == list(first.held)
    assert not node.locks.held.keys() & first.held


def test_a_run_of_which_nothing_is_said_is_one_process_of_one_thread_without_gpus() -> None:
    slot = Slot(held=("cpu0",))
    assert (slot.gpus, slot.threads, slot.size) == ((), 1, 1)
    seen = {"CUDA_VISIBLE_DEVICES": "", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert slot.variables == seen
    assert replace(slot, gpus=("2", "0")).variables == {**seen, "CUDA_VISIBLE_DEVICES": "2,0"}


def test_a_device_that_is_kept_out_is_given_to_no_run_until_it_is_brought_back() -> None:
    node = node_of(2, gpus=True)
    node.keep_out(["0"])
    assert (node.devices, node.free) == (("1",), ["1"])
    node.bring_back(["0"])
    assert (node.devices, node.free) == (("0", "1"), ["0", "1"])


def test_a_gpu_is_called_by_what_its_driver_lists() -> None:
    listed = ["GPU 0: NVIDIA H200 (UUID: GPU-aa)", "no GPU", "GPU 12: NVIDIA H200 (UUID: GPU-cc)"]
    assert identifiers_of(["12", "1", "GPU-x"], listed) == {
        "12": "GPU-cc",
        "1": "GPU-1",
        "GPU-x": "GPU-x",
    }
