"""What a device can compute, measured, and the share of it that a run uses."""

import time
from functools import cache

import torch

from harness.config.run import RunConfig
from harness.training.flops import flops_per_token

# side and repeats of the products that measure a device
RATE_SIDE = {"cuda": 8192, "cpu": 512}
RATE_REPEATS = 10


@cache
def matrix_rate(device: str, dtype: torch.dtype) -> float:
    """FLOP/s of the best of a few large square products, with this process's threads."""
    n = RATE_SIDE[device]
    # its own generator; and not ones, which cost a GPU less power than numbers do
    draw = torch.Generator(device).manual_seed(0)
    a, b = (torch.randn(n, n, dtype=dtype, device=device, generator=draw) for _ in range(2))
    out, best = torch.empty_like(a), float("inf")
    for _ in range(RATE_REPEATS):
        if device == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        torch.mm(a, b, out=out)
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - began)
    rate: float = 2 * n**3 / best
    return rate


def mfu(
    config: RunConfig,
    vocab_size: int,
    tokens_per_s: float,
    *,
    device: str,
    dtype: torch.dtype,
    world: int = 1,
) -> float:
    """Share of the devices' measured matrix rate that the model's own FLOPs make.

    tokens_per_s: of all `world` devices together. dtype: of the matrix products.
    vocab_size: tokens of the corpus. device: "cpu" or "cuda".
    """
    return (
        flops_per_token(config, vocab_size).model
        * tokens_per_s
        / (matrix_rate(device, dtype) * world)
    )
