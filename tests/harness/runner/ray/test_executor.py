"""The runner beside a Ray cluster whose tasks end as a test says: what it sends where, what it takes in, sends again and gives up."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UserError
from harness.run.attempts import read_attempts
from harness.run.spec import Branch, PlannedRun
from harness.runner.executor import ExecutorOptions, RunEnded
from harness.runner.messages import WorkerEvent
from harness.runner.ray.incoming import packed
from harness.store.attempt import RunWriter, claim
from harness.store.store import Store
from tests.harness.runner.ray.test_places import NODES, planned
from tests.one_run import finish

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install -e '.[ray]'")

from ray.exceptions import RayTaskError, TaskCancelledError, WorkerCrashedError  # noqa: E402

from harness.runner.ray import executor, send  # noqa: E402
from harness.runner.ray.task import RayAnswer, RayOrder  # noqa: E402

End = RayAnswer | BaseException
DONE = WorkerEvent(status="finished", val_loss=3.5)


def answered(event: WorkerEvent = DONE, node: str = "a", **more: Any) -> RayAnswer:
    return RayAnswer(event=event, node=node, seconds=1.0, **more)


@dataclass(frozen=True, kw_only=True)
class Task:
    """What stands for Ray's reference to a task."""

    run_id: str
    n: int  # of the run's tasks


@dataclass
class FakeRay:
    """A cluster whose tasks end in the order and the way that a test says; others wait."""

    ends: dict[str, list[End]] = field(default_factory=lambda: defaultdict(list))
    sent: list[tuple[str, dict[str, str]]] = field(default_factory=list)  # run, what it asks for
    cancelled: list[Task] = field(default_factory=list)
    released: int = 0
    over: dict[Task, End] = field(default_factory=dict)
    waiting: list[Task] = field(default_factory=list)
    on_wait: Callable[[], None] = lambda: None

    def send(self, order: RayOrder, need: object, labels: dict[str, str], name: str) -> send.Sent:
        task = Task(run_id=name, n=len(self.sent))
        self.sent.append((name, labels))
        self.waiting.append(task)
        if self.ends[name]:
            self.over[task] = self.ends[name].pop(0)
        if order.n_nodes == 1:
            return send.Sent(first=task)
        return send.Sent(first=task, further=(replace(task, n=-1),), group=self, meeting=self)

    def wait(self, tasks: Sequence[Task], **_: object) -> tuple[list[Task], list[Task]]:
        self.on_wait()
        ready = [task for task in tasks if task in self.over][:1]
        return ready, [task for task in tasks if task not in ready]

    def get(self, task: Task) -> RayAnswer:
        end = self.over.pop(task)
        if isinstance(end, BaseException):
            raise end
        return end

    def cancel(self, task: Task) -> None:
        self.cancelled.append(task)
        self.over.setdefault(task, TaskCancelledError())


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    fake = FakeRay()
    monkeypatch.setattr(executor, "ray", fake)
    monkeypatch.setattr(executor, "send", fake.send)
    monkeypatch.setattr(executor, "connect", lambda address: None)
    monkeypatch.setattr(executor, "nodes_alive", lambda: NODES)
    monkeypatch.setattr(
        send.Sent, "release", lambda sent: setattr(fake, "released", fake.released + 1)
    )
    monkeypatch.setattr(executor, "POLL_S", 0.0)
    monkeypatch.setattr(executor, "LOOK_S", -1.0)
    return fake


WRITERS: list[RunWriter] = []


@pytest.fixture(autouse=True)
def released() -> Iterator[None]:
    yield
    while WRITERS:
        WRITERS.pop().release()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.create(tmp_path / "results")


def runs(n: int, **how: Any) -> list[PlannedRun]:
    """n runs of one block each, told apart by their seeds."""
    made = []
    for seed in range(n):
        one = planned(seed, **how)
        made.append(replace(one, spec=replace(one.spec, seed=seed)))
    return made


def names(of: Sequence[PlannedRun]) -> list[str]:
    return [one.spec.run_id for one in of]


