"""Every way a run can end is an outcome of that run alone; the others go on, and the next call does what is left."""

import os
import signal
from pathlib import Path

import pytest
from fake_matrix import Matrix, gone, kill, wait_for, workers_of

from harness.records import read_lines, read_result

N = 2  # arms, so runs of a seed
KINDS = ("train", "raise", "memory", "nan", "crash", "hang", "kill once", "preempt once")  # seed 0, 1, ...
ENDS = {
    "train": [["finished"], ["finished"]],
    "raise": [["failed"], ["failed"]],  # no second try
    "memory": [["oom"], ["oom"]],
    "nan": [["diverged"], ["diverged"]],
    "crash": [["failed"] * 3, ["failed"] * 3],
    "hang": [["timeout"], ["timeout"]],
    "kill once": [["failed", "finished"], ["finished"]],
    "preempt once": [["finished"], ["preempted", "finished"]],
}


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> tuple[Matrix, int, str]:
    """One call in which every seed meets another fault: the matrix, the exit code, what was printed."""
    folder = tmp_path_factory.mktemp("faulty")
    fake = {str(seed): kind for seed, kind in enumerate(KINDS)}
    matrix = Matrix(folder, n_seeds=len(KINDS), FAKE=fake, FAKE_MARKS=str(folder), FAKE_SILENCE_S="2.5")
    code, out, err = matrix.run()
    assert err == ""
    return matrix, code, out


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_ends_its_own_runs_alone(faulty: tuple[Matrix, int, str], kind: str) -> None:
    assert sorted(faulty[0].ends(KINDS.index(kind))) == ENDS[kind]


def test_failed_runs_are_named_with_their_reason(faulty: tuple[Matrix, int, str]) -> None:
    _, code, out = faulty
    assert code == 1
    for reason in (
        "failed: ValueError: the shapes do not match",
        "failed: its worker was killed by signal 11",
        "oom: MemoryError",
        "timeout: it made no step for 2.5 s",
    ):
        assert out.count(reason) == 2 * N, reason  # as it ends, and in the summary with its log
    assert f"{4 * N} of {8 * N} runs have a result" in out
    assert f"{N} diverged" in out


def test_the_log_of_a_failed_run_ends_with_its_exception_and_holds_no_secret(faulty: tuple[Matrix, int, str]) -> None:
    log = (faulty[0].runs()[1][0] / "log.txt").read_text()
    assert log.strip().endswith("ValueError: the shapes do not match")
    assert "token=[redacted]" in log


def test_a_diverged_run_keeps_its_curve(faulty: tuple[Matrix, int, str]) -> None:
    run = faulty[0].runs()[KINDS.index("nan")][0]
    result = read_result(run)
    assert result is not None
    assert (result["status"], result["val_loss"], result["steps"]) == ("diverged", None, 10)
    curve = [r["val_loss"] for r in read_lines(run / "metrics.jsonl") if r["kind"] == "val"]
    assert len(curve) == 3
    assert curve[-1] is None


def test_the_next_call_does_what_is_left(faulty: tuple[Matrix, int, str]) -> None:
    matrix = faulty[0]
    before = matrix.statuses()
    matrix.environment["FAKE"] = "{}"
    code, out, _ = matrix.run()
    assert code == 0
    assert f"{4 * N} of {8 * N} runs to do" in out
    assert matrix.statuses().items() > before.items()
    assert matrix.trailing() == []


def test_a_run_that_takes_too_long_is_ended_by_the_wall_limit(tmp_path: Path) -> None:
    matrix = Matrix(tmp_path, n_seeds=1, FAKE={"0": "slow"})
    code, out, _ = matrix.run("--wall-limit", "2")
    assert code == 1
    assert "it ran longer than its wall limit of 2 s" in out
    assert matrix.ends(0) == [["timeout"]] * N
    assert matrix.trailing() == []


@pytest.mark.parametrize(("number", "status", "code"), [(signal.SIGINT, "interrupted", 130), (signal.SIGTERM, "preempted", 143)])
def test_a_stop_leaves_no_worker_and_says_how_to_go_on(tmp_path: Path, number: int, status: str, code: int) -> None:
    matrix = Matrix(tmp_path, FAKE={"1": "slow"})
    process = matrix.start()
    wait_for(lambda: (matrix.results / "runs").is_dir() and len(matrix.statuses()) == N)
    wait_for(
        lambda: any(p.parents[2].name not in matrix.statuses() for p in matrix.results.glob("runs/*/attempts/*/progress.json"))
    )
    workers = workers_of(process.pid)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert f"{status}: {N} of {2 * N} runs are done; run the same command again to go on" in out
    assert err == ""
    assert workers
    assert all(map(gone, workers))
    assert status in [end for ends in matrix.ends(1) for end in ends]
    matrix.environment["FAKE"] = "{}"
    assert matrix.run()[0] == 0
    assert len(matrix.statuses()) == 2 * N


def test_two_runners_on_one_folder_do_each_run_once(tmp_path: Path) -> None:
    matrix = Matrix(tmp_path, n_seeds=6)
    both = [matrix.start(), matrix.start()]
    outputs = [p.communicate(timeout=120) for p in both]
    assert [p.returncode for p in both] == [0, 0], outputs
    assert len(matrix.statuses()) == 6 * N
    for seed in range(6):
        assert matrix.ends(seed) == [["finished"]] * N
    workers = {
        r["pid"] for runs in matrix.runs().values() for run in runs for r in read_lines(run / "attempts.jsonl") if "pid" in r
    }
    assert len(workers) >= 3  # both took part: a runner has two


def test_a_run_of_a_runner_that_dies_is_taken_over_by_the_other(tmp_path: Path) -> None:
    first = Matrix(tmp_path, n_seeds=1, FAKE={"0": "slow"})
    process = first.start("--max-parallel", "1")
    wait_for(lambda: any(p.name == "progress.json" for p in first.results.rglob("*.json")))
    second = Matrix(tmp_path, n_seeds=1)
    other = second.start()
    wait_for(lambda: len(second.statuses()) == N - 1)  # all but the one that the first runner holds
    kill(process.pid)
    process.communicate()
    out, _ = other.communicate(timeout=60)
    assert other.returncode == 0, out
    assert sorted(second.ends(0)) == [["finished"], ["interrupted", "finished"]]


def test_a_worker_that_cannot_start_ends_the_call_with_one_line(tmp_path: Path) -> None:
    matrix = Matrix(tmp_path)
    (tmp_path / "fake_trainer.py").write_text("raise ImportError('libcuda.so.1: no such file')\n")
    # the runner keeps the real module; its workers find the broken one first
    matrix.environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), matrix.environment["PYTHONPATH"]])
    out, err = matrix.start().communicate(timeout=60)
    assert err.strip().splitlines()[-1].startswith("ablate: its worker ended with exit code 1: ImportError: libcuda.so.1")
    assert len(err.strip().splitlines()) == 1
    assert "took" in out
