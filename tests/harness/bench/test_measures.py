"""What benches make of the times that they take: every figure by hand, from clocks that are told."""

import itertools
import os
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

import harness.optim.exchange
from harness.bench import gather_check, loader_speed, steps
from harness.bench.gather_check import gather, synchronous
from harness.bench.loader_speed import tokens_per_s
from harness.bench.steps import (
    Candidate,
    StepFigures,
    compare,
    measure,
    memory,
    ratio,
    resolve,
    synthetic,
)
from harness.cli.bench import card_here
from harness.training.flops import flops_per_token

SMALL = {
    **{"model.n_layer": 2, "model.d_model": 32, "model.head_dim": 16, "data.ranks": 1},
    **{"data.seq_len": 64, "data.micro_tokens": 64, "data.batch_tokens": 256},
    "data.val_tokens": 256,
}
VOCABULARY = (300, 299)


def clock(*times_s: float) -> Callable[[], float]:
    told = iter(times_s)
    return lambda: next(told)


@pytest.fixture(scope="module")
def candidate() -> Iterator[Candidate]:
    config, _ = resolve("r08", scale="tiny", device="cpu", settings=SMALL)
    with synthetic(20_000, VOCABULARY) as text:
        yield Candidate(config, text, device="cpu")


def test_the_figures_of_steps_follow_from_their_times(
    candidate: Candidate, monkeypatch: pytest.MonkeyPatch
) -> None:
    ms = [10.0, 30.0, 20.0, 40.0]
    asked: list[int] = []

    def timed(n_steps: int) -> list[float]:
        asked.append(n_steps)
        return ms if n_steps == 4 else [999.0] * n_steps

    monkeypatch.setattr(candidate, "timed", timed)
    monkeypatch.setattr(candidate, "loader_rate", lambda: 51_200.0)
    monkeypatch.setattr(steps.time, "perf_counter", clock(100.0, 107.5))
    monkeypatch.setattr(steps, "matrix_rate", lambda device, dtype: 1e9)
    monkeypatch.setattr(steps, "memory", lambda device: {"peak_rss_mib": 321.0})
    figures = measure(candidate, steps=4, warmup=3)
    flops = flops_per_token(candidate.config, 300, step=5)
    assert asked == [3, 4]
    assert figures == StepFigures(
        steps=4,
        warmup_s=7.5,
        step_ms_median=25.0,
        step_ms_p95=pytest.approx(38.5),  # 30 + 0.85 x 10: the third and the fourth of four
        tokens_per_s=10_240.0,  # 256 tokens in 25 ms
        loader_tokens_per_s=51_200.0,
        loader_ratio=5.0,
        flops_per_token=flops.model,
        attention_flops_per_token=flops.attention,
        optimizer_flops_per_token=flops.optimizer,
        matrix_flops_per_s=1e9,
        mfu=pytest.approx(flops.model * 10_240 / 1e9),
        peak_rss_mib=321.0,
    )
    measure_at: list[int] = []

    def flops_at(config: Any, vocab_size: int, *, step: int) -> Any:
        measure_at.append(step)
        return flops

    monkeypatch.setattr(steps, "flops_per_token", flops_at)
    monkeypatch.setattr(steps, "growth_at", lambda config, step: 10 + step)
    for warmup in (0, candidate.config.schedule.steps):
        monkeypatch.setattr(steps.time, "perf_counter", clock(0.0, 1.0))
        grown = measure(candidate, steps=4, warmup=warmup)
        assert grown.tokens_per_s == (12 + warmup) * 10_240.0
    assert measure_at == [2, candidate.config.schedule.steps - 1]  # the middle; never past the end


def test_a_bench_longer_than_the_run_repeats_its_last_step(
    candidate: Candidate, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    monkeypatch.setattr(candidate.core, "update", lambda step, batches: made.append(step))
    last = candidate.config.schedule.steps - 1
    before = candidate.steps_done
    candidate.steps_done = last - 1
    for _ in range(4):
        candidate.step()
    assert made == [last - 1, last, last, last]
    candidate.steps_done = before


def test_the_batches_of_a_step_are_its_tokens_and_those_that_follow(candidate: Candidate) -> None:
    batches = candidate.batches()
    assert sum(ids.numel() for ids, _ in batches) == 256
    for ids, targets in batches:
        assert ids.shape == targets.shape and ids.shape[-1] == 64
        assert torch.equal(ids[..., 1:].long(), targets[..., :-1].long())


def test_the_rate_of_the_loader_is_of_whole_steps_until_its_time_is_up(
    candidate: Candidate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps.time, "perf_counter", clock(50.0, 50.2, 50.4, 50.8))
    assert candidate.loader_rate() == pytest.approx(3 * 256 / 0.8)


def test_peak_memory_is_the_allocators_on_a_gpu_and_the_processes_own_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 3 << 20)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda: 5 << 20)
    assert memory("cuda") == {"peak_allocated_mib": 3.0, "peak_reserved_mib": 5.0}
    monkeypatch.setattr(steps, "peak_mib", lambda pid: 7.0 if pid == os.getpid() else 0.0)
    assert memory("cpu") == {"peak_rss_mib": 7.0}


