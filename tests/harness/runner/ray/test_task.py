"""A Ray task on its node, with a worker that does as a test says: where it works, what it sends back, which worker stays."""

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile

import pytest

from harness.errors import UserError
from harness.run.attempts import read_attempts
from harness.run.spec import Branch, RunSpec
from harness.runner.execute import Execution
from harness.runner.limits import RunLimits
from harness.runner.messages import WorkerEvent
from harness.runner.process import Group
from harness.store.attempt import claim
from harness.store.store import Store
from tests.one_run import SPEC

pytest.importorskip("ray", reason="Ray is not installed: pip install -e '.[ray]'")

from harness.runner.ray import files, send, task
from harness.runner.ray.files import Freight
from harness.runner.ray.places import Need
from harness.runner.ray.task import Meeting, RayOrder, run_order

DONE = WorkerEvent(status="finished", val_loss=3.5)
FAILED = WorkerEvent(status="failed", reason="it broke")


@dataclass
class Worker:
    """A worker that ends every run the same way."""

    event: WorkerEvent | BaseException
    group: Group
    like: bool = True
    closed: bool = False
    lives: int = 3  # looks at it
    asked: list[Execution] = field(default_factory=list)

    def make(self, execution: Execution) -> WorkerEvent:
        self.asked.append(execution)
        if isinstance(self.event, BaseException):
            raise self.event
        return self.event

    def alive(self) -> bool:
        self.lives -= 1
        return self.lives > 0

    def is_like(self, other: "Worker") -> bool:
        return self.like

    def close(self) -> None:
        self.closed = True

    start = kill = close


@dataclass
class Trainer:
    """Hands out such workers, which it remembers."""

    event: WorkerEvent | BaseException = DONE
    made: list[Worker] = field(default_factory=list)

    def maker(self, spec: RunSpec, slot: object, *, group: Group) -> Worker:
        self.made.append(Worker(self.event, group))
        return self.made[-1]


@dataclass
class Remote:
    """An actor of Ray's, here."""

    of: Any

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=getattr(self.of, name))


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    context = SimpleNamespace(get_node_id=lambda: "n1", get_task_id=lambda: "t1")
    fake = SimpleNamespace(
        get_runtime_context=lambda: context,
        get=lambda value: value,
        get_gpu_ids=lambda: [2, 5],
        util=SimpleNamespace(get_node_ip_address=lambda: "10.0.0.1"),
    )
    monkeypatch.setattr(task, "ray", fake)
    monkeypatch.setattr(task, "POLL_S", 0.0)
    monkeypatch.setattr(task, "MEETING_LOOK_S", 0.0)
    yield
    task.WARM.clear()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store.create(tmp_path / "results")
    (store.root / "mark.json").touch()
    return store


def order(store: Store, trainer: Trainer, **how: Any) -> RayOrder:
    given: Any = trainer
    told = RayOrder(
        results=str(store.root),
        mark="mark.json",
        data="nowhere",
        spec=SPEC.to_mapping(),
        command="ablate run x",
        trainer=given,
        freight=Freight(),
        limits=RunLimits(),
        warm=True,
        n_per_node=1,
    )
    return replace(told, **how)


@pytest.mark.parametrize("event", [DONE, FAILED])
def test_a_node_that_sees_the_folder_works_in_it(store: Store, event: WorkerEvent) -> None:
    trainer = Trainer(event)
    answer = run_order(order(store, trainer))
    assert (answer.event, answer.node, answer.files, answer.lost_peer) == (event, "n1", None, False)
    [[execution]] = [worker.asked for worker in trainer.made]
    assert execution.store.root == store.root
    assert (execution.command, execution.job) == ("ablate run x", "ray-t1")
    assert execution.spec == SPEC and trainer.made[0].group == Group(n_per_node=1, n_nodes=1)


