"""Accept a GPU machine.

`make gpu-check`, or `python -m harness.bench.gpu_check`, in under nine minutes.

Needs torch, numpy, PyYAML and the standard library, no network, nothing installed. Every check is
a process with a time limit of its own, those that time nothing side by side; one that fails or
does not fit in the time is told, and the others go on. Writes gpu-check.json and gpu-check.html.
With --dry-run everything is tiny and on the CPU: it shows that the program runs, its figures mean
nothing.
"""

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from harness.bench.breakdown import breakdown
from harness.bench.gather_check import gather
from harness.bench.gpu_page import page
from harness.bench.kernel_check import attention, networks
from harness.bench.steps import GPT2, Candidate, Text, compare, measure, resolve, synthetic
from harness.corpora.index import prepare
from harness.errors import UserError

TOTAL_S, TOTAL_DRY_S = 520, 600
TRAINED_TOKENS, TRAINED_STEPS = 65_536, 200
FALLEN_TO = 0.6  # share of the first loss below which a training's last losses must lie
WARM_SHARE = 0.1  # of the first start's time, with compiled kernels at hand
# what would tune kernels for minutes is left out, so that a start is a start
SETTINGS = {"system.coordinate_descent": False, "timing.protocol": "warmup-restore"}
TINY = {
    "model.n_layer": 6,
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

    def settings(self, **more: Any) -> dict[str, Any]:
        return (
            SETTINGS
            | (TINY if self.dry else {})
            | {key.replace("__", "."): value for key, value in more.items()}
        )

    def candidate(self, preset: str, text: Text, **more: Any) -> Candidate:
        config, _ = resolve(
            preset,
            scale="tiny" if self.dry else "gpt2",
            device=self.device,
            settings=self.settings(**more),
        )
        return Candidate(config, text, device=self.device)

    def real(self) -> Text:
        """The standard library's source in a vocabulary of the records' size.

        So every matrix is as large as theirs.
        """
        corpus = prepare("stdlib", self.folder)
        vocab, separator = (
            (corpus.vocab_size, corpus.separator) if self.dry else (GPT2[0], corpus.separator)
        )
        return Text(name="stdlib", shards=corpus.train, vocab_size=vocab, separator=separator)

    @property
    def steps(self) -> int:
        return 2 if self.dry else 5


Figures = dict[str, Any]  # with "passed" where a check has a bound


def check_attention(place: Place, preset: str) -> Figures:
    rows = list(attention(place.device))
    return {"rows": rows, "passed": all(r["passed"] for r in rows)}


def check_network(place: Place, preset: str) -> Figures:
    rows = list(networks(place.device, preset))
    return {"rows": rows, "passed": all(r["passed"] for r in rows)}


def check_synthetic(place: Place, preset: str) -> Figures:
    """The first start: compiles. Fixed allocator segments."""
    n, real = 4 * 524_288 * 2 if not place.dry else 50_000, place.real()
    with synthetic(
        n, (real.vocab_size, real.separator)
    ) as text:  # a separator is part of the compiled graph
        candidate = place.candidate(preset, text, system__expandable_segments=False)
        figures = measure(candidate, steps=place.steps, warmup=1)
        return {
            "tokens": "synthetic",
            "expandable_segments": False,
            **figures,
            "breakdown": breakdown(candidate, steps=1),
        }


def check_real(place: Place, preset: str) -> Figures:
    """The second start: finds its kernels compiled. Expandable allocator segments."""
    candidate = place.candidate(preset, place.real(), system__expandable_segments=True)
    return {
        "tokens": "stdlib",
        "expandable_segments": True,
        **measure(candidate, steps=place.steps, warmup=1),
    }


def check_backends(place: Place, preset: str) -> Figures:
    """cuDNN's attention against FlashAttention (the documents say 4 ms a step on 8 GPUs).

    On a CPU SDPA against math.
    """
    kernels = ("cudnn", "flash") if place.device == "cuda" else ("sdpa", "math")
    text = place.real()
    pair = [place.candidate(preset, text, model__attn_kernel=kernel) for kernel in kernels]
    return {
        "a": kernels[0],
        "b": kernels[1],
        **compare(*pair, steps=3 if place.dry else 8, warmup=1),
    }


def check_gather(place: Place, preset: str) -> Figures:
    world = torch.cuda.device_count() if place.device == "cuda" else 2
    if world < 2:
        return {"skipped": "needs more than one GPU"}
    config, _ = resolve(
        preset,
        scale="tiny" if place.dry else "gpt2",
        device=place.device,
        settings=place.settings(),
    )
    return gather(config, world=world, device=place.device, rounds=6 if place.dry else 30)


def check_training(place: Place, preset: str) -> Figures:
    """65,536 tokens a step on text found on the machine: no NaN, and the loss falls."""
    steps = 30 if place.dry else TRAINED_STEPS
    more: Figures = {"schedule__steps": steps, "data__ranks": 1, "system__accumulate": "mean"}
    if not place.dry:
        more |= {"data__batch_tokens": TRAINED_TOKENS, "data__micro_tokens": TRAINED_TOKENS}
    free, _ = resolve(
        preset, scale="tiny" if place.dry else "gpt2", device="cpu", settings={}
    )  # for its proportions alone
    if free.schedule.cooldown_steps:
        more["schedule__cooldown_steps"] = max(
            1, round(steps * free.schedule.cooldown_steps / free.schedule.steps)
        )
    if free.optim.muon_momentum_warmup_steps:
        share = free.optim.muon_momentum_warmup_steps / free.schedule.steps
        more["optim__muon_momentum_warmup_steps"] = max(1, round(steps * share))
    candidate = place.candidate(preset, place.real(), schedule__warmup_steps=0, **more)
    began = time.perf_counter()
    losses = torch.stack(
        [candidate.core.update(i, candidate.batches()).mean() for i in range(steps)]
    ).tolist()
    first, last = losses[0], sum(losses[-10:]) / 10
    passed = all(map(math.isfinite, losses)) and last < FALLEN_TO * first
    return {
        "steps": steps,
        "seconds_training": time.perf_counter() - began,
        "first_loss": first,
        "last_loss": last,
        "bound": FALLEN_TO * first,
        "losses": losses[:: max(1, steps // 20)],
        "passed": passed,
    }


@dataclass(frozen=True, kw_only=True)
class Check:
    run: Callable[[Place, str], Figures]
    limit_s: float
    which: str  # of the presets: all, or the first or the last one
    beside: bool = False  # whether it runs beside others: it times nothing, and mostly compiles


CHECKS = {  # in order of importance: what no longer fits in the time is told as not run
    "attention": Check(run=check_attention, limit_s=120, which="first", beside=True),
    "networks": Check(run=check_network, limit_s=120, which="all", beside=True),
    "synthetic": Check(run=check_synthetic, limit_s=180, which="all"),
    "real": Check(run=check_real, limit_s=120, which="all"),
    "training": Check(run=check_training, limit_s=150, which="all"),
    "backends": Check(run=check_backends, limit_s=120, which="first"),
    "gather": Check(run=check_gather, limit_s=90, which="last"),
}
WHICH: dict[str, Callable[[list[str]], list[str]]] = {
    "all": lambda p: p,
    "first": lambda p: p[:1],
    "last": lambda p: p[-1:],
}


def run_check(name: str, preset: str, place: Place, limit_s: float) -> dict[str, Any]:
    """One check in a process of its own: {check, preset, status, seconds, reason, figures}."""
    row: dict[str, Any] = {
        "check": name,
        "preset": preset,
        "status": "error",
        "seconds": 0.0,
        "reason": None,
        "figures": {},
    }
    if limit_s < 10:
        return {**row, "status": "not run", "reason": "no time left"}
    began = time.perf_counter()
    command = [
        sys.executable,
        "-m",
        "harness.bench.gpu_check",
        "--one",
        name,
        preset,
        "--folder",
        str(place.folder),
    ]
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(place.folder / "kernels" / preset)}
    root = Path(__file__).resolve().parents[2]
    try:
        done = subprocess.run(
            command + ["--dry-run"] * place.dry,
            cwd=root,
            env=environment,
            capture_output=True,
            text=True,
            timeout=limit_s,
        )
    except subprocess.TimeoutExpired:
        return {
            **row,
            "reason": f"took more than {limit_s:.0f} s",
            "seconds": time.perf_counter() - began,
        }
    row["seconds"] = time.perf_counter() - began
    if done.returncode != 0:
        return {**row, "reason": (done.stderr.strip().splitlines() or ["no word"])[-1][:500]}
    figures = json.loads(done.stdout.strip().splitlines()[-1])
    status = "passed" if figures.get("passed", True) else "failed"
    if "skipped" in figures:
        status = "not run"
    return {**row, "status": status, "reason": figures.get("skipped"), "figures": figures}


def start(rows: list[dict[str, Any]], preset: str, dry: bool) -> dict[str, Any] | None:
    """How long a second start takes as a share of the first, which compiled its kernels."""
    found = {
        r["check"]: r["figures"].get("warmup_s")
        for r in rows
        if r["preset"] == preset and r["check"] in ("synthetic", "real")
    }
    if dry or not all(found.get(check) for check in ("synthetic", "real")):
        return None  # nothing is compiled in a dry run
    share = found["real"] / found["synthetic"]
    return {
        "check": "warm start",
        "preset": preset,
        "status": "passed" if share < WARM_SHARE else "failed",
        "seconds": 0.0,
        "reason": None,
        "figures": {
            "first_s": found["synthetic"],
            "second_s": found["real"],
            "share": share,
            "bound": WARM_SHARE,
        },
    }


def environment(device: str) -> dict[str, Any]:
    cuda = device == "cuda"
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if cuda else None,
        "gpus": (
            [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
            if cuda
            else []
        ),
        "memory_gib": torch.cuda.get_device_properties(0).total_memory / 2**30 if cuda else None,
        "machine": platform.platform(),
    }


def check_machine(presets: list[str], place: Place) -> dict[str, Any]:
    """All checks; prints a line for each.

    One that cannot run beside others is tried again alone.
    """
    began, total = time.perf_counter(), TOTAL_DRY_S if place.dry else TOTAL_S

    def one(name: str, preset: str) -> dict[str, Any]:
        left = total - (time.perf_counter() - began)
        row = run_check(
            name, preset, place, min(left, CHECKS[name].limit_s * (3 if place.dry else 1))
        )
        print(
            f"{name:10} {preset}  {row['status']:8} {row['seconds']:6.1f} s  {row['reason'] or ''}",
            flush=True,
        )
        return row

    jobs = [
        (name, preset) for name, check in CHECKS.items() for preset in WHICH[check.which](presets)
    ]
    beside, alone = ([j for j in jobs if CHECKS[j[0]].beside is yes] for yes in (True, False))
    with ThreadPoolExecutor() as pool:
        rows = list(pool.map(lambda job: one(*job), beside))
    rows = [
        one(*job) if row["status"] == "error" else row
        for job, row in zip(beside, rows, strict=True)
    ]
    rows += [one(*job) for job in alone]
    rows += [row for preset in presets if (row := start(rows, preset, place.dry)) is not None]
    passed = all(
        r["status"] == "passed" or (r["status"] == "not run" and r["check"] == "gather")
        for r in rows
    )
    return {
        "schema": 1,
        "dry_run": place.dry,
        "passed": passed,
        "wall_s": time.perf_counter() - began,
        "environment": environment(place.device),
        "presets": presets,
        "checks": rows,
    }


def write(result: Mapping[str, Any], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gpu-check.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    (folder / "gpu-check.html").write_text(page(result), encoding="utf-8")


def main(arguments: list[str] | None = None) -> None:
    """Exit 0 if every check passed, 1 if not, 2 on bad input."""
    parser = argparse.ArgumentParser(
        prog="python -m harness.bench.gpu_check", description="accept a GPU machine"
    )
    parser.add_argument(
        "--presets", default="r08,r18", help="records to check, with commas (r08,r18)"
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="tiny sizes on the CPU, to show that the program runs",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("results") / "gpu-check",
        help="folder for JSON and page",
    )
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--one", nargs=2, metavar=("CHECK", "PRESET"), help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    device = "cpu" if given.dry_run else "cuda"
    try:
        if device == "cuda" and not torch.cuda.is_available():
            raise UserError(
                "no CUDA device here: run it on a GPU machine, or with --dry-run (make gpu-check"
                " DRY=1)"
            )
        if given.one:
            print(
                json.dumps(
                    CHECKS[given.one[0]].run(
                        Place(device=device, dry=given.dry_run, folder=given.folder), given.one[1]
                    )
                )
            )
            return
        presets = given.presets.split(",")
        for preset in presets:
            resolve(preset, scale="gpt2", device="cpu", settings={})
    except UserError as error:
        print(f"gpu-check: {error}", file=sys.stderr)
        sys.exit(2)
    with TemporaryDirectory() as folder:
        result = check_machine(
            presets, Place(device=device, dry=given.dry_run, folder=Path(folder))
        )
    write(result, given.output)
    print(
        f"{'passed' if result['passed'] else 'FAILED'} in {result['wall_s']:.0f} s:"
        f" {given.output / 'gpu-check.html'}"
    )
    sys.exit(0 if result["passed"] else 1)


if __name__ == "__main__":
    main()
