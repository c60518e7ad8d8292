"""A worker: takes run after run on its devices, each from a clean state, and tells how it ended.

`python -m harness.runner.worker MODULE:FUNCTION [forks | N_PROCESSES DEVICE]`. Orders are JSON lines on standard input: {"results":
folder, "spec": config.yaml's mapping, "command": text, "token": text, "cache": its mark among the compiled kernels or null}, and
"micro_tokens" where memory ran out before. One JSON line answers each: {"status", "reason", "val_loss"},
where the status may also be "taken" (the run is done, or somebody else's) or "broken" (nothing can go on).
With `forks` every order is done in a fork of this process. With N_PROCESSES it is one rank of a torchrun group: the first rank
reads the orders, claims and writes, all of them train.
A worker dies with its runner: the end of its input ends it at once.
"""

import gc
import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

from harness.config import plugins
from harness.corpora.index import open_corpus
from harness.errors import UserError
from harness.node.gpus import Sampler
from harness.node.memory import peak_mib
from harness.provenance.interpreters import EFFECT
from harness.provenance.machine import describe_environment, environment_lock, working_diff
from harness.provenance.redact import redact
from harness.provenance.source import changed_files, snapshot, source_of
from harness.run.files import write_json
from harness.run.spec import RESULT_STATUSES, Outcome, RunSpec
from harness.runner.forks import orders_in_forks, wait_for_end
from harness.store.attempt import RunWriter, claim
from harness.store.errors import ResultsError
from harness.store.store import Store
from harness.training.output import RunOutput, Silent

Trainer = Callable[..., Outcome]
Event = dict[str, Any]
NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")  # how libraries say it without a type of their own
# A rank whose peer died fails too: the launcher ends it while it waits, so that only the death is told. What fails on every
# rank is the first one's to tell; a further rank that fails alone ends the group, later.
FIRST_TELLS_S, FURTHER_ENDS_S = 3.0, 10.0
KERNEL_CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
_stop: str | None = None  # the status that a signal asks for: "interrupted" or "preempted"


def _on_signal(number: int, frame: Any) -> None:
    global _stop
    _stop = "interrupted" if number == signal.SIGINT else "preempted"


def load_trainer(text: str) -> Trainer:
    """The function of MODULE:FUNCTION: (spec, out=, device=, stop=) -> Outcome, like harness.training.train.train."""
    module, _, name = text.partition(":")
    return getattr(import_module(module), name)


def run(spec: RunSpec, out: RunOutput, train: Trainer) -> Outcome:
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
        words = redact(f"{type(error).__name__}: {error}".rstrip(": ").splitlines()[0][:500])
        no_memory = isinstance(error, MemoryError) or any(text in str(error) for text in NO_MEMORY)
        peak = {"peak_rss_mib": peak_mib(os.getpid())} if no_memory else {}
        return Outcome(status="oom" if no_memory else "failed", reason=words, final=peak)
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


def _facts(path: str) -> tuple[int, ...] | None:
    """Size, time and place of a file; None where it is not there."""
    try:
        s = os.stat(path)
    except OSError:
        return None
    return s.st_size, s.st_mtime_ns, s.st_ino


def look_at(name: str) -> dict[str, tuple[int, ...] | None]:
    """The facts of every file that a corpus's runs read; nothing where there is no such corpus, which the run will say."""
    try:
        shards = open_corpus(name).shards
    except UserError:
        return {}
    return {str(p): _facts(str(p)) for role in ("train", "val") for p in shards[role]}


def check_data(before: Mapping[str, tuple[int, ...] | None], outcome: Outcome) -> Outcome:
    """The outcome, or a failure: a result made from data that changed meanwhile is none."""
    changed = ", ".join(Path(p).name for p, facts in before.items() if _facts(p) != facts)
    if outcome.status not in RESULT_STATUSES or not changed:
        return outcome
    return Outcome(status="failed", reason=f"its data changed while it ran ({changed}): prepare the corpus again, then run again")


def keep_kernels(mark: str) -> None:
    """Compiled kernels go to the folder of a configuration's mark."""
    os.environ.update(dict.fromkeys(KERNEL_CACHES, str(Path(mark).parent)))


def as_ordered(order: Event) -> tuple[RunSpec, RunSpec]:
    """The run, and how it is to be trained: in smaller pieces where memory ran out before. Sets where kernels are kept."""
    spec = RunSpec.from_mapping(order["spec"])
    if order.get("cache"):
        Path(order["cache"]).mkdir(parents=True, exist_ok=True)
        keep_kernels(order["cache"])
    if "micro_tokens" not in order:
        return spec, spec
    data = {**spec.config["data"], "micro_tokens": order["micro_tokens"]}
    words = f"data.micro_tokens={order['micro_tokens']} instead of {spec.config['data']['micro_tokens']}: memory ran out before"
    spec = replace(spec, substituted=(*spec.substituted, words))
    return spec, replace(spec, config={**spec.config, "data": data})