def test_a_node_that_does_not_sends_back_a_folder_of_its_own(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "ray", SimpleNamespace(get=lambda value: value))
    (store.root / "mark.json").unlink()
    trainer = Trainer()
    freight = Freight(kept={"code/a.zip": b"zipped"})
    answer = run_order(order(store, trainer, freight=freight))
    assert answer.files is not None
    with ZipFile(BytesIO(answer.files)) as archive:
        assert "runs/" in archive.namelist()
        assert archive.read("code/a.zip") == b"zipped", "what the run reads lies there"
    own = trainer.made[0].asked[0].store.root
    assert own != store.root and not own.exists()
    met = Meeting()
    met.meet_at("10.0.0.1:4000")
    further = run_order(order(store, Trainer(), n_nodes=2, node=1), Remote(met))
    assert further.files is None, "the first of several nodes sends for all"


def test_a_worker_stays_for_the_next_run_while_all_is_well(store: Store) -> None:
    trainer = Trainer()
    run_order(order(store, trainer))
    run_order(order(store, trainer))
    first, second = trainer.made
    assert (len(first.asked), len(second.asked), first.closed) == (2, 0, False)
    first.like = False  # of another kind
    run_order(order(store, trainer))
    assert first.closed and len(trainer.made[2].asked) == 1
    assert [trainer.made[2]] == task.WARM
    trainer.made[2].lives = 0  # its processes have ended
    run_order(order(store, trainer))
    assert trainer.made[2].closed and task.WARM == []


@pytest.mark.parametrize(("how", "event"), [({"warm": False}, DONE), ({}, FAILED)])
def test_a_worker_does_not_stay(store: Store, how: dict[str, Any], event: WorkerEvent) -> None:
    trainer = Trainer(event)
    run_order(order(store, trainer, **how))
    assert trainer.made[0].closed and task.WARM == []


def test_what_cannot_go_on_is_noted_as_the_reason(store: Store) -> None:
    answer = run_order(order(store, Trainer(UserError("no such corpus: make it"))))
    assert (answer.event.status, answer.event.reason) == ("failed", "no such corpus: make it")
    [row] = read_attempts(store.directory(SPEC.run_id))
    assert (row.status, row.reason) == ("failed", "no such corpus: make it")


def test_a_fault_of_ours_reaches_the_runner(store: Store) -> None:
    with pytest.raises(ZeroDivisionError):
        run_order(order(store, Trainer(ZeroDivisionError())))


def test_a_run_of_a_trunk_needs_a_folder_that_is_seen(store: Store) -> None:
    (store.root / "mark.json").unlink()
    trainer = Trainer()
    branch = Branch(at=5, config={**SPEC.config, "schedule": {"steps": 10}})
    spec = replace(SPEC, branch=branch).to_mapping()
    answer = run_order(order(store, trainer, spec=spec))
    assert answer.event.status == "failed"
    reason = "it goes on from a trunk, which needs a results folder that all nodes see"
    assert answer.event.reason == reason
    assert trainer.made == []
    (store.root / "mark.json").touch()
    assert run_order(order(store, trainer, spec=spec)).event == DONE


@pytest.mark.parametrize(("token", "noted"), [("ray-t0", ["preempted"]), ("job-7", [])])
def test_the_end_of_a_task_that_was_killed_is_noted_when_ray_starts_it_again(
    store: Store, token: str, noted: list[str]
) -> None:
    """Its owner is gone, and nothing tells how it ended; what is not Ray's is somebody else's to note."""
    out = claim(store, SPEC, token=token)
    assert out is not None
    owner = out.folder / "owner.json"
    gone = {**json.loads(owner.read_text()), "pid": 2**22 + 1}
    out.release()
    owner.write_text(json.dumps(gone))
    run_order(order(store, Trainer()))
    rows = [row for row in read_attempts(store.directory(SPEC.run_id)) if row.is_end]
    assert [row.status for row in rows] == noted
    assert [row.reason for row in rows] == ["its node or its process was lost"] * len(noted)


# ---------------------------------------------------------------- several nodes


