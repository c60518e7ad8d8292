"""The core against the plain scripts beside this file, interleaved in one process: losses, time, memory.

    python -m benchmarks [--rounds N] [--widths 64 256] [--json]

Both start from the same weights and read the same tokens, on one thread. Memory is the peak of a process of its own for each,
which builds that side alone. Exit 1 where a bound is missed.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from types import ModuleType
from typing import Any

import torch

from benchmarks import r08_plain, r18_plain
from harness.bench.steps import Candidate, Text, TimeRatio, interleave, ratio, resolve
from harness.config.run import RunConfig, get
from harness.corpora.corpus import data_root
from harness.corpora.index import open_corpus, prepare
from harness.node.memory import peak_mib

PLAIN: dict[str, ModuleType] = {"r08": r08_plain, "r18": r18_plain}
COMPARED_STEPS = 10
BOUNDS = {  # figure -> what it may be, and what it is in words
    "loss_gap": (1e-5, "losses differ by"),
    "ratio": (1.00, "median ratio of the times"),
    "high": (1.02, "its upper 95 % bound"),
    "memory_ratio": (1.02, "ratio of the peaks of memory"),
}
PLAIN_PEAK = """
import json, os, sys, torch
import {module} as script
from harness.node.memory import peak_mib
torch.set_num_threads(1)
trainer = script.Trainer(script.Hyperparameters(**json.loads(sys.argv[1])), sys.argv[2])
for _ in range(3):
    trainer.step()
print(peak_mib(os.getpid()))
"""
# one process, a batch as long as the loaders read it in one go
SETTINGS = {
    "data.ranks": 1,
    "data.batch_tokens": 2048,
    "data.first_batch_twice": False,
    "optim.muon_comm": "redundant",
}
# the scripts' hyperparameter -> the core's field
FIELDS = {
    **{name: f"model.{name}" for name in ("n_layer", "d_model", "head_dim")},
    **{name: f"data.{name}" for name in ("seq_len", "micro_tokens", "batch_tokens")},
    **{
        name: f"schedule.{name}"
        for name in ("steps", "cooldown_steps", "cooldown_frac", "window_tokens")
    },
    **{name: f"optim.{name}" for name in ("embed_lr", "head_lr", "scalar_lr", "muon_lr")},
    "momentum_warmup_steps": "optim.muon_momentum_warmup_steps",
}


def corpus() -> Text:
    if not (data_root() / "stdlib" / "corpus.json").exists():
        prepare("stdlib")
    c = open_corpus("stdlib")
    return Text(name=c.name, shards=c.train, vocab_size=c.vocab_size, separator=c.separator)


def configured(name: str, width: int) -> RunConfig:
    return resolve(name, scale="tiny", device="cpu", settings={**SETTINGS, "model.d_model": width})[
        0
    ]


def make_core(name: str, width: int) -> Candidate:
    return Candidate(configured(name, width), corpus(), device="cpu")


def hyperparameters(name: str, config: RunConfig, text: Text) -> dict[str, Any]:
    """The core's sizes and rates by the script's names."""
    known = PLAIN[name].Hyperparameters.__dataclass_fields__
    return {
        "vocab_size": text.vocab_size,
        **{own: get(config, field) for own, field in FIELDS.items() if own in known},
    }


def make_plain(name: str, core: Candidate) -> Any:
    """The script's trainer with the core's sizes, rates and initial weights."""
    module = PLAIN[name]
    trainer = module.Trainer(
        module.Hyperparameters(**hyperparameters(name, core.config, core.text)), core.text.shards[0]
    )
    weights = {n: p.detach().clone() for n, p in core.core.model.named_parameters()}
    trainer.model.load_state_dict(weights, strict=True)
    return trainer


def core_losses(core: Candidate, steps: int) -> torch.Tensor:
    return torch.stack([core.core.update(i, core.batches()) for i in range(steps)])


def largest_difference(name: str, width: int, steps: int = COMPARED_STEPS) -> float:
    """Between the losses of the two, over all micro-batches of the first updates."""
    core = make_core(name, width)
    plain = make_plain(name, core)
    theirs = torch.stack([plain.step() for _ in range(steps)])
    return float((core_losses(core, steps) - theirs).abs().max())


def timed(step: Any) -> float:
    """Milliseconds of processor time: with one thread and nothing to wait for those of the wall, but for what else runs here."""
    began = time.process_time()
    step()
    return (time.process_time() - began) * 1000


def speed(name: str, width: int, rounds: int) -> TimeRatio:
    """The core's step over the script's, both with their data."""
    core = make_core(name, width)
    plain = make_plain(name, core)
    for _ in range(3):
        core.step()
        plain.step()
    plain.step_number = 0  # the schedule's length is not what is timed
    core.steps_done = 0
    return ratio(interleave(lambda: timed(plain.step), lambda: timed(core.step), rounds))


def peak_of(*arguments: str) -> float:
    """Peak memory of a process of its own that builds one side and takes a few steps with it; it imports what that side does."""
    return float(
        subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, check=True
        ).stdout.splitlines()[-1]
    )


def peaks(name: str, width: int) -> tuple[float, float]:
    """Of the core and of the script."""
    core = peak_of("-m", "benchmarks", "--peak", name, str(width))
    text = corpus()
    values = json.dumps(hyperparameters(name, configured(name, width), text))
    return core, peak_of(
        "-c", PLAIN_PEAK.format(module=PLAIN[name].__name__), values, str(text.shards[0])
    )


def print_peak(step: Any) -> None:
    """This process's peak after a few steps."""
    for _ in range(3):
        step()
    print(peak_mib(os.getpid()))


