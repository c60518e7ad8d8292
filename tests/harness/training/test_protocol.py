"""The timing protocol around the core: what the clock counts, that warming up leaves no trace, that runs end as outcomes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.config.run import RunConfig, from_plain, with_fields
from harness.corpora.index import open_corpus
from harness.errors import UserError
from harness.model.float8 import Float8Head
from harness.model.tokens import Tokens
from harness.run.read import read_lines
from harness.run.results import read_result
from harness.run.spec import RunSpec
from harness.store.attempt import claim
from harness.store.store import Store
from harness.training import core as core_module
from harness.training.clock import Clock
from harness.training.core import Core
from harness.training.loaders import loaders
from harness.training.train import Training, train
from tests.one_training import STEPS, Recorder
from tests.small_presets import TOKENS, small
from tests.small_presets import core as new_core


def go(spec: RunSpec) -> tuple[Any, Recorder]:
    out = Recorder()
    return train(spec, out=out, device="cpu", stop=lambda: False), out  # type: ignore[arg-type]


def by_hand(spec: RunSpec) -> list[tuple[Any, ...]]:
    """The same run from the core alone: no clock, no warm-up."""
    config, corpus = from_plain(spec.config), open_corpus(spec.data_name)
    stream, val = loaders(config, corpus, seed=spec.seed, rank=0, world_size=1, device="cpu")
    tokens = Tokens(
        vocab_size=corpus.vocab_size, separator=corpus.separator, seq_len=config.data.seq_len
    )
    core, rows, since = Core(config, tokens, seed=spec.seed), [], []
    for step in range(STEPS + 1):
        if step % config.data.val_every == 0 or step == STEPS:
            loss = float(core.evaluate(step, iter(val)).double().sum()) / val.n_micro
            rows += [*since, ("val", step, loss)]
            since = []
        if step < STEPS:
            losses = core.update(step, list(next(stream)))
            since.append(("train", step, float(losses.mean())))
    return rows


@pytest.mark.parametrize("protocol", ["warmup-restore", "skip10"])
@pytest.mark.parametrize("arm", [pytest.param("baseline", marks=pytest.mark.slow), "untied_head"])
def test_a_protocol_changes_no_loss(
    spec_of: Callable[..., RunSpec], protocol: str, arm: str
) -> None:
    spec = spec_of(arm, timing__protocol=protocol)
    outcome, out = go(spec)
    assert outcome.status == "finished"
    assert out.losses() == by_hand(spec)
    assert 0 < outcome.wall["train_s"] <= 1.001 * outcome.final.train_time_s


def test_warming_up_restores_the_random_state(spec_of: Callable[..., RunSpec]) -> None:
    training = Training(spec_of(timing__protocol="warmup-restore"), device="cpu", out=Recorder())  # type: ignore[arg-type]
    before = torch.get_rng_state()
    update = training.core.update

    def drawing(*args: Any) -> Any:
        torch.rand(3)  # as a plug-in's dropout would
        return update(*args)

    training.core.update = drawing  # type: ignore[method-assign]
    training.warm_up()
    assert torch.equal(torch.get_rng_state(), before)


def test_a_warm_up_passes_what_has_the_shapes_of_the_runs_batches(
    spec_of: Callable[..., RunSpec],
) -> None:
    spec = spec_of(timing__protocol="warmup-restore", data__micro_tokens=256)
    training = Training(spec, device="cpu", out=Recorder())
    seen: dict[str, set[tuple[int, ...]]] = {"update": set(), "evaluate": set()}

    def watched(name: str) -> Callable[..., Any]:
        inner = getattr(training.core, name)

        def call(step: int, batches: Any) -> Any:
            batches = [*batches]
            seen[name] |= {tuple(x.shape) for pair in batches for x in pair}
            return inner(step, batches)

        return call

    for name in seen:
        setattr(training.core, name, watched(name))
    training.warm_up()
    of_warm_up = {name: {*shapes} for name, shapes in seen.items()}
    assert training.run(lambda: False) == (STEPS, "finished")
    assert seen == of_warm_up
    assert {name: len(shapes) for name, shapes in seen.items()} == {"update": 1, "evaluate": 1}
    assert not seen["update"] & seen["evaluate"]


def test_what_a_plug_in_draws_goes_by_the_runs_seed(spec_of: Callable[..., RunSpec]) -> None:
    drawn = []
    for before in (1, 2):
        torch.manual_seed(before)  # by whatever ran before in this process
        Training(spec_of(), device="cpu", out=Recorder())
        drawn.append(torch.rand(3))
    assert torch.equal(*drawn)


@pytest.mark.parametrize(
    ("fields", "steps"),
    [
        ({"checkpoint": "none"}, []),
        ({"checkpoint": "final"}, [STEPS]),
        ({"checkpoint": "every", "checkpoint_every": 7}, [0, 7, 14]),
    ],
)
def test_checkpoints_are_saved_when_they_are_due(
    spec_of: Callable[..., RunSpec], fields: dict[str, Any], steps: list[int]
) -> None:
    training = Training(
        spec_of(**{f"system__{k}": v for k, v in fields.items()}), device="cpu", out=Recorder()
    )  # type: ignore[arg-type]
    saved: list[int] = []
    training.checkpoint = saved.append  # type: ignore[method-assign]
    training.run(lambda: False)
    assert saved == [*(s for s in steps if s < STEPS), *([STEPS] if steps else [])]


@pytest.mark.parametrize(
    ("every", "protocol", "counted", "val_every"),
    [
        (None, "warmup-restore", STEPS, 4),
        (3, "skip10", STEPS - 10, 4),
        (3, "skip10", STEPS - 10, 5),  # one validation where the clock begins anew
    ],
)
def test_the_clock_counts_training_steps_alone(
    spec_of: Callable[..., RunSpec], every: int | None, protocol: str, counted: int, val_every: int
) -> None:
    """With a clock that a step moves by a second and a bit, a validation by a hundred, a checkpoint by a thousand."""
    out, now, step_s = Recorder(), [0.0], 1 + 2**-10
    spec = spec_of(
        timing__protocol=protocol,
        system__checkpoint="every",
        system__checkpoint_every=every,
        data__val_every=val_every,
    )
    training = Training(spec, device="cpu", out=out)  # type: ignore[arg-type]

    def moved_by(seconds: float, function: Callable[..., Any]) -> Callable[..., Any]:
        def inner(*args: Any, **kwargs: Any) -> Any:
            now[0] += seconds
            return function(*args, **kwargs)

        return inner

    training.core.update = moved_by(step_s, training.core.update)  # type: ignore[method-assign]
    training.core.evaluate = moved_by(100.0, training.core.evaluate)  # type: ignore[method-assign]
    out.save = moved_by(1000.0, out.save)  # type: ignore[method-assign]
    training.clock = Clock(torch.device("cpu"), now=lambda: now[0])
    if protocol == "warmup-restore":
        training.warm_up()
    assert training.run(lambda: False) == (STEPS, "finished")
    final = training.final(STEPS)
    assert final.train_time_s == counted * step_s
    assert (len(training.clock.step_ms), final.step_ms, final.steps) == (
        counted,
        1000 * step_s,
        STEPS,
    )
    validations = [r for r in out.rows if r["kind"] == "val"]
    assert validations[-1]["train_time_s"] == counted * step_s
    since = [0] + [
        len(range(max(a["step"], STEPS - counted), b["step"])) for a, b in pairwise(validations)
    ]
    assert [r["step_times_ms"] for r in validations] == [[1000.98] * n for n in since]
    assert sum(since) == counted


@pytest.mark.slow
def test_a_run_after_another_is_the_run_alone(spec_of: Callable[..., RunSpec]) -> None:
    spec, other = spec_of(), spec_of("untied_head", optim__muon_lr=0.03)
    _, alone = go(spec)
    torch.rand(17)
    go(other)
    _, after = go(spec)
    assert after.losses() == alone.losses()


def test_an_absurd_rate_diverges_and_keeps_its_curve(spec_of: Callable[..., RunSpec]) -> None:
    outcome, out = go(spec_of(optim__muon_lr=100, optim__adam_lr=10))
    assert outcome.status == "diverged"
    step = outcome.final.steps
    assert outcome.reason == f"the loss was not finite or exploded at step {step}"
    curve = [r["val_loss"] for r in out.rows if r["kind"] == "val"]
    assert len(curve) >= 2
    assert curve[0] < 10
    assert outcome.final.steps == [r["step"] for r in out.rows if r["kind"] == "val"][-1]


def test_a_stop_is_seen_before_the_next_step(spec_of: Callable[..., RunSpec]) -> None:
    answers = iter([False, False, True])
    out = Recorder()
    outcome = train(spec_of(), out=out, device="cpu", stop=lambda: next(answers))  # type: ignore[arg-type]
    assert (outcome.status, outcome.final.steps, outcome.reason) == ("interrupted", 2, None)


def test_another_text_under_the_same_name_is_refused(
    spec_of: Callable[..., RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    heldout = SimpleNamespace(name="stdlib", fingerprint="e" * 64)
    monkeypatch.setattr("harness.training.train.open_heldout", lambda *_: heldout)
    spec = spec_of()
    config = {**spec.config, "data": {**spec.config["data"], "heldout": "stdlib"}}
    planned = f"but the run was planned on {'0' * 12}: plan it again, or bring that corpus back"
    for field, what, present in (
        ("data_fingerprint", "corpus 'stdlib'", spec.data_fingerprint[:12]),
        ("heldout_fingerprint", "the held-out text of 'stdlib'", "e" * 12),
    ):
        with pytest.raises(UserError) as refused:
            go(replace(spec, config=config, **{field: "0" * 64}))
        assert str(refused.value) == f"{what} has fingerprint {present}, {planned}"


@pytest.mark.parametrize(
    ("cache", "name", "verified"),
    [
        ("none", "stdlib", ["stdlib"]),
        ("none", "other", ["stdlib", "other"]),
        ("local", "other", ["a copy of stdlib", "other"]),
    ],
)
def test_every_text_is_verified_before_a_run_trains_on_it(
    cache: str,
    name: str,
    verified: list[str],
    spec_of: Callable[..., RunSpec],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec, said = spec_of(data__cache=cache), list[str]()
    there = open_corpus("stdlib")

    def copied(corpus: Any) -> Any:
        assert corpus == there
        return SimpleNamespace(name="a copy of stdlib")

    heldout = SimpleNamespace(name=name, fingerprint="e" * 64)
    train_module = "harness.training.train"
    monkeypatch.setattr(f"{train_module}.cache_locally", copied)
    monkeypatch.setattr(f"{train_module}.verify", lambda corpus: said.append(corpus.name))
    monkeypatch.setattr(f"{train_module}.open_heldout", lambda *_: heldout)
    monkeypatch.setattr(
        f"{train_module}.open_corpus",
        lambda name: there if name == "stdlib" else SimpleNamespace(name=name),
    )
    config = {**spec.config, "data": {**spec.config["data"], "heldout": name}}
    with pytest.raises(UserError, match=f"the held-out text of '{name}' has fingerprint"):
        go(replace(spec, config=config))
    assert said == verified


def test_a_checkpoint_holds_the_last_weights_and_the_result_is_complete(
    spec_of: Callable[..., RunSpec], tmp_path: Path
) -> None:
    spec, store = spec_of(system__checkpoint="final"), Store.create(tmp_path / "results")
    out = claim(store, spec)
    assert out is not None
    out.describe({"host": "here"})
    out.finish(train(spec, out=out, device="cpu", stop=lambda: False))
    state = torch.load(out.run / "checkpoint.pt", weights_only=True)
    assert state["step"] == STEPS
    config, corpus = from_plain(spec.config), open_corpus(spec.data_name)
    tokens = Tokens(
        vocab_size=corpus.vocab_size, separator=corpus.separator, seq_len=config.data.seq_len
    )
    core = Core(config, tokens, seed=99)
    core.model.load_state_dict(state["model"])
    _, val = loaders(config, corpus, seed=0, rank=0, world_size=1, device="cpu")
    result = read_result(out.run)
    assert result is not None
    assert float(core.evaluate(STEPS, iter(val)).double().sum()) / val.n_micro == result.val_loss
    assert store.repair(spec.run_id)[1] is None
    assert [r["val_loss"] for r in read_lines(out.run / "metrics.jsonl") if r["kind"] == "val"][
        -1
    ] == result.val_loss
    missing = [k for k, v in result.content.items() if v is None]
    assert set(missing) <= {
        "reason",
        "heldout_loss",
        "environment_effect",
        "mfu",
        "peak_allocated_mib",
        "peak_reserved_mib",
    }
    assert {"build_s", "data_s", "train_s", "validate_s"} <= set(result.wall)


@pytest.mark.parametrize(("device", "peaks"), [("cuda", (3.0, 5.0)), ("cpu", (None, None))])
def test_peaks_of_memory_are_those_of_a_gpus_allocator_in_mib(
    device: str, peaks: tuple[float | None, float | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 3 << 20)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda: 5 << 20)
    core = SimpleNamespace(device=torch.device(device), model=torch.nn.Linear(2, 3))
    training: Any = SimpleNamespace(
        clock=SimpleNamespace(step_ms=[], elapsed_s=1.0), config=RunConfig(), core=core
    )
    training.last_val = training.heldout_loss = 3.28
    measured = Training.final(training, 0)
    assert (measured.peak_allocated_mib, measured.peak_reserved_mib) == peaks
    assert (measured.parameters, measured.tokens, measured.step_ms) == (9, 0, None)


def test_a_gpus_clock_is_read_once_the_gpu_has_done_what_it_was_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[str] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waits.append("for the GPU"))
    event = SimpleNamespace(record=lambda: None, elapsed_time=lambda other: 7.0)
    monkeypatch.setattr(torch.cuda, "Event", lambda *, enable_timing: event)
    clock = Clock(torch.device("cuda"), now=lambda: float(len(waits)))
    clock.start()
    clock.mark()
    clock.stop()
    assert (clock.spans, clock.elapsed_s, clock.step_ms) == ([(1.0, 2.0)], 1.0, [7.0])


@pytest.mark.parametrize(("no_sync", "synced"), [(True, [4]), (False, [1, 2, 3, 4])])
def test_processes_exchange_gradients_in_the_last_pass_of_an_update(
    no_sync: bool, synced: list[int]
) -> None:
    """Two virtual ranks of two passes: the others' gradients wait, where the record has them wait."""
    core = new_core(with_fields(small("r08", "fp32", n_layer=2), {"system.no_sync": no_sync}))
    core.world, calls, quiet = 2, [0], [False]
    exchanged: list[int] = []

    class Forward:
        @contextmanager
        def no_sync(self) -> Iterator[None]:
            quiet[0] = True
            yield
            quiet[0] = False

        def __call__(self, *_: Any) -> torch.Tensor:
            calls[0] += 1
            if not quiet[0]:
                exchanged.append(calls[0])
            return torch.zeros((), requires_grad=True)

    core.forward = Forward()
    batch = torch.zeros(2, 1, 8, dtype=torch.int64)
    core.gradients([(batch, batch)] * 2, None)
    assert exchanged == synced


