"""How a run ends and the numbers it ends with, from losses and times that are known: no weight is trained here."""

import io
import math
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.corpora.index import prepare
from harness.errors import UserError
from harness.run.measured import Measured
from harness.run.spec import Branch, Outcome, RunSpec
from harness.training import train as protocol
from harness.training.clock import Clock, Counted, Stopwatch
from harness.training.core import Core
from harness.training.train import Training
from tests.one_training import STEPS, Recorder

LN_VOCABULARY = math.log(257)  # of the text corpora: 256 bytes and a separator
EVERY = 5  # steps between validations, of 14: 0, 5, 10, 14


class Scripted:
    """A training whose losses are told: by validation, and by step; each step takes its seconds."""

    def __init__(
        self,
        spec: RunSpec,
        val: Sequence[float],
        *,
        train: dict[int, float] | None = None,
        seconds: Callable[[int], float] = lambda step: 1.0,
    ) -> None:
        self.out, self.now = Recorder(), 0.0
        self.training = Training(spec, device="cpu", out=self.out)  # type: ignore[arg-type]
        self.training.clock = Clock(torch.device("cpu"), now=lambda: self.now)
        self.vals, self.train, self.seconds = iter(val), train or {}, seconds
        self.training.core.update = self.update  # type: ignore[method-assign]
        self.training.core.evaluate = self.evaluate  # type: ignore[method-assign]

    def update(self, step: int, batches: Any) -> torch.Tensor:
        self.now += self.seconds(step)
        return torch.tensor([self.train.get(step, 3.0), 3.0])

    def evaluate(self, step: int, batches: Iterable[Any]) -> torch.Tensor:
        self.now += 1000.0
        return torch.full((len(list(batches)),), next(self.vals), dtype=torch.float64)

    def run(self) -> tuple[int, str]:
        return self.training.run(lambda: False)


@pytest.mark.parametrize(
    ("val", "end"),
    [
        ([1.0, 2 * LN_VOCABULARY - 0.01, 3.0, 3.0], (STEPS, "finished")),  # ln(V) is the larger
        ([1.0, 2 * LN_VOCABULARY + 0.01], (EVERY, "diverged")),
        ([20.0, 39.9, 3.0, 3.0], (STEPS, "finished")),  # the first validation is
        ([20.0, 40.1], (EVERY, "diverged")),
        ([20.0, 3.0, 3.0, 39.9], (STEPS, "finished")),  # the first, not the latest
        ([20.0, 3.0, 3.0, 40.1], (STEPS, "diverged")),
        ([3.0, math.inf], (EVERY, "diverged")),
        ([3.0, math.nan], (EVERY, "diverged")),
        ([math.nan], (0, "diverged")),
    ],
)
def test_a_loss_beyond_twice_the_first_or_the_uniform_one_has_exploded(
    spec_of: Callable[..., RunSpec], val: list[float], end: tuple[int, str]
) -> None:
    assert Scripted(spec_of(), val).run() == end


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
@pytest.mark.parametrize(("step", "seen_at"), [(0, EVERY), (4, EVERY), (5, 10), (13, STEPS)])
def test_a_training_loss_that_is_not_finite_is_divergence_though_validations_are(
    spec_of: Callable[..., RunSpec], wrong: float, step: int, seen_at: int
) -> None:
    scripted = Scripted(spec_of(), [3.0] * 4, train={step: wrong})
    assert scripted.run() == (seen_at, "diverged")
    rows = [r for r in scripted.out.rows if r["kind"] == "train" and r["step"] == step]
    assert [math.isfinite(r["train_loss"]) for r in rows] == [False]


