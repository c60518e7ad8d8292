"""Every way a run can end is an outcome of that run alone; the others go on, and the next call does what is left."""

import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.corpora.corpus import data_root
from harness.node.slots import Slot
from harness.run.read import read_lines
from harness.run.results import read_result
from harness.runner.messages import WorkerEvent
from harness.runner.process import Worker
from tests.fake_matrix import DEADLINE_S, ROOT, Matrix, gone, kill, wait_for, workers_of

N = 2  # arms, so runs of a seed
KINDS = ("train", "raise", "memory", "nan", "crash", "kill once", "preempt once")  # seed 0, 1, ...
ENDS = {
    "train": [["finished"], ["finished"]],
    "raise": [["failed"], ["failed"]],  # no second try
    "memory": [["oom"], ["oom"]],
    "nan": [["diverged"], ["diverged"]],
    "crash": [["failed"] * 3, ["failed"] * 3],
    "kill once": [["failed", "finished"], ["finished"]],
    "preempt once": [["finished"], ["preempted", "finished"]],
}


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> tuple[Matrix, int, str]:
    """One call in which every seed meets another fault: the matrix, the exit code, what was printed."""
    folder = tmp_path_factory.mktemp("faulty")
    fake = {str(seed): kind for seed, kind in enumerate(KINDS)}
    matrix = Matrix(folder, n_seeds=len(KINDS), FAKE=fake, FAKE_MARKS=str(folder))
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
    ):
        assert out.count(reason) == 2 * N, reason  # as it ends, and in the summary with its log
    assert f"{4 * N} of {7 * N} runs have a result" in out
    assert f"{N} diverged" in out


def test_the_log_of_a_failed_run_ends_with_its_exception_and_holds_no_secret(
    faulty: tuple[Matrix, int, str],
) -> None:
    log = (faulty[0].runs()[1][0] / "log.txt").read_text()
    assert log.strip().endswith("ValueError: the shapes do not match")
    assert "token=[redacted]" in log


def test_a_diverged_run_keeps_its_curve(faulty: tuple[Matrix, int, str]) -> None:
    run = faulty[0].runs()[KINDS.index("nan")][0]
    result = read_result(run)
    assert result is not None
    assert (result.status, result.val_loss, result.steps) == ("diverged", None, 10)
    curve = [r["val_loss"] for r in read_lines(run / "metrics.jsonl") if r["kind"] == "val"]
    assert len(curve) == 3
    assert curve[-1] is None


def test_the_next_call_does_what_is_left(faulty: tuple[Matrix, int, str]) -> None:
    matrix = faulty[0]
    before = matrix.statuses()
    matrix.environment["FAKE"] = "{}"
    code, out, _ = matrix.run()
    assert code == 0
    assert f"{3 * N} of {7 * N} runs to do" in out
    assert matrix.statuses().items() > before.items()
    assert matrix.trailing() == []


def test_a_run_that_makes_no_step_is_ended_by_the_watchdog(tmp_path: Path) -> None:
    matrix = Matrix(
        tmp_path, n_seeds=1, FAKE={"0": "hang"}, FAKE_SILENCE_S="1", FAKE_STILL_UNTIL=str(N)
    )
    code, out, _ = matrix.run()
    assert code == 1
    assert out.count("timeout: it made no step for 1 s") == 2 * N  # as it ends, and in the summary
    assert matrix.ends(0) == [["timeout"]] * N
    assert matrix.trailing() == []


def test_a_run_that_takes_too_long_is_ended_by_the_wall_limit(tmp_path: Path) -> None:
    matrix = Matrix(tmp_path, n_seeds=1, FAKE={"0": "slow"}, FAKE_STILL_UNTIL=str(N))
    code, out, _ = matrix.run("--wall-limit", "1")
    assert code == 1
    assert "it ran longer than its wall limit of 1 s" in out
    assert matrix.ends(0) == [["timeout"]] * N
    assert matrix.trailing() == []


