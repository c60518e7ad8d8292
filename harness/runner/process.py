"""A worker process, or a torchrun group, as the runner sees it: requests, events, its death."""

import os
import select
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness.node.load import MARK
from harness.node.memory import oom_counter, oom_kills, peak_mib
from harness.node.slots import Slot
from harness.provenance.interpreters import EFFECT, effect, start_of
from harness.provenance.machine import HERE
from harness.runner.messages import WorkerEvent, WorkerRequest

GRACE_S = 20.0  # a worker whose input has ended has this long to be gone
TORCHRUN_VARIABLES = (  # of a group that we may run inside: not for the groups that we start
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
)


def ignore_usr2(command: Sequence[str]) -> list[str]:
    """The command, deaf to the signal that tells every process of a Slurm job that its time is up.

    One of them is to act on it.
    """
    return ["sh", "-c", 'trap "" USR2; exec "$0" "$@"', *command]


@dataclass(frozen=True, kw_only=True)
class Invitation:
    """How the first of several nodes is met: it writes its address:port into a file."""

    file: Path
    address: str  # of this node


@dataclass(frozen=True, kw_only=True)
class Group:
    """The processes of a worker: one, or a torchrun group on this node or on several."""

    n_per_node: int = 1
    n_nodes: int = 1
    node: int = 0
    invites: Invitation | None = None  # of the first of several nodes
    joins: str | None = None  # of the others: address:port of the first one

    @property
    def size(self) -> int:
        return self.n_per_node * self.n_nodes

    def arguments(self, trainer: str, device: str, *, forks: bool = False) -> list[str]:
        """Of the interpreter that starts the worker."""
        worker = ["-m", "harness.runner.worker", trainer]
        if self.size == 1:
            return [*worker, "forks"] if forks else worker
        processes = ["--nproc-per-node", str(self.n_per_node)]
        return [*self._launcher(), *processes, *worker, str(self.size), device]

    def _launcher(self) -> list[str]:
        """Torchrun, and how its nodes meet: on a port that is bound as soon as it is chosen."""
        nodes = ["--nnodes", str(self.n_nodes), "--node-rank", str(self.node)]
        if self.invites is not None:
            place = [str(self.invites.file), self.invites.address]
            return ["-m", "harness.runner.first_node", *place, *nodes]
        torchrun = ["-m", "torch.distributed.run"]
        if self.joins is None:
            return [*torchrun, "--standalone"]
        address, _, port = self.joins.rpartition(":")
        return [*torchrun, *nodes, "--master-addr", address, "--master-port", port]