@pytest.mark.parametrize("per_tensor", [True, False])
def test_gradients_have_the_norm_one_tensor_by_tensor_where_that_is_asked_for(
    per_tensor: bool,
) -> None:
    config = small("r08", "fp32", n_layer=2)
    core = new_core(with_fields(config, {"optim.grad_norm_per_tensor": per_tensor}))
    core.set_step(0)
    kept = []
    for parameter in core.parameters:
        parameter.grad = torch.full_like(parameter, 3.0)
        kept.append(parameter.grad)
    core.step()
    for grad in kept:
        norm = 1.0 if per_tensor else 3 * grad.numel() ** 0.5
        assert float(grad.double().norm()) == pytest.approx(norm, rel=1e-5)


@pytest.mark.parametrize(
    ("next_tokens", "prefix", "given"),
    [
        ((1.0, 0.5), 0.0, [[[1.0, 0.5]], [[1.0, 0.25]], [], [], [], []]),
        ((0.5, 0.5), 0.0, [[[0.5, 0.5]], [[0.5, 0.25]], *[[[0.5]]] * 4]),
        (
            *((1.0, 0.5), 0.5),
            [[[1.0, 0.5], 0.5], [[1.0, 0.25], 0.5], [[1.0], 0.5], [[1.0], 0.25], [], []],
        ),
    ],
)
def test_a_stage_is_given_the_weights_of_the_losses_that_it_has(
    next_tokens: tuple[float, ...], prefix: float, given: list[Any]
) -> None:
    """None for the next token alone: its weight would make another graph of the last stage."""
    stages = {"schedule.steps": 6, "schedule.stages": 3, "loss.prefix_weight": prefix}
    config = with_fields(small("r18", "fp32"), {**stages, "loss.next_tokens": next_tokens})
    made = new_core(config, tokens=replace(TOKENS, texts=[b"a"] * TOKENS.vocab_size))
    for step in range(6):
        made.set_step(step)
        assert [weights.tolist() for weights in made.loss_weights] == given[step]


