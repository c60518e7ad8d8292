"""The job before the runs, where these get another environment than the login node's.

A container, or a Python of the compute nodes, may lack what every run needs: told once, in one
line, before a run is sent.
"""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from pathlib import Path

from harness.errors import UserError
from harness.run.files import write_json
from harness.run.guarded import IN_FOLDER
from harness.run.read import read_json
from harness.runner.slurm.cluster import Cluster
from harness.runner.slurm.queue import ALIVE, GONE, cancel_jobs, job_states

LOOK_S = 2.0  # between two looks for the answer
LAST_LOOKS = 5  # a shared file system may show an answer late


@dataclass(frozen=True, kw_only=True)
class NodeCheck:
    """What is pickled into the queue. submitit calls it on a node."""

    results: str
    data: tuple[str, ...]  # files and folders
    modules: tuple[str, ...]
    device: str
    gpus: int  # that a run needs on each of its nodes; 0: it trains on the CPU
    answer: str  # the file that it writes

    def __call__(self) -> None:
        write_json(Path(self.answer), {"missing": self.missing()}, below=IN_FOLDER)

    def missing(self) -> list[str]:
        """What a run would fail for, a phrase each."""
        missing = []
        for name in self.modules:
            try:
                import_module(name)
            except Exception as error:  # whatever a library says where it cannot work
                missing.append(f"{name} does not import ({type(error).__name__}: {error})")
        if not os.access(self.results, os.W_OK):
            missing.append(f"the results folder {self.results} cannot be written")
        for path in self.data:
            if not Path(path).exists():
                missing.append(f"the data {path} is not there")
        if not missing and self.device == "cuda" and "torch" in self.modules:
            missing += self._missing_gpus()
        return missing

    def _missing_gpus(self) -> list[str]:
        torch = import_module("torch")
        shown = torch.cuda.device_count()
        if shown >= self.gpus:
            return []
        return [f"torch {torch.__version__} shows {shown} GPUs, and a run needs {self.gpus}"]


def needs_check(cluster: Cluster) -> bool:
    """Whether the runs get another environment than the one that sends them."""
    return bool(cluster.container or cluster.python)


def answer_file(cluster: Cluster, folder: Path) -> Path:
    """Of the check of these settings: another container is another check."""
    settings = [cluster.container, cluster.python, cluster.setup, cluster.srun]
    name = sha256(json.dumps(settings).encode()).hexdigest()[:12]
    return folder / f"check-{name}.json"


def check_environment(answer: Path, send: Callable[[], str], stopped: Callable[[], bool]) -> None:
    """Send the check, unless it was passed before, and wait for what it says.

    send: puts it into the queue; returns its job's name. stopped: whether the caller was told to
    stop, which takes the job out again. Raises UserError where a run would fail.
    """
    if (read_json(answer) or {}).get("missing") == []:
        return
    answer.unlink(missing_ok=True)
    job = send()
    print(f"job {job} looks whether the nodes have what a run needs", flush=True)
    looks = LAST_LOOKS
    while not answer.exists():
        if stopped():
            cancel_jobs([job])
            return
        time.sleep(LOOK_S)
        states = job_states([job])
        looks -= states is not None and (states[job] == GONE or states[job] not in ALIVE)
        if looks <= 0:
            said = _last_line(answer.parent, job)
            raise UserError(f"{_told_by(job)} the check did not start ({said}){MEND}")
    missing = (read_json(answer) or {}).get("missing")
    if missing:
        raise UserError(f"{_told_by(job)} {'; '.join(missing)}{MEND}")


MEND = ": change `container` or `python` in cluster.yaml (docs/your-cluster.md says what they hold)"


def _told_by(job: str) -> str:
    return f"no run was sent, for job {job} found that"


def _last_line(folder: Path, job: str) -> str:
    """Of what a job wrote as its errors."""
    for path in sorted(folder.glob(f"{job}_*_log.err")):
        lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        if lines:
            return lines[-1][:200]
    return f"it wrote nothing; see {folder}"
