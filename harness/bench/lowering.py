"""The code that the compiler generates for a network on an H100, without one.

    python -m harness.bench.lowering < networks.json

A process of its own (harness/bench/traffic.py starts it): a card is pretended to be there, nothing
is run on it, every tensor is fake. Attention libraries stand as one call each, as on the card.
"""

import copy
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor
from torch._inductor.codecache import PyCodeCache
from torch._inductor.compile_fx import compile_fx, compile_fx_inner
from torch._inductor.graph import GraphLowering
from torch._subclasses.fake_tensor import FakeTensorMode

from harness.bench.pretend import SHARED_BYTES, an_h100
from harness.bench.steps import GPT2, resolve
from harness.bench.traffic import Graph, Network
from harness.config.run import RunConfig, with_fields
from harness.model.attention import KERNELS
from harness.model.tokens import Tokens
from harness.training.core import Core

LIBRARIES = ("sdpa", "cudnn", "flash")  # attention kernels that no compiler sees into
GRAPHS = ("forward", "backward")
LOADS = "compile_to_module"  # of a lowered graph: what would load its code
KERNEL = re.compile(r"async_compile\.triton\('(\w+)', '''(.*?)''', device_str", re.DOTALL)
LAUNCH = re.compile(r"\.run\(")
ANGLES = re.compile(r"(?:tl_math|libdevice|tl)\.(?:cos|sin)\b")


class Lowered(Exception):
    """A graph's code is there: what would load it is left out."""


class Lowering:
    """Lowers the graphs of one network, in the order in which they are compiled."""

    def __init__(self) -> None:
        self.graphs: list[Graph] = []
        self.code: list[str] = []

    def keep(self, lowered: GraphLowering) -> None:
        """In the place of what would load its code."""
        generated: Any = lowered.codegen()[0]
        code = generated.value
        sizes = {"kernel": 0, "product": 0}
        for node in lowered.scheduler.nodes:
            kind = "product" if node.is_extern() else "kernel"
            sizes[kind] += node.get_read_write_buffers_sizes()
        self.graphs.append(
            Graph(
                graph=GRAPHS[len(self.graphs)],
                kernel_bytes=int(sizes["kernel"]),
                product_bytes=int(sizes["product"]),
                kernels=len(KERNEL.findall(code)),
                launches=len(LAUNCH.findall(code)),
                angles=len(ANGLES.findall(code)),
            )
        )
        self.code.append(code)
        raise Lowered

    def compile(self, graph: torch.fx.GraphModule, inputs: Sequence[Any], **how: Any) -> Any:
        """Generate a graph's code; what is then called is the graph itself, on fake tensors."""
        itself, before = copy.deepcopy(graph), len(self.graphs)
        try:
            compile_fx_inner(graph, inputs, **how)
        except Exception:
            if len(self.graphs) == before:  # no code came of it
                raise
        return boxed(itself)


def boxed(graph: torch.fx.GraphModule) -> Callable[[list[Any]], Any]:
    """The graph as the compiler's callers want it: it takes its inputs as one list."""

    def run(inputs: list[Any]) -> Any:
        return graph(*inputs)

    vars(run).update(_boxed_call=True)
    return run


def library_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Any, scale: float | None = None
) -> Tensor:
    """One call, as cuDNN's and Flash's: reads q, k, v, writes the output and a sum per row.

    scale: of the scores, None for the usual one.
    """
    flash = torch.ops.aten._scaled_dot_product_flash_attention
    y: Tensor = flash(q, k, v, 0.0, True, scale=scale)[0]
    return y


def lower(config: RunConfig) -> Lowering:
    """What the first update computes in one pass, forward and backward."""
    torch._dynamo.reset_code_caches()  # the whole reset would ask the card
    torch._inductor.config.coordinate_descent_tuning = config.system.coordinate_descent
    lowering, device = Lowering(), torch.device("cuda", 0)
    setattr(GraphLowering, LOADS, lambda graph: lowering.keep(graph))

    def backend(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        return compile_fx(graph, inputs, inner_compile=lowering.compile)

    T = config.data.seq_len
    B = config.data.micro_tokens // T
    vocab_size, separator = GPT2
    texts = [b"a"] * vocab_size  # which they are does not matter to the code
    tokens = Tokens(vocab_size=vocab_size, separator=separator, seq_len=T, texts=texts)
    eager = with_fields(config, {"system.compile": "off"})
    with FakeTensorMode(allow_non_fake_inputs=True):
        core = Core(eager, tokens, seed=0, device="cuda")
        ids = torch.zeros(B, T, dtype=getattr(torch, config.data.input_dtype), device=device)
        targets = torch.zeros(B, T, dtype=torch.int64, device=device)
        core.forward = torch.compile(core.forward, dynamic=False, backend=backend)
        core.gradients([(ids[None], targets[None])], core.set_step(0))
    return lowering


def shared_bytes(source: str, name: str) -> int:
    """Shared memory of a kernel's sm_90 binary, in the smallest of the forms it may be tuned to."""
    kernel = getattr(PyCodeCache.load(source), name)
    kernel.precompile(warm_cache_only=True)
    return min(_shared(made.kernel) for made in kernel.compile_results)


def _shared(binary: Any) -> int:
    """Of one binary, which either of the compiler's launchers may hold."""
    return int(binary.shared if hasattr(binary, "shared") else binary.metadata.shared)


def with_binaries(graph: Graph, code: str) -> Graph:
    """The graph with every kernel of its code made into a binary."""
    too_large, n = [], 0
    for name, source in KERNEL.findall(code):
        used = shared_bytes(source, name)
        n += 1
        if used > SHARED_BYTES:
            too_large.append(f"{name}: {used} bytes")
    return Graph(**{**asdict(graph), "binaries": n, "too_large": too_large})


def of_each(networks: Sequence[Network]) -> Iterator[list[Graph]]:
    """The graphs of each network."""
    for library in LIBRARIES:
        KERNELS[library] = library_attention
    for network in networks:
        config, _ = resolve(
            network.preset, scale=network.scale, device="cuda", settings=network.settings
        )
        lowering = lower(config)
        if network.binaries:
            yield list(map(with_binaries, lowering.graphs, lowering.code))
        else:
            yield lowering.graphs


def main() -> None:
    """Read networks, print a line of JSON with the graphs of each."""
    os.environ.pop("LD_PRELOAD", None)  # the assembler is to start without it
    an_h100()
    networks = [Network(**network) for network in json.load(sys.stdin)]
    for graphs in of_each(networks):
        print(json.dumps([asdict(graph) for graph in graphs]), flush=True)


if __name__ == "__main__":
    main()
