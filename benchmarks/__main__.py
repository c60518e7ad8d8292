"""The core against the plain scripts beside this file, interleaved in one process: losses, time, memory.

    python -m benchmarks [--rounds N] [--widths 64 256] [--json]

Both start from the same weights and read the same tokens, on one thread. Memory is the peak of a process of its own for each.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from types import ModuleType
from typing import Any

import torch

from benchmarks import r08_plain, r18_plain
from harness.bench import Candidate, Text, interleave, ratio, resolve
from harness.data.corpora import data_root, open_corpus, prepare

PLAIN: dict[str, ModuleType] = {"r08": r08_plain, "r18": r18_plain}
COMPARED_STEPS, LOSS_BOUND = 10, 1e-5
# one process, a batch as long as the loaders read it in one go
SETTINGS = {"data.ranks": 1, "data.batch_tokens": 2048, "data.first_batch_twice": False, "optim.muon_comm": "redundant"}
# the scripts' hyperparameter -> the core's field
FIELDS = {
    **{name: f"model.{name}" for name in ("n_layer", "d_model", "head_dim")},
    **{name: f"data.{name}" for name in ("seq_len", "micro_tokens", "batch_tokens")},
    **{name: f"schedule.{name}" for name in ("steps", "cooldown_steps", "cooldown_frac", "window_tokens")},
    **{name: f"optim.{name}" for name in ("embed_lr", "head_lr", "scalar_lr", "muon_lr")},
    "momentum_warmup_steps": "optim.muon_momentum_warmup_steps",
}


def corpus() -> Text:
    if not (data_root() / "stdlib" / "corpus.json").exists():
        prepare("stdlib")
    c = open_corpus("stdlib")
    return Text(name=c.name, shards=c.train, vocab_size=c.vocab_size, separator=c.separator)


def make_core(name: str, width: int) -> Candidate:
    config, _ = resolve(name, scale="tiny", device="cpu", settings={**SETTINGS, "model.d_model": width})
    return Candidate(config, corpus(), device="cpu")


def make_plain(name: str, core: Candidate) -> Any:
    """The script's trainer with the core's sizes, rates and initial weights."""
    values = {
        own: getattr(getattr(core.config, field.partition(".")[0]), field.partition(".")[2]) for own, field in FIELDS.items()
    }
    module = PLAIN[name]
    known = module.Hyperparameters.__dataclass_fields__
    h = module.Hyperparameters(vocab_size=core.text.vocab_size, **{k: v for k, v in values.items() if k in known})
    trainer = module.Trainer(h, core.text.shards[0])
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


def speed(name: str, width: int, rounds: int) -> dict[str, Any]:
    """The core's step over the script's, both with their data."""
    core = make_core(name, width)
    plain = make_plain(name, core)
    for _ in range(3):
        core.step()
        plain.step()
    plain.step_number = 0  # the schedule's length is not what is timed
    core.steps_done = 0
    return ratio(interleave(lambda: timed(plain.step), lambda: timed(core.step), rounds))


def peak_mib(side: str, name: str, width: int) -> float:
    """Peak memory of a process of its own that makes both and takes a few steps with one of them."""
    command = [sys.executable, "-m", "benchmarks", "--peak", side, name, str(width)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1])


def report_peak(side: str, name: str, width: int) -> None:
    """Print this process's peak after a few steps of one side; both are made, so that what making costs is the same."""
    core = make_core(name, width)
    plain = make_plain(name, core)
    for _ in range(3):
        (core if side == "core" else plain).step()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def compare(name: str, width: int, rounds: int) -> dict[str, Any]:
    gap = largest_difference(name, width)
    times = speed(name, width, rounds)
    core, plain = peak_mib("core", name, width), peak_mib("plain", name, width)
    return {
        "record": name, "width": width, "loss_gap": gap, "losses_equal": gap <= LOSS_BOUND,
        "plain_ms": times["a_ms"], "core_ms": times["b_ms"], **{k: times[k] for k in ("rounds", "ratio", "low", "high")},
        "plain_mib": plain, "core_mib": core, "memory_ratio": core / plain,
    }  # fmt: skip


def table(row: dict[str, Any]) -> str:
    interval = f"{row['low']:.3f} to {row['high']:.3f}" if row["low"] is not None else "too few rounds"
    return (
        f"{row['record']}  width {row['width']:4}  core {row['core_ms']:8.1f} ms  plain {row['plain_ms']:8.1f} ms  ratio "
        f"{row['ratio']:.3f} ({interval}, {row['rounds']} rounds)  losses within {row['loss_gap']:.0e}  "
        f"memory {row['core_mib']:.0f} / {row['plain_mib']:.0f} MiB = {row['memory_ratio']:.3f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="the core against plain scripts")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--widths", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--records", nargs="+", choices=list(PLAIN), default=list(PLAIN))
    parser.add_argument("--json", action="store_true", help="print JSON for scripts")
    parser.add_argument("--peak", nargs=3, metavar=("SIDE", "RECORD", "WIDTH"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.peak:
        report_peak(arguments.peak[0], arguments.peak[1], int(arguments.peak[2]))
        return
    rows = []
    for name in arguments.records:
        for width in arguments.widths:
            rows.append(compare(name, width, arguments.rounds))
            if not arguments.json:
                print(table(rows[-1]), flush=True)
    if arguments.json:
        print(json.dumps(rows, indent=1))
    if not all(row["losses_equal"] for row in rows):
        sys.exit(f"losses differ by more than {LOSS_BOUND:g}: the scripts and the core no longer compute the same")


if __name__ == "__main__":
    main()