def theirs_of(store: Store, one: PlannedRun) -> RunWriter:
    """A run in somebody else's hands."""
    out = claim(store, one.spec)
    assert out is not None
    WRITERS.append(out)
    return out


def call(of: Sequence[PlannedRun], store: Store, **options: Any) -> executor.RayRunner:
    return executor.RayRunner(of, store, ExecutorOptions(experiment="x", **options))


# ---------------------------------------------------------------- how tasks end


def test_every_run_is_sent_once_and_its_end_is_told(fake: FakeRay, store: Store) -> None:
    three = runs(3)
    for name in names(three):
        fake.ends[name] = [answered()]
    told: list[RunEnded] = []
    summary = call(three, store, on_end=told.append).run()
    assert summary.statuses == dict.fromkeys(names(three), "finished")
    assert (summary.stopped, summary.reasons) == (None, {})
    assert sorted(ended.run.spec.run_id for ended in told) == sorted(names(three))
    assert {ended.val_loss for ended in told} == {3.5}
    assert sorted(name for name, _ in fake.sent) == sorted(names(three))
    assert (fake.cancelled, fake.released) == ([], 3)
    assert not [*(store.root / "experiments/x").glob("ray-*.json")]


def test_no_more_runs_are_out_than_may_be(fake: FakeRay, store: Store) -> None:
    four = runs(4)
    out: list[int] = []
    runner = call(four, store, max_parallel=2)
    fake.on_wait = lambda: out.append(len(runner.sent))
    for name in names(four):
        fake.ends[name] = [answered()]
    assert len(runner.run().statuses) == 4
    assert max(out) == 2


def test_what_was_preempted_is_sent_again_behind_the_others(fake: FakeRay, store: Store) -> None:
    first, second = names(two := runs(2))
    fake.ends[first] = [answered(WorkerEvent(status="preempted")), answered()]
    fake.ends[second] = [answered()]
    assert set(call(two, store, max_parallel=1).run().statuses.values()) == {"finished"}
    assert [name for name, _ in fake.sent] == [first, second, first]


def test_a_failed_run_is_told_with_its_reason(fake: FakeRay, store: Store) -> None:
    [name] = names(one := runs(1))
    fake.ends[name] = [answered(WorkerEvent(status="failed", reason="it broke"))]
    summary = call(one, store).run()
    assert (summary.statuses, summary.reasons) == ({name: "failed"}, {name: "it broke"})


def test_a_run_that_somebody_else_has_is_waited_for(fake: FakeRay, store: Store) -> None:
    [one] = runs(1)
    theirs = theirs_of(store, one)
    fake.ends[one.spec.run_id] = [answered(WorkerEvent(status="taken"))]
    runner = call([one], store)
    looks = iter(range(9))

    def is_cancelled() -> bool:
        """Between two looks: theirs ends after some of them."""
        if next(looks) == 4:
            assert runner.elsewhere == {one.spec.run_id}
            finish(theirs)
        return False

    runner.options = replace(runner.options, cancelled=is_cancelled)
    summary = runner.run()
    assert summary.statuses == {one.spec.run_id: "finished"}
    assert len(fake.sent) == 1


def test_a_run_that_nobody_has_any_more_is_sent_again(fake: FakeRay, store: Store) -> None:
    [one] = runs(1)
    fake.ends[one.spec.run_id] = [answered(WorkerEvent(status="taken")), answered()]
    assert call([one], store).run().statuses == {one.spec.run_id: "finished"}
    assert len(fake.sent) == 2


def test_a_task_that_was_cancelled_is_sent_again(fake: FakeRay, store: Store) -> None:
    [name] = names(one := runs(1))
    fake.ends[name] = [TaskCancelledError(), answered()]
    assert call(one, store).run().statuses == {name: "finished"}
    assert (len(fake.sent), fake.released) == (2, 2)


