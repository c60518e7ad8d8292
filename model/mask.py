"""Which key a query sees.

One predicate, from which the dense mask and FlexAttention's block mask are both built.

T sequence length, Q queries, K = T keys, N blocks of 128. Positions are indices in the sequence; a
document's id is the number of separators up to and including the position, so a separator opens
its document.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

BLOCK = 128

# window kind -> number of block diagonals that the window reaches; it is in tokens, for "block" in
# blocks
DIAGONALS: dict[str | None, Callable[[Any], Tensor]] = {
    # from the first position of a block, w - 1 tokens back
    "token": (lambda w: (w + 2 * BLOCK - 2) // BLOCK),
    "block": lambda w: w,
    # record 15: cuts pairs that the token rule would admit
    "clipped": (lambda w: (w + BLOCK - 1) // BLOCK),
    "inclusive": (lambda w: (w + 2 * BLOCK - 1) // BLOCK),
}
COUNTED = "counted"  # a window of so many blocks, whichever these are
# window kind -> (query position, key position, window) -> inside the window
IN_WINDOW: dict[str | None, Callable[[Tensor, Tensor, Any], Tensor]] = {
    "token": lambda q, k, w: q - k < w,
    "block": lambda q, k, w: q // BLOCK - k // BLOCK < w,
    "inclusive": lambda q, k, w: q - k <= w,
    COUNTED: lambda q, k, pairs_NN: pairs_NN[q // BLOCK, k // BLOCK],
    "clipped": lambda q, k, w: (q - k < w) & (q // BLOCK - k // BLOCK < DIAGONALS["clipped"](w)),
}


# window kind -> the part of IN_WINDOW that the hand-made lists of blocks do not hold by themselves
WITHIN_BLOCKS: dict[str | None, str | None] = {
    "token": "token",
    "block": None,
    "clipped": "token",
    COUNTED: None,
    "inclusive": "inclusive",
}


def document_ids(ids_T: Tensor, separator: int) -> Tensor:
    """Document of every position: (T,) token ids to (T,) int32 ids, counted from 0."""
    return (ids_T == separator).cumsum(0, dtype=torch.int32)


def counted_pairs(doc_T: Tensor, size: Tensor) -> Tensor:
    """(N, N): whether a block of queries has a block of keys in its window of `size` blocks (r20).

    Of the F earlier blocks that lie with it in one document the nearest size - 1; of the others
    that share a document with it, itself among them, the nearest size - F, and at least one.
    """
    doc_NB = doc_T.view(-1, BLOCK)
    low, high = doc_NB[:, 0], doc_NB[:, -1]
    i = torch.arange(len(low), device=doc_T.device)
    earlier = i[:, None] > i[None, :]
    whole = earlier & (low[None, :] == high[:, None])
    shared = (earlier | (i[:, None] == i)) & (low[:, None] <= high[None, :]) & ~whole

    def nearest(blocks_NN: Tensor, n: Tensor) -> Tensor:
        return blocks_NN & (blocks_NN.flip(-1).cumsum(-1).flip(-1) <= n)

    n_whole = whole.sum(-1, keepdim=True)
    return nearest(whole, size - 1) | nearest(shared, (size - n_whole).clamp(min=1))


def reach(doc_T: Tensor, window: Any, kind: str | None) -> Any:
    """A window as IN_WINDOW takes it: for COUNTED pairs of blocks, else as it is."""
    return counted_pairs(doc_T, window) if kind == COUNTED else window


def allowed(q: Tensor, k: Tensor, doc_T: Tensor, window: Tensor | None, kind: str | None) -> Tensor:
    """True where query q may see key k: causal, same document, inside the window.

    Elementwise over positions. doc_T: each position's document. window: in tokens, or in blocks
    of 128 for the kind "block", as `reach` has it. kind: model.attn_window; None: no window.
    """
    seen = (k <= q) & (doc_T[q] == doc_T[k])
    return seen if kind is None else seen & IN_WINDOW[kind](q, k, window)


def dense_mask(
    start: int, end: int, doc_T: Tensor, window: Tensor | None, kind: str | None
) -> Tensor:
    """(end - start, end) boolean mask of the queries start..end-1 over the keys they could see.

    doc_T, window, kind: as in `allowed`.
    """
    q_Q = torch.arange(start, end, device=doc_T.device)
    k_K = torch.arange(end, device=doc_T.device)
    return allowed(q_Q[:, None], k_K[None, :], doc_T, reach(doc_T, window, kind), kind)


def _ordered(blocks_SNN: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Sets of block pairs as FlexAttention's lists.

    Of each set counts (1, 1, N) and column indices (1, 1, N, N), listed columns first. By
    counting, outside autocast: a sort in a compiled graph takes a minute to compile.
    """
    N = blocks_SNN.shape[-1]
    column_N = torch.arange(N, dtype=torch.int32, device=blocks_SNN.device)
    up_to_NN = (column_N[:, None] <= column_N).float()
    so_far_SNN = (blocks_SNN.float() @ up_to_NN).to(torch.int32)  # whole numbers: exact
    counts_SN = blocks_SNN.sum(-1, dtype=torch.int32)
    others_SNN = counts_SN[..., None] + column_N - so_far_SNN
    places_SNN = torch.where(blocks_SNN, so_far_SNN - 1, others_SNN).to(torch.int64)
    columns_SNN = column_N.expand_as(places_SNN)
    indices_SNN = torch.zeros_like(so_far_SNN).scatter(-1, places_SNN, columns_SNN)
    sets = zip(counts_SN, indices_SNN, strict=True)
    return [(counts_N[None, None], indices_NN[None, None]) for counts_N, indices_NN in sets]


