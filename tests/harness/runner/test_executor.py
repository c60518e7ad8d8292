"""What executors say of the runs in progress, and what the one of this machine does with the ends of its runs."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from harness.errors import UserError
from harness.node.slots import Node, Slot
from harness.run.spec import PlannedRun
from harness.runner import process
from harness.runner.executor import ExecutorOptions, RunProgress, Summary, progress_of_all
from harness.runner.local import Runner
from harness.runner.process import Worker
from harness.runner.trunks import without_trunk
from harness.store.state import Progress, RunState
from tests.one_run import SPEC


def planned(seed: int, **how: Any) -> PlannedRun:
    return PlannedRun(arm="a", block=0, place=0, spec=replace(SPEC, seed=seed, **how))


class Shown:
    """A results folder in which some runs have made a step."""

    def __init__(self, **steps: int) -> None:
        self.steps = steps

    def progress(self, run_id: str) -> Progress | None:
        step = self.steps.get(run_id)
        return None if step is None else Progress(step=step, val_loss=step / 2)


def test_runs_that_made_a_step_say_where_they_are() -> None:
    begun, made = planned(1), planned(2)
    store: Any = Shown(**{made.spec.run_id: 5})
    at = RunProgress(run=made, step=5, val_loss=2.5)
    assert progress_of_all(store, [begun, made]) == [at]
    runner = Runner([], store, Node(), ExecutorOptions())
    runner.running.update({1: begun, 2: made})
    assert runner.progress() == [RunProgress(run=begun, step=0, val_loss=None), at]


def test_a_run_for_more_gpus_than_there_are_is_refused_before_any_begins() -> None:
    runs = [planned(1), planned(2, world_size=3)]
    store: Any = Shown()
    assert Runner(runs, store, Node(gpus=["0", "1", "2"]), ExecutorOptions()).todo
    with pytest.raises(UserError, match="--gpus-per-run 3: this node shows 2 GPUs"):
        Runner(runs, store, Node(gpus=["0", "1"]), ExecutorOptions())


def test_so_many_runs_are_in_progress_at_a_time_as_fit_or_are_left() -> None:
    store: Any = Shown()

    def at_once(n: int, *, alone: bool = False, **how: Any) -> int:
        config = {**SPEC.config, "timing": {"exclusive_node": alone}}
        runs = [planned(seed, config=config, **how) for seed in range(n)]
        return Runner(runs, store, Node(gpus=["0", "1", "2", "3"]), ExecutorOptions()).at_once()

    assert [at_once(n) for n in (1, 4, 9)] == [1, 4, 4]
    assert [at_once(n, world_size=2) for n in (1, 9)] == [1, 2]
    assert at_once(9, alone=True) == 1


def test_why_a_run_has_no_trunk_is_told_by_how_that_ended() -> None:
    gone: Any = SimpleNamespace(state=lambda run_id: RunState(status="finished"))
    told = without_trunk("t", Summary(), gone)
    assert told == "its trunk t is gone: run the same command again"
    ended = Summary(statuses={"t": "failed"}, reasons={"t": "no memory"})
    assert without_trunk("t", ended, gone) == "its trunk t ended as failed: no memory"
    here: Any = SimpleNamespace(state=lambda run_id: RunState(status="diverged"))
    assert without_trunk("t", Summary(), here) == "its trunk t ended as diverged"


def test_a_worker_of_another_interpreter_finds_our_code_and_says_what_differs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "effect", lambda runs_in: f"torch of {runs_in['python']}")
    monkeypatch.setenv("PYTHONPATH", "/mine")
    monkeypatch.setenv("RANK", "3")
    slot = Slot(held=(), gpus=("1",), size=1)
    there = Worker(slot, "m:f", runs_in={"python": "p"}).environment()
    here = Worker(slot, "m:f").environment()
    assert there["PYTHONPATH"] == f"{process.HERE}:/mine" and here["PYTHONPATH"] == "/mine"
    assert there[process.EFFECT] == "torch of p" and process.EFFECT not in here
    for variables in (there, here):
        assert "RANK" not in variables and variables["PYTHONUNBUFFERED"] == "1"
        assert variables["OMP_NUM_THREADS"] == variables["MKL_NUM_THREADS"] == str(slot.threads)
    monkeypatch.setattr(process, "effect", lambda runs_in: None)
    assert Worker(slot, "m:f", runs_in={"python": "p"}).environment()[process.EFFECT] == ""
