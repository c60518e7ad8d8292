"""Whether the kernel ended a process for want of memory.

It counts, for control groups or for the machine, and tells nobody.
"""

from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")


def oom_counter(pid: int) -> Path:
    """The file with the kernel's count for a process.

    That of its control group, of the machine where there is none.
    """
    for line in _lines(Path(f"/proc/{pid}/cgroup")):
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            places = [
                GROUPS / "memory" / path.strip("/") / "memory.oom_control",
                GROUPS / "memory" / "memory.oom_control",
            ]
        elif controllers == "":  # a container sees its own group as the root
            places = [GROUPS / path.strip("/") / "memory.events", GROUPS / "memory.events"]
        else:
            continue
        for place in places:
            if place.is_file():
                return place
    return Path("/proc/vmstat")


def oom_kills(counter: Path) -> int:
    """How many processes it has ended so far; 0 where it does not tell."""
    for line in _lines(counter):
        values = line.split()
        if values[0] == "oom_kill":
            return int(values[1])
    return 0


def peak_mib(pid: int) -> float:
    """The most memory that a process, or a child of it, has had at once; 0 if unknown."""
    peaks = [0.0]
    for line in _lines(Path(f"/proc/{pid}/status")):
        name, _, value = line.partition(":")
        if name == "VmHWM":
            peaks.append(int(value.split()[0]) / 1024)
    for line in _lines(Path(f"/proc/{pid}/task/{pid}/children")):
        for child in line.split():
            peaks.append(peak_mib(int(child)))
    return max(peaks)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
