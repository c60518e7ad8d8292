"""Load by others on a run's GPUs is noticed, its own and idle ones are not. NVML is played by a C function made with ctypes."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from ctypes import POINTER, c_int, c_uint, c_ulonglong, c_void_p
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.node import gpus, load
from harness.node.load import Busy, ForeignLoad
from harness.node.stalls import Stalls
from harness.run.disturbed import disturbed_words
from harness.runner.train_run import disturbances
from tests.fake_matrix import wait_for
from tests.one_run import DONE

INSUFFICIENT_SIZE, NOT_FOUND = 7, 6
OWN = "mark of this run"


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """One of the run's own processes, and one of somebody else's."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv(load.MARK, OWN)
    others = {**os.environ, load.MARK: "another mark"}
    wait = [sys.executable, "-c", "input()"]
    started = {
        "own": subprocess.Popen(wait, stdin=subprocess.PIPE),
        "foreign": subprocess.Popen(wait, stdin=subprocess.PIPE, env=others),
    }
    yield {name: process.pid for name, process in started.items()}
    for process in started.values():
        process.communicate(b"\n")


def driver_with(busy: dict[int, int]) -> SimpleNamespace:
    """A driver that tells how busy each process kept GPU 0, in percent."""

    def handle(_: int, pointer: Any) -> int:
        pointer[0] = 11
        return 0

    def utilization(_: int, samples: Any, count: Any, since: int) -> int:
        if not busy:
            return NOT_FOUND
        if not samples:
            count[0] = len(busy)
            return INSUFFICIENT_SIZE
        for i, (pid, percent) in enumerate(busy.items()):
            samples[i].pid, samples[i].sm_percent, samples[i].time_us = pid, percent, since + 1
        return 0

    kinds = (c_int, c_void_p, POINTER(load.ProcessSample), POINTER(c_uint), c_ulonglong)
    return SimpleNamespace(
        nvmlInit_v2=ctypes.CFUNCTYPE(c_int)(lambda: 0),
        nvmlDeviceGetHandleByIndex_v2=ctypes.CFUNCTYPE(c_int, c_uint, POINTER(c_void_p))(handle),
        nvmlDeviceGetProcessUtilization=ctypes.CFUNCTYPE(*kinds)(utilization),
    )


def test_only_foreign_load_marks_a_run(
    processes: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = {processes["own"]: 99, processes["foreign"]: 40, 2**22 + 1: 50}
    monkeypatch.setattr(load, "nvml", lambda: driver_with(busy))
    looks = []

    def read(since_us: int) -> set[Busy]:
        looks.append(since_us)
        return load.read_busy(since_us)

    with ForeignLoad(read, every_s=0.01) as found:
        wait_for(lambda: len(looks) > load.LOOKS)
    words = f"process {processes['foreign']} computed on GPU 0 beside it"
    assert found.words() == [words]
    assert looks == sorted(looks)
    assert disturbed_words(disturbances(Stalls(), found, DONE)) == f"its time is disturbed: {words}"


@pytest.mark.parametrize("percent", [0, 4])
def test_who_holds_a_gpu_and_does_not_compute_is_no_load(
    processes: dict[str, int], monkeypatch: pytest.MonkeyPatch, percent: int
) -> None:
    monkeypatch.setattr(load, "nvml", lambda: driver_with({processes["foreign"]: percent}))
    assert load.read_busy(0) == set()
    monkeypatch.setattr(load, "nvml", lambda: driver_with({processes["foreign"]: 5}))
    assert load.read_busy(0) == {Busy(gpu="0", pid=processes["foreign"])}
    monkeypatch.setattr(load, "nvml", lambda: driver_with({}))
    assert load.read_busy(0) == set()


def test_a_driver_that_fails_costs_the_run_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv(load.MARK, OWN)

    def fails(_: int) -> set[Busy]:
        raise OSError("NVML does not start: its error 9")

    with ForeignLoad(fails, every_s=0.0) as found:
        assert found.thread is not None
        found.thread.join()  # ends by itself
    assert found.words() == []
    assert gpus.visible() == ["0"]


def test_every_look_asks_from_the_last_one_on_in_microseconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv(load.MARK, OWN)
    monkeypatch.setattr(load, "time", SimpleNamespace(time=iter((1.5, 2.25, 4.0, 9.0)).__next__))
    looks: list[int] = []

    def read(since_us: int) -> set[Busy]:
        looks.append(since_us)
        if len(looks) == 3:
            raise OSError("gone")
        return {Busy(gpu="0", pid=7)}

    monkeypatch.setattr(load, "is_foreign", lambda pid: True)
    with ForeignLoad(read, every_s=0.0) as found:
        assert found.thread is not None
        found.thread.join()  # ends by itself
    assert looks == [1_500_000, 2_250_000, 4_000_000]
    assert found.words() == ["process 7 computed on GPU 0 beside it"]


@pytest.mark.parametrize(("mark", "visible"), [(None, "0"), (OWN, ""), (OWN, "-1")])
def test_nothing_is_looked_at_without_gpus_or_a_mark(
    mark: str | None, visible: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.delenv(load.MARK, raising=False)
    if mark is not None:
        monkeypatch.setenv(load.MARK, mark)
    with ForeignLoad() as found:
        assert found.thread is None


def test_a_driver_that_cannot_tell_tells_of_no_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    old = driver_with({7: 99})
    del old.nvmlDeviceGetProcessUtilization
    monkeypatch.setattr(load, "nvml", lambda: old)
    assert load.read_busy(0) == set()


def test_another_users_process_is_foreign_and_one_that_is_gone_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def content(path: Path) -> bytes:
        if path.parent.name == "7":
            raise PermissionError(path)
        if path.parent.name == "8":
            raise FileNotFoundError(path)
        return f"A=1\0{load.MARK}={path.parent.name}\0B=2\0".encode()

    monkeypatch.setattr(Path, "read_bytes", content)
    monkeypatch.setenv(load.MARK, "9")
    assert [load.is_foreign(pid) for pid in (7, 8, 9, 99)] == [True, False, False, True]


def test_who_was_busy_in_two_looks_computed_beside_a_run() -> None:
    found = ForeignLoad()
    found.seen.update({Busy(gpu="1", pid=7): 1, Busy(gpu="1", pid=8): 2, Busy(gpu="0", pid=9): 3})
    assert found.words() == [
        "process 9 computed on GPU 0 beside it",
        "process 8 computed on GPU 1 beside it",
    ]
    assert found.every_s == 5.0 and gpus.Sampler(print).every_s == 1.0
