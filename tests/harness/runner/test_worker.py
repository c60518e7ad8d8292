"""How a worker serves: alone, in forks or as one of a group, by its arguments; what its forks find imported."""

import gc
import hashlib
import json
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from harness.errors import UserError
from harness.run.code import code_digest
from harness.runner import service, worker
from harness.runner.execute import Execution, request_of
from harness.runner.limits import RunLimits
from harness.runner.messages import WorkerEvent, WorkerRequest
from harness.runner.train_run import KERNEL_CACHES, StopRequest
from tests.fake_matrix import DEADLINE_S, ROOT
from tests.one_run import SPEC


@pytest.fixture(autouse=True)
def _thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


@pytest.mark.parametrize(
    ("arguments", "served"),
    [
        ((), ("one process", "m:f", True)),
        (("forks",), ("forks", "m:f", True)),
        (("2", "cuda"), ("group", "m:f", 2, "cuda")),
    ],
)
def test_the_arguments_say_how_it_serves(
    arguments: tuple[str, ...], served: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[Any] = []
    told: list[Any] = []

    def alone(kind: str) -> Any:
        return lambda trainer, stop: done.append((kind, trainer, told == [stop.ask]))

    monkeypatch.setattr(sys, "argv", ["worker", "m:f", *arguments])
    monkeypatch.setattr(worker, "tell_stops", lambda tell, numbers: told.append(tell))
    monkeypatch.setattr(worker, "serve_in_one_process", alone("one process"))
    monkeypatch.setattr(worker, "serve_in_forks", alone("forks"))
    monkeypatch.setattr(worker, "serve_in_group", lambda *asked: done.append(("group", *asked)))
    worker.main()
    assert done == [served]


@pytest.mark.parametrize("rank", [0, 1])
def test_the_first_rank_answers_requests_and_the_others_follow_it(
    rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[Any] = []
    waited = threading.Event()

    class Ranks:
        def __init__(self, n_processes: int, device: str) -> None:
            said.append(("joined", n_processes, device))
            self.rank = rank

        def follow_requests(self, train: Any) -> None:
            said.append(("follows", train))
            raise SystemExit

    def answer(requests: Any, answers: Any, train: Any, *, peers: Any, stop: Any) -> None:
        said.append(("answers", requests, train, peers.rank, stop.status))

    reader = SimpleNamespace(requests=lambda import_s: "requests")
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setattr(worker, "Answers", lambda: SimpleNamespace(send=said.append))
    monkeypatch.setattr(worker, "RequestReader", lambda: said.append("reads") or reader)
    monkeypatch.setattr(worker, "wait_for_end", lambda *inputs: waited.set())
    monkeypatch.setattr(worker, "load_trainer", lambda name: f"loaded {name}")
    monkeypatch.setattr(worker, "import_module", lambda name: SimpleNamespace(RankGroup=Ranks))
    monkeypatch.setattr(worker, "answer_requests", answer)
    joined = ("joined", 2, "cpu")
    if rank == 0:
        worker.serve_in_group("m:f", 2, "cpu")
        answered = ("answers", "requests", "loaded m:f", 0, None)
        assert said == ["reads", joined, worker.READY, answered]
        return
    with pytest.raises(SystemExit):
        worker.serve_in_group("m:f", 2, "cpu")
    assert waited.wait(10), "it ends with its runner"
    assert said == [joined, ("follows", "loaded m:f")]


COMPILER = ("torch._inductor.compile_fx", "torch._inductor.codecache")


@pytest.mark.parametrize(
    ("cache", "device", "imported"),
    [
        (None, "cpu", ()),
        ("kernels/mark", "cuda", COMPILER),
        ("kernels/mark", "cpu", (*COMPILER, "torch._inductor.cpu_vec_isa")),
    ],
)
def test_a_parent_imports_the_compiler_where_a_request_compiles(
    cache: str | None, device: str, imported: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    asked: list[str] = []
    module = SimpleNamespace(
        torch_key=lambda: asked.append("key"), pick_vec_isa=lambda: asked.append("isa")
    )
    for name in KERNEL_CACHES:
        monkeypatch.setenv(name, "before")
    monkeypatch.setattr(worker, "import_module", lambda name: names.append(name) or module)
    worker.prepare_compiler(json.dumps({"cache": cache, "spec": {"device": device}}))
    assert tuple(names) == imported
    assert asked == ["key", "isa"][: max(0, len(imported) - 1)]
    kept = {os.environ[name] for name in KERNEL_CACHES}
    assert kept == {"before" if cache is None else str(Path(cache).parent)}


SERVICE = """
import itertools, json, os
from types import SimpleNamespace
from harness.runner import service
from harness.runner.messages import WorkerEvent, WorkerRequest
seconds = itertools.count()
service.time = SimpleNamespace(perf_counter=lambda: next(seconds))
answers, reader = service.Answers(), service.RequestReader()
print("a library prints", flush=True)
for line, wall in reader.requests(1000):
    answers.send(WorkerEvent(status=line.strip(), reason=json.dumps(wall)))
"""


def test_a_worker_answers_on_its_output_alone_and_ends_with_its_input() -> None:
    command = [sys.executable, "-c", SERVICE]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as it:
        assert it.stdin is not None and it.stdout is not None and it.stderr is not None
        told = []
        for word in ("one", "two"):
            it.stdin.write(f"{word}\n")
            it.stdin.flush()
            told.append(WorkerEvent.from_line(it.stdout.readline().encode()))
        it.stdin.close()
        assert (it.stdout.read(), it.stderr.read()) == ("", "a library prints\n")
        assert it.wait(DEADLINE_S) == 0
    assert [event.status for event in told] == ["one", "two"]
    first, second = (json.loads(event.reason or "") for event in told)
    assert (first, second) == ({"import_s": 1000, "idle_s": 1}, {"idle_s": 1})


class FakeRequest(str):
    """A line that stands for a request."""

    spec, digests = None, MappingProxyType[str, str]({})


@pytest.mark.parametrize("error", [OSError(28, "No space left"), UserError("the source changed")])
def test_what_stands_in_the_way_of_every_run_is_told_and_the_next_request_is_read(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared: list[Any] = []
    told: list[WorkerEvent] = []

    def lead(request: Any, train: Any, **_: Any) -> WorkerEvent:
        if request == "first":
            raise error
        return WorkerEvent(status="finished")

    monkeypatch.setattr(service, "WorkerRequest", SimpleNamespace(from_line=FakeRequest))
    monkeypatch.setattr(service, "check_unchanged", lambda spec: None)
    monkeypatch.setattr(service, "lead", lead)
    peers: Any = SimpleNamespace(share=shared.append)
    answers: Any = SimpleNamespace(send=told.append)
    train: Any = None
    requests: list[Any] = [("first", {}), ("second", {})]
    service.answer_requests(requests, answers, train, peers=peers, stop=StopRequest())
    assert shared == ["first", "second"], "every rank has it"
    assert told == [WorkerEvent(status="broken", reason=str(error)), WorkerEvent(status="finished")]


def test_a_worker_parses_no_code_that_the_runner_has_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, other = f"one = {str(tmp_path)!r}", f"other = {str(tmp_path)!r}"
    spec = replace(SPEC, source_files={"a.py": code_digest(code)})
    store: Any = SimpleNamespace(root=tmp_path)
    run = Execution(spec=spec, store=store, command="", limits=RunLimits())
    key, another = (hashlib.sha256(text.encode()).hexdigest() for text in (code, other))
    request = request_of(run, spec, "t")
    assert request.digests == {key: code_digest(code)}, "and of nothing else"

    def lead(request: Any, train: Any, **_: Any) -> WorkerEvent:
        return WorkerEvent(status="finished")

    monkeypatch.setattr(service, "lead", lead)
    monkeypatch.setattr(service, "check_unchanged", lambda spec: code_digest(other))
    monkeypatch.setattr("ast.parse", None)
    peers: Any = SimpleNamespace(share=lambda request: None)
    answers: Any = SimpleNamespace(send=lambda event: None)
    train: Any = None
    line = replace(request, digests={another: "0" * 16}).to_line().decode()
    service.answer_requests([(line, {})], answers, train, peers=peers, stop=StopRequest())
    assert code_digest(other) == "0" * 16
    with pytest.raises(TypeError):
        code_digest(f"{other}\n")


@pytest.mark.parametrize("on_gpu", [False, True])
def test_what_a_run_left_in_circles_is_gone_before_the_next_one_is_read(
    on_gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network that holds itself would hold its memory, too; a GPU's is given back without it."""
    left: list[weakref.ref[FakeRequest]] = []
    there: list[bool] = []

    def look() -> None:
        there.extend(ref() is not None for ref in left)

    def lead(request: Any, train: Any, **_: Any) -> WorkerEvent:
        network: Any = FakeRequest()
        network.itself = network
        left.append(weakref.ref(network))
        return WorkerEvent(status="finished")

    def requests() -> Iterator[tuple[str, dict[str, float]]]:
        yield "first", {}
        look()

    monkeypatch.setattr(service, "WorkerRequest", SimpleNamespace(from_line=FakeRequest))
    monkeypatch.setattr(service, "check_unchanged", lambda spec: None)
    monkeypatch.setattr(service, "lead", lead)
    peers: Any = SimpleNamespace(share=lambda request: request)
    answers: Any = SimpleNamespace(send=lambda event: None)
    train: Any = None
    cuda = SimpleNamespace(is_initialized=lambda: on_gpu, empty_cache=look)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    gc.disable()
    try:
        service.answer_requests(requests(), answers, train, peers=peers, stop=StopRequest())
    finally:
        gc.enable()
    assert there == [False] * (2 if on_gpu else 1)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {
            "command": "ablate run",
            "cache": Path("/c/mark"),
            "micro_tokens": 32,
            "digests": {"a" * 64: "b" * 16},
        },
    ],
)
def test_what_runner_and_worker_tell_each_other_is_read_as_it_was_written(
    more: dict[str, Any],
) -> None:
    request = WorkerRequest(results=Path("/r"), spec=SPEC, token="t", **more)
    line = request.to_line().decode()
    assert WorkerRequest.from_line(line) == request and line.count("\n") == 1
    for seldom in ("micro_tokens", "digests"):
        assert (seldom in json.loads(line)) == bool(more)
    event = WorkerEvent(status="failed", reason="why", val_loss=1.5)
    assert WorkerEvent.from_line(event.to_line().encode()) == event
