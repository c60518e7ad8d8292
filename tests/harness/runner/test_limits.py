"""When the runner ends a run: by a worker that only answers, on a clock that the test moves."""

import errno
import json
import os
import signal
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.errors import UserError
from harness.node.slots import Node, Slot
from harness.provenance.machine import environment_lock
from harness.provenance.source import source_of
from harness.run.read import read_lines
from harness.run.spec import Outcome, PlannedRun
from harness.runner import execute as executing
from harness.runner import kernels, trainers
from harness.runner.execute import START_S, Execution, execute
from harness.runner.executor import ExecutorOptions, stop_signals
from harness.runner.kernels import kernel_cache, kernel_folder
from harness.runner.limits import RunLimits
from harness.runner.local import Runner
from harness.runner.messages import WorkerEvent, WorkerRequest
from harness.runner.process import WorkerProcess
from harness.runner.unchanged import check_unchanged
from harness.store.attempt import RunWriter, claim
from harness.store.store import Store
from tests.fake_matrix import wait_for
from tests.one_run import DONE, SPEC, finish
from tests.planted_secrets import PLANTED, leaks
from tests.warm import DEADLINE_S

SILENCE_S = 100.0
Moment = tuple[float, Callable[[RunWriter], None] | None]
OTHER = {"system": {"compile": "off"}, "timing": {"exclusive_node": False}}
PLAIN = replace(SPEC, config={**SPEC.config, **OTHER})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.create(tmp_path / "results")


def ticks(script: Sequence[Moment]) -> Iterator[Moment]:
    for seconds, action in script:
        while seconds > 1 and not isinstance(action, Stall):
            yield 1, None
            seconds -= 1
        yield seconds, action


class Stall:
    """The whole machine stands still."""

    def __call__(self, out: RunWriter) -> None: ...


class ScriptedWorker:
    """It claims the run when it is told to, and lives through a script: (seconds later, what it does then).

    The runner looks at it once a second, as it does where the machine does not stand still.
    """

    def __init__(self, store: Store, script: Sequence[Moment]) -> None:
        self.store, self.script, self.now = store, ticks(script), 1000.0
        self.killed, self.requests = 0, 0
        self.out: RunWriter | None = None

    def send(self, told: WorkerRequest) -> "ScriptedWorker":
        self.requests += 1
        self.token = told.token
        return self

    def event(self, timeout_s: float) -> WorkerEvent | None:
        moment = next(self.script, None)
        if moment is None:
            assert self.out is not None
            finish(self.out)
            return WorkerEvent(status="finished", val_loss=1.5)
        self.now += moment[0]
        if moment[1] is not None:
            self.out = self.out or claim(self.store, SPEC, token=self.token)
            assert self.out is not None
            moment[1](self.out)
        return None

    def kill(self) -> None:
        self.killed += 1
        if self.out is not None:
            self.out.release()

    def clock(self) -> SimpleNamespace:
        return SimpleNamespace(monotonic=lambda: self.now)


def begins(out: RunWriter) -> None:
    """It has claimed the run, and made no step."""


def step(n: int) -> Callable[[RunWriter], None]:
    def heartbeat(out: RunWriter) -> None:
        (out.folder / "progress.json").write_text(f'{{"step": {n}, "steps": 10}}')

    return heartbeat


