"""A job on its nodes: one run to its end. submitit calls it once on every node.

The first node claims, trains and writes as a local worker does; further nodes join it with their
GPUs, and tell it if a process of theirs ends. Told to go (preemption, time limit), the run ends as
preempted and the job is put back into the queue.
"""

import os
import signal
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from submitit.helpers import DelayedSubmission

from harness.errors import UserError
from harness.node.slots import Slot, find_cpus, find_gpus
from harness.provenance.redact import redact
from harness.run.document import Content
from harness.run.files import write_json
from harness.run.guarded import IN_FOLDER
from harness.run.read import read_json
from harness.run.spec import RunSpec
from harness.runner.execute import Execution
from harness.runner.executor import tell_stops
from harness.runner.kernels import TurnToCompile, kernel_cache
from harness.runner.limits import POLL_S, RunLimits
from harness.runner.messages import WorkerEvent
from harness.runner.process import Group, Invitation
from harness.runner.trainers import RunMaker, RunTrainer
from harness.store.claims import last_attempt, told_by_ranks
from harness.store.store import Store

TELL_S = 15.0  # so long a further node may tell that it lost a process, which was a failure's cause
MEET_S = 600.0  # nodes of one job start within this time
NODE_LOOK_S = 1.0  # between a further node's looks whether the run ended


def job_name() -> str:
    """This job's name in the queue: A_I for a task of an array."""
    array = os.environ.get("SLURM_ARRAY_JOB_ID")
    if array:
        return f"{array}_{os.environ.get('SLURM_ARRAY_TASK_ID')}"
    return os.environ["SLURM_JOB_ID"]


def gpus_of_job(n: int) -> tuple[str, ...]:
    """This job's GPUs on this node, of which its processes need n.

    Not every site sets CUDA_VISIBLE_DEVICES: then they are what the node shows, if that is the
    job's alone. Raises UserError where they are too few, or nobody says which.
    """
    shown = tuple(find_gpus())
    if len(shown) < n:
        raise UserError(
            f"this job shows {len(shown)} GPUs and its run needs {n} on each node: "
            f"add `gpus-per-node: {n}` to cluster.yaml"
        )
    if len(shown) == n or os.environ.get("CUDA_VISIBLE_DEVICES") is not None:
        return shown
    allotted = os.environ.get("SLURM_STEP_GPUS") or os.environ.get("SLURM_JOB_GPUS") or ""
    ours = tuple(name for name in shown if name in allotted.split(","))
    if len(ours) < n:
        raise UserError(
            f"this node shows {len(shown)} GPUs and nothing says which {n} are this job's: "
            "add `setup: [export CUDA_VISIBLE_DEVICES=...]` to cluster.yaml"
        )
    return ours


@dataclass(frozen=True, kw_only=True)
class Rendezvous:
    """Files by which the nodes of a job find each other."""

    at: Path  # written by the first node's launcher: where it is met, while the run goes on

    @property
    def lost(self) -> Path:
        """There once the processes of a further node have ended before the run."""
        return self.at.with_suffix(".lost")

    def killed(self, wait_s: float = 0.0) -> bool:
        """Whether they did not end by an exception of their own.

        wait_s: for what the further node has to tell.
        """
        until = time.monotonic() + wait_s
        while not self.lost.exists() and time.monotonic() < until:
            time.sleep(POLL_S)
        told = read_json(self.lost) or {}
        return bool(told.get("killed"))


