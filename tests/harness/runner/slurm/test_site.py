"""What the Slurm executor does before and without a cluster: cluster.yaml, and commands that do not answer."""

import os
import sys
from pathlib import Path

import pytest

from harness.run.files import append_row
from harness.run.read import read_lines
from harness.runner.slurm.cluster import Cluster, minutes, read_cluster
from harness.runner.slurm.nodes import keep_off, n_nodes_of
from tests.fake_matrix import Matrix, ablate
from tests.planted_secrets import HIDDEN, PLANTED, leaks


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("90", 90),
        ("90:30", 91),
        ("2:00:00", 120),
        ("1-12", 2160),
        ("1-12:30", 2190),
        ("1-00:00:01", 1441),
    ],
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
    assert site.container == ("--container-image=ngc.sqsh", "--container-mounts=/data:/data")
    assert (site.device, site.requeues) == ("cuda", 5)


def test_without_slurm_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable))
    code, _, err = Matrix(tmp_path, n_seeds=1).run("--executor", "slurm")
    assert code == 2
    assert "no sbatch here" in err


# A cluster without accounting that does nothing: its queue is what the test writes, a whole line for each time that it is asked.
SAYS = {
    "sbatch": """echo sent >> "$LAB/sent"; echo Submitted batch job 7""",
    "squeue": """case "$*" in *-o*) ;; *) exit 0;; esac
said=$(head -1 "$LAB/queue")
[ "$(wc -l < "$LAB/queue")" -gt 1 ] && sed -i 1d "$LAB/queue"
eval "$said" """,
    "sacct": "echo Slurm accounting storage is disabled >&2; exit 1",
    "scancel": "true",
    "srun": "exit 1",
}


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, commands: dict[str, str]) -> None:
    """Commands of a made cluster, found before any real one; LAB is their folder."""
    for name, lines in commands.items():
        (folder / name).write_text(f"#!/bin/bash\n{lines}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("LAB", str(folder))


class Lab:
    """The runs of seed 0 through that cluster."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **commands: str) -> None:
        install(folder, monkeypatch, {**SAYS, **commands})
        self.folder, self.matrix = folder, Matrix(folder, n_seeds=1, FAKE_POLL_S="0.02")
        self.experiment = self.matrix.results / "experiments" / "fake"
        self.jobs = self.experiment / "slurm" / "jobs.jsonl"

    def queue(self, *said: str) -> None:
        """What squeue does when it is asked: the state of both jobs, or a command; the last one from then on."""
        states = [f"printf '7_0|{s}\\n7_1|{s}\\n'" if s.isupper() else s for s in said]
        (self.folder / "queue").write_text("".join(f"{line}\n" for line in states))

    def run(self, code: int) -> str:
        """What `ablate run` prints, once it has ended with this exit code."""
        found, out, err = self.matrix.run("--executor", "slurm")
        assert found == code, out + err
        return out + err

    def run_cancelled(self) -> None:
        """An earlier call, whose jobs somebody cancelled."""
        self.queue("CANCELLED")
        self.run(1)

    @property
    def n_sent(self) -> int:
        return len((self.folder / "sent").read_text().splitlines())


@pytest.mark.parametrize("accounts", [SAYS["sacct"], "printf '7_0|RUNNING\\n7_1|PENDING\\n'"])
def test_a_job_that_slurm_does_not_know_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accounts: str
) -> None:
    """Its queue has forgotten every job; there are no accounts, or they have lost sight of how the jobs ended."""
    lab = Lab(tmp_path, monkeypatch, sacct=accounts)
    lab.queue("true")
    assert lab.run(1).count("failed: its job was killed") == 4  # as it ends, and in the summary


def test_jobs_that_a_cancel_ended_are_not_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to be over in the same look as `ablate cancel`: however they ended, nobody wants them any more."""
    lab = Lab(tmp_path, monkeypatch)
    lab.queue(
        f"echo now > {lab.experiment}/cancelled.json; printf '7_0|PREEMPTED\\n7_1|PREEMPTED\\n'"
    )
    lab.run(130)
    assert lab.n_sent == 1


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("CANCELLED", "interrupted: its job was cancelled"),
        ("TIMEOUT", "timeout: its job reached its time limit"),
    ],
)
def test_jobs_of_an_earlier_call_are_followed_and_not_sent_again_for_good_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, words: str
) -> None:
    lab = Lab(tmp_path, monkeypatch)
    lab.queue(end)
    assert words in lab.run(1)
    with lab.jobs.open("a") as file:
        file.write('{"run_id": "torn')
    lab.queue("RUNNING", "RUNNING", end)
    out = lab.run(1)
    assert "2 runs are in the queue already" in out
    assert words in out
    assert lab.n_sent == 1


def test_a_queue_that_does_not_answer_is_no_reason_to_send_jobs_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path, monkeypatch)
    lab.run_cancelled()
    lab.queue("exit 1")
    assert "squeue does not answer, and an earlier call sent jobs" in lab.run(2)
    assert lab.n_sent == 1