@pytest.mark.parametrize(("world", "n_passes"), [(1, 8), (2, 4)])
def test_a_head_in_float8_averages_the_ranks_of_its_process(
    world: int, n_passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core_module.dist, "is_initialized", lambda: world > 1)
    monkeypatch.setattr(core_module.dist, "get_world_size", lambda: world)
    monkeypatch.setattr(core_module.dist, "get_rank", lambda: 0)
    monkeypatch.setattr(core_module, "DistributedDataParallel", lambda network, **_: network)
    scales = {"fp8_head": (1.0, 1.0, 8.0), "loss__reduction": "sum_per_rank"}
    made = new_core(with_fields(small("r18", **scales), {"data.ranks": 8}))
    assert isinstance(made.model.head, Float8Head)
    assert made.model.head.scales == (1.0, 1.0, 8.0 / n_passes)


@pytest.mark.parametrize(
    ("fields", "gradient"),
    [
        ({}, 1.0),
        ({"system.accumulate": "sum"}, 3.0),
        ({"loss.reduction": "sum_per_rank"}, 8.0),
        ({"system.accumulate": "sum", "loss.reduction": "sum_per_rank"}, 24.0),
        ({"loss.scale": 0.5}, 0.5),
        ({"system.accumulate": "sum", "loss.scale": 2.0}, 6.0),
    ],
)
def test_ranks_are_averaged_and_their_passes_averaged_or_summed(
    fields: dict[str, Any], gradient: float
) -> None:
    """Two ranks of three passes of eight tokens, each with a loss of gradient one."""
    made = new_core(with_fields(small("r08", "fp32", n_layer=2), fields))
    weight = torch.zeros((), requires_grad=True)
    losses = iter(range(6))
    made.forward = lambda *_: weight + next(losses)
    batches = torch.zeros(3, 2, 4, dtype=torch.int64)
    assert made.gradients([(batches, batches)] * 2, None).tolist() == [*range(6)]
    assert weight.grad is not None and float(weight.grad) == pytest.approx(gradient)
