"""A worker: takes run after run on its devices, each from a clean state, and tells how it ended.

`python -m harness.worker MODULE:FUNCTION [ORDER_FILE]`. Orders are JSON lines on standard input, {"results": folder,
"spec": config.yaml's mapping, "command": text}; one JSON line answers each ({"status", "reason"}, or {"status": "taken"} if the run is done or somebody else's). A worker dies
with its runner: the end of its input ends it at once. Several ranks (torchrun) take one order from a file instead.
"""

import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from harness import plugins
from harness.errors import UserError
from harness.provenance import describe_environment
from harness.records import Outcome, RunSpec
from harness.source import snapshot, source_of
from harness.store import RunWriter, Silent, Store

Trainer = Callable[..., Outcome]
_stop: str | None = None  # the status that a signal asks for: "interrupted" or "preempted"


def _on_signal(number: int, frame: Any) -> None:
    global _stop
    _stop = "interrupted" if number == signal.SIGINT else "preempted"


def load_trainer(text: str) -> Trainer:
    """The function of MODULE:FUNCTION: (spec, out=, device=, stop=) -> Outcome, like harness.train.train."""
    module, _, name = text.partition(":")
    return getattr(import_module(module), name)


def run(spec: RunSpec, out: RunWriter | Silent, train: Trainer) -> Outcome:
    """Train, with every way it can end turned into an outcome."""
    try:
        if source_of(plugins.paths()).digest != spec.source_digest:
            raise UserError("the source changed since the run was planned: run the command again")
        outcome = train(spec, out=out, device=spec.device, stop=lambda: _stop is not None)
    except MemoryError as error:
        return Outcome(status="oom", reason=f"out of memory: {error}".rstrip(": "))
    except UserError as error:
        return Outcome(status="failed", reason=str(error))
    except Exception as error:
        for line in traceback.format_exc().splitlines():
            out.log(line)
        return Outcome(status="failed", reason=f"{type(error).__name__}: {error}".splitlines()[0][:500])
    if outcome.status == "interrupted" and _stop is not None:
        return Outcome(status=_stop, reason="stopped by a signal")  # type: ignore[arg-type]
    return outcome


def take(order: dict[str, Any], train: Trainer, import_s: float) -> dict[str, Any]:
    """One order on a single process: claim, train, finish."""
    spec = RunSpec.from_mapping(order["spec"])
    store = Store(Path(order["results"]))
    began = time.perf_counter()
    out = store.claim(spec)
    if out is None:
        return {"status": "taken"}
    _record(store, spec, out, order)
    with _into_log(out):
        outcome = run(spec, out, train)
    wall = {"import_s": import_s, **outcome.wall, "total_s": import_s + time.perf_counter() - began}
    out.finish(Outcome(status=outcome.status, reason=outcome.reason, final=outcome.final, wall=wall))
    return {"status": outcome.status, "reason": outcome.reason}


def _record(store: Store, spec: RunSpec, out: RunWriter, order: dict[str, Any]) -> None:
    """Environment, versions and code of the attempt."""
    environment = describe_environment(order.get("command"))
    out.describe(environment)
    lock = json.dumps(environment["lock"], indent=1).encode()
    store.keep_once("environments", spec.environment_digest, ".json", lambda: lock)
    store.keep_once("code", spec.source_digest, ".zip", lambda: snapshot(plugins.paths()))


class _into_log:  # noqa: N801  (used like a function)
    """Send what anything prints meanwhile to the run's log."""

    def __init__(self, out: RunWriter) -> None:
        self.target = out._log.fileno()

    def __enter__(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self.saved = os.dup(1), os.dup(2)
        os.dup2(self.target, 1)
        os.dup2(self.target, 2)

    def __exit__(self, *_: object) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, saved in enumerate(self.saved, start=1):
            os.dup2(saved, number)
            os.close(saved)


def serve(trainer: str) -> None:
    """Orders from standard input until it ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    orders: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            orders.put(line)
        os._exit(0)  # the runner is gone or done: no run outlives it, and none has a result before it is whole

    began = time.perf_counter()
    train = load_trainer(trainer)
    import_s = time.perf_counter() - began
    answers.write(json.dumps({"status": "ready"}) + "\n")
    answers.flush()
    threading.Thread(target=read, daemon=True).start()
    while (line := orders.get()) is not None:
        try:
            answer = take(json.loads(line), train, import_s)
        except (OSError, UserError) as error:  # the results folder itself: disk full, unmounted
            answer = {"status": "failed", "reason": f"results folder: {error}"}
        import_s = 0.0  # paid once
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def serve_group(trainer: str, order_file: Path) -> None:
    """One order, taken by every rank of a torchrun group together; the first rank claims and writes."""
    import torch.distributed as dist

    from harness.train import join_group

    order = json.loads(order_file.read_text())
    spec = RunSpec.from_mapping(order["spec"])
    began, train = time.perf_counter(), load_trainer(trainer)
    rank = join_group(spec.world_size, spec.device)
    store = Store(Path(order["results"]))
    out: RunWriter | Silent | None = store.claim(spec) if rank == 0 else Silent()
    go = [out is not None]
    dist.broadcast_object_list(go, src=0)
    code = 0
    if go[0] and out is not None:
        if isinstance(out, RunWriter):
            _record(store, spec, out, order)
        outcome = run(spec, out, train)
        if isinstance(out, RunWriter):
            wall = {**outcome.wall, "total_s": time.perf_counter() - began}
            out.finish(Outcome(status=outcome.status, reason=outcome.reason, final=outcome.final, wall=wall))
        code = 0 if outcome.status in ("finished", "diverged") else 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # gloo's threads may abort an interpreter that is shutting down


def main() -> None:
    signal.signal(signal.SIGINT, _on_signal)
    signal.signal(signal.SIGTERM, _on_signal)
    if len(sys.argv) > 2:
        serve_group(sys.argv[1], Path(sys.argv[2]))
    else:
        serve(sys.argv[1])


if __name__ == "__main__":
    main()
