"""A worker: takes run after run on its devices, each from a clean state, and tells how it ended.

`python -m harness.worker MODULE:FUNCTION [N_PROCESSES DEVICE]`. Orders are JSON lines on standard input: {"results": folder,
"spec": config.yaml's mapping, "command": text, "token": text}. One JSON line answers each: {"status", "reason", "val_loss"},
where the status may also be "taken" (the run is done, or somebody else's) or "broken" (nothing can go on).
With N_PROCESSES it is one rank of a torchrun group: the first rank reads the orders, claims and writes, all of them train.
A worker dies with its runner: the end of its input ends it at once.
"""

import gc
import json
import os
import queue
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

from harness import plugins
from harness.errors import UserError
from harness.provenance import describe_environment, environment_lock, working_diff
from harness.records import RESULT_STATUSES, Outcome, RunSpec
from harness.source import changed_files, snapshot, source_of
from harness.store import ResultsError, Store, write_json
from harness.writer import RunWriter, Silent

Trainer = Callable[..., Outcome]
Event = dict[str, Any]
NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")  # how libraries say it without a type of their own
# A rank whose peer died fails too: the launcher ends it while it waits, so that only the death is told. What fails on every
# rank is the first one's to tell; a further rank that fails alone ends the group, later.
FIRST_TELLS_S, FURTHER_ENDS_S = 3.0, 10.0
_stop: str | None = None  # the status that a signal asks for: "interrupted" or "preempted"


def _on_signal(number: int, frame: Any) -> None:
    global _stop
    _stop = "interrupted" if number == signal.SIGINT else "preempted"


def load_trainer(text: str) -> Trainer:
    """The function of MODULE:FUNCTION: (spec, out=, device=, stop=) -> Outcome, like harness.train.train."""
    module, _, name = text.partition(":")
    return getattr(import_module(module), name)


def run(spec: RunSpec, out: RunWriter | Silent, train: Trainer) -> Outcome:
    """Train, with every way it can end turned into an outcome. Raises ResultsError where the results cannot be written."""
    try:
        outcome = train(spec, out=out, device=spec.device, stop=lambda: _stop is not None)
    except ResultsError:
        raise
    except UserError as error:
        return Outcome(status="failed", reason=str(error))
    except Exception as error:
        for line in traceback.format_exc().splitlines():
            out.log(line)
        words = f"{type(error).__name__}: {error}".rstrip(": ").splitlines()[0][:500]
        no_memory = isinstance(error, MemoryError) or any(text in str(error) for text in NO_MEMORY)
        return Outcome(status="oom" if no_memory else "failed", reason=words)
    if outcome.status == "interrupted" and _stop is not None:
        return Outcome(status=_stop, reason="stopped by a signal")  # type: ignore[arg-type]
    return outcome


def check_unchanged(spec: RunSpec) -> None:
    """Raises UserError if the code or the environment is no longer the one that the run was planned with."""
    source = source_of(plugins.paths())
    if source.digest != spec.source_digest:
        names = ", ".join(changed_files(spec.source_files, source.files))
        raise UserError(f"the source changed since the run was planned ({names}): run the same command again")
    if environment_lock().digest != spec.environment_digest:
        raise UserError("the environment changed since the run was planned: run the same command again")


class Ranks:
    """The processes of this worker: one, or a torchrun group that does everything together, led by its first rank."""

    def __init__(self, n_processes: int, device: str) -> None:
        self.rank, self.n_processes = 0, n_processes
        if n_processes > 1:
            import torch.distributed as dist

            from harness.train import join_group

            self.rank = join_group(n_processes, device)
            self.control = dist.new_group(backend="gloo", timeout=timedelta(days=365))  # ranks may wait long for an order

    def share(self, value: Any) -> Any:
        """The first rank's value, on every rank."""
        if self.n_processes == 1:
            return value
        import torch.distributed as dist

        box = [value]
        dist.broadcast_object_list(box, src=0, group=self.control)
        return box[0]


