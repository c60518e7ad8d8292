"""A Ray task on its node: one run to its end, or one node's part of it.

The task claims, trains and writes as a local worker does. A node that does not see the results
folder works in one of its own, and sends what came of it back. The nodes of one run meet through an
actor (`Meeting`); Ray ends a task by an exception in its main thread, so the run has another.
"""

import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ray

from harness.errors import UserError
from harness.node.slots import Slot
from harness.run.document import Content
from harness.run.read import read_json
from harness.run.spec import RESULT_STATUSES, RunSpec
from harness.runner.execute import Execution
from harness.runner.kernels import TurnToCompile, kernel_cache
from harness.runner.limits import POLL_S, RunLimits
from harness.runner.messages import WorkerEvent
from harness.runner.process import Group, Invitation
from harness.runner.ray.files import Freight
from harness.runner.ray.incoming import packed
from harness.runner.trainers import RunMaker, RunTrainer
from harness.store.claims import last_attempt, owner_of, read_owner, told_by_ranks
from harness.store.store import Store

MEET_S = 600.0  # nodes of one run start within this time
MEETING_LOOK_S = 1.0  # between two looks at what the other nodes say
DATA = "ABLATE_DATA"
OF_RAY = "ray-"  # a job of this name is a task
WARM: list[RunMaker] = []  # of this process, from its last task; it ends with the process


@dataclass(frozen=True, kw_only=True)
class RayOrder:
    """What a task is told."""

    results: str
    mark: str  # a file below it: a node that sees this one sees the folder
    data: str  # where the corpora are, for nodes that see it
    spec: Content
    command: str
    trainer: RunTrainer
    freight: Freight
    limits: RunLimits
    warm: bool  # the next task of the same process of Ray's has the worker again
    n_per_node: int  # processes
    n_nodes: int = 1
    node: int = 0


@dataclass(frozen=True, kw_only=True)
class RayAnswer:
    """How a task ended."""

    event: WorkerEvent
    node: str  # Ray's name of it
    seconds: float
    files: bytes | None = None  # the node's own results folder, where it does not see ours
    lost_peer: bool = False  # a process on another node of the run was killed


class Meeting:
    """Where the nodes of one run find each other; an actor of Ray's."""

    def __init__(self) -> None:
        self.at: str | None = None  # address:port of the first node's processes
        self.killed: bool | None = None  # whether a further node's ended by no exception

    def meet_at(self, at: str) -> None:
        self.at = at

    def met_at(self) -> str | None:
        return self.at

    def lose(self, killed: bool) -> None:
        self.killed = killed

    def lost(self) -> bool | None:
        return self.killed


def run_order(order: RayOrder, meeting: Any = None) -> RayAnswer:
    """One run to its end. meeting: the actor, where the run has several nodes."""
    began = time.monotonic()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # of a `ray start` in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)  # by which Ray ends a task
    if Path(order.data).is_dir():
        os.environ[DATA] = order.data
    sees = (Path(order.results) / order.mark).is_file()
    with results_of(order, sees) as store:
        task = _Task(order=order, store=store, sees=sees, meeting=meeting)
        event = task.to_its_end()
        return RayAnswer(
            event=event,
            node=ray.get_runtime_context().get_node_id(),
            seconds=time.monotonic() - began,
            files=None if sees or order.node else packed(store.root),
            lost_peer=task.lost_peer,
        )


@contextmanager
def results_of(order: RayOrder, sees: bool) -> Iterator[Store]:
    """The results folder, where this node sees it; else one of its own, for this run alone."""
    if sees:
        yield Store(Path(order.results))
        return
    with tempfile.TemporaryDirectory(prefix="ablate-ray-") as folder:
        store = Store.create(Path(folder))
        order.freight.unload_kept(store.root)
        yield store


