"""What the Slurm executor does before and without a cluster: cluster.yaml, and commands that do not answer."""

import json
import os
import sys
from pathlib import Path

import pytest
from fake_matrix import Matrix
from test_provenance import HIDDEN, PLANTED, leaks
from test_runner_commands import ablate

from harness.errors import UserError
from harness.slurm.cluster import minutes, read_cluster


@pytest.mark.parametrize(
    ("text", "n"), [("90", 90), ("90:30", 91), ("2:00:00", 120), ("1-12", 2160), ("1-12:30", 2190), ("1-00:00:01", 1441)]
)
def test_time_limits_are_read_as_slurm_writes_them(text: str, n: int) -> None:
    assert minutes(text) == n


def test_a_sites_options_are_passed_on_as_written(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "account: lab\nqos: high\ntime: 2:00:00\nmem-per-cpu: 012\nexclusive:\nmail-type: END,FAIL\n"
        "setup: [module load cuda, source env.sh]\ncontainer: {image: ngc.sqsh, mounts: '/data:/data'}\nrequeues: 5\n"
    )
    site = read_cluster(file)
    assert site.sbatch == {
        "account": "lab", "qos": "high", "time": "2:00:00", "mem_per_cpu": "012", "exclusive": True, "mail_type": "END,FAIL",
    }  # fmt: skip
    assert site.setup == ("module load cuda", "source env.sh")
    assert site.srun == ("--container-image=ngc.sqsh", "--container-mounts=/data:/data")
    assert (site.device, site.requeues) == ("cuda", 5)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("device: gpu", "device is 'gpu', but must be cuda or cpu"),
        ("array: 0-3", "'array' is what `ablate run` sets itself"),
        ("setpu: [a]", "did you mean 'setup'?"),
        ("requeues: many", "must be a whole number"),
    ],
)
def test_a_mistake_in_cluster_yaml_is_one_line_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "cluster.yaml").write_text(f"account: lab\n{text}\n")
    with pytest.raises(UserError, match=r"cluster\.yaml:2: ") as error:
        read_cluster(tmp_path / "cluster.yaml")
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_without_slurm_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable))
    code, _, err = Matrix(tmp_path, n_seeds=1).run("--executor", "slurm")
    assert code == 2
    assert "no sbatch here" in err


def test_a_job_that_slurm_does_not_know_keeps_nobody_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that answer like those of a cluster without accounting whose queue has forgotten every job."""
    commands = {
        "sbatch": "echo Submitted batch job 7",
        "squeue": "true",
        "sacct": "echo Slurm accounting storage is disabled >&2; exit 1",
        "srun": "exit 1",
    }
    for name, line in commands.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    code, out, _ = Matrix(tmp_path, n_seeds=1, FAKE_POLL_S="0.02").run("--executor", "slurm")
    assert code == 1
    assert out.count("failed: its job was killed") == 4  # as it ends, and in the summary


def test_jobs_that_a_cancel_ended_are_not_sent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen to be over in the same look as `ablate cancel`: however they ended, nobody wants them any more."""
    slurm = tmp_path / "results" / "experiments" / "fake"
    commands = {
        "sbatch": f"echo sent >> {tmp_path}/sent; echo Submitted batch job 7",
        "squeue": f"if [ -e {slurm}/slurm/jobs.jsonl ]; then echo now > {slurm}/cancelled.json; fi\n"
        "for i in 0 1; do echo '7_'$i'|PREEMPTED'; done",
    }
    for name, line in commands.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    code, out, err = Matrix(tmp_path, n_seeds=1).run("--executor", "slurm")
    assert code == 130, out + err
    assert (tmp_path / "sent").read_text() == "sent\n"


def test_a_cancel_says_when_the_queue_cannot_be_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that wait would start later. Those of runs that have their result would not: a copied folder needs no cluster."""
    matrix = Matrix(tmp_path, n_seeds=2, FAKE={"0": "train", "1": "raise"})
    matrix.run()
    done, failed = (matrix.runs()[seed][0].name for seed in (0, 1))
    jobs = matrix.results / "experiments" / "fake" / "slurm" / "jobs.jsonl"
    jobs.parent.mkdir()
    jobs.write_text(json.dumps({"run_id": done, "job": "7_0"}) + "\n")
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable))
    assert ablate(matrix, "cancel", "fake").code == 0
    jobs.write_text(json.dumps({"run_id": failed, "job": "7_1"}) + "\n")
    ran = ablate(matrix, "cancel", "fake")
    assert ran.code == 2
    assert "squeue does not answer, so jobs of 'fake' may still be in the queue" in ran.err


DOES_THEM = {  # a cluster that does the tasks of an array one after the other
    "sbatch": r"""n=$(sed -n 's/.*--array=0-\([0-9]*\).*/\1/p' "$1")
for i in $(seq 0 "$n"); do echo "7_$i|PENDING"; done > "$LAB/queue"
export SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_NTASKS=1 SLURM_NNODES=1 SLURM_JOB_NUM_NODES=1 SLURM_JOB_NODELIST=n1
for i in $(seq 0 "$n"); do
  SLURM_JOB_ID=7$i SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=$i bash "$1"
  echo "7_$i|COMPLETED" >> "$LAB/queue"
done < /dev/null > /dev/null 2>&1 &
echo Submitted batch job 7""",
    "squeue": 'cat "$LAB/queue"',
    "scontrol": "echo n1",
    "srun": r"""name() { echo "$1" | sed "s/%A_%a_%t/7_${SLURM_ARRAY_TASK_ID}_0/"; }
out=$(name "$3") err=$(name "$5")
shift 5
exec "$@" > "$out" 2> "$err"
""",
}


@pytest.mark.slow
def test_no_planted_secret_is_in_a_jobs_script_its_order_its_output_or_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, lines in DOES_THEM.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{lines}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "queue").touch()
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("LAB", str(tmp_path))
    kinds = {"0": "tell fail", "1": "tell say"}
    secrets = {"FAKE_SECRETS": "\n".join(PLANTED.values()), "HF_TOKEN": PLANTED["hf"], "NCCL_NOTE": PLANTED["url"]}
    (tmp_path / "cluster.yaml").write_text("device: cpu\n")
    matrix = Matrix(tmp_path, n_seeds=2, FAKE=kinds, FAKE_POLL_S="0.02", **secrets)
    site = ("--executor", "slurm", "--cluster", str(tmp_path / "cluster.yaml"))
    code, *shown = matrix.run(*site, "--set", "question=asked by token=" + HIDDEN[0])
    assert code == 1
    assert {status for seed in range(2) for run in matrix.ends(seed) for status in run} == {"failed"}
    folder = matrix.results / "experiments" / "fake" / "slurm"
    left = [p for p in folder.rglob("*") if p.is_file()]
    kinds_left = {p.name.rpartition("_")[2] for p in left}
    assert {"log.out", "log.err", "submitted.pkl", "result.pkl"} <= kinds_left
    shown += [p.read_bytes().decode(errors="replace") for p in matrix.results.rglob("*") if p.is_file()]
    assert [leaks(text) for text in shown if leaks(text)] == []
