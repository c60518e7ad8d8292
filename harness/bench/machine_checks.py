"""The checks of a GPU machine, each run by harness/bench/gpu_check.py in a process of its own."""

import importlib.util
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from harness.bench.breakdown import breakdown
from harness.bench.gather_check import gather
from harness.bench.gpu_page import CheckFigures
from harness.bench.kernel_check import KernelRow, attention, networks
from harness.bench.runner_check import WORLDS, runner
from harness.bench.steps import GPT2, Candidate, Text, compare, measure, resolve, synthetic
from harness.config.run import NewValues, RunConfig, flat
from harness.config.scales import RESCALED_WITH_SCALE, with_budget
from harness.corpora.index import prepare

TRAINED_TOKENS, TRAINED_STEPS = 65_536, 200
PASS_TOKENS = 32_768  # at most: eight passes to validate on are what a standard library has
RUNNER_NEEDS = ("typer", "rich", "pydantic", "psutil", "pandas", "scipy")  # beside the core's own
FALLEN_TO = 0.6  # share of the first loss below which a training's last losses must lie
# what would tune kernels for minutes is left out, so that a start is a start
SETTINGS = {"system.coordinate_descent": False, "timing.protocol": "warmup-restore"}
TINY = {
    "data.ranks": 2,
    "data.batch_tokens": 512,
    "data.seq_len": 128,
    "data.micro_tokens": 128,
}


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the checks run: device, sizes, the folder of their corpus and compiled kernels."""

    device: str
    dry: bool
    folder: Path

    @property
    def scale(self) -> str:
        return "tiny" if self.dry else "gpt2"

    @property
    def steps(self) -> int:
        return 2 if self.dry else 5

    def settings(self, **more: Any) -> NewValues:
        """Dotted fields and their values; more: further ones, `__` for the dot."""
        settings: NewValues = dict(SETTINGS)
        if self.dry:
            settings |= TINY
        for key, value in more.items():
            settings[key.replace("__", ".")] = value
        return settings

    def config(self, preset: str, **more: Any) -> RunConfig:
        """A preset as it runs here."""
        settings = self.settings(**more)
        config, _ = resolve(preset, scale=self.scale, device=self.device, settings=settings)
        return config

    def candidate(self, preset: str, text: Text, **more: Any) -> Candidate:
        return Candidate(self.config(preset, **more), text, device=self.device)

    def real(self) -> Text:
        """The standard library's source in a vocabulary of the records' size.

        So every matrix is as large as theirs.
        """
        corpus = prepare("stdlib", self.folder)
        return Text(
            name="stdlib",
            shards=corpus.train,
            vocab_size=corpus.vocab_size if self.dry else GPT2[0],
            separator=corpus.separator,
        )


def check_attention(place: Place, preset: str) -> CheckFigures:
    """Attention kernels against plain ones."""
    return _of_rows(list(attention(place.device)))


def check_network(place: Place, preset: str) -> CheckFigures:
    """The preset's network compiled and in low precision, against plain ones."""
    return _of_rows(list(networks(place.device, preset)))


def _of_rows(rows: list[KernelRow]) -> CheckFigures:
    content = [asdict(row) for row in rows]
    return {"rows": content, "passed": all(row.passed for row in rows)}


def check_synthetic(place: Place, preset: str) -> CheckFigures:
    """The first start: compiles. Fixed allocator segments."""
    n_tokens = 50_000 if place.dry else 4 * 524_288 * 2
    real = place.real()
    vocabulary = (real.vocab_size, real.separator)  # a separator is part of the compiled graph
    with synthetic(n_tokens, vocabulary) as text:
        candidate = place.candidate(preset, text, system__expandable_segments=False)
        figures = measure(candidate, steps=place.steps, warmup=1)
        return {
            "tokens": "synthetic",
            "expandable_segments": False,
            **asdict(figures),
            "breakdown": [asdict(part) for part in breakdown(candidate, steps=1)],
        }


def check_real(place: Place, preset: str) -> CheckFigures:
    """The second start: finds its kernels compiled. Expandable allocator segments."""
    candidate = place.candidate(preset, place.real(), system__expandable_segments=True)
    figures = measure(candidate, steps=place.steps, warmup=1)
    return {"tokens": "stdlib", "expandable_segments": True, **asdict(figures)}


def check_backends(place: Place, preset: str) -> CheckFigures:
    """cuDNN's attention against FlashAttention (the documents say 4 ms a step on 8 GPUs).

    On a CPU SDPA against math.
    """
    if place.config(preset).model.attn_mask != "causal":
        return {"skipped": f"{preset}'s attention has a mask of its own, which only Flex takes"}
    first, second = ("cudnn", "flash") if place.device == "cuda" else ("sdpa", "math")
    text = place.real()
    a = place.candidate(preset, text, model__attn_kernel=first)
    b = place.candidate(preset, text, model__attn_kernel=second)
    times = compare(a, b, steps=3 if place.dry else 8, warmup=1)
    return {"a": first, "b": second, **asdict(times)}


