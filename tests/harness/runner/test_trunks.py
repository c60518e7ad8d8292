"""Trunks: made once a seed before what goes on from them, and made again when they are lost."""

import errno
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.experiment.experiment import load_experiment
from harness.experiment.plan import plan_runs
from harness.node.slots import Node
from harness.run.attempts import AttemptRow, note_attempt
from harness.run.plan import Plan, PlanRun
from harness.run.read import read_json, read_lines
from harness.run.results import read_result
from harness.run.spec import TRUNK_FILE, PlannedRun, trunks_of
from harness.runner import trainers
from harness.runner.execute import Execution
from harness.runner.executor import ExecutorOptions, Summary
from harness.runner.local import Runner
from harness.runner.messages import WorkerEvent
from harness.runner.slurm import executor
from harness.runner.slurm.executor import Senders, SlurmRunner
from harness.runner.trunks import trunks_to_make, waits_for
from harness.store.attempt import claim
from harness.store.clean import KINDS
from harness.store.errors import ResultsError
from harness.store.plans import save_plan
from harness.store.store import Store
from tests.fake_matrix import DEADLINE_S, EXPERIMENT, Matrix, ablate, kill
from tests.fake_trainer import outcome

LATE = EXPERIMENT.replace("untied_head: r08.untied_head", "floor: {schedule.lr_floor: 0.3}")
BRANCH = "branch_at: 10\n"


def late(folder: Path, n_seeds: int = 2, **fake: Any) -> Matrix:
    matrix = Matrix(folder, n_seeds=n_seeds, **fake)
    matrix.file.write_text(f"{LATE}{BRANCH}seeds: {n_seeds}\n")
    return matrix


def plan_of(matrix: Matrix) -> Plan:
    return Plan.from_mapping(read_json(matrix.results / "experiments" / "fake" / "experiment.json"))


def trunk_folders(matrix: Matrix) -> list[Path]:
    return sorted(path.parent for path in (matrix.results / "runs").glob(f"*/{TRUNK_FILE}"))


def test_the_trunk_of_a_seed_is_made_once_and_first(tmp_path: Path) -> None:
    matrix = late(tmp_path)
    planned = ablate(matrix, "plan", str(matrix.file))
    assert "4 runs and 2 trunks that they go on from, 0.0M" in planned.out
    assert "one trunk a seed, the baseline before update 10" in planned.out
    code, out, err = matrix.run()
    assert (code, err) == (0, "")
    assert "4 of 4 runs to do, and first 2 trunks" in out
    assert "fake: everything is finished: 4 runs" in out
    assert re.search(r"\[\d/6\] \w+, seed 1, \d+ steps: finished", out), "a line names its budget"
    plan, trunks = plan_of(matrix), trunk_folders(matrix)
    assert plan.branch_at == 10
    assert {run.trunk for run in plan.runs} == {folder.name for folder in trunks}
    for run in plan.runs:
        assert run.trunk is not None
        trunk, arm = (read_result(matrix.results / "runs" / r) for r in (run.trunk, run.run_id))
        assert trunk is not None
        assert arm is not None
        assert trunk.steps == 10
        assert str(trunk.ended) <= str(arm.started)
    lost = trunks[0] / TRUNK_FILE
    lost.unlink()
    of_lost = next(run for run in plan.runs if run.trunk == trunks[0].name)
    (matrix.results / "runs" / of_lost.run_id / "result.json").unlink()
    code, out, err = matrix.run()
    assert (code, err) == (0, "")
    assert f"{TRUNK_FILE} is gone: set aside, it is run again" in out
    assert "1 of 4 runs to do, and first 1 trunks" in out
    assert lost.exists()
    assert len(read_lines(trunks[1] / "attempts.jsonl")) == 2  # begun and ended, once


def planned(folder: Path) -> list[PlannedRun]:
    file = folder / "fake.yaml"
    file.write_text(f"{LATE}{BRANCH}seeds: 2\n")
    return plan_runs(load_experiment(str(file), device="cpu"), need_data=False)


