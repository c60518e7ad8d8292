"""Real training through the command line: warm, fresh and grouped workers tell the same story."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from harness.run.read import read_lines
from harness.run.results import read_result
from tests.fake_matrix import DEADLINE_S, EXPERIMENT, ROOT, Matrix, kill, processes_of, wait_for


def ablate(folder: Path, *options: str, results: str = "results") -> "subprocess.Popen[str]":
    file = folder / "fake.yaml"
    file.write_text(EXPERIMENT + "seeds: 1\n")
    command = [
        sys.executable,
        "-m",
        "harness",
        "run",
        str(file),
        "--no-report",
        "--results",
        str(folder / results),
        *options,
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )


def finished(process: "subprocess.Popen[str]") -> None:
    out, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, out


def losses(folder: Path, results: str) -> dict[bool, list[tuple[str, int, float]]]:
    """Whether the head is tied (the arm) -> every training and validation loss."""
    found = {}
    for run in (folder / results / "runs").iterdir():
        assert read_result(run) is not None
        config = yaml.safe_load((run / "config.yaml").read_text())["config"]
        rows = [
            (r["kind"], r["step"], r.get("val_loss", r.get("train_loss")))
            for r in read_lines(run / "metrics.jsonl")
        ]
        found[config["model"]["tied_head"]] = [r for r in rows if r[0] in ("train", "val")]
    return found


@pytest.mark.slow
@pytest.mark.long
def test_a_warm_worker_trains_as_a_fresh_one(tmp_path: Path) -> None:
    finished(ablate(tmp_path, "--max-parallel", "1", results="warm"))
    finished(ablate(tmp_path, "--max-parallel", "1", "--worker", "fresh", results="fresh"))
    warm = losses(tmp_path, "warm")
    assert warm == losses(tmp_path, "fresh")
    assert len(warm) == 2
    pids = {
        r["pid"]
        for p in (tmp_path / "warm" / "runs").glob("*/attempts.jsonl")
        for r in read_lines(p)
        if "pid" in r
    }
    assert len(pids) == 1


@pytest.mark.slow
def test_two_processes_train_as_one(tmp_path: Path) -> None:
    ranks = ("--set", "data.ranks=2", "--set", "data.micro_tokens=256")
    finished(ablate(tmp_path, *ranks, results="one"))
    finished(ablate(tmp_path, *ranks, "--gpus-per-run", "2", results="two"))
    one, two = losses(tmp_path, "one"), losses(tmp_path, "two")
    assert one.keys() == two.keys()
    for arm, rows in one.items():
        assert [r[:2] for r in rows] == [r[:2] for r in two[arm]]
        for a, b in zip(rows, two[arm], strict=True):
            assert a[2] == pytest.approx(b[2], abs=1e-5)
    for run in (tmp_path / "two" / "runs").iterdir():
        result = read_result(run)
        assert result is not None
        assert (result.status, result.steps) == ("finished", 20)
        assert yaml.safe_load((run / "config.yaml").read_text())["world_size"] == 2


@pytest.mark.slow
def test_eight_processes_train_as_one(tmp_path: Path) -> None:
    """A whole node's ranks, each with one of the records' eight."""
    ranks = ["--set", "data.ranks=8", "--set", "data.micro_tokens=64", "--set", "schedule.steps=5"]
    ranks += ["--max-parallel", "1"]
    finished(ablate(tmp_path, *ranks, results="one"))
    finished(ablate(tmp_path, *ranks, "--gpus-per-run", "8", results="eight"))
    one, eight = losses(tmp_path, "one"), losses(tmp_path, "eight")
    assert one.keys() == eight.keys()
    for arm, rows in one.items():
        assert [r[:2] for r in rows] == [r[:2] for r in eight[arm]]
        for a, b in zip(rows, eight[arm], strict=True):
            assert a[2] == pytest.approx(b[2], abs=1e-5)
    for run in (tmp_path / "eight" / "runs").iterdir():
        assert yaml.safe_load((run / "config.yaml").read_text())["world_size"] == 8


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["rank 0", "rank 1", "runner"])
def test_a_killed_rank_costs_one_attempt_and_a_killed_runner_leaves_no_rank(
    tmp_path: Path, victim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABLATE_TEST_MARK", str(tmp_path))  # inherited by every rank
    options = (
        "--set",
        "data.ranks=2",
        "--set",
        "data.micro_tokens=256",
        "--gpus-per-run",
        "2",
        "--max-parallel",
        "1",
    )
    matrix = Matrix(
        tmp_path, n_seeds=1, real=True, FAKE={"0": "wait once"}
    )  # both ranks of the first run, in mid-training
    process = matrix.start(*options)
    mark = f"ABLATE_TEST_MARK={tmp_path}".encode()
    matrix.at("wait", 2)
    if victim == "runner":
        kill(process.pid)
        process.communicate(timeout=DEADLINE_S)
        wait_for(lambda: not processes_of(mark), seen=lambda: processes_of(mark))
        process = matrix.start(*options)
    else:
        number = f"\0RANK={victim[-1]}\0".encode()
        kill(
            next(p for p in processes_of(mark) if number in Path(f"/proc/{p}/environ").read_bytes())
        )
    finished(process)
    ends = [
        [r["status"] for r in read_lines(p) if "ended" in r]
        for p in (tmp_path / "results" / "runs").glob("*/attempts.jsonl")
    ]
    assert sorted(ends) in (
        [["failed", "finished"], ["finished"]],
        [["finished"], ["interrupted", "finished"]],
    )
    wait_for(lambda: not processes_of(mark), seen=lambda: processes_of(mark))
