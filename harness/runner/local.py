"""The local runner: fills this node's devices with what is missing of a matrix, and loses nothing.

Runs start in the order of the plan, block after block: the next one waits until it fits, and none overtakes it. A run that
another runner has is passed over and looked at again at the end. Whatever happens to a worker becomes the outcome of its
attempt; only a results folder that cannot be written, a source that changed meanwhile, or a worker that cannot start ends the
whole call.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from harness.node.slots import Node, Slot
from harness.provenance.redact import redact
from harness.run.spec import RESULT_STATUSES, PlannedRun, is_exclusive
from harness.runner.executor import TRAINER, Limits, Summary, kernel_cache, stop_signals
from harness.runner.order import execute
from harness.runner.process import Event, WorkerProcess
from harness.store.store import FAILED, Store

POLL_S = 0.2
ELSEWHERE_S = 1.0  # between two looks at runs that another runner has


class Runner:
    """One call of `ablate run`: its node, what is left to do, and how it is going."""

    def __init__(
        self,
        runs: Sequence[PlannedRun],
        store: Store,
        node: Node,
        *,
        command: str,
        trainer: str = TRAINER,
        warm: bool = True,
        limits: Limits | None = None,
        cancelled: Callable[[], bool] = lambda: False,
        on_event: Callable[[Event], None] = lambda event: None,
    ) -> None:
        for size in {p.spec.world_size for p in runs}:
            node.check(size)
        self.store, self.node, self.command, self.trainer, self.warm = store, node, command, trainer, warm
        self.limits, self.cancelled, self.on_event = limits or Limits(), cancelled, on_event
        self.todo = deque(runs)
        self.elsewhere: list[PlannedRun] = []
        self.running: dict[str, PlannedRun] = {}
        self.idle: list[WorkerProcess] = []
        self.filling: set[Path | None] = set()  # caches whose first run is compiling: siblings wait for it
        self.summary = Summary()
        self.changed = threading.Condition()
        self.looked = 0.0
        self.stop: str | None = None
        self.error: BaseException | None = None

    def run(self) -> Summary:
        """Work until nothing is left or a signal stops it; every run that was started has an end in its attempts."""
        with stop_signals(self._on_signal):
            try:
                with self.changed:
                    while self._go_on():
                        self.changed.wait(POLL_S)  # short: a signal is seen at once
            finally:
                self.stop = self.stop or ("interrupted" if self.running else None)
                with self.changed:
                    self.changed.wait_for(lambda: not self.running)
                for worker in self.idle:
                    worker.close()
        if self.error is not None:
            raise self.error
        self.summary.stopped = self.stop
        return self.summary

    def _on_signal(self, status: str) -> None:
        self.stop = self.stop or status

    def _go_on(self) -> bool:
        """Start what fits; False once nothing is left, running or elsewhere."""
        if self.stop is None and self.cancelled():
            self.stop = "interrupted"
        if self.stop is None:
            if not self.todo and self.elsewhere and time.monotonic() - self.looked > ELSEWHERE_S:
                self._look_elsewhere()
            while self.todo and self._start(self.todo[0]):
                self.todo.popleft()
        return bool(self.running) or (self.stop is None and bool(self.todo or self.elsewhere))

    def _look_elsewhere(self) -> None:
        """Runs that another runner has: note those that ended, take back those that it gave up."""
        waiting, self.elsewhere, self.looked = self.elsewhere, [], time.monotonic()
        for planned in waiting:
            state = self.store.state(planned.spec.run_id)
            if state["status"] in (*RESULT_STATUSES, *FAILED):
                self._settle(planned, state)
            else:
                (self.elsewhere if state["status"] == "running" else self.todo).append(planned)

    def _start(self, planned: PlannedRun) -> bool:
        """Start a run if it fits now."""
        spec, cache = planned.spec, kernel_cache(planned.spec, self.store)
        if cache is not None and cache in self.filling:
            return False
        slot = self.node.take(spec.world_size, exclusive=is_exclusive(spec), rather=[w.slot for w in self.idle])
        if slot is None:
            return False
        if cache is not None and not cache.exists():
            self.filling.add(cache)
        self.running[spec.run_id] = planned
        threading.Thread(target=self._work, args=(planned, slot, cache), daemon=True).start()
        return True

    def _worker(self, slot: Slot, runs_in: Mapping[str, str]) -> WorkerProcess:
        """The warm worker of a slot, or a new one; idle ones that hold one of its devices go."""
        with self.changed:
            mine = next((w for w in self.idle if w.slot == slot and w.runs_in == runs_in), None)
            in_the_way = [w for w in self.idle if w is not mine and {*w.slot.held} & {*slot.held}]
            self.idle = [w for w in self.idle if w is not mine and w not in in_the_way]
        for worker in in_the_way:
            worker.close()
        return mine or WorkerProcess(slot, self.trainer, runs_in=runs_in, forks=not self.warm)

    def _work(self, planned: PlannedRun, slot: Slot, cache: Path | None) -> None:
        """One run to its end, in a thread of its own."""
        worker, ended = None, None

        def first_step() -> None:
            with self.changed:
                self.filling.discard(cache)
                self.changed.notify()

        try:
            worker = self._worker(slot, planned.spec.runs_in)
            worker.device = planned.spec.device
            self.on_event({"event": "started", "run": planned})
            ended = execute(
                worker,
                planned.spec,
                self.store,
                command=self.command,
                cache=cache,
                limits=self.limits,
                stop=lambda: self.stop,
                first_step=first_step,
            )
            stays = self.warm or slot.size == 1  # a single process forks fresh ones
            if not stays or ended["status"] not in (*RESULT_STATUSES, "taken"):
                worker.close()  # whatever went wrong, the next run starts clean
        except BaseException as error:  # nothing can go on: stop everything, say it once
            self.error = self.error or error
            self.stop = self.stop or "interrupted"
            if worker is not None:
                worker.close()
        with self.changed:
            self.filling.discard(cache)
            self.node.give(slot)
            self.running.pop(planned.spec.run_id)
            if worker is not None and worker.alive():
                self.idle.append(worker)
            if ended is not None:
                self._settle(planned, ended)
            self.changed.notify()

    def _settle(self, planned: PlannedRun, ended: Event) -> None:
        """Take note of how a run ended, or that another runner has it."""
        run_id, status, reason = planned.spec.run_id, ended["status"], ended.get("reason")
        if status == "taken":
            self.elsewhere.append(planned)
            return
        if status == "preempted" and self.stop is None:  # the worker alone was told to go
            self.todo.append(planned)
        self.summary.statuses[run_id] = status
        if reason:
            self.summary.reasons[run_id] = reason = redact(reason)
        self.on_event({"event": "ended", "run": planned, "status": status, "reason": reason, "val_loss": ended.get("val_loss")})

    def at_once(self) -> int:
        """How many runs of the first one's size are in progress at a time."""
        first = self.todo[0].spec
        return min(len(self.todo), self.node.at_once(first.world_size, exclusive=is_exclusive(first)))

    def progress(self) -> list[tuple[PlannedRun, Event]]:
        """The runs in progress with where they are: step, steps, val_loss."""
        with self.changed:
            running = list(self.running.values())
        return [(r, self.store.progress(r.spec.run_id) or {}) for r in running]
