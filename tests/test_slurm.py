"""A real Slurm cluster on this machine (Debian's slurm-wlm, two nodes with pretended GPUs), through the command line."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_matrix import Matrix, kill, wait_for

from harness.errors import UserError
from harness.records import read_lines
from harness.slurm.cluster import minutes, read_cluster
from harness.slurm.job import jobs_of

HERE = Path(__file__).parent / "slurm"
SITE = 'device: cpu\ngres: gpu:1\ntime: "0:30:00"\nmem: 300M\nsetup: [export ABLATE_SITE=lab]\n'


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A running cluster. `.ci/run` installs Slurm and requires it."""
    if shutil.which("slurmctld") is None and "ABLATE_REQUIRE_SLURM" not in os.environ:
        pytest.skip("Slurm is not installed: apt-get install slurm-wlm munge")
    folder = tmp_path_factory.mktemp("cluster")
    subprocess.run([HERE / "up.sh", folder], check=True, timeout=60)
    yield folder
    subprocess.run([HERE / "down.sh", folder], check=True, timeout=60)


@pytest.fixture
def on_cluster(cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLURM_CONF", str(cluster / "slurm.conf"))
    monkeypatch.setenv("FAKE_MARKS", str(tmp_path))
    (tmp_path / "cluster.yaml").write_text(SITE)
    return tmp_path


def options(folder: Path) -> list[str]:
    return ["--executor", "slurm", "--cluster", str(folder / "cluster.yaml")]


def slurm(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def job_at_work(matrix: Matrix, seed: int, index: int = 0) -> str:
    """The job of a run, once it has made a step."""
    folder = matrix.results / "experiments" / "fake" / "slurm"

    def at_work() -> list[Path]:
        runs = matrix.runs() if (matrix.results / "runs").is_dir() else {}
        return [r for r in runs.get(seed, []) if list(r.glob("attempts/*/progress.json"))]

    wait_for(lambda: len(at_work()) > index, 120)
    run = matrix.runs()[seed][index]
    return next(row["job"] for row in jobs_of(folder) if row["run_id"] == run.name)


@pytest.mark.slurm
@pytest.mark.slow
def test_a_matrix_goes_to_its_report_whatever_happens_to_its_jobs(on_cluster: Path) -> None:
    """One seed trains, one fails, one is put back into the queue, one is cancelled, the job of one is killed outright."""
    fake = {"1": "raise", "2": "slow once", "3": "slow"}
    matrix = Matrix(on_cluster, n_seeds=4, FAKE=fake)
    process = matrix.start(*options(on_cluster))
    slurm("scontrol", "requeue", job_at_work(matrix, 2))
    cancelled = job_at_work(matrix, 3, 0)
    killed = job_at_work(matrix, 3, 1)
    status = subprocess.run(
        [sys.executable, "-m", "harness", "status", "fake", "--results", str(matrix.results)],
        capture_output=True, text=True, cwd=matrix.root, env=matrix.environment, check=True,
    )  # fmt: skip
    assert "running" in status.stdout
    slurm("scancel", cancelled)
    run_id = next(r["run_id"] for r in jobs_of(matrix.results / "experiments" / "fake" / "slurm") if r["job"] == killed)
    for n in range(3):  # sent again twice
        kill(process_of(killed))
        if n < 2:
            wait_for(lambda i=run_id, k=killed: last_job(matrix, i) != k)
            killed = last_job(matrix, run_id)
            wait_for(
                lambda k=killed: (
                    process_of(k, must=False) and list((matrix.results / "runs" / run_id).glob("attempts/*/progress.json"))
                )
            )
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1, out + err
    assert out.count("failed: ValueError: the shapes do not match") == 4  # as it ends, and in the summary
    assert "interrupted: its job was cancelled" in out
    assert "failed: its job was killed" in out
    assert "4 of 8 runs have a result" in out
    assert sorted(matrix.ends(0)) == [["finished"], ["finished"]]
    assert sorted(map(len, matrix.ends(2))) == [1, 2]  # the one that was put back into the queue
    assert (matrix.results / "experiments" / "fake" / "slurm").is_dir()
    matrix.environment["FAKE"] = "{}"
    code, out, err = matrix.run(*options(on_cluster))
    assert code == 0, out + err
    assert "4 of 8 runs to do" in out
    alone = Matrix(on_cluster, n_seeds=4, results=on_cluster / "local")
    assert alone.run()[0] == 0
    assert matrix.table() == alone.table()
    report = subprocess.run(
        [sys.executable, "-m", "harness", "report", "fake", "--results", str(matrix.results)],
        capture_output=True, text=True, cwd=matrix.root, env=matrix.environment, check=True,
    )  # fmt: skip
    assert Path(report.stdout.strip()).stat().st_size > 10_000
    account = json.loads((matrix.runs()[0][0] / "environment.json").read_text())
    assert account["variables"]["ABLATE_SITE"] == "lab"
    assert "SLURM_JOB_ID" in account["variables"]


def process_of(job: str, *, must: bool = True) -> int:
    """The process that Slurm watches for a job; 0 if there is none."""
    array, _, task = job.partition("_")
    mark = f"\0SLURM_ARRAY_TASK_ID={task}\0" if task else f"\0SLURM_JOB_ID={array}\0"
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            command, environment = (path.parent / "cmdline").read_bytes(), b"\0" + path.read_bytes()
        except OSError:
            continue
        mine = mark.encode() in environment and (not task or f"\0SLURM_ARRAY_JOB_ID={array}\0".encode() in environment)
        if mine and b"submitit.core._submit" in command and not command.startswith((b"srun", b"/bin/bash")):
            return int(path.parent.name)
    assert not must, f"no process of job {job}"
    return 0


def last_job(matrix: Matrix, run_id: str) -> str:
    return [r["job"] for r in jobs_of(matrix.results / "experiments" / "fake" / "slurm") if r["run_id"] == run_id][-1]


@pytest.mark.slurm
@pytest.mark.slow
def test_a_run_told_to_stop_before_its_time_limit_is_put_back_into_the_queue(on_cluster: Path) -> None:
    matrix = Matrix(on_cluster, n_seeds=1, FAKE={"0": "slow once"})
    process = matrix.start(*options(on_cluster))
    job = job_at_work(matrix, 0)
    slurm("scancel", "--signal=USR2", job)  # what Slurm sends before the time limit
    out, err = process.communicate(timeout=180)
    assert process.returncode == 0, out + err
    assert sorted(matrix.ends(0)) == [["finished"], ["preempted", "finished"]]


@pytest.mark.slurm
@pytest.mark.slow
def test_jobs_outlive_the_login_session_are_followed_by_the_next_and_end_by_cancel(on_cluster: Path) -> None:
    matrix = Matrix(on_cluster, n_seeds=2, FAKE={"0": "slow", "1": "slow"})
    first = matrix.start(*options(on_cluster))
    job_at_work(matrix, 1)
    first.send_signal(signal.SIGINT)
    out, _ = first.communicate(timeout=60)
    assert first.returncode == 130
    assert "4 runs stay in the queue" in out
    second = matrix.start(*options(on_cluster))
    assert second.stdout is not None
    wait_for(lambda: "in the queue already" in second.stdout.readline() if second.stdout else False)
    assert len(jobs_of(matrix.results / "experiments" / "fake" / "slurm")) == 4  # nothing was sent twice
    done = subprocess.run(
        [sys.executable, "-m", "harness", "cancel", "fake", "--results", str(matrix.results)],
        capture_output=True, text=True, cwd=matrix.root, env=matrix.environment, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 jobs taken out of the queue" in done.stdout
    second.communicate(timeout=60)
    assert second.returncode == 130
    assert slurm("squeue", "-h", "-t", "PENDING,RUNNING").strip() == ""


@pytest.mark.slurm
@pytest.mark.slow
def test_a_run_on_two_nodes_trains_as_on_one(on_cluster: Path) -> None:
    ranks = ("--set", "data.ranks=2", "--set", "data.micro_tokens=256", "--seeds", "1", "--no-report")
    losses = []
    for where in ([*options(on_cluster), "--nodes-per-run", "2"], ["--gpus-per-run", "2"]):
        matrix = Matrix(on_cluster, n_seeds=1, results=on_cluster / f"results{len(losses)}")
        command = [sys.executable, "-m", "harness", "run", str(matrix.file), "--results", str(matrix.results), *ranks, *where]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=matrix.root, env=matrix.environment, timeout=280, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        rows = [read_lines(run / "metrics.jsonl") for run in sorted((matrix.results / "runs").iterdir())]
        losses.append([[r["val_loss"] for r in run if r["kind"] == "val"] for run in rows])
    assert losses[0] == losses[1]
    assert len(losses[0]) == 2


@pytest.mark.slurm
@pytest.mark.slow
def test_what_sbatch_refuses_is_one_line(on_cluster: Path) -> None:
    (on_cluster / "cluster.yaml").write_text(SITE + "partition: nowhere\n")
    code, _, err = Matrix(on_cluster, n_seeds=1).run(*options(on_cluster))
    assert (code, err.count("\n")) == (2, 1)
    assert "nowhere" in err or "partition" in err
    assert "cluster.yaml" in err


# ---------------------------------------------------------------- without a cluster


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
    (tmp_path / "cluster.yaml").write_text(SITE)
    code, _, err = Matrix(tmp_path, n_seeds=1).run(*options(tmp_path))
    assert code == 2
    assert "no sbatch here" in err
