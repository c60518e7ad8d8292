"""Whether the kernel ended a process for want of memory.

It counts, for control groups or for the machine, and tells nobody.
"""

from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")


def oom_counter(pid: int) -> Path:
    """The file with the kernel's count for a process.

    That of its control group, of the machine where there is none.
    """
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
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
        if (found := next((p for p in places if p.is_file()), None)) is not None:
            return found
    return Path("/proc/vmstat")


def oom_kills(counter: Path) -> int:
    """How many processes it has ended so far; 0 where it does not tell."""
    try:
        rows = [line.split() for line in counter.read_text().splitlines()]
    except OSError:
        return 0
    return next((int(row[1]) for row in rows if row[0] == "oom_kill"), 0)


def peak_mib(pid: int) -> float:
    """The most memory that a process, or a child of it, has had at once; 0 if unknown."""
    rows = [line.split() for line in _lines(f"/proc/{pid}/status")]
    children = " ".join(_lines(f"/proc/{pid}/task/{pid}/children")).split()
    own = next((int(row[1]) / 1024 for row in rows if row[0] == "VmHWM:"), 0.0)
    return max([own, *(peak_mib(int(child)) for child in children)])


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
