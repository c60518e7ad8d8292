"""Runs of foreign scripts wherever they are made: what is tried again, what others have, which code and versions they meet."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.errors import UserError
from harness.foreign import runner as runner_module
from harness.foreign.runner import TAKEN, ScriptTrainer, check_gpus
from harness.node.slots import Node, Slot
from harness.provenance.code import Code
from harness.provenance.lock import environment_lock
from harness.run.attempts import read_attempts
from harness.run.disturbed import disturbed_words
from harness.run.foreign import TrainerLimits
from harness.run.measured import ForeignMarks, Measured
from harness.run.results import read_result
from harness.run.spec import Outcome, PlannedRun
from harness.runner import local as local_module
from harness.runner.executor import ExecutorOptions, RunEnded
from harness.runner.kernels import TurnToCompile
from harness.runner.local import Runner
from harness.store.attempt import RunWriter, TakenOverError, claim
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
CODE = Code(script="x.sh", files={"x.sh": b"true\n"})
WELL = Outcome(
    status="finished",
    final=Measured(val_loss=3.25, train_time_s=9.0, steps=10),
    marks=ForeignMarks(budget=10, own={"bpb": 0.5}),
)


def ended(status: Any, reason: str | None = None) -> Outcome:
    return Outcome(status=status, reason=reason)


class Bench:
    """A runner whose scripts end as they are told to: by seed, try after try."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.store, self.patch = Store.create(folder), patch
        self.ends: list[RunEnded] = []
        self.order: list[int] = []  # seeds, as they were tried
        self.trainer = ScriptTrainer()
        self.store.keep_once("code", CODE.source.digest, ".zip", CODE.zipped)

    def runner(self, *scripts: list[Outcome | Exception], retries: int = 0, **how: Any) -> Runner:
        left: dict[int, Script] = {seed: iter(script) for seed, script in enumerate(scripts)}
        spec = replace(
            SPEC,
            config={"trainer": ASKED},
            source_digest=CODE.source.digest,
            environment_digest=environment_lock().digest,
        )
        spec = replace(spec, **how)
        runs = [
            PlannedRun(spec=replace(spec, seed=seed), arm="a", place=0, block=seed) for seed in left
        ]

        def train(spec: Any, **how: Any) -> Outcome:
            assert how["code"].files == CODE.files
            self.order.append(spec.seed)
            outcome = next(left[spec.seed])
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        self.patch.setattr(runner_module, "train", train)
        self.trainer = ScriptTrainer(limits=TrainerLimits(retries=retries))
        options = ExecutorOptions(trainer=self.trainer, on_end=self.ends.append)
        return Runner(runs, self.store, Node(max_parallel=1), options)

    def statuses(self) -> list[tuple[int, str, str | None]]:
        return [(end.run.spec.seed, end.status, end.reason) for end in self.ends]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(local_module, "ELSEWHERE_S", 0.0)
    return Bench(tmp_path, monkeypatch)


def test_every_end_is_told_and_their_times_may_be_compared(bench: Bench) -> None:
    secret = "at step 5: token=hf_aaaaaaaaaaaaaaaaaaaaaaaaaa"
    summary = bench.runner([WELL], [ended("diverged", secret)]).run()
    first, second = bench.ends
    assert (first.status, first.reason, first.val_loss) == ("finished", None, 3.25)
    assert second.reason is not None and "hf_aaaa" not in second.reason
    assert [*summary.statuses.values()] == ["finished", "diverged"] and summary.stopped is None
    directories = [bench.store.directory(end.run.spec.run_id) for end in bench.ends]
    tokens = [read_attempts(directory)[0].token for directory in directories]
    assert {token.rpartition("/")[2] for token in tokens} == {bench.trainer.session}
    assert len(set(tokens)) == 2


@pytest.mark.parametrize("status", ["failed", "timeout", "oom"])
def test_a_failure_is_tried_again_at_once_as_often_as_asked(bench: Bench, status: str) -> None:
    tries: list[Outcome | Exception] = [ended(status, "once"), ended(status, "twice"), WELL]
    bench.runner(tries, [WELL], retries=1).run()
    assert bench.order == [0, 0, 1]
    assert bench.statuses() == [(0, status, "twice"), (1, "finished", None)]


def test_what_did_not_fail_of_itself_is_not_tried_again(bench: Bench) -> None:
    ends: list[list[Outcome | Exception]] = [
        [ended("diverged"), WELL],
        [ended("interrupted"), WELL],
    ]
    bench.runner(*ends, retries=3).run()
    assert bench.statuses() == [(0, "diverged", None), (1, "interrupted", None)]


def test_a_copy_that_cannot_be_made_fails_its_run_and_a_fault_ends_everything(
    bench: Bench,
) -> None:
    runner = bench.runner([OSError("disk full")], [RuntimeError("a fault")], [WELL])
    with pytest.raises(RuntimeError, match="a fault"):
        runner.run()
    assert bench.statuses() == [(0, "failed", "its clean copy cannot be made: disk full")]
    assert runner.stop == "interrupted"


def test_a_run_that_another_runner_has_is_waited_for(bench: Bench) -> None:
    runner = bench.runner([WELL], [WELL])
    done = claim(bench.store, runner.todo[0].spec)
    assert done is not None

    def finish_there(end: RunEnded) -> None:
        bench.ends.append(end)
        if end.run.spec.seed == 1:
            done.describe({"host": "there"})
            done.finish(replace(WELL, status="diverged", reason="there"))

    runner.options = replace(runner.options, on_end=finish_there)
    runner.run()
    assert bench.statuses() == [(1, "finished", None), (0, "diverged", "there")]
    assert bench.order == [1]


