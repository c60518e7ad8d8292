"""One request on a worker: every end of a trainer is an outcome, what it is trained with and what disturbed it is recorded."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.errors import UserError
from harness.node.load import Busy, ForeignLoad
from harness.node.stalls import Stalls
from harness.provenance.interpreters import EFFECT
from harness.run.disturbed import Disturbance, disturbed_words
from harness.run.metrics import Validation
from harness.run.results import read_result
from harness.run.spec import Outcome, RunSpec
from harness.runner import train_run
from harness.runner.messages import WorkerEvent, WorkerRequest
from harness.runner.train_run import (
    KERNEL_CACHES,
    TAKEN,
    Alone,
    StopRequest,
    as_requested,
    disturbances,
    lead,
    run,
    with_note,
)
from harness.store.attempt import RunWriter, TakenOverError, claim
from harness.store.errors import ResultsError
from harness.store.store import Store
from tests.one_run import DONE, SPEC
from tests.open_files import open_below, open_files

FINE = replace(SPEC, config={**SPEC.config, "data": {"micro_tokens": 64, "seq_len": 8}})


class Said:
    """What a trainer's run writes to."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def log(self, line: str) -> None:
        self.lines.append(line)


def ended_by(error: Exception | Outcome, asked: str | None = None) -> tuple[Outcome, list[str]]:
    """How a run ends whose trainer ends so, and what its log says."""

    def train(spec: RunSpec, **_: Any) -> Outcome:
        if isinstance(error, Exception):
            raise error
        return error

    stop, out = StopRequest(), Said()
    if asked is not None:
        stop.ask(asked)
    to: Any = out
    return run(SPEC, to, train, stop), out.lines


def test_whatever_a_trainer_raises_is_the_end_of_its_run() -> None:
    outcome, lines = ended_by(UserError("no such corpus: name another"))
    assert (outcome.status, outcome.reason, lines) == (
        *("failed", "no such corpus: name another"),
        [],
    )
    outcome, lines = ended_by(ValueError("the shapes\ndo not match"))
    assert (outcome.status, outcome.reason) == ("failed", "ValueError: the shapes")
    assert lines[0].startswith("Traceback") and lines[-1] == "do not match"
    outcome, _ = ended_by(RuntimeError("x" * 600))
    assert outcome.reason == "RuntimeError: " + "x" * 486
    for error in (MemoryError(), RuntimeError("CUDA out of memory. Tried to allocate")):
        outcome, _ = ended_by(error)
        assert outcome.status == "oom" and (outcome.peak_rss_mib or 0) > 0
    with pytest.raises(ResultsError):
        ended_by(ResultsError(Path("results"), OSError(28, "No space left on device")))


def test_a_run_that_a_signal_stopped_ends_as_the_signal_asks() -> None:
    stopped = Outcome(status="interrupted")
    outcome, _ = ended_by(stopped, asked="preempted")
    assert (outcome.status, outcome.reason) == ("preempted", "stopped by a signal")
    assert ended_by(stopped)[0] is stopped, "its run was taken over"
    assert ended_by(DONE, asked="preempted")[0] is DONE


def test_a_run_that_is_trained_in_smaller_passes_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in KERNEL_CACHES:
        monkeypatch.setenv(name, "before")
    request = WorkerRequest(results=tmp_path, spec=FINE, token="t")
    assert as_requested(request) == with_note(request) == FINE
    assert os.environ["TRITON_CACHE_DIR"] == "before"
    cache = tmp_path / "kernels" / "mark"
    trained = as_requested(replace(request, cache=cache, micro_tokens=32))
    assert trained.config["data"] == {"micro_tokens": 32, "seq_len": 8}
    note = "data.micro_tokens=32 instead of 64: memory ran out before"
    assert trained.substituted == (note,)
    assert with_note(replace(request, micro_tokens=32)) == replace(FINE, substituted=(note,))
    assert cache.is_dir()
    assert {os.environ[name] for name in KERNEL_CACHES} == {str(cache.parent)}


def test_a_machine_that_stood_still_and_others_on_its_gpu_disturb_a_run() -> None:
    load, stood = ForeignLoad(), Stalls()
    assert disturbances(stood, load, DONE) == ()
    load.seen.update([Busy(gpu="0", pid=7)] * 2)
    still: Any = SimpleNamespace(seconds=lambda timed: 9.4)
    told = [(d.kind, d.words) for d in disturbances(still, load, DONE)]
    assert told == [
        ("still", "it stood still for 9 s"),
        ("load", "process 7 computed on GPU 0 beside it"),
    ]


