"""The local runner: fills this node's devices with what is missing of a matrix, and loses nothing.

Runs start in the order of the plan, block after block: the next one waits until it fits, and none
overtakes it. What goes on from a trunk waits for that. A run that another runner has is passed over
and looked at again at the end. Whatever happens to a worker becomes the outcome of its attempt;
only a results folder that cannot be written, a source that changed meanwhile, or a worker that
cannot start ends the whole call.
"""

import socket
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from harness.node.slots import Node, Slot
from harness.provenance.redact import redact
from harness.run.spec import RESULT_STATUSES, PlannedRun, RunSpec, is_exclusive
from harness.runner.execute import Execution
from harness.runner.executor import (
    ENDED,
    ExecutorOptions,
    RunEnded,
    RunProgress,
    Summary,
    progress_of,
    stop_signals,
)
from harness.runner.health import Finding, Health, fits_without, tell_retired
from harness.runner.kernels import kernel_cache
from harness.runner.limits import POLL_S
from harness.runner.messages import WorkerEvent
from harness.runner.trainers import RunMaker
from harness.runner.trunks import coming, waits_for, without_trunk
from harness.store.store import Store

ELSEWHERE_S = 1.0  # between two looks at runs that another runner has


class Runner:
    """One call of `ablate run`: its node, what is left to do, and how it is going."""

    def __init__(
        self,
        runs: Sequence[PlannedRun],
        store: Store,
        node: Node,
        options: ExecutorOptions,
    ) -> None:
        for size in {planned.spec.world_size for planned in runs}:
            node.check(size)
        self.store = store
        self.node = node
        self.options = options
        self.todo = deque(runs)
        self.elsewhere: list[PlannedRun] = []
        self.running: dict[str, PlannedRun] = {}
        self.idle: list[RunMaker] = []
        self.filling: set[Path | None] = set()  # caches that a first run compiles: siblings wait
        self.summary = Summary()
        self.health = Health()
        self.planned = {planned.spec.run_id: planned for planned in runs}
        self.changed = threading.Condition()
        self.looked = 0.0
        self.stop: str | None = None
        self.error: BaseException | None = None

    def run(self) -> Summary:
        """Work until nothing is left or a signal stops it; every run that began has an end."""
        with stop_signals(self._stop_as):
            try:
                with self.changed:
                    while self.go_on():
                        self.changed.wait(POLL_S)  # short: a signal is seen at once
            finally:
                if self.running:
                    self._stop_as("interrupted")
                with self.changed:
                    self.changed.wait_for(self._nothing_runs)
                for worker in self.idle:
                    worker.close()
        if self.error is not None:
            raise self.error
        self.summary.stopped = self.stop
        return self.summary

    def _stop_as(self, status: str) -> None:
        self.stop = self.stop or status

    def _nothing_runs(self) -> bool:
        return not self.running

    def go_on(self) -> bool:
        """Start what fits; False once nothing is left, running or elsewhere."""
        if self.stop is None and self.options.cancelled():
            self._stop_as("interrupted")
        if self.stop is not None:
            return bool(self.running)
        long_ago = time.monotonic() - self.looked > ELSEWHERE_S
        stuck = not self.todo or waits_for(self.todo[0], self.store) is not None
        if stuck and self.elsewhere and long_ago:
            self._look_elsewhere()
        while self.todo and self._start(self.todo[0]):
            self.todo.popleft()
        self.make_way()
        if self.running:
            return True
        return self.stop is None and bool(self.todo or self.elsewhere)

    def _look_elsewhere(self) -> None:
        """Runs that another runner has: note those that ended, take back those that it gave up."""
        waiting = self.elsewhere
        self.elsewhere = []
        self.looked = time.monotonic()
        for planned in waiting:
            state = self.store.state(planned.spec.run_id)
            if state.status in ENDED:
                self._settle(
                    planned,
                    WorkerEvent(status=state.status, reason=state.reason, val_loss=state.val_loss),
                )
            elif state.status == "running":
                self.elsewhere.append(planned)
            else:
                self._try_again(planned)

    def _try_again(self, planned: PlannedRun) -> None:
        """At the end of the line; before it a trunk, which others wait for."""
        if planned.spec.until is None:
            self.todo.append(planned)
        else:
            self.todo.appendleft(planned)

    def _start(self, planned: PlannedRun) -> bool:
        """Start a run if it fits now; one whose trunk nobody makes any more has ended."""
        spec = planned.spec
        trunk = waits_for(planned, self.store)
        if trunk is not None:
            if trunk in coming(self.todo, self.running.values(), self.elsewhere):
                return False
            reason = without_trunk(trunk, self.summary, self.store)
            self._settle(planned, WorkerEvent(status="failed", reason=reason))
            return True
        cache = kernel_cache(spec)
        if cache is not None and cache in self.filling:
            return False
        warm = [worker.slot for worker in self.idle]
        slot = self.node.take(spec.world_size, exclusive=is_exclusive(spec), prefer=warm)
        if slot is None:
            return False
        if cache is not None and not cache.exists():
            self.filling.add(cache)
        self.running[spec.run_id] = planned
        threading.Thread(target=self._work, args=(planned, slot, cache), daemon=True).start()
        return True

    def make_way(self) -> None:
        """End idle workers whose GPUs another runner has by now: they hold memory there."""
        locks, stay = self.node.locks, []
        for worker in self.idle:
            if locks is not None and locks.others_have(worker.slot.gpus):
                threading.Thread(target=worker.close, daemon=True).start()
            else:
                stay.append(worker)
        self.idle = stay

    def _worker(self, spec: RunSpec, slot: Slot) -> RunMaker:
        """The warm worker of a slot, or a new one; idle ones that hold one of its devices go."""
        new = self.options.trainer.maker(spec, slot, forks=not self.options.warm)
        warm = None
        in_the_way = []
        stay = []
        with self.changed:
            for worker in self.idle:
                if warm is None and worker.is_like(new):
                    warm = worker
                elif set(worker.slot.held) & set(slot.held):
                    in_the_way.append(worker)
                else:
                    stay.append(worker)
            self.idle = stay
        for worker in in_the_way:
            worker.close()
        return warm or new

    def _work(self, planned: PlannedRun, slot: Slot, cache: Path | None) -> None:
        """One run to its end, in a thread of its own."""
        worker, event = None, None
        began = time.monotonic()
        try:
            worker = self._worker(planned.spec, slot)
            event = worker.make(self._execution(planned, cache))
            if not self._may_stay(slot, event):
                worker.close()
        except BaseException as error:  # nothing can go on: stop everything, say it once
            self.error = self.error or error
            self._stop_as("interrupted")
            if worker is not None:
                worker.close()
        with self.changed:
            self.filling.discard(cache)
            self.node.give(slot)
            self.running.pop(planned.spec.run_id)
            if worker is not None and worker.alive():
                self.idle.append(worker)
            if event is not None:
                finding = self._judge(planned, slot, event, seconds=time.monotonic() - began)
                if planned.spec.run_id not in finding.again:
                    self._settle(planned, event)
                self._heed(finding)
            self.changed.notify()

    def _execution(self, planned: PlannedRun, cache: Path | None) -> Execution:
        def stop() -> str | None:
            return self.stop

        def first_step() -> None:
            with self.changed:
                self.filling.discard(cache)
                self.changed.notify()

        return Execution(
            spec=planned.spec,
            store=self.store,
            command=self.options.command,
            cache=cache,
            limits=self.options.limits,
            stop=stop,
            first_step=first_step,
        )

    def _may_stay(self, slot: Slot, event: WorkerEvent) -> bool:
        """Whether a worker is kept for the next run: if anything went wrong, that starts clean."""
        forks_or_warm = self.options.warm or slot.size == 1  # a single process forks fresh ones
        return forks_or_warm and event.status in (*RESULT_STATUSES, "taken")

    def _settle(self, planned: PlannedRun, event: WorkerEvent) -> None:
        """Take note of how a run ended, or that another runner has it."""
        if event.status == "taken":
            self.elsewhere.append(planned)
            return
        if event.status == "preempted" and self.stop is None:  # the worker alone was told to go
            self._try_again(planned)
        ended = RunEnded(
            run=planned,
            status=event.status,
            reason=redact(event.reason) if event.reason else None,
            val_loss=event.val_loss,
        )
        self.summary.note(ended)
        self.options.on_end(ended)

    def _judge(
        self, planned: PlannedRun, slot: Slot, event: WorkerEvent, *, seconds: float
    ) -> Finding:
        """What a run's end says of the GPUs that it was made on."""
        run_id = planned.spec.run_id
        if event.status == "taken" or self.stop is not None:
            return self.health.untold(run_id)
        largest = max(run.spec.world_size for run in self.planned.values())
        spare = bool(slot.gpus) and fits_without(slot.gpus, self.node.devices, largest)
        return self.health.ended(
            run_id, slot.gpus, status=event.status, seconds=seconds, can_spare=spare
        )

    def _heed(self, finding: Finding) -> None:
        if finding.kept_out is not None:
            self.node.keep_out(finding.kept_out)
        if finding.freed is not None:
            self.node.bring_back(finding.freed)
        for run_id in finding.again:
            self.todo.appendleft(self.planned[run_id])
        if finding.retired is not None:
            place = f"GPU {', '.join(finding.retired)} of {socket.gethostname()}"
            experiment = self.store.root / "experiments" / self.options.experiment
            tell_retired(finding, place, self.summary.reasons, experiment)

    def at_once(self) -> int:
        """How many runs of the first one's size are in progress at a time."""
        first = self.todo[0].spec
        fit = self.node.at_once(first.world_size, exclusive=is_exclusive(first))
        return min(len(self.todo), fit)

    def progress(self) -> list[RunProgress]:
        """The runs in progress, each with where it is."""
        with self.changed:
            running = list(self.running.values())
        return [progress_of(self.store, p) or RunProgress(run=p) for p in running]
