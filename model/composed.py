"""Attention whose heads read a mixture of all heads' probabilities over near keys (record 85).

y_n(t) <- y_n(t) + w2_n(t) sum_s (sum_g u_g(t) p_g(t, s)) v_n(s), p_g the softmax of head g's scores
over the W nearest keys of the document alone, u = w1 / sqrt(mean_g w1_g^2 + 1e-6).
B batch, T sequence, N heads, H head_dim; queries go by M tiles of W, with the keys of two tiles.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

EPS = 1e-6  # of the mean square of w1


def near(document_BT: Tensor, window: int) -> Tensor:
    """Which of its 2W keys each query of a tile sees: (B, M, W, 2W), boolean.

    document_BT: each position's document. window: W, in tokens, the query's own included.
    """
    T, device = document_BT.shape[1], document_BT.device
    tile_M = torch.arange(-(-T // window), device=device)[:, None, None]
    query = tile_M * window + torch.arange(window, device=device)[:, None]
    key = (tile_M - 1) * window + torch.arange(2 * window, device=device)
    back = query - key
    is_near = (back >= 0) & (back < window) & (key >= 0)
    query, key = query.clamp(max=T - 1), key.clamp(0, T - 1)
    return is_near & (document_BT[:, query] == document_BT[:, key])


def tiles(z_BNTH: Tensor, window: int) -> Tensor:
    """(B, N, M, W, H), zeros behind the last position."""
    T = z_BNTH.shape[2]
    padded = F.pad(z_BNTH, (0, 0, 0, -T % window))
    y_BNMWH: Tensor = padded.unflatten(2, (-1, window))
    return y_BNMWH


def with_tile_before(z_BNTH: Tensor, window: int) -> Tensor:
    """(B, N, M, 2W, H): each tile behind the one before it, the first behind zeros."""
    tiled = tiles(z_BNTH, window)
    before = F.pad(tiled[:, :, :-1], (0, 0, 0, 0, 1, 0))
    return torch.cat([before, tiled], dim=3)


def unit_mean_square(w_BTN: Tensor) -> Tensor:
    return w_BTN * (w_BTN.square().mean(-1, keepdim=True) + EPS).rsqrt()


def correction(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    w1_BTN: Tensor,
    w2_BTN: Tensor,
    seen: Tensor,
    scale: float | None,
) -> Tensor:
    """What is added to the heads' outputs, (B, T, N, H).

    q, k, v: (B, N, T, H), as the kernel takes them. w1_BTN, w2_BTN: of what is mixed, and of how
    much of it each head takes. seen: of `near`. scale: of q.k; None: H^-1/2.
    """
    T, window = q.shape[2], seen.shape[2]
    scores = tiles(q, window) @ with_tile_before(k, window).transpose(-1, -2)
    scores = scores.float() * (q.shape[-1] ** -0.5 if scale is None else scale)
    p = scores.masked_fill(~seen[:, None], -math.inf).softmax(-1)
    mix = tiles(unit_mean_square(w1_BTN).transpose(1, 2)[..., None], window)
    mixed = (mix * p).sum(1, keepdim=True).to(v.dtype)
    y = (mixed @ with_tile_before(v, window)).flatten(2, 3)[:, :, :T].transpose(1, 2)
    return w2_BTN[..., None].to(y.dtype) * y