@dataclass(kw_only=True)
class _Task:
    """The work of a task, beside the thread in which Ray may end it."""

    order: RayOrder
    store: Store
    sees: bool  # the results folder, with all that other runs left there
    meeting: Any
    stop: str | None = None
    event: WorkerEvent | None = None
    error: BaseException | None = None
    lost_peer: bool = False
    met: bool = False
    looked: float = 0.0
    spec: RunSpec = field(init=False)

    def __post_init__(self) -> None:
        self.spec = RunSpec.from_mapping(self.order.spec)

    def to_its_end(self) -> WorkerEvent:
        """How it ended; where Ray ends the task meanwhile, the run has an end first."""
        thread = threading.Thread(target=self._work)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(POLL_S)
        except BaseException as told:
            self.stop = "interrupted" if isinstance(told, KeyboardInterrupt) else "preempted"
            thread.join()
            raise
        if self.error is not None:
            raise self.error
        assert self.event is not None
        return self.event

    def _work(self) -> None:
        try:
            if self.spec.trunk is not None and not self.sees:
                reason = "it goes on from a trunk, which needs a results folder that all nodes see"
                self.event = WorkerEvent(status="failed", reason=reason)
            elif self.order.node:
                self.event = self._join()
            else:
                self.event = self._run()
        except UserError as error:  # nothing can go on here
            self.store.note_lost(self.spec.run_id, status="failed", reason=str(error))
            self.event = WorkerEvent(status="failed", reason=str(error))
        except BaseException as error:
            self.error = error

    def _run(self) -> WorkerEvent:
        """On the first node."""
        order = self.order
        with tempfile.TemporaryDirectory(prefix="ablate-meeting-") as folder:
            at = Path(folder) / "at.json"
            group = Group(n_per_node=order.n_per_node, n_nodes=order.n_nodes)
            limits = order.limits
            if order.n_nodes > 1:
                address = ray.util.get_node_ip_address()
                group = replace(group, invites=Invitation(file=at, address=address))
                limits = replace(limits, deaths=0)  # the other nodes' do not start again
            turn = TurnToCompile(kernel_cache(self.spec))
            worker = self._worker(group)
            self._note_lost_attempt()
            try:
                turn.wait(self._may_begin)
                event = worker.make(
                    Execution(
                        spec=self.spec,
                        store=self.store,
                        command=order.command,
                        cache=turn.mark,
                        first_step=turn.release,
                        limits=limits,
                        stop=lambda: self._told(at),
                        job=f"{OF_RAY}{ray.get_runtime_context().get_task_id()}",
                        moved=order.freight.moved(),
                    ),
                )
                stays = order.warm and order.n_nodes == 1 and worker.alive()
                if stays and event.status in RESULT_STATUSES:
                    WARM.append(worker)
            finally:
                turn.release()
                if worker not in WARM:
                    worker.close()
        if order.n_nodes > 1 and event.status == "failed":
            self.lost_peer = event.died or self._peer_was_killed()
        return event

    def _note_lost_attempt(self) -> None:
        """Note the end of a task before this one that was killed, which Ray starts again."""
        run_id = self.spec.run_id
        attempts = self.store.directory(run_id) / "attempts"
        attempt = attempts / str(last_attempt(attempts.parent))
        owner = read_owner(attempt / "owner.json")
        if owner is None or owner_of(attempt, self.store.clock()) is not None:
            return
        if (owner.token or "").startswith(OF_RAY):
            reason = "its node or its process was lost"
            token = owner.token or ""
            self.store.note_end(run_id, token=token, status="preempted", reason=reason)

    def _worker(self, group: Group) -> RunMaker:
        """Of this node's processes, on the devices that Ray gave the task."""
        gpus: tuple[str, ...] = ()
        if self.spec.device == "cuda":
            gpus = tuple(str(gpu) for gpu in ray.get_gpu_ids())
        slot = Slot(held=gpus, gpus=gpus[: group.n_per_node], size=group.n_per_node)
        new = self.order.trainer.maker(self.spec, slot, group=group)
        while WARM:
            worker = WARM.pop()
            if worker.is_like(new):
                return worker
            worker.close()
        return new

    def _may_begin(self) -> bool:
        """A moment later, whether the run is still to begin."""
        time.sleep(POLL_S)
        return self.stop is None

    def _told(self, at: Path) -> str | None:
        """Why the run is to end; meanwhile the other nodes are told where they meet it."""
        if self.stop is not None or self.meeting is None:
            return self.stop
        if not self.met and at.exists():
            ray.get(self.meeting.meet_at.remote((read_json(at) or {})["at"]))
            self.met = True
        if time.monotonic() - self.looked > MEETING_LOOK_S:
            self.looked = time.monotonic()
            if self._peer_was_killed():
                return "failed"
        return None

    def _peer_was_killed(self) -> bool:
        return bool(ray.get(self.meeting.lost.remote()))

    def _join(self) -> WorkerEvent:
        """On a further node: its processes join the first one's, until the task is ended."""
        until = time.monotonic() + MEET_S
        met = None
        while met is None and self.stop is None:
            if time.monotonic() > until:
                return WorkerEvent(status="failed", reason="the first node did not come")
            time.sleep(MEETING_LOOK_S)
            met = ray.get(self.meeting.met_at.remote())
        if self.stop is not None:
            return WorkerEvent(status="lent")
        order = self.order
        group = Group(
            n_per_node=order.n_per_node, n_nodes=order.n_nodes, node=order.node, joins=met
        )
        worker = self._worker(group)
        worker.start()
        while worker.alive() and self.stop is None:
            time.sleep(POLL_S)
        if self.stop is None:
            run = self.store.directory(self.spec.run_id)
            attempt = run / "attempts" / str(last_attempt(run))
            self.meeting.lose.remote(not told_by_ranks(attempt))
        worker.kill()
        return WorkerEvent(status="lent")