def check_gather(place: Place, preset: str) -> CheckFigures:
    """Muon's gather on all GPUs, asynchronous against synchronous; on a CPU on two processes."""
    world = torch.cuda.device_count() if place.device == "cuda" else 2
    if world < 2:
        return {"skipped": "needs more than one GPU"}
    rounds = 6 if place.dry else 30
    gathered = gather(place.config(preset), world=world, device=place.device, rounds=rounds)
    return asdict(gathered)


def check_training(place: Place, preset: str) -> CheckFigures:
    """No NaN, and the loss falls, on text found on the machine.

    About 65,536 tokens a step, more in later stages where the preset's grow.
    """
    steps = 30 if place.dry else TRAINED_STEPS
    lengths = _training_fields(place, preset, steps)
    candidate = place.candidate(preset, place.real(), **lengths)
    began = time.perf_counter()
    of_steps = []
    for step in range(steps):
        of_steps.append(candidate.core.update(step, candidate.batches()).mean())
    losses = torch.stack(of_steps).tolist()
    seconds = time.perf_counter() - began
    first, last = losses[0], sum(losses[-10:]) / 10
    bound = FALLEN_TO * first
    return {
        "steps": steps,
        "seconds_training": seconds,
        "first_loss": first,
        "last_loss": last,
        "bound": bound,
        "losses": losses[:: max(1, steps // 20)],
        "passed": all(map(math.isfinite, losses)) and last < bound,
    }


def check_runner(place: Place, preset: str) -> CheckFigures:
    """Four steps through the runner on all GPUs, twice in one warm group, then a killed rank."""
    absent = [name for name in RUNNER_NEEDS if importlib.util.find_spec(name) is None]
    if absent:
        return {"skipped": f"the runner needs {', '.join(absent)}: make install"}
    prepare("stdlib", place.folder)
    n_devices = torch.cuda.device_count() if place.device == "cuda" else 2
    world = max(n for n in WORLDS if n <= n_devices)
    fields = _fields_of_runs(place, place.config(preset))
    figures = runner(
        preset, fields, scale=place.scale, device=place.device, world=world, folder=place.folder
    )
    return asdict(figures)


def _fields_of_runs(place: Place, config: RunConfig) -> NewValues:
    """Fields of runs of one pass a rank, and as many tokens to validate on."""
    pass_tokens = min(config.data.micro_tokens, PASS_TOKENS)
    step_tokens = config.data.ranks * pass_tokens
    return place.settings(
        data__seq_len=min(config.data.seq_len, pass_tokens),
        data__micro_tokens=pass_tokens,
        data__batch_tokens=step_tokens,
        data__val_tokens=step_tokens,
        data__val_seq_len=None,
    )


def _training_fields(place: Place, preset: str, steps: int) -> NewValues:
    """Fields of a training of so many steps, its schedules in the preset's proportions."""
    config, _ = resolve(preset, scale=place.scale, device="cpu", settings={})
    before = flat(config)
    at = with_budget({**before, "schedule.steps": steps}, before, extra=RESCALED_WITH_SCALE)
    fields = {name: value for name, value in at.items() if value != before[name]}
    fields |= {"schedule.warmup_steps": 0, "data.ranks": 1, "system.accumulate": "mean"}
    if not place.dry:
        T = config.data.seq_len
        batch_tokens = max(1, TRAINED_TOKENS // T) * T
        micro_tokens = batch_tokens if config.model.attn_mask == "causal" else T
        fields |= {"data.batch_tokens": batch_tokens, "data.micro_tokens": micro_tokens}
    return fields


@dataclass(frozen=True, kw_only=True)
class Check:
    """One check, how long it may take, and for which presets it is run."""

    run: Callable[[Place, str], CheckFigures]
    limit_s: float
    which: str  # of the presets: all, or the first or the last one
    beside: bool = False  # whether it runs beside others: it times nothing, and mostly compiles
    all_sizes: bool = False  # whether the limit is for every size of batch: each is compiled

    def presets(self, presets: list[str]) -> list[str]:
        """Those of the presets that it is run for."""
        if self.which == "first":
            return presets[:1]
        if self.which == "last":
            return presets[-1:]
        return presets

    def limit_of(self, preset: str) -> float:
        """Seconds that it may take for a preset."""
        if not self.all_sizes:
            return self.limit_s
        config, _ = resolve(preset, scale="gpt2", device="cpu", settings={})
        return self.limit_s * len({1, *config.schedule.batch_growth})


CHECKS = {  # in order of importance: with less time than the sum of the limits the last are not run
    "attention": Check(run=check_attention, limit_s=120, which="first", beside=True),
    "networks": Check(run=check_network, limit_s=120, which="all", beside=True),
    "synthetic": Check(run=check_synthetic, limit_s=150, which="all"),
    "real": Check(run=check_real, limit_s=60, which="all"),
    "training": Check(run=check_training, limit_s=120, which="all", all_sizes=True),
    "runner": Check(run=check_runner, limit_s=150, which="all", all_sizes=True),
    "backends": Check(run=check_backends, limit_s=90, which="first"),
    "gather": Check(run=check_gather, limit_s=60, which="last"),
}
