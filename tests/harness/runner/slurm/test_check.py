"""Before the runs a job looks whether nodes that get another environment have what a run needs."""

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from harness.errors import UserError
from harness.run.files import write_json
from harness.run.read import read_json
from harness.run.spec import PlannedRun
from harness.runner.executor import ExecutorOptions
from harness.runner.slurm import check, send
from harness.runner.slurm.check import (
    NodeCheck,
    answer_file,
    check_environment,
    needs_check,
)
from harness.runner.slurm.cluster import Cluster
from harness.runner.slurm.send import send_check
from harness.runner.trainers import OwnTrainer
from harness.store.store import Store
from tests.fake_matrix import Matrix
from tests.harness.runner.piped import piped
from tests.harness.runner.slurm.test_site import install
from tests.one_run import SPEC

NO_TORCH = "raise ImportError('it is not in this container')\n"
SBATCH = r"""n=$(sed -n 's/.*--array=0-\([0-9]*\).*/\1/p' "$1")
[ -n "$n" ] && { echo array >> "$LAB/sent"; echo Submitted batch job 9; exit; }
echo "8|PENDING" > "$LAB/queue"
export SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_NTASKS=1 SLURM_NNODES=1 SLURM_JOB_NUM_NODES=1 SLURM_JOB_NODELIST=n1
(SLURM_JOB_ID=8 bash "$1"; echo "8|COMPLETED" > "$LAB/queue") < /dev/null > /dev/null 2>&1 &
echo Submitted batch job 8"""
SRUN = r"""out=$(echo "$3" | sed "s/%j_%t/8_0/") err=$(echo "$5" | sed "s/%j_%t/8_0/")
shift 5
while [[ "$1" == --container-* ]]; do shift; done
exec env PYTHONPATH="$LAB/container" "$@" > "$out" 2> "$err"
"""
COMMANDS = {
    "sbatch": SBATCH,
    "squeue": 'cat "$LAB/queue"',
    "scontrol": "echo n1",
    "scancel": 'echo "$@" >> "$LAB/cancelled"',
    "srun": SRUN,
}


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What the queue says of a job; a look takes no time."""
    said: dict[str, str] = {}
    monkeypatch.setattr(check, "LOOK_S", 0.0)
    monkeypatch.setattr(check, "job_states", lambda jobs: {job: said[job] for job in jobs})
    return said


def of_this_machine(folder: Path) -> NodeCheck:
    answer = str(folder / "answer.json")
    return NodeCheck(
        results=str(folder),
        data=(str(folder),),
        modules=tuple(OwnTrainer().modules),
        device="cpu",
        gpus=0,
        answer=answer,
    )


def test_an_environment_as_ours_lacks_nothing(tmp_path: Path) -> None:
    assert of_this_machine(tmp_path).missing() == []


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"results": "/nowhere/results"}, "the results folder /nowhere/results cannot be written"),
        ({"data": ("/nowhere/data",)}, "the data /nowhere/data is not there"),
        ({"device": "cuda", "gpus": 1_000}, "and a run needs 1000"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, how: dict[str, object], words: str) -> None:
    [said] = NodeCheck(**{**vars(of_this_machine(tmp_path)), **how}).missing()  # type: ignore[arg-type]
    assert words in said


def test_a_library_that_does_not_import_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    [said] = of_this_machine(tmp_path).missing()
    assert said.startswith("numpy does not import (ModuleNotFoundError: ")


def test_other_settings_are_another_check(tmp_path: Path) -> None:
    plain, container = Cluster(), Cluster(container=("--container-image=a",))
    other = Cluster(container=("--container-image=b",))
    assert [needs_check(c) for c in (plain, container, Cluster(python="/x"))] == [False, True, True]
    answers = {answer_file(c, tmp_path) for c in (plain, container, other)}
    assert len(answers) == 3
    assert all(re.fullmatch(r"check-[0-9a-f]{12}\.json", answer.name) for answer in answers)
    assert answer_file(container, tmp_path) == answer_file(
        Cluster(container=("--container-image=a",), sbatch={"qos": "high"}), tmp_path
    )


def answering(answer: Path, missing: list[str]) -> Callable[[], str]:
    def send() -> str:
        write_json(answer, {"missing": missing})
        return "7"

    return send


def test_a_check_that_was_passed_is_not_sent_again(
    tmp_path: Path, states: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    answer = tmp_path / "check.json"
    for missing in (["no torch"], ["no data", "no room"]):
        found = f"no run was sent, for job 7 found that {'; '.join(missing)}: change `container`"
        with pytest.raises(UserError, match=f"^{found}"):
            check_environment(answer, answering(answer, missing), lambda: False)
    check_environment(answer, answering(answer, []), lambda: False)
    looks = "job 7 looks whether the nodes have what a run needs\n"
    assert capsys.readouterr().out == looks * 3

    def never() -> str:
        raise AssertionError("sent again")

    check_environment(answer, never, lambda: False)
    assert capsys.readouterr().out == ""


def test_a_job_that_ends_without_an_answer_tells_its_last_line(
    tmp_path: Path,
    states: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    kept_line: Callable[[str], None],
) -> None:
    (tmp_path / "6_0_log.err").write_text("of another job\n")
    (tmp_path / "7_0_log.err").write_text("\n")
    (tmp_path / "7_1_log.err").write_text("slurmstepd: a\nexecve(): python: No such file\n")
    told: list[dict[str, str] | None] = [None, {"7": "RUNNING"}, *[{"7": "FAILED"}] * 5]
    monkeypatch.setattr(check, "job_states", lambda jobs: told.pop(0))
    with pytest.raises(
        UserError, match=r"did not start \(execve\(\): python: No such file\)"
    ) as no:
        check_environment(tmp_path / "check.json", lambda: "7", lambda: False)
    assert told == []
    told += [{"8": "GONE"}] * 5
    with pytest.raises(UserError, match="it wrote nothing") as nothing:
        check_environment(tmp_path / "check.json", lambda: "8", lambda: False)
    (tmp_path / "9_0_log.err").write_text("x" * 201)
    told += [{"9": "GONE"}] * 5
    with pytest.raises(UserError, match=rf"\({'x' * 200}\)"):
        check_environment(tmp_path / "check.json", lambda: "9", lambda: False)
    kept_line(f"{no.value}\n{nothing.value}")


def test_the_check_of_a_run_of_several_nodes_is_one_job_of_one_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sbatch = 'cp "$1" "$LAB/sent"; echo Submitted batch job 8'
    install(tmp_path, monkeypatch, {"sbatch": sbatch, "srun": "exit 1"})
    spec = replace(SPEC, config={"data": {"heldout": None}}, world_size=2)
    run = PlannedRun(arm="a", block=0, place=0, spec=spec)
    options = ExecutorOptions(cluster=Cluster(device="cpu"), experiment="x", n_nodes=2)
    store = Store.create(tmp_path / "results")
    assert send_check(run, store, tmp_path / "jobs" / "answer.json", options) == "8"
    asked = (tmp_path / "sent").read_text().splitlines()
    assert "#SBATCH --nodes=1" in asked
    assert not any(line.startswith("#SBATCH --array") for line in asked)


def test_the_check_looks_for_what_a_run_needs_on_each_of_its_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABLATE_DATA", str(tmp_path / "data"))
    asked: list[object] = []

    def executor_of(runs: list[PlannedRun], folder: Path, options: ExecutorOptions) -> str:
        asked.append((len(runs), folder, options.n_nodes))
        return "submitit"

    def sent_by(executor: str, jobs: list[NodeCheck]) -> list[str]:
        asked.extend(jobs)
        return ["8"]

    monkeypatch.setattr(send, "executor_of", executor_of)
    monkeypatch.setattr(send, "sent_by", sent_by)
    spec = replace(SPEC, config={"data": {"heldout": None}}, world_size=4, device="cuda")
    run = PlannedRun(arm="a", block=0, place=0, spec=spec)
    store = Store.create(tmp_path / "results")
    answer = tmp_path / "jobs" / "answer.json"
    assert send_check(run, store, answer, ExecutorOptions(n_nodes=2)) == "8"
    looks_for = NodeCheck(
        results=str(tmp_path / "results"),
        data=(str(tmp_path / "data"),),
        modules=("torch", "numpy", "harness.training.train"),
        device="cuda",
        gpus=2,
        answer=str(answer),
    )
    assert asked == [(1, answer.parent, 1), looks_for]


def test_a_stop_takes_the_check_out_of_the_queue(
    tmp_path: Path, states: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled: list[str] = []
    monkeypatch.setattr(check, "cancel_jobs", cancelled.extend)
    check_environment(tmp_path / "check.json", lambda: "7", lambda: True)
    assert cancelled == ["7"]


def test_that_it_is_checked_is_shown_before_the_check_is_waited_for(
    tmp_path: Path,
    states: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer, shown, shown_so_far = tmp_path / "check.json", [], piped(monkeypatch)
    states["7"] = "PENDING"

    def wait(seconds: float) -> None:
        shown.append((seconds, shown_so_far()))
        write_json(answer, {"missing": []})

    monkeypatch.setattr(check, "LOOK_S", 2.0)
    monkeypatch.setattr(check, "time", SimpleNamespace(sleep=wait))
    check_environment(answer, lambda: "7", lambda: False)
    assert shown == [(2.0, "job 7 looks whether the nodes have what a run needs\n")]


@pytest.mark.slow
def test_no_run_is_sent_to_a_container_that_lacks_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job, its script and its answer are real; Slurm and the container are not."""
    install(tmp_path, monkeypatch, COMMANDS)
    (tmp_path / "queue").touch()
    (tmp_path / "container").mkdir()
    (tmp_path / "container" / "torch.py").write_text(NO_TORCH)
    site = tmp_path / "cluster.yaml"
    site.write_text("device: cpu\ncontainer: {image: torch.sqsh}\n")
    matrix = Matrix(tmp_path, n_seeds=1)
    code, _, err = matrix.run("--executor", "slurm", "--cluster", str(site))
    assert code == 2
    assert "torch does not import (ImportError: it is not in this container)" in err
    assert not (tmp_path / "sent").exists()


