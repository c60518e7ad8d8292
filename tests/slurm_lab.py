"""A real Slurm cluster on this machine, and a user's session on its login node."""

import os
import subprocess
from pathlib import Path

from tests.fake_matrix import Matrix, kill, wait_for

HERE = Path(__file__).resolve().parent / "slurm"
SITE = 'device: cpu\ngres: gpu:1\ntime: "0:30:00"\nmem: 300M\nsetup: [export ABLATE_SITE=lab]\n'
LONG_S = 400.0  # for a machine that is busy with other things


def slurm(*command: str) -> str:
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=LONG_S
    ).stdout


def process_of(job: str) -> int:
    """The process that Slurm watches for a job."""
    array, _, task = job.partition("_")
    here = f"\0SLURM_CONF={os.environ['SLURM_CONF']}\0"  # another cluster may have a job of this number
    marks = (
        [f"\0SLURM_ARRAY_JOB_ID={array}\0", f"\0SLURM_ARRAY_TASK_ID={task}\0"]
        if task
        else [f"\0SLURM_JOB_ID={array}\0"]
    )
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            command, environment = (path.parent / "cmdline").read_bytes(), b"\0" + path.read_bytes()
        except OSError:
            continue
        mine = all(mark.encode() in environment for mark in [here, *marks])
        if (
            mine
            and b"submitit.core._submit" in command
            and not command.startswith((b"srun", b"/bin/bash"))
        ):
            return int(path.parent.name)
    raise AssertionError(f"no process of job {job}")


class Login:
    """A user's session on the login node, in a folder of its own. What it started is gone at its end, processes and jobs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[str]] = []

    def start(self, matrix: Matrix, *options: str, site: str = SITE) -> "subprocess.Popen[str]":
        file = self.folder / f"cluster{len(self.started)}.yaml"
        file.write_text(site)
        self.started.append(matrix.spawn("--executor", "slurm", "--cluster", str(file), *options))
        return self.started[-1]

    def close(self) -> None:
        for process in self.started:
            kill(process.pid)
            process.wait()
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
        slurm("scancel", "--me")
        wait_for(
            lambda: slurm("squeue", "-h") == "", LONG_S, every_s=0.2, seen=lambda: slurm("squeue")
        )
