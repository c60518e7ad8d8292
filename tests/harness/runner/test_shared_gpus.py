"""Two runners on one node, in results folders of their own, never use a GPU at the same time."""

import errno
import json
import os
import sys
import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.node.device_locks import DeviceLocks
from harness.node.slots import Node, Slot
from harness.run.read import read_lines
from harness.run.spec import PlannedRun
from harness.runner import service
from harness.runner.executor import ExecutorOptions
from harness.runner.local import Runner
from harness.runner.messages import WorkerEvent
from harness.runner.service import Answers
from harness.runner.train_run import Alone, StopRequest
from harness.store.store import Store
from tests.fake_driver import FakeDriver
from tests.fake_matrix import DEADLINE_S, Matrix, wait_for
from tests.one_run import SPEC

N_GPUS, N_SEEDS = 2, 3
IN_USE = "is in use by another runner on this node"


def spans_of(results: Path) -> list[tuple[str, str, str]]:
    """(GPU, when it was begun, when it ended) of every attempt."""
    spans = []
    for run in sorted((results / "runs").iterdir()):
        began, ended = read_lines(run / "attempts.jsonl")
        gpus = json.loads((run / "environment.json").read_text())["variables"][
            "CUDA_VISIBLE_DEVICES"
        ]
        for gpu in gpus.split(","):
            spans.append((gpu, began["started"], ended["ended"]))
    return spans


@pytest.mark.parametrize(
    "options",
    [
        pytest.param((), id="one GPU"),
        pytest.param(("--gpus-per-run", "2"), id="two GPUs", marks=pytest.mark.slow),
    ],
)
def test_two_runners_in_two_folders_share_no_gpu(tmp_path: Path, options: tuple[str, ...]) -> None:
    environment = FakeDriver(tmp_path, N_GPUS).environment | {"CUDA_VISIBLE_DEVICES": "0,1"}
    both = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        environment["FAKE_STEP_S"] = "0.02"
        both.append(Matrix(tmp_path / name, n_seeds=N_SEEDS, FAKE={"0": "hold"}, **environment))
    exclusive = ("--set", "system.compile=off", "--set", "timing.exclusive_node=true")
    processes = [
        both[0].start("--set", "system.compile=off"),
        both[1].start(*(exclusive if options else exclusive[:2])),
    ]
    said = [process.said[0] for process in processes]
    wait_for(lambda: any(path.exists() and IN_USE in path.read_text() for path in said))
    for matrix in both:
        (matrix.file.parent / "go").touch()
    outputs = [process.communicate(timeout=DEADLINE_S) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    spans = sorted(spans_of(both[0].results) + spans_of(both[1].results))
    assert len(spans) == 2 * 2 * N_SEEDS
    for (gpu, _, ended), (next_gpu, began, _) in pairwise(spans):
        assert gpu != next_gpu or ended <= began
    if options:
        whole = [(began, ended) for _, began, ended in spans_of(both[1].results)]
        for _, began, ended in spans_of(both[0].results):
            assert all(ended <= b or e <= began for b, e in whole)  # on the other GPU neither


def test_who_needs_several_gpus_comes_before_those_that_come_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"0": "GPU-a", "1": "GPU-b"}
    first, second, third = (DeviceLocks(names, tmp_path) for _ in range(3))
    assert first.take(["0", "1"], 1) == ("0",)
    assert second.take(["0", "1"], 2) is None  # it has the other one, and waits
    assert second.busy == ("0",)
    assert "GPU 0 is in use by another runner on this node: runs wait" in capsys.readouterr().out
    assert first.take(["1"], 1) is None
    said = "another runner on this node waits for several GPUs: runs wait for it\n"
    assert capsys.readouterr().out == said
    assert third.take(["0", "1"], 2) is None
    first.release(["0"])
    assert first.take(["0", "1"], 1) is None  # not before the second
    assert second.take(["0", "1"], 2) == ("0", "1")
    second.release(["0", "1"])
    assert third.take(["0", "1"], 1) == ("0",)


class Idle:
    """A warm worker that waits for its next run."""

    def __init__(self, gpu: str) -> None:
        self.slot = Slot(held=(gpu,), gpus=(gpu,))
        self.closed = threading.Event()

    def close(self) -> None:
        self.closed.set()


def test_an_idle_worker_goes_where_another_runner_has_its_gpu_and_stays_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABLATE_LOCKS", str(tmp_path / "locks"))
    names = {"0": "GPU-a", "1": "GPU-b"}
    node = Node(gpus=["0", "1"], identifiers=names)
    config = {"timing": {"exclusive_node": False}, "system": {"compile": "off"}}
    spec = replace(SPEC, config=config, world_size=2)
    planned = PlannedRun(arm="a", block=0, place=0, spec=spec)
    runner = Runner([planned], Store.create(tmp_path), node, ExecutorOptions())
    taken, free = Idle("0"), Idle("1")
    runner.idle = [taken, free]
    other = DeviceLocks(names)
    for _ in range(3):  # nobody else wants a GPU: both stay warm
        runner.make_way()
    assert runner.idle == [taken, free]
    assert other.take(["0"], 1) == ("0",)
    assert runner.go_on()  # its run waits for both GPUs
    assert taken.closed.wait(DEADLINE_S)
    assert runner.idle == [free]
    assert not free.closed.is_set()


def test_the_memory_of_a_run_is_given_back_before_its_end_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []

    class Cuda:
        is_initialized = staticmethod(lambda: True)
        empty_cache = staticmethod(lambda: told.append("emptied"))

    class Told(Answers):
        def __init__(self) -> None:
            pass

        def send(self, event: WorkerEvent) -> None:
            told.append(event.status)

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=Cuda))
    monkeypatch.setattr(service, "check_unchanged", lambda spec: None)
    monkeypatch.setattr(service, "lead", lambda *_, **__: WorkerEvent(status="finished"))
    request = SimpleNamespace(spec=SPEC, digests={})
    monkeypatch.setattr(service.WorkerRequest, "from_line", lambda line: request)
    service.answer_requests([("", {})] * 2, Told(), lambda: None, peers=Alone(), stop=StopRequest())
    assert told == ["emptied", "finished"] * 2


def test_a_gpu_that_another_user_has_is_not_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def protected(path: Path, flags: int, *rest: int) -> int:
        """As kernels open files of another user in a folder that everybody may write."""
        if flags & os.O_CREAT and path.exists():
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return real(path, flags, *rest)

    mask = os.umask(0o077)
    try:
        theirs, ours = (DeviceLocks({"0": "GPU-a"}, tmp_path) for _ in range(2))
        assert theirs.take(["0"], 1) == ("0",)
    finally:
        os.umask(mask)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o644}
    monkeypatch.setattr(os, "open", protected)
    assert ours.take(["0"], 1) is None
    theirs.release(["0"])
    assert ours.take(["0"], 1) == ("0",)


def test_a_gpu_has_one_lock_whatever_a_runner_calls_it(tmp_path: Path) -> None:
    by_index, by_name = DeviceLocks({"0": "GPU-a"}, tmp_path), DeviceLocks({}, tmp_path)
    assert by_index.take(["0"], 1) == ("0",)
    assert by_name.take(["GPU-a"], 1) is None