class Ranks:
    """The processes of this worker: one, or a torchrun group that does everything together, led by its first rank."""

    def __init__(self, n_processes: int, device: str) -> None:
        self.rank, self.n_processes = 0, n_processes
        if n_processes > 1:
            import torch.distributed as dist

            from harness.training.runtime import join_group

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


def lead(order: Event, store: Store, ranks: Ranks, train: Trainer, wall: Mapping[str, float]) -> Event:
    """One order on the first rank: claim, train, finish. wall: what the worker itself cost this run so far."""
    spec, trained = as_ordered(order)
    began = time.perf_counter()
    out = claim(store, spec, token=order["token"])
    ranks.share(None if out is None else out.attempt)
    if out is None:
        return {"status": "taken"}
    try:
        _record(store, spec, out, order)
        data = look_at(spec.data_name)
        with _into_log(out), Sampler(out.metric) as sampler:
            outcome = run(trained, out, train)
        outcome = check_data(data, outcome)
        if ranks.n_processes > 1 and outcome.status == "failed":
            time.sleep(FIRST_TELLS_S)
        wall = {**wall, **outcome.wall, "total_s": wall.get("import_s", 0.0) + time.perf_counter() - began}
        effect = {"environment_effect": os.environ[EFFECT]} if EFFECT in os.environ else {}
        out.finish(replace(outcome, wall=wall, marks={**outcome.marks, "gpu": sampler.summary(), **effect}))
    finally:
        out.release()
    return {"status": outcome.status, "reason": outcome.reason, "val_loss": outcome.final.get("val_loss")}


def follow(order: Event, store: Store, ranks: Ranks, train: Trainer) -> None:
    """One order on a further rank. If it fails here, the group ends, and this rank's reason is left for the runner."""
    spec, trained = as_ordered(order)
    attempt = ranks.share(None)
    if attempt is None:
        return
    outcome = run(trained, Silent(), train)
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


def _orders(lines: "queue.Queue[str]", import_s: float) -> Iterator[tuple[str, dict[str, float]]]:
    """Every order, and what the worker itself cost it: its imports are paid once."""
    wall = {"import_s": import_s}
    while True:
        began = time.perf_counter()
        line = lines.get()
        yield line, {**wall, "idle_s": time.perf_counter() - began}
        wall = {}


def prepare_compiler(line: str) -> None:
    """If this order compiles: what by itself a fork would import and ask of torch and the machine, and the next one again."""
    order = json.loads(line)
    if order.get("cache"):
        keep_kernels(order["cache"])
        with suppress(Exception):  # a fork meets it again, and says it; other versions may lack the names
            import_module("torch._inductor.compile_fx")
            import_module("torch._inductor.codecache").torch_key()
            if order["spec"]["device"] == "cpu":
                import_module("torch._inductor.cpu_vec_isa").pick_vec_isa()


def serve(trainer: str, n_processes: int = 1, device: str = "cpu", *, forks: bool = False) -> None:
    """Orders until they end."""
    answers, began = os.fdopen(os.dup(1), "w"), time.perf_counter()
    os.dup2(2, 1)
    lines: queue.Queue[str] = queue.Queue()
    if n_processes > 1 and os.environ["RANK"] != "0":  # leaves the orders to the first rank, but ends with the runner too
        threading.Thread(target=wait_for_end, args=(0,), daemon=True).start()
    elif not forks:
        threading.Thread(target=_read_orders, args=(lines,), daemon=True).start()
    train, ranks = load_trainer(trainer), Ranks(n_processes, device)
    if forks:  # what each of them would look up again
        describe_environment()
        source_of()
    gc.freeze()  # what the imports made stays; collecting after a run is quick then

    def answer(event: Event) -> None:
        answers.write(json.dumps(event) + "\n")
        answers.flush()

    if ranks.rank > 0:
        while True:
            order = ranks.share(None)
            follow(order, Store(Path(order["results"])), ranks, train)
            gc.collect()
    answer({"status": "ready"})
    import_s = time.perf_counter() - began
    for line, wall in orders_in_forks(import_s, prepare_compiler) if forks else _orders(lines, import_s):
        order = json.loads(line)
        try:
            check_unchanged(RunSpec.from_mapping(order["spec"]))
            store = Store(Path(order["results"]))
            answer(lead(ranks.share(order), store, ranks, train, wall))
        except (OSError, UserError) as error:
            answer({"status": "broken", "reason": str(error)})
        gc.collect()


def main() -> None:
    if len(sys.argv) > 3:
        serve(sys.argv[1], int(sys.argv[2]), sys.argv[3])  # a signal ends a rank at once: ranks cannot stop at different steps
    else:
        signal.signal(signal.SIGINT, _on_signal)
        signal.signal(signal.SIGTERM, _on_signal)
        serve(sys.argv[1], forks=sys.argv[2:] == ["forks"])


if __name__ == "__main__":
    main()
