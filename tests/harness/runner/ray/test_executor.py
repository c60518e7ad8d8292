"""The runner beside a Ray cluster whose tasks end as a test says: what it sends where, what it takes in, sends again and gives up."""

import signal
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.errors import UserError
from harness.run.attempts import read_attempts
from harness.run.results import read_result
from harness.run.spec import Branch, PlannedRun, RunSpec
from harness.runner.executor import ExecutorOptions, RunEnded
from harness.runner.limits import RunLimits
from harness.runner.messages import WorkerEvent
from harness.runner.ray.incoming import packed
from harness.runner.ray.places import RayNode
from harness.store.attempt import RunWriter, claim
from harness.store.store import Store
from tests.harness.runner.piped import piped
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
    orders: list[RayOrder] = field(default_factory=list)
    cancelled: list[Task] = field(default_factory=list)
    released: int = 0
    carriers_closed: int = 0
    over: dict[Task, End] = field(default_factory=dict)
    waiting: list[Task] = field(default_factory=list)
    awaited: list[tuple[list[Task], float]] = field(default_factory=list)
    on_wait: Callable[[], None] = lambda: None

    def send(self, order: RayOrder, need: object, labels: dict[str, str], name: str) -> send.Sent:
        task = Task(run_id=name, n=len(self.sent))
        self.sent.append((name, labels))
        self.orders.append(order)
        self.waiting.append(task)
        if self.ends[name]:
            self.over[task] = self.ends[name].pop(0)
        if order.n_nodes == 1:
            return send.Sent(first=task)
        return send.Sent(first=task, further=(replace(task, n=-1),), group=self, meeting=self)

    def wait(
        self, tasks: Sequence[Task], *, timeout: float, **_: object
    ) -> tuple[list[Task], list[Task]]:
        self.awaited.append((list(tasks), timeout))
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

    def close(carrier: object) -> None:
        fake.carriers_closed += 1

    monkeypatch.setattr(executor.Carrier, "close", close)
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
    assert (fake.cancelled, fake.released, fake.carriers_closed) == ([], 3, 1)
    assert not [*(store.root / "experiments/x").glob("ray-*.json")]


def test_a_task_is_told_what_to_do_and_whether_its_node_sees_the_folder(
    fake: FakeRay, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABLATE_DATA", str(tmp_path / "data"))
    [one] = runs(1, size=4)
    fake.ends[one.spec.run_id] = [answered()]
    marks: list[Path] = []

    def on_wait() -> None:
        [order] = fake.orders
        marks.extend((Path(order.results) / order.mark).parent.glob("ray-*.json"))
        assert marks == [Path(order.results) / order.mark]
        marks[0].unlink()  # as somebody who tidies up might

    fake.on_wait = on_wait
    limits = RunLimits(deaths=7)
    call([one], store, n_nodes=2, command="ablate run x", limits=limits, warm=False).run()
    [order] = fake.orders
    assert Path(order.results) == store.root and Path(order.data) == tmp_path / "data"
    assert RunSpec.from_mapping(order.spec) == one.spec
    assert (order.command, order.limits, order.warm) == ("ablate run x", limits, False)
    assert (order.n_per_node, order.n_nodes, order.node) == (2, 2, 0)
    assert order.freight.kept == {} and order.freight.data == {}
    assert len(marks) == 1


def test_no_more_runs_are_out_than_may_be(fake: FakeRay, store: Store) -> None:
    four = runs(4)
    out: list[int] = []
    runner = call(four, store, max_parallel=2)
    fake.on_wait = lambda: out.append(len(runner.sent))
    for name in names(four):
        fake.ends[name] = [answered()]
    assert len(runner.run().statuses) == 4
    assert max(out) == 2
    assert {timeout for _, timeout in fake.awaited} == {0.0}
    fake.sent.clear()
    looks = iter(range(9))
    call(runs(6)[4:], store, max_parallel=1, cancelled=lambda: next(looks) == 5).run()
    assert len(fake.sent) == 1, "while it goes on no other is sent"


def test_what_was_preempted_is_sent_again_behind_the_others(fake: FakeRay, store: Store) -> None:
    first, second = names(two := runs(2))
    fake.ends[first] = [answered(WorkerEvent(status="preempted")), answered()]
    fake.ends[second] = [answered()]
    assert set(call(two, store, max_parallel=1).run().statuses.values()) == {"finished"}
    assert [name for name, _ in fake.sent] == [first, second, first]


@pytest.mark.parametrize("status", ["failed", "timeout"])
def test_a_failed_run_is_told_with_its_reason(fake: FakeRay, store: Store, status: Any) -> None:
    [name] = names(one := runs(1))
    fake.ends[name] = [answered(WorkerEvent(status=status, reason="it broke"))]
    summary = call(one, store).run()
    assert (summary.statuses, summary.reasons) == ({name: status}, {name: "it broke"})


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
    told: list[RunEnded] = []
    runner.options = replace(runner.options, on_end=told.append)
    summary = runner.run()
    assert summary.statuses == {one.spec.run_id: "finished"}
    assert len(fake.sent) == 1
    [result] = [read_result(store.directory(ended.run.spec.run_id)) for ended in told]
    assert result is not None
    assert (told[0].val_loss, told[0].reason) == (result.val_loss, None)


def test_where_nothing_is_out_there_is_a_moment_between_two_looks(
    fake: FakeRay, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    [one] = runs(1)
    theirs_of(store, one)
    fake.ends[one.spec.run_id] = [answered(WorkerEvent(status="taken"))]
    waits: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: 0.0, sleep=waits.append)
    monkeypatch.setattr(executor, "time", clock)
    monkeypatch.setattr(executor, "POLL_S", 0.25)
    looks = iter(range(9))
    call([one], store, cancelled=lambda: next(looks) == 4).run()
    assert waits == [0.25] * 3  # after the look at which it was taken


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
    reason = summary.reasons[name]
    assert reason.startswith("its node or its process was lost 4 times: The worker died")
    [row] = read_attempts(store.directory(name))
    assert (row.status, row.reason) == ("failed", reason)


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
    fake: FakeRay, store: Store, kept_line: Callable[[str], None]
) -> None:
    [first, second] = names(two := runs(2))
    fake.ends[first] = [RayTaskError("run_order", "trace\nModuleNotFoundError: harness", OSError())]
    with pytest.raises(UserError) as refused:
        call(two, store).run()
    kept_line(str(refused.value))
    assert second in {task.run_id for task in fake.cancelled}