@pytest.fixture
def follow(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """(how it ended, the worker) of a run whose worker goes by a script."""
    made = []

    def inner(
        script: list[Any], wall_s: float | None = None, **options: Any
    ) -> tuple[WorkerEvent, ScriptedWorker]:
        worker = ScriptedWorker(store, script)
        made.append(worker)
        monkeypatch.setattr(executing, "time", worker.clock())
        limits = RunLimits(silence_s=SILENCE_S, wall_s=wall_s)
        run = Execution(spec=SPEC, store=store, command="", limits=limits, **options)
        return execute(worker, run), worker  # type: ignore[arg-type]

    yield inner
    for worker in made:
        if worker.out is not None:
            worker.out.release()


def test_a_heartbeat_keeps_a_slow_run(follow: Callable[..., Any]) -> None:
    """Ten times the allowed silence in all, never more than it between two steps."""
    event, worker = follow([(0, begins), *((SILENCE_S - 1, step(n)) for n in range(11))])
    assert (event.status, worker.killed) == ("finished", 0)


def test_a_run_that_stays_at_its_step_is_ended(follow: Callable[..., Any], store: Store) -> None:
    event, worker = follow(
        [
            (0, begins),
            (50, step(1)),
            (60, step(1)),
            (SILENCE_S - 61, step(1)),
            (2, step(1)),
            (9, None),
        ]
    )
    assert (event.status, event.reason) == ("timeout", "it made no step for 100 s")
    assert worker.killed == 1
    ends = [r for r in read_lines(store.directory(SPEC.run_id) / "attempts.jsonl") if "ended" in r]
    assert [(r["status"], r["reason"]) for r in ends] == [("timeout", "it made no step for 100 s")]


def test_a_machine_that_stood_still_costs_no_run(follow: Callable[..., Any]) -> None:
    script = [(0, begins), (50, step(1)), (10 * SILENCE_S, Stall()), (40, step(1)), (30, step(2))]
    event, worker = follow(script, wall_s=150)
    assert (event.status, worker.killed) == ("finished", 0)


def test_a_start_may_be_slower_than_a_step(follow: Callable[..., Any]) -> None:
    event, _ = follow([(START_S - 1, None), (0, begins), (SILENCE_S - 1, step(0))])
    assert event.status == "finished"


def test_a_worker_that_never_begins_is_ended(follow: Callable[..., Any]) -> None:
    event, worker = follow([(START_S - 1, None), (2, None)])
    assert (event.status, worker.killed) == ("timeout", 1)
    assert event.reason == "it made no step for 600 s"
    allowed = RunLimits()
    assert (allowed.wall_s, allowed.silence_s) == (None, 3600.0)
    assert (allowed.deaths, allowed.oom_retries) == (2, 0)


def test_the_wall_limit_counts_from_when_the_run_began(follow: Callable[..., Any]) -> None:
    steps = [(40.0, step(n)) for n in range(3)]
    event, _ = follow([(500, None), (0, begins), *steps], wall_s=121)
    assert event.status == "finished"


def test_the_wall_limit_ends_a_run_that_moves(follow: Callable[..., Any]) -> None:
    steps = [(40.0, step(n)) for n in range(4)]
    event, worker = follow([(500, None), (0, begins), *steps], wall_s=119)
    assert (event.status, worker.killed) == ("timeout", 1)
    assert event.reason == "it ran longer than its wall limit of 119 s"


def test_the_first_step_is_told_once(follow: Callable[..., Any]) -> None:
    told: list[int] = []
    event, _ = follow(
        [(0, begins), (30, None), (30, step(0)), (30, step(1)), (30, step(2))],
        first_step=lambda: told.append(1),
    )
    assert (event.status, told) == ("finished", [1])


def test_a_stop_ends_the_run_with_its_status(follow: Callable[..., Any]) -> None:
    answers = iter([None, "preempted"])
    event, worker = follow([(0, begins), (1, None), (1, None)], stop=lambda: next(answers))
    assert (event.status, event.reason) == ("preempted", "stopped by a signal")
    assert worker.killed == 1


def finish_and_note_no_end(out: RunWriter) -> None:
    """It is killed in between."""
    finish(out)
    notes = out.run / "attempts.jsonl"
    began, _ = notes.read_text().splitlines()
    notes.write_text(f"{began}\n")


@pytest.mark.parametrize("ends", [finish, finish_and_note_no_end])
def test_a_result_that_is_there_at_the_stop_counts(
    follow: Callable[..., Any], store: Store, ends: Callable[[RunWriter], None]
) -> None:
    """The worker had no time left to say so."""
    event, worker = follow(
        [(0, begins), (1, ends)],
        stop=lambda: "interrupted" if store.is_done(SPEC.run_id) else None,
    )
    assert (event.status, event.val_loss, worker.killed) == ("finished", 1.5, 1)
    rows = read_lines(store.directory(SPEC.run_id) / "attempts.jsonl")
    assert [row["status"] for row in rows if "ended" in row] == ["finished"]


class DyingWorker(ScriptedWorker):
    """Its process ends when the script does; what it last said may be anything, as may what a rank left."""

    by_rank: str | None = None
    status = "failed"  # that the rank left
    begins = True

    def event(self, timeout_s: float) -> WorkerEvent | None:
        if not self.begins:
            return WorkerEvent(status="died", reason="killed at its start")
        self.out = claim(self.store, SPEC, token=self.token)
        assert self.out is not None
        if self.by_rank is not None:
            told = {"status": self.status, "reason": self.by_rank}
            (self.out.folder / "rank1.json").write_text(json.dumps(told))
        owner = (self.out.folder / "owner.json").read_text()
        self.out.release()
        (self.out.folder / "owner.json").write_text(owner)  # the dead bury nothing
        return WorkerEvent(status="died", reason=f"killed: {PLANTED['hf']}")


@pytest.mark.parametrize("by_rank", [None, f"RuntimeError: {PLANTED['aws']}"])
def test_what_the_dead_said_is_noted_and_told_without_secrets(
    store: Store, by_rank: str | None
) -> None:
    worker = DyingWorker(store, [])
    worker.by_rank = by_rank
    run = Execution(spec=SPEC, store=store, command="", limits=RunLimits(deaths=2))
    event = execute(worker, run)  # type: ignore[arg-type]
    assert (event.status, worker.requests) == ("failed", 3)
    ends = [r for r in read_lines(store.directory(SPEC.run_id) / "attempts.jsonl") if "ended" in r]
    assert [r["status"] for r in ends] == ["failed"] * 3
    begins = "killed: " if by_rank is None else "RuntimeError: "
    for reason in (event.reason, *(r["reason"] for r in ends)):
        assert reason.startswith(begins)
        assert leaks(reason) == []


def test_a_rank_that_ran_out_of_memory_is_no_death_and_a_worker_that_never_claimed_says_why(
    store: Store,
) -> None:
    full, young = DyingWorker(store, []), DyingWorker(store, [])
    full.by_rank, full.status = "rank 1: CUDA out of memory", "oom"
    young.begins = False
    run = Execution(spec=SPEC, store=store, command="", limits=RunLimits(deaths=2))
    event = execute(full, run)
    assert (event.status, event.reason, event.died) == ("oom", full.by_rank, False)
    [end] = [r for r in read_lines(store.directory(SPEC.run_id) / "attempts.jsonl") if "ended" in r]
    assert (end["status"], full.requests) == ("oom", 1)
    event = execute(young, run)
    assert (event.status, event.reason, event.died) == ("failed", "killed at its start", True)
    assert young.requests == 3


def test_a_turn_to_compile_is_waited_for_only_where_there_are_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[OSError] = [BlockingIOError(), BlockingIOError(), OSError(errno.ENOLCK, "none")]
    looks: list[int] = []

    def flock(*_: object) -> None:
        raise answers.pop(0)

    def look() -> bool:
        looks.append(len(answers))
        return True

    monkeypatch.setattr(kernels.fcntl, "flock", flock)
    turn = kernels.TurnToCompile(tmp_path / "mark")
    turn.wait(look)
    assert looks == [3, 2, 1] and turn.file is not None
    turn.release()
    assert turn.file is None


@pytest.mark.parametrize(
    ("wish", "device", "compiles"),
    [
        ("auto", "cpu", False),
        ("auto", "cuda", True),
        ("on", "cpu", True),
        ("off", "cpu", False),
        ("off", "cuda", False),
    ],
)
def test_compiled_kernels_have_a_folder_where_there_are_any(
    wish: str, device: str, compiles: bool
) -> None:
    config = {**SPEC.config, "system": {"compile": wish}}
    cache = kernel_cache(replace(SPEC, config=config, device=device))
    assert (cache is not None) == compiles


def test_users_of_one_cache_have_kernels_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))
    ours = kernel_folder()
    assert stat.S_IMODE(ours.stat().st_mode) == 0o700
    for uid in (4242, 4243):
        monkeypatch.setattr(os, "getuid", lambda uid=uid: uid)
        with suppress(UserError):  # here it belongs to whoever tests
            kernel_folder()
    folders = list((tmp_path / "cache").iterdir())
    assert len(folders) == 3
    assert ours in folders
    monkeypatch.setenv("ABLATE_CACHE", str(ours / "file"))
    (ours / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"kernels-4243: Not a directory: name a folder of yours"):
        kernel_folder()