# ---------------------------------------------------------------- a whole request


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., WorkerEvent]:
    """The answer to a request for a run that a trainer ends well, on a machine with a diff."""
    Store.create(tmp_path / "results")
    machine = SimpleNamespace(
        to_json=lambda: {"host": "here"},
        lock={"torch": "2.9"},
        git=SimpleNamespace(diff_sha256="d" * 64),
    )
    monkeypatch.setattr(train_run, "describe_environment", lambda command: machine)
    monkeypatch.setattr(train_run, "snapshot", lambda paths: b"the code")
    monkeypatch.setattr(train_run, "working_diff", lambda: "a diff")
    monkeypatch.setattr(train_run, "look_at", lambda corpus: [])
    monkeypatch.setattr(train_run, "disturbances", lambda *_: ())

    def fails(spec: RunSpec, **_: Any) -> Outcome:
        return Outcome(status="failed", reason="as told")

    def inner(train: Any = fails, **wall: float) -> WorkerEvent:
        request = WorkerRequest(results=tmp_path / "results", spec=SPEC, token="t")
        return lead(request, train, wall=wall, peers=Alone(), stop=StopRequest())

    return inner


def test_a_run_keeps_the_code_its_diff_and_the_versions_that_it_met(
    ask: Callable[..., WorkerEvent], tmp_path: Path
) -> None:
    assert ask() == WorkerEvent(status="failed", reason="as told")
    kept = tmp_path / "results"
    assert (kept / f"code/{'d' * 64}.diff").read_bytes() == b"a diff"
    assert (kept / f"code/{SPEC.source_digest}.zip").read_bytes() == b"the code"
    lock = kept / f"environments/{SPEC.environment_digest}.json"
    assert lock.read_text() == '{\n "torch": "2.9"\n}'


def test_what_is_printed_in_a_run_is_in_its_log_and_what_comes_after_it_is_not(
    ask: Callable[..., WorkerEvent], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def prints(spec: RunSpec, **_: Any) -> Outcome:
        os.write(1, b"to its output\n")
        os.write(2, b"to its errors\n")
        return Outcome(status="failed")

    outputs = {os.readlink(f"/proc/self/fd/{number}") for number in (1, 2)}
    before = [name for name in open_files() if name in outputs]
    ask(prints)
    assert [name for name in open_files() if name in outputs] == before
    assert open_below(tmp_path) == []
    os.write(1, b"output later\n")
    os.write(2, b"errors later\n")
    assert capfd.readouterr() == ("output later\n", "errors later\n")
    log = (tmp_path / "results" / "runs" / SPEC.run_id / "log.txt").read_text()
    assert "to its output\nto its errors\n" in log and "later" not in log


def test_a_result_has_the_seconds_of_its_worker_and_what_disturbed_it(
    ask: Callable[..., WorkerEvent], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(spec: RunSpec, *, out: RunWriter, **_: Any) -> Outcome:
        out.metric(Validation(step=10, val_loss=1.5, train_time_s=1.0))
        return DONE

    clock = iter(range(100, 110))
    disturbed = (Disturbance(kind="load", words="process 7 computed on GPU 0 beside it"),)
    monkeypatch.setattr(train_run, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    monkeypatch.setattr(train_run, "disturbances", lambda *_: disturbed)
    monkeypatch.setenv(EFFECT, "another torch")
    event = ask(train, import_s=1000.0, idle_s=5.0)
    words = disturbed_words(disturbed)
    assert event == WorkerEvent(status="finished", reason=words, val_loss=1.5) and words
    result = read_result(tmp_path / "results" / "runs" / SPEC.run_id)
    assert result is not None and result.disturbed == disturbed
    wall = {"import_s": 1000.0, "idle_s": 5.0, "train_s": 1.0, "total_s": 1001.0}
    assert (result.wall, result.content["environment_effect"]) == (wall, "another torch")


@pytest.mark.parametrize("lost", ["before", "its end", "meanwhile"])
def test_a_run_that_somebody_else_has_is_answered_as_taken(
    ask: Callable[..., WorkerEvent], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    def finish(self: RunWriter, outcome: Outcome) -> bool:
        if lost == "meanwhile":
            raise TakenOverError
        return False

    theirs = claim(Store(tmp_path / "results"), SPEC) if lost == "before" else None
    monkeypatch.setattr(RunWriter, "finish", finish)
    assert ask() == TAKEN
    if theirs is not None:
        theirs.release()
    ours = claim(Store(tmp_path / "results"), SPEC)
    assert ours is not None, "its claim is let go"
    ours.release()