def test_a_call_that_is_cancelled_ends_its_tasks(fake: FakeRay, store: Store) -> None:
    two = runs(2)
    looks = iter(range(9))
    summary = call(two, store, cancelled=lambda: next(looks) == 3).run()
    assert (summary.stopped, summary.statuses) == ("interrupted", {})
    assert sorted(task.run_id for task in fake.cancelled) == sorted(names(two))
    assert fake.released == 2
    tasks, timeout = fake.awaited[-1]
    assert (tasks, timeout) == (fake.waiting, executor.END_S), "each has time for its end"


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


@pytest.mark.parametrize("nodes", [NODES[:1], [NODES[0], NODES[2]]])
def test_a_node_that_fails_what_no_other_has_room_for_goes_on(
    fake: FakeRay, store: Store, monkeypatch: pytest.MonkeyPatch, nodes: list[RayNode]
) -> None:
    monkeypatch.setattr(executor, "nodes_alive", lambda: nodes)
    four = runs(4)
    for name in names(four):
        fake.ends[name] = [answered(BROKE)]
    looks = iter(range(40))
    runner = call(four, store, cancelled=lambda: next(looks) == 30)
    assert runner.run().statuses == dict.fromkeys(names(four), "failed")
    assert (len(fake.sent), runner.kept_off) == (4, set())


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
    out = capsys.readouterr().out
    assert out == f"block {other}: no node of A100 is left; any may make it\n"