def test_a_run_that_is_lost_more_often_than_ray_begins_again_has_failed(
    fake: FakeRay, store: Store
) -> None:
    [name] = names(one := runs(1))
    fake.ends[name] = [WorkerCrashedError()]
    summary = call(one, store).run()
    assert summary.statuses == {name: "failed"}
    assert summary.reasons[name].startswith("its node or its process was lost 4 times: ")
    assert [row.status for row in read_attempts(store.directory(name))] == ["failed"]


def test_a_run_that_is_lost_after_its_end_has_its_end(fake: FakeRay, store: Store) -> None:
    [one] = runs(1)
    finish(theirs_of(store, one))
    fake.ends[one.spec.run_id] = [WorkerCrashedError()]
    assert call([one], store).run().statuses == {one.spec.run_id: "finished"}


def test_a_run_whose_trunk_nobody_makes_is_not_sent_and_has_failed(
    fake: FakeRay, store: Store
) -> None:
    [one] = runs(1)
    branch = Branch(at=5, config={**one.spec.config, "schedule": {"steps": 10}})
    late = replace(one, spec=replace(one.spec, branch=branch))
    looks = iter(range(9))
    summary = call([late], store, cancelled=lambda: next(looks) == 8).run()
    assert (summary.statuses, fake.sent) == ({late.spec.run_id: "failed"}, [])
    assert "its trunk" in summary.reasons[late.spec.run_id]


def test_what_fails_in_our_own_code_there_ends_the_call_in_one_line(
    fake: FakeRay, store: Store
) -> None:
    [first, second] = names(two := runs(2))
    fake.ends[first] = [RayTaskError("run_order", "trace\nModuleNotFoundError: harness", OSError())]
    with pytest.raises(UserError, match=r"failed \(ModuleNotFoundError: harness\): its nodes need"):
        call(two, store).run()
    assert second in {task.run_id for task in fake.cancelled}


def test_a_call_that_is_cancelled_ends_its_tasks(fake: FakeRay, store: Store) -> None:
    two = runs(2)
    looks = iter(range(9))
    summary = call(two, store, cancelled=lambda: next(looks) == 3).run()
    assert (summary.stopped, summary.statuses) == ("interrupted", {})
    assert sorted(task.run_id for task in fake.cancelled) == sorted(names(two))


# ---------------------------------------------------------------- nodes


def labels_of(fake: FakeRay, run_id: str) -> list[dict[str, str]]:
    return [labels for name, labels in fake.sent if name == run_id]


BROKE = WorkerEvent(status="failed", reason="no device")