def made(store: Store, run: PlannedRun) -> None:
    out = claim(store, run.spec)
    assert out is not None
    out.describe({"host": "here"})
    if run.spec.until:
        out.save(TRUNK_FILE, lambda file: file.write(b"weights"))
    out.finish(outcome("finished", run.spec.until or 20, 2.0, None))


def test_a_trunk_whose_file_goes_while_it_is_made_gives_no_result(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "results")
    out = claim(store, trunks_of(planned(tmp_path))[0].spec)
    assert out is not None
    out.describe({"host": "here"})
    out.save(TRUNK_FILE, lambda file: file.write(b"weights"))
    (out.run / TRUNK_FILE).unlink()
    ended = out.checked(outcome("finished", 10, 2.0, None))
    assert (ended.status, ended.reason) == (
        "failed",
        f"its files changed while it ran ({TRUNK_FILE})",
    )
    out.release()


def remove(trunk: Path) -> None:
    (trunk / TRUNK_FILE).unlink()


def change(trunk: Path) -> None:
    (trunk / TRUNK_FILE).write_bytes(b"weighty")
    os.utime(trunk / TRUNK_FILE, ns=(0, (trunk / "result.json").stat().st_mtime_ns + 1))


def shorten(trunk: Path) -> None:
    (trunk / TRUNK_FILE).write_bytes(b"we")
    os.utime(trunk / TRUNK_FILE, ns=(0, 0))


@pytest.mark.parametrize("lose", [remove, change, shorten])
def test_a_lost_trunk_is_set_aside_and_made_again(
    tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    runs, store = planned(tmp_path), Store.create(tmp_path / "results")
    trunk, other = trunks_of(runs)
    made(store, trunk)
    assert trunks_to_make(runs, store) == ([other], [])
    lose(store.directory(trunk.spec.run_id))
    assert waits_for(runs[0], store) == (trunk.spec.run_id if lose is remove else None)
    missing, (wrong,) = trunks_to_make(runs, store)
    assert missing == [trunk, other]
    assert TRUNK_FILE in wrong
    assert not store.directory(trunk.spec.run_id).exists()


def test_a_trunk_that_cannot_be_written_whole_is_not_there(tmp_path: Path) -> None:
    """A full disk in the middle of it: the error ends the call, and leaves no half of a file."""
    store = Store.create(tmp_path / "results")
    trunk = trunks_of(planned(tmp_path))[0]
    out = claim(store, trunk.spec)
    assert out is not None

    def half(file: Any) -> None:
        file.write(b"wei")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(ResultsError, match="No space left"):
        out.save(TRUNK_FILE, half)
    out.release()
    assert not [p for p in out.run.rglob("*") if "trunk" in p.name or p.name.startswith(".")]
    made(store, trunk)
    assert trunks_to_make([], store) == ([], [])


def test_runs_whose_trunk_fails_do_not_begin(tmp_path: Path) -> None:
    matrix = late(tmp_path, FAKE={"0": "raise"})
    code, out, _ = matrix.run()
    assert code == 1
    assert out.count("ended as failed: ValueError: the shapes do not match") == 2 * 2
    assert "trunk, seed 0: failed: ValueError" in out
    assert "2 of 4 runs have a result" in out


def one_after_another(
    runs: Sequence[PlannedRun], store: Store, makes: Callable[[PlannedRun], WorkerEvent | None]
) -> tuple[Summary, list[PlannedRun]]:
    """What a call on one CPU says at its end, and which runs it began, in order; None: one is made."""
    planned_as = {run.spec.run_id: run for run in runs}
    begun: list[PlannedRun] = []

    def execute_here(worker: Any, run: Execution) -> WorkerEvent:
        begun.append(planned_as[run.spec.run_id])
        event = makes(begun[-1])
        if event is None:
            made(store, begun[-1])
        return event or WorkerEvent(status="finished")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainers, "execute", execute_here)
        summary = Runner(runs, store, Node(), ExecutorOptions(experiment="fake")).run()
    return summary, begun