class WorkerProcess:
    """A worker's process from its start to its end. of_one: it is no torchrun group."""

    def __init__(
        self, command: Sequence[str], variables: Mapping[str, str], *, of_one: bool
    ) -> None:
        self.of_one = of_one
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed by end)
        # a session of its own: Ctrl-C reaches the runner alone, which then ends its workers
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=variables,
            start_new_session=True,
        )
        assert self.process.stdin is not None and self.process.stdout is not None  # both are pipes
        self.requests = self.process.stdin
        self.answers = self.process.stdout
        self.unread = b""
        self.ready = False
        self.oom_counter = oom_counter(self.process.pid)
        self.oom_kills_before = oom_kills(self.oom_counter)
        self.peak_mib = 0.0

    def alive(self) -> bool:
        return self.process.poll() is None

    def send(self, request: WorkerRequest) -> None:
        """Give it something to do; whether it lived to read it shows in the next event."""
        self.oom_kills_before = oom_kills(self.oom_counter)
        with suppress(BrokenPipeError):
            self.requests.write(request.to_line())
            self.requests.flush()

    def event(self, timeout_s: float) -> WorkerEvent | None:
        """Its answer; "died" if it is no more ("oom" by the kernel's hand); None if not in time."""
        self.peak_mib = max(self.peak_mib, peak_mib(self.process.pid))
        if b"\n" not in self.unread:
            if not self._can_read(timeout_s):
                if self.alive():
                    return None
                # a group's launcher is gone; its ranks hold its output and may wait long for it:
                # they go by the end of input
                self._end_input()
                if not self._can_read(GRACE_S):
                    return self._death()
            chunk = os.read(self.answers.fileno(), 65536)
            if not chunk:
                return self._death()
            self.unread += chunk
        if b"\n" not in self.unread:
            return None
        line, _, self.unread = self.unread.partition(b"\n")
        event = WorkerEvent.from_line(line)
        if event.status == "ready":
            self.ready = True
            return None
        return event

    def end(self, grace_s: float) -> None:
        """End its input, wait so long until it is gone, then kill it."""
        self._end_input()
        self._wait_or_kill(grace_s)
        self.answers.close()
        self.errors.close()

    def _can_read(self, timeout_s: float) -> bool:
        readable, _, _ = select.select([self.answers], [], [], timeout_s)
        return bool(readable)

    def _end_input(self) -> None:
        with suppress(BrokenPipeError):
            self.requests.close()

    def _wait_or_kill(self, grace_s: float) -> int:
        """Its exit code."""
        try:
            return self.process.wait(timeout=grace_s)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            return self.process.wait()

    def _death(self) -> WorkerEvent:
        code = self._wait_or_kill(GRACE_S)
        if oom_kills(self.oom_counter) > self.oom_kills_before:
            return self._killed_for_memory()
        how = f"its worker ended with exit code {code}"
        if code < 0:
            how = f"its worker was killed by signal {-code}"
        said = self._last_line_of_errors()
        if said:
            how += f": {said}"
        never_started = not self.ready and code > 0 and self.of_one
        return WorkerEvent(status="broken" if never_started else "died", reason=how)

    def _killed_for_memory(self) -> WorkerEvent:
        reason = "the kernel ended its worker: out of memory"
        if self.of_one and self.peak_mib:
            reason += f" beyond {self.peak_mib:.0f} MiB"
        return WorkerEvent(status="oom", reason=reason, unnoted=True)

    def _last_line_of_errors(self) -> str:
        """The last line of its standard error that says something."""
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").splitlines()
        for line in reversed(lines):
            if any(character.isalpha() for character in line):
                return line.strip()[:300]
        return ""


class Worker:
    """The worker of one slot: its process is started when first needed, and again after it died."""

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
        """trainer: MODULE:FUNCTION. device: cpu or cuda.

        runs_in: another interpreter or a container; empty: ours. forks: every request is done in a
        fork of the process.
        """
        self.slot = slot
        self.trainer = trainer
        self.device = device
        self.group = group or Group(n_per_node=slot.size)
        self.runs_in = dict(runs_in or {})
        self.forks = forks
        self.process: WorkerProcess | None = None

    def environment(self) -> dict[str, str]:
        variables = dict(os.environ)
        for name in TORCHRUN_VARIABLES:
            variables.pop(name, None)
        if self.runs_in:
            variables["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
            variables[EFFECT] = effect(self.runs_in) or ""
        variables["OMP_NUM_THREADS"] = str(self.slot.threads)
        variables["MKL_NUM_THREADS"] = str(self.slot.threads)
        variables["PYTHONUNBUFFERED"] = "1"
        variables[MARK] = uuid.uuid4().hex
        return variables | self.slot.variables

    def start(self) -> WorkerProcess:
        """A new process, in the place of any before."""
        self.kill()
        arguments = self.group.arguments(self.trainer, self.device, forks=self.forks)
        command = ignore_usr2([*start_of(self.runs_in), *arguments])
        self.process = WorkerProcess(command, self.environment(), of_one=self.group.size == 1)
        return self.process

    def alive(self) -> bool:
        return self.process is not None and self.process.alive()

    def send(self, request: WorkerRequest) -> WorkerProcess:
        """Give it something to do; the process that was told, whose next event answers."""
        process = self.process
        if process is None or not process.alive():
            process = self.start()
        process.send(request)
        return process

    def close(self) -> None:
        """End it: its input ends, so it goes by itself, ranks of a group too."""
        self._end(GRACE_S)

    def kill(self) -> None:
        """End it now. Ranks have sessions of their own: they go by the end of their input."""
        self._end(0)

    def _end(self, grace_s: float) -> None:
        if self.process is not None:
            self.process.end(grace_s)
            self.process = None
