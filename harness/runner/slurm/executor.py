"""The runner on the login node: sends what is missing as job arrays, and follows it.

The results folder says how a run went, the queue only whether its job is still there: a job that
was killed, cancelled or lost with its node cannot keep anybody waiting. Jobs outlive this runner;
the next call finds them in the queue and follows them.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.errors import UserError
from harness.run.attempts import read_attempts
from harness.run.spec import RESULT_STATUSES, PlannedRun
from harness.runner.executor import (
    ExecutorOptions,
    RunEnded,
    RunProgress,
    Summary,
    progress_of_all,
    stop_signals,
)
from harness.runner.health import Finding, Health, tell_retired
from harness.runner.slurm.check import answer_file, check_environment, needs_check
from harness.runner.slurm.cluster import Cluster
from harness.runner.slurm.ends import (
    ENDS,
    KILLED,
    LOSSES,
    LOST_AGAIN,
    NOT_BEGUN,
    TOLD_TO_GO,
    JobEnd,
    attempts_of_job,
)
from harness.runner.slurm.nodes import excluded_nodes, keep_off, last_try, n_nodes_of, without
from harness.runner.slurm.queue import ALIVE, GONE, cancel_jobs, job_states
from harness.runner.slurm.sent import jobs_folder, last_jobs, note_sent
from harness.runner.trunks import ready_and_lost
from harness.store.store import FAILED, Store

QUEUE_LOOK_S = 2.0  # between two looks at the queue
GONE_LOOKS = 3  # a job is gone after so many looks: the queue may not know it yet


@dataclass(frozen=True, kw_only=True)
class Senders:
    """What puts jobs into the queue, and returns their names."""

    runs: Callable[[Sequence[PlannedRun], Store, Path, ExecutorOptions], list[str]]
    check: Callable[[PlannedRun, Store, Path, ExecutorOptions], str]


def arrays_of(runs: Iterable[PlannedRun], options: ExecutorOptions) -> list[list[PlannedRun]]:
    """Runs that one array can hold: each size is one, the exclusive apart; in the order given."""
    arrays: dict[tuple[int, bool], list[PlannedRun]] = {}
    for planned in runs:
        kind = planned.spec.world_size, options.is_alone(planned)
        arrays.setdefault(kind, []).append(planned)
    return list(arrays.values())


class SlurmRunner:
    """One call of `ablate run --executor slurm`."""

    def __init__(
        self, runs: Sequence[PlannedRun], store: Store, queue: Senders, options: ExecutorOptions
    ) -> None:
        n_nodes = options.n_nodes
        for planned in runs:
            size = planned.spec.world_size
            if size % n_nodes:
                raise UserError(
                    f"--nodes-per-run {n_nodes} does not divide {size} processes: choose a divisor"
                )
        self.store = store
        self.queue = queue
        self.options = options
        self.cluster = options.cluster or Cluster()
        self.left = {planned.spec.run_id: planned for planned in runs}
        self.jobs: dict[str, str] = {}  # run_id -> job
        self.unknown: Counter[str] = Counter()  # job -> looks at which the queue did not know it
        self.sent: Counter[str] = Counter()  # run_id -> times it was sent by this call
        self.folder = jobs_folder(store.root.resolve(), options.experiment)
        self.summary = Summary()
        self.stop: str | None = None
        self.planned = dict(self.left)
        self.health = Health()
        self.kept_off: set[str] = set()  # nodes that get no more of our jobs
        self.n_nodes = 0  # of the cluster, once somebody asked

    def run(self) -> Summary:
        """Follow every run to its end.

        A signal ends the following, not the jobs; `ablate cancel` ends both.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with stop_signals(self._stop_as):
            self._adopt()
            self._check_environment()
            if self.stop is None:
                self._send_ready()
            while self.left and self.stop is None:
                if self.options.cancelled():
                    cancel_jobs(self._jobs_left())
                    self.stop = "interrupted"
                time.sleep(QUEUE_LOOK_S)
                self.look()
        if self.options.cancelled():
            self.stop = "interrupted"
            self.summary.stopped = self.stop
            return self.summary
        n_queued = len(self._jobs_left())
        if n_queued:
            stay = "1 run stays" if n_queued == 1 else f"{n_queued} runs stay"
            print(
                f"{stay} in the queue: the same command follows them, "
                f"`ablate cancel {self.options.experiment}` ends them"
            )
        self.summary.stopped = self.stop if self.left else None
        return self.summary

    def _stop_as(self, status: str) -> None:
        self.stop = self.stop or status

    def _jobs_left(self) -> list[str]:
        return [self.jobs[run_id] for run_id in self.left if run_id in self.jobs]

    def _adopt(self) -> None:
        """Jobs that an earlier call sent and that are still there."""
        earlier = {}
        for run_id, job in last_jobs(self.folder).items():
            if run_id in self.left:
                earlier[run_id] = job
        if not earlier:
            return
        states = job_states(earlier.values())
        if states is None and self.stop is None:
            raise UserError(
                "squeue does not answer, and an earlier call sent jobs: "
                "try again when the controller is up"
            )
        for run_id, job in earlier.items():
            if states is None or states[job] in ALIVE:
                self.jobs[run_id] = job
        self.sent.update(self.jobs.keys())
        if self.jobs:
            there = "1 run is" if len(self.jobs) == 1 else f"{len(self.jobs)} runs are"
            print(f"{there} in the queue already", flush=True)

    def _check_environment(self) -> None:
        """Raises UserError where the nodes lack what the runs need that have no job yet."""
        unsent = [p for run_id, p in self.left.items() if run_id not in self.jobs]
        if not unsent or not needs_check(self.cluster):
            return
        answer = answer_file(self.cluster, self.folder)

        def send() -> str:
            return self.queue.check(unsent[0], self.store, answer, self.options)

        check_environment(answer, send, lambda: self.stop is not None or self.options.cancelled())

    def _send(self, runs: Iterable[PlannedRun]) -> None:
        for array in arrays_of(runs, self.options):
            cluster = without(self.cluster, sorted(self.kept_off))
            options = replace(self.options, cluster=cluster)
            names = self.queue.runs(array, self.store, self.folder, options)
            run_ids = [planned.spec.run_id for planned in array]
            jobs = dict(zip(run_ids, names, strict=True))
            note_sent(self.folder, jobs)
            self.jobs.update(jobs)
            self.sent.update(jobs.keys())

    def _send_ready(self) -> None:
        """Runs that have no job yet, once the trunks are there that they go on from."""
        unsent = [p for run_id, p in self.left.items() if run_id not in self.jobs]
        ready, lost = ready_and_lost(unsent, self.left, self.summary, self.store)
        for ended in lost:
            self._settle(ended)
        self._send(ready)

    def look(self) -> None:
        """Note what has ended, send again what was lost.

        What has a result has it, whether Slurm answers or not.
        """
        if self.stop is None:
            self._send_ready()
        states = job_states(self._jobs_left())
        again: dict[str, PlannedRun] = {}
        for run_id, planned in list(self.left.items()):
            if run_id not in self.jobs:
                continue
            state = self.store.state(run_id)
            if state.status in RESULT_STATUSES:
                ended = RunEnded(
                    run=planned,
                    status=state.status,
                    reason=state.reason,
                    val_loss=state.val_loss,
                )
                self._settle(ended)
                again |= self._judge(run_id, JobEnd(status=state.status, reason=""))
                continue
            if states is None:
                continue
            job = states[self.jobs[run_id]]
            if not self._is_over(run_id, job):
                continue
            if job == "COMPLETED" and state.status == "running":
                continue  # another runner has it
            end = self._end(run_id, job)
            cancelled = self.stop is not None or self.options.cancelled()  # such jobs are over too
            if not cancelled and self.sent[run_id] <= end.again:
                again[run_id] = planned
            else:
                tried_elsewhere = self._judge(run_id, end)
                again |= tried_elsewhere
                if run_id not in tried_elsewhere:
                    self._settle(RunEnded(run=planned, status=end.status, reason=end.reason))
        self.left |= again
        self._send_again(again)

    def _judge(self, run_id: str, end: JobEnd) -> dict[str, PlannedRun]:
        """What a run's end says of the node that it was made on; the runs that are tried again."""
        rows = read_attempts(self.store.directory(run_id))
        tried = last_try(rows, self.jobs[run_id])
        if tried is None or self.options.n_nodes > 1:  # which of several nodes is not known
            return {}
        finding = self.health.ended(
            run_id,
            (tried.node,),
            status=end.status,
            seconds=tried.seconds,
            can_spare=end.status == "failed" and self._can_spare(),
        )
        self._heed(finding)
        return {name: self.planned[name] for name in finding.again}

    def _can_spare(self) -> bool:
        """Whether jobs have somewhere to go if they are kept off one node more."""
        self.n_nodes = self.n_nodes or n_nodes_of(self.cluster)
        return self.n_nodes > len(self.kept_off) + 1

    def _heed(self, finding: Finding) -> None:
        before = set(self.kept_off)
        self.kept_off.update(finding.kept_out or ())
        self.kept_off.difference_update(finding.freed or ())
        if self.kept_off != before:
            excluded = excluded_nodes(self.cluster, sorted(self.kept_off))
            keep_off(self._jobs_left(), excluded)
        if finding.retired is not None:
            place = f"node {', '.join(finding.retired)}"
            tell_retired(finding, place, self.summary.reasons, self.folder.parent)

    def _is_over(self, run_id: str, state: str) -> bool:
        """state: of the run's job, in the queue."""
        if state in ALIVE:
            return False
        if state != GONE:
            return True
        job = self.jobs[run_id]
        self.unknown[job] += 1
        return self.unknown[job] >= GONE_LOOKS

    def _send_again(self, runs: dict[str, PlannedRun]) -> None:
        """Runs whose jobs were lost, except those that another call has sent again meanwhile."""
        if not runs:
            return
        last = last_jobs(self.folder)
        mine = []
        for run_id, planned in runs.items():
            job = last.get(run_id, self.jobs[run_id])
            if job == self.jobs[run_id]:
                mine.append(planned)
            else:
                self.jobs[run_id] = job  # another call that follows these runs was quicker
        self._send(mine)

    def _end(self, run_id: str, state: str) -> JobEnd:
        """How a run ended whose job is over, noted where the run could not.

        state: of the job, in the queue.
        """
        job = self.jobs[run_id]
        rows = read_attempts(self.store.directory(run_id))
        attempts = attempts_of_job(rows, job)
        told = attempts.told
        if told is not None and told.status in FAILED:
            # a job that failed itself lost a process on one of its nodes
            return replace(told, again=LOST_AGAIN if state in LOSSES else 0)
        end = ENDS.get(state, KILLED)
        if told is not None and told.status == "preempted" and state in ("COMPLETED", "FAILED"):
            n = attempts.n_preempted
            if state == "COMPLETED" or n <= self.cluster.requeues:
                return TOLD_TO_GO
            end = JobEnd(
                status="timeout", reason=f"its job was told {n} times that its time was up"
            )
        for row in rows:  # of a job that could do nothing: another one could not either
            if row.status and row.reason and row.reason.startswith(f"job {job}: "):
                return JobEnd(status=row.status, reason=row.reason)
        if state == "COMPLETED" and attempts.token is None:
            return NOT_BEGUN
        if attempts.token is not None and told is None:
            token = attempts.token
            self.store.note_end(run_id, token=token, status=end.status, reason=end.reason)
        elif told is None or told.status != end.status:
            self.store.note_lost(run_id, status=end.status, reason=end.reason)
        return end

    def _settle(self, ended: RunEnded) -> None:
        del self.left[ended.run.spec.run_id]
        self.summary.note(ended)
        self.options.on_end(ended)

    def at_once(self) -> int:
        """How many jobs may run at a time, for all we ask."""
        most = self.options.max_parallel or len(self.left)
        return min(len(self.left), most)

    def progress(self) -> list[RunProgress]:
        """The runs in progress, each with where it is."""
        return progress_of_all(self.store, list(self.left.values()))