@dataclass(kw_only=True)
class Job:
    """What is pickled into the queue. submitit calls it, and `checkpoint` when it is to go."""

    results: str
    spec: Content
    command: str
    trainer: RunTrainer
    n_nodes: int
    limits: RunLimits
    folder: str  # of this experiment's jobs
    stop: str | None = field(default=None, init=False)
    thread: threading.Thread | None = field(default=None, init=False)
    event: WorkerEvent | None = field(default=None, init=False)
    error: str | None = field(default=None, init=False)

    def __call__(self) -> dict[str, str | float | None]:
        """How the run ended on the first node; submitit keeps it."""
        tell_stops(self._ask_to_stop, (signal.SIGTERM,))
        restart = os.environ.get("SLURM_RESTART_COUNT", "0")
        at = Path(self.folder) / f"meeting-{job_name()}-{restart}.json"
        rendezvous = Rendezvous(at=at)
        node = int(os.environ.get("SLURM_NODEID", "0"))
        if node > 0:
            return self._join(rendezvous, node).to_message()
        # signals reach the main thread
        self.thread = threading.Thread(target=self._run, args=(rendezvous,))
        self.thread.start()
        while self.thread.is_alive():
            self.thread.join(POLL_S)
        if self.error is not None:
            raise RuntimeError(self.error)
        assert self.event is not None
        return self.event.to_message()

    def checkpoint(self) -> DelayedSubmission:
        """End the run as preempted, and be put back into the queue."""
        self.stop = "preempted"
        if self.thread is not None:
            self.thread.join()
        return DelayedSubmission(replace(self))

    def _ask_to_stop(self, status: str) -> None:
        self.stop = status

    def _per_node(self) -> int:
        return int(self.spec["world_size"]) // self.n_nodes

    def _worker(self, spec: RunSpec, group: Group) -> RunMaker:
        """Of this node's processes."""
        size = group.n_per_node
        gpus: tuple[str, ...] = ()
        threads = 1
        if spec.device == "cuda":
            gpus = gpus_of_job(size)
        if spec.device == "cpu":  # not every site binds a job to its own CPUs
            cpus = min(find_cpus(), int(os.environ.get("SLURM_CPUS_PER_TASK", size)))
            threads = max(1, cpus // size)
        slot = Slot(held=gpus, gpus=gpus, threads=threads, size=size)
        return self.trainer.maker(spec, slot, group=group)

    def _run(self, rendezvous: Rendezvous) -> None:
        """The first node."""
        spec, store, worker = RunSpec.from_mapping(self.spec), Store(Path(self.results)), None
        turn = TurnToCompile(None)
        try:
            turn = TurnToCompile(kernel_cache(spec))
            worker = self._worker(spec, self._first_group(rendezvous))
            turn.wait(self._look)
            self.event = worker.make(self._execution(spec, store, rendezvous, turn))
            if self._lost_a_process(self.event, rendezvous):
                self.error = self.event.reason  # the job failed, not the run: it is sent again
        except Exception as error:  # nothing can go on here: told to Slurm, and to the runner
            said = (
                str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
            )
            self.error = redact(said)
            with suppress(UserError):  # a folder that cannot be written
                reason = f"job {job_name()}: {self.error}"
                node = os.environ.get("SLURMD_NODENAME")
                store.note_lost(spec.run_id, status="failed", reason=reason, node=node)
        finally:
            turn.release()
            rendezvous.at.unlink(missing_ok=True)  # first: from now on an end is no loss
            if worker is not None:
                worker.close()
            rendezvous.at.unlink(missing_ok=True)  # its launcher may have written it meanwhile
            rendezvous.lost.unlink(missing_ok=True)

    def _first_group(self, rendezvous: Rendezvous) -> Group:
        """The first node's processes, who say where they are met if there are others."""
        group = Group(n_per_node=self._per_node(), n_nodes=self.n_nodes)
        if self.n_nodes == 1:
            return group
        address = os.environ.get("SLURM_LAUNCH_NODE_IPADDR") or socket.gethostname()
        return replace(group, invites=Invitation(file=rendezvous.at, address=address))

    def _look(self) -> bool:
        """A moment later, whether the run is still to begin."""
        time.sleep(POLL_S)
        return self.stop is None

    def _execution(
        self, spec: RunSpec, store: Store, rendezvous: Rendezvous, turn: TurnToCompile
    ) -> Execution:
        def stop() -> str | None:
            if self.stop is None and rendezvous.killed():
                return "failed"
            return self.stop

        limits = self.limits
        if self.n_nodes > 1:  # the other nodes' processes do not start again
            limits = replace(limits, deaths=0)
        return Execution(
            spec=spec,
            store=store,
            command=self.command,
            cache=turn.mark,
            first_step=turn.release,
            limits=limits,
            stop=stop,
            job=job_name(),
        )

    def _lost_a_process(self, event: WorkerEvent, rendezvous: Rendezvous) -> bool:
        """Whether a run failed because a process of it died, on whichever node."""
        if self.n_nodes == 1 or event.status != "failed":
            return False
        return event.died or rendezvous.killed(TELL_S)

    def _join(self, rendezvous: Rendezvous, node: int) -> WorkerEvent:
        """A further node: its processes join the first one's, and go when that is done."""
        until = time.monotonic() + MEET_S
        met = read_json(rendezvous.at)
        while met is None:
            if self.stop is not None or time.monotonic() > until:
                return WorkerEvent(status="failed", reason="the first node did not come")
            time.sleep(NODE_LOOK_S)
            met = read_json(rendezvous.at)
        spec = RunSpec.from_mapping(self.spec)
        size = self._per_node()
        group = Group(n_per_node=size, n_nodes=self.n_nodes, node=node, joins=met["at"])
        worker = self._worker(spec, group)
        worker.start()
        while rendezvous.at.exists() and worker.alive() and self.stop is None:
            time.sleep(NODE_LOOK_S)
        if rendezvous.at.exists() and self.stop is None:
            run = Path(self.results) / "runs" / spec.run_id
            attempt = run / "attempts" / str(last_attempt(run))
            write_json(rendezvous.lost, {"killed": not told_by_ranks(attempt)}, below=IN_FOLDER)
        worker.kill()
        return WorkerEvent(status="lent")