def test_here_a_run_begins_once_its_trunk_is_made_and_without_it_never(tmp_path: Path) -> None:
    runs, store = planned(tmp_path), Store.create(tmp_path / "results")
    first, second = trunks = trunks_of(runs)

    def makes(run: PlannedRun) -> WorkerEvent | None:
        return WorkerEvent(status="failed", reason="no memory") if run == first else None

    summary, begun = one_after_another([*trunks, *runs], store, makes)
    of_first, of_second = ([r for r in runs if r.spec.trunk == t.spec] for t in trunks)
    assert begun == [first, second, *of_second] and len(of_first) == len(of_second) == 2
    lost = {run.spec.run_id: "failed" for run in (first, *of_first)}
    assert summary.statuses == lost | {r.spec.run_id: "finished" for r in (second, *of_second)}
    reason = f"its trunk {first.spec.run_id} ended as failed: no memory"
    assert {summary.reasons[run.spec.run_id] for run in of_first} == {reason}


def test_what_was_told_to_go_is_begun_again_last_but_a_trunk_first(tmp_path: Path) -> None:
    runs, store = planned(tmp_path), Store.create(tmp_path / "results")
    trunks = trunks_of(runs)
    gone: list[PlannedRun] = []

    def makes(run: PlannedRun) -> WorkerEvent | None:
        if run in gone or run not in (trunks[0], runs[0]):
            return None
        gone.append(run)
        return WorkerEvent(status="preempted")

    summary, begun = one_after_another([*trunks, *runs], store, makes)
    assert set(summary.statuses.values()) == {"finished"} and summary.stopped is None
    assert begun == [trunks[0], *trunks, *runs, runs[0]]


@pytest.mark.slow
def test_a_killed_trunk_is_begun_anew(tmp_path: Path) -> None:
    matrix = late(tmp_path, n_seeds=1, FAKE={"0": "wait once"})
    runner = matrix.start()
    (worker,) = matrix.at("wait", 1)
    kill(worker)
    runner.communicate(timeout=DEADLINE_S)
    assert runner.returncode == 0
    (trunk,) = trunk_folders(matrix)
    assert [r["status"] for r in read_lines(trunk / "attempts.jsonl") if "ended" in r] == [
        "failed",
        "finished",
    ]
    assert not matrix.trailing()


@pytest.mark.slow
def test_two_runners_make_one_trunk(tmp_path: Path) -> None:
    matrix = late(tmp_path, n_seeds=1, FAKE={"0": "hold"})
    first = matrix.start()
    matrix.at("hold", 1)
    second = matrix.start()
    (tmp_path / "go").touch()
    for runner in (first, second):
        runner.communicate(timeout=DEADLINE_S)
        assert runner.returncode == 0
    assert len(list((matrix.results / "runs").iterdir())) == 3
    for run in (matrix.results / "runs").iterdir():
        assert len([row for row in read_lines(run / "attempts.jsonl") if "ended" in row]) == 1


def queue() -> tuple[list[list[str]], Senders]:
    """The arms of every array that was sent, and what sends them."""
    sent: list[list[str]] = []

    def send(array: Any, *_: Any) -> list[str]:
        sent.append([run.arm for run in array])
        return [f"{len(sent)}_{i}" for i in range(len(array))]

    return sent, Senders(runs=send, check=lambda *_: "")


