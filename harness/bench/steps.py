"""How fast a configuration trains on this machine.

Steps with their data, timed alone or interleaved with another's.

Needs torch, numpy, PyYAML and the standard library alone. Times are of whole steps: batch from the
loader to the device, schedules, gradients, update. Two candidates are compared by the ratio of
their times within each round, since a busy machine slows both; the interval is that of a sign test
and assumes no distribution.
"""

import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import comb
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from harness.config.device import for_device
from harness.config.presets import check_names, frozen, preset_values, to_config
from harness.config.run import RunConfig, Values
from harness.config.scales import load_scale
from harness.config.schedule import growth_at, longest_sequence, tokens_trained
from harness.config.validate import check_config
from harness.data.prefetcher import StepLoader
from harness.data.shards import write_shard
from harness.errors import UserError
from harness.model.tokens import Tokens
from harness.node.memory import peak_mib
from harness.training.clock import Clock
from harness.training.core import Core
from harness.training.flops import flops_per_token
from harness.training.loaders import train_loader
from harness.training.runtime import set_runtime
from harness.training.utilisation import matrix_rate

GPT2 = (50257, 50256)  # vocabulary and separator of the records' tokens
DOCUMENT_TOKENS = 800  # mean length of a synthetic document
CONFIDENCE = 0.95  # of an interval of a median


def resolve(
    name: str, *, scale: str, device: str, settings: Values
) -> tuple[RunConfig, tuple[str, ...]]:
    """A preset at a scale with settings, as it runs on this device, and what was substituted.

    Raises UserError.
    """
    check_names(settings, lambda field: f"--set {field}")
    values = dict(load_scale(scale, name).apply(preset_values(name)[0]))
    for field, value in settings.items():
        values[field] = frozen(value)
    config, substituted = for_device(to_config(values), device, frozenset(settings))
    check_config(config)
    return config, substituted


@dataclass(frozen=True, kw_only=True)
class Text:
    """What a bench trains on."""

    name: str
    shards: Sequence[Path]
    vocab_size: int
    separator: int


@contextmanager
def synthetic(n_tokens: int, vocab: tuple[int, int] = GPT2) -> Iterator[Text]:
    """Random tokens with separators between documents of random length.

    They lie in a shard that is gone afterwards.
    """
    draw = np.random.Generator(np.random.PCG64(0))
    tokens = draw.integers(0, vocab[0] - 1, n_tokens, dtype=np.uint16)
    tokens[tokens == vocab[1]] = vocab[0] - 1  # the separator stands between documents alone
    tokens[draw.random(n_tokens) < 1 / DOCUMENT_TOKENS] = vocab[1]
    with TemporaryDirectory() as folder:
        write_shard(Path(folder) / "tokens.bin", tokens)
        yield Text(
            name="synthetic",
            shards=[Path(folder) / "tokens.bin"],
            vocab_size=vocab[0],
            separator=vocab[1],
        )


class Candidate:
    """A configuration that is being timed.

    Its network, optimizers and data on one device, one process.
    """

    def __init__(self, config: RunConfig, text: Text, *, device: str) -> None:
        set_runtime(config, device, seed=0)
        tokens = Tokens(
            vocab_size=text.vocab_size, separator=text.separator, seq_len=longest_sequence(config)
        )
        self.config, self.text, self.device = config, text, device
        self.core = Core(config, tokens, seed=0, device=device)
        self.loader = self._loader()
        self.steps_done = 0

    def _loader(self) -> StepLoader:
        return train_loader(
            self.config,
            self.text.shards,
            separator=self.text.separator,
            seed=0,
            rank=0,
            world_size=1,
            device=self.device,
        )

    def batches(self) -> Any:
        """The next step's batches, on the device."""
        pinned = self.config.data.pinned
        batches = []
        for ids, targets in next(self.loader):
            batches.append(
                (
                    ids.to(self.core.device, non_blocking=pinned),
                    targets.to(self.core.device, non_blocking=pinned),
                )
            )
        return batches

    def step(self) -> None:
        """One update; a bench longer than the run repeats its last step."""
        self.core.update(min(self.steps_done, self.config.schedule.steps - 1), self.batches())
        self.steps_done += 1

    def timed(self, n_steps: int) -> list[float]:
        """Milliseconds of each of the next steps; the device is waited for at the ends alone."""
        clock = Clock(self.core.device)
        clock.start()
        for _ in range(n_steps):
            self.step()
            clock.mark()
        clock.stop()
        return clock.step_ms

    def loader_rate(self, seconds: float = 0.5) -> float:
        """Tokens a second that the loader delivers by itself."""
        loader = self._loader()
        n_steps, spent_s = 0, 0.0
        began = time.perf_counter()
        while spent_s < seconds:
            next(loader)
            n_steps += 1
            spent_s = time.perf_counter() - began
        return tokens_trained(self.config, range(n_steps)) / spent_s


