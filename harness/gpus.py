"""The state of this process's GPUs while a run trains: clocks, power, temperature, and why they were throttled.

Read from the driver's own library (NVML, libnvidia-ml.so.1) through ctypes: microseconds a reading, no other package needed.
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
    """NVML, started; None where there is no driver."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    return library if library.nvmlInit_v2() == 0 else None


def _handle(library: Any, name: str) -> c_void_p | None:
    """The GPU that CUDA_VISIBLE_DEVICES calls by this name: an index, or an identifier."""
    handle = c_void_p()
    if name.isdigit():
        error = library.nvmlDeviceGetHandleByIndex_v2(c_uint(int(name)), byref(handle))
    else:
        error = library.nvmlDeviceGetHandleByUUID(name.encode(), byref(handle))
    return handle if error == 0 else None


def _number(function: Any, handle: c_void_p, *arguments: int, kind: type = c_uint) -> int | None:
    value = kind()
    return value.value if function(handle, *map(c_uint, arguments), byref(value)) == 0 else None


def visible() -> list[str]:
    """This process's GPUs by the names in CUDA_VISIBLE_DEVICES; none where it is not set."""
    return [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip() not in ("", "-1")]


def read_gpus() -> list[dict[str, Any]]:
    """One row for each GPU: sm_mhz, memory_mhz, power_w, temperature_c, throttle (names); null where the driver does not tell."""
    library = _library()
    rows = []
    for name in visible() if library is not None else ():
        if (h := _handle(library, name)) is None:
            continue
        power = _number(library.nvmlDeviceGetPowerUsage, h)
        bits = _number(library.nvmlDeviceGetCurrentClocksThrottleReasons, h, kind=c_ulonglong) or 0
        rows.append(
            {
                "gpu": name,
                "sm_mhz": _number(library.nvmlDeviceGetClockInfo, h, SM),
                "memory_mhz": _number(library.nvmlDeviceGetClockInfo, h, MEMORY),
                "power_w": None if power is None else power / 1000,
                "temperature_c": _number(library.nvmlDeviceGetTemperature, h, TEMPERATURE),
                "throttle": [words for bit, words in THROTTLES.items() if bits & bit],
            }
        )
    return rows


class Sampler:
    """Reads the GPUs once a second in the background, from `with` to its end; each reading goes to `write` as a row."""

    def __init__(
        self, write: Callable[[Mapping[str, Any]], Any], *, read: Callable[[], list[dict[str, Any]]] = read_gpus
    ) -> None:
        self.write, self.read = write, read
        self.rows: list[dict[str, Any]] = []
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
        found = self.read()
        for row in found:
            self.rows.append(row)
            self.write({"kind": "gpu", **row})
        return bool(found)

    def _run(self) -> None:
        while not self.done.wait(EVERY_S):
            self._sample()

    def summary(self) -> dict[str, Any] | None:
        """Over all readings of all GPUs; None without any."""
        if not self.rows:
            return None
        known = {k: [r[k] for r in self.rows if r[k] is not None] for k in ("sm_mhz", "power_w", "temperature_c")}
        return {
            "readings": len(self.rows),
            "sm_mhz_lowest": min(known["sm_mhz"], default=None),
            "sm_mhz_median": median(known["sm_mhz"]) if known["sm_mhz"] else None,
            "power_w_mean": fmean(known["power_w"]) if known["power_w"] else None,
            "temperature_c_highest": max(known["temperature_c"], default=None),
            "throttle": sorted({words for r in self.rows for words in r["throttle"]}),
        }
