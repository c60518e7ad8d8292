"""A real Ray cluster of several nodes on this machine: a matrix whose processes, node and driver are killed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.run.read import read_lines
from tests.fake_matrix import Matrix, wait_for
from tests.ray_lab import RayCluster, node_of, on, ray_worker_of

if "ABLATE_REQUIRE_RAY" not in os.environ:
    pytest.importorskip("ray", reason="Ray is not installed: pip install -e '.[ray]'")

pytestmark = [
    pytest.mark.slow,
    # pipes of nodes that Ray's own test cluster leaves open
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
LONG_S = 240.0


def ended(process: Any, code: int) -> str:
    out, err = process.communicate(timeout=LONG_S)
    assert process.returncode == code, out + err
    return str(out)


@pytest.mark.timeout(600)
def test_a_matrix_survives_the_loss_of_a_worker_a_node_and_its_driver(
    cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = '{"0": "slow each once", "1": "slow each once"}'
    monkeypatch.setenv("FAKE", fake)
    nodes = [cluster.add(gpus=2), cluster.add(gpus=2)]
    matrix = Matrix(tmp_path, n_seeds=3, FAKE=fake)
    first = matrix.spawn(*on(cluster))
    pids = matrix.at("slow", 4)
    psutil.Process(ray_worker_of(pids[0])).kill()
    wait_for(lambda: not psutil.pid_exists(pids[0]), LONG_S)
    left = [pid for pid in matrix.at("slow", 4) if psutil.pid_exists(pid)]
    lost = node_of(left[0], nodes)
    cluster.kill(lost)
    wait_for(lambda: not psutil.pid_exists(left[0]), LONG_S)
    first.send_signal(signal.SIGKILL)
    first.wait()
    cluster.add(gpus=2)
    second = matrix.spawn(*on(cluster))
    assert "6 runs" in ended(second, 0)
    undisturbed = Matrix(tmp_path, n_seeds=3, results=tmp_path / "undisturbed", FAKE=fake)
    ended(undisturbed.spawn(*on(cluster)), 0)
    assert matrix.table() == undisturbed.table()
    assert matrix.trailing() == []
    finished = [ends[-1] for seed in range(3) for ends in matrix.ends(seed)]
    assert finished == ["finished"] * 6
    again = matrix.spawn(*on(cluster))
    assert "everything is finished" in ended(again, 0)


@pytest.mark.timeout(600)
def test_a_node_that_fails_what_another_makes_gets_no_more_and_no_block_waits_for_it(
    cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = json.dumps({str(seed): "bad nodes B" for seed in range(4)})
    monkeypatch.setenv("FAKE", fake)
    for kind in ("A", "B"):
        monkeypatch.setenv("SLURMD_NODENAME", kind)  # what the fake looks at
        cluster.add(gpus=1, kind=kind)
    matrix = Matrix(tmp_path, n_seeds=4, FAKE=fake)
    out = ended(matrix.spawn(*on(cluster)), 0)
    assert "its runs go elsewhere" in out
    assert "no node of B is left; any may make it" in out
    ends = [ends for seed in range(4) for ends in matrix.ends(seed)]
    assert [end[-1] for end in ends] == ["finished"] * 8
    assert (
        2 <= sum(end.count("failed") for end in ends) <= 4
    )  # what was there already when it was told


@pytest.mark.timeout(600)
def test_all_runs_of_a_block_are_made_by_nodes_of_one_class(
    cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind, gpus in (("A", 2), ("B", 1)):
        monkeypatch.setenv("SLURMD_NODENAME", kind)  # what an attempt calls its node
        cluster.add(gpus=gpus, kind=kind)
    matrix = Matrix(tmp_path, n_seeds=6)
    ended(matrix.spawn(*on(cluster)), 0)
    made_by = []
    for seed in range(6):
        nodes = {row["node"] for run in matrix.runs()[seed] for row in attempts_begun(run)}
        made_by.append(nodes)
    assert sorted(map(sorted, made_by)) == [["A"]] * 4 + [["B"]] * 2  # in proportion to their GPUs


def attempts_begun(run: Path) -> list[dict[str, Any]]:
    return [row for row in read_lines(run / "attempts.jsonl") if "started" in row]


@pytest.mark.timeout(600)
def test_ctrl_c_and_cancel_from_elsewhere_end_the_tasks_and_the_same_call_goes_on(
    cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = '{"0": "slow each once"}'
    monkeypatch.setenv("FAKE", fake)
    cluster.add(gpus=2)
    matrix = Matrix(tmp_path, n_seeds=1, FAKE=fake)
    first = matrix.spawn(*on(cluster, "--max-parallel", "1"))
    [pid] = matrix.at("slow", 1)
    first.send_signal(signal.SIGINT)
    assert "interrupted" in ended(first, 130)
    assert not psutil.pid_exists(pid)
    assert [ends for ends in matrix.ends(0) if ends] == [["interrupted"]]
    second = matrix.spawn(*on(cluster, "--max-parallel", "1"))
    matrix.at("slow", 2)
    assert matrix.forked("cancel", "fake").returncode == 0
    ended(second, 130)
    ended(matrix.spawn(*on(cluster)), 0)
    assert [ends[-1] for ends in matrix.ends(0)] == ["finished"] * 2


@pytest.mark.timeout(600)
def test_runs_planned_for_gpus_wait_for_a_node_with_one(
    cluster: RayCluster, tmp_path: Path
) -> None:
    cluster.add(cpus=1)
    matrix = Matrix(tmp_path, n_seeds=1)
    process = matrix.spawn(*on(cluster, "--set", "device=cuda"))
    assert process.stdout is not None
    said = ""
    while "has 1 GPU and 1 CPU: such runs wait until one comes" not in said:
        said = process.stdout.readline()
        assert said, "it ended before"
    cluster.add(gpus=1)
    ended(process, 0)
    assert [ends[-1] for ends in matrix.ends(0)] == ["finished"] * 2


def test_a_cluster_that_does_not_answer_is_one_line(tmp_path: Path) -> None:
    matrix = Matrix(tmp_path, n_seeds=1)
    code, out, err = matrix.run("--executor", "ray", "--address", "127.0.0.1:1")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--address 127.0.0.1:1: no Ray cluster answers" in err
    assert not (matrix.results / "runs").exists()


@pytest.mark.timeout(600)
def test_results_of_nodes_that_do_not_see_the_folder_come_back_by_ray(
    cluster: RayCluster, tmp_path: Path
) -> None:
    hidden = tmp_path / "shared"
    hidden.mkdir()
    matrix = Matrix(tmp_path, n_seeds=2, results=hidden / "results", FAKE={"1": "raise"})
    start = (
        f"mount -t tmpfs none {hidden} && FAKE='{matrix.environment['FAKE']}' "
        f"{Path(sys.executable).parent}/ray start --address {cluster.address} --num-cpus 2 --num-gpus 2"
    )
    node = subprocess.run(["unshare", "-m", "sh", "-c", start], capture_output=True, text=True)
    if "mount:" in node.stderr or "unshare:" in node.stderr:
        pytest.skip("no mount namespaces here")
    assert node.returncode == 0, node.stderr
    out = ended(matrix.spawn(*on(cluster)), 1)
    assert "the shapes do not match" in out
    assert [ends[-1] for ends in matrix.ends(0)] == ["finished"] * 2
    assert [run.joinpath("log.txt").exists() for run in matrix.runs()[0]] == [True] * 2
    here = Matrix(tmp_path, n_seeds=1, results=tmp_path / "here")
    ended(here.spawn(*on(cluster)), 0)
    assert losses(matrix) == losses(here)


@pytest.mark.timeout(600)
def test_a_run_of_ray_on_two_nodes_trains_as_on_one_though_a_rank_is_killed(
    cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--set", "data.ranks=2", "--set", "data.micro_tokens=256", "--max-parallel", "1")
    fake = '{"0": "wait once"}'
    monkeypatch.setenv("FAKE", fake)
    monkeypatch.setenv("FAKE_TRAINER", "train_for_real")
    cluster.add(cpus=1)
    cluster.add(cpus=1)
    several = Matrix(tmp_path, n_seeds=1, real=True, FAKE=fake)
    process = several.spawn(*on(cluster, *options, "--nodes-per-run", "2"))
    pids = several.at("wait", 2)
    second = next(p for p in pids if psutil.Process(p).environ()["RANK"] == "1")
    psutil.Process(second).kill()
    ended(process, 0)
    assert sorted(several.ends(0)) == [["failed", "finished"], ["finished"]]
    monkeypatch.delenv("FAKE")
    one = Matrix(tmp_path, n_seeds=1, results=tmp_path / "one", real=True)
    code, out, err = one.run(*options, "--gpus-per-run", "2")
    assert code == 0, out + err
    assert losses(several) == losses(one)


def losses(matrix: Matrix) -> list[list[tuple[int, float]]]:
    rows = [read_lines(run / "metrics.jsonl") for run in matrix.runs()[0]]
    return [[(r["step"], r["val_loss"]) for r in run if r["kind"] == "val"] for run in rows]