def test_a_node_that_fails_what_another_makes_gets_no_more(
    fake: FakeRay, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that waits is sent again as the cluster is now; one at work stays."""
    first, second, waits, works = four = runs(4)
    theirs_of(store, works)
    fake.ends[first.spec.run_id] = [answered(BROKE), answered(node="b")]
    fake.ends[second.spec.run_id] = [answered(BROKE), answered(node="b")]
    runner = call(four, store)
    runner.kinds.clear()
    steps = iter(range(99))

    def on_wait() -> None:
        if next(steps) == 30:
            fake.over.update(
                dict.fromkeys([t for t in fake.waiting if t.n > 3], answered(node="b"))
            )
            fake.over.update(
                {t: answered(node="b") for t in fake.waiting if t.run_id == works.spec.run_id}
            )

    fake.on_wait = on_wait
    summary = runner.run()
    assert set(summary.statuses.values()) == {"finished"} and len(summary.statuses) == 4
    assert labels_of(fake, second.spec.run_id) == [{}, {"ray.io/node-id": "!in(a)"}]
    assert labels_of(fake, first.spec.run_id)[1:] == [{"ray.io/node-id": "!in(a)"}]
    assert labels_of(fake, waits.spec.run_id)[:2] == [{}, {"ray.io/node-id": "!in(a)"}]
    assert labels_of(fake, works.spec.run_id) == [{}]
    assert "node a was retired" in capsys.readouterr().out
    assert len((store.root / "experiments/x/retired.jsonl").read_text().splitlines()) == 1


def test_where_nodes_do_not_see_the_folder_nothing_is_taken_back(
    fake: FakeRay, store: Store, tmp_path: Path
) -> None:
    """Whether a task has begun is not known of them."""
    empty = packed(Store.create(tmp_path / "there").root)
    first, second, waits = three = runs(3)
    for one in (first, second):
        fake.ends[one.spec.run_id] = [
            answered(BROKE, files=empty),
            answered(BROKE, node="b", files=empty),
        ]
    looks = iter(range(40))
    runner = call(three, store, cancelled=lambda: next(looks) == 30)
    runner.kinds.clear()
    runner.run()
    assert labels_of(fake, waits.spec.run_id) == [{}]
    assert not runner.all_see


def test_a_block_whose_nodes_have_gone_may_use_any(
    fake: FakeRay,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    three = runs(3)
    runner = call(three, store)
    [other] = [block for block, kind in runner.kinds.items() if kind == "A100"]
    kind = {"ray.io/accelerator-type": "A100"}
    steps = iter(range(99))

    def on_wait() -> None:
        step = next(steps)
        if step == 2:
            assert labels_of(fake, three[other].spec.run_id) == [kind]
            monkeypatch.setattr(executor, "nodes_alive", lambda: [NODES[0], NODES[2]])
        if step == 9:
            fake.over.update(
                {task: answered() for task in fake.waiting if task not in fake.cancelled}
            )

    fake.on_wait = on_wait
    assert set(runner.run().statuses.values()) == {"finished"}
    assert labels_of(fake, three[other].spec.run_id) == [kind, {}]
    assert [task.run_id for task in fake.cancelled] == [three[other].spec.run_id]
    assert f"block {other}: no node of A100 is left; any may make it" in capsys.readouterr().out


def test_a_run_of_two_nodes_is_tried_again_where_one_of_them_is_lost(
    fake: FakeRay, store: Store
) -> None:
    [one] = runs(1, size=4)
    name = one.spec.run_id
    lost = answered(WorkerEvent(status="failed"), lost_peer=True)
    fake.ends[name] = [lost] * 3 + [answered()]
    assert call([one], store, n_nodes=2).run().statuses == {name: "finished"}
    fake.ends[name] = [lost] * 4
    summary = call([one], store, n_nodes=2).run()
    assert summary.reasons == {name: "a process on another of its nodes was killed"}


def test_a_further_node_that_is_lost_ends_the_first(fake: FakeRay, store: Store) -> None:
    [one] = runs(1, size=4)
    first_wait = iter([True])

    def on_wait() -> None:
        if next(first_wait, False):
            fake.over[replace(fake.waiting[0], n=-1)] = WorkerCrashedError()
        elif len(fake.sent) > 1:
            fake.over.setdefault(fake.waiting[1], answered())

    fake.on_wait = on_wait
    assert call([one], store, n_nodes=2).run().statuses == {one.spec.run_id: "finished"}
    assert [task.n for task in fake.cancelled] == [0]
    assert len(fake.sent) == 2


def test_processes_are_shared_evenly_by_nodes_or_refused(fake: FakeRay, store: Store) -> None:
    with pytest.raises(UserError, match="--nodes-per-run 3 does not divide 4 processes"):
        call(runs(1, size=4), store, n_nodes=3)


def test_runs_that_no_node_has_room_for_are_told_and_wait(
    fake: FakeRay, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    looks = iter(range(9))
    runner = call(runs(2, size=16), store, cancelled=lambda: next(looks) == 2)
    assert runner.at_once() == 1
    runner.run()
    assert capsys.readouterr().out.count("has 16 GPUs and 16 CPUs: such runs wait") == 1


def test_at_once_are_as_many_as_the_cluster_has_room_for(fake: FakeRay, store: Store) -> None:
    assert call(runs(40), store).at_once() == 12
    assert call(runs(40, size=4), store, n_nodes=2).at_once() == 3
    assert call(runs(5), store).at_once() == 5
    assert call(runs(40), store, max_parallel=7).at_once() == 7
