"""What this machine can run.

One row per thing the harness can use, with advice where it is missing.
"""

import os
import platform
import shutil
import subprocess
import sys
from typing import Any

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


def examine() -> list[dict[str, Any]]:
    """Rows of what, ok, found, advice (None where nothing is to be done)."""
    import torch

    from harness.corpora.index import list_corpora

    rows: list[dict[str, Any]] = []

    def add(what: str, found: str | None, advice: str | None = None) -> None:
        rows.append(
            {
                "what": what,
                "ok": found is not None,
                "found": found or "none",
                "advice": None if found else advice,
            }
        )

    add(
        "python",
        platform.python_version() if sys.version_info >= (3, 11) else None,
        "install Python 3.11 or newer",
    )
    add("torch", torch.__version__)
    n_cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    add("cpu", f"{n_cpus} processors, {torch.get_num_threads()} threads")
    cuda = torch.cuda.is_available()
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if cuda else []
    add(
        "gpus",
        f"{len(gpus)} x {gpus[0]}" if gpus else None,
        "presets run on the CPU in fp32 with substituted kernels"
        + (" (this torch is built without CUDA)" if torch.version.cuda is None else ""),
    )
    add(
        "driver",
        next((values[0] for values in query_gpus("driver_version")), None),
        "install NVIDIA's driver to use GPUs",
    )
    add(
        "cudnn attention",
        f"cuDNN {torch.backends.cudnn.version()}" if cuda else None,
        "needs CUDA; the default SDPA kernel is used instead",
    )
    add(
        "flex attention",
        "available" if cuda else None,
        "needs CUDA to train; the dense kernel is used instead",
    )
    add(
        "compiler",
        _first_line("g++", "--version") or _first_line("clang++", "--version"),
        "install g++ to use torch.compile",
    )
    add(
        "nccl",
        ".".join(map(str, torch.cuda.nccl.version())) if cuda else None,
        "needs CUDA; processes on CPUs use gloo",
    )
    add("slurm", _first_line("sinfo", "--version"), "only needed for --executor slurm")
    for corpus in list_corpora():
        rows.append(
            {
                "what": f"corpus {corpus.name}",
                "ok": not corpus.missing,
                "found": corpus.place if not corpus.missing else "none",
                "advice": corpus.missing,
            }
        )
    return rows