def _of_blocks(partial_NN: Tensor, full_NN: Tensor | None, mask_mod: Any) -> BlockMask:
    """A mask of the block pairs that are asked position by position, and of those seen whole."""
    full: tuple[Tensor | None, Tensor | None] = (None, None)
    full_q = full
    if full_NN is None:
        partial, partial_q = _ordered(torch.stack((partial_NN, partial_NN.T)))
    else:
        sides = torch.stack((partial_NN, partial_NN.T, full_NN, full_NN.T))
        partial, partial_q, full, full_q = _ordered(sides)
    T = BLOCK * len(partial_NN)
    return BlockMask(
        (T, T),
        *partial,
        *full,
        *partial_q,
        *full_q,
        BLOCK_SIZE=(BLOCK, BLOCK),
        mask_mod=mask_mod,
    )


def block_mask(doc_T: Tensor, window: Tensor | None, kind: str | None, builder: str) -> BlockMask:
    """FlexAttention's mask.

    builder: "traced" by the library; "partial" and "partial_and_full" by hand from document
    ranges. Kernels ask the function in listed blocks alone, so what the lists hold is not asked
    again; outside of a compiled graph the library asks it everywhere.
    """
    by_hand = builder != "traced" and torch.compiler.is_compiling()
    asked = WITHIN_BLOCKS.get(kind) if by_hand else kind
    inside = reach(doc_T, window, kind)

    def mask_mod(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return allowed(q, k, doc_T, inside, asked)

    T = doc_T.shape[0]
    if builder == "traced":
        return create_block_mask(mask_mod, None, None, T, T, device=doc_T.device, BLOCK_SIZE=BLOCK)
    doc_NB = doc_T.view(-1, BLOCK)
    low, high = doc_NB[:, 0], doc_NB[:, -1]
    i = torch.arange(T // BLOCK, device=doc_T.device)
    near = i[:, None] >= i[None, :]
    if kind == COUNTED:
        near = inside
    elif kind is not None:
        near = near & (i[:, None] - i[None, :] < DIAGONALS[kind](window))
    listed = near & (low[:, None] <= high[None, :]) & (low[None, :] <= high[:, None])
    if builder == "partial":
        return _of_blocks(listed, None, mask_mod)
    full = (
        listed
        & (i[:, None] > i[None, :])
        & (low[:, None] == high[None, :])
        & (low[None, :] == high[:, None])
    )
    return _of_blocks(listed & ~full, full, mask_mod)
