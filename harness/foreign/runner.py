"""Foreign runs on this node's slots: claimed, watched, tried again where they may be."""

import json
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from harness.errors import UserError
from harness.foreign.command import ForeignTrainer
from harness.foreign.trainer import copy_of, environment_of, train
from harness.node.device_locks import DeviceLocks
from harness.node.slots import Slot, find_cpus, find_gpus, find_identified_gpus
from harness.node.stalls import Stalls
from harness.provenance import interpreters
from harness.provenance.code import read_code
from harness.provenance.redact import redact
from harness.run.disturbed import stood_still
from harness.run.foreign import TrainerLimits
from harness.run.measured import ForeignMarks, Measured
from harness.run.plural import plural
from harness.run.spec import Outcome, PlannedRun, RunSpec
from harness.runner.executor import (
    ENDED,
    POLL_S,
    RunEnded,
    RunProgress,
    Summary,
    progress_of_all,
    stop_signals,
    tell_nobody,
)
from harness.runner.local import ELSEWHERE_S
from harness.store.attempt import TakenOverError, claim
from harness.store.store import FAILED, Store


def make_slots(gpus_per_run: int, max_parallel: int) -> list[Slot]:
    """Disjoint devices for so many runs at a time, fewer where this node has fewer.

    Raises UserError where it has too few for one run."""
    if not gpus_per_run:
        threads = max(1, find_cpus() // max_parallel)
        return [Slot(held=(), threads=threads)] * max_parallel
    gpus = find_gpus()
    if gpus_per_run > len(gpus):
        raise UserError(
            f"a run needs {plural(gpus_per_run, 'GPU')}, this node shows {len(gpus)}: "
            "ask for fewer, 0 for a CPU run"
        )
    n_slots = min(max_parallel, len(gpus) // gpus_per_run)
    slots = []
    for i in range(n_slots):
        group = tuple(gpus[i * gpus_per_run : (i + 1) * gpus_per_run])
        slots.append(Slot(held=group, gpus=group))
    return slots


class ForeignRunner:
    """One call of `ablate ab`, or of `ablate run` for foreign trainers."""

    def __init__(
        self,
        runs: Sequence[PlannedRun],
        store: Store,
        slots: Sequence[Slot],
        *,
        limits: TrainerLimits,
        on_end: Callable[[RunEnded], None] = tell_nobody,
    ) -> None:
        self.store = store
        self.slots = slots
        self.limits = limits
        self.on_end = on_end
        self.todo = deque(runs)
        self.elsewhere: list[PlannedRun] = []
        self.running: dict[str, PlannedRun] = {}
        self.tries: Counter[str] = Counter()
        self.summary = Summary()
        self.lock = threading.Lock()
        has_gpus = any(slot.gpus for slot in slots)
        self.locks = DeviceLocks(find_identified_gpus() if has_gpus else {})
        self.stop: str | None = None
        self.error: BaseException | None = None
        self.session = uuid.uuid4().hex[:12]  # its runs' times may be compared

    def run(self) -> Summary:
        """Work until nothing is left or a signal stops it."""
        threads = [
            threading.Thread(target=self._work, args=(slot,), daemon=True) for slot in self.slots
        ]
        with stop_signals(self._stop_as):
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():  # short waits: a signal is seen at once
                    thread.join(POLL_S)
        if self.error is not None:
            raise self.error
        self.summary.stopped = self.stop
        return self.summary

    def at_once(self) -> int:
        """How many runs are in progress at a time."""
        return len(self.slots)

    def progress(self) -> list[RunProgress]:
        """The runs in progress, each with where it is."""
        with self.lock:
            running = list(self.running.values())
        return progress_of_all(self.store, running)

    def _stop_as(self, status: str) -> None:
        self.stop = self.stop or status

    def _work(self, slot: Slot) -> None:
        try:
            planned = self._next()
            while planned is not None:
                if not self._hold(slot):
                    break
                with self.lock:
                    self.running[planned.spec.run_id] = planned
                outcome = self._execute(planned, slot)
                with self.lock:
                    del self.running[planned.spec.run_id]
                    self.locks.release(slot.gpus)
                self._settle(planned, outcome)
                planned = self._next()
        except BaseException as error:  # nothing can go on: stop everything, say it once
            self.error = self.error or error
            self.stop = self.stop or "interrupted"

    def _hold(self, slot: Slot) -> bool:
        """Wait until no other runner on this node has these GPUs; False if a signal came first."""
        while self.stop is None:
            with self.lock:
                if not slot.gpus or self.locks.take(slot.gpus, len(slot.gpus)) is not None:
                    return True
            time.sleep(POLL_S)
        return False

    def _next(self) -> PlannedRun | None:
        """The next run of the plan; once there is none, one that another runner gave up.

        Waits while another runner has some."""
        while self.stop is None:
            with self.lock:
                if self.todo:
                    return self.todo.popleft()
                if not self.elsewhere:
                    return None
                waiting, self.elsewhere = self.elsewhere, []
            for planned in waiting:
                state = self.store.state(planned.spec.run_id)
                if state.status in ENDED:
                    self._note(planned, state.status, state.reason, Measured())
                    continue
                with self.lock:
                    if state.status == "running":
                        self.elsewhere.append(planned)
                    else:
                        self.todo.append(planned)
            if not self.todo:
                time.sleep(ELSEWHERE_S)
        return None

    def _execute(self, planned: PlannedRun, slot: Slot) -> Outcome | None:
        """One attempt; None if the run is somebody else's, or done."""
        spec = planned.spec
        out = claim(self.store, spec, token=self.session)
        if out is None:
            return None
        try:
            self._keep_versions(spec)
            out.describe(environment_of(spec, copy_of(out)))

            def stop() -> str | None:
                return self.stop or ("interrupted" if out.lost else None)

            try:
                with Stalls() as stalls:
                    outcome = train(
                        spec,
                        out=out,
                        archive=kept_code(self.store, spec),
                        slot=slot,
                        stop=stop,
                        limits=self.limits,
                    )
                still_s = stalls.seconds(None)
                if still_s:
                    outcome = replace(outcome, disturbed=(stood_still(still_s),))
            except OSError as error:
                outcome = Outcome(status="failed", reason=f"its clean copy cannot be made: {error}")
            outcome = out.checked(outcome)
            if not out.finish(outcome):
                return None
        except TakenOverError:
            return None
        finally:
            out.release()
        return outcome

    def _keep_versions(self, spec: RunSpec) -> None:
        """environments/<digest>.json: the versions that a run meets."""
        lock = interpreters.lock_of(ForeignTrainer.of_run(spec).environment)
        content = json.dumps(dict(lock.versions), indent=1).encode()
        self.store.keep_once("environments", lock.digest, ".json", lambda: content)

    def _settle(self, planned: PlannedRun, outcome: Outcome | None) -> None:
        with self.lock:
            if outcome is None:
                self.elsewhere.append(planned)
                return
            run_id = planned.spec.run_id
            self.tries[run_id] += 1
            if outcome.status in FAILED and self.tries[run_id] <= self.limits.retries:
                self.todo.append(planned)
        metrics = outcome.marks.own if isinstance(outcome.marks, ForeignMarks) else {}
        self._note(planned, outcome.status, outcome.reason, outcome.final, metrics)

    def _note(
        self,
        planned: PlannedRun,
        status: str,
        reason: str | None,
        final: Measured,
        metrics: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        ended = RunEnded(
            run=planned,
            status=status,
            reason=redact(reason) if reason else None,
            val_loss=final.val_loss,
            train_time_s=final.train_time_s,
            own=metrics,
        )
        self.summary.note(ended)
        self.on_end(ended)


def kept_code(store: Store, spec: RunSpec) -> Path:
    """The archive that a run's clean copy is unpacked from."""
    return store.root / "code" / f"{spec.source_digest}.zip"


def run_again(
    planned: PlannedRun, store: Store, again: Store, *, limits: TrainerLimits | None = None
) -> Summary:
    """A run of `store` once more in another folder, from the code that it ran."""
    spec = planned.spec
    archive = kept_code(store, spec)
    trainer = ForeignTrainer.of_run(spec)
    read_code(archive, trainer.script, digest=spec.source_digest)
    again.keep_once("code", spec.source_digest, ".zip", archive.read_bytes)
    slots = make_slots(trainer.gpus, 1)
    return ForeignRunner([planned], again, slots, limits=limits or TrainerLimits()).run()
