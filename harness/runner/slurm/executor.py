"""The runner on the login node: sends what is missing as job arrays, and follows it by the results folder and the queue.

The results folder says how a run went, the queue only whether its job is still there: a job that was killed, cancelled or lost
with its node cannot keep anybody waiting. Jobs outlive this runner; the next call finds them in the queue and follows them.
"""

import io
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from pathlib import Path

from harness.corpora.corpus import data_root
from harness.errors import UserError
from harness.run.files import append_row
from harness.run.read import read_lines
from harness.run.spec import RESULT_STATUSES, PlannedRun, is_exclusive
from harness.runner.executor import TRAINER, Limits, Summary, kernel_cache, stop_signals
from harness.runner.process import Event
from harness.runner.slurm.cluster import Cluster, minutes
from harness.runner.slurm.job import Job, jobs_of
from harness.runner.slurm.queue import ALIVE, cancel_jobs, check_slurm, job_states
from harness.store.store import FAILED, Store

POLL_S = 2.0
GONE_LOOKS = 3  # a job that the queue does not know is gone after so many looks: it may not know it yet
LOST_AGAIN = 2  # times that a run is sent again whose job was killed, or lost with its node
ENDS = {  # state of a job that is over -> how its run ended, if that could not say so itself; how often it is sent again
    "CANCELLED": ("interrupted", "its job was cancelled", 0),
    "TIMEOUT": ("timeout", "its job reached its time limit", 0),
    "DEADLINE": ("timeout", "its job reached its deadline", 0),
    "OUT_OF_MEMORY": ("oom", "its job was killed: out of memory", 0),
    "PREEMPTED": ("preempted", "its job was preempted", math.inf),
    "NODE_FAIL": ("preempted", "its node failed", LOST_AGAIN),
    "BOOT_FAIL": ("preempted", "its node did not start", LOST_AGAIN),
}
LOSSES = ("FAILED", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL")  # after which a failure that the run told may not be its own
KILLED = ("failed", "its job was killed", LOST_AGAIN)


class SlurmRunner:
    """One call of `ablate run --executor slurm`, with the interface of the local Runner."""

    def __init__(
        self,
        runs: Sequence[PlannedRun],
        store: Store,
        cluster: Cluster,
        *,
        name: str,
        command: str,
        n_nodes: int = 1,
        max_parallel: int | None = None,
        trainer: str = TRAINER,
        limits: Limits | None = None,
        cancelled: Callable[[], bool] = lambda: False,
        on_event: Callable[[Event], None] = lambda event: None,
    ) -> None:
        check_slurm()
        for run in runs:
            if run.spec.world_size % n_nodes:
                raise UserError(f"--nodes-per-run {n_nodes} does not divide {run.spec.world_size} processes: choose a divisor")
        self.store, self.cluster, self.name, self.command, self.n_nodes = store, cluster, name, command, n_nodes
        self.max_parallel, self.trainer, self.limits = max_parallel, trainer, limits or Limits()
        self.cancelled, self.on_event = cancelled, on_event
        self.left = {p.spec.run_id: p for p in runs}
        self.jobs: dict[str, str] = {}  # run_id -> job
        self.unknown: Counter[str] = Counter()  # job -> looks at which the queue did not know it
        self.sent: Counter[str] = Counter()  # run_id -> times it was sent by this call
        self.folder = store.root.resolve() / "experiments" / name / "slurm"
        self.summary = Summary()
        self.stop: str | None = None

    def run(self) -> Summary:
        """Follow every run to its end. A signal ends the following, not the jobs; `ablate cancel` ends both."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with stop_signals(self._on_signal):
            self._adopt()
            if self.stop is None:
                self._send([p for i, p in self.left.items() if i not in self.jobs])
            while self.left and self.stop is None:
                if self.cancelled():
                    cancel_jobs(self.jobs[i] for i in self.left if i in self.jobs)
                    self.stop = "interrupted"
                time.sleep(POLL_S)
                self._look()
        if self.cancelled():
            self.stop = "interrupted"
        elif queued := sum(i in self.jobs for i in self.left):
            print(f"{queued} runs stay in the queue: the same command follows them, `ablate cancel {self.name}` ends them")
        self.summary.stopped = self.stop if self.left or self.cancelled() else None
        return self.summary

    def _on_signal(self, status: str) -> None:
        self.stop = self.stop or status

    def _adopt(self) -> None:
        """Jobs that an earlier call sent and that are still there."""
        last = {i: job for i, job in self._last_jobs().items() if i in self.left}
        states = job_states(last.values()) if last else {}
        if states is None and self.stop is None:
            raise UserError("squeue does not answer, and an earlier call sent jobs: try again when the controller is up")
        self.jobs = {i: job for i, job in last.items() if states is None or states[job] in ALIVE}
        self.sent.update(self.jobs.keys())
        if self.jobs:
            print(f"{len(self.jobs)} runs are in the queue already", flush=True)

    def _last_jobs(self) -> dict[str, str]:
        """The job that was sent last for each run, by whichever call."""
        return {row["run_id"]: row["job"] for row in jobs_of(self.folder)}

    def _send(self, runs: Sequence[PlannedRun]) -> None:
        """Each size of run is a job array, in the order of the plan."""
        for size, exclusive in dict.fromkeys((p.spec.world_size, is_exclusive(p.spec)) for p in runs):
            own = [p for p in runs if (p.spec.world_size, is_exclusive(p.spec)) == (size, exclusive)]
            jobs = {p.spec.run_id: job for p, job in zip(own, self._array(own, size, exclusive), strict=True)}
            append_row(self.folder / "jobs.jsonl", *({"run_id": i, "job": job} for i, job in jobs.items()))
            self.jobs.update(jobs)
            self.sent.update(jobs.keys())

    def _array(self, runs: Sequence[PlannedRun], size: int, exclusive: bool) -> list[str]:
        """Names of the jobs, one for each run. Raises UserError where sbatch refuses."""
        import submitit
        from submitit.core.utils import FailedJobError

        os.environ["ABLATE_DATA"] = str(data_root().resolve())  # jobs inherit it; they may start elsewhere
        executor = submitit.SlurmExecutor(folder=self.folder, max_num_timeout=self.cluster.requeues, python=self.cluster.python)
        per_node = size // self.n_nodes
        options = dict(self.cluster.sbatch)
        if self.cluster.device == "cuda" and not self.cluster.asks_for_gpus():
            options["gpus_per_node"] = per_node
        if self.cluster.device == "cpu":
            options.setdefault("cpus_per_task", per_node)
        if exclusive:
            options["exclusive"] = True
        executor.update_parameters(
            job_name=f"ablate-{self.name}",
            time=minutes(str(options.get("time", ""))),
            nodes=self.n_nodes,
            ntasks_per_node=1,
            array_parallelism=self.max_parallel or len(runs),
            signal_delay_s=self.cluster.signal_delay_s,
            setup=list(self.cluster.setup),
            srun_args=list(self.cluster.srun),
            wckey=None,
            additional_parameters={**({} if "time" in options else {"time": "UNLIMITED"}), **options},
        )
        try:
            with redirect_stderr(io.StringIO()), executor.batch():  # submitit repeats what sbatch says
                sent = [executor.submit(self._job(p)) for p in runs]
            return [job.job_id for job in sent]
        except FailedJobError as error:
            said = next((line for line in reversed(str(error).splitlines()) if line.startswith("sbatch: ")), str(error))
            raise UserError(f"{said.removeprefix('sbatch: error: ')}: change it in cluster.yaml") from None

    def _job(self, planned: PlannedRun) -> Job:
        cache = kernel_cache(planned.spec, self.store)
        return Job(
            results=str(self.store.root.resolve()),
            spec=planned.spec.to_mapping(),
            command=self.command,
            trainer=self.trainer,
            n_nodes=self.n_nodes,
            cache=None if cache is None else str(cache.resolve()),
            limits={"wall_s": self.limits.wall_s, "silence_s": self.limits.silence_s, "oom_retries": self.limits.oom_retries},
            folder=str(self.folder),
        )

    def _look(self) -> None:
        """Note what has ended, send again what was lost. What has a result has it, whether Slurm answers or not."""
        states = job_states(self.jobs[i] for i in self.left)
        again: dict[str, PlannedRun] = {}
        for run_id, planned in list(self.left.items()):
            state, name = self.store.state(run_id), self.jobs[run_id]
            if state["status"] in RESULT_STATUSES:
                self._settle(planned, state)
                continue
            if states is None:
                continue
            job = states[name]
            self.unknown[name] += job == "GONE"
            if job in ALIVE or (job == "GONE" and self.unknown[name] < GONE_LOOKS):
                continue
            if job == "COMPLETED" and state["status"] == "running":
                continue  # another runner has it
            status, reason, times = self._end(run_id, job)
            if self.stop is None and not self.cancelled() and self.sent[run_id] <= times:  # cancelled jobs are over as well
                again[run_id] = planned
            else:
                self._settle(planned, {"status": status, "reason": reason})
        last = self._last_jobs() if again else {}
        for run_id in [i for i in again if last.get(i, self.jobs[i]) != self.jobs[i]]:
            self.jobs[run_id] = last[run_id]  # another call that follows these runs was quicker
            del again[run_id]
        self._send(list(again.values()))

    def _end(self, run_id: str, job: str) -> tuple[str, str, float]:
        """How a run ended whose job is over, noted where the run could not: status, reason, how often it is sent again."""
        status, reason, times = ENDS.get(job, KILLED)
        told = read_lines(self.store.directory(run_id) / "attempts.jsonl")
        rows = [r for r in told if r.get("attempt") is not None]
        own = {r["attempt"]: r["token"] for r in rows if str(r.get("token", "")).startswith(f"{self.jobs[run_id]}/")}
        ends = [r for r in rows if r["attempt"] in own and "ended" in r]
        end = next((r for r in ends if r["attempt"] == max(own)), None)
        if end is not None and end["status"] in FAILED:  # a job that failed itself lost a process on one of its nodes
            return end["status"], end["reason"], LOST_AGAIN if job in LOSSES else 0
        if end is not None and end["status"] == "preempted" and job in ("COMPLETED", "FAILED"):
            n = sum(r["status"] == "preempted" for r in ends)
            if job == "COMPLETED" or n <= self.cluster.requeues:
                return "preempted", "it was told to go", math.inf
            status, reason, times = "timeout", f"its job was told {n} times that its time was up", 0
        for row in told:  # of a job that could do nothing: another one could not either
            if str(row.get("reason")).startswith(f"job {self.jobs[run_id]}: "):
                return row["status"], row["reason"], 0
        if job == "COMPLETED" and not own:
            return "preempted", "another runner had it, or its job was told to go before it began", LOST_AGAIN
        if own and end is None:
            self.store.note_end(run_id, token=own[max(own)], status=status, reason=reason)
        elif end is None or end["status"] != status:
            self.store.note_lost(run_id, status=status, reason=reason)
        return status, reason, times

    def _settle(self, planned: PlannedRun, ended: Event) -> None:
        run_id, status, reason = planned.spec.run_id, ended["status"], ended.get("reason")
        del self.left[run_id]
        self.summary.statuses[run_id] = status
        if reason:
            self.summary.reasons[run_id] = reason
        self.on_event({"event": "ended", "run": planned, "status": status, "reason": reason, "val_loss": ended.get("val_loss")})

    def at_once(self) -> int:
        """How many jobs may run at a time, for all we ask."""
        return min(len(self.left), self.max_parallel or len(self.left))

    def progress(self) -> list[tuple[PlannedRun, Event]]:
        """The runs in progress with where they are: step, steps, val_loss."""
        shown = [(p, self.store.progress(i)) for i, p in list(self.left.items())]
        return [(p, at) for p, at in shown if at is not None]


def cancel_experiment(results: Path, name: str) -> int:
    """End the jobs of an experiment that are still in the queue; how many there were. Raises UserError if nobody can say."""
    rows = jobs_of(results / "experiments" / name / "slurm")
    jobs = {r["job"] for r in rows if not (results / "runs" / r["run_id"] / "result.json").exists()}
    states = job_states(jobs) if jobs else {}
    if states is None:
        raise UserError(
            f"squeue does not answer, so jobs of '{name}' may still be in the queue: run this again on the cluster's login node"
        )
    alive = [job for job, state in states.items() if state in ALIVE]
    cancel_jobs(alive)
    left = job_states(alive) if alive else {}
    if left is None or "PENDING" in left.values():
        raise UserError(f"scancel did not take every job of '{name}' out of the queue: run this again")
    return len(alive)
