"""A job on its nodes: one run to its end. submitit calls it once on every node.

The first node claims, trains and writes as a local worker does; further nodes lend it their GPUs, and tell it if a process of
theirs ends. Told to go (preemption, time limit), the run ends as preempted and the job is put back into the queue.
"""

import os
import signal
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.node.slots import Slot, find_cpus
from harness.provenance.redact import redact
from harness.run.files import write_json
from harness.run.read import read_json, read_lines
from harness.run.spec import RunSpec
from harness.runner.executor import Limits
from harness.runner.order import POLL_S, execute
from harness.runner.process import Event, Group, WorkerProcess
from harness.store.claims import last_attempt
from harness.store.store import Store

TELL_S = 15.0  # after a failure on the first node a further one may still tell that it lost a process, which was its cause
MEET_S, LOOK_S = 600.0, 1.0  # nodes of one job start within this time; how often a further node looks whether the run ended


def job_name() -> str:
    """This job's name in the queue: A_I for a task of an array."""
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array else os.environ["SLURM_JOB_ID"]


@dataclass(frozen=True, kw_only=True)
class Meeting:
    """Files by which the nodes of a job find each other."""

    at: Path  # where the first node's rendezvous is, while the run goes on

    @property
    def lost(self) -> Path:
        """There once the processes of a further node have ended before the run."""
        return self.at.with_suffix(".lost")

    def killed(self, wait_s: float = 0.0) -> bool:
        """Whether they did not end by an exception of their own; wait_s: for what the further node has to tell."""
        until = time.monotonic() + wait_s
        while not self.lost.exists() and time.monotonic() < until:
            time.sleep(POLL_S)
        return bool((read_json(self.lost) or {}).get("killed"))


@dataclass(kw_only=True)
class Job:
    """What is pickled into the queue. submitit calls it, and `checkpoint` when the job is to go."""

    results: str
    spec: dict[str, Any]
    command: str
    trainer: str
    n_nodes: int
    cache: str | None
    limits: dict[str, Any]
    folder: str  # of this experiment's jobs
    stop: str | None = field(default=None, init=False)
    thread: threading.Thread | None = field(default=None, init=False)
    event: Event | None = field(default=None, init=False)
    error: str | None = field(default=None, init=False)

    def __call__(self) -> Event:
        signal.signal(signal.SIGTERM, self._on_term)
        restart = os.environ.get("SLURM_RESTART_COUNT", "0")
        meeting = Meeting(at=Path(self.folder) / f"meeting-{job_name()}-{restart}.json")
        if int(os.environ.get("SLURM_NODEID", "0")) > 0:
            return self._lend(meeting)
        self.thread = threading.Thread(target=self._run, args=(meeting,))  # signals reach the main thread
        self.thread.start()
        while self.thread.is_alive():
            self.thread.join(0.2)
        if self.error is not None:
            raise RuntimeError(self.error)
        assert self.event is not None
        return self.event

    def checkpoint(self) -> Any:
        """End the run as preempted, and be put back into the queue."""
        from submitit.helpers import DelayedSubmission

        self.stop = "preempted"
        if self.thread is not None:
            self.thread.join()
        return DelayedSubmission(Job(**{k: getattr(self, k) for k in FIELDS}))

    def _on_term(self, number: int, frame: Any) -> None:
        self.stop = "preempted"

    def _worker(self, spec: RunSpec, node: int, meeting: str | None) -> WorkerProcess:
        size = spec.world_size // self.n_nodes
        gpus = tuple(g for g in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if g) if spec.device == "cuda" else ()
        cpus = min(find_cpus(), int(os.environ.get("SLURM_CPUS_PER_TASK", size)))  # not every site binds a job to its own
        slot = Slot(held=gpus, gpus=gpus, threads=max(1, cpus // size) if spec.device == "cpu" else 1, size=size)
        group = Group(n_per_node=size, n_nodes=self.n_nodes, node=node, meeting=meeting)
        return WorkerProcess(slot, self.trainer, device=spec.device, group=group, runs_in=spec.runs_in)

    def _run(self, meeting: "Meeting") -> None:
        """The first node."""
        spec, store, worker = RunSpec.from_mapping(self.spec), Store(Path(self.results)), None
        try:
            place = None
            if self.n_nodes > 1:
                place = f"{os.environ.get('SLURM_LAUNCH_NODE_IPADDR') or socket.gethostname()}:{free_port()}"
                write_json(meeting.at, {"at": place})
            worker = self._worker(spec, 0, place)
            self.event = execute(
                worker,
                spec,
                store,
                command=self.command,
                cache=None if self.cache is None else Path(self.cache),
                limits=Limits(**self.limits, deaths=0 if self.n_nodes > 1 else 2),
                stop=lambda: self.stop or ("failed" if meeting.killed() else None),
                name=job_name(),
            )
            if self.n_nodes > 1 and self.event["status"] == "failed" and (self.event.get("died") or meeting.killed(TELL_S)):
                self.error = self.event["reason"]  # the job failed, not the run: the runner sends it again
        except Exception as error:  # nothing can go on here: told to Slurm, and in the run's attempts to the runner
            self.error = redact(str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}")
            with suppress(UserError):  # a folder that cannot be written
                store.note_lost(spec.run_id, status="failed", reason=f"job {job_name()}: {self.error}")
        finally:
            meeting.at.unlink(missing_ok=True)  # first: from now on a process that ends is no loss
            if worker is not None:
                worker.close()
            meeting.lost.unlink(missing_ok=True)

    def _lend(self, meeting: "Meeting") -> Event:
        """A further node: its processes join the first one's, and go when that is done."""
        until = time.monotonic() + MEET_S
        while (met := read_json(meeting.at)) is None:
            if self.stop is not None or time.monotonic() > until:
                return {"status": "failed", "reason": "the first node did not come"}
            time.sleep(LOOK_S)
        worker = self._worker(RunSpec.from_mapping(self.spec), int(os.environ["SLURM_NODEID"]), met["at"])
        worker.start()
        while meeting.at.exists() and worker.alive() and self.stop is None:
            time.sleep(LOOK_S)
        if meeting.at.exists() and self.stop is None:
            run = Path(self.results) / "runs" / RunSpec.from_mapping(self.spec).run_id
            told = list((run / "attempts" / str(last_attempt(run))).glob("rank*.json"))
            write_json(meeting.lost, {"killed": not told})
        worker.kill()
        return {"status": "lent", "reason": None}


FIELDS = ("results", "spec", "command", "trainer", "n_nodes", "cache", "limits", "folder")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def jobs_of(folder: Path) -> list[dict[str, Any]]:
    """Rows of run_id and job that were sent for an experiment, oldest first."""
    return read_lines(folder / "jobs.jsonl")