def compare(name: str, width: int, rounds: int) -> dict[str, Any]:
    gap = largest_difference(name, width)
    times = speed(name, width, rounds)
    core, plain = peaks(name, width)
    return {
        "record": name, "width": width, "loss_gap": gap,
        "plain_ms": times.a_ms, "core_ms": times.b_ms,
        "rounds": times.rounds, "ratio": times.ratio, "low": times.low, "high": times.high,
        "plain_mib": plain, "core_mib": core, "memory_ratio": core / plain,
    }  # fmt: skip


def missed(row: dict[str, Any]) -> list[str]:
    """The bounds that a comparison does not hold, in words."""
    return [
        f"{row['record']} width {row['width']}: {words} {row[key]:.3g}, at most {bound:g} is asked for"
        if row[key] is not None
        else f"{row['record']} width {row['width']}: {words} unknown, ask for at least six rounds"
        for key, (bound, words) in BOUNDS.items()
        if row[key] is None or row[key] > bound
    ]


def table(row: dict[str, Any]) -> str:
    interval = (
        f"{row['low']:.3f} to {row['high']:.3f}" if row["low"] is not None else "too few rounds"
    )
    return (
        f"{row['record']}  width {row['width']:4}  core {row['core_ms']:8.1f} ms  plain {row['plain_ms']:8.1f} ms  ratio "
        f"{row['ratio']:.3f} ({interval}, {row['rounds']} rounds)  losses within {row['loss_gap']:.0e}  "
        f"memory {row['core_mib']:.0f} / {row['plain_mib']:.0f} MiB = {row['memory_ratio']:.3f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="the core against plain scripts"
    )
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--widths", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--records", nargs="+", choices=list(PLAIN), default=list(PLAIN))
    parser.add_argument("--json", action="store_true", help="print JSON for scripts")
    parser.add_argument("--peak", nargs=2, metavar=("RECORD", "WIDTH"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.peak:
        print_peak(make_core(arguments.peak[0], int(arguments.peak[1])).step)
        return
    rows = []
    for name in arguments.records:
        for width in arguments.widths:
            rows.append(compare(name, width, arguments.rounds))
            if not arguments.json:
                print(table(rows[-1]), flush=True)
    if arguments.json:
        print(json.dumps(rows, indent=1))
    if problems := [words for row in rows for words in missed(row)]:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
