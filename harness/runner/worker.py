"""A worker: takes run after run on its devices, each from a clean state, and tells how it ended.

`python -m harness.runner.worker MODULE:FUNCTION [forks | N_PROCESSES DEVICE]`. Requests are JSON
lines on standard input, and one JSON line answers each (messages.py says what they hold).
With `forks` every request is done in a fork of this process. With N_PROCESSES it is one rank of a
torchrun group: the first rank reads the requests, claims and writes, all of them train.
A worker dies with its runner: the end of its input ends it at once.
"""

import gc
import json
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

from harness.provenance.machine import describe_environment
from harness.provenance.source import source_of
from harness.runner.executor import tell_stops
from harness.runner.forks import requests_in_forks, wait_for_end
from harness.runner.messages import WorkerEvent
from harness.runner.service import Answers, RequestReader, answer_requests
from harness.runner.train_run import Alone, StopRequest, keep_kernels, load_trainer

if TYPE_CHECKING:
    from harness.runner.worker_group import RankGroup

GROUP = "harness.runner.worker_group"  # imports torch, which a worker of one process may do without
READY = WorkerEvent(status="ready")


def serve_in_one_process(trainer: str, stop: StopRequest) -> None:
    """Every request in this process, which stays warm."""
    answers, began = Answers(), time.perf_counter()
    reader = RequestReader()
    train = load_trainer(trainer)
    gc.freeze()  # what the imports made stays; collecting after a run is quick then
    answers.send(READY)
    requests = reader.requests(time.perf_counter() - began)
    answer_requests(requests, answers, train, peers=Alone(), stop=stop)


def serve_in_forks(trainer: str, stop: StopRequest) -> None:
    """Every request in a fork of this process, which has imported everything and done nothing."""
    answers, began = Answers(), time.perf_counter()
    train = load_trainer(trainer)
    describe_environment()  # this and the source each fork would look up again
    source_of()
    gc.freeze()
    answers.send(READY)
    requests = requests_in_forks(time.perf_counter() - began, prepare_compiler)
    answer_requests(requests, answers, train, peers=Alone(), stop=stop)


def serve_in_group(trainer: str, n_processes: int, device: str) -> None:
    """Every request on all ranks of a torchrun group, of which this process is one.

    A signal ends a rank at once: ranks cannot stop at different steps.
    """
    answers, began = Answers(), time.perf_counter()
    if os.environ["RANK"] == "0":
        reader = RequestReader()
    else:  # leaves the requests to the first rank, but ends with the runner too
        threading.Thread(target=wait_for_end, args=(0,), daemon=True).start()
    train = load_trainer(trainer)
    ranks: RankGroup = import_module(GROUP).RankGroup(n_processes, device)
    gc.freeze()
    if ranks.rank > 0:
        ranks.follow_requests(train)
    answers.send(READY)
    requests = reader.requests(time.perf_counter() - began)
    answer_requests(requests, answers, train, peers=ranks, stop=StopRequest())


def prepare_compiler(line: str) -> None:
    """If this request compiles: what each fork would import and ask of the machine again."""
    request = json.loads(line)
    if not request.get("cache"):
        return
    keep_kernels(request["cache"])
    with suppress(Exception):  # a fork meets it again, and says it; other versions may lack names
        import_module("torch._inductor.compile_fx")
        import_module("torch._inductor.codecache").torch_key()
        if request["spec"]["device"] == "cpu":
            import_module("torch._inductor.cpu_vec_isa").pick_vec_isa()


def main() -> None:
    trainer, *arguments = sys.argv[1:]
    if len(arguments) > 1:
        n_processes, device = arguments
        serve_in_group(trainer, int(n_processes), device)
        return
    stop = StopRequest()
    tell_stops(stop.ask, (signal.SIGINT, signal.SIGTERM))
    if arguments == ["forks"]:
        serve_in_forks(trainer, stop)
    else:
        serve_in_one_process(trainer, stop)


if __name__ == "__main__":
    main()
