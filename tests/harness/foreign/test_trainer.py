"""One run of a foreign script: how it ended, what is kept of what it printed, what ends it; scripts of a shell."""

import os
import platform
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.errors import UserError
from harness.foreign import trainer as trainer_module
from harness.foreign.clean_copy import copy_of, environment_of
from harness.foreign.command import ForeignTrainer
from harness.foreign.log_lines import LINE_LIMIT
from harness.foreign.trainer import TrainerWatch, line_batches, train
from harness.node.slots import Slot
from harness.provenance.code import Code
from harness.run.foreign import TrainerLimits
from harness.run.measured import ForeignMarks
from harness.run.read import read_lines
from harness.run.readings import OwnMetric, Readings
from harness.run.spec import Outcome, RunSpec
from harness.store.attempt import RunWriter, claim
from harness.store.errors import ResultsError
from harness.store.store import Store
from tests.fake_matrix import wait_for
from tests.one_run import SPEC

FIRST = "step:0/10 val_loss:9.5 train_time:0ms step_avg:nanms"
LAST = "step:10/10 val_loss:3.25 train_time:2000ms step_avg:200.00ms"
TRAINER = ForeignTrainer(
    command="sh {script}",
    script="train.sh",
    args=(),
    env={},
    patches=(),
    data={},
    gpus=0,
    environment={},
)


def says(*lines: str, then: str = "") -> str:
    return "".join(f"echo '{line}'\n" for line in lines) + then


