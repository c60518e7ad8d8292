"""What a preset's network costs on an H100 in memory traffic and launches, without a GPU.

A process with a card that is pretended (harness/bench/lowering.py) generates the code of a pass,
forward and backward; here its figures become a table. Needs triton and a C++ compiler.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from harness.bench.steps import GPT2, resolve
from harness.config.run import Values
from harness.errors import UserError
from harness.training.flops import flops_per_token

BANDWIDTH = 3350.0  # GB/s of an H100 SXM's memory, by its data sheet
MATRIX_RATE = 989e12  # FLOP/s of its dense bf16 products, by its data sheet
STAND_IN = Path(__file__).with_name("stand_in.cpp")
SETTINGS = {  # of the process that lowers: it compiles alone, and anew
    "TORCH_WARM_POOL": "0",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
}


@dataclass(frozen=True, kw_only=True)
class Graph:
    """One graph of a pass, as generated."""

    graph: str  # forward or backward
    kernel_bytes: int  # read and written by generated kernels
    product_bytes: int  # by matrix products and attention libraries
    kernels: int  # different ones
    launches: int  # of generated kernels
    angles: int  # cosines and sines computed inside kernels
    binaries: int | None = None  # kernels that became sm_90 code; None: not asked
    too_large: Sequence[str] = ()  # kernels that want more shared memory than there is


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """A graph of one pass, and the least time that it can take."""

    graph: str
    kernel_gb: float  # read and written by generated kernels
    product_gb: float  # by matrix products and attention libraries
    kernels: int  # different ones
    launches: int  # of generated kernels
    angles: int  # cosines and sines computed inside kernels
    kernel_ms: float  # at the bandwidth
    product_ms: float  # at the bandwidth or the rate of products, whichever takes longer
    binaries: int | None = None  # kernels that became sm_90 code; None: not asked
    too_large: Sequence[str] = ()  # kernels that want more shared memory than there is


@dataclass(frozen=True)
class Network:
    """A preset with its settings, as it is to be lowered."""

    preset: str
    settings: Values = field(default_factory=dict)
    scale: str = "gpt2"
    binaries: bool = False


def check_tools() -> str:
    """The C++ compiler's path. Raises UserError where something is missing."""
    if importlib.util.find_spec("triton") is None:
        raise UserError(
            "--traffic needs triton, which generates the GPU's code: pip install"
            " 'speedrun-ablations[traffic]' (Linux)"
        )
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        raise UserError("--traffic needs a C++ compiler: install g++")
    return compiler


def traffic(
    networks: Sequence[Network], *, bandwidth: float = BANDWIDTH
) -> list[tuple[Traffic, ...]]:
    """Forward and backward of a pass of each network. bandwidth: GB/s. Raises UserError."""
    compiler = check_tools()
    for network in networks:
        resolve(network.preset, scale=network.scale, device="cuda", settings=network.settings)
    with TemporaryDirectory() as folder:
        library = build(compiler, Path(folder))
        lines = lowered(networks, library, Path(folder))
    measured = []
    for network, line in zip(networks, lines, strict=True):
        graphs = [Graph(**graph) for graph in json.loads(line)]
        measured.append(tuple(timed(network, graph, bandwidth) for graph in graphs))
    return measured


def build(compiler: str, folder: Path) -> Path:
    """The library that stands for a card while a network is traced."""
    torch = Path(str(importlib.util.find_spec("torch").origin)).parent  # type: ignore[union-attr]
    library = folder / "stand_in.so"
    command = [compiler, "-std=c++20", "-O1", "-shared", "-fPIC", str(STAND_IN), "-o", str(library)]
    for include in ("include", "include/torch/csrc/api/include"):
        command.append(f"-I{torch / include}")
    command += [f"-L{torch / 'lib'}", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{torch / 'lib'}"]
    ran(command, "building the stand-in for a GPU")
    return library


def lowered(networks: Sequence[Network], library: Path, folder: Path) -> list[str]:
    """A line of JSON for each network, from the process that lowers them."""
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(folder), "TRITON_CACHE_DIR": str(folder)}
    done = ran(
        [sys.executable, "-m", "harness.bench.lowering"],
        "generating an H100's code",
        env={**os.environ, **SETTINGS, **caches, "PYTHONPATH": path, "LD_PRELOAD": str(library)},
        input=json.dumps([asdict(network) for network in networks]),
    )
    return done.stdout.splitlines()


def ran(command: Sequence[str], doing: str, **how: Any) -> subprocess.CompletedProcess[str]:
    """A command that succeeded. Raises UserError with its last words."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **how)
    if done.returncode != 0:
        last_line = (done.stderr.strip().splitlines() or ["no word"])[-1]
        raise UserError(f"{doing} failed: {last_line[:500]}")
    return done


def timed(network: Network, graph: Graph, bandwidth: float) -> Traffic:
    """A graph's figures, and the least time that they allow."""
    config, _ = resolve(
        network.preset, scale=network.scale, device="cuda", settings=network.settings
    )
    share = 1 / 3 if graph.graph == "forward" else 2 / 3  # of the products
    flops = flops_per_token(config, GPT2[0], step=0).model * config.data.micro_tokens
    memory_ms = graph.product_bytes / bandwidth / 1e6
    return Traffic(
        graph=graph.graph,
        kernel_gb=graph.kernel_bytes / 1e9,
        product_gb=graph.product_bytes / 1e9,
        kernels=graph.kernels,
        launches=graph.launches,
        angles=graph.angles,
        kernel_ms=graph.kernel_bytes / bandwidth / 1e6,
        product_ms=max(memory_ms, 1e3 * share * flops / MATRIX_RATE),
        binaries=graph.binaries,
        too_large=graph.too_large,
    )
