"""The local runner: fills this node's slots with what is missing of a matrix, and loses nothing.

Runs start in the order of the plan, block after block. A run that another runner has is passed over and looked at again at
the end. Whatever happens to a worker becomes the outcome of its attempt; only a results folder that cannot be written, a
source that changed meanwhile, or a worker that cannot start ends the whole call.
"""

import signal
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.errors import UserError
from harness.plan import PlannedRun
from harness.process import Event, WorkerProcess
from harness.records import RESULT_STATUSES, read_json
from harness.slots import Slot
from harness.store import FAILED, Store

TRAINER = "harness.train:train"
POLL_S = 0.2
ELSEWHERE_S = 1.0  # between two looks at runs that another runner has
DEATHS = 2  # a run whose worker died (killed, crashed interpreter) is tried this many times more
STOPS = {signal.SIGINT: "interrupted", signal.SIGHUP: "interrupted", signal.SIGTERM: "preempted"}


@dataclass(kw_only=True)
class Summary:
    """How the matrix stands when the runner stops: run_id -> status, with reasons where there are any."""

    statuses: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    stopped: str | None = None  # "interrupted" or "preempted"


class Runner:
    """One call of `ablate run`: its slots, what is left to do, and how it is going."""

    def __init__(
        self,
        runs: Sequence[PlannedRun],
        store: Store,
        slots: Sequence[Slot],
        *,
        command: str,
        trainer: str = TRAINER,
        warm: bool = True,
        wall_limit_s: float | None = None,
        silence_limit_s: float = 3600.0,
        on_event: Callable[[Event], None] = lambda event: None,
    ) -> None:
        self.store, self.slots, self.command, self.trainer = store, slots, command, trainer
        self.warm, self.wall_limit_s, self.silence_limit_s, self.on_event = warm, wall_limit_s, silence_limit_s, on_event
        self.todo = deque(runs)
        self.elsewhere: list[PlannedRun] = []
        self.running: dict[str, PlannedRun] = {}
        self.summary = Summary()
        self.lock = threading.Lock()
        self.stop: str | None = None
        self.error: BaseException | None = None

    def run(self) -> Summary:
        """Work until nothing is left or a signal stops it; every run that was started has an end in its attempts."""
        before = {n: h for n in STOPS if (h := signal.getsignal(n)) is not signal.SIG_IGN}  # nohup stays nohup
        for number in before:
            signal.signal(number, self._on_signal)
        threads = [threading.Thread(target=self._work, args=(slot,), daemon=True) for slot in self.slots]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():  # short waits: a signal is seen at once
                    thread.join(POLL_S)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if self.error is not None:
            raise self.error
        self.summary.stopped = self.stop
        return self.summary

    def _on_signal(self, number: int, frame: Any) -> None:
        self.stop = self.stop or STOPS[signal.Signals(number)]

    def _work(self, slot: Slot) -> None:
        worker: WorkerProcess | None = None
        try:
            while (planned := self._next()) is not None:
                n_processes = planned.spec.world_size
                if worker is None or worker.n_processes != n_processes:
                    if worker is not None:
                        worker.close()
                    worker = WorkerProcess(slot, self.trainer, n_processes=n_processes, device=planned.spec.device)
                self.on_event({"event": "started", "run": planned})
                ended = self._execute(worker, planned)
                if not self.warm or ended["status"] not in (*RESULT_STATUSES, "taken"):
                    worker.close()  # whatever went wrong, the next run starts clean
                self._settle(planned, ended)
        except BaseException as error:  # nothing can go on: stop everything, say it once
            self.error = self.error or error
            self.stop = self.stop or "interrupted"
        finally:
            if worker is not None:
                worker.close()

    def _next(self) -> PlannedRun | None:
        """The next run of the plan; once there is none, a run of another runner that it gave up; waits while it has some."""
        while self.stop is None:
            with self.lock:
                if self.todo:
                    planned = self.todo.popleft()
                    self.running[planned.spec.run_id] = planned
                    return planned
                if not self.elsewhere:
                    return None
                waiting, self.elsewhere = self.elsewhere, []
            for planned in waiting:
                state = self.store.state(planned.spec.run_id)
                if state["status"] in (*RESULT_STATUSES, *FAILED):
                    self._settle(planned, state)
                else:
                    with self.lock:
                        (self.elsewhere if state["status"] == "running" else self.todo).append(planned)
            if not self.todo:
                time.sleep(ELSEWHERE_S)
        return None

    def _settle(self, planned: PlannedRun, ended: Event) -> None:
        """Take note of how a run ended, or that another runner has it."""
        run_id, status, reason = planned.spec.run_id, ended["status"], ended.get("reason")
        with self.lock:
            self.running.pop(run_id, None)
            if status == "taken":
                self.elsewhere.append(planned)
                return
            if status == "preempted" and self.stop is None:  # the worker alone was told to go
                self.todo.append(planned)
            self.summary.statuses[run_id] = status
            if reason:
                self.summary.reasons[run_id] = reason
        self.on_event({"event": "ended", "run": planned, "status": status, "reason": reason, "val_loss": ended.get("val_loss")})

    def _execute(self, worker: WorkerProcess, planned: PlannedRun) -> Event:
        """One run to its end, with a new worker where one died."""
        spec = planned.spec
        order = {"results": str(self.store.root.resolve()), "spec": spec.to_mapping(), "command": self.command}
        for deaths in range(1, DEATHS + 2):
            token = uuid.uuid4().hex
            worker.send({**order, "token": token})
            event = self._answer(worker, planned)
            if event["status"] == "broken":
                raise UserError(event["reason"])
            if event["status"] == "died":
                left = self._left_by_rank(planned, token)
                if left.get("status") == "oom":
                    event = left
                else:  # a rank's exception may only be the echo of another rank's death
                    event = {"status": "failed", "reason": left.get("reason", event["reason"]), "again": deaths <= DEATHS}
            elif "by_runner" not in event:
                return event
            self.store.note_end(spec.run_id, token=token, status=event["status"], reason=event["reason"])
            if not event.get("again"):
                return event
        raise AssertionError("the last death ends the run")

    def _left_by_rank(self, planned: PlannedRun, token: str) -> Event:
        """What a further rank of a group told of its end: status and reason; empty if nothing."""
        attempts = self.store.directory(planned.spec.run_id) / "attempts"
        for owner in attempts.glob("*/owner.json"):
            if (read_json(owner) or {}).get("token") == token:
                return next((event for path in sorted(owner.parent.glob("rank*.json")) if (event := read_json(path))), {})
        return {}

    def _answer(self, worker: WorkerProcess, planned: PlannedRun) -> Event:
        """The worker's answer, its death, or the end that this runner gives it: stopped, too long, silent."""
        began = moved = time.monotonic()
        seen: Any = None
        while (event := worker.event(POLL_S)) is None:
            now = time.monotonic()
            if now - moved > min(1.0, self.silence_limit_s / 4) and (shown := self.store.progress(planned.spec.run_id)) != seen:
                seen, moved = shown, now
            end = None
            if self.stop is not None:
                end = {"status": self.stop, "reason": "stopped by a signal"}
            elif self.wall_limit_s is not None and now - began > self.wall_limit_s:
                end = {"status": "timeout", "reason": f"it ran longer than its wall limit of {self.wall_limit_s:g} s"}
            elif now - moved > self.silence_limit_s:
                end = {"status": "timeout", "reason": f"it made no step for {self.silence_limit_s:g} s"}
            if end is not None:
                worker.kill()
                return {**end, "by_runner": True}
        return event

    def progress(self) -> list[tuple[PlannedRun, Event]]:
        """The runs in progress with where they are: step, steps, val_loss."""
        with self.lock:
            running = list(self.running.values())
        return [(r, self.store.progress(r.spec.run_id) or {}) for r in running]