@pytest.mark.parametrize(("last", "told"), [(3.0, [(STEPS, 3.5)]), (math.nan, []), (50.0, [])])
def test_held_out_text_is_validated_at_the_end_of_a_run_that_did_not_diverge(
    spec_of: Callable[..., RunSpec],
    last: float,
    told: list[tuple[int, float]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scripted = Scripted(spec_of(), [3.0, 3.0, 3.0, last, 3.5])
    scripted.training.heldout = scripted.training.val  # another text, as far as this test goes
    lines: list[str] = []
    monkeypatch.setattr(scripted.out, "log", lines.append)
    scripted.run()
    assert lines == ["step:14/14 heldout_loss:3.5000"] * len(told)
    rows = [r for r in scripted.out.rows if r["kind"] == "heldout"]
    assert [(r["step"], r["heldout_loss"]) for r in rows] == told
    final = scripted.training.final(STEPS).heldout_loss
    assert final == 3.5 if told else math.isnan(final)


def test_the_mean_of_the_losses_is_that_of_their_steps(spec_of: Callable[..., RunSpec]) -> None:
    scripted = Scripted(spec_of(), [3.0] * 4, train={step: float(step) for step in range(STEPS)})
    scripted.run()
    rows = [(r["step"], r["train_loss"]) for r in scripted.out.rows if r["kind"] == "train"]
    assert rows == [(step, (step + 3.0) / 2) for step in range(STEPS)]


def test_the_final_numbers_are_those_of_the_steps_by_hand(spec_of: Callable[..., RunSpec]) -> None:
    """Steps of 1, 4, 9, ... 576 s. The 95th percentile is 0.95 of the way from the 1st to the 24th: at 1 + 0.95 * 23 = 22.85."""
    spec = spec_of(schedule__steps=24, timing__protocol="warmup-restore")
    scripted = Scripted(spec, [3.0] * 6, seconds=lambda step: (step + 1.0) ** 2)
    assert scripted.run() == (24, "finished")
    final = scripted.training.final(24)
    batch = spec.config["data"]["batch_tokens"]
    assert final.step_ms_p95 == pytest.approx(1000 * (22**2 + 0.85 * (23**2 - 22**2)))
    assert final.step_ms_median == 1000 * (12**2 + 13**2) / 2
    assert final.train_time_s == 24 * 25 * 49 / 6
    assert final.step_ms == pytest.approx(1000 * 25 * 49 / 6)
    assert (final.steps, final.tokens) == (24, 24 * batch)
    assert final.tokens_per_s == pytest.approx(batch * 6 / (25 * 49))


def test_a_run_of_no_step_has_no_times(spec_of: Callable[..., RunSpec]) -> None:
    scripted = Scripted(spec_of(), [math.nan])
    assert scripted.run() == (0, "diverged")
    final = scripted.training.final(0)
    assert (final.steps, final.tokens, final.train_time_s) == (0, 0, 0.0)
    for name in ("step_ms", "step_ms_median", "step_ms_p95", "tokens_per_s", "mfu"):
        assert getattr(final, name) is None, name


def test_no_percentile_lies_beyond_the_slowest_step(spec_of: Callable[..., RunSpec]) -> None:
    spec = spec_of(schedule__steps=3, timing__protocol="warmup-restore")
    scripted = Scripted(spec, [3.0, 3.0], seconds=lambda step: (1.0, 2.0, 10.0)[step])
    scripted.run()
    assert scripted.training.final(3).step_ms_p95 == pytest.approx(2000 + 0.9 * 8000)


def test_one_step_has_a_mean_and_no_quantile(spec_of: Callable[..., RunSpec]) -> None:
    scripted = Scripted(spec_of(schedule__steps=1, timing__protocol="warmup-restore"), [3.0, 3.0])
    scripted.run()
    final = scripted.training.final(1)
    assert (final.step_ms, final.step_ms_median, final.step_ms_p95) == (1000, 1000, None)


def test_memory_that_ran_out_is_an_outcome_with_its_first_line(
    spec_of: Callable[..., RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(core: Core, step: int, batches: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 2 GiB")

    monkeypatch.setattr(Core, "update", full)
    spec = spec_of(timing__protocol="skip10")
    outcome = protocol.train(spec, out=Recorder(), device="cpu", stop=lambda: False)  # type: ignore[arg-type]
    expected = Outcome(status="oom", reason="CUDA out of memory.", final=Measured())
    assert outcome == expected


@pytest.mark.parametrize(("device", "peak_mib"), [("cuda", 3.0), ("cpu", None)])
def test_a_gpu_whose_memory_ran_out_tells_its_peak(
    device: str,
    peak_mib: float | None,
    spec_of: Callable[..., RunSpec],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(protocol, "Training", full)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 3 << 20)
    outcome = protocol.train(spec_of(), out=Recorder(), device=device, stop=lambda: False)
    final = Measured(peak_allocated_mib=peak_mib)
    assert outcome == Outcome(status="oom", reason="CUDA out of memory.", final=final)


def test_losses_are_means_over_all_processes(
    spec_of: Callable[..., RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one of two has losses of 5 in training, and 4 for each of its micro-batches."""
    scripted = Scripted(spec_of(), [2.0] * 4)
    n_micro = scripted.training.val.n_micro
    scripted.training.core.world = 2

    def add_others(tensor: torch.Tensor) -> None:
        tensor += 5.0 if tensor.ndim else 4.0 * n_micro

    monkeypatch.setattr(protocol.dist, "all_reduce", add_others)
    assert scripted.run() == (STEPS, "finished")
    for row in scripted.out.rows:
        assert row.get("train_loss", 4.0) == 4.0 and row.get("val_loss", 6.0) == 6.0
    assert len(scripted.out.rows) == STEPS + 4


def test_every_step_is_told_to_who_watches(
    spec_of: Callable[..., RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted = Scripted(spec_of(), [3.0] * 4)
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(scripted.out, "heartbeat", lambda *at: told.append(at))
    scripted.run()
    assert told == [(step, STEPS) for step in range(STEPS)]


@pytest.mark.parametrize(
    ("skips", "compiled", "at"),
    [(True, True, [5]), (True, False, []), (False, True, [])],
)
def test_guards_are_skipped_where_that_is_asked_for_once_they_held_five_steps(
    skips: bool,
    compiled: bool,
    at: list[int],
    spec_of: Callable[..., RunSpec],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scripted = Scripted(spec_of(system__skip_guards=skips), [3.0] * 4)
    n_steps, skipped = [0], list[int]()

    def update(step: int, batches: Any) -> torch.Tensor:
        n_steps[0] += 1
        return torch.tensor([3.0])

    def set_stance(stance: str, *, skip_guard_eval_unsafe: bool) -> None:
        assert (stance, skip_guard_eval_unsafe) == ("default", True)
        skipped.append(n_steps[0])

    monkeypatch.setattr(scripted.training.core, "update", update)
    scripted.training.compiled = compiled
    monkeypatch.setattr(torch.compiler, "set_stance", set_stance)
    scripted.run()
    assert skipped == at


def test_one_process_of_several_saves_weights_and_optimizers(
    spec_of: Callable[..., RunSpec],
) -> None:
    scripted = Scripted(spec_of(), [])
    training = scripted.training
    training.rank = 1
    training.checkpoint(7)
    assert scripted.out.files == {}
    training.rank = 0
    training.checkpoint(7)
    state = torch.load(io.BytesIO(scripted.out.files["checkpoint.pt"]), weights_only=True)
    assert (state["step"], len(state["optimizers"])) == (7, len(training.core.optimizers))
    assert state["model"].keys() == training.core.model.state_dict().keys()


STAGED = {
    **{"data__alignment": "packed", "data__loader": "global", "model__attn_mask": "document"},
    **{"model__attn_kernel": "dense", "data__seq_len": 64, "data__micro_tokens": 64},
    **{"data__batch_tokens": 128, "schedule__stages": 2, "schedule__batch_growth": [1, 3]},
}


@pytest.mark.parametrize(("fields", "steps"), [({}, [0, 1]), (STAGED, [0, 7, 1])])
@pytest.mark.parametrize("compiled", [True, False])
def test_a_warm_up_meets_each_kind_of_update_once_and_the_first_again(
    compiled: bool,
    fields: dict[str, Any],
    steps: list[int],
    spec_of: Callable[..., RunSpec],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scripted, met = Scripted(spec_of(**fields), [3.0]), list[int]()
    monkeypatch.setattr(scripted.training.core, "update", lambda step, batches: met.append(step))
    scripted.training.compiled = compiled
    before = {*scripted.training.stopwatch.seconds}
    scripted.training.warm_up()
    assert met == steps
    phases = {"compile_s", "warmup_s"} if compiled else {"warmup_s"}
    assert {*scripted.training.stopwatch.seconds} - before == phases
    assert before == {"build_s", "data_s"}


@pytest.mark.parametrize(
    ("timing", "branched", "before"),
    [
        ("warmup-restore", False, ["warm-up"]),
        ("skip10", False, []),
        ("skip10", True, ["warm-up", "goes on"]),
        ("warmup-restore", True, ["warm-up", "goes on"]),
    ],
)
def test_what_goes_on_from_a_trunk_is_warm_before_it_does(
    timing: str,
    branched: bool,
    before: list[str],
    spec_of: Callable[..., RunSpec],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    happened: list[str] = []
    monkeypatch.setattr(Training, "warm_up", lambda training: happened.append("warm-up"))
    monkeypatch.setattr(Training, "run", lambda training, stop: (0, "interrupted"))
    monkeypatch.setattr(protocol, "go_on_from", lambda training, file: happened.append("goes on"))
    spec = spec_of(timing__protocol=timing)
    if branched:
        spec = replace(spec, branch=Branch(at=4, config=spec.config))
    outcome = protocol.train(spec, out=Recorder(), device="cpu", stop=lambda: False)
    assert happened == before and ("trunk_s" in outcome.wall) is branched


def test_what_fetches_ahead_ends_with_its_run(
    spec_of: Callable[..., RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ahead:
        n_closed = 0

        def close(self) -> None:
            self.n_closed += 1

    fetched, runs = Ahead(), iter(("full", "done"))

    def run(training: Training, stop: Any) -> tuple[int, str]:
        training.stream = fetched
        if next(runs) == "full":
            raise torch.OutOfMemoryError("full")
        return 0, "interrupted"

    monkeypatch.setattr(protocol, "Prefetcher", Ahead)
    monkeypatch.setattr(Training, "run", run)
    for n, status in ((1, "oom"), (2, "interrupted")):
        outcome = protocol.train(spec_of(), out=Recorder(), device="cpu", stop=lambda: False)
        assert (outcome.status, fetched.n_closed) == (status, n)


def test_utilisation_is_told_of_all_tokens_and_devices(
    spec_of: Callable[..., RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(protocol, "mfu", lambda *of, **on: asked.append((of[1:], on)) or 0.25)
    spec = spec_of(timing__protocol="warmup-restore")
    scripted = Scripted(spec, [3.0] * 4, seconds=lambda step: 2.0)
    scripted.run()
    scripted.training.core.world = 4
    assert scripted.training.final(STEPS).mfu == 0.25
    tokens_per_s = spec.config["data"]["batch_tokens"] / 2
    on = {"device": "cpu", "dtype": torch.float32, "world": 4}
    assert asked == [((257, pytest.approx(tokens_per_s)), on)]


def test_a_phase_that_comes_twice_counts_both_times() -> None:
    now = iter([0.0, 2.0, 10.0, 11.0, 20.0, 25.0])
    watch = Stopwatch(now=lambda: next(now))
    for name in ("data_s", "build_s", "data_s"):
        with watch.phase(name):
            pass
    assert watch.seconds == {"data_s": 7.0, "build_s": 1.0}


def test_a_phase_that_fails_counts_too() -> None:
    now = iter([1.0, 4.0])
    watch = Stopwatch(now=lambda: next(now))
    with pytest.raises(ValueError, match="it broke"), watch.phase("data_s"):
        raise ValueError("it broke")
    assert watch.seconds == {"data_s": 3.0}


def test_a_restarted_clock_knows_nothing_of_before() -> None:
    now = [0.0]
    clock = Clock(torch.device("cpu"), now=lambda: now[0])

    def step(seconds: float) -> None:
        now[0] += seconds
        clock.mark()

    clock.start()
    step(5.0)
    clock.stop()
    assert clock.new_step_ms() == [5000.0]
    clock.start()
    step(7.0)
    clock.restart()
    step(2.0)
    step(3.0)
    now[0] += 0.5  # work after the last mark is training too
    clock.stop()
    assert clock.new_step_ms() == clock.step_ms == [2000.0, 3000.0]
    assert clock.elapsed_s == 5.5
    assert clock.new_step_ms() == []
    assert clock.own_step_ms() == [2000.0, 3000.0]


def test_a_clock_goes_on_from_anothers_and_tells_which_steps_are_its_own() -> None:
    now, before = [0.0], Counted(elapsed_s=9.0, step_ms=[1.0, 2.0, 3.0], n_told=1)
    clock = Clock(torch.device("cpu"), now=lambda: now[0])
    clock.go_on(before)

    def step(seconds: float) -> None:
        clock.start()
        now[0] += seconds
        clock.mark()
        clock.stop()

    step(4.0)
    assert (clock.elapsed_s, clock.own_step_ms()) == (13.0, [4000.0])
    assert clock.new_step_ms() == [2.0, 3.0, 4000.0]
    step(5.0)
    counted = Counted(elapsed_s=18.0, step_ms=[1.0, 2.0, 3.0, 4000.0, 5000.0], n_told=4)
    assert clock.counted() == counted and before.step_ms == [1.0, 2.0, 3.0]
    clock.start()
    clock.restart()
    clock.stop()
    step(6.0)
    assert clock.own_step_ms() == clock.new_step_ms() == [6000.0]


def test_nothing_is_trained_on_tokens_that_changed_after_the_plan(
    spec_of: Callable[..., RunSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, folder = spec_of(), tmp_path / "data" / "stdlib"
    shutil.copytree(prepare("stdlib").folder, folder)
    monkeypatch.setenv("ABLATE_DATA", str(tmp_path / "data"))
    shard = sorted(folder.glob("*_train_*"))[0]
    content = bytearray(shard.read_bytes())
    content[len(content) // 4 * 2] ^= 1
    shard.write_bytes(content)
    out = Recorder()
    with pytest.raises(UserError, match="its content is not what"):
        protocol.train(spec, out=out, device="cpu", stop=lambda: False)
    assert out.rows == []