# ---------------------------------------------------------------- signals


@pytest.fixture
def handlers() -> Iterator[None]:
    numbers = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:  # a shell's background jobs begin with SIGINT ignored
        signal.signal(number, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_call_under_nohup_goes_on_when_its_terminal_closes(handlers: None) -> None:
    told: list[str] = []
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with stop_signals(told.append):
        signal.raise_signal(signal.SIGHUP)
        assert told == []
        signal.raise_signal(signal.SIGTERM)
        assert told == ["preempted"]
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_a_terminal_that_closes_interrupts_and_signals_are_given_back(handlers: None) -> None:
    told: list[str] = []

    def mine(number: int, frame: object) -> None:
        told.append("mine")

    signal.signal(signal.SIGHUP, mine)
    with stop_signals(told.append):
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGHUP)
    assert told == ["interrupted", "interrupted", "mine"]


# ---------------------------------------------------------------- runs that somebody else has


@pytest.mark.parametrize("status", ["failed", "timeout", "oom", "diverged", "finished"])
def test_a_run_that_ended_elsewhere_is_not_tried_again(
    store: Store, status: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def taken(worker: Any, run: Execution) -> WorkerEvent:
        """Another runner has it; it ends there before we look again."""
        asked.append(run.spec.run_id)
        out = claim(store, PLAIN)
        assert out is not None
        finish(out, replace(DONE, status=status, reason="as it ended there"))
        return WorkerEvent(status="taken")

    monkeypatch.setattr(trainers, "execute", taken)
    planned = PlannedRun(arm="baseline", block=0, place=0, spec=PLAIN)
    summary = Runner([planned], store, Node(), ExecutorOptions(experiment="fake")).run()
    assert asked == [PLAIN.run_id]
    assert summary.statuses == {PLAIN.run_id: status}
    assert summary.reasons == {PLAIN.run_id: "as it ended there"}


def test_a_run_that_was_given_up_elsewhere_is_taken_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = ["taken", "finished"]

    def execute_here(worker: Any, run: Execution) -> WorkerEvent:
        out = claim(store, PLAIN)
        assert out is not None
        status = answers.pop(0)
        finish(out, Outcome(status="interrupted") if status == "taken" else DONE)
        return WorkerEvent(status=status)

    monkeypatch.setattr(trainers, "execute", execute_here)
    planned = PlannedRun(arm="baseline", block=0, place=0, spec=PLAIN)
    summary = Runner([planned], store, Node(), ExecutorOptions(experiment="fake")).run()
    assert (answers, summary.statuses) == ([], {PLAIN.run_id: "finished"})


@pytest.mark.parametrize(
    ("script", "of_one", "status"),
    [
        ("exit 3", True, "broken"),  # no other would start here either
        ("exit 3", False, "died"),  # of a group another node's fault may be the reason
        ("kill -9 $$", True, "died"),
        ('echo \'{"status": "ready"}\'; exit 3', True, "died"),  # its run may be the reason
    ],
)
def test_only_a_worker_that_never_started_by_itself_is_in_every_runs_way(
    script: str, of_one: bool, status: str
) -> None:
    process = WorkerProcess(["sh", "-c", script], {**os.environ}, of_one=of_one)
    event = process.event(DEADLINE_S) or process.event(DEADLINE_S)  # that it is ready is none
    process.end(DEADLINE_S)
    assert event is not None and event.status == status
    how = "was killed by signal 9" if "kill" in script else "ended with exit code 3"
    assert event.reason == f"its worker {how}"


def test_siblings_of_a_run_that_ended_before_its_first_step_begin(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def execute_here(worker: Any, run: Execution) -> WorkerEvent:
        asked.append(run.spec.seed)
        return WorkerEvent(status="failed", reason="no compiler")

    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(trainers, "execute", execute_here)
    compiled = replace(PLAIN, config={**PLAIN.config, "system": {"compile": "on"}})
    runs = [PlannedRun(arm="a", block=n, place=0, spec=replace(compiled, seed=n)) for n in range(2)]
    end = time.monotonic() + DEADLINE_S
    options = ExecutorOptions(cancelled=lambda: time.monotonic() > end)  # else it waits for ever
    assert Runner(runs, store, Node(n_cpus=2), options).run().stopped is None
    assert asked == [0, 1]


def test_a_call_that_is_cancelled_begins_nothing_and_ends_what_runs(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def execute_here(worker: Any, run: Execution) -> WorkerEvent:
        asked.append(run.spec.run_id)
        told = wait_for(run.stop, DEADLINE_S)
        return WorkerEvent(status=told, reason="stopped")

    monkeypatch.setattr(trainers, "execute", execute_here)
    runs = [
        PlannedRun(arm="baseline", block=n, place=0, spec=replace(PLAIN, seed=n)) for n in range(2)
    ]
    first = runs[0].spec.run_id
    for begun in ([], [first]):
        options = ExecutorOptions(cancelled=lambda begun=begun: asked == begun)
        summary = Runner(runs, store, Node(), options).run()
        assert (asked, summary.stopped) == (begun, "interrupted")
        assert summary.statuses == dict.fromkeys(begun, "interrupted")
        assert summary.reasons == dict.fromkeys(begun, "stopped")


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'it broke' >&2; echo ---- >&2; exit 3", ": it broke"),
        ("echo '  x  ' >&2; exit 3", ": x"),
        ("echo 12 >&2; exit 3", ""),
        ("head -c 301 /dev/zero | tr '\\0' x >&2; exit 3", ": " + 300 * "x"),
    ],
)
def test_of_what_a_worker_wrote_as_its_errors_the_last_words_are_told(
    script: str, said: str
) -> None:
    process = WorkerProcess(["sh", "-c", script], {**os.environ}, of_one=True)
    event = process.event(DEADLINE_S)
    process.end(DEADLINE_S)
    assert event == WorkerEvent(status="broken", reason=f"its worker ended with exit code 3{said}")


def test_a_worker_that_does_not_go_with_its_input_is_killed() -> None:
    process = WorkerProcess(["sleep", "1000"], {**os.environ}, of_one=True)
    assert process.event(0.0) is None and process.alive()
    process.end(0.0)
    assert process.process.returncode == -signal.SIGKILL and not process.alive()
    assert process.answers.closed and process.errors.closed
    quick = WorkerProcess(["cat"], {**os.environ}, of_one=True)
    quick.end(DEADLINE_S)
    assert quick.process.returncode == 0


class NoWorker(trainers.OwnTrainer):
    """A machine on which no worker can be begun."""

    def maker(self, *_: Any, **__: Any) -> trainers.OwnMaker:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")


@pytest.mark.parametrize("begins", [False, True])
def test_what_stands_in_every_runs_way_ends_the_call_and_leaves_no_worker(
    begins: bool, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []

    def execute_here(worker: Any, run: Execution) -> WorkerEvent:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    class Slots(Node):
        def give(self, slot: Slot) -> None:
            ended.append("its slot is free")
            super().give(slot)

    monkeypatch.setattr(trainers, "execute", execute_here)
    monkeypatch.setattr(trainers.OwnMaker, "close", lambda worker: ended.append("closed"))
    monkeypatch.setattr(trainers.OwnMaker, "alive", lambda worker: "closed" not in ended)
    planned = [PlannedRun(arm="baseline", block=0, place=0, spec=PLAIN)]
    options = ExecutorOptions(trainer=trainers.OwnTrainer() if begins else NoWorker())
    with pytest.raises(OSError, match="temporarily unavailable"):
        Runner(planned, store, Slots(), options).run()
    assert ended == [*["closed"] * begins, "its slot is free"]


# ---------------------------------------------------------------- what must not change meanwhile


def test_another_environment_than_the_planned_one_is_refused() -> None:
    source = source_of([])
    as_planned = replace(
        SPEC,
        source_digest=source.digest,
        source_files=dict(source.files),
        environment_digest=environment_lock().digest,
    )
    check_unchanged(as_planned)
    other = {"source_digest": "0" * 16, "source_files": {**source.files, "model/gpt.py": "0"}}
    said = "the {} changed since the run was planned{}: run the same command again"
    for changed, words in (
        ({"environment_digest": "0" * 16}, said.format("environment", "")),
        (other, said.format("source", " (model/gpt.py)")),
    ):
        with pytest.raises(UserError) as refused:
            check_unchanged(replace(as_planned, **changed))
        assert str(refused.value) == words