@pytest.mark.parametrize("killed", [True, False])
def test_the_first_of_several_nodes_tells_whether_a_peer_was_killed(
    store: Store, killed: bool
) -> None:
    met = Meeting()
    met.lose(killed)
    trainer = Trainer(FAILED)
    answer = run_order(order(store, trainer, n_nodes=2), Remote(met))
    assert answer.lost_peer == killed
    [worker] = trainer.made
    assert worker.closed and worker.asked[0].limits.deaths == 0
    assert worker.group.invites is not None and worker.group.invites.address == "10.0.0.1"
    assert worker.asked[0].stop() == ("failed" if killed else None)  # in the midst of it, too
    finished = run_order(order(store, Trainer(), n_nodes=2), Remote(met))
    assert not finished.lost_peer and task.WARM == []
    own = Trainer(replace(FAILED, died=True))  # a process of the first node's
    assert run_order(order(store, own, n_nodes=2), Remote(met)).lost_peer
    alone = run_order(order(store, own))
    assert not alone.lost_peer and own.made[1].asked[0].limits == RunLimits()


@pytest.mark.parametrize("told", [False, True])
def test_a_further_node_joins_the_first_and_tells_how_its_processes_ended(
    store: Store, monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    """Where an exception ended them, a file says so; else they were killed."""
    met = Meeting()
    met.meet_at("10.0.0.1:4000")
    trainer = Trainer()
    started: list[Worker] = []
    monkeypatch.setattr(Worker, "start", lambda self: started.append(self))
    if told:
        attempt = store.directory(SPEC.run_id) / "attempts" / "1"
        attempt.mkdir(parents=True)
        (attempt / "rank1.json").touch()
    answer = run_order(order(store, trainer, n_nodes=2, node=1), Remote(met))
    assert answer.event.status == "lent"
    [worker] = trainer.made
    assert worker.group == Group(n_per_node=1, n_nodes=2, node=1, joins="10.0.0.1:4000")
    assert met.lost() is not told
    assert started == [worker] and worker.closed and worker.asked == []


def test_a_further_node_gives_up_where_the_first_does_not_come(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "MEET_S", -1.0)
    answer = run_order(order(store, Trainer(), n_nodes=2, node=1), Remote(Meeting()))
    assert (answer.event.status, answer.event.reason) == ("failed", "the first node did not come")


def test_a_further_node_that_comes_first_joins_once_it_is_told_where(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    met, trainer = Meeting(), Trainer()
    looks: list[float] = []

    def told(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            met.meet_at("10.0.0.1:4000")

    clock = SimpleNamespace(sleep=told, monotonic=lambda: 100.0 * len(looks))
    monkeypatch.setattr(task, "time", clock)
    monkeypatch.setattr(task, "POLL_S", 0.5)
    monkeypatch.setattr(task, "MEETING_LOOK_S", 2.0)
    answer = run_order(order(store, trainer, n_nodes=2, node=1), Remote(met))
    assert answer.event.status == "lent"
    assert trainer.made[0].group.joins == "10.0.0.1:4000"
    assert looks == [2.0] * 3 + [0.5] * 2  # for the first node, then while its own work
    assert answer.seconds == 100.0 * len(looks)


@dataclass
class Asked:
    """What Ray is asked for."""

    tasks: list[dict[str, Any]] = field(default_factory=list)

    def options(self, **asked: Any) -> "Asked":
        self.tasks.append(asked)
        return self

    def remote(self, *told: Any) -> str:
        """The reference to a task, or to an actor, which is told nothing."""
        return f"node {told[0].node}" if told else "an actor"


@pytest.mark.parametrize("need", [Need(gpus=4, cpus=4), Need(gpus=0, cpus=3)])
def test_the_room_that_is_held_for_a_run_of_several_nodes_is_what_its_tasks_need(
    store: Store, monkeypatch: pytest.MonkeyPatch, need: Need
) -> None:
    asked = Asked()
    held: list[tuple[dict[str, float], dict[str, str]]] = []

    def hold(rooms: list[dict[str, float]], near: str, *, bundle_label_selector: Any) -> str:
        held.extend(zip(rooms, bundle_label_selector, strict=True))
        return near

    monkeypatch.setattr(send, "ray", SimpleNamespace(remote=lambda of: asked))
    monkeypatch.setattr(send, "placement_group", hold)
    labels = {"ray.io/accelerator-type": "H100"}
    sent = send.send(order(store, Trainer(), n_nodes=2), need, labels, "a run")
    assert (sent.first, sent.further) == ("node 0", ("node 1",))
    assert (sent.group, sent.meeting) == ("PACK", "an actor")
    tasks = [of for of in asked.tasks if "name" in of]  # beside the actor where they meet
    assert [of["scheduling_strategy"].placement_group_bundle_index for of in tasks] == [0, 1]
    assert [wanted for _, wanted in held] == [labels] * 2
    assert [of["max_retries"] for of in tasks] == [0, 0]  # one alone would wait for the others
    for of, (room, _) in zip(tasks, held, strict=True):
        assert (of["num_cpus"], of["num_gpus"]) == (room["CPU"], room.get("GPU", 0))
        assert of["num_gpus"] == need.gpus


def test_processes_that_train_on_a_gpu_get_those_that_ray_gave(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    slots: list[Any] = []
    trainer = Trainer()
    make = trainer.maker

    def maker(spec: RunSpec, slot: object, *, group: Group) -> Worker:
        slots.append(slot)
        return make(spec, slot, group=group)

    monkeypatch.setattr(trainer, "maker", maker)
    for device in ("cuda", "cpu"):
        spec = replace(SPEC, device=device).to_mapping()
        run_order(order(store, trainer, spec=spec, n_per_node=1))
    assert [(slot.held, slot.gpus) for slot in slots] == [(("2", "5"), ("2",)), ((), ())]
    assert [slot.size for slot in slots] == [1, 1]


def test_a_node_that_has_the_folder_of_the_data_reads_it_there(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(task.DATA, "before")
    run_order(order(store, Trainer()))
    assert os.environ[task.DATA] == "before"
    run_order(order(store, Trainer(), data=str(tmp_path)))
    assert os.environ[task.DATA] == str(tmp_path)


def test_the_first_node_tells_once_where_the_others_meet_it(store: Store) -> None:
    met, trainer = Meeting(), Trainer()
    told: list[str] = []
    met.meet_at = told.append
    make = Worker.make

    def begins(self: Worker, execution: Execution) -> WorkerEvent:
        assert self.group.invites is not None
        assert execution.stop() is None and told == []
        self.group.invites.file.write_text('{"at": "10.0.0.1:4000"}')
        assert execution.stop() is None and execution.stop() is None
        return make(self, execution)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Worker, "make", begins)
        run_order(order(store, trainer, n_nodes=2), Remote(met))
    assert told == ["10.0.0.1:4000"]


def ended_by(error: BaseException, begun: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray ends the task once its work has begun."""

    class Ended(threading.Thread):
        def join(self, timeout: float | None = None) -> None:
            super().join(timeout)
            if timeout is not None and begun.wait(10):
                raise error

    monkeypatch.setattr(task, "threading", SimpleNamespace(Thread=Ended))


@pytest.mark.parametrize(
    ("error", "status"), [(KeyboardInterrupt(), "interrupted"), (SystemExit(), "preempted")]
)
def test_a_task_that_ray_ends_has_its_end_first(
    store: Store, monkeypatch: pytest.MonkeyPatch, error: BaseException, status: str
) -> None:
    asked = threading.Event()
    ends: list[str | None] = []

    def works(self: Worker, execution: Execution) -> WorkerEvent:
        asked.set()
        while (told := execution.stop()) is None:
            pass
        ends.append(told)
        return FAILED

    ended_by(error, asked, monkeypatch)
    monkeypatch.setattr(Worker, "make", works)
    with pytest.raises(type(error)):
        run_order(order(store, Trainer()))
    assert ends == [status]


@pytest.mark.parametrize("event", [DONE, ZeroDivisionError()])
def test_whoever_waits_for_a_task_s_kernels_waits_no_longer_than_it_works(
    store: Store, monkeypatch: pytest.MonkeyPatch, event: WorkerEvent | BaseException
) -> None:
    did: list[object] = []

    class Turn:
        def __init__(self, mark: Path | None) -> None:
            self.mark = mark

        def wait(self, look: Callable[[], bool]) -> None:
            did.append(look())

        def release(self) -> None:
            did.append("released")

    monkeypatch.setattr(task, "TurnToCompile", Turn)
    monkeypatch.setattr(task, "kernel_cache", lambda spec: Path("a mark"))
    trainer = Trainer(event)
    with suppress(ZeroDivisionError):
        run_order(order(store, trainer, warm=False))
    assert did == [True, "released"]
    [execution] = trainer.made[0].asked
    assert execution.cache == Path("a mark") and trainer.made[0].closed
    execution.first_step()
    assert did == [True, "released", "released"], "its first step lets them go, too"


@pytest.mark.parametrize(
    ("before", "after"),
    [(signal.SIG_IGN, signal.default_int_handler), (signal.SIG_DFL, signal.SIG_DFL)],
)
def test_a_signal_that_a_task_is_ended_by_is_not_ignored(
    store: Store, before: Any, after: Any
) -> None:
    """A `ray start` in the background of a shell would hand that down."""
    kept = signal.signal(signal.SIGINT, before)
    try:
        run_order(order(store, Trainer()))
        assert signal.getsignal(signal.SIGINT) is after
    finally:
        signal.signal(signal.SIGINT, kept)


def test_the_first_node_asks_once_a_second_whether_a_peer_was_killed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "MEETING_LOOK_S", 1.0)
    now, asked = [100.0], []
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda s: None)
    monkeypatch.setattr(task, "time", clock)
    met, trainer = Meeting(), Trainer()
    met.lost = lambda: asked.append(now[0])
    run_order(order(store, trainer, n_nodes=2), Remote(met))
    [execution] = trainer.made[0].asked
    for now[0] in (101.0, 101.5, 102.0, 102.5, 103.5, 104.0):
        assert execution.stop() is None
    assert asked == [101.0, 102.5, 104.0]


def test_a_further_node_that_is_told_to_go_says_nothing_of_its_processes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Event()

    def alive(self: Worker) -> bool:
        begun.set()
        return not self.closed

    ended_by(KeyboardInterrupt(), begun, monkeypatch)
    monkeypatch.setattr(Worker, "start", lambda self: None)
    monkeypatch.setattr(Worker, "alive", alive)
    met, trainer = Meeting(), Trainer()
    met.meet_at("10.0.0.1:4000")
    with pytest.raises(KeyboardInterrupt):
        run_order(order(store, trainer, n_nodes=2, node=1), Remote(met))
    assert trainer.made[0].closed and met.lost() is None


def test_a_further_node_that_is_told_to_go_before_the_first_came_starts_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = threading.Event()

    clock = SimpleNamespace(sleep=lambda s: looks.set(), monotonic=lambda: 0.0)
    monkeypatch.setattr(task, "time", clock)
    ended_by(KeyboardInterrupt(), looks, monkeypatch)
    trainer = Trainer()
    with pytest.raises(KeyboardInterrupt):
        run_order(order(store, trainer, n_nodes=2, node=1), Remote(Meeting()))
    assert trainer.made == []


def test_a_run_of_one_node_is_one_task_that_ray_starts_again_and_holds_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked()
    gone: list[Any] = []
    fake = SimpleNamespace(remote=lambda of: asked, kill=gone.append)
    monkeypatch.setattr(send, "ray", fake)
    monkeypatch.setattr(send, "remove_placement_group", gone.append)
    sent = send.send(order(store, Trainer()), Need(gpus=2, cpus=3), {}, "a run")
    assert asked.tasks == [
        {
            **{"num_cpus": 3, "num_gpus": 2, "name": "a run"},
            **{"max_retries": send.LOST_AGAIN, "label_selector": None},
        }
    ]
    sent.release()
    assert (gone, sent.further) == ([], ())
    send.Sent(first=None, group="a group", meeting="an actor").release()
    assert gone == ["a group", "an actor"]
