"""How a worker serves: alone, in forks or as one of a group, by its arguments; what its forks find imported."""

import gc
import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.runner import worker
from harness.runner.train_run import KERNEL_CACHES


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