def test_a_job_that_left_its_run_to_another_runner_was_not_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path, monkeypatch)
    lab.queue("COMPLETED")
    assert (
        lab.run(1).count(
            "preempted: another runner had it, or its job was told to go before it began"
        )
        == 2
    )
    assert lab.n_sent == 3


def test_a_failure_that_a_lost_job_told_may_not_be_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that Slurm ended with its node looks like one that failed: the run is sent again. Without a loss it is not."""
    lab = Lab(tmp_path, monkeypatch)
    lab.run_cancelled()
    for row in read_lines(lab.jobs):
        run = lab.matrix.results / "runs" / row["run_id"]
        begun = {
            "attempt": 1,
            "started": "2026-01-01T00:00:00.000+00:00",
            "host": "n1",
            "pid": 1,
            "token": f"{row['job']}/a",
        }
        ended = {
            "attempt": 1,
            "ended": "2026-01-01T00:01:00.000+00:00",
            "status": "failed",
            "reason": "a rank ended",
        }
        append_row(run / "attempts.jsonl", begun, ended)
    lab.queue("CANCELLED", "NODE_FAIL", "CANCELLED")
    assert "failed: a rank ended" in lab.run(1)
    assert lab.n_sent == 3


def test_of_two_calls_that_follow_a_lost_job_one_sends_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one has, between this one's looks."""
    lab = Lab(tmp_path, monkeypatch)
    other = f"""sed -n 1,2p {lab.jobs} | sed 's/"7_/"8_/' >> {lab.jobs}"""
    lab.queue(
        f"{other}; printf '7_0|NODE_FAIL\\n7_1|NODE_FAIL\\n'",
        "printf '8_0|CANCELLED\\n8_1|CANCELLED\\n'",
    )
    assert lab.run(1).count("interrupted: its job was cancelled") == 2
    assert lab.n_sent == 1


def test_a_cancel_says_what_it_could_not_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs that wait would start later. Those of runs that have their result would not: a copied folder needs no cluster."""
    lab = Lab(tmp_path, monkeypatch)
    lab.run_cancelled()
    for said, words in (
        ("exit 1", "squeue does not answer, so jobs of 'fake' may still be in the queue"),
        ("PENDING", "scancel did not take every job of 'fake' out of the queue"),
    ):
        lab.queue(said)
        ran = ablate(lab.matrix, "cancel", "fake")
        assert (ran.code, words in ran.err) == (2, True), ran.err
    lab.queue("RUNNING", "COMPLETING")
    ran = ablate(lab.matrix, "cancel", "fake")
    assert (ran.code, "2 jobs taken out of the queue" in ran.out) == (0, True), ran.err
    for row in read_lines(lab.jobs):
        (lab.matrix.results / "runs" / row["run_id"]).mkdir(parents=True, exist_ok=True)
        (lab.matrix.results / "runs" / row["run_id"] / "result.json").touch()
    lab.queue("exit 1")
    assert ablate(lab.matrix, "cancel", "fake").code == 0


def test_nodes_that_do_not_work_are_nowhere_to_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = (
        "n1 idle",
        "n1 idle",
        "n2 drained",
        "n3 down*",
        "n4 idle*",
        "n5 allocated",
        "n6 idle~",
    )
    commands = {
        "sinfo": "\n".join(f"echo '{state}'" for state in states),
        "scontrol": 'echo "$@" >> "$LAB/asked"',
    }
    install(tmp_path, monkeypatch, commands)
    assert n_nodes_of(Cluster()) == 3
    keep_off([f"7_{i}" for i in range(3)], "n1,n2")
    assert (tmp_path / "asked").read_text() == "update JobId=7_0,7_1,7_2 ExcNodeList=n1,n2\n"


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
    install(tmp_path, monkeypatch, DOES_THEM)
    (tmp_path / "queue").touch()
    kinds = {"0": "tell fail", "1": "tell say"}
    secrets = {
        "FAKE_SECRETS": "\n".join(PLANTED.values()),
        "HF_TOKEN": PLANTED["hf"],
        "NCCL_NOTE": PLANTED["url"],
    }
    (tmp_path / "cluster.yaml").write_text("device: cpu\n")
    matrix = Matrix(tmp_path, n_seeds=2, FAKE=kinds, FAKE_POLL_S="0.02", **secrets)
    site = ("--executor", "slurm", "--cluster", str(tmp_path / "cluster.yaml"))
    code, *shown = matrix.run(*site, "--set", "question=asked by token=" + HIDDEN[0])
    assert code == 1
    assert {status for seed in range(2) for run in matrix.ends(seed) for status in run} == {
        "failed"
    }
    folder = matrix.results / "experiments" / "fake" / "slurm"
    left = [p for p in folder.rglob("*") if p.is_file()]
    kinds_left = {p.name.rpartition("_")[2] for p in left}
    assert {"log.out", "log.err", "submitted.pkl", "result.pkl"} <= kinds_left
    shown += [
        p.read_bytes().decode(errors="replace") for p in matrix.results.rglob("*") if p.is_file()
    ]
    assert [leaks(text) for text in shown if leaks(text)] == []