@dataclass(frozen=True, kw_only=True)
class StepFigures:
    """What a candidate's steps took; the peak that does not apply to its device is None."""

    steps: int  # timed
    warmup_s: float
    step_ms_median: float
    step_ms_p95: float
    tokens_per_s: float
    loader_tokens_per_s: float
    loader_ratio: float  # of the loader's rate to the training's
    flops_per_token: float
    attention_flops_per_token: float
    optimizer_flops_per_token: float
    matrix_flops_per_s: float
    mfu: float
    peak_allocated_mib: float | None = None
    peak_reserved_mib: float | None = None
    peak_rss_mib: float | None = None


def memory(device: str) -> dict[str, float]:
    """Peak memory so far: of the allocator on CUDA, else of the whole process."""
    if device == "cuda":
        allocated, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
        return {"peak_allocated_mib": allocated / 2**20, "peak_reserved_mib": reserved / 2**20}
    return {"peak_rss_mib": peak_mib(os.getpid())}


def measure(candidate: Candidate, *, steps: int, warmup: int = 3) -> StepFigures:
    """Step time, throughput, FLOPs, utilisation and memory of a candidate.

    `warmup` steps go first, uncounted.
    """
    began = time.perf_counter()
    candidate.timed(warmup)
    warmup_s = time.perf_counter() - began
    ms = candidate.timed(steps)
    c, peak = candidate.config, memory(candidate.device)
    rate = matrix_rate(candidate.device, candidate.core.precision.matmul)
    flops = flops_per_token(
        c, candidate.text.vocab_size, step=min(warmup + steps // 2, c.schedule.steps - 1)
    )
    growth = growth_at(c, warmup + steps // 2)
    tokens_per_s = growth * c.data.batch_tokens / statistics.median(ms) * 1000
    loader = candidate.loader_rate()
    return StepFigures(
        steps=steps,
        warmup_s=warmup_s,
        step_ms_median=statistics.median(ms),
        step_ms_p95=float(np.quantile(ms, 0.95)),
        tokens_per_s=tokens_per_s,
        loader_tokens_per_s=loader,
        loader_ratio=loader / tokens_per_s,
        flops_per_token=flops.model,
        attention_flops_per_token=flops.attention,
        optimizer_flops_per_token=flops.optimizer,
        matrix_flops_per_s=rate,
        mfu=flops.model * tokens_per_s / rate,
        **peak,
    )


# ---------------------------------------------------------------- comparing


def interleave(
    a: Callable[[], float], b: Callable[[], float], rounds: int
) -> list[tuple[float, float]]:
    """Times of a and b, measured in turn; who goes first alternates."""
    pairs = []
    for i in range(rounds):
        if i % 2:
            time_b, time_a = b(), a()
        else:
            time_a, time_b = a(), b()
        pairs.append((time_a, time_b))
    return pairs


def median_interval(
    values: Sequence[float], confidence: float = CONFIDENCE
) -> tuple[float | None, float | None]:
    """Order statistics that hold the median with at least this confidence (sign test).

    None where there are too few values.
    """
    ordered, n = sorted(values), len(values)
    outside, k = 0.0, 0  # k values are cut off at each end
    while k < n / 2 and outside + 2 * comb(n, k) / 2**n <= 1 - confidence:
        outside += 2 * comb(n, k) / 2**n
        k += 1
    if k == 0:
        return None, None
    return ordered[k - 1], ordered[n - k]


@dataclass(frozen=True, kw_only=True)
class TimeRatio:
    """b's time as a multiple of a's: the median over the rounds, with its interval."""

    rounds: int
    a_ms: float  # median
    b_ms: float
    ratio: float
    low: float | None  # None: too few rounds
    high: float | None


def ratio(pairs: Sequence[tuple[float, float]]) -> TimeRatio:
    """The second one's time as a multiple of the first's.

    Median over the rounds, with its interval.
    """
    if not pairs:
        raise UserError("no rounds to compare: ask for at least one step")
    ratios = [b / a for a, b in pairs]
    low, high = median_interval(ratios)
    medians = [statistics.median(times) for times in zip(*pairs, strict=True)]
    return TimeRatio(
        rounds=len(pairs),
        a_ms=medians[0],
        b_ms=medians[1],
        ratio=statistics.median(ratios),
        low=low,
        high=high,
    )


def compare(a: Candidate, b: Candidate, *, steps: int, warmup: int = 3) -> TimeRatio:
    """Steps of two candidates in turn: b's time over a's."""
    for candidate in (a, b):
        candidate.timed(warmup)
    return ratio(interleave(lambda: a.timed(1)[0], lambda: b.timed(1)[0], steps))
