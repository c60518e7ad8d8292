"""The state of this process's GPUs while a run trains.

Clocks, power, temperature, and why they were throttled.

Read from the driver's own library (NVML, libnvidia-ml.so.1) through ctypes: microseconds a
reading, no other package needed.
"""

import ctypes
import os
from collections.abc import Callable
from ctypes import byref, c_uint, c_ulonglong, c_void_p
from dataclasses import asdict, dataclass
from functools import cache
from statistics import fmean, median
from typing import Any

from harness.errors import UserError
from harness.node.background import Background

EVERY_S = 1.0  # between two looks
SM, MEMORY, TEMPERATURE = 1, 2, 0  # NVML's numbers of the clocks and of the sensor
THROTTLES = {  # NVML's bits, nvml.h: nvmlClocksEventReason*; idle GPUs are no news
    0x2: "application clocks",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clocks",
}


@cache
def nvml() -> Any:
    """NVML, started. Raises OSError where there is none that answers."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        raise OSError("there is no libnvidia-ml.so.1") from None
    start = getattr(library, "nvmlInit_v2", None)
    if start is None:
        raise OSError("NVML is too old")
    code = start()
    if code != 0:
        raise OSError(f"NVML does not start: its error {code}")
    return library


def handle_of_gpu(library: Any, name: str) -> c_void_p:
    """The GPU that CUDA_VISIBLE_DEVICES calls by this name: an index, or an identifier.

    Raises OSError.
    """
    handle = c_void_p()
    if name.isdigit():
        code = library.nvmlDeviceGetHandleByIndex_v2(c_uint(int(name)), byref(handle))
    else:
        code = library.nvmlDeviceGetHandleByUUID(name.encode(), byref(handle))
    if code != 0:
        raise OSError(f"NVML does not know GPU {name}: its error {code}")
    return handle


def _number(
    library: Any, function: str, handle: c_void_p, *arguments: int, kind: type = c_uint
) -> int | None:
    """What an NVML function tells of a GPU.

    None where it fails or this library has none of that name.
    """
    ask = getattr(library, function, None)
    if ask is None:
        return None
    value = kind()
    if ask(handle, *map(c_uint, arguments), byref(value)) != 0:
        return None
    number: int = value.value
    return number


def visible() -> list[str]:
    """This process's GPUs by the names in CUDA_VISIBLE_DEVICES; none where it is not set."""
    names = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return [name.strip() for name in names if name.strip() not in ("", "-1")]


@dataclass(frozen=True, kw_only=True)
class GpuReading:
    """The state of a GPU at a moment; None where the driver does not tell."""

    gpu: str  # as CUDA_VISIBLE_DEVICES names it
    sm_mhz: int | None
    memory_mhz: int | None
    power_w: float | None
    temperature_c: int | None
    throttle: list[str] | None  # why it is throttled

    def to_json(self) -> dict[str, object]:
        """A row of metrics.jsonl."""
        return {"kind": "gpu", **asdict(self)}


@dataclass(frozen=True, kw_only=True)
class GpuSummary:
    """Over all readings of all GPUs, or why there are none; None where the driver never told."""

    readings: int
    sm_mhz_lowest: int | None = None
    sm_mhz_median: float | None = None
    power_w_mean: float | None = None
    temperature_c_highest: int | None = None
    throttle: list[str] | None = None
    unread: str | None = None  # why they could not be read

    def to_json(self) -> dict[str, object]:
        """`gpu` of result.json: figures where there are readings, `unread` where it says why."""
        content = asdict(self)
        if not self.readings:
            content = {"readings": 0, "unread": self.unread}
        if self.unread is None:
            del content["unread"]
        return content


def read_gpus() -> list[GpuReading]:
    """One reading of each GPU.

    Raises OSError, with the reason, where there are GPUs but nothing can be read of them.
    """
    rows = []
    for name in visible():
        rows.append(_read_gpu(nvml(), name))
    return rows


def _read_gpu(library: Any, name: str) -> GpuReading:
    gpu = handle_of_gpu(library, name)
    milliwatts = _number(library, "nvmlDeviceGetPowerUsage", gpu)
    bits = _number(library, "nvmlDeviceGetCurrentClocksThrottleReasons", gpu, kind=c_ulonglong)
    return GpuReading(
        gpu=name,
        sm_mhz=_number(library, "nvmlDeviceGetClockInfo", gpu, SM),
        memory_mhz=_number(library, "nvmlDeviceGetClockInfo", gpu, MEMORY),
        power_w=None if milliwatts is None else milliwatts / 1000,
        temperature_c=_number(library, "nvmlDeviceGetTemperature", gpu, TEMPERATURE),
        throttle=None if bits is None else _reasons(bits),
    )


def _reasons(bits: int) -> list[str]:
    """Why a GPU is throttled, by the names of NVML's bits."""
    return [reason for bit, reason in THROTTLES.items() if bits & bit]


class Sampler(Background):
    """Reads the GPUs every second in the background, from `with` to its end.

    Each reading goes to `write` as a row.
    """

    def __init__(
        self,
        write: Callable[[GpuReading], Any],
        *,
        read: Callable[[], list[GpuReading]] = read_gpus,
        every_s: float = EVERY_S,
    ) -> None:
        super().__init__()
        self.write, self.read, self.every_s = write, read, every_s
        self.rows: list[GpuReading] = []
        self.unread: str | None = None  # why they could not be read

    def _begins(self) -> bool:
        return self._sample()

    def _sample(self) -> bool:
        try:
            rows = self.read()
        except OSError as error:  # of the driver: no fault of the run
            self.unread = str(error)
            return False
        for row in rows:
            self.rows.append(row)
            try:
                self.write(row)
            except UserError as error:  # no room for more
                self.unread = str(error)
                return False
        return bool(rows)

    def _watch(self) -> None:
        while not self.done.wait(self.every_s) and self._sample():
            pass

    def summary(self) -> GpuSummary | None:
        """What the readings come to, or why there are none; None without GPUs."""
        if not self.rows and self.unread is None:
            return None
        clocks = [row.sm_mhz for row in self.rows if row.sm_mhz is not None]
        powers = [row.power_w for row in self.rows if row.power_w is not None]
        temperatures = [r.temperature_c for r in self.rows if r.temperature_c is not None]
        throttled = [row.throttle for row in self.rows if row.throttle is not None]
        return GpuSummary(
            readings=len(self.rows),
            sm_mhz_lowest=min(clocks, default=None),
            sm_mhz_median=median(clocks) if clocks else None,
            power_w_mean=fmean(powers) if powers else None,
            temperature_c_highest=max(temperatures, default=None),
            throttle=sorted(set().union(*throttled)) if throttled else None,
            unread=self.unread,
        )