def test_a_comparison_warms_both_up_and_divides_the_second_by_the_first() -> None:
    asked: list[tuple[str, int]] = []

    def side(name: str, times: list[float]) -> Any:
        told = iter(times)

        def timed(n_steps: int) -> list[float]:
            asked.append((name, n_steps))
            return [next(told)] if n_steps == 1 else [0.0] * n_steps

        return SimpleNamespace(timed=timed)

    found = compare(side("a", [10.0, 20.0, 40.0]), side("b", [15.0, 20.0, 30.0]), steps=3, warmup=2)
    assert asked[:2] == [("a", 2), ("b", 2)]
    assert [name for name, _ in asked[2:]] == ["a", "b", "b", "a", "a", "b"]
    assert (found.rounds, found.a_ms, found.b_ms, found.ratio) == (3, 20.0, 20.0, 1.0)
    assert (found.low, found.high) == (None, None)
    eight = ratio([(1.0, 1.0 + i / 10) for i in range(8)])
    assert (eight.low, eight.ratio, eight.high) == (1.0, pytest.approx(1.35), pytest.approx(1.7))


def test_the_loaders_speed_counts_what_comes_after_its_first_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = itertools.count()
    monkeypatch.setattr(loader_speed.time, "process_time", clock(10.0, 11.0, 12.5, 13.5))
    assert tokens_per_s(taken, 700, 5) == pytest.approx(3 * 700 / 3.5)  # type: ignore[arg-type]
    assert next(taken) == 8


def test_the_loaders_speed_is_printed_for_each_order(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[Any, ...]] = []

    def open_corpus(name: str) -> SimpleNamespace:
        return SimpleNamespace(name=name, train=["shard"], tokens={"train": 3 * 524288 + 5})

    def loader(shards: Any, layout: Any, *, order: str) -> SimpleNamespace:
        asked.append((shards, order, layout.seq_len, layout.batch_tokens, layout.micro_tokens))
        return SimpleNamespace()

    speeds = iter([(524288, 3, 12e6), (524288, 3, 7.4e6), (524288, 3, 1e6)])

    def speed(of: Any, batch_tokens: int, n_first: int) -> float:
        *expected, found = next(speeds)
        assert [batch_tokens, n_first] == expected
        return found

    monkeypatch.setattr(loader_speed, "open_corpus", open_corpus)
    monkeypatch.setattr(loader_speed, "TrainLoader", loader)
    monkeypatch.setattr(loader_speed, "tokens_per_s", speed)
    monkeypatch.setattr(loader_speed.sys, "argv", ["loader_speed"])
    before = torch.get_num_threads()
    loader_speed.main()
    torch.set_num_threads(before)
    assert [row[1:3] for row in asked] == [
        ("sequential", 1024),
        ("shuffled", 1024),
        ("shuffled", 128),
    ]
    assert {row[3:] for row in asked} == {(524288, 65536)}
    assert capsys.readouterr().out.splitlines() == [
        "stdlib, sequential, sequences of 1024: 12 million tokens a second",
        "stdlib, shuffled, sequences of 1024: 7 million tokens a second",
        "stdlib, shuffled, sequences of 128: 1 million tokens a second",
    ]


def test_a_card_is_called_by_its_short_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, card in (("NVIDIA H100 80GB HBM3", "H100"), (" Odd (card) 7 ", "Odd-card-7")):
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda name=name: name)
        assert card_here() == card


# ---------------------------------------------------------------- the gather


def test_a_synchronous_gather_has_waited_when_it_is_handed_over() -> None:
    told: list[str] = []
    work = SimpleNamespace(wait=lambda: told.append("waited"))

    def gathering(out: Any, share: Any, async_op: bool) -> Any:
        told.append(f"{out} {share} {async_op}")
        return work

    assert synchronous(gathering)("out", "share", True) is work
    assert told == ["out share True", "waited"]


