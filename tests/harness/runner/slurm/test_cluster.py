"""A real Slurm cluster on this machine (Debian's slurm-wlm, two nodes with pretended GPUs), through the command line.

Accounting is off, as submitit cannot bear: no job may keep its runner waiting.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.run.read import read_json, read_lines
from harness.run.retired import read_retired
from harness.runner.slurm.sent import jobs_folder, jobs_of
from harness.store.store import Store
from tests.fake_matrix import Matrix, ablate, kill, processes_of, wait_for
from tests.slurm_lab import LONG_S, SITE, Login, process_of, slurm

SLOW_STEPS = 100_000  # as the fake trainer tells them
pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.timeout(900)]


def ended(process: "subprocess.Popen[str]", code: int) -> str:
    """What it printed, once it has ended with this exit code."""
    out, err = process.communicate(timeout=LONG_S)
    assert process.returncode == code, out + err
    return out


def jobs(matrix: Matrix, run_id: str) -> list[str]:
    """The jobs that were sent for a run, one after the other."""
    return [
        sent.job
        for sent in jobs_of(matrix.results / "experiments" / "fake" / "slurm")
        if sent.run_id == run_id
    ]


def at_work(matrix: Matrix, run_id: str, attempt: int = 1) -> str:
    """The job of a run's attempt, once that is slow."""
    shown = matrix.results / "runs" / run_id / "attempts" / str(attempt) / "progress.json"
    wait_for(lambda: (read_json(shown) or {}).get("steps") == SLOW_STEPS, LONG_S, every_s=0.1)
    return jobs(matrix, run_id)[-1]


def runs_at_work(matrix: Matrix, seed: int) -> list[str]:
    """Both runs of a seed, once they are slow."""
    runs = matrix.results / "runs"
    wait_for(lambda: runs.is_dir() and len(matrix.runs().get(seed, [])) == 2, LONG_S, every_s=0.2)
    found = [run.name for run in matrix.runs()[seed]]
    for run_id in found:
        at_work(matrix, run_id)
    return found


def marked(login: Login, mark: str) -> str:
    """The run that made a mark."""
    path = login.folder / mark
    wait_for(lambda: path.exists() and path.read_text(), LONG_S, every_s=0.1)
    return path.read_text()


def test_a_matrix_goes_to_its_report_whatever_happens_to_its_jobs(login: Login) -> None:
    """One seed trains, one fails, one job is put back into the queue, one is cancelled, one is killed again and again."""
    matrix = Matrix(login.folder, n_seeds=4, FAKE={"1": "raise", "2": "slow once", "3": "slow"})
    process = login.start(matrix)
    put_back = marked(login, "slow once")
    slurm("scontrol", "requeue", at_work(matrix, put_back))
    cancelled, killed = runs_at_work(matrix, 3)
    slurm("scancel", *jobs(matrix, cancelled))
    for n in (1, 2, 3):  # sent again twice
        kill(process_of(at_work(matrix, killed, n)))
        wait_for(lambda n=n: len(jobs(matrix, killed)) == min(n + 1, 3), LONG_S, every_s=0.2)
    out = ended(process, 1)
    print(out)
    assert (
        out.count("failed: ValueError: the shapes do not match") == 4
    )  # as it ends, and in the summary
    assert "interrupted: its job was cancelled" in out
    assert "failed: its job was killed" in out
    assert "4 of 8 runs have a result" in out
    assert sorted(matrix.ends(0)) == [["finished"], ["finished"]]
    assert {len(jobs(matrix, run_id)) for run_id in matrix.statuses()} == {1}
    assert [
        r["status"]
        for r in read_lines(matrix.results / "runs" / put_back / "attempts.jsonl")
        if "ended" in r
    ][-1] == "finished"
    assert sorted(map(len, matrix.ends(2))) == [1, 2]
    matrix.environment["FAKE"] = "{}"
    assert "4 of 8 runs to do" in ended(login.start(matrix), 0)
    alone = Matrix(login.folder, n_seeds=4, results=login.folder / "local")
    assert alone.run()[0] == 0
    assert matrix.table() == alone.table()
    report = ablate(matrix, "report", "fake")
    assert report.code == 0, report.err
    assert Path(report.out.strip()).stat().st_size > 10_000
    account = json.loads((matrix.runs()[0][0] / "environment.json").read_text())
    assert account["variables"]["ABLATE_SITE"] == "lab"
    assert "SLURM_JOB_ID" in account["variables"]


def test_a_run_told_to_go_is_run_again(login: Login) -> None:
    """USR2, which Slurm sends before a time limit, puts the job back into the queue; after SIGTERM the run is sent again."""
    matrix = Matrix(login.folder, n_seeds=1, FAKE={"0": "slow each once"})
    process = login.start(matrix)
    warned, ordered = runs_at_work(matrix, 0)
    slurm("scancel", "--signal=USR2", *jobs(matrix, warned))
    slurm("scancel", "--signal=TERM", *jobs(matrix, ordered))
    ended(process, 0)
    assert matrix.ends(0) == [["preempted", "finished"]] * 2
    assert (len(jobs(matrix, warned)), len(jobs(matrix, ordered))) == (1, 2)