@pytest.mark.parametrize("gone", [True, False])
def test_a_run_at_work_is_taken_back_only_where_its_nodes_have_gone(
    fake: FakeRay, store: Store, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    three = runs(3)
    runner = call(three, store)
    [other] = [block for block, kind in runner.kinds.items() if kind == "A100"]
    theirs_of(store, three[other])
    steps = iter(range(99))

    def on_wait() -> None:
        step = next(steps)
        if step == 2 and gone:
            monkeypatch.setattr(executor, "nodes_alive", lambda: [NODES[0], NODES[2]])
        elif step == 2:
            runner.kept_off.add("b")
        elif step == 9:
            fake.over.update(
                {task: answered() for task in fake.waiting if task not in fake.cancelled}
            )

    fake.on_wait = on_wait
    assert set(runner.run().statuses.values()) == {"finished"}
    taken_back = [three[other].spec.run_id] if gone else []
    assert [task.run_id for task in fake.cancelled] == taken_back
    assert other not in runner.kinds


def test_of_nodes_without_a_class_that_have_gone_those_blocks_are_told_that_are_left(
    fake: FakeRay,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    many = runs(14, device="cpu")
    looks = iter(range(99))
    runner = call(many, store, cancelled=lambda: next(looks) == 40)
    made, left = [block for block, kind in runner.kinds.items() if kind == ""]
    for one in many:
        if one.block != left:
            fake.ends[one.spec.run_id] = [answered()]
    runner.run()
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(executor, "nodes_alive", lambda: NODES[:2])
    looks = iter(range(38, 99))
    runner.stop = None
    runner.run()
    assert capsys.readouterr().out == (
        f"block {left}: no node of its kind is left; any may make it\n"
    )
    assert made not in runner.kinds and left not in runner.kinds


def test_the_cluster_and_the_folder_are_looked_at_once_a_second(
    fake: FakeRay, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(executor, "LOOK_S", 1.0)
    monkeypatch.setattr(executor, "time", SimpleNamespace(monotonic=lambda: now[0]))
    runner = call(runs(1), store, cancelled=lambda: now[0] >= 104.0)
    asked: list[float] = []
    monkeypatch.setattr(executor, "nodes_alive", lambda: asked.append(now[0]) or NODES)
    fake.on_wait = lambda: now.__setitem__(0, now[0] + 0.5)
    runner.run()
    assert [*dict.fromkeys(asked)] == [100.0, 101.5, 103.0]


def test_a_further_node_that_has_told_its_end_leaves_the_first_at_work(
    fake: FakeRay, store: Store
) -> None:
    [one] = runs(1, size=4)
    steps = iter(range(9))

    def on_wait() -> None:
        step = next(steps)
        if step == 0:
            fake.over[replace(fake.waiting[0], n=-1)] = answered(WorkerEvent(status="lent"))
        elif step == 3:
            fake.over[fake.waiting[0]] = answered()

    fake.on_wait = on_wait
    assert call([one], store, n_nodes=2).run().statuses == {one.spec.run_id: "finished"}
    assert (len(fake.sent), fake.cancelled) == (1, [])
    assert [len(tasks) for tasks, _ in fake.awaited] == [2, 1, 1, 1]


def test_a_run_whose_further_nodes_are_lost_again_and_again_has_failed(
    fake: FakeRay, store: Store
) -> None:
    [one] = runs(1, size=4)

    def on_wait() -> None:
        fake.over.setdefault(replace(fake.waiting[-1], n=-1), WorkerCrashedError())

    fake.on_wait = on_wait
    summary = call([one], store, n_nodes=2).run()
    [reason] = summary.reasons.values()
    assert reason.startswith("its node or its process was lost 4 times: The worker died")
    assert (len(fake.sent), fake.released) == (4, 4)


def test_the_first_signal_says_how_a_call_was_stopped(fake: FakeRay, store: Store) -> None:
    def on_wait() -> None:
        if not fake.cancelled:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGINT)

    fake.on_wait = on_wait
    summary = call(runs(1), store).run()
    assert (summary.stopped, summary.statuses) == ("preempted", {})
    assert len(fake.cancelled) == 1


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
    assert summary.statuses == {name: "failed"}
    assert summary.reasons == {name: "a process on another of its nodes was killed"}
    told = answered(WorkerEvent(status="failed", reason="it broke"), lost_peer=True)
    fake.ends[name] = [lost] * 3 + [told]
    assert call([one], store, n_nodes=2).run().reasons == {name: "it broke"}


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
    assert ([fake.waiting[0]], executor.END_S) in fake.awaited, "it has time for its end"


def test_processes_are_shared_evenly_by_nodes_or_refused(fake: FakeRay, store: Store) -> None:
    with pytest.raises(UserError) as refused:
        call(runs(1, size=4), store, n_nodes=3)
    said = "--nodes-per-run 3 does not divide 4 processes: choose a divisor"
    assert str(refused.value) == said


def test_runs_that_no_node_has_room_for_are_told_and_wait(
    fake: FakeRay,
    store: Store,
    capsys: pytest.CaptureFixture[str],
    kept_line: Callable[[str], None],
) -> None:
    looks = iter(range(9))
    runner = call(runs(2, size=16), store, cancelled=lambda: next(looks) == 2)
    assert runner.at_once() == 1
    runner.run()
    kept_line(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("size", "kinds", "said"),
    [
        (16, {}, "no node of the Ray cluster has 16 GPUs and 16 CPUs: such runs wait"),
        (1, {0: "A100"}, "block 0: no node of A100 is left; any may make it"),
    ],
)
def test_what_a_call_waits_for_is_shown_at_once(
    fake: FakeRay,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    size: int,
    kinds: dict[int, str],
    said: str,
) -> None:
    steps, shown_so_far = iter(range(9)), piped(monkeypatch)
    runner = call(runs(1, size=size), store, cancelled=lambda: next(steps) == 3)
    runner.kinds = kinds
    shown: list[str] = []
    fake.on_wait = lambda: shown.append(shown_so_far())
    monkeypatch.setattr(executor, "nodes_alive", lambda: NODES[:1])
    runner.run()
    assert shown[0].startswith(said)


def test_at_once_are_as_many_as_the_cluster_has_room_for(fake: FakeRay, store: Store) -> None:
    assert call(runs(40), store).at_once() == 12
    assert call(runs(40, size=4), store, n_nodes=2).at_once() == 3
    assert call(runs(5), store).at_once() == 5
    assert call(runs(40), store, max_parallel=7).at_once() == 7
