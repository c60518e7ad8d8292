"""The local runner: fills this node's slots with what is missing of a matrix, and loses nothing.

A slot is a set of devices with one worker at a time. Runs start in the order of the plan, block after block; a run that
another runner has claimed is waited for. Whatever happens to a worker becomes the outcome of its attempt.
"""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from harness.errors import UserError
from harness.plan import PlannedRun
from harness.records import read_json, read_lines
from harness.store import Store, now_iso

TRAINER = "harness.train:train"
GRACE_S = 20.0  # a worker that was asked to stop has this long to end its run
POLL_S = 0.2
DEATHS = 2  # a run whose worker died (killed, crashed interpreter) is tried this many times more
Event = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Slot:
    """Devices that one run has to itself: GPU indices, or none for a CPU slot with its threads."""

    gpus: tuple[int, ...] = ()
    threads: int = 1


def find_gpus() -> list[int]:
    """Indices of this node's visible NVIDIA GPUs, without importing torch."""
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    count = sum(line.startswith("GPU ") for line in done.stdout.splitlines()) if done.returncode == 0 else 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return [int(i) for i in visible.split(",") if i.strip().isdigit()] if visible is not None else list(range(count))


def find_device() -> Literal["cpu", "cuda"]:
    return "cuda" if find_gpus() else "cpu"