def test_a_job_is_sent_once_its_trunk_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, store = planned(tmp_path), Store.create(tmp_path / "results")
    trunks = trunks_of(runs)
    sent, send = queue()
    runner = SlurmRunner([*trunks, *runs], store, send, ExecutorOptions(experiment="fake"))
    runner.folder.mkdir(parents=True)
    monkeypatch.setattr(executor, "job_states", lambda jobs: dict.fromkeys(jobs, "RUNNING"))
    runner.look()
    assert sent == [["trunk", "trunk"]]
    made(store, trunks[0])
    runner.look()
    runner.look()
    assert sent[1:] == [["baseline", "floor"]] or sent[1:] == [["floor", "baseline"]]
    monkeypatch.setattr(executor, "job_states", lambda jobs: dict.fromkeys(jobs, "CANCELLED"))
    runner.look()
    runner.look()
    reasons = [runner.summary.reasons.get(run.spec.run_id) for run in runs[2:]]
    assert len(sent) == 2
    assert all(
        "its trunk" in str(r) and "interrupted: its job was cancelled" in str(r) for r in reasons
    )


def test_nothing_is_sent_any_more_once_the_jobs_are_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trunk that is there just before does not send what waited for it."""
    runs, store = planned(tmp_path), Store.create(tmp_path / "results")
    trunks = trunks_of(runs)
    sent, send = queue()

    def cancelled() -> bool:
        if not store.is_done(trunks[0].spec.run_id):
            made(store, trunks[0])
        return True

    options = ExecutorOptions(experiment="fake", cancelled=cancelled)
    monkeypatch.setattr(executor, "QUEUE_LOOK_S", 0)
    monkeypatch.setattr(executor, "cancel_jobs", lambda jobs: None)
    monkeypatch.setattr(executor, "job_states", lambda jobs: dict.fromkeys(jobs, "CANCELLED"))
    summary = SlurmRunner([*trunks, *runs], store, send, options).run()
    assert summary.stopped == "interrupted"
    assert sent == [["trunk", "trunk"]]


def test_clean_keeps_a_trunk_that_a_missing_run_goes_on_from(tmp_path: Path) -> None:
    runs, store = planned(tmp_path), Store.create(tmp_path / "results")
    trunk = trunks_of(runs)[0]
    find: Callable[[Store], Any] = next(kind.find for kind in KINDS if kind.name == "trunks")
    rows = []
    for run in runs[:2]:
        assert run.spec.trunk == trunk.spec
        row = {"arm": run.arm, "seed": 0, "replicate": 0, "budget": 20, "role": "loss", "block": 0}
        row |= {"run_id": run.spec.run_id, "trunk": trunk.spec.run_id}
        rows.append(PlanRun.from_mapping(row))
    save_plan(store.root, Plan(name="fake", runs=tuple(rows)))
    made(store, trunk)
    made(store, runs[0])
    assert list(find(store)) == []
    made(store, runs[1])
    assert list(find(store)) == [store.directory(trunk.spec.run_id)]


def test_a_run_that_failed_on_a_node_is_judged_by_it_once_it_is_not_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fake.yaml").write_text(EXPERIMENT)
    run, *_ = plan_runs(load_experiment(str(tmp_path / "fake.yaml"), device="cpu"), need_data=False)
    store, (_, send) = Store.create(tmp_path / "results"), queue()
    runner = SlurmRunner([run], store, send, ExecutorOptions(experiment="fake"))
    runner.folder.mkdir(parents=True)
    state = ["RUNNING"]
    monkeypatch.setattr(executor, "job_states", lambda jobs: dict.fromkeys(jobs, state[0]))
    folder = store.directory(run.spec.run_id)
    folder.mkdir(parents=True)
    runner.look()
    state[0] = "FAILED"
    for attempt in range(1, 4):
        token, began = f"{attempt}_0/1", "2026-01-01T00:00:00+00:00"
        note_attempt(folder, AttemptRow(attempt=attempt, node="n1", token=token, started=began))
        end = {"ended": "2026-01-01T00:00:09+00:00", "status": "failed", "reason": "a bad GPU"}
        note_attempt(folder, AttemptRow(attempt=attempt, **end))
        runner.look()
    assert not runner.left
    assert "a bad GPU" in str(runner.summary.reasons[run.spec.run_id])
