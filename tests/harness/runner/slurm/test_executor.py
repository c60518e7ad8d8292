"""A call that follows its jobs: what a job's end says of its run, which are sent again, what is told where some stay."""

import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.errors import UserError
from harness.run.attempts import AttemptRow, note_attempt, read_attempts
from harness.run.retired import read_retired
from harness.run.spec import PlannedRun
from harness.runner.executor import ExecutorOptions, RunEnded
from harness.runner.health import Finding
from harness.runner.slurm import executor
from harness.runner.slurm.cluster import Cluster
from harness.runner.slurm.executor import Senders, SlurmRunner
from harness.runner.slurm.sent import note_sent
from harness.store.attempt import claim
from harness.store.store import Store
from tests.harness.runner.piped import piped
from tests.one_run import SPEC, finish

PLAIN = replace(SPEC, config={**SPEC.config, "timing": {"exclusive_node": False}})


class Bench:
    """Runs that are sent to a queue, which says what the test says."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, n: int = 1, **how: Any) -> None:
        self.store = Store.create(folder / "results")
        runs = [
            PlannedRun(arm="a", block=seed, place=0, spec=replace(PLAIN, seed=seed))
            for seed in range(n)
        ]
        self.run_id = runs[0].spec.run_id
        self.sent: list[str] = []
        self.checks: list[Any] = []
        self.kept_off: list[Any] = []
        self.excluded: list[Any] = []  # nodes, for each array that was sent
        self.ended: list[RunEnded] = []
        self.states: dict[str, str] | None = {}
        cluster = Cluster(**{"device": "cpu", **how})
        options = ExecutorOptions(experiment="x", cluster=cluster, on_end=self.ended.append)
        senders = Senders(runs=self.send, check=self.check)
        self.runner = SlurmRunner(runs, self.store, senders, options)
        self.runner.folder.mkdir(parents=True)
        patch.setattr(executor, "job_states", self.looked)
        patch.setattr(executor, "n_nodes_of", lambda cluster: 4)
        patch.setattr(executor, "keep_off", lambda *asked: self.kept_off.append(asked))
        patch.setattr(executor, "QUEUE_LOOK_S", 0.0)

    def send(
        self, runs: Sequence[PlannedRun], store: Store, folder: Path, options: ExecutorOptions
    ) -> list[str]:
        assert (store, folder) == (self.store, self.runner.folder)
        assert options.cluster is not None
        self.excluded.append(options.cluster.sbatch.get("exclude"))
        self.sent.append("".join(str(planned.spec.seed) for planned in runs))
        return [f"{len(self.sent)}_{i}" for i in range(len(runs))]

    def looked(self, jobs: Sequence[str]) -> dict[str, str] | None:
        """What the queue says; a job of which it says nothing runs."""
        if self.states is None:
            return None
        return {job: self.states.get(job, "RUNNING") for job in jobs}

    def check(self, first: PlannedRun, *_: Any) -> str:
        self.checks.append(first.spec.seed)
        return "77"

    def note(self, *rows: AttemptRow) -> None:
        run = self.store.directory(self.run_id)
        run.mkdir(exist_ok=True)
        for row in rows:
            note_attempt(run, row)

    def end(self, state: str, *rows: AttemptRow) -> tuple[str | None, str | None, int]:
        """How the one run ended after its job did, with its reason, and how often it was sent."""
        self.runner.look()
        self.note(*rows)
        self.states = {"1_0": state}
        self.runner.look()
        summary = self.runner.summary
        return summary.statuses.get(self.run_id), summary.reasons.get(self.run_id), len(self.sent)


def began(attempt: int, job: str = "1_0") -> AttemptRow:
    return AttemptRow(
        attempt=attempt, started="2026-01-01T00:00:00+00:00", token=f"{job}/{attempt}"
    )


def over(attempt: int | None, status: str, reason: str = "why") -> AttemptRow:
    ended = "2026-01-01T00:01:00+00:00"
    return AttemptRow(attempt=attempt, ended=ended, status=status, reason=reason)


def told_to_go(n: int) -> tuple[AttemptRow, ...]:
    return tuple(row for i in range(1, n + 1) for row in (began(i), over(i, "preempted")))


ENDS: dict[str, tuple[str, tuple[AttemptRow, ...], tuple[Any, Any, int]]] = {
    "it was put back as often as it may be": ("FAILED", told_to_go(2), (None, None, 2)),
    "it was put back once more": (
        *("FAILED", told_to_go(3)),
        ("timeout", "its job was told 3 times that its time was up", 1),
    ),
    "it was told to go": ("COMPLETED", told_to_go(9), (None, None, 2)),
    "it could say nothing": (
        *("TIMEOUT", (began(1),)),
        ("timeout", "its job reached its time limit", 1),
    ),
    "its job could do nothing": (
        *("FAILED", (over(None, "oom", "job 1_0: no GPU"),)),
        ("oom", "job 1_0: no GPU", 1),
    ),
    "another job could do nothing": ("CANCELLED", (over(None, "oom", "job 9_0: no GPU"),), (
        *("interrupted", "its job was cancelled", 1),
    )),
    "it failed": ("COMPLETED", (began(1), over(1, "failed")), ("failed", "why", 1)),
    "it failed and its job was lost": (
        *("NODE_FAIL", (began(1), over(1, "failed"))),
        (None, None, 2),
    ),
    "it never began": ("COMPLETED", (), (None, None, 2)),
}  # fmt: skip


@pytest.mark.parametrize("what", ENDS)
def test_the_end_of_a_job_is_that_of_its_run_or_sends_it_again(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, rows, told = ENDS[what]
    bench = Bench(tmp_path, monkeypatch, requeues=2)
    assert bench.end(state, *rows) == told


def test_an_end_that_a_job_could_not_note_is_noted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, monkeypatch)
    bench.end("TIMEOUT", began(1))
    _, row = read_attempts(bench.store.directory(bench.run_id))
    assert (row.attempt, row.status) == (1, "timeout")
    for status, noted in (("interrupted", []), ("preempted", ["interrupted"])):
        other = Bench(tmp_path / status, monkeypatch)
        other.end("CANCELLED", began(1), over(1, status))
        rows = read_attempts(other.store.directory(other.run_id))
        assert [row.status for row in rows] == [None, status, *noted]


def test_a_run_that_another_runner_has_and_a_queue_that_says_nothing_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, monkeypatch, n=2)
    bench.runner.look()
    out, other = (claim(bench.store, replace(PLAIN, seed=seed)) for seed in (0, 1))
    assert out is not None and other is not None
    (out.folder / "progress.json").write_text('{"step": 4, "val_loss": 2.5}')
    for states in ({"1_0": "COMPLETED", "1_1": "COMPLETED"}, None):
        bench.states = states
        bench.runner.look()
        assert len(bench.runner.left) == 2 and bench.sent == ["01"]
    finish(other)
    bench.runner.look()
    assert [*bench.runner.left] == [bench.run_id], "a result counts, whatever the queue says"
    [at] = bench.runner.progress()
    assert (at.run.spec.seed, at.step, at.val_loss) == (0, 4, 2.5)
    out.release()


def test_a_call_that_is_stopped_says_which_runs_stay_in_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = Bench(tmp_path, monkeypatch, n=2)
    bench.runner.folder.rmdir()
    bench.runner.folder.parent.rmdir()
    bench.states = {"1_0": "RUNNING", "1_1": "PENDING"}
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)  # the first one counts

    monkeypatch.setattr(executor, "QUEUE_LOOK_S", 2.0)
    monkeypatch.setattr(executor, "time", SimpleNamespace(sleep=wait))
    summary = bench.runner.run()
    assert (summary.stopped, bench.sent, waited) == ("preempted", ["01"], [2.0])
    said = "2 runs stay in the queue: the same command follows them, `ablate cancel x` ends them\n"
    assert capsys.readouterr().out == said


def test_a_call_that_is_stopped_as_its_last_run_ends_has_done_it_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = Bench(tmp_path, monkeypatch)

    def wait(seconds: float) -> None:
        out = claim(bench.store, replace(PLAIN, seed=0))
        assert out is not None
        finish(out)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(executor, "time", SimpleNamespace(sleep=wait))
    summary = bench.runner.run()
    assert (summary.stopped, summary.statuses) == (None, {bench.run_id: "finished"})
    [ended] = bench.ended
    assert (ended.run.spec.seed, ended.status, ended.val_loss) == (0, "finished", 1.5)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("earlier", [False, True])
def test_a_run_whose_node_fails_is_sent_again_twice_whoever_sent_it_first(
    earlier: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, monkeypatch)
    if earlier:
        note_sent(bench.runner.folder, {bench.run_id: "9_0"})
    looks: list[float] = []

    def wait(seconds: float) -> None:
        looks.append(seconds)
        bench.states = {job: "NODE_FAIL" for job in bench.runner.jobs.values()}

    monkeypatch.setattr(executor, "time", SimpleNamespace(sleep=wait))
    summary = bench.runner.run()
    assert (summary.statuses, summary.reasons) == (
        {bench.run_id: "preempted"},
        {bench.run_id: "its node failed"},
    )
    assert len(bench.sent) == (2 if earlier else 3) and len(looks) == 3
    assert summary.stopped is None


def test_where_nodes_have_another_environment_it_is_checked_by_the_first_run_that_has_no_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, monkeypatch, n=2, python="/venv/bin/python")
    asked: list[Any] = []

    def check(answer: Path, send: Any, stopped: Any) -> None:
        asked.append((answer.parent, send(), stopped()))
        bench.runner.stop = "interrupted"
        asked.append(stopped())

    monkeypatch.setattr(executor, "check_environment", check)
    assert bench.runner.run().stopped == "interrupted"
    assert asked == [(bench.runner.folder, "77", False), True]
    assert (bench.checks, bench.sent) == ([0], []), "nothing is sent where the nodes lack something"
    same = Bench(tmp_path / "same", monkeypatch)
    same.runner.options = replace(same.runner.options, cancelled=lambda: True)
    taken_out: list[object] = []
    monkeypatch.setattr(executor, "cancel_jobs", taken_out.append)
    assert same.runner.run().stopped == "interrupted"
    assert taken_out == [["1_0"]]
    assert len(asked) == 2, "nor is anything checked where they have ours"


def test_a_call_that_is_cancelled_while_it_ends_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, monkeypatch)
    monkeypatch.setattr(executor, "check_environment", lambda *_, **__: None)
    bench.runner.options = replace(bench.runner.options, cancelled=lambda: True)
    bench.runner.stop = "preempted"
    assert bench.runner.run().stopped == "interrupted"


def test_a_node_that_is_suspected_gets_no_more_jobs_and_one_that_is_retired_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, monkeypatch, n=2)
    bench.runner.look()
    finding = Finding(kept_out=("n1",), retired=("n1",), failed=(bench.run_id,))
    judge: Any = SimpleNamespace(ended=lambda *_, **__: finding)
    bench.runner.health = judge
    bench.note(replace(began(1), node="n1"), over(1, "failed"))
    bench.states = {"1_0": "COMPLETED"}
    bench.runner.look()
    assert [(sorted(jobs), nodes) for jobs, nodes in bench.kept_off] == [(["1_0", "1_1"], "n1")]
    [retired] = read_retired(bench.store.root / "experiments" / "x")
    assert retired.place == "node n1"
    bench.runner.left.clear()
    other = replace(PLAIN, seed=2)
    bench.runner.kept_off.add("n0")
    bench.runner.left[other.run_id] = PlannedRun(arm="a", block=2, place=0, spec=other)
    bench.runner.look()
    assert bench.excluded == [None, "n0,n1"], "nor do arrays that are sent later go there"


def test_a_node_that_is_doubted_no_more_gets_jobs_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, monkeypatch, n=2, sbatch={"exclude": "n9"})
    bench.runner.kept_off.update(("n1", "n2"))
    bench.runner.look()
    findings = [Finding(freed=("n1",)), Finding(), Finding(kept_out=("n2",))]
    judge: Any = SimpleNamespace(ended=lambda *_, **__: findings.pop(0))
    bench.runner.health = judge
    bench.note(replace(began(1), node="n1"), over(1, "failed"))
    while findings:
        bench.runner.left[bench.run_id] = bench.runner.planned[bench.run_id]
        bench.runner.jobs[bench.run_id] = "1_0"
        bench.states = {"1_0": "COMPLETED"}
        bench.runner.look()
    assert bench.kept_off == [(["1_0", "1_1"], "n9,n2")], "the others change nothing"
    assert bench.excluded == ["n9,n1,n2"]


def test_of_several_nodes_none_is_judged_by_what_failed_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, monkeypatch)
    bench.runner.options = replace(bench.runner.options, n_nodes=2)
    judge: Any = SimpleNamespace(ended=lambda *_, **__: pytest.fail("judged"))
    bench.runner.health = judge
    assert bench.end("COMPLETED", replace(began(1), node="n1"), over(1, "failed"))[0] == "failed"


def test_an_array_holds_runs_of_one_size_that_share_their_nodes_or_not() -> None:
    def run(seed: int, size: int, alone: bool) -> PlannedRun:
        config = {**SPEC.config, "timing": {"exclusive_node": alone}}
        spec = replace(SPEC, config=config, world_size=size, seed=seed)
        return PlannedRun(arm="a", block=seed, place=0, spec=spec)

    runs = [run(0, 2, False), run(1, 1, False), run(2, 2, True), run(3, 2, False), run(4, 1, False)]

    def seeds(options: ExecutorOptions) -> list[list[int]]:
        arrays = executor.arrays_of(runs, options)
        return [[planned.spec.seed for planned in array] for array in arrays]

    assert seeds(ExecutorOptions()) == [[0, 3], [1, 4], [2]]
    assert seeds(ExecutorOptions(alone=True)) == [[0, 2, 3], [1, 4]]


def test_so_many_jobs_run_at_once_as_are_left_or_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, monkeypatch, n=3)
    assert bench.runner.at_once() == 3
    for most, at_once in ((2, 2), (3, 3), (7, 3)):
        bench.runner.options = replace(bench.runner.options, max_parallel=most)
        assert bench.runner.at_once() == at_once


@pytest.mark.parametrize(
    ("n_nodes", "kept_off", "can_spare"),
    [(1, (), False), (2, (), True), (2, ("n9",), False), (3, ("n9",), True)],
)
def test_jobs_are_kept_off_a_node_only_where_another_is_left_for_them(
    n_nodes: int,
    kept_off: tuple[str, ...],
    can_spare: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[dict[str, Any]] = []
    bench = Bench(tmp_path, monkeypatch)
    monkeypatch.setattr(executor, "n_nodes_of", lambda cluster: n_nodes)
    bench.runner.kept_off.update(kept_off)
    judge: Any = SimpleNamespace(ended=lambda *_, **how: asked.append(how) or Finding())
    bench.runner.health = judge
    assert bench.end("COMPLETED", replace(began(1), node="n1"), over(1, "failed"))[0] == "failed"
    assert asked == [{"status": "failed", "seconds": 60.0, "can_spare": can_spare}]


def test_a_job_that_the_queue_has_forgotten_is_over_at_the_third_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, monkeypatch)
    bench.end("GONE")
    bench.runner.look()
    run = bench.store.directory(bench.run_id)
    assert (bench.sent, read_attempts(run)) == (["0"], [])
    bench.runner.look()
    assert bench.sent == ["0", "0"] and bench.runner.jobs == {bench.run_id: "2_0"}
    (row,) = read_attempts(run)
    assert (row.status, row.reason) == ("failed", "its job was killed")


def test_a_run_that_another_call_has_sent_again_is_followed_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, monkeypatch)
    bench.runner.look()
    note_sent(bench.runner.folder, {bench.run_id: "5_0"})
    bench.states = {"1_0": "NODE_FAIL"}
    bench.runner.look()
    assert (bench.sent, bench.runner.jobs) == (["0"], {bench.run_id: "5_0"})


def test_jobs_of_an_earlier_call_that_are_still_there_are_followed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kept_line: Callable[[str], None],
) -> None:
    bench = Bench(tmp_path, monkeypatch, n=4)
    first, second, third, _ = bench.runner.left
    earlier = {first: "9_0", second: "9_1", third: "9_2", "another": "9_3"}
    note_sent(bench.runner.folder, earlier)
    bench.states = None
    with pytest.raises(UserError, match="an earlier call sent jobs") as refused:
        bench.runner.run()
    kept_line(str(refused.value))
    bench.states = {"9_0": "RUNNING", "9_1": "FAILED", "9_2": "PENDING"}
    monkeypatch.setattr(
        executor, "time", SimpleNamespace(sleep=lambda s: signal.raise_signal(signal.SIGTERM))
    )
    assert bench.runner.run().stopped == "preempted"
    assert bench.sent == ["13"]
    left = "in the queue: the same command follows them, `ablate cancel x` ends them\n"
    there = "2 runs are in the queue already\n"
    assert capsys.readouterr().out == f"{there}4 runs stay {left}"
    stopped = Bench(tmp_path / "stopped", monkeypatch, n=1)
    note_sent(stopped.runner.folder, {stopped.run_id: "9_0"})
    stopped.states, stopped.runner.stop = None, "interrupted"
    assert stopped.runner.run().stopped == "interrupted"
    assert capsys.readouterr().out == f"1 run is in the queue already\n1 run stays {left}"


@pytest.mark.parametrize("how", ["a signal stops the call", "somebody cancels it"])
def test_a_run_whose_job_is_lost_is_not_sent_again_by_a_call_that_ends(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, monkeypatch)
    bench.runner.look()
    bench.states = {"1_0": "NODE_FAIL"}
    if how == "a signal stops the call":
        bench.runner.stop = "preempted"
    else:
        bench.runner.options = replace(bench.runner.options, cancelled=lambda: True)
    bench.runner.look()
    assert bench.sent == ["0"]
    assert bench.runner.summary.reasons == {bench.run_id: "its node failed"}


def test_what_is_in_the_queue_already_is_shown_before_it_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, shown_so_far = Bench(tmp_path, monkeypatch), piped(monkeypatch)
    note_sent(bench.runner.folder, {bench.run_id: "9_0"})
    shown: list[str] = []

    def wait(seconds: float) -> None:
        shown.append(shown_so_far())
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(executor, "time", SimpleNamespace(sleep=wait))
    bench.runner.run()
    assert shown == ["1 run is in the queue already\n"]
