"""What is made of Slurm's answers, of the notes on jobs, and of attempts; what a job says that can do nothing."""

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from submitit.core.utils import FailedJobError

from harness.errors import UserError
from harness.run.attempts import AttemptRow, read_attempts
from harness.run.spec import PlannedRun, RunSpec
from harness.runner.executor import ExecutorOptions
from harness.runner.limits import RunLimits
from harness.runner.messages import WorkerEvent
from harness.runner.slurm import nodes, queue, send
from harness.runner.slurm.cluster import Cluster
from harness.runner.slurm.ends import Attempts, JobEnd, attempts_of_job
from harness.runner.slurm.executor import Senders, SlurmRunner
from harness.runner.slurm.job import Job, Rendezvous, job_name
from harness.runner.slurm.nodes import LastTry, keep_off, last_try, n_nodes_of, without
from harness.runner.slurm.queue import check_slurm, job_states, output_of
from harness.runner.slurm.send import refusal_of, sbatch_options, script_of, sent_by
from harness.runner.slurm.sent import cancel_experiment, jobs_folder, last_jobs, note_sent
from harness.runner.trainers import OwnTrainer
from harness.store.store import Store
from tests.one_run import SPEC
from tests.planted_secrets import PLANTED, leaks

NO_QUEUE = Senders(runs=lambda *_: [], check=lambda *_: "")
Answers = dict[str, Callable[[tuple[str, ...]], str | None]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> tuple[list[tuple[str, ...]], Answers]:
    """The commands that were called, and what each answers: '' where nothing is said here."""
    calls: list[tuple[str, ...]] = []
    answers: Answers = {}

    def answer(*command: str) -> str | None:
        calls.append(command)
        return answers.get(command[0], lambda words: "")(command)

    for module in (queue, nodes):
        monkeypatch.setattr(module, "output_of", answer)
    return calls, answers


def test_what_a_command_prints_is_taken_where_it_succeeds_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert output_of("echo", "7|RUNNING") == "7|RUNNING\n"
    assert output_of("sh", "-c", "echo 7; exit 1") is None
    assert output_of(str(tmp_path / "none")) is None
    monkeypatch.setattr(queue, "SLURM_ANSWERS_WITHIN_S", 0.05)
    assert output_of("sleep", "9") is None


def test_states_come_from_the_queue_then_from_the_accounts(asked: Any) -> None:
    calls, answers = asked
    answers["squeue"] = lambda words: "7_0|RUNNING\nslurm_load_jobs warning\n7_1|COMPLETED\n"
    assert job_states(["7_0", "7_1"]) == {"7_0": "RUNNING", "7_1": "COMPLETED"}
    said = "squeue -h -r -t all --me -o %i|%T"
    assert [" ".join(command) for command in calls] == [said]  # nothing was forgotten
    answers["sacct"] = lambda words: "7_2|CANCELLED by 1000\n7_3|RUNNING\n\n7_4|\n7_5|FAILED\n"
    states = job_states(["7_0", "7_2", "7_3", "7_4", "7_5"])
    assert states == {
        **{"7_0": "RUNNING", "7_2": "CANCELLED", "7_3": "GONE", "7_4": "GONE"},
        "7_5": "FAILED",
    }
    said = "sacct -n -P -X -o JobID,State -j 7_2,7_3,7_4,7_5"
    assert " ".join(calls[-1]) == said  # the forgotten alone are asked about
    answers["sacct"] = lambda words: None
    assert job_states(["7_2"]) == {"7_2": "GONE"}
    answers["squeue"] = lambda words: None
    assert job_states(["7_0"]) is None


def test_where_no_job_can_be_sent_it_says_what_is_missing(
    asked: Any, monkeypatch: pytest.MonkeyPatch, kept_line: Callable[[str], None]
) -> None:
    _, answers = asked
    told = []
    found: dict[str, object] = {"sbatch": None, "submitit": None}
    monkeypatch.setattr(queue.shutil, "which", found.get)
    monkeypatch.setattr(queue, "find_spec", found.get)
    answers["squeue"] = lambda words: None
    for name, words in (
        ("sbatch", "no sbatch here"),
        ("squeue", "squeue does not answer"),
        ("submitit", "submitit is missing"),
    ):
        with pytest.raises(UserError, match=f"--executor slurm: {words}") as refused:
            check_slurm()
        told.append(str(refused.value))
        found[name] = "/usr/bin/there"
        if name == "squeue":
            answers["squeue"] = lambda words: ""
    check_slurm()
    kept_line("\n".join(told))


# ---------------------------------------------------------------- notes on jobs


def test_jobs_of_an_experiment_are_ended_but_for_runs_with_a_result(
    tmp_path: Path, asked: Any, kept_line: Callable[[str], None]
) -> None:
    calls, answers = asked
    states = {"7_0": "RUNNING", "7_1": "PENDING", "7_2": "COMPLETED", "8_0": "PENDING"}

    def listed(words: tuple[str, ...]) -> str:
        return "".join(f"{job}|{state}\n" for job, state in states.items())

    answers["squeue"] = listed
    assert cancel_experiment(tmp_path, "mine") == 0 and calls == []  # nothing was sent
    folder = jobs_folder(tmp_path, "mine")
    folder.mkdir(parents=True)
    note_sent(folder, {"a": "7_0", "b": "7_1", "c": "7_2", "d": "6_0"})
    note_sent(folder, {"b": "8_0"})
    assert last_jobs(folder) == {"a": "7_0", "b": "8_0", "c": "7_2", "d": "6_0"}
    (tmp_path / "runs" / "a").mkdir(parents=True)
    (tmp_path / "runs" / "a" / "result.json").touch()

    def cancel(words: tuple[str, ...]) -> str:
        states.update(dict.fromkeys(words[1:], "COMPLETING"))
        return ""

    with pytest.raises(UserError, match="did not take every job of 'mine'") as refused:
        cancel_experiment(tmp_path, "mine")
    told = [str(refused.value)]
    looks = iter([listed(()), None])
    answers["squeue"] = lambda words: next(looks)  # it is silent once they are to go
    with pytest.raises(UserError, match="did not take every job of 'mine'"):
        cancel_experiment(tmp_path, "mine")
    answers["squeue"] = listed
    answers["scancel"] = cancel
    assert cancel_experiment(tmp_path, "mine") == 2
    (words,) = {frozenset(c[1:]) for c in calls if c[0] == "scancel"}
    assert words == {"7_1", "8_0"}
    states = {"7_2": "COMPLETED"}
    n_calls = len(calls)
    assert cancel_experiment(tmp_path, "mine") == 0
    assert "scancel" not in [c[0] for c in calls[n_calls:]]
    answers["squeue"] = lambda words: None
    with pytest.raises(UserError, match="jobs of 'mine' may still be in the queue") as refused:
        cancel_experiment(tmp_path, "mine")
    kept_line("\n".join([*told, str(refused.value)]))


def at(minute: int) -> str:
    return f"2026-01-01T00:{minute:02}:00+00:00"


def began(n: int, job: str, node: str, minute: int) -> AttemptRow:
    return AttemptRow(attempt=n, started=at(minute), node=node, token=f"{job}/{n}")


def end(n: int | None, status: str, minute: int, **how: Any) -> AttemptRow:
    return AttemptRow(attempt=n, ended=at(minute), status=status, **how)


def test_where_a_job_was_tried_last_and_for_how_long() -> None:
    first, second = began(1, "7_0", "n1", 1), began(2, "8_0", "n2", 10)
    ended = end(1, "failed", 4)
    assert last_try([first, ended], "7_0") == LastTry(node="n1", seconds=180.0)
    assert last_try([first, ended, second], "8_0") is None  # it goes on
    assert last_try([first, ended, second, end(2, "failed", 11)], "8_0") == LastTry(
        node="n2", seconds=60.0
    )
    assert last_try([first, ended], "7_1") is None
    assert last_try([first, ended], "7") is None  # another job than 7_0
    assert last_try([replace(first, node=None), ended], "7_0") is None
    idle = end(None, "failed", 5, reason="job 7_0: no GPUs", node="n3")
    assert last_try([first, ended, idle], "7_0") == LastTry(node="n3", seconds=0.0)
    assert last_try([first, ended, replace(idle, reason="job 7_1: no GPUs")], "7_0") == LastTry(
        node="n1", seconds=240.0
    )


def test_what_the_attempts_of_a_job_told_is_that_of_its_last_one() -> None:
    assert attempts_of_job([began(1, "7_1", "n1", 0)], "7_0") == Attempts()
    rows = [
        began(1, "7_0", "n1", 0),
        end(1, "preempted", 1),
        began(2, "7_0", "n1", 2),
        end(2, "preempted", 3, reason="told to go"),
        end(2, "failed", 4, reason="found dead"),
        began(3, "8_0", "n1", 5),
        end(3, "preempted", 6),
        end(None, "failed", 7),
    ]
    told = JobEnd(status="preempted", reason="told to go")
    assert attempts_of_job(rows, "7_0") == Attempts(token="7_0/2", told=told, n_preempted=2)
    assert attempts_of_job(rows[:3], "7_0") == Attempts(token="7_0/2", n_preempted=1)


# ---------------------------------------------------------------- sites


def test_nodes_are_counted_in_the_sites_partition_and_kept_off_beside_its_own(asked: Any) -> None:
    calls, answers = asked
    answers["sinfo"] = lambda words: "n1 idle~\nn1 idle~\nn2 mixed-\nn3 down*\nn4 planned\n"
    assert n_nodes_of(Cluster(sbatch={"partition": "big"})) == 3
    assert " ".join(calls[-1]) == "sinfo -h -N -o %N %T -p big"
    assert n_nodes_of(Cluster()) == 3 and "-p" not in calls[-1]
    answers["sinfo"] = lambda words: None
    assert n_nodes_of(Cluster()) == 0
    site = Cluster(sbatch={"account": "lab"})
    assert without(site, []) is site
    assert without(site, ["n1", "n2"]).sbatch == {"account": "lab", "exclude": "n1,n2"}
    own = Cluster(sbatch={"exclude": "n9"})
    assert without(own, ["n1"]).sbatch == {"exclude": "n9,n1"}


def test_many_jobs_are_kept_off_a_thousand_at_a_time(asked: Any) -> None:
    calls, _ = asked
    keep_off([f"7_{i}" for i in range(2001)], "n1")
    named = [command[2].removeprefix("JobId=").split(",") for command in calls]
    assert [len(jobs) for jobs in named] == [1000, 1000, 1]
    assert [job for jobs in named for job in jobs] == [f"7_{i}" for i in range(2001)]
    assert {command[3] for command in calls} == {"ExcNodeList=n1"}
    assert {command[:2] for command in calls} == {("scontrol", "update")}


@pytest.mark.parametrize(
    ("site", "exclusive", "options"),
    [
        ({}, False, {"time": "UNLIMITED", "gpus_per_node": 2, "cpus_per_task": 16}),
        (
            {"time": "1:00:00", "gres": "gpu:2", "cpus_per_gpu": "4"},
            True,
            {"time": "1:00:00", "gres": "gpu:2", "cpus_per_gpu": "4", "exclusive": True},
        ),
    ],
)
def test_a_job_asks_for_what_its_site_leaves_open(
    site: dict[str, str], exclusive: bool, options: dict[str, Any]
) -> None:
    config = {"timing": {"exclusive_node": exclusive}}
    spec = replace(SPEC, config=config, world_size=4, device="cuda")
    run = PlannedRun(spec=spec, arm="a", place=0, block=0)
    asked = ExecutorOptions(n_nodes=2)
    assert sbatch_options(Cluster(sbatch=site), run, asked) == options
    alone = sbatch_options(Cluster(sbatch=site), run, replace(asked, alone=True))
    assert alone == {**options, "exclusive": True}
    run = replace(run, spec=replace(spec, device="cpu"))
    assert "gpus_per_node" not in sbatch_options(Cluster(), run, asked)  # whatever the site has


def test_a_refusal_is_what_sbatch_said_last() -> None:
    said = "sbatch: error: first\nsbatch: error: Batch job submission failed: no\nTraceback: x\n"
    assert refusal_of(said) == "Batch job submission failed: no"
    assert refusal_of("cannot be reached") == "cannot be reached"


def test_runs_that_nodes_cannot_share_evenly_are_refused(tmp_path: Path) -> None:
    run = PlannedRun(spec=replace(SPEC, world_size=8), arm="a", place=0, block=0)
    store = Store.create(tmp_path)

    def runner(**how: Any) -> SlurmRunner:
        return SlurmRunner([run], store, NO_QUEUE, ExecutorOptions(experiment="x", **how))

    with pytest.raises(UserError) as refused:
        runner(n_nodes=3)
    said = "--nodes-per-run 3 does not divide 8 processes: choose a divisor"
    assert str(refused.value) == said
    assert runner(n_nodes=2).at_once() == runner(max_parallel=4).at_once() == 1


# ---------------------------------------------------------------- in the job


def test_a_job_is_named_as_the_queue_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "9")
    monkeypatch.delenv("SLURM_ARRAY_JOB_ID", raising=False)
    assert job_name() == "9"
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "7")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "2")
    assert job_name() == "7_2"