def test_a_run_that_reaches_its_time_limit_is_a_timeout(login: Login) -> None:
    """One matrix whose runs are told before and may not be put back, one whose jobs Slurm ends without a word.

    Slurm's time limits are the subject: they are set once the runs can hear.
    """
    told = Matrix(login.folder, n_seeds=1, FAKE={"0": "slow"})
    untold = Matrix(login.folder, n_seeds=1, FAKE={"0": "slow"}, results=login.folder / "untold")
    site = SITE.replace(
        "0:30:00", "0:05:00"
    )  # submitit counts what a job is told in the last 10 minutes as its time-out
    first = login.start(told, site=f"{site}requeues: 0\nsignal_delay_s: 20\n")
    second = login.start(untold, site=f"{site}signal_delay_s: 0\n")
    for matrix in (told, untold):
        for run_id in runs_at_work(matrix, 0):  # so that none is told before it can hear
            job = jobs(matrix, run_id)[0]
            *_, minutes, seconds = map(
                int, f"0:{slurm('squeue', '-h', '-j', job, '-o', '%M').strip()}".split(":")
            )
            limit = (
                1 if (minutes, seconds) < (0, 20) else minutes + 2
            )  # it counts from the job's start, and Slurm looks rarely
            slurm("scontrol", "update", f"jobid={job}", f"timelimit={limit}")
    out = ended(first, 1)
    assert out.count("timeout: its job was told 1 times that its time was up") == 4
    out = ended(second, 1)
    assert out.count("timeout: its job reached its time limit") == 4
    for matrix in (told, untold):
        store = Store(matrix.results)
        assert {store.state(run.name).status for run in matrix.runs()[0]} == {"timeout"}
        assert {len(jobs(matrix, run.name)) for run in matrix.runs()[0]} == {1}


def test_preempted_jobs_are_run_again_and_options_are_passed_on_as_written(login: Login) -> None:
    """Slurm puts the jobs of one matrix back into the queue; those of the other, which forbid that, it ends for good."""
    requeued = Matrix(login.folder, n_seeds=1, FAKE={"0": "slow each once"})
    forbidden = Matrix(
        login.folder, n_seeds=1, FAKE={"0": "slow each once"}, results=login.folder / "forbidden"
    )
    forbidden.environment["FAKE_MARKS"] = str(login.folder / "forbidden")
    (login.folder / "forbidden").mkdir()
    processes = [
        login.start(requeued),
        login.start(forbidden, site=f"{SITE}no-requeue:\ncomment: as, written\n"),
    ]
    first, last = runs_at_work(requeued, 0), runs_at_work(forbidden, 0)
    shown = slurm("scontrol", "show", "job", *jobs(forbidden, last[0]))
    assert "Comment=as, written" in shown
    assert "Requeue=0" in shown
    slurm("sbatch", "-p", "urgent", "--nodes=2", "--exclusive", "-o", "/dev/null", "--wrap", "true")
    for process in processes:
        ended(process, 0)
    for matrix, n_jobs, run_ids in ((requeued, 1, first), (forbidden, 2, last)):
        assert {len(jobs(matrix, run_id)) for run_id in run_ids} == {n_jobs}
        assert {(len(ends), ends[-1]) for ends in matrix.ends(0)} == {(2, "finished")}


def test_the_runs_of_a_node_that_failed_are_sent_to_others(login: Login) -> None:
    matrix = Matrix(login.folder, n_seeds=1, FAKE={"0": "slow each once"})
    process = login.start(matrix, site=f"{SITE}no-requeue:\nnodelist: n1\n")
    runs = runs_at_work(matrix, 0)
    doomed = [process_of(job) for run_id in runs for job in jobs(matrix, run_id)]
    for pid in doomed:  # dead at once, as its node: Slurm's signals find nobody
        os.kill(pid, signal.SIGSTOP)
    slurm("scontrol", "update", "nodename=n1", "state=down", "reason=test")
    for pid in doomed:
        kill(pid)
    wait_for(lambda: all(len(jobs(matrix, run_id)) == 2 for run_id in runs), LONG_S, every_s=0.2)
    subprocess.run(
        ["scontrol", "update", "nodename=n1", "state=resume"], check=False
    )  # refused where it is back by itself
    ended(process, 0)
    assert matrix.ends(0) == [["preempted", "finished"]] * 2
    assert (
        read_lines(matrix.results / "runs" / runs[0] / "attempts.jsonl")[1]["reason"]
        == "its node failed"
    )


