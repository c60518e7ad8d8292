"""The loop of a worker's first process: requests come in, each is done, its answer goes out."""

import gc
import os
import queue
import sys
import threading
import time
from collections.abc import Iterable, Iterator

from harness.errors import UserError
from harness.run.code import take_digests
from harness.runner.messages import WorkerEvent, WorkerRequest
from harness.runner.train_run import Peers, StopRequest, Trainer, lead
from harness.runner.unchanged import check_unchanged

WallSeconds = dict[str, float]  # seconds by phase: what the worker itself cost a run


class Answers:
    """This process's standard output; whatever else prints there goes to standard error instead."""

    def __init__(self) -> None:
        self.file = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def send(self, event: WorkerEvent) -> None:
        self.file.write(event.to_line())
        self.file.flush()


class RequestReader:
    """Reads requests in the background, and ends this process with its input.

    Then the runner is gone or done: no run outlives it, and none has a result before it is whole.
    """

    def __init__(self) -> None:
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            self.lines.put(line)
        os._exit(0)

    def requests(self, import_s: float) -> Iterator[tuple[str, WallSeconds]]:
        """Every request with what the worker itself cost it; its imports are paid once."""
        wall = {"import_s": import_s}
        while True:
            began = time.perf_counter()
            line = self.lines.get()
            wall["idle_s"] = time.perf_counter() - began
            yield line, wall
            wall = {}


def answer_requests(
    requests: Iterable[tuple[str, WallSeconds]],
    answers: Answers,
    train: Trainer,
    *,
    peers: Peers,
    stop: StopRequest,
) -> None:
    """Do each request and send its answer, until they end.

    requests: lines, each with seconds that the worker cost by phase. peers: the other ranks.
    stop: what a signal has asked for.
    """
    for line, wall in requests:
        request = WorkerRequest.from_line(line)
        try:
            take_digests(request.digests)
            check_unchanged(request.spec)
            peers.share(request)
            event = lead(request, train, wall=wall, peers=peers, stop=stop)
        except (OSError, UserError) as error:
            event = WorkerEvent(status="broken", reason=str(error))
        free_devices()
        answers.send(event)
        gc.collect()


def free_devices() -> None:
    """Before the runner hands a run's GPUs to somebody else: give back the memory on them."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        gc.collect()
        torch.cuda.empty_cache()
