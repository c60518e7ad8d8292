"""What the kernel counts of processes that it ended, wherever this machine keeps the count."""

from pathlib import Path

import pytest

from harness.node import memory

PID = 7


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose /proc and control groups lie in a folder."""
    monkeypatch.setattr(memory, "GROUPS", tmp_path / "groups")
    monkeypatch.setattr(memory, "Path", lambda path: tmp_path / str(path).lstrip("/"))
    return tmp_path


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("groups", "files", "counter"),
    [
        ("0::/job/a:1\n", ("job/a:1/memory.events", "memory.events"), "job/a:1/memory.events"),
        ("0::/job\n", ("memory.events",), "memory.events"),
        ("0::/\n", ("memory.events",), "memory.events"),
        (
            "5:cpuset:/job\n4:cpu,memory:/job\n0::/job\n",
            ("job/memory.events", "memory/job/memory.oom_control", "memory/memory.oom_control"),
            "memory/job/memory.oom_control",
        ),
        ("4:memory:/job\n", ("memory/memory.oom_control",), "memory/memory.oom_control"),
        ("4:memory:/job\n0::/job\n", ("job/memory.events",), "job/memory.events"),
        ("5:cpuset:/job\n", ("job/memory.events", "memory.events"), None),
        ("0::/job\n", (), None),
        (None, ("memory.events",), None),
    ],
)
def test_the_count_is_that_of_the_nearest_control_group_else_the_machines(
    machine: Path, groups: str | None, files: tuple[str, ...], counter: str | None
) -> None:
    if groups is not None:
        put(machine / f"proc/{PID}/cgroup", groups)
    for file in files:
        put(machine / "groups" / file, "oom_kill 1\n")
    expected = machine / "groups" / counter if counter else machine / "proc/vmstat"
    assert memory.oom_counter(PID) == expected


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("low 9\nmax 8\noom 5\noom_kill 3\noom_group_kill 7\n", 3),
        ("oom_kill_disable 9\nunder_oom 8\noom_kill 2\n", 2),
        ("oom 5\n", 0),
        ("", 0),
        (None, 0),
    ],
)
def test_kills_are_read_and_none_is_known_where_nothing_tells(
    machine: Path, text: str | None, n: int
) -> None:
    counter = machine / "memory.events"
    if text is not None:
        counter.write_text(text)
    assert memory.oom_kills(counter) == n


def test_the_peak_is_that_of_the_largest_of_a_process_and_its_children(machine: Path) -> None:
    assert memory.peak_mib(PID) == 0.0

    def process(pid: int, kib: int, *children: int) -> None:
        status = f"Name:\tpython\nVmPeak:\t 999999 kB\nVmHWM:\t {kib} kB\nVmRSS:\t 1 kB\n"
        put(machine / f"proc/{pid}/status", status)
        put(machine / f"proc/{pid}/task/{pid}/children", "".join(f"{c} " for c in children))

    process(PID, 3072)
    assert memory.peak_mib(PID) == 3.0
    process(PID, 3072, 8, 9)
    process(8, 1024)
    process(9, 512, 10)
    process(10, 5120)
    assert memory.peak_mib(PID) == 5.0
    assert memory.peak_mib(8) == 1.0
