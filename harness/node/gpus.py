"""The state of this process's GPUs while a run trains.

Clocks, power, temperature, and why they were throttled.

Read from the driver's own library (NVML, libnvidia-ml.so.1) through ctypes: microseconds a
reading, no other package needed.
"""

import ctypes
import os
import threading
from collections.abc import Callable, Mapping
from ctypes import byref, c_uint, c_ulonglong, c_void_p
from functools import cache
from statistics import fmean, median
from typing import Any

EVERY_S = 1.0
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
def _library() -> Any:
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


def _handle(library: Any, name: str) -> c_void_p:
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


def read_gpus() -> list[dict[str, Any]]:
    """One row for each GPU: sm_mhz, memory_mhz, power_w, temperature_c, throttle (names).

    Null where the driver does not tell.

    Raises OSError, with the reason, where there are GPUs but nothing can be read of them.
    """
    rows = []
    for name in visible():
        rows.append(_read_gpu(_library(), name))
    return rows


def _read_gpu(library: Any, name: str) -> dict[str, Any]:
    gpu = _handle(library, name)
    milliwatts = _number(library, "nvmlDeviceGetPowerUsage", gpu)
    bits = _number(library, "nvmlDeviceGetCurrentClocksThrottleReasons", gpu, kind=c_ulonglong)
    return {
        "gpu": name,
        "sm_mhz": _number(library, "nvmlDeviceGetClockInfo", gpu, SM),
        "memory_mhz": _number(library, "nvmlDeviceGetClockInfo", gpu, MEMORY),
        "power_w": None if milliwatts is None else milliwatts / 1000,
        "temperature_c": _number(library, "nvmlDeviceGetTemperature", gpu, TEMPERATURE),
        "throttle": None if bits is None else _reasons(bits),
    }


def _reasons(bits: int) -> list[str]:
    """Why a GPU is throttled, by the names of NVML's bits."""
    return [reason for bit, reason in THROTTLES.items() if bits & bit]


class Sampler:
    """Reads the GPUs every second in the background, from `with` to its end.

    Each reading goes to `write` as a row.
    """

    def __init__(
        self,
        write: Callable[[Mapping[str, Any]], Any],
        *,
        read: Callable[[], list[dict[str, Any]]] = read_gpus,
        every_s: float = EVERY_S,
    ) -> None:
        self.write, self.read, self.every_s = write, read, every_s
        self.rows: list[dict[str, Any]] = []
        self.unread: str | None = None  # why they could not be read
        self.done = threading.Event()
        self.thread: threading.Thread | None = None

    def __enter__(self) -> "Sampler":
        if self._sample():  # else there is nothing to sample
            self.thread = threading.Thread(target=self._run, daemon=True)
            self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        if self.thread is not None:
            self.thread.join()

    def _sample(self) -> bool:
        try:
            rows = self.read()
        except OSError as error:  # of the driver: no fault of the run
            self.unread = str(error)
            return False
        for row in rows:
            self.rows.append(row)
            self.write({"kind": "gpu", **row})
        return bool(rows)

    def _run(self) -> None:
        while not self.done.wait(self.every_s) and self._sample():
            pass

    def summary(self) -> dict[str, Any] | None:
        """Over all readings of all GPUs, or why there are none; None without GPUs."""
        summary: dict[str, Any] = {"readings": len(self.rows)}
        if self.rows:
            summary |= self._figures()
        if self.unread is not None:
            summary["unread"] = self.unread
        return summary if self.rows or self.unread is not None else None

    def _figures(self) -> dict[str, Any]:
        """What the readings come to; null where the driver never told."""
        clocks, powers = self._readings("sm_mhz"), self._readings("power_w")
        throttle = self._readings("throttle")
        reasons: set[str] = set()
        reasons.update(*throttle)
        return {
            "sm_mhz_lowest": min(clocks, default=None),
            "sm_mhz_median": median(clocks) if clocks else None,
            "power_w_mean": fmean(powers) if powers else None,
            "temperature_c_highest": max(self._readings("temperature_c"), default=None),
            "throttle": sorted(reasons) if throttle else None,
        }

    def _readings(self, name: str) -> list[Any]:
        """All that was read of one thing."""
        return [row[name] for row in self.rows if row[name] is not None]
