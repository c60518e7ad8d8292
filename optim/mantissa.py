"""Matrices in bf16 with sixteen more bits beside: together the bits of the fp32 value (record 57).

Cut off, not rounded: what the network sees is the fp32 value towards zero.
"""

import torch
from torch import Tensor


def joined(high: Tensor, low: Tensor) -> Tensor:
    """fp32 of bf16 weights and their further bits, int16."""
    bits = high.view(torch.int16).to(torch.int32) << 16 | low.to(torch.int32) & 0xFFFF
    return bits.view(torch.float32)


def parted(value: Tensor) -> tuple[Tensor, Tensor]:
    """Such weights and bits of fp32 values."""
    bits = value.view(torch.int32)
    return (bits >> 16).to(torch.int16).view(torch.bfloat16), bits.to(torch.int16)


def stepped(
    weights: Tensor, updates: Tensor, step_size: float, decay: float, *, cautious: bool
) -> Tensor:
    """p - s c p - s U where U p >= 0, else p - s U, of fp32 weights; not cautious: (1 - c) p - s U.

    weights, updates: p and U. step_size: s. decay: c. In the record's order of operations, on which
    the last bits depend.
    """
    if decay and cautious:
        agrees = weights * updates >= 0
        weights = weights - weights * agrees * decay * step_size
    elif decay:
        weights = weights * (1 - decay)
    return weights - updates * step_size