def lead(order: Event, store: Store, ranks: Ranks, train: Trainer, import_s: float) -> Event:
    """One order on the first rank: claim, train, finish."""
    spec = RunSpec.from_mapping(order["spec"])
    began = time.perf_counter()
    out = store.claim(spec, token=order["token"])
    ranks.share(None if out is None else out.attempt)
    if out is None:
        return {"status": "taken"}
    try:
        _record(store, spec, out, order)
        with _into_log(out):
            outcome = run(spec, out, train)
        if ranks.n_processes > 1 and outcome.status == "failed":
            time.sleep(FIRST_TELLS_S)
        wall = {"import_s": import_s, **outcome.wall, "total_s": import_s + time.perf_counter() - began}
        out.finish(Outcome(status=outcome.status, reason=outcome.reason, final=outcome.final, wall=wall))
    finally:
        out.release()
    return {"status": outcome.status, "reason": outcome.reason, "val_loss": outcome.final.get("val_loss")}


def follow(order: Event, store: Store, ranks: Ranks, train: Trainer) -> None:
    """One order on a further rank. If it fails here, the group ends, and this rank's reason is left for the runner."""
    attempt = ranks.share(None)
    if attempt is None:
        return
    spec = RunSpec.from_mapping(order["spec"])
    outcome = run(spec, Silent(), train)
    if outcome.status not in RESULT_STATUSES:
        left = store.directory(spec.run_id) / "attempts" / str(attempt) / f"rank{ranks.rank}.json"
        write_json(left, {"status": outcome.status, "reason": f"rank {ranks.rank}: {outcome.reason}"})
        time.sleep(FURTHER_ENDS_S)
        os._exit(1)


def _record(store: Store, spec: RunSpec, out: RunWriter, order: Event) -> None:
    """Environment, versions and code of the attempt."""
    environment = describe_environment(order.get("command"))
    out.describe(environment)
    lock, diff = environment["lock"], environment["git"]["diff_sha256"]
    store.keep_once("environments", spec.environment_digest, ".json", lambda: json.dumps(lock, indent=1).encode())
    store.keep_once("code", spec.source_digest, ".zip", lambda: snapshot(plugins.paths()))
    if diff is not None:
        store.keep_once("code", diff, ".diff", lambda: working_diff().encode())


@contextmanager
def _into_log(out: RunWriter) -> Iterator[None]:
    """Send what anything prints meanwhile to the run's log."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    os.dup2(out.log_file.fileno(), 1)
    os.dup2(out.log_file.fileno(), 2)
    try:
        yield
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            for number, kept in enumerate(saved, start=1):
                os.dup2(kept, number)
                os.close(kept)


def _read_orders(orders: "queue.Queue[str]") -> None:
    for line in sys.stdin:
        orders.put(line)
    os._exit(0)  # the runner is gone or done: no run outlives it, and none has a result before it is whole


def _wait_for_end() -> None:
    """A further rank leaves the orders to the first, but ends with the runner too."""
    poll = select.poll()
    poll.register(0, 0)  # nothing but the hang-up
    poll.poll()
    os._exit(0)


def serve(trainer: str, n_processes: int = 1, device: str = "cpu") -> None:
    """Orders until they end."""
    answers, began = os.fdopen(os.dup(1), "w"), time.perf_counter()
    os.dup2(2, 1)
    orders: queue.Queue[str] = queue.Queue()
    follows = n_processes > 1 and os.environ["RANK"] != "0"
    threading.Thread(target=_wait_for_end if follows else _read_orders, args=() if follows else (orders,), daemon=True).start()
    train, ranks = load_trainer(trainer), Ranks(n_processes, device)
    gc.freeze()  # what the imports made stays; collecting after a run is quick then
    import_s = time.perf_counter() - began

    def answer(event: Event) -> None:
        answers.write(json.dumps(event) + "\n")
        answers.flush()

    if ranks.rank > 0:
        while True:
            order = ranks.share(None)
            follow(order, Store(Path(order["results"])), ranks, train)
            gc.collect()
    answer({"status": "ready"})
    while True:
        order = json.loads(orders.get())
        try:
            check_unchanged(RunSpec.from_mapping(order["spec"]))
            store = Store(Path(order["results"]))
            answer(lead(ranks.share(order), store, ranks, train, import_s))
        except (OSError, UserError) as error:
            answer({"status": "broken", "reason": str(error)})
        import_s = 0.0  # paid once
        gc.collect()


def main() -> None:
    if len(sys.argv) > 2:
        serve(sys.argv[1], int(sys.argv[2]), sys.argv[3])  # a signal ends a rank at once: ranks cannot stop at different steps
    else:
        signal.signal(signal.SIGINT, _on_signal)
        signal.signal(signal.SIGTERM, _on_signal)
        serve(sys.argv[1])


if __name__ == "__main__":
    main()
