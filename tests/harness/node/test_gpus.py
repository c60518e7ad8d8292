"""What the driver tells of the GPUs reaches result.json; what it does not tell is said, and costs no run anything.

NVML is played by C functions made with ctypes, called as the real ones are: codes returned, values written behind pointers.
"""

import ctypes
import os
from collections.abc import Callable, Iterator
from ctypes import POINTER, c_char_p, c_int, c_uint, c_ulonglong, c_void_p
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.errors import UserError
from harness.node import gpus
from harness.run.measured import Measured
from harness.run.read import read_lines
from harness.run.results import read_result
from harness.run.spec import Outcome, RunSpec
from harness.runner.messages import WorkerRequest
from harness.runner.train_run import Alone, StopRequest, lead
from harness.store.store import Store
from tests.one_run import SPEC

NOT_SUPPORTED, NOT_FOUND = 3, 6  # NVML's codes
CARD, TWIN = 11, 12  # handles


def number(
    values: dict[Any, int], *, kind: Any = c_uint, n_arguments: int = 0
) -> Callable[..., int]:
    """A C function (handle, further arguments, pointer) -> code, which knows the values of (handle, further arguments)."""

    def function(handle: int, *rest: Any) -> int:
        key = (handle, *rest[:-1])
        if key not in values:
            return NOT_SUPPORTED
        rest[-1][0] = values[key]
        return 0

    return ctypes.CFUNCTYPE(c_int, c_void_p, *[c_uint] * n_arguments, POINTER(kind))(function)


def handle_of(names: dict[Any, int], kind: Any) -> Callable[..., int]:
    def function(name: Any, handle: Any) -> int:
        if name not in names:
            return NOT_FOUND
        handle[0] = names[name]
        return 0

    return ctypes.CFUNCTYPE(c_int, kind, POINTER(c_void_p))(function)