def test_jobs_outlive_the_login_session_are_followed_by_the_next_and_end_by_cancel(
    login: Login,
) -> None:
    matrix = Matrix(login.folder, n_seeds=2, FAKE={"0": "slow", "1": "slow"})
    first = login.start(matrix)
    for seed in (0, 1):
        runs_at_work(matrix, seed)
    first.send_signal(signal.SIGINT)
    assert "4 runs stay in the queue" in ended(first, 130)
    rows = ablate(matrix, "status", "fake", "--json").json
    assert [r["status"] for r in rows] == ["running"] * 4
    second = login.start(matrix)
    assert second.stdout is not None
    assert any(
        "4 runs are in the queue already" in line for line in iter(second.stdout.readline, "")
    )
    done = ablate(matrix, "cancel", "fake")
    assert done.code == 0, done.err
    assert "4 jobs taken out of the queue" in done.out
    ended(second, 130)
    assert (
        len(jobs_of(matrix.results / "experiments" / "fake" / "slurm")) == 4
    )  # nothing was sent twice
    wait_for(lambda: slurm("squeue", "-h") == "", LONG_S, every_s=0.2)


def losses(matrix: Matrix) -> list[list[tuple[int, float]]]:
    rows = [read_lines(run / "metrics.jsonl") for run in matrix.runs()[0]]
    return [[(r["step"], r["val_loss"]) for r in run if r["kind"] == "val"] for run in rows]


def test_a_run_on_two_nodes_trains_as_on_one_though_a_rank_is_killed(login: Login) -> None:
    options = ("--set", "data.ranks=2", "--set", "data.micro_tokens=256", "--max-parallel", "1")
    several = Matrix(
        login.folder, n_seeds=1, real=True, FAKE={"0": "wait once"}
    )  # the first run, in mid-training
    process = login.start(several, *options, "--nodes-per-run", "2")
    several.at("wait", 2)
    mine = processes_of(f"FAKE_MARKS={login.folder}".encode())
    (second,) = [p for p in mine if b"\0RANK=1\0" in Path(f"/proc/{p}/environ").read_bytes()]
    kill(second)  # the rank on the second node
    ended(process, 0)
    assert sorted(several.ends(0)) == [["failed", "finished"], ["finished"]]
    assert sorted(len(jobs(several, run.name)) for run in several.runs()[0]) == [1, 2]
    one = Matrix(login.folder, n_seeds=1, results=login.folder / "one", real=True)
    code, out, err = one.run(*options, "--gpus-per-run", "2")
    assert code == 0, out + err
    assert losses(several) == losses(one)


def test_a_job_that_can_do_nothing_says_why_and_is_not_sent_again(login: Login) -> None:
    """The nodes lack a library that the login node has: each fails one run, so that none is suspected."""
    matrix = Matrix(login.folder, n_seeds=1)
    (login.folder / "fake_trainer.py").write_text(
        "raise ImportError('libcuda.so.1: no such file')\n"
    )
    broken = f"setup: ['export PYTHONPATH={login.folder}:$PYTHONPATH']\nexclusive:\n"
    out = ended(
        login.start(matrix, site=SITE.replace("setup: [export ABLATE_SITE=lab]\n", broken)), 1
    )
    assert (
        out.count("its worker ended with exit code 1: ImportError: libcuda.so.1: no such file") == 4
    )
    assert len(jobs_of(matrix.results / "experiments" / "fake" / "slurm")) == 2


def test_what_sbatch_refuses_is_one_line(login: Login) -> None:
    process = login.start(Matrix(login.folder, n_seeds=1), site=f"{SITE}partition: nowhere\n")
    _, err = process.communicate(timeout=LONG_S)
    assert (process.returncode, err.count("\n")) == (2, 1)
    assert "nowhere" in err or "partition" in err
    assert "cluster0.yaml" in err or "cluster.yaml" in err


def test_a_node_that_fails_every_run_is_retired_and_its_runs_go_to_others(login: Login) -> None:
    matrix = Matrix(login.folder, n_seeds=5, FAKE={str(seed): "bad nodes n1" for seed in range(5)})
    out = ended(login.start(matrix), 0)
    assert len(matrix.statuses()) == 10
    retired = read_retired(matrix.results / "experiments" / "fake")
    assert [r.place for r in retired] == ["node n1"], out
    assert retired[0].words in ablate(matrix, "status", "fake").out
    began: dict[str, list[str]] = {"n1": [], "n2": []}
    for seed in range(5):
        for run in matrix.runs()[seed]:
            for row in read_lines(run / "attempts.jsonl"):
                if "started" in row:
                    began[row["node"]].append(row["started"])
    assert max(began["n1"]) < retired[0].at
    assert len(began["n1"]) < 10


def test_no_run_is_sent_where_the_nodes_python_lacks_torch(login: Login) -> None:
    """Then it has it: the same command goes on."""
    shadow = login.folder / "shadow"
    shadow.mkdir()
    (shadow / "torch.py").write_text("raise ImportError('not on this node')\n")
    python = login.folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={shadow}:$PYTHONPATH exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    matrix = Matrix(login.folder, n_seeds=1)
    site = SITE + f"python: {python}\n"
    process = login.start(matrix, site=site)
    _, err = process.communicate(timeout=LONG_S)
    assert process.returncode == 2, err
    assert "torch does not import (ImportError: not on this node)" in err
    assert not jobs_folder(matrix.results, "fake").joinpath("jobs.jsonl").exists()
    (shadow / "torch.py").unlink()
    ended(login.start(matrix, site=site), 0)
    assert matrix.ends(0) == [["finished"], ["finished"]]
