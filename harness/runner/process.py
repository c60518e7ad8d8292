"""A worker process, or a torchrun group of them, as the runner sees it: orders in, events out, and its death."""

import json
import os
import select
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from harness.node.memory import oom_counter, oom_kills, peak_mib
from harness.node.slots import Slot
from harness.provenance.interpreters import EFFECT, effect, start_of
from harness.provenance.machine import HERE

GRACE_S = 20.0  # a worker whose input has ended has this long to be gone
DEAF = ("sh", "-c", 'trap "" USR2; exec "$0" "$@"')  # Slurm tells every process of a job that its time is up; one is to act
Event = dict[str, Any]
OF_A_GROUP = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # of one we may run inside


@dataclass(frozen=True, kw_only=True)
class Group:
    """The processes of a worker: one, or a torchrun group on this node or on several."""

    n_per_node: int = 1
    n_nodes: int = 1
    node: int = 0
    meeting: str | None = None  # address:port of the first node; None: a rendezvous of its own, on a port that the system chooses

    @property
    def size(self) -> int:
        return self.n_per_node * self.n_nodes

    def arguments(self, trainer: str, device: str, *, forks: bool = False) -> list[str]:
        """Of the interpreter."""
        worker = ["-m", "harness.runner.worker", trainer]
        if self.size == 1:
            return [*worker, "forks"] if forks else worker
        address, _, port = (self.meeting or "").rpartition(":")
        several = ["--nnodes", str(self.n_nodes), "--node-rank", str(self.node), "--master-addr", address, "--master-port", port]
        rendezvous = ["--standalone"] if self.meeting is None else several
        torchrun = ["-m", "torch.distributed.run", *rendezvous, "--nproc-per-node", str(self.n_per_node)]
        return [*torchrun, *worker, str(self.size), device]


class WorkerProcess:
    """The worker of one slot, started when first needed and again after it died. forks: every order is done in a fork of it."""

    def __init__(
        self,
        slot: Slot,
        trainer: str,
        *,
        device: str = "cpu",
        group: Group | None = None,
        runs_in: Mapping[str, str] | None = None,
        forks: bool = False,
    ) -> None:
        self.slot, self.trainer, self.device, self.runs_in = slot, trainer, device, dict(runs_in or {})
        self.group, self.forks = group or Group(n_per_node=slot.size), forks
        self.process: subprocess.Popen[bytes] | None = None
        self.errors: IO[bytes] | None = None
        self.buffer, self.ready = b"", False
        self.counter, self.counted, self.peak_mib = Path(), 0, 0.0

    def environment(self) -> dict[str, str]:
        threads = str(self.slot.threads)
        inherited = {k: v for k, v in os.environ.items() if k not in OF_A_GROUP}
        path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
        elsewhere = {"PYTHONPATH": path, EFFECT: effect(self.runs_in) or ""} if self.runs_in else {}
        return {
            **inherited,
            **elsewhere,
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            "PYTHONUNBUFFERED": "1",
            "CUDA_VISIBLE_DEVICES": ",".join(self.slot.gpus),
        }

    def start(self) -> None:
        self.kill()
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed by _end)
        # a session of its own: Ctrl-C reaches the runner alone, which then ends its workers
        self.process = subprocess.Popen(
            [*DEAF, *start_of(self.runs_in), *self.group.arguments(self.trainer, self.device, forks=self.forks)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=self.environment(),
            start_new_session=True,
        )
        self.buffer, self.ready = b"", False
        self.counter, self.peak_mib = oom_counter(self.process.pid), 0.0

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def send(self, order: Event) -> None:
        """Give it something to do; whether it lived to read it shows in the next event."""
        if not self.alive():
            self.start()
        assert self.process is not None
        assert self.process.stdin is not None
        self.counted = oom_kills(self.counter)
        with suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(order).encode() + b"\n")
            self.process.stdin.flush()

    def event(self, timeout_s: float) -> Event | None:
        """Its answer, {"status": "died"} if it is no more ("oom" by the kernel's hand), None if neither came in time."""
        assert self.process is not None
        assert self.process.stdout is not None
        fd = self.process.stdout.fileno()
        self.peak_mib = max(self.peak_mib, peak_mib(self.process.pid))
        if b"\n" not in self.buffer:
            if not select.select([fd], [], [], timeout_s)[0]:
                if self.alive():
                    return None
                # a group's launcher is gone, its ranks hold its output and may wait long for it: they go by the end of input
                self._end_input()
                if not select.select([fd], [], [], GRACE_S)[0]:
                    return self._death()
            chunk = os.read(fd, 65536)
            if not chunk:
                return self._death()
            self.buffer += chunk
        if b"\n" not in self.buffer:
            return None
        line, _, self.buffer = self.buffer.partition(b"\n")
        event = json.loads(line)
        if event["status"] == "ready":
            self.ready = True
            return None
        return event

    def _death(self) -> Event:
        assert self.process is not None
        try:
            code = self.process.wait(timeout=GRACE_S)
        except subprocess.TimeoutExpired:
            self._signal()
            code = self.process.wait()
        if oom_kills(self.counter) > self.counted:
            beyond = f" beyond {self.peak_mib:.0f} MiB" if self.group.size == 1 and self.peak_mib else ""
            return {"status": "oom", "reason": f"the kernel ended its worker: out of memory{beyond}", "note": True}
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        last = self._last_words()
        never_ready = not self.ready and code > 0 and self.group.size == 1
        return {"status": "broken" if never_ready else "died", "reason": f"its worker {how}{f': {last}' if last else ''}"}

    def _last_words(self) -> str:
        """The last line of its standard error that says something."""
        assert self.errors is not None
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").splitlines()
        return next((line.strip()[:300] for line in reversed(lines) if any(c.isalpha() for c in line)), "")

    def _signal(self) -> None:
        assert self.process is not None
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End it: its input ends, so it goes by itself, ranks of a group too."""
        self._end(GRACE_S)

    def kill(self) -> None:
        """End it now. Ranks have sessions of their own: they go by the end of their input."""
        self._end(0)

    def _end_input(self) -> None:
        assert self.process is not None
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()

    def _end(self, grace_s: float) -> None:
        if self.process is None:
            return
        assert self.process.stdout is not None
        self._end_input()
        try:
            self.process.wait(timeout=grace_s)
        except subprocess.TimeoutExpired:
            self._signal()
            self.process.wait()
        self.process.stdout.close()
        if self.errors is not None:
            self.errors.close()
        self.process = None