@pytest.mark.parametrize(
    ("number", "status", "code"),
    [(signal.SIGINT, "interrupted", 130), (signal.SIGTERM, "preempted", 143)],
)
def test_a_stop_leaves_no_worker_and_says_how_to_go_on(
    tmp_path: Path, number: int, status: str, code: int
) -> None:
    matrix = Matrix(tmp_path, FAKE={"1": "slow"})
    process = matrix.start()
    wait_for(
        lambda: (matrix.results / "runs").is_dir() and len(matrix.statuses()) == N, seen=matrix.seen
    )
    matrix.at("slow", 1)
    workers = workers_of(process.pid)
    process.send_signal(number)
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == code
    assert f"{status}: {N} of {2 * N} runs are done; run the same command again to go on" in out
    assert err == ""
    assert workers
    assert all(map(gone, workers))
    assert status in [end for ends in matrix.ends(1) for end in ends]
    matrix.environment["FAKE"] = "{}"
    assert matrix.run()[0] == 0
    assert len(matrix.statuses()) == 2 * N


NODES = [
    {},
    pytest.param({"FAKE_NODE": "no locks"}, marks=pytest.mark.slow),
    pytest.param({"FAKE_NODE": "jumping clock"}, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("node", NODES, ids=str)
def test_two_runners_on_one_folder_do_each_run_once(tmp_path: Path, node: dict[str, str]) -> None:
    meet = {str(seed): "meet" for seed in range(3)}
    matrix = Matrix(tmp_path, n_seeds=3, FAKE=meet, FAKE_MARKS=str(tmp_path), **node)
    both = [
        matrix.start("--max-parallel", "2") for _ in range(2)
    ]  # so that none takes all the runs and waits for the other
    outputs = [p.communicate(timeout=DEADLINE_S) for p in both]
    assert [p.returncode for p in both] == [0, 0], outputs
    assert len(matrix.statuses()) == 3 * N
    for seed in range(3):
        assert matrix.ends(seed) == [["finished"]] * N
    assert {p.name for p in tmp_path.glob("runner *")} == {
        f"runner {p.pid}" for p in both
    }  # both took part


def test_a_run_of_a_runner_that_dies_is_taken_over_by_the_other(tmp_path: Path) -> None:
    first = Matrix(tmp_path, n_seeds=1, FAKE={"0": "slow"})
    process = first.start("--max-parallel", "1")
    first.at("slow", 1)
    second = Matrix(tmp_path, n_seeds=1)
    other = second.start()
    wait_for(
        lambda: len(second.statuses()) == N - 1, seen=second.seen
    )  # all but the one that the first runner holds
    kill(process.pid)
    process.communicate(timeout=DEADLINE_S)
    out, _ = other.communicate(timeout=DEADLINE_S)
    assert other.returncode == 0, out
    assert sorted(second.ends(0)) == [["finished"], ["interrupted", "finished"]]


@pytest.mark.slow
def test_source_that_changes_meanwhile_ends_the_call_with_one_line(tmp_path: Path) -> None:
    """Runs that were planned with the old source are not made with the new one."""
    root = tmp_path / "tree"
    for name in ("model", "optim", "harness", "experiments", "tests"):
        shutil.copytree(
            ROOT / name,
            root / name,
            symlinks=True,
            ignore=shutil.ignore_patterns("data"),
        )
    shutil.copytree(ROOT / "harness" / "data", root / "harness" / "data", dirs_exist_ok=True)
    fake = {
        "FAKE": {"0": "slow each once"},
        "FAKE_MARKS": str(tmp_path),
        "ABLATE_DATA": str(data_root().resolve()),
    }
    matrix = Matrix(tmp_path, n_seeds=1, root=root, **fake)
    process = matrix.start("--max-parallel", "1")
    matrix.at("slow", 1)
    with (root / "model" / "gpt.py").open("a") as file:
        file.write("CHANGED = True\n")
    for worker in workers_of(process.pid):
        kill(worker)
    _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 2
    assert (
        err
        == "ablate: the source changed since the run was planned (model/gpt.py): run the same command again\n"
    )
    matrix.environment["FAKE"] = "{}"
    code, out, _ = matrix.run()
    assert (code, "2 of 2 runs to do" in out) == (0, True)


def test_a_worker_that_cannot_start_ends_the_call_with_one_line(tmp_path: Path) -> None:
    matrix = Matrix(tmp_path)
    (tmp_path / "fake_trainer.py").write_text("raise ImportError('libcuda.so.1: no such file')\n")
    # the runner keeps the real module; its workers find the broken one first
    matrix.environment["PYTHONPATH"] = os.pathsep.join(
        [str(tmp_path), matrix.environment["PYTHONPATH"]]
    )
    out, err = matrix.start().communicate(timeout=DEADLINE_S)
    assert (
        err.strip()
        .splitlines()[-1]
        .startswith("ablate: its worker ended with exit code 1: ImportError: libcuda.so.1")
    )
    assert len(err.strip().splitlines()) == 1
    assert "took" in out


def test_a_group_whose_launcher_is_killed_is_gone_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ranks hold its output and would wait minutes for it; they are ended by the end of their input."""
    launcher = tmp_path / "launcher"
    rank = "cat <&3 >/dev/null; echo $$ >>gone"
    launcher.write_text(
        f"#!/bin/sh\ncd {tmp_path}\nexec 3<&0\nsh -c '{rank}' &\nsh -c '{rank}' &\nkill -KILL $$\n"
    )
    launcher.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(launcher))
    worker = Worker(Slot(held=("0", "1"), gpus=(), size=2), "module:train")
    process = worker.start()
    died = WorkerEvent(status="died", reason="its worker was killed by signal 9")
    assert wait_for(lambda: process.event(0.05)) == died
    assert len((tmp_path / "gone").read_text().split()) == 2
    worker.kill()


@pytest.fixture
def little_memory() -> Iterator[Path]:
    """A control group with 300 MB, enough for a runner and its workers here; the test is skipped where none can be made."""
    old, new = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    group = (old if old.is_dir() else new) / f"ablate-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / ("memory.limit_in_bytes" if old.is_dir() else "memory.max")).write_text(
            str(300 << 20)
        )
    except OSError as error:
        pytest.skip(f"cannot limit memory here: {error}")
    yield group
    wait_for(lambda: (group / "cgroup.procs").read_text() == "")
    group.rmdir()


@pytest.mark.parametrize(
    ("options", "ends"),
    [
        pytest.param((), ["oom"], marks=pytest.mark.slow),
        (("--oom-retries", "1"), ["oom", "finished"]),
    ],
)
def test_a_worker_that_the_kernel_ends_for_its_memory_is_out_of_memory(
    tmp_path: Path, little_memory: Path, options: tuple[str, ...], ends: list[str]
) -> None:
    """Not a crash that is tried twice more: it would devour as much again. In smaller passes it may fit."""
    matrix = Matrix(tmp_path, n_seeds=1, FAKE={"0": "devour above 256"}, inside=little_memory)
    code, out, _ = matrix.run("--max-parallel", "1", *options)
    assert code == (0 if options else 1)
    assert (out.count("oom: the kernel ended its worker: out of memory beyond ") > 0) == (
        not options
    )
    assert matrix.ends(0) == [ends] * N


def test_every_line_of_the_fault_table_names_a_test_that_is_there() -> None:
    table = (ROOT / "docs" / "runner.md").read_text().split("## Faults")[1]
    lines = re.findall(r"^\| (\d+) \|", table, re.MULTILINE)
    named = dict(re.findall(r"^(\d+)\. (.*)$", table, re.MULTILINE))
    assert list(named) == lines
    there = set(
        re.findall(
            r"^def (test_\w+)",
            "".join(p.read_text() for p in (ROOT / "tests").rglob("test_*.py")),
            re.MULTILINE,
        )
    )
    for number, names in named.items():
        found = re.findall(r"`(\w+)`", names)
        assert found and set(found) <= there, (number, set(found) - there)
