"""Accept a GPU machine.

`make gpu-check`, or `python -m harness.bench.gpu_check`, in about ten minutes.

Needs torch, numpy, PyYAML and the standard library, no network, nothing installed; the check of
the runner needs the project's other dependencies too. Every check is a process with a time limit
of its own, those that time nothing side by side; one that fails is told, and the others go on.
With `--total SECONDS` what no longer fits is not run: the machine is accepted, except for that.
Writes gpu-check.json and gpu-check.html.
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
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from harness.bench.gpu_page import CheckRow, GpuCheck, page
from harness.bench.machine_checks import CHECKS, CheckFigures, Place
from harness.bench.steps import resolve
from harness.errors import UserError

LEAST_S = 10  # with less time left a check is not begun
NO_TIME = "no time left"
DRY_SLOWER = 3  # times its limit that a check may take in a dry run
WARM_SHARE = 0.25  # of the first start's time, with compiled kernels at hand


def planned_s(presets: Sequence[str], dry: bool) -> float:
    """What all checks may take: the sum of their limits, those side by side at once."""
    alone, beside = 0.0, 0.0
    for check in CHECKS.values():
        if check.beside:
            beside = max(beside, check.limit_s)
        else:
            alone += sum(map(check.limit_of, check.presets(list(presets))))
    return (alone + beside) * (DRY_SLOWER if dry else 1)


def run_check(
    name: str, preset: str, place: Place, *, limit_s: float, left_s: float = math.inf
) -> CheckRow:
    """One check in a process of its own.

    name, preset: which. place: where it runs. limit_s: it is ended after so long, an error.
    left_s: of the time of all checks; where that is over before, it was not run.
    """
    no_time = CheckRow(check=name, preset=preset, status="not run", reason=NO_TIME)
    if left_s < LEAST_S:
        return no_time
    began = time.perf_counter()
    try:
        done = _in_a_process(name, preset, place, min(limit_s, left_s))
    except subprocess.TimeoutExpired:
        if left_s < limit_s:
            return replace(no_time, seconds=time.perf_counter() - began)
        return CheckRow(
            check=name,
            preset=preset,
            status="error",
            seconds=time.perf_counter() - began,
            reason=f"took more than {limit_s:.0f} s",
        )
    seconds = time.perf_counter() - began
    if done.returncode != 0:
        print(done.stderr, file=sys.stderr)  # all of it: the page has its last line
        last_words = (done.stderr.strip().splitlines() or ["no word"])[-1]
        return CheckRow(
            check=name, preset=preset, status="error", seconds=seconds, reason=last_words[:500]
        )
    figures = json.loads(done.stdout.strip().splitlines()[-1])
    return CheckRow(
        check=name,
        preset=preset,
        status=_status_of(figures),
        seconds=seconds,
        reason=figures.get("skipped"),
        figures=figures,
    )


def _in_a_process(
    name: str, preset: str, place: Place, limit_s: float
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "harness.bench.gpu_check", "--one", name, preset]
    command += ["--folder", str(place.folder)]
    if place.dry:
        command.append("--dry-run")
    kernels = place.folder / "kernels" / preset
    return subprocess.run(
        command,
        cwd=Path(__file__).resolve().parents[2],
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(kernels)},
        capture_output=True,
        text=True,
        timeout=limit_s,
    )


def _status_of(figures: CheckFigures) -> str:
    if "skipped" in figures:
        return "not run"
    return "passed" if figures.get("passed", True) else "failed"


def start(rows: Sequence[CheckRow], preset: str, dry: bool) -> CheckRow | None:
    """How long a second start takes as a share of the first, which compiled its kernels.

    A start ends with the first step; a median step is taken off both, as neither of them starts.
    None where one of them has no time, and in a dry run, in which nothing is compiled.
    """
    start_s = {}
    for row in rows:
        if row.preset == preset and "warmup_s" in row.figures:
            step_s = row.figures["step_ms_median"] / 1000
            start_s[row.check] = max(0.0, row.figures["warmup_s"] - step_s)
    first_s, second_s = start_s.get("synthetic"), start_s.get("real")
    if dry or not first_s or second_s is None:
        return None
    share = second_s / first_s
    return CheckRow(
        check="warm start",
        preset=preset,
        status="passed" if share < WARM_SHARE else "failed",
        figures={"first_s": first_s, "second_s": second_s, "share": share, "bound": WARM_SHARE},
    )


def environment(device: str) -> CheckFigures:
    """The versions and the GPUs of this machine."""
    cuda = device == "cuda"
    gpus, cudnn, memory_gib = [], None, None
    if cuda:
        cudnn = torch.backends.cudnn.version()
        gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        memory_gib = torch.cuda.get_device_properties(0).total_memory / 2**30
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": cudnn,
        "gpus": gpus,
        "memory_gib": memory_gib,
        "machine": platform.platform(),
    }


@dataclass(frozen=True, kw_only=True)
class Session:
    """One acceptance: where it runs, and how long it has."""

    place: Place
    began_s: float  # by time.perf_counter
    total_s: float

    def elapsed_s(self) -> float:
        return time.perf_counter() - self.began_s

    def run(self, name: str, preset: str) -> CheckRow:
        """One check in the time that is left; prints its line."""
        left_s = self.total_s - self.elapsed_s()
        limit_s = CHECKS[name].limit_of(preset) * (DRY_SLOWER if self.place.dry else 1)
        row = run_check(name, preset, self.place, limit_s=limit_s, left_s=left_s)
        line = f"{name:10} {preset}  {row.status:8} {row.seconds:6.1f} s  {row.reason or ''}"
        print(line, flush=True)
        return row

    def run_beside(self, jobs: Sequence[tuple[str, str]]) -> list[CheckRow]:
        """Checks side by side; one that cannot run so is tried again alone."""
        with ThreadPoolExecutor() as pool:
            started = [pool.submit(self.run, name, preset) for name, preset in jobs]
        rows = []
        for (name, preset), ended in zip(jobs, started, strict=True):
            row = ended.result()
            if row.status == "error":
                row = self.run(name, preset)
            rows.append(row)
        return rows


def check_machine(presets: list[str], place: Place, total_s: float | None = None) -> GpuCheck:
    """All checks; prints a line for each.

    One that cannot run beside others is tried again alone. total_s: None: the sum of the limits.
    """
    if total_s is None:
        total_s = planned_s(presets, place.dry)
    session = Session(place=place, began_s=time.perf_counter(), total_s=total_s)
    beside: list[tuple[str, str]] = []
    alone: list[tuple[str, str]] = []
    for name, check in CHECKS.items():
        for preset in check.presets(presets):
            if check.beside:
                beside.append((name, preset))
            else:
                alone.append((name, preset))
    rows = session.run_beside(beside)
    for name, preset in alone:
        rows.append(session.run(name, preset))
    for preset in presets:
        warm_start = start(rows, preset, place.dry)
        if warm_start is not None:
            rows.append(warm_start)
    return GpuCheck(
        dry_run=place.dry,
        passed=not any(row.is_bad for row in rows),
        excepted=[row.exception for row in rows if row.exception],
        wall_s=session.elapsed_s(),
        environment=environment(place.device),
        presets=presets,
        checks=rows,
    )


def write(result: GpuCheck, folder: Path) -> None:
    """gpu-check.json and its page."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(asdict(result), indent=1)
    (folder / "gpu-check.json").write_text(f"{text}\n", encoding="utf-8")
    (folder / "gpu-check.html").write_text(page(result), encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
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
    parser.add_argument(
        "--total",
        type=float,
        metavar="SECONDS",
        help="begin nothing later, and tell what was not run (the sum of all limits)",
    )
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--one", nargs=2, metavar=("CHECK", "PRESET"), help=argparse.SUPPRESS)
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Exit 0 if no check failed, 1 if one did, 2 on bad input."""
    given = _parser().parse_args(arguments)
    device = "cpu" if given.dry_run else "cuda"
    presets = given.presets.split(",")
    try:
        if device == "cuda" and not torch.cuda.is_available():
            raise UserError(
                "no CUDA device here: run it on a GPU machine, or with --dry-run (make gpu-check"
                " DRY=1)"
            )
        if given.one:
            name, preset = given.one
            place = Place(device=device, dry=given.dry_run, folder=given.folder)
            print(json.dumps(CHECKS[name].run(place, preset)))
            return
        for preset in presets:
            resolve(preset, scale="gpt2", device="cpu", settings={})
    except UserError as error:
        print(f"gpu-check: {error}", file=sys.stderr)
        sys.exit(2)
    with TemporaryDirectory() as folder:
        place = Place(device=device, dry=given.dry_run, folder=Path(folder))
        result = check_machine(presets, place, given.total)
    write(result, given.output)
    print(f"{result.verdict} in {result.wall_s:.0f} s: {given.output / 'gpu-check.html'}")
    sys.exit(0 if result.passed else 1)


if __name__ == "__main__":
    main()