def make_slots(device: str, *, gpus_per_run: int = 1, max_parallel: int | None = None, gpus: Sequence[int] | None = None,
               n_cpus: int | None = None) -> list[Slot]:
    """Disjoint slots of this node; raises UserError where a run needs more than there is."""
    if device == "cuda":
        found = list(find_gpus() if gpus is None else gpus)
        if gpus_per_run > len(found):
            raise UserError(f"--gpus-per-run {gpus_per_run}: this node shows {len(found)} GPUs; ask for fewer")
        groups = [tuple(found[i : i + gpus_per_run]) for i in range(0, len(found) - gpus_per_run + 1, gpus_per_run)]
        slots = [Slot(gpus=g) for g in groups]
    else:
        cpus = n_cpus or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
        n_slots = max(1, min(cpus // gpus_per_run, max_parallel or cpus))
        slots = [Slot(threads=max(1, cpus // (n_slots * gpus_per_run)))] * n_slots
    return slots[: max_parallel or len(slots)]


@dataclass(kw_only=True)
class Summary:
    """How the matrix stands when the runner stops: run_id -> status, with reasons where there are any."""

    statuses: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    stopped: str | None = None  # "interrupted" or "preempted"


class Worker:
    """A worker process of one slot, started when first needed and again after it died."""

    def __init__(self, slot: Slot, trainer: str) -> None:
        self.slot, self.trainer = slot, trainer
        self.process: subprocess.Popen[bytes] | None = None
        self.buffer = b""

    def environment(self) -> dict[str, str]:
        threads = str(self.slot.threads)
        return {**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "PYTHONUNBUFFERED": "1",
                "CUDA_VISIBLE_DEVICES": ",".join(map(str, self.slot.gpus))}

    def start(self) -> None:
        # a session of its own: Ctrl-C reaches the runner alone, which then asks its workers to stop
        self.process = subprocess.Popen([sys.executable, "-m", "harness.worker", self.trainer], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=self.environment(), start_new_session=True)
        self.buffer = b""

    def send(self, order: Event) -> None:
        if self.process is None or self.process.poll() is not None:
            self.start()
            self.answer()  # ready, or its end
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self, watch: Callable[[], None] = lambda: None) -> Event | None:
        """The next answer; None if the worker died first. `watch` is called while waiting."""
        assert self.process is not None
        assert self.process.stdout is not None
        fd = self.process.stdout.fileno()
        while b"\n" not in self.buffer:
            watch()
            if select.select([fd], [], [], POLL_S)[0]:
                chunk = os.read(fd, 65536)
                if not chunk:
                    self.process.wait()
                    return None
                self.buffer += chunk
        line, _, self.buffer = self.buffer.partition(b"\n")
        return json.loads(line)

    def signal(self, number: int) -> None:
        if self.process is not None and self.process.poll() is None:
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                pass

    def close(self) -> None:
        if self.process is not None:
            if self.process.stdin is not None:
                try:
                    self.process.stdin.close()
                except BrokenPipeError:
                    pass
            try:
                self.process.wait(timeout=GRACE_S)
            except subprocess.TimeoutExpired:
                self.signal(signal.SIGKILL)
            if self.process.stdout is not None:
                self.process.stdout.close()
            self.process = None


class Group(Worker):
    """The worker of a run on several processes: a torchrun group for each run, its own rendezvous, no fixed port."""

    def send(self, order: Event) -> None:
        n_processes = order["spec"]["world_size"]
        with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as file:
            file.write(json.dumps(order))
        self.order = Path(file.name)
        self.run = Path(order["results"]) / "runs" / order["run_id"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n_processes), "-m", "harness.worker",
             self.trainer, str(self.order)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self.environment(), start_new_session=True)

    def answer(self, watch: Callable[[], None] = lambda: None) -> Event | None:
        assert self.process is not None
        while self.process.poll() is None:
            watch()
            time.sleep(POLL_S)
        self.order.unlink(missing_ok=True)
        attempts = read_lines(self.run / "attempts.jsonl")
        return attempts[-1] if attempts and "ended" in attempts[-1] else None

    def close(self) -> None:
        self.signal(signal.SIGKILL)


class Runner:
    """One call of `ablate run`: its slots, what is left to do, and how it is going."""

    def __init__(self, runs: Sequence[PlannedRun], store: Store, slots: Sequence[Slot], *, command: str, trainer: str = TRAINER,
                 warm: bool = True, wall_limit_s: float | None = None, silence_limit_s: float = 3600.0,
                 on_event: Callable[[Event], None] = lambda event: None) -> None:
        self.store, self.slots, self.command, self.trainer = store, slots, command, trainer
        self.warm, self.wall_limit_s, self.silence_limit_s, self.on_event = warm, wall_limit_s, silence_limit_s, on_event
        self.todo = list(runs)
        self.running: dict[str, PlannedRun] = {}
        self.summary = Summary()
        self.lock = threading.Lock()
        self.stop: str | None = None
        self.error: BaseException | None = None

    def run(self) -> Summary:
        """Work until nothing is left or a signal stops it; every run that was started has an end in its attempts."""
        handlers = {n: signal.signal(n, self._on_signal) for n in (signal.SIGINT, signal.SIGTERM)}
        threads = [threading.Thread(target=self._work, args=(slot,), daemon=True) for slot in self.slots]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():  # short waits: a signal is seen at once
                    thread.join(POLL_S)
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        if self.error is not None:
            raise self.error
        self.summary.stopped = self.stop
        return self.summary

    def _on_signal(self, number: int, frame: Any) -> None:
        self.stop = "interrupted" if number == signal.SIGINT else "preempted"

    def _work(self, slot: Slot) -> None:
        worker: Worker | None = None
        try:
            while (planned := self._next()) is not None:
                kind = Group if planned.spec.world_size > 1 else Worker
                if worker is None or type(worker) is not kind:
                    worker = kind(slot, self.trainer)
                status, reason = self._execute(worker, planned)
                if not self.warm:
                    worker.close()
                with self.lock:
                    self.running.pop(planned.spec.run_id, None)
                    self.summary.statuses[planned.spec.run_id] = status
                    if reason:
                        self.summary.reasons[planned.spec.run_id] = reason
                self.on_event({"event": "ended", "run": planned, "status": status, "reason": reason})
        except BaseException as error:  # the results folder is gone, the disk is full: stop everything, say it once
            self.error = self.error or error
            self.stop = self.stop or "interrupted"
        finally:
            if worker is not None:
                worker.close()

    def _next(self) -> PlannedRun | None:
        with self.lock:
            if self.stop is not None or not self.todo:
                return None
            planned = self.todo.pop(0)
            self.running[planned.spec.run_id] = planned
        return planned

    def _execute(self, worker: Worker, planned: PlannedRun) -> tuple[str, str | None]:
        """One run to its end; (status, reason)."""
        spec, deaths = planned.spec, 0
        order = {"results": str(self.store.root.resolve()), "spec": spec.to_mapping(), "run_id": spec.run_id, "command": self.command}
        self.on_event({"event": "started", "run": planned})
        while True:
            began, limit = time.monotonic(), [""]
            try:
                worker.send(order)
                answer = worker.answer(lambda: self._watch(worker, planned, began, limit))
            except BrokenPipeError:
                answer = None
            if answer is not None and answer["status"] != "taken":
                return answer["status"], answer.get("reason")
            if answer is not None:
                result = self.store.result(spec.run_id)
                if result is not None:
                    return result["status"], result.get("reason")
                if self.stop is not None:
                    return "running", "another runner has it"
                time.sleep(POLL_S)
                continue
            if limit[0]:
                return self._ended(planned, "timeout", limit[0])
            if self.stop is not None:
                return self._ended(planned, self.stop, "stopped by a signal")
            deaths += 1
            code = worker.process.returncode if worker.process else None
            reason = f"its worker was killed by signal {-code}" if code is not None and code < 0 else f"its worker ended with exit code {code}"
            status = self._ended(planned, "failed", reason)
            if deaths > DEATHS:
                return status

    def _ended(self, planned: PlannedRun, status: str, reason: str) -> tuple[str, str]:
        """Note the end of an attempt whose worker could not."""
        attempts = self.store.directory(planned.spec.run_id) / "attempts.jsonl"
        rows = read_lines(attempts)
        if rows and "ended" not in rows[-1]:
            with attempts.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"attempt": rows[-1]["attempt"], "ended": now_iso(), "status": status, "reason": reason}) + "\n")
        return status, reason

    def _watch(self, worker: Worker, planned: PlannedRun, began: float, limit: list[str]) -> None:
        """While a worker trains: pass a stop on to it, end it where it takes too long or has gone silent."""
        elapsed = time.monotonic() - began
        if self.stop is not None:
            if not limit[0]:
                worker.signal(signal.SIGINT if self.stop == "interrupted" else signal.SIGTERM)
                self._stop_since = getattr(self, "_stop_since", time.monotonic())
            if time.monotonic() - self._stop_since > GRACE_S:
                worker.signal(signal.SIGKILL)
        elif self.wall_limit_s is not None and elapsed > self.wall_limit_s:
            limit[0] = f"it ran longer than its wall limit of {self.wall_limit_s:.0f} s"
            worker.signal(signal.SIGKILL)
        elif elapsed > self.silence_limit_s and self._silence(planned) > self.silence_limit_s:
            limit[0] = f"it was silent for more than {self.silence_limit_s:.0f} s"
            worker.signal(signal.SIGKILL)

    def _silence(self, planned: PlannedRun) -> float:
        try:
            return time.time() - (self.store.directory(planned.spec.run_id) / "heartbeat.json").stat().st_mtime
        except OSError:
            return float("inf")

    def progress(self) -> list[tuple[PlannedRun, Event]]:
        """The runs in progress with their last heartbeat: step, steps, val_loss."""
        with self.lock:
            running = list(self.running.values())
        return [(r, read_json(self.store.directory(r.spec.run_id) / "heartbeat.json") or {}) for r in running]
