"""Runs of foreign scripts on this node's slots: what is tried again, what others have, what is told of each end."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UserError
from harness.foreign import runner as runner_module
from harness.foreign.runner import ForeignRunner, make_slots
from harness.node.slots import Slot
from harness.run.attempts import read_attempts
from harness.run.foreign import TrainerLimits
from harness.run.measured import ForeignMarks, Measured
from harness.run.spec import Outcome, PlannedRun
from harness.runner.executor import RunEnded
from harness.store.attempt import claim
from harness.store.store import Store
from tests.one_run import SPEC

Script = Iterator[Outcome | Exception]
ASKED = {
    "command": "sh {script}",
    "script": "x.sh",
    "args": [],
    "env": {},
    "patches": [],
    "data": {},
    "gpus": 0,
    "environment": {},
}
WELL = Outcome(
    status="finished",
    final=Measured(val_loss=3.25, train_time_s=9.0, steps=10),
    marks=ForeignMarks(budget=10, own={"bpb": 0.5}),
)


def ended(status: Any, reason: str | None = None) -> Outcome:
    return Outcome(status=status, reason=reason)


class Node:
    """A runner whose scripts end as they are told to: by seed, try after try."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.store, self.patch = Store.create(folder), patch
        self.ends: list[RunEnded] = []

    def runner(self, *scripts: list[Outcome | Exception], retries: int = 0) -> ForeignRunner:
        left: dict[int, Script] = {seed: iter(script) for seed, script in enumerate(scripts)}
        spec = replace(SPEC, config={"trainer": ASKED})
        runs = [
            PlannedRun(spec=replace(spec, seed=seed), arm="a", place=0, block=seed) for seed in left
        ]

        def train(spec: Any, **how: Any) -> Outcome:
            outcome = next(left[spec.seed])
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        self.patch.setattr(runner_module, "train", train)
        slots = [Slot(held=())]
        limits = TrainerLimits(retries=retries)
        return ForeignRunner(runs, self.store, slots, limits=limits, on_end=self.ends.append)

    def statuses(self) -> list[tuple[int, str, str | None]]:
        return [(end.run.spec.seed, end.status, end.reason) for end in self.ends]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(runner_module, "ELSEWHERE_S", 0.0)
    return Node(tmp_path, monkeypatch)


def test_every_end_is_told_with_its_numbers(node: Node) -> None:
    runner = node.runner(
        [WELL], [ended("diverged", "at step 5: token=hf_aaaaaaaaaaaaaaaaaaaaaaaaaa")]
    )
    assert runner.at_once() == 1
    summary = runner.run()
    first, second = node.ends
    assert (first.status, first.reason, first.val_loss, first.train_time_s) == (
        "finished",
        None,
        3.25,
        9.0,
    )
    assert first.own == {"bpb": 0.5} and second.own == {}
    assert second.reason is not None and "hf_aaaa" not in second.reason
    assert [*summary.statuses.values()] == ["finished", "diverged"] and summary.stopped is None
    assert runner.progress() == []
    tokens = {read_attempts(node.store.directory(e.run.spec.run_id))[0].token for e in node.ends}
    assert tokens == {runner.session}  # their times may be compared


@pytest.mark.parametrize("status", ["failed", "timeout", "oom"])
def test_a_failure_is_tried_again_as_often_as_asked_behind_the_others(
    node: Node, status: str
) -> None:
    runner = node.runner([ended(status, "once"), ended(status, "twice"), WELL], [WELL], retries=1)
    runner.run()
    assert node.statuses() == [(0, status, "once"), (1, "finished", None), (0, status, "twice")]


def test_what_did_not_fail_of_itself_is_not_tried_again(node: Node) -> None:
    ends: list[list[Outcome | Exception]] = [
        [ended("diverged"), WELL],
        [ended("interrupted"), WELL],
    ]
    node.runner(*ends, retries=3).run()
    assert node.statuses() == [(0, "diverged", None), (1, "interrupted", None)]


def test_a_copy_that_cannot_be_made_fails_its_run_and_a_fault_ends_everything(node: Node) -> None:
    runner = node.runner([OSError("disk full")], [RuntimeError("a fault")], [WELL])
    with pytest.raises(RuntimeError, match="a fault"):
        runner.run()
    assert node.statuses() == [(0, "failed", "its clean copy cannot be made: disk full")]
    assert runner.stop == "interrupted"


def test_runs_that_another_runner_has_are_waited_for_and_done_if_it_gives_them_up(
    node: Node,
) -> None:
    runner = node.runner([WELL], [WELL], [WELL])
    specs = [planned.spec for planned in runner.todo]
    done, given_up = claim(node.store, specs[0]), claim(node.store, specs[1])
    assert done is not None and given_up is not None
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            done.describe({"host": "there"})
            done.finish(replace(WELL, status="diverged", reason="there"))
            done.release()
        if len(waits) == 3:
            given_up.release()

    node.patch.setattr(runner_module.time, "sleep", wait)
    summary = runner.run()
    assert node.statuses() == [
        (2, "finished", None),
        (0, "diverged", "there"),
        (1, "finished", None),
    ]
    assert len(waits) == 3 and len(summary.statuses) == 3


@pytest.mark.parametrize(
    ("per_run", "at_once", "held"),
    [
        (2, 4, [("0", "1"), ("2", "3")]),
        (2, 1, [("0", "1")]),
        (5, 9, [("0", "1", "2", "3", "4")]),
        (1, 2, [("0",), ("1",)]),
    ],
)
def test_slots_are_disjoint_gpus(
    monkeypatch: pytest.MonkeyPatch, per_run: int, at_once: int, held: list[tuple[str, ...]]
) -> None:
    monkeypatch.setattr(runner_module, "find_gpus", lambda: list("01234"))
    slots = make_slots(per_run, at_once)
    assert [slot.held for slot in slots] == [slot.gpus for slot in slots] == held
    with pytest.raises(UserError, match="a run needs 6 GPUs, this node shows 5: ask for fewer, 0"):
        make_slots(6, 1)


def test_slots_without_gpus_share_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "find_cpus", lambda: 8)
    find: Callable[[], list[str]] = lambda: pytest.fail("nobody asked for GPUs")  # noqa: E731
    monkeypatch.setattr(runner_module, "find_gpus", find)
    for at_once, threads in ((1, 8), (3, 2), (8, 1), (16, 1)):
        slots = make_slots(0, at_once)
        assert slots == [Slot(held=(), threads=threads)] * at_once