def nvml(**changes: Any) -> SimpleNamespace:
    """A driver with GPU 0, which is throttled and hot, and one called GPU-twin, which tells only its clock."""
    library = {
        "nvmlInit_v2": ctypes.CFUNCTYPE(c_int)(lambda: 0),
        "nvmlDeviceGetHandleByIndex_v2": handle_of({0: CARD}, c_uint),
        "nvmlDeviceGetHandleByUUID": handle_of({b"GPU-twin": TWIN}, c_char_p),
        "nvmlDeviceGetClockInfo": number(
            {(CARD, 1): 1410, (CARD, 2): 2619, (TWIN, 1): 1980}, n_arguments=1
        ),
        "nvmlDeviceGetPowerUsage": number({(CARD,): 698_500}),
        "nvmlDeviceGetTemperature": number({(CARD, 0): 83}, n_arguments=1),
        "nvmlDeviceGetCurrentClocksThrottleReasons": number(
            {(CARD,): 0x1 | 0x4 | 0x20}, kind=c_ulonglong
        ),
    }
    return SimpleNamespace(**{k: v for k, v in (library | changes).items() if v is not None})


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Sets the GPUs that are visible and the library that is found; an exception where there is none."""

    def set_up(visible: str, library: Any) -> None:
        def find(name: str) -> Any:
            assert name == "libnvidia-ml.so.1"
            if isinstance(library, Exception):
                raise library
            return library

        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        monkeypatch.setattr(gpus.ctypes, "CDLL", find)
        gpus.nvml.cache_clear()

    yield set_up
    gpus.nvml.cache_clear()


def result_of_run(tmp_path: Path) -> tuple[Any, list[dict[str, Any]]]:
    """`gpu` of a run's result.json and its readings, by the worker's own code."""

    def train(spec: RunSpec, *, out: Any, device: str, stop: Any) -> Outcome:
        return Outcome(status="finished", final=Measured(val_loss=1.0, steps=3))

    store = Store.create(tmp_path / "results")
    request = WorkerRequest(results=store.root, spec=SPEC, token="t", command="c")
    event = lead(request, train, wall={}, peers=Alone(), stop=StopRequest())
    assert event.status == "finished"
    run = store.directory(SPEC.run_id)
    result = read_result(run)
    assert result is not None
    return result.gpu, [r for r in read_lines(run / "metrics.jsonl") if r["kind"] == "gpu"]


def test_clocks_power_and_throttle_reasons_arrive_in_the_result(
    tmp_path: Path, driver: Any
) -> None:
    driver("0,GPU-twin", nvml())
    told, readings = result_of_run(tmp_path)
    assert readings[:2] == [
        {
            "kind": "gpu", "gpu": "0", "sm_mhz": 1410, "memory_mhz": 2619, "power_w": 698.5, "temperature_c": 83,
            "throttle": ["software power cap", "software thermal slowdown"],
        },
        {
            "kind": "gpu", "gpu": "GPU-twin", "sm_mhz": 1980, "memory_mhz": None, "power_w": None, "temperature_c": None,
            "throttle": None,
        },
    ]  # fmt: skip
    assert told == {
        "readings": len(readings),
        "sm_mhz_lowest": 1410,
        "sm_mhz_median": 1695.0,
        "power_w_mean": 698.5,
        "temperature_c_highest": 83,
        "throttle": ["software power cap", "software thermal slowdown"],
    }


@pytest.mark.parametrize(
    ("visible", "library", "why"),
    [
        ("0", OSError("not found"), "there is no libnvidia-ml.so.1"),
        (
            "0",
            nvml(nvmlInit_v2=ctypes.CFUNCTYPE(c_int)(lambda: 9)),
            "NVML does not start: its error 9",
        ),
        ("0", nvml(nvmlInit_v2=None), "NVML is too old"),
        ("0,3", nvml(), "NVML does not know GPU 3: its error 6"),
        ("MIG-x", nvml(), "NVML does not know GPU MIG-x: its error 6"),
    ],
)
def test_what_cannot_be_read_is_said_and_costs_nothing(
    tmp_path: Path, driver: Any, visible: str, library: Any, why: str
) -> None:
    driver(visible, library)
    assert result_of_run(tmp_path) == ({"readings": 0, "unread": why}, [])


def test_without_gpus_there_is_nothing_to_say(tmp_path: Path, driver: Any) -> None:
    driver("", AssertionError("not asked for"))
    assert result_of_run(tmp_path) == (None, [])


def test_a_function_that_is_missing_or_fails_leaves_its_own_value_out(
    tmp_path: Path, driver: Any
) -> None:
    driver(
        "0",
        nvml(nvmlDeviceGetCurrentClocksThrottleReasons=None, nvmlDeviceGetPowerUsage=number({})),
    )
    told, _ = result_of_run(tmp_path)
    assert (told["sm_mhz_lowest"], told["power_w_mean"], told["throttle"]) == (
        1410,
        None,
        None,
    )  # unknown is not "none"


def test_every_reason_of_the_driver_has_its_words(driver: Any) -> None:
    reasons: list[str | None] = [None, "application clocks", "software power cap"]
    reasons += ["hardware slowdown", "sync boost", "software thermal slowdown"]
    reasons += ["hardware thermal slowdown", "hardware power brake", "display clocks", None]
    told = []
    for n in range(len(reasons)):
        bits = number({(CARD,): 1 << n}, kind=c_ulonglong)
        driver("0", nvml(nvmlDeviceGetCurrentClocksThrottleReasons=bits))
        told += [reading.throttle for reading in gpus.read_gpus()]
    assert told == [[reason] if reason else [] for reason in reasons]


def test_a_gpu_that_is_lost_during_a_run_ends_the_sampling_alone() -> None:
    row = gpus.GpuReading(
        gpu="0", sm_mhz=1, memory_mhz=1, power_w=1.0, temperature_c=1, throttle=[]
    )
    answers = iter([[row], OSError("NVML does not know GPU 0: its error 15")])

    def read() -> list[gpus.GpuReading]:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    written: list[Any] = []
    with gpus.Sampler(written.append, read=read, every_s=0.0) as sampler:
        assert sampler.thread is not None
        sampler.thread.join()  # ends by itself
    told = sampler.summary()
    assert told is not None
    assert (told.readings, told.throttle, told.unread) == (
        1,
        [],
        "NVML does not know GPU 0: its error 15",
    )
    assert len(written) == 1


def test_the_drivers_tool_is_asked_once_in_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harness.provenance import machine as provenance

    tool, asked = tmp_path / "nvidia-smi", tmp_path / "asked"
    tool.write_text(f"#!/bin/sh\necho x >> {asked}\necho 'NVIDIA H200, GPU-abc, 580.1, 700.00'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    provenance.gpus_here.cache_clear()
    accounts = [provenance.describe_environment("x").gpus for _ in range(3)]
    provenance.gpus_here.cache_clear()
    assert (
        accounts
        == [
            [
                {
                    "name": "NVIDIA H200",
                    "uuid": "GPU-abc",
                    "driver_version": "580.1",
                    "power.limit": "700.00",
                }
            ]
        ]
        * 3
    )
    assert asked.read_text() == "x\n"


def test_a_run_that_holds_as_many_readings_as_it_may_says_so() -> None:
    row = gpus.GpuReading(
        gpu="0", sm_mhz=1, memory_mhz=1, power_w=1.0, temperature_c=1, throttle=[]
    )
    written: list[Any] = []

    def write(reading: gpus.GpuReading) -> None:
        if written:
            raise UserError("no more rows than 1")
        written.append(reading)

    with gpus.Sampler(write, read=lambda: [row, row], every_s=0.0) as sampler:
        pass
    told = sampler.summary()
    assert told is not None and sampler.thread is None, "nothing more is read"
    assert (len(written), told.readings, told.unread) == (1, 2, "no more rows than 1")