class InThisProcess:
    """Stands for torch.multiprocessing: every process is this one, one after the other."""

    def __init__(self) -> None:
        self.joins = 0
        self.answers: list[Any] = []

    def get_context(self, method: str) -> Any:
        assert method == "spawn"
        queue = SimpleNamespace(put=self.answers.append, get=lambda: self.answers.pop())
        return SimpleNamespace(SimpleQueue=lambda: queue)

    def spawn(self, run: Any, args: tuple[Any, ...], *, nprocs: int, join: bool) -> Any:
        assert (nprocs, join) == (args[0], False)
        for rank in range(nprocs):
            run(rank, *args)
        return self

    def join(self, timeout: float) -> bool:
        self.joins += 1
        return self.joins == 3


def test_the_gather_takes_turns_and_leaves_out_what_warms_it_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The n-th update takes n ms: of six rounds the first two are left out."""
    for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(harness.optim.exchange, "all_gather", harness.optim.exchange.all_gather)
    within = InThisProcess()

    def init(backend: str, *, rank: int, world_size: int) -> None:
        assert (backend, rank, world_size, os.environ["WORLD_SIZE"]) == ("gloo", 0, 1, "1")
        dist.init_process_group(backend, store=dist.HashStore(), rank=rank, world_size=world_size)

    times: list[float] = []
    for n in range(1, 13):
        times += [n / 4000, n / 4000 + n / 1000]
    monkeypatch.setattr(gather_check.time, "perf_counter", clock(*times))
    monkeypatch.setattr(gather_check, "mp", within)
    ends = {"barrier": dist.barrier, "destroy_process_group": dist.destroy_process_group}
    monkeypatch.setattr(gather_check, "dist", SimpleNamespace(init_process_group=init, **ends))
    config, _ = resolve("r08", scale="tiny", device="cpu", settings=SMALL)
    found = gather(config, world=1, device="cpu", rounds=4)
    assert not dist.is_initialized() and within.joins == 3
    pairs = [(6, 5), (7, 8), (10, 9), (11, 12)]  # async first in every other round
    assert found.async_ms == pytest.approx(8.5) and found.sync_ms == pytest.approx(8.5)
    ratios = sorted(sync / asynchronous for asynchronous, sync in pairs)
    assert found.sync_over_async == pytest.approx((ratios[1] + ratios[2]) / 2)
    assert (found.world, found.low, found.high) == (1, None, None)


@pytest.mark.parametrize(
    ("device", "backend", "dtype", "gpus"),
    [
        ("cuda", "nccl", torch.bfloat16, ["cuda:0", "cuda:1"]),
        ("cpu", "gloo", torch.float32, []),
    ],
)
def test_each_process_of_a_gather_has_a_device_of_its_own_and_the_same_matrices(
    device: str,
    backend: str,
    dtype: torch.dtype,
    gpus: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(harness.optim.exchange, "all_gather", "theirs")
    told: list[Any] = []
    made: list[Any] = []

    class Updates:
        def __init__(self, groups: Any, optim: Any, *, dtype: torch.dtype) -> None:
            made.append((groups, dtype))

        def step(self) -> None:
            told.append("updated")

    def init(backend: str, *, rank: int, world_size: int) -> None:
        told.append((backend, rank, world_size, os.environ["RANK"], os.environ["WORLD_SIZE"]))

    ends = {"barrier": lambda: told.append("met"), "destroy_process_group": lambda: None}
    own: list[str] = []
    monkeypatch.setattr(torch.cuda, "set_device", lambda place: own.append(str(place)))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: told.append("waited"))
    monkeypatch.setattr(gather_check, "dist", SimpleNamespace(init_process_group=init, **ends))
    monkeypatch.setattr(gather_check, "mp", InThisProcess())
    monkeypatch.setattr(gather_check, "Muon", Updates)
    if device == "cuda":
        monkeypatch.setattr(gather_check, "hidden_shapes", lambda config: [])
    config, _ = resolve("r08", scale="tiny", device="cpu", settings=SMALL)
    gather(config, world=2, device=device, rounds=1)
    waited = ["waited"] if device == "cuda" else []
    updates = ["met", *waited, "updated", *waited] * 6
    first, second = ((backend, rank, 2, str(rank), "2") for rank in range(2))
    assert told == [first, *updates, "met", second, *updates, "met"]
    assert own == gpus and [dtype for _, dtype in made] == [dtype, dtype]
    (ours, _), (theirs, _) = made
    for mine, other in zip(ours, theirs, strict=True):
        (size,) = {parameter.numel() for parameter in mine["params"]}
        assert size > 0 and mine["names"] == [str(i) for i in range(len(mine["params"]))]
        for a, b in zip(mine["params"], other["params"], strict=True):
            assert torch.equal(a, b) and torch.equal(a.grad, b.grad)
            assert not torch.equal(a, a.grad) and a.std() > 0.5
    assert len(ours) == (2 if device == "cpu" else 0)
