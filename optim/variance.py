"""Rows or columns of an orthogonal update brought to one size by their second moments (NorMuon).

For an update V of M rows and N columns with one number r per row (averaged over the columns) or per
column (averaged over the rows), at first 0:
    q = mean of V^2 over the averaged axis;  r <- r + (1 - beta2)(q - r)
    W = V / sqrt(max(r, 1e-10));  U = W ||V|| / max(||W||, 1e-10)
The Frobenius norm stays, so only the relative size of rows or columns changes, and no correction of
r's start is needed. Source: Li, Liu, Zheng, Chen, He, 2025 (NorMuon); record 42. K matrices.
"""

import torch
from torch import Tensor

from .orthogonalize import frobenius

LEAST = 1e-10  # of a second moment and of a norm that divide
ROWS, COLUMNS = -2, -1
# optim.muon_variance -> row of the table of roles -> the axis that is averaged over. An MLP's
# matrices have a number for every hidden unit, which are up's rows and down's columns; others are
# as attention's.
AVERAGED = {
    "tensor": {"attn": ROWS, "up": COLUMNS, "down": ROWS},
    "input": {"attn": ROWS, "up": COLUMNS, "down": ROWS},
    "output": {"attn": COLUMNS, "up": COLUMNS, "down": ROWS},
}


def second_shape(u_KMN: Tensor, axis: int) -> tuple[int, ...]:
    """(K, 1, N) or (K, M, 1): the numbers r of K matrices."""
    shape = list(u_KMN.shape)
    shape[axis] = 1
    return tuple(shape)


def side_by_side(u_KMN: Tensor, joined: int) -> Tensor:
    """So many square matrices of a layer as one tensor (N, joined N), where record 41 had them.

    Its memory is theirs, one after another, so that its columns mix them.
    """
    return u_KMN.reshape(-1, u_KMN.size(-2), joined * u_KMN.size(-1))


def normalize(v_KMN: Tensor, r: Tensor, axis: int, beta2: float, least: float = LEAST) -> Tensor:
    """The updates U of K updates V, in the dtype of V; r, as second_shape has it, is moved on.

    axis: ROWS or COLUMNS, which is averaged over. beta2: of r's decay.
    least: r that divides. Computed in fp32 at least.
    """
    v = v_KMN.to(torch.promote_types(v_KMN.dtype, torch.float32))
    r.lerp_(v.square().mean(axis, keepdim=True).to(r.dtype), 1 - beta2)
    w = v * r.to(v.dtype).clamp_min(least).rsqrt()
    return (w * (frobenius(v) / frobenius(w).clamp_min(LEAST))).to(v_KMN.dtype)