def test_the_script_is_printed_and_nothing_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, COMMANDS)
    (tmp_path / "queue").touch()
    site = tmp_path / "cluster.yaml"
    site.write_text(
        "device: cpu\nqos: high\nexclusive: true\nsetup: [module load cuda]\n"
        "container: {image: torch.sqsh, mounts: [/a, /b]}\n"
    )
    matrix = Matrix(tmp_path, n_seeds=1)
    code, out, err = matrix.run("--executor", "slurm", "--cluster", str(site), "--print-script")
    assert code == 0, err
    lines = out.splitlines()
    for line in ("#!/bin/bash", "#SBATCH --qos=high", "#SBATCH --exclusive", "module load cuda"):
        assert line in lines
    assert any(line.startswith("#SBATCH --array=0-1%") for line in lines)
    [srun] = [line for line in lines if line.startswith("srun ")]
    assert "--container-image=torch.sqsh --container-mounts=/a,/b" in srun
    assert not matrix.results.exists()
    assert not (tmp_path / "sent").exists()
    code, _, err = matrix.run("--print-script")
    assert code == 2
    assert "--print-script are for --executor slurm" in err


def test_a_node_answers_in_a_file_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    here = replace(of_this_machine(tmp_path), device="cuda", gpus=2)
    here()
    assert read_json(tmp_path / "answer.json") == {"missing": []}
    replace(here, gpus=3)()
    [said] = (read_json(tmp_path / "answer.json") or {})["missing"]
    assert said == f"torch {torch.__version__} shows 2 GPUs, and a run needs 3"
    assert replace(here, gpus=3, device="cpu").missing() == []
    assert replace(here, gpus=3, modules=()).missing() == []


def test_a_check_that_wrote_nothing_says_where_to_look(
    tmp_path: Path, states: dict[str, str]
) -> None:
    (tmp_path / "7_0_log.err").write_text("\n")
    states["7"] = "FAILED"
    said = re.escape(f"the check did not start (it wrote nothing; see {tmp_path})")
    with pytest.raises(UserError, match=said):
        check_environment(tmp_path / "check.json", lambda: "7", lambda: False)