class Bench:
    """Runs scripts of a shell, one each; `out` is the last one's writer."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, Store.create(folder / "results")
        self.out: RunWriter | None = None

    def spec(self, **how: Any) -> RunSpec:
        return replace(SPEC, config={"trainer": replace(TRAINER, **how).to_mapping()})

    def run(
        self,
        script: str,
        *,
        limits: TrainerLimits | None = None,
        stop: Callable[[], str | None] = lambda: None,
        **how: Any,
    ) -> Outcome:
        code = Code(script="train.sh", files={"train.sh": script.encode()})
        spec = self.spec(**how)
        self.out = claim(self.store, spec)
        assert self.out is not None
        options: dict[str, Any] = {"slot": Slot(held=()), "limits": limits or TrainerLimits()}
        try:
            return train(spec, out=self.out, code=code, stop=stop, **options)
        finally:
            self.out.checked(Outcome(status="failed"))  # what was written is on the disk
            assert not copy_of(self.out).exists()

    def rows(self) -> list[tuple[Any, ...]]:
        assert self.out is not None
        found = []
        for row in read_lines(self.out.run / "metrics.jsonl"):
            loss = row["val_loss"] if row["kind"] == "val" else row["train_loss"]
            found.append((row["kind"], row["step"], loss))
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_run_that_ends_well_has_its_numbers_its_steps_and_its_log(bench: Bench) -> None:
    outcome = bench.run(says("hello", FIRST, "step:5/10 train_loss:4.5 train_time:1s", LAST))
    assert (outcome.status, outcome.reason) == ("finished", None)
    final = outcome.final
    assert (final.val_loss, final.train_time_s, final.step_ms, final.steps) == (3.25, 2.0, 200, 10)
    assert outcome.wall["train_s"] == 2.0 and 0 < outcome.wall["total_s"] < 100
    assert isinstance(outcome.marks, ForeignMarks) and outcome.marks.budget == 10
    assert (outcome.marks.stopped_at, outcome.marks.environment_effect) == (None, None)
    told = outcome.marks.to_json()
    assert "own" not in told and "stopped_at" not in told  # of few runs
    assert bench.rows() == [("val", 0, 9.5), ("train", 5, 4.5), ("val", 10, 3.25)]
    assert bench.out is not None
    bench.out.describe({"host": "here"})
    bench.out.finish(outcome)
    log = (bench.out.run / "log.txt").read_text().splitlines()
    assert log[:3] == ["$ sh train.sh", "hello", FIRST] and LAST in log


@pytest.mark.parametrize(
    ("script", "status", "reason"),
    [
        (
            says(FIRST, "step:5/10 val_loss:nan train_time:1s", LAST, then="exit 3"),
            "diverged",
            "the loss was not finite or exploded at step 5",
        ),
        (says(FIRST, then="exit 3"), "failed", "its command ended with exit code 3"),
        (says(FIRST, LAST, then="exit 3"), "failed", "its command ended with exit code 3"),
        (
            says("torch.OutOfMemoryError: CUDA out of memory. Tried 2 GiB", then="exit 1"),
            "oom",
            "its command ended with exit code 1: torch.OutOfMemoryError: CUDA out of memory",
        ),
        (says("hello"), "failed", "its log: it has no validation loss in the benchmark's format"),
        (says(FIRST), "failed", "its log: it ends without its final validation: the last one is"),
    ],
)
def test_a_run_that_does_not_end_well_says_why(
    bench: Bench, script: str, status: str, reason: str
) -> None:
    outcome = bench.run(script)
    assert outcome.status == status
    assert outcome.reason is not None and outcome.reason.startswith(reason)
    assert outcome.wall["total_s"] > 0
    if status == "diverged":
        assert bench.rows()[-1][:2] == ("val", 5)  # what comes later is not read
        assert isinstance(outcome.marks, ForeignMarks)


def test_a_loss_of_its_own_stands_in_the_marks_and_a_planned_stop_ends_it(bench: Bench) -> None:
    metric = OwnMetric(name="bpb", pattern="bpb=([0-9.]+)")
    readings = Readings(metrics=(metric,), stop_step=5)
    script = says(FIRST, "step:5/10 val_loss:4.0 train_time:1s", "bpb=0.875", then="sleep 60")
    outcome = bench.run(script, readings=readings)
    assert (outcome.status, outcome.reason) == ("finished", "stopped at step 5, as planned")
    assert isinstance(outcome.marks, ForeignMarks)
    assert (outcome.marks.stopped_at, outcome.marks.own) == (5, {"bpb": 0.875})
    assert outcome.marks.to_json().items() >= {"stopped_at": 5, "own": {"bpb": 0.875}}.items()


def test_every_reading_of_a_metric_is_kept_once_with_its_step(bench: Bench) -> None:
    readings = Readings(metrics=(OwnMetric(name="bpb", pattern="bpb=([0-9.]+)"),))
    bench.run(says("bpb=0.5", FIRST, "hello", "bpb=0.25", LAST), readings=readings)
    assert bench.out is not None
    rows = [row for row in read_lines(bench.out.run / "metrics.jsonl") if "bpb" in row.values()]
    assert [(row["step"], row["value"]) for row in rows] == [(None, 0.5), (0, 0.25)]


def test_what_a_script_leaves_at_its_end_is_read_unless_it_diverged(bench: Bench) -> None:
    metrics = (OwnMetric(name="acc", field="acc"), OwnMetric(name="out", file="out.txt"))
    leaves = says('{"acc": 0.5}', then="echo 0.25 > out.txt\n")
    for line, own in (
        (LAST, {"acc": 0.5, "out": 0.25}),
        ("step:5/10 val_loss:nan train_time:1s", {}),
    ):
        outcome = bench.run(leaves + says(FIRST, line), readings=Readings(metrics=metrics))
        assert outcome.status == ("finished" if own else "diverged")
        assert isinstance(outcome.marks, ForeignMarks) and outcome.marks.own == own
        assert bench.out is not None
        bench.out.release()


def test_the_last_line_of_a_log_of_its_own_counts_without_an_end(bench: Bench) -> None:
    outcome = bench.run(f"printf '{FIRST}\\n{LAST}' > a.log\n", log="*.log")
    assert (outcome.status, outcome.final.val_loss) == ("finished", 3.25)


@pytest.mark.parametrize(
    ("line", "own", "at"),
    [
        ("step:5/10 val_loss:4.0 train_time:1s", (), (5, 10)),
        ("bpb=0.875", (OwnMetric(name="bpb", pattern="bpb=([0-9.]+)"),), (0, 0)),
    ],
)
def test_where_a_script_is_is_told_as_far_as_its_lines_say_it(
    bench: Bench, line: str, own: tuple[OwnMetric, ...], at: tuple[int, int]
) -> None:
    readings = Readings(metrics=own)
    bench.run(says(line), readings=readings)
    run_id = bench.spec(readings=readings).run_id
    wait_for(lambda: bench.store.progress(run_id) is not None)
    shown = bench.store.progress(run_id)
    assert shown is not None and (shown.step, shown.steps) == at


LIMITS: list[tuple[TrainerLimits, str]] = [
    (TrainerLimits(wall_s=0.5, silence_s=60), "it ran longer than its wall limit of 0.5 s"),
    (TrainerLimits(wall_s=60, silence_s=0.25), "it printed nothing for 0.25 s"),
    (TrainerLimits(wall_s=None, silence_s=0.25), "it printed nothing for 0.25 s"),
]


@pytest.mark.parametrize(("limits", "reason"), LIMITS)
def test_a_run_that_hangs_is_ended_at_its_limit(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, limits: TrainerLimits, reason: str
) -> None:
    monkeypatch.setattr(trainer_module, "POLL_S", 0.02)
    outcome = bench.run(says(FIRST, then="sleep 60"), limits=limits)
    assert (outcome.status, outcome.reason) == ("timeout", reason)


@pytest.mark.parametrize("writes", ["echo .", "echo . >> a.log"])
def test_lines_keep_a_run_from_being_silent(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, writes: str
) -> None:
    """By a clock that the script itself moves on, a second with every line."""
    ticks = bench.folder / "ticks"
    ticks.touch()
    clock = SimpleNamespace(monotonic=lambda: float(ticks.stat().st_size))
    monkeypatch.setattr(trainer_module, "time", clock)
    monkeypatch.setattr(trainer_module, "POLL_S", 0.01)
    line = f"{writes}; printf . >> {ticks}; sleep 0.05"
    script = says(FIRST, then=f"for i in 1 2 3 4 5 6 7 8; do {line}; done\n") + says(LAST)
    outcome = bench.run(script, limits=TrainerLimits(silence_s=6), log="*.log")
    assert outcome.status == "finished", outcome


def test_a_signal_ends_a_run_with_its_status(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer_module, "POLL_S", 0.02)
    outcome = bench.run(says(then="sleep 60"), stop=lambda: "preempted")
    assert (outcome.status, outcome.reason) == ("preempted", "stopped by a signal")


@pytest.mark.parametrize(
    ("script", "done"),
    [
        ("yes 0123456789abcdef | head -c {n}", "printed"),
        ("yes 0123456789abcdef | head -c {n} > a.log", "printed and wrote into its own logs"),
    ],
)
def test_too_much_output_ends_a_run_at_its_limit(bench: Bench, script: str, done: str) -> None:
    limits = TrainerLimits(output_mib=0.1)
    little, much = (f"{script.format(n=n)}\n{says(FIRST, LAST)}" for n in (100_000, 110_000))
    assert bench.run(little, limits=limits, log="*.log").status == "finished"
    assert bench.out is not None
    bench.out.release()
    outcome = bench.run(much, limits=limits, log="*.log")
    reason = f"it {done} more than its output limit of 0.1 MiB"
    assert (outcome.status, outcome.reason) == ("failed", reason)


def test_the_environment_of_a_run_is_this_machines_with_the_scripts_command(bench: Bench) -> None:
    described = environment_of(bench.spec(args=("--lr=0.1 x",)), Path("copy"))
    assert described["command"] == "sh train.sh '--lr=0.1 x'"
    assert described["trainer"]["args"] == ["--lr=0.1 x"]
    assert described["lock"]["torch"] == described["torch"]
    assert described["packages"] and described["host"] == platform.node()


# ---------------------------------------------------------------- lines


def batches(*written: bytes) -> list[list[bytes]]:
    """What is read of a pipe into which this was written, look by look."""
    out, into = os.pipe()
    found, waiting = [], list(written)
    with os.fdopen(out, "rb") as pipe:
        os.write(into, waiting.pop(0))
        for lines in line_batches(pipe):
            found.append(lines)
            if waiting:
                os.write(into, waiting.pop(0))
            elif into >= 0:
                os.close(into)
                into = -1
    return found


def test_lines_come_as_they_are_ended_and_the_last_one_without_an_end_too() -> None:
    assert batches(b"a\nb", b"c\n\nd") == [[b"a"], [b"bc", b""], [b"d"]]
    assert batches(b"a\n") == [[b"a"], []]


def test_a_line_that_does_not_end_is_cut_at_the_limit() -> None:
    half = b"x" * (LINE_LIMIT // 2)
    assert batches(half, half, b"y\nz\n") == [[], [], [half + half + b"y", b"z"], []]
    found = batches(half, half, b"yy", b"end\n")
    assert found == [[], [], [half + half], [b"end"], []]


def test_where_nothing_comes_the_looks_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer_module, "POLL_S", 0.01)
    out, into = os.pipe()
    with os.fdopen(out, "rb") as pipe:
        looks = line_batches(pipe)
        assert next(looks) == [] and next(looks) == []
        os.write(into, b"late\n")
        assert next(looks) == [b"late"]
        os.close(into)
        assert list(looks) == [[]]


def test_as_much_output_as_the_limit_allows_is_not_too_much(bench: Bench) -> None:
    n_bytes = len(f"{FIRST}\n{LAST}\n")
    for left_over, status in ((0, "finished"), (1, "failed")):
        limits = TrainerLimits(output_mib=(n_bytes - left_over) / 2**20)
        assert bench.run(says(FIRST, LAST), limits=limits).status == status
        assert bench.out is not None
        bench.out.release()


# ---------------------------------------------------------------- told to go, before we hear of it


class Clock:
    """A clock that goes as it is waited for; after so many waits the signal comes."""

    def __init__(self, n_waits: int) -> None:
        self.now, self.waits, self.n_waits = 0.0, 0, n_waits

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.waits += 1

    def stop(self) -> str | None:
        return "preempted" if self.waits == self.n_waits else None


TERM = "kill -TERM $$\n"
TOLD = {  # script -> waits before we are told, and how the run ended
    TERM: (3, "preempted", "stopped by a signal"),
    "echo 'rank 1 got signal: 15'; exit 1": (3, "preempted", "stopped by a signal"),
    f"{TERM} # nobody tells": (99, "failed", "its command was killed by signal 15"),
    "echo 'it failed'; exit 3": (1, "failed", "its command ended with exit code 3: it failed"),
}


@pytest.mark.parametrize("script", TOLD)
def test_a_command_that_a_signal_ended_waits_for_ours(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    n_waits, status, reason = TOLD[script]
    clock = Clock(n_waits)
    monkeypatch.setattr(trainer_module, "time", clock)
    monkeypatch.setattr(trainer_module, "POLL_S", 0.5)
    outcome = bench.run(script, stop=clock.stop)
    assert (outcome.status, outcome.reason) == (status, reason)
    waited = {"preempted": 3, "failed": 4 if TERM in script else 0}
    assert clock.waits == waited[status], "as long as a cluster may take to tell us, two seconds"


def test_what_cannot_be_kept_of_a_run_ends_it_and_a_folder_that_fails_ends_all(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def follow(self: TrainerWatch, *_: object) -> None:
        raise error

    monkeypatch.setattr(TrainerWatch, "follow", follow)
    error: UserError = UserError("it measured too much")
    outcome = bench.run(says(FIRST, then="sleep 60"))
    assert (outcome.status, outcome.reason) == ("failed", "it measured too much")
    assert bench.out is not None
    bench.out.release()
    error = ResultsError(bench.store.root, OSError(28, "No space left on device"))
    with pytest.raises(ResultsError):
        bench.run(says(FIRST))
