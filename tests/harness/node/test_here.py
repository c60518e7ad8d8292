"""What this node has for runs: processors, their threads, times in which nothing ran, and watches that end with their `with`."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UserError
from harness.node import slots as slots_module
from harness.node import stalls as stalls_module
from harness.node.background import Background
from harness.node.slots import Node, find_cpus
from harness.node.stalls import Stall, Stalls, since_boot


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        ("max 100000", 6),
        ("250000 100000", 2),
        ("50000 100000", 1),
        ("900000 100000", 6),
        ("nonsense", 6),
        (None, 6),
    ],
)
def test_processors_are_those_of_the_process_or_of_its_containers_share(
    share: str | None, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cpu.max"
    if share is not None:
        file.write_text(share)
    monkeypatch.setattr(slots_module, "Path", lambda name: file)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(6)), raising=False)
    assert find_cpus() == expected


@pytest.mark.parametrize(("count", "expected"), [(5, 5), (None, 1)])
def test_where_no_process_is_bound_all_processors_count(
    count: int | None, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots_module, "Path", lambda name: tmp_path / "none")
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: count)
    assert find_cpus() == expected


def test_processors_are_shared_evenly_by_what_fits() -> None:
    node = Node(n_cpus=8)
    assert [node.at_once(size) for size in (1, 2, 3, 8, 16)] == [8, 4, 2, 1, 1]
    assert [node.threads(size) for size in (1, 2, 3, 8, 16)] == [1, 1, 1, 1, 1]
    assert node.at_once(1, exclusive=True) == 1
    few = Node(n_cpus=8, max_parallel=2)
    assert [few.at_once(1), few.threads(1), few.threads(2), few.threads(4)] == [2, 4, 2, 1]
    gpus = Node(gpus=("0", "1"), n_cpus=64)
    assert (gpus.at_once(1), gpus.threads(1)) == (2, 1)
    gpus.check(2)
    with pytest.raises(UserError, match="--gpus-per-run 3: this node shows 2 GPUs; ask for fewer"):
        gpus.check(3)
    node.check(99)


class Watch(Background):
    """Notes that it has begun, and that it has ended."""

    def __init__(self, begins: bool = True) -> None:
        super().__init__()
        self.begins, self.told = begins, list[str]()
        self.ended = threading.Event()

    def _begins(self) -> bool:
        return self.begins

    def _watch(self) -> None:
        self.told.append("begun")
        self.done.wait()
        self.told.append("ended")


def test_a_watch_has_ended_when_its_with_has() -> None:
    with Watch() as watch:
        assert watch.thread is not None and watch.thread.daemon
    assert watch.told == ["begun", "ended"]
    assert not watch.thread.is_alive()
    with Watch(begins=False) as nothing:
        assert nothing.thread is None
    assert nothing.told == []


def test_a_stand_still_is_a_wait_that_took_far_longer_than_it_should(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    boots = iter((100.0, 100.6, 200.0, 205.0, 300.0, 305.1))
    monkeypatch.setattr(stalls_module, "since_boot", lambda: next(boots))
    stalls: Any = Stalls()
    waits = iter((False, False, True))
    stalls.done = type(
        "Done", (), {"wait": lambda self, s: s == 0.5 and next(waits), "set": lambda self: None}
    )()
    with stalls:
        pass
    [stall] = stalls.found
    assert stall.seconds == pytest.approx(5.1)
    assert stall.began <= stall.ended


def test_a_stand_still_counts_where_it_overlaps_a_span() -> None:
    stalls = Stalls()
    stalls.found = [Stall(began=10, ended=20, seconds=30), Stall(began=50, ended=60, seconds=10)]
    assert stalls.seconds(None) == 40
    for span, expected in (
        ((0, 10), 0),
        ((0, 11), 30),
        ((19, 99), 40),
        ((20, 50), 0),
        ((55, 56), 10),
    ):
        assert stalls.seconds([span]) == expected
    assert stalls.seconds([]) == 0


def test_time_since_the_start_goes_on_and_is_told_without_that_clock_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = since_boot()
    assert since_boot() >= first > 0
    monkeypatch.delattr(stalls_module.time, "CLOCK_BOOTTIME", raising=False)
    monkeypatch.setattr(stalls_module.time, "monotonic", lambda: 7.0)
    assert since_boot() == 7.0


def test_the_end_of_with_waits_for_the_watch() -> None:
    watch = Watch(begins=False)
    with watch:
        stand_in: Any = type("Thread", (), {"join": lambda self: watch.told.append("waited for")})()
        watch.thread = stand_in
        assert not watch.done.is_set()
    assert watch.done.is_set() and watch.told == ["waited for"]