def test_no_run_is_made_of_other_code_than_its_digest_says(bench: Bench) -> None:
    other = Code(script="x.sh", files={"x.sh": b"rm -rf /\n"}).zipped()
    (bench.store.root / "code" / f"{CODE.source.digest}.zip").write_bytes(other)
    with pytest.raises(UserError, match="is not the code that its name says"):
        bench.runner([WELL]).run()
    assert bench.order == []


def test_no_run_is_made_where_other_versions_are_and_it_is_told_which(bench: Bench) -> None:
    versions = {**environment_lock().versions, "torch": "1.0"}
    content = json.dumps(versions).encode()
    bench.store.keep_once("environments", "e" * 16, ".json", lambda: content)
    words = f"(torch {environment_lock().versions['torch']} instead of 1.0): install the same"
    with pytest.raises(UserError, match=re.escape(words)):
        bench.runner([WELL], environment_digest="e" * 16).run()
    assert bench.order == []


def test_a_run_needs_as_many_gpus_as_it_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "find_gpus", lambda: list("01234"))
    check_gpus(replace(SPEC, device="cuda", world_size=5))
    check_gpus(replace(SPEC, device="cpu", world_size=6))
    with pytest.raises(UserError, match="a run needs 6 GPUs, this node shows 5: ask for fewer, 0"):
        check_gpus(replace(SPEC, device="cuda", world_size=6))


def test_a_slot_of_a_script_is_given_back_and_nothing_waits_on_it() -> None:
    maker = ScriptTrainer().maker(SPEC, Slot(held=()))
    assert not maker.alive() and not maker.is_like(maker)
    with pytest.raises(UserError, match="has one node"):
        maker.start()


def test_what_a_script_reads_and_what_is_kept_of_it_goes_to_other_nodes() -> None:
    spec = replace(SPEC, config={"trainer": {**ASKED, "data": {"data": "/d", "b.bin": "/b"}}})
    trainer = ScriptTrainer()
    assert trainer.data(spec) == ("/d", "/b")
    assert trainer.kept(spec) == (f"code/{'a' * 16}.zip", f"environments/{'b' * 16}.json")
    assert trainer.corpora(spec) == ()
    assert trainer.modules == ("harness.foreign.runner",)


class Stood:
    """A clock that stood still for as long as it is told."""

    def __init__(self, seconds: float) -> None:
        self.stood = seconds

    def __enter__(self) -> "Stood":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def seconds(self, _: None) -> float:
        return self.stood


@pytest.mark.parametrize("seconds", [0.0, 9.4])
def test_a_run_whose_machine_stood_still_says_so(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr(runner_module, "Stalls", lambda: Stood(seconds))
    runner = bench.runner([WELL])
    run_id = runner.todo[0].spec.run_id
    runner.run()
    result = read_result(bench.store.directory(run_id))
    assert result is not None
    words = disturbed_words(result.disturbed)
    assert words == ("its time is disturbed: it stood still for 9 s" if seconds else None)


@pytest.mark.parametrize("lost", ["result", "error"])
def test_a_run_that_another_runner_took_over_is_not_told_as_this_ones(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    runner = bench.runner([WELL])
    asked = runner.todo[0].spec
    run: Any = SimpleNamespace(
        store=bench.store, spec=asked, job="job", stop=lambda: None, moved={}
    )

    def finish(self: RunWriter, outcome: Outcome) -> bool:
        if lost == "error":
            raise TakenOverError
        return False

    monkeypatch.setattr(RunWriter, "finish", finish)
    assert bench.trainer.maker(asked, Slot(held=())).make(run) == TAKEN
    assert claim(bench.store, asked) is not None, "its claim is let go"


def test_a_warm_up_that_fails_is_told_and_its_runs_begin_all_the_same(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(runner_module, "warm_mark", lambda spec: tmp_path / "warm")
    monkeypatch.setattr(runner_module, "compiles", lambda code: True)
    runner = bench.runner([ended("failed", "no nvcc"), WELL])
    runner.options = replace(runner.options, trainer=replace(bench.trainer, warm_up=True))
    runner.run()
    assert bench.statuses() == [(0, "finished", None)] and bench.order == [0, 0]
    assert (tmp_path / "warm").exists()
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("x.sh")]
    assert said == [
        "x.sh: a warm-up run, for its kernels: it is discarded",
        "x.sh: its warm-up run failed: no nvcc",
    ]


@pytest.mark.parametrize("stopped", [None, "interrupted"])
def test_a_warm_up_waits_for_another_call_s_until_it_is_told_to_stop(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stopped: Any
) -> None:
    mark = tmp_path / "warm"
    monkeypatch.setattr(runner_module, "warm_mark", lambda spec: mark)
    monkeypatch.setattr(runner_module, "compiles", lambda code: True)
    monkeypatch.setattr(runner_module, "POLL_S", 0.0)
    theirs = TurnToCompile(mark)
    theirs.wait(lambda: True)
    spec = bench.runner([WELL], [WELL]).todo[0].spec
    looks: list[str | None] = []

    def stop() -> str | None:
        looks.append(stopped if len(looks) >= 3 else None)
        if len(looks) == 3 and stopped is None:
            mark.touch()  # theirs is made
            theirs.release()
        return looks[-1]

    run: Any = SimpleNamespace(store=bench.store, spec=spec, job="job", stop=stop, moved={})
    trainer = replace(bench.trainer, warm_up=True)
    trainer.maker(spec, Slot(held=())).make(run)
    assert bench.order == [0] and mark.exists() == (stopped is None)
    theirs.release()
