"""A trainer without torch for the tests of the runner, and the command line that uses it.

`python tests/fake_trainer.py run EXP ...` is `ablate run EXP ...` with this trainer in the workers. Losses follow from arm,
seed and step alone. FAKE, a JSON mapping in the environment, says what happens to a seed: {"1": "raise"}. A file named by
KILL_IN_WRITE kills the worker that finds it, in the middle of its next write.
"""

import hashlib
import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.records import Outcome, RunSpec, canonical

STEP_S = float(os.environ.get("FAKE_STEP_S", "0.003"))
N_STEPS = 20


def kill_in_write() -> None:
    """Die between writing and flushing, with half of what was to be written, if the test asks for it now."""
    flush = os.fsync

    def fsync(fd: int) -> None:
        try:
            os.unlink(os.environ["KILL_IN_WRITE"])
        except OSError:
            return flush(fd)
        os.ftruncate(fd, os.fstat(fd).st_size // 2) if os.fstat(fd).st_mode & 0o100000 else None
        os.kill(os.getpid(), signal.SIGKILL)
        return None

    os.fsync = fsync


if "KILL_IN_WRITE" in os.environ:
    kill_in_write()


def loss_of(spec: RunSpec, step: int) -> float:
    config = {**spec.config, "data": {**spec.config["data"], "micro_tokens": None}}  # sizes of passes change no loss
    digest = hashlib.sha256(canonical([config, spec.seed])).digest()
    return 2.0 + int.from_bytes(digest[:4]) / 2**34 + 3.5 * math.exp(-step / 5)


def train(spec: RunSpec, *, out: Any, device: str, stop: Callable[[], bool]) -> Outcome:
    kind = json.loads(os.environ.get("FAKE", "{}")).get(str(spec.seed), "train")
    out.log("x" * int(os.environ.get("FAKE_LOG_BYTES", "0")))
    for step in range(N_STEPS + 1):
        if step % 5 == 0:
            loss = math.nan if kind == "nan" and step == 10 else loss_of(spec, step)
            out.metric({"kind": "val", "step": step, "val_loss": loss, "train_time_s": step * 0.01})
            if loss != loss:
                return outcome("diverged", step, loss, "the loss was not finite")
        if step == N_STEPS:
            return outcome("finished", step, loss, None)
        if stop():
            return Outcome(status="interrupted")
        if step == 7:
            happen(kind, out, spec.config["data"]["micro_tokens"])
        out.metric({"kind": "train", "step": step, "train_loss": loss_of(spec, step)})
        out.heartbeat(step, N_STEPS)
        time.sleep(STEP_S)
    raise AssertionError


def happen(kind: str, out: Any, micro_tokens: int) -> None:
    """What goes wrong at step 7."""
    if kind == "raise":
        print("about to fail with token=abcdef123")
        raise ValueError("the shapes do not match")
    if kind == "memory" or (kind.startswith("memory above") and micro_tokens > int(kind.split()[-1])):
        bytearray(1 << 60)  # a real MemoryError
    if kind == "slow once":
        mark = Path(os.environ["FAKE_MARKS"]) / kind
        kind = "train" if mark.exists() else "slow"
        mark.touch()
    if kind == "slow":
        for step in range(10_000):
            out.heartbeat(step, 10_000)
            time.sleep(0.02)
    if kind == "hang":
        time.sleep(3600)
    if kind == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if kind in ("kill once", "preempt once"):
        mark = Path(os.environ["FAKE_MARKS"]) / kind
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL if kind == "kill once" else signal.SIGTERM)
            time.sleep(0.05)


def outcome(status: Any, step: int, loss: float, reason: str | None) -> Outcome:
    final = {
        "val_loss": loss,
        "train_time_s": step * 0.01,
        "step_ms": 10.0,
        "step_ms_median": 10.0,
        "step_ms_p95": 10.0,
        "steps": step,
        "tokens": step * 512,
        "tokens_per_s": 51200.0,
    }
    return Outcome(status=status, reason=reason, final=final, wall={"train_s": step * 0.01})


def main() -> None:
    from functools import partial

    import harness.__main__
    import harness.attempt
    import harness.runner
    import harness.slurm.executor

    if "FAKE_SILENCE_S" in os.environ:
        silence = float(os.environ["FAKE_SILENCE_S"])
        harness.attempt.Limits = partial(harness.attempt.Limits, silence_s=silence)  # type: ignore[misc]
    for module, name in ((harness.runner, "Runner"), (harness.slurm.executor, "SlurmRunner")):
        setattr(module, name, partial(getattr(module, name), trainer="fake_trainer:train"))
    harness.__main__.main(sys.argv[1:])


if __name__ == "__main__":
    main()
