"""The ranks of a torchrun group, which do everything together, led by the first one.

A rank whose peer died fails too: the launcher ends it while it waits, so that only the death is
told. What fails on every rank is the first one's to tell; a further rank that fails alone ends the
group, later.
"""

import gc
import os
import time
from datetime import timedelta
from typing import Any, NoReturn

import torch.distributed as dist

from harness.run.files import write_json
from harness.run.guarded import OF_ATTEMPT
from harness.run.spec import RESULT_STATUSES
from harness.runner.messages import WorkerRequest
from harness.runner.service import free_devices
from harness.runner.train_run import StopRequest, Trainer, as_requested, run
from harness.store.store import Store
from harness.training.output import Silent
from harness.training.runtime import join_group

FIRST_TELLS_S = 3.0
FURTHER_ENDS_S = 10.0
LONG = timedelta(days=365)  # ranks may wait long for a request


class RankGroup:
    """This process's place in its group, joined when made."""

    def __init__(self, n_processes: int, device: str) -> None:
        self.rank = join_group(n_processes, device)
        self.control = dist.new_group(backend="gloo", timeout=LONG)

    def share(self, value: Any) -> Any:
        """The first rank's value, on every rank."""
        box = [value]
        dist.broadcast_object_list(box, src=0, group=self.control)
        return box[0]

    def wait_after_failure(self) -> None:
        time.sleep(FIRST_TELLS_S)

    def follow_requests(self, train: Trainer) -> NoReturn:
        """What a further rank does, until its process is ended."""
        while True:
            self._follow(self.share(None), train)
            free_devices()
            gc.collect()

    def _follow(self, request: WorkerRequest, train: Trainer) -> None:
        """One request. If it fails here, the group ends; the runner finds this rank's reason."""
        trained = as_requested(request)
        attempt = self.share(None)
        if attempt is None:
            return
        store = Store(request.results)
        out = Silent(trunk_file=store.trunk_file(request.spec))
        outcome = run(trained, out, train, StopRequest())  # no signal asks a rank to stop
        if outcome.status not in RESULT_STATUSES:
            attempts = store.directory(request.spec.run_id) / "attempts"
            reason = f"rank {self.rank}: {outcome.reason}"
            left = attempts / str(attempt) / f"rank{self.rank}.json"
            told = {"status": outcome.status, "reason": reason}
            write_json(left, told, below=OF_ATTEMPT)
            time.sleep(FURTHER_ENDS_S)
            os._exit(1)
