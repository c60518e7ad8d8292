"""What this machine can run.

One row per thing the harness can use, with advice where it is missing.
"""

import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass

import torch

from harness.corpora.index import list_corpora
from harness.node.nvidia import query_gpus


def _first_line(*command: str) -> str | None:
    """The first line a program prints, None where it is missing or fails."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return (
        done.stdout.strip().splitlines()[0]
        if done.returncode == 0 and done.stdout.strip()
        else None
    )


@dataclass(frozen=True, kw_only=True)
class Ability:
    """One thing the harness can use: what was found of it, and how to get what is missing."""

    what: str
    ok: bool
    found: str
    advice: str | None  # None where nothing is to be done


def ability(what: str, answer: str | None, advice: str | None = None) -> Ability:
    """A row; answer: None where there is none."""
    if answer is None:
        return Ability(what=what, ok=False, found="none", advice=advice)
    return Ability(what=what, ok=True, found=answer, advice=None)


def examine() -> list[Ability]:
    """What this machine can run, a row each."""
    return [*of_the_machine(), *of_the_gpus(), *of_the_tools(), *of_the_corpora()]


def of_the_machine() -> list[Ability]:
    """Python, torch, processors."""
    python = platform.python_version() if sys.version_info >= (3, 11) else None
    n_cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return [
        ability("python", python, "install Python 3.11 or newer"),
        ability("torch", torch.__version__),
        ability("cpu", f"{n_cpus} processors, {torch.get_num_threads()} threads"),
    ]


def of_the_gpus() -> list[Ability]:
    """GPUs, their driver, the kernels that need them."""
    cuda = torch.cuda.is_available()
    gpus = drivers = cudnn = flex = None
    if cuda:
        gpus = f"{torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}"
        cudnn = f"cuDNN {torch.backends.cudnn.version()}"
        flex = "available"
    for values in query_gpus("driver_version")[:1]:
        drivers = values[0]
    on_the_cpu = "presets run on the CPU in fp32 with substituted kernels"
    if torch.version.cuda is None:
        on_the_cpu += " (this torch is built without CUDA)"
    return [
        ability("gpus", gpus, on_the_cpu),
        ability("driver", drivers, "install NVIDIA's driver to use GPUs"),
        ability("cudnn attention", cudnn, "needs CUDA; the default SDPA kernel is used instead"),
        ability("flex attention", flex, "needs CUDA to train; the dense kernel is used instead"),
    ]


def of_the_tools() -> list[Ability]:
    """A compiler, the processes' library, Slurm."""
    compiler = _first_line("g++", "--version") or _first_line("clang++", "--version")
    nccl = None
    if torch.cuda.is_available():
        nccl = ".".join(map(str, torch.cuda.nccl.version()))
    slurm = _first_line("sinfo", "--version")
    return [
        ability("compiler", compiler, "install g++ to use torch.compile"),
        ability("nccl", nccl, "needs CUDA; processes on CPUs use gloo"),
        ability("slurm", slurm, "only needed for --executor slurm"),
    ]


def of_the_corpora() -> list[Ability]:
    """The corpora that have a name, prepared or not."""
    rows = []
    for corpus in list_corpora():
        place = None if corpus.missing else corpus.place
        rows.append(ability(f"corpus {corpus.name}", place, corpus.missing))
    return rows