def test_whether_a_further_node_was_killed_is_what_it_tells(tmp_path: Path) -> None:
    meeting = Rendezvous(at=tmp_path / "meeting-7_2-0.json")
    assert meeting.lost == tmp_path / "meeting-7_2-0.lost"
    assert not meeting.killed()
    for told, killed in (("true", True), ("false", False)):
        meeting.lost.write_text(f'{{"killed": {told}}}')
        assert meeting.killed() == killed
    told_soon = ["sh", "-c", f"sleep 0.05; echo '{{\"killed\": true}}' > {tmp_path}/new.tmp"]
    meeting.lost.unlink()
    with subprocess.Popen(
        [*told_soon[:2], f"{told_soon[2]}; mv {tmp_path}/new.tmp {meeting.lost}"]
    ):
        assert meeting.killed(60.0)


@pytest.fixture
def in_a_job(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Task 2 of array 7, on node n3, without GPUs."""
    for name, value in {
        "SLURM_ARRAY_JOB_ID": "7",
        "SLURM_ARRAY_TASK_ID": "2",
        "SLURMD_NODENAME": "n3",
        "CUDA_VISIBLE_DEVICES": "",
        "SLURM_NODEID": "0",
    }.items():
        monkeypatch.setenv(name, value)
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


class FakeWorker:
    """The processes of a node, which nobody starts; at each look at them something may happen."""

    make: Callable[[Any], WorkerEvent]

    def __init__(self, *looks: Callable[[], object]) -> None:
        self.looks, self.made, self.calls = list(looks), {}, []

    def maker(self, spec: RunSpec, slot: Any, **how: Any) -> "FakeWorker":
        self.made = {"spec": spec, "slot": slot, **how}
        return self

    def start(self) -> None:
        self.calls.append("start")

    def alive(self) -> bool:
        if not self.looks:
            return False
        self.looks.pop(0)()
        return True

    def kill(self) -> None:
        self.calls.append("kill")

    def close(self) -> None:
        self.calls.append("close")


def job_in(folder: Path, *, device: str = "cuda", n_nodes: int = 2) -> Job:
    Store.create(folder / "results")
    config = {"system": {"compile": "off"}}
    spec = replace(SPEC, config=config, device=device, world_size=4)
    jobs = folder / "jobs"
    jobs.mkdir()
    options: dict[str, Any] = {"n_nodes": n_nodes, "limits": RunLimits(), "folder": str(jobs)}
    results = str(folder / "results")
    return Job(
        results=results,
        spec=spec.to_mapping(),
        command="ablate run",
        trainer=OwnTrainer(),
        **options,
    )


@pytest.mark.usefixtures("in_a_job")
def test_a_job_that_can_do_nothing_notes_why_with_its_name_and_node(tmp_path: Path) -> None:
    job = job_in(tmp_path)
    with pytest.raises(RuntimeError, match="this job shows 0 GPUs and its run needs 2 on each"):
        job()
    (run,) = (tmp_path / "results" / "runs").iterdir()
    (row,) = read_attempts(run)
    assert (row.attempt, row.status, row.node) == (None, "failed", "n3")
    assert row.reason is not None
    assert row.reason.startswith("job 7_2: this job shows 0 GPUs and its run needs 2 on each node")
    assert list((tmp_path / "jobs").iterdir()) == []


@pytest.mark.usefixtures("in_a_job")
def test_a_further_node_waits_for_the_first_one_until_it_is_told_to_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_NODEID", "1")
    monkeypatch.setattr("harness.runner.slurm.job.MEET_S", 0.0)
    monkeypatch.setattr("harness.runner.slurm.job.NODE_LOOK_S", 0.001)
    job = job_in(tmp_path)
    told = job()
    assert (told["status"], told["reason"]) == ("failed", "the first node did not come")
    monkeypatch.setattr("harness.runner.slurm.job.MEET_S", 600.0)
    os.kill(os.getpid(), signal.SIGTERM)  # as Slurm tells it
    assert job.stop == "preempted"
    assert job()["status"] == "failed"


def spec_of(job: Job) -> RunSpec:
    return RunSpec.from_mapping(job.spec)


@pytest.mark.usefixtures("in_a_job")
@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("the run ends", None),
        ("a process is killed", True),
        ("a process told of its end", False),
        ("the job is told to go", None),
    ],
)
def test_a_further_node_lends_its_processes_and_tells_if_they_end_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, told: bool | None
) -> None:
    monkeypatch.setenv("SLURM_NODEID", "1")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "3")
    monkeypatch.setattr("harness.runner.slurm.job.NODE_LOOK_S", 0.001)
    job = job_in(tmp_path, device="cpu")
    meeting = tmp_path / "jobs" / "meeting-7_2-3.json"
    meeting.write_text('{"at": "10.0.0.1:29500"}')
    attempt = tmp_path / "results" / "runs" / spec_of(job).run_id / "attempts" / "1"
    attempt.mkdir(parents=True)
    happens: dict[str, Callable[[], object]] = {
        "the run ends": meeting.unlink,
        "a process is killed": lambda: None,
        "a process told of its end": (attempt / "rank1.json").touch,
        "the job is told to go": lambda: os.kill(os.getpid(), signal.SIGTERM),
    }
    worker = FakeWorker(lambda: None, happens[what])
    if told is None:  # its processes go on
        worker.looks += [lambda: None] * 100_000
    job.trainer = worker
    assert job()["status"] == "lent"
    assert worker.calls == ["start", "kill"]
    group = worker.made["group"]
    assert (group.n_per_node, group.n_nodes, group.node, group.joins) == (2, 2, 1, "10.0.0.1:29500")
    lost = Rendezvous(at=meeting).lost
    assert lost.exists() == (told is not None)
    if told is not None:
        assert Rendezvous(at=meeting).killed() == told


def ended_as(
    job: Job, monkeypatch: pytest.MonkeyPatch, event: WorkerEvent, lost: str = ""
) -> tuple[dict[str, Any], FakeWorker]:
    """What a job answers whose run ends so on its first node, how it was asked, and its processes.

    lost: what a further node tells meanwhile."""
    asked: dict[str, Any] = {}
    job.trainer = worker = FakeWorker()

    def make(execution: Any) -> WorkerEvent:
        meeting = Path(job.folder) / "meeting-7_2-0.json"
        meeting.touch()
        if lost:
            meeting.with_suffix(".lost").write_text(lost)
        asked.update(limits=execution.limits, stop=execution.stop(), job=execution.job)
        return event

    worker.make = make
    monkeypatch.setattr("harness.runner.slurm.job.TELL_S", 0.0)
    try:
        asked["said"] = job()
    except RuntimeError as error:
        asked["error"] = str(error)
    assert worker.calls == ["close"]
    assert list(Path(job.folder).iterdir()) == []  # nobody is met any more
    return asked, worker


@pytest.mark.usefixtures("in_a_job")
def test_a_run_of_one_node_ends_as_its_worker_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "8")
    monkeypatch.delenv("SLURM_NODEID")  # not every site says it of one node
    monkeypatch.setattr("harness.runner.slurm.job.find_cpus", lambda: 64)
    job = job_in(tmp_path, device="cpu", n_nodes=1)
    failed = WorkerEvent(status="failed", reason="a rank ended", died=True)
    asked, worker = ended_as(job, monkeypatch, failed)
    assert asked["said"] == {"status": "failed", "reason": "a rank ended", "val_loss": None}
    assert (asked["stop"], asked["job"], asked["limits"]) == (None, "7_2", RunLimits())
    assert (worker.made["slot"].threads, worker.made["slot"].size) == (2, 4)
    assert worker.made["group"].invites is None
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "3")
    assert ended_as(job, monkeypatch, failed)[1].made["slot"].threads == 1
    job.checkpoint()
    assert job.stop == "preempted"


@pytest.mark.usefixtures("in_a_job")
def test_what_breaks_in_a_job_is_told_by_its_kind_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_in(tmp_path, device="cpu", n_nodes=1)
    job.trainer = worker = FakeWorker()

    def breaks(execution: Any) -> WorkerEvent:
        raise ZeroDivisionError(f"no {PLANTED['hf']}")

    worker.make = breaks
    with pytest.raises(RuntimeError, match=r"^ZeroDivisionError: no ") as told:
        job()
    assert leaks(str(told.value)) == [] and worker.calls == ["close"]
    (row,) = read_attempts(tmp_path / "results" / "runs" / spec_of(job).run_id)
    assert (row.status, row.reason) == ("failed", f"job 7_2: {told.value}")


@pytest.mark.usefixtures("in_a_job")
def test_a_job_waits_for_its_turn_to_compile_until_it_is_told_to_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_in(tmp_path, device="cpu", n_nodes=1)
    looks: list[bool] = []
    released: list[None] = []

    class Turn:
        def __init__(self, mark: Path | None) -> None:
            self.mark = mark

        def wait(self, look: Callable[[], bool]) -> None:
            looks.append(look())
            job.stop = "preempted"
            looks.append(look())

        def release(self) -> None:
            released.append(None)

    monkeypatch.setattr("harness.runner.slurm.job.TurnToCompile", Turn)
    monkeypatch.setattr("harness.runner.slurm.job.POLL_S", 0.001)
    asked, _ = ended_as(job, monkeypatch, WorkerEvent(status="preempted"))
    assert (looks, asked["stop"], len(released)) == ([True, False], "preempted", 1)


@pytest.mark.usefixtures("in_a_job")
@pytest.mark.parametrize(
    ("event", "lost", "is_lost"),
    [
        (WorkerEvent(status="failed", reason="why", died=True), "", True),
        (WorkerEvent(status="failed", reason="why"), '{"killed": true}', True),
        (WorkerEvent(status="failed", reason="why"), '{"killed": false}', False),
        (WorkerEvent(status="failed", reason="why"), "", False),
        (WorkerEvent(status="finished", val_loss=3.0), '{"killed": true}', False),
    ],
)
def test_a_run_of_several_nodes_that_lost_a_process_fails_its_job_not_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, event: WorkerEvent, lost: str, is_lost: bool
) -> None:
    monkeypatch.setenv("SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1")
    job = job_in(tmp_path, device="cpu")
    asked, worker = ended_as(job, monkeypatch, event, lost)
    assert asked.get("error") == ("why" if is_lost else None)
    assert ("said" in asked) != is_lost
    assert asked["limits"].deaths == 0 < RunLimits().deaths
    assert asked["stop"] == ("failed" if "true" in lost else None)
    invites = worker.made["group"].invites
    assert (invites.address, invites.file.name) == ("10.0.0.1", "meeting-7_2-0.json")
    assert (worker.made["slot"].size, worker.made["group"].n_nodes) == (2, 2)


OF_THE_PROJECT = (  # what it asks for, or may; others are submitit's own
    *("array", "cpus-per-gpu", "cpus-per-task", "exclusive", "gpus-per-node", "job-name"),
    *("nodes", "ntasks-per-node", "signal", "time", "wckey"),
)


@pytest.mark.parametrize(("n", "array"), [(1, None), (3, "#SBATCH --array=0-2%2")])
def test_several_runs_are_an_array_of_which_so_many_run_at_once(
    n: int,
    array: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kept_line: Callable[[str], None],
) -> None:
    (tmp_path / "srun").touch(mode=0o755)  # submitit looks whether it is there
    monkeypatch.setenv("PATH", str(tmp_path))
    spec = replace(SPEC, config={"timing": {"exclusive_node": False}})
    runs = [PlannedRun(spec=spec, arm="a", place=i, block=0) for i in range(n)]
    options = ExecutorOptions(cluster=Cluster(device="cpu"), experiment="x", max_parallel=2)
    lines = script_of(runs, tmp_path, options).splitlines()
    assert [line for line in lines if "--array" in line] == ([array] if array else [])
    assert "#SBATCH --job-name=ablate-x" in lines
    (output,) = (line for line in lines if line.startswith("#SBATCH --output="))
    assert output.startswith(f"#SBATCH --output={tmp_path}/")
    options_of = (line.removeprefix("#SBATCH --") for line in lines if line.startswith("#SBATCH"))
    asked = sorted(o for o in options_of if o.partition("=")[0] in OF_THE_PROJECT)
    kept_line(re.sub(r"signal=\w+@", "signal=...@", "\n".join(asked)))


def test_jobs_read_the_data_of_the_call_that_sends_them_wherever_they_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sent_by(executor: str, jobs: Sequence[Job]) -> list[str]:
        return [f"{executor}: {job.command} in {Path(job.folder).name}" for job in jobs]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ABLATE_DATA", "data")
    monkeypatch.setattr(send, "executor_of", lambda *_: "submitit")
    monkeypatch.setattr(send, "sent_by", sent_by)
    runs = [PlannedRun(spec=replace(SPEC, seed=n), arm="a", place=0, block=n) for n in range(2)]
    options = ExecutorOptions(experiment="x", command="ablate run")
    sent = send.send_array(runs, Store(tmp_path / "results"), tmp_path / "jobs", options)
    assert sent == ["submitit: ablate run in jobs"] * 2
    assert os.environ["ABLATE_DATA"] == str(tmp_path / "data")


@pytest.mark.usefixtures("in_a_job")
def test_a_further_node_that_comes_first_joins_once_it_is_told_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_NODEID", "1")
    job, worker = job_in(tmp_path, device="cpu"), FakeWorker()
    meeting = tmp_path / "jobs" / "meeting-7_2-0.json"
    looks: list[float] = []

    def told(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 2:
            meeting.write_text('{"at": "10.0.0.1:29500"}')

    clock = SimpleNamespace(sleep=told, monotonic=lambda: float(len(looks)))
    monkeypatch.setattr("harness.runner.slurm.job.time", clock)
    job.trainer = worker
    assert job()["status"] == "lent"
    assert worker.made["group"].joins == "10.0.0.1:29500" and len(looks) == 2


def test_a_refusal_of_sbatch_is_one_line_that_says_where_to_change_it() -> None:
    def refuses(job: object) -> None:
        raise FailedJobError(
            "sbatch: error: Invalid account\nsbatch: error: Batch job submission failed"
        )

    refusing: Any = SimpleNamespace(batch=nullcontext, submit=refuses)
    with pytest.raises(UserError, match=r"Batch job .*: change it in cluster\.yaml$"):
        sent_by(refusing, [lambda: None])
    taken: Any = SimpleNamespace(
        batch=nullcontext, submit=lambda job: SimpleNamespace(job_id=job())
    )
    assert sent_by(taken, [lambda: "7_0", lambda: "7_1"]) == ["7_0", "7_1"]
