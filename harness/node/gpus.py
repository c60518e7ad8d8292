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
    code = None if start is None else start()
    if code != 0:
        raise OSError(
            "NVML is too old" if code is None else f"NVML does not start: its error {code}"
        )
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
    value, ask = kind(), getattr(library, function, None)
    return (
        value.value
        if ask is not None and ask(handle, *map(c_uint, arguments), byref(value)) == 0
        else None
    )


def visible() -> list[str]:
    """This process's GPUs by the names in CUDA_VISIBLE_DEVICES; none where it is not set."""
    return [
        name.strip()
        for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        if name.strip() not in ("", "-1")
    ]


def read_gpus() -> list[dict[str, Any]]:
    """One row for each GPU: sm_mhz, memory_mhz, power_w, temperature_c, throttle (names).

    Null where the driver does not tell.

    Raises OSError, with the reason, where there are GPUs but nothing can be read of them.
    """
    names = visible()
    library = _library() if names else None
    rows = []
    for name in names:
        h = _handle(library, name)
        power = _number(library, "nvmlDeviceGetPowerUsage", h)
        bits = _number(library, "nvmlDeviceGetCurrentClocksThrottleReasons", h, kind=c_ulonglong)
        rows.append(
            {
                "gpu": name,
                "sm_mhz": _number(library, "nvmlDeviceGetClockInfo", h, SM),
                "memory_mhz": _number(library, "nvmlDeviceGetClockInfo", h, MEMORY),
                "power_w": None if power is None else power / 1000,
                "temperature_c": _number(library, "nvmlDeviceGetTemperature", h, TEMPERATURE),
                "throttle": (
                    None
                    if bits is None
                    else [words for bit, words in THROTTLES.items() if bits & bit]
                ),
            }
        )
    return rows


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
            found = self.read()
        except OSError as error:  # of the driver: no fault of the run
            self.unread = str(error)
            return False
        for row in found:
            self.rows.append(row)
            self.write({"kind": "gpu", **row})
        return bool(found)

    def _run(self) -> None:
        while not self.done.wait(self.every_s) and self._sample():
            pass

    def summary(self) -> dict[str, Any] | None:
        """Over all readings of all GPUs, or why there are none; None without GPUs."""
        unread = {} if self.unread is None else {"unread": self.unread}
        if not self.rows:
            return {"readings": 0, **unread} if unread else None
        known = {
            k: [r[k] for r in self.rows if r[k] is not None]
            for k in ("sm_mhz", "power_w", "temperature_c", "throttle")
        }
        return {
            "readings": len(self.rows),
            "sm_mhz_lowest": min(known["sm_mhz"], default=None),
            "sm_mhz_median": median(known["sm_mhz"]) if known["sm_mhz"] else None,
            "power_w_mean": fmean(known["power_w"]) if known["power_w"] else None,
            "temperature_c_highest": max(known["temperature_c"], default=None),
            "throttle": (
                sorted({words for names in known["throttle"] for words in names})
                if known["throttle"]
                else None
            ),
            **unread,
        }
