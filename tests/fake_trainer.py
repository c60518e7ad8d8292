"""A trainer without torch for the tests of the runner, and the command line that uses it.

`python tests/fake_trainer.py run EXP ...` is `ablate run EXP ...` with this trainer in the workers. Losses follow from arm,
seed and step alone. FAKE, a JSON mapping in the environment, says what happens to a seed: {"1": "raise"}; "slow once": to the
one run that makes the mark of that name first, "slow each once": to the first attempt at every run; the mark holds the run's
name. A process that waits for something makes the mark "at KIND RUN PID" first, in the folder FAKE_MARKS: tests wait for that.
A file named by KILL_IN_WRITE kills the worker that finds it, in the middle of its next write.
"""

import errno
import fcntl
import hashlib
import itertools
import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import harness.node.nvidia
import harness.node.stalls
import harness.store.claims
from harness.errors import UserError
from harness.run.digests import canonical
from harness.run.measured import Measured
from harness.run.metrics import TrainingLoss, Validation
from harness.run.spec import TRUNK_FILE, Outcome, RunSpec

STEP_S = float(os.environ.get("FAKE_STEP_S", "0.003"))
N_STEPS = 20
WAITS = (
    "wait",
    "hold",
    "slow",
    "hang",
)  # what a test ends, or lets go on: that it has come to this is marked


