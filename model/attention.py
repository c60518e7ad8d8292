"""Attention kernels: a table from the toggle's name to a function of (q, k, v, mask, scale).

B batch, T sequence, N heads, H head_dim. q, k, v are (B, N, T, H) in one dtype; scale: of
the scores q.k, None for H^-1/2.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.utils.checkpoint import checkpoint

from .mask import block_mask, dense_mask
from .precision import FP32

QUERIES = 2048  # queries of one dense mask: it holds QUERIES x T booleans, whatever the length
Mask = None | Tensor | BlockMask | Callable[[int, int], Tensor]


def sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Mask, scale: float | None = None) -> Tensor:
    """Causal SDPA: q, k, v (B, N, T, H), scale of q.k."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)


def sdpa_only(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, scale: float | None = None, *, backend: SDPBackend
) -> Tensor:
    """Causal SDPA by one backend alone: q, k, v (B, N, T, H), scale of q.k."""
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)


def flex(q: Tensor, k: Tensor, v: Tensor, mask: Any, scale: float | None = None) -> Tensor:
    """FlexAttention under its block mask: q, k, v (B, N, T, H), scale of q.k."""
    return flex_attention(q, k, v, block_mask=mask, scale=scale)


def dense(q: Tensor, k: Tensor, v: Tensor, mask: Mask, scale: float | None = None) -> Tensor:
    """SDPA under a dense mask: q, k, v (B, N, T, H), scale of q.k.

    Long sequences go by chunks of queries whose masks are made again in the backward pass.
    """
    if isinstance(mask, Tensor):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)

    def chunk(q: Tensor, k: Tensor, v: Tensor, start: int, end: int) -> Tensor:
        """SDPA of queries `start` to `end`, before which k and v end: q, k, v (B, H, T, D)."""
        mask_QK = mask(start, end)  # type: ignore[operator,misc]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask_QK, scale=scale)

    T = q.shape[2]
    parts = [
        checkpoint(chunk, q[:, :, s:e], k[:, :, :e], v[:, :, :e], s, e, use_reentrant=False)
        for s, e in ((s, min(s + QUERIES, T)) for s in range(0, T, QUERIES))
    ]
    return torch.cat(parts, dim=2)


KERNELS: dict[str, Callable[..., Tensor]] = {
    "sdpa": sdpa,
    "flash": partial(sdpa_only, backend=SDPBackend.FLASH_ATTENTION),
    "cudnn": partial(sdpa_only, backend=SDPBackend.CUDNN_ATTENTION),
    "math": partial(sdpa_only, backend=SDPBackend.MATH),
    "flex": flex,
    "dense": dense,
}


def make_mask(
    kernel: str,
    doc_T: Tensor,
    window: Tensor | None,
    kind: str | None,
    builder: str,
    dtype: torch.dtype = FP32,
) -> Mask:
    """The mask of a document-mask kernel, made once per forward pass for all layers.

    kernel, builder: model.attn_kernel and model.block_mask. doc_T: each position's document.
    window: in tokens, or in blocks of 128 for the kind "block". kind: model.attn_window.

    A dense one is added to the scores, in their dtype: from booleans SDPA would make it again in
    every layer.
    """
    if kernel == "flex":
        return block_mask(doc_T, window, kind, builder)
    if doc_T.shape[0] <= QUERIES:
        seen = dense_mask(0, doc_T.shape[0], doc_T, window, kind)
        return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(
            ~seen, -math.inf
        )
    return lambda start, end: dense_mask(start, end, doc_T, window, kind)
