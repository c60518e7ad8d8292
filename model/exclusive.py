"""Exclusive attention (XSA): less of what a position's output has of its own value (record 82).

y_n <- y_n - tanh(a_n) (y_n . u_n) u_n for each head n, u the direction of v.
y, v: (B, T, N, H); a: (N,), or (B, T, N) where every position has its own.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

LEAST_NORM = 1e-4  # of v


def by_direction(y: Tensor, v: Tensor, a: Tensor) -> Tensor:
    """With u = v / max(|v|, 1e-4)."""
    u = F.normalize(v, dim=-1, eps=LEAST_NORM)
    return y - torch.tanh(a).to(y.dtype)[..., None] * (y * u).sum(-1, keepdim=True) * u


def by_ratio(y: Tensor, v: Tensor, a: Tensor) -> Tensor:
    """The same but where |v| < 1e-4: (y . v) / max(v . v, 1e-8) of v (record 86)."""
    part = (y * v).sum(-1, keepdim=True) / v.square().sum(-1, keepdim=True).clamp_min(LEAST_NORM**2)
    return y - torch.tanh(a).to(y.dtype)[..., None] * part * v


# model.xsa_form -> (y, v, a) -> y
EXCLUDE: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "projection": by_direction,
    "ratio": by_ratio,
}