def kill_in_write() -> None:
    """Die between writing and flushing, with half of what was to be written, if the test asks for it now. Says who died."""
    flush, mark, began_as = os.fsync, Path(os.environ["KILL_IN_WRITE"]), os.getpid()

    def who() -> str:
        if "RANK" in os.environ:
            return "rank"
        if Path(sys.argv[0]).name != "worker.py":
            return "runner"
        if sys.argv[-1] != "forks":
            return "worker"
        return "parent" if os.getpid() == began_as else "fork"

    def fsync(fd: int) -> None:
        try:
            mark.rename(f"{mark}.{who()}")
        except OSError:
            return flush(fd)
        os.ftruncate(fd, os.fstat(fd).st_size // 2) if os.fstat(fd).st_mode & 0o100000 else None
        os.kill(os.getpid(), signal.SIGKILL)
        return None

    os.fsync = fsync


def refuse_locks() -> None:
    """As on a file system that has neither locks nor links."""

    def refused(*_: Any, **__: Any) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    os.link = os.symlink = fcntl.flock = fcntl.lockf = refused  # type: ignore[assignment]


def jump() -> None:
    """A wall clock that is days off, now this way, now that, at every look."""
    real, days = time.time, itertools.cycle((-30, 0, 30))
    time.time = lambda: real() + 86400 * next(days)


def be_elsewhere() -> None:
    """As on another machine: process numbers mean nothing to this one."""
    harness.store.claims.machine = lambda: "elsewhere"  # type: ignore[assignment]


NODES = {  # what FAKE_NODE says of the machine
    "no locks": refuse_locks,
    "jumping clock": jump,
    "elsewhere": be_elsewhere,
}
if "KILL_IN_WRITE" in os.environ:
    kill_in_write()
if "FAKE_DRIVER_S" in os.environ:
    harness.node.nvidia.ANSWERS_WITHIN_S = float(os.environ["FAKE_DRIVER_S"])
if "FAKE_STILL_S" in os.environ:
    harness.node.stalls.LONGEST_S = float(os.environ["FAKE_STILL_S"])
if "FAKE_NODE" in os.environ:
    NODES[os.environ["FAKE_NODE"]]()


def loss_of(spec: RunSpec, step: int) -> float:
    config = {
        **spec.config,
        "data": {**spec.config["data"], "micro_tokens": None},
    }  # sizes of passes change no loss
    digest = hashlib.sha256(canonical([config, spec.seed])).digest()
    return 2.0 + int.from_bytes(digest[:4]) / 2**34 + 3.5 * math.exp(-step / 5)


def train(spec: RunSpec, *, out: Any, device: str, stop: Callable[[], bool]) -> Outcome:
    kind = kind_of(spec)
    if spec.branch is not None:
        kind = "train"  # it happened to the trunk
        assert out.trunk_file.read_text() == trunk_text(spec)
    out.log("x" * int(os.environ.get("FAKE_LOG_BYTES", "0")))
    for step in range(N_STEPS + 1):
        if step % 5 == 0:
            loss = math.nan if kind == "nan" and step == 10 else loss_of(spec, step)
            out.metric(Validation(step=step, val_loss=loss, train_time_s=step * 0.01))
            if loss != loss:
                return outcome("diverged", step, loss, "the loss was not finite")
        if step == spec.until:
            out.save(TRUNK_FILE, lambda file: file.write(trunk_text(spec).encode()))
        if step in (N_STEPS, spec.until):
            return outcome("finished", step, loss, None)
        if stop():
            return Outcome(status="interrupted")
        if step == 7:
            what = first_time(kind, spec.run_id)
            wait(what, spec, out, stop)
            happen(what, out, spec.config["data"]["micro_tokens"])
        out.metric(TrainingLoss(step=step, train_loss=loss_of(spec, step)))
        out.heartbeat(step, N_STEPS)
        time.sleep(STEP_S)
    raise AssertionError


def trunk_text(spec: RunSpec) -> str:
    return f"the trunk of seed {spec.seed}"


def train_for_real(spec: RunSpec, *, out: Any, device: str, stop: Callable[[], bool]) -> Outcome:
    """The real trainer, which waits before step 7 where FAKE says so: each rank of a group."""
    import harness.training.train

    steps = itertools.count()

    def stop_or_wait() -> bool:  # asked before every step
        if next(steps) == 7:
            wait(first_time(kind_of(spec), spec.run_id), spec, out, stop)
        return stop()

    return harness.training.train.train(spec, out=out, device=device, stop=stop_or_wait)


def kind_of(spec: RunSpec) -> str:
    return json.loads(os.environ.get("FAKE", "{}")).get(str(spec.seed), "train")


def wait(kind: str, spec: RunSpec, out: Any, stop: Callable[[], bool]) -> None:
    """wait: to be told to go by a signal; hold: to be told to go on, by the mark "go"."""
    if kind not in WAITS:
        return
    marks = Path(os.environ["FAKE_MARKS"])
    (marks / f"at {kind} {spec.run_id} {os.getpid()}").touch()
    while (kind == "wait" or (kind == "hold" and not (marks / "go").exists())) and not stop():
        out.heartbeat(7, N_STEPS)
        time.sleep(0.02)


def first_time(kind: str, run_id: str) -> str:
    """What happens to this run: what happens once has happened where its mark is there. Each rank of a group has its own."""
    what = kind.removesuffix(" once").removesuffix(" each")
    if what == kind:
        return kind
    whose = f"{kind} {run_id}" if kind.endswith(" each once") else kind
    mark = Path(os.environ["FAKE_MARKS"]) / (
        f"{whose} {os.environ['RANK']}" if "RANK" in os.environ else whose
    )
    try:
        with mark.open("x") as file:  # of two runs that come at once, one makes it
            file.write(run_id)
    except FileExistsError:
        return "train"
    return what


def happen(kind: str, out: Any, micro_tokens: int) -> None:
    """What goes wrong at step 7."""
    if kind.startswith("tell "):  # everything that is secret, everywhere, and then
        kind, secrets = kind.removeprefix("tell "), os.environ["FAKE_SECRETS"]
        print(secrets, flush=True)
        os.system('echo "$FAKE_SECRETS" >&2')
        for line in secrets.splitlines():
            out.log(f"step {line}")
        if kind == "fail":
            raise ValueError(secrets)
        if kind == "say":
            raise UserError(f"refused: {secrets.splitlines()[0]}")
    for variable, what in (
        ("CUDA_VISIBLE_DEVICES", "bad gpus "),
        ("SLURMD_NODENAME", "bad nodes "),
    ):
        if not kind.startswith(what):
            continue
        marks = Path(os.environ["FAKE_MARKS"])
        if os.environ.get(variable) in kind.removeprefix(what).split(","):
            (marks / f"bad {os.getpid()}").touch()
            raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
        while len(list(marks.glob("bad *"))) < 2:  # good ones leave it two runs to fail
            time.sleep(0.02)
    if kind == "raise":
        print("about to fail with token=abcdef123")
        raise ValueError("the shapes do not match")
    what, above, size = kind.partition(" above ")
    if above:  # this many tokens in a pass
        kind = what if micro_tokens > int(size) else "train"
    if kind == "memory":
        bytearray(1 << 60)  # a real MemoryError
    if kind == "devour":
        eaten = [b"x" * (1 << 24) for _ in range(128)]  # until the kernel ends this process
        raise AssertionError(f"{len(eaten)} pieces of 16 MiB fit")
    if kind == "slow":
        for step in range(100_000):
            out.heartbeat(step, 100_000)
            time.sleep(0.02)
    if kind == "meet":  # until another runner's worker is here too
        marks = Path(os.environ["FAKE_MARKS"])
        (marks / f"runner {os.getppid()}").touch()
        while len(list(marks.glob("runner *"))) < 2:
            time.sleep(0.02)
    if kind == "hang":
        time.sleep(3600)
    if kind == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if kind in ("kill", "preempt"):
        os.kill(os.getpid(), signal.SIGKILL if kind == "kill" else signal.SIGTERM)


def outcome(status: Any, step: int, loss: float, reason: str | None) -> Outcome:
    final = Measured(
        val_loss=loss,
        train_time_s=step * 0.01,
        step_ms=10.0,
        step_ms_median=10.0,
        step_ms_p95=10.0,
        steps=step,
        tokens=step * 512,
        tokens_per_s=51200.0,
    )
    return Outcome(status=status, reason=reason, final=final, wall={"train_s": step * 0.01})


def main() -> None:
    from functools import partial

    import harness.__main__
    import harness.runner.execute
    import harness.runner.executor
    import harness.runner.limits
    import harness.runner.slurm.executor
    import harness.runner.trainers

    if "FAKE_SILENCE_S" in os.environ:
        silence = float(os.environ["FAKE_SILENCE_S"])
        harness.runner.limits.RunLimits = partial(
            harness.runner.limits.RunLimits, silence_s=silence
        )  # type: ignore[misc]
    if (
        "FAKE_STILL_UNTIL" in os.environ
    ):  # so many runs are where it is their turn to be ended: their limits count from then
        from tests.fake_matrix import clock_from

        marks, n = Path(os.environ["FAKE_MARKS"]), int(os.environ["FAKE_STILL_UNTIL"])
        harness.runner.execute.time = clock_from(lambda: len(list(marks.glob("at *"))) >= n)  # type: ignore[assignment]
    if "FAKE_POLL_S" in os.environ:
        harness.runner.slurm.executor.QUEUE_LOOK_S = float(os.environ["FAKE_POLL_S"])
    function = f"fake_trainer:{os.environ.get('FAKE_TRAINER', 'train')}"
    trainer = harness.runner.trainers.OwnTrainer(function=function)
    options = partial(harness.runner.executor.ExecutorOptions, trainer=trainer)
    harness.runner.executor.ExecutorOptions = options  # type: ignore[misc]
    harness.__main__.main(sys.argv[1:])


if __name__ == "__main__":
    main()
