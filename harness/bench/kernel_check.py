"""Kernels of this machine against plain ones: attention, compiled networks, low precision.

Part of harness/bench/gpu_check.py.

An error is the largest difference over the largest value of the reference.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Any

import torch
import yaml
from torch import Tensor

from harness.bench.steps import GPT2, resolve
from harness.config.run import RunConfig, with_fields
from harness.model.attention import KERNELS, make_mask
from harness.model.tokens import Tokens
from harness.training.core import Core

# kernels in bf16 against fp32: 8 bits of mantissa, summed over a row in another order
BF16_BOUND = 0.03
UPDATES = 5
ROOM = 5  # times the error of roundings (rounding.yaml): on a device that sums in another order
WINDOWS = (
    (None, "traced"),
    ("token", "traced"),
    ("clipped", "partial"),
    ("block", "partial_and_full"),
)


@dataclass(frozen=True, kw_only=True)
class KernelRow:
    """One comparison; its error is relative to the reference's largest value."""

    what: str
    error: float
    bound: float
    passed: bool


def row(what: str, computed: Tensor, reference: Tensor, bound: float) -> KernelRow:
    """One comparison; its error is relative to the reference's largest value."""
    expected = reference.double()
    error = float((computed.double() - expected).abs().max() / expected.abs().max())
    return KernelRow(what=what, error=error, bound=bound, passed=error <= bound)


def with_gradients(kernel: Callable[..., Tensor], tensors: list[Tensor], mask: Any) -> list[Tensor]:
    """The output and the gradients to q, k, v of its product with fixed numbers."""
    q, k, v = (t.detach().clone().requires_grad_() for t in tensors)
    y = kernel(q, k, v, mask)
    weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(y)
    return [y.detach(), *torch.autograd.grad((y * weights).sum(), (q, k, v))]


def inputs(device: str, T: int) -> list[Tensor]:
    """Random q, k and v, each (1, heads, T, 128)."""
    draw = torch.Generator().manual_seed(0)
    n_heads = 6 if device == "cuda" else 2
    return [torch.randn(1, n_heads, T, 128, generator=draw).to(device) for _ in range(3)]


def attention(device: str) -> Iterator[KernelRow]:
    """FlexAttention against the dense kernel in every mask, SDPA backends against the plain one."""
    cuda = device == "cuda"
    T = 2048 if cuda else 256
    tensors = inputs(device, T)
    low = [t.bfloat16() for t in tensors] if cuda else tensors
    names = ("output", "gradient of q", "gradient of k", "gradient of v")
    docs = (torch.arange(T, device=device) // (T // 3)).int()
    for kind, builder in WINDOWS:
        window = torch.tensor(2 if kind == "block" else 192, device=device, dtype=torch.int32)
        flex_mask = make_mask("flex", docs, window, kind, builder)
        dense_mask = make_mask("dense", docs, window, kind, builder)
        reference = with_gradients(KERNELS["dense"], tensors, dense_mask)
        if cuda:
            compiled = torch.compile(KERNELS["flex"], dynamic=False)
            computed = with_gradients(compiled, low, flex_mask)
        else:  # there is no backward pass on a CPU
            computed = [KERNELS["flex"](low[0], low[1], low[2], flex_mask)]
        for name, a, b in zip(names, computed, reference, strict=False):
            yield row(f"flex against dense, window {kind}, {name}", a, b, BF16_BOUND)
    reference = with_gradients(KERNELS["math"], tensors, None)
    backends = ("cudnn", "flash") if cuda else ("sdpa",)
    for kernel in backends:
        computed = with_gradients(KERNELS[kernel], low, None)
        for name, a, b in zip(names, computed, reference, strict=True):
            yield row(f"{kernel} against math, {name}", a, b, BF16_BOUND)


def small(preset: str, device: str, **fields: Any) -> RunConfig:
    """A preset at the small scale, or smaller still on a CPU: an update of one sequence."""
    sizes = {
        "data.ranks": 1,
        "data.batch_tokens": 1024,
        "data.seq_len": 1024,
        "data.micro_tokens": 1024,
        "data.val_tokens": 1024,
    }
    if device == "cpu":
        sizes = dict.fromkeys(sizes, 256) | {"data.ranks": 1}
    scale = "small" if device == "cuda" else "tiny"
    config, _ = resolve(preset, scale=scale, device=device, settings=sizes)
    return with_fields(config, fields)


def loss_bound(preset: str) -> float:
    """How far losses may be apart that differ by roundings alone; of other presets, the widest."""
    text = resources.files("harness.bench").joinpath("rounding.yaml").read_text("utf-8")
    rounding = yaml.safe_load(text)
    return ROOM * float(rounding.get(preset, max(rounding.values())))


def losses(config: RunConfig, device: str, compiled: Any = None, seed: int = 0) -> Tensor:
    """(UPDATES + 1,) losses of updates on one batch of random tokens, and of what they led to.

    compiled: a compiler's backend. seed: of the weights and the tokens.
    """
    vocab, separator = GPT2 if device == "cuda" else (257, 256)
    core = Core(
        config,
        Tokens(vocab_size=vocab, separator=separator, seq_len=config.data.seq_len),
        seed=seed,
        device=device,
    )
    if compiled is not None:
        core.forward = core.local = torch.compile(core.model, dynamic=False, backend=compiled)
        if core.objective is not None:
            core.forward = torch.compile(core.objective, dynamic=False, backend=compiled)
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, vocab, (1, 1, config.data.seq_len + 1), generator=draw).to(device)
    batch = ids[..., :-1].contiguous(), ids[..., 1:].contiguous()
    of_updates = [core.update(step, [batch]) for step in range(UPDATES)]
    return torch.cat([*of_updates, core.evaluate(UPDATES, [(batch[0][0], batch[1][0])])])


def networks(device: str, preset: str) -> Iterator[KernelRow]:
    """A preset compiled against eager, and low precision against fp32, by losses of updates."""
    cuda = device == "cuda"
    config = small(preset, device)
    eager = {"system.compile": "off"}
    if cuda and config.model.attn_mask == "causal":
        eager |= {"model.attn_kernel": "sdpa"}
    elif cuda:
        eager |= {"model.attn_kernel": "dense", "model.block_mask": "traced"}
    record = losses(with_fields(config, {**eager, "precision.mode": "record"}), device)
    plain = losses(with_fields(config, {**eager, "precision.mode": "fp32"}), device)
    yield row(
        f"{preset}: {config.precision.policy} against fp32", record, plain, loss_bound(preset)
    )
    if cuda:
        compiled = losses(with_fields(config, {"system.compile": "on"}), device)
        yield row(f"{preset}: compiled against eager", compiled, record, loss_bound(preset))
    else:
        fp32 = with_fields(config, {**eager, "precision.mode": "fp32"})
        yield row(f"{preset}: traced against eager", losses(fp32, device, "aot_eager"), plain, 1e-5)
