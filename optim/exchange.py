"""How the ranks share the work of orthogonalising: three forms, one result.

Each form is handed the matrices and two functions, and is free in who computes what:
    compute(batch) -> (K, M, N)   the updates of K matrices of one shape, from gradients and momenta
    apply(batch, u_KMN)           moves K matrices of one shape by their updates
Gradients are equal on all ranks (they are averaged before), so every form moves every matrix by
the same update. Momentum lives only where it is computed, so who computes what never changes: a
matrix without gradient keeps its place.
Legend: K matrices of one shape, M rows, N columns.
"""

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Parameter

# One batch holds all matrices of a shape. On a CPU a longer batch than this, in elements, falls out
# of the cache and is slower than short ones (24 matrices of 256 x 256 on one core: 184 ms whole,
# 139 ms in pieces).
CPU_BATCH_ELEMENTS = 2**17

Compute = Callable[[list[Parameter]], Tensor]
Apply = Callable[[list[Parameter], Tensor], None]


class Ranks(NamedTuple):
    """This process among its fellows."""

    rank: int
    world: int

    @classmethod
    def current(cls) -> "Ranks":
        if dist.is_available() and dist.is_initialized():
            return cls(dist.get_rank(), dist.get_world_size())
        return cls(0, 1)


def by_shape(params: list[Parameter]) -> list[Parameter]:
    """Equal shapes side by side, otherwise in the given order."""
    return sorted(params, key=lambda p: tuple(p.shape))


def with_gradient(params: list[Parameter]) -> list[Parameter]:
    return [p for p in params if p.grad is not None]


def batches(params: list[Parameter], together: int = 1) -> Iterator[list[Parameter]]:
    """The matrices with a gradient in lists of equal shape.

    All of a shape in one, on a CPU as many as the cache holds. together: so many in a row are
    never parted.
    """
    for _, group in groupby(by_shape(with_gradient(params)), key=lambda p: p.shape):
        same = list(group)
        size = (
            max(1, CPU_BATCH_ELEMENTS // max(1, same[0].numel()))
            if same[0].device.type == "cpu"
            else len(same)
        )
        size = max(together, size - size % together)
        for start in range(0, len(same), size):
            yield same[start : start + size]


def redundant(
    params: list[Parameter],
    compute: Compute,
    apply: Apply,
    ranks: Ranks,
    dtype: torch.dtype,
    together: int = 1,
) -> None:
    """Every rank computes every update (records 3 to 5, and any form on one process).

    params: matrices of one group. compute: gives the updates of matrices of one shape, stacked.
    apply: takes them. dtype: in which updates travel. The other forms take the same. together: so
    many in a row are computed in one batch.
    """
    for batch in batches(params, together):
        apply(batch, compute(batch))


def flat_all_reduce(
    params: list[Parameter], compute: Compute, apply: Apply, ranks: Ranks, dtype: torch.dtype
) -> None:
    """Rank i % world computes matrix i into a flat buffer of zeros.

    One SUM hands out all updates (records 6 to 14).
    """
    ordered = by_shape(with_gradient(params))
    flat = torch.zeros(sum(p.numel() for p in ordered), dtype=dtype, device=ordered[0].device)
    slots = {
        p: piece.view_as(p) for p, piece in zip(ordered, flat.split([p.numel() for p in ordered]))
    }
    for batch in batches(params[ranks.rank :: ranks.world]):
        torch._foreach_copy_([slots[p] for p in batch], list(compute(batch).unbind()))
    dist.all_reduce(flat)
    start = 0
    for batch in batches(ordered):
        stop = start + len(batch) * batch[0].numel()
        apply(batch, flat[start:stop].view(len(batch), *batch[0].shape))
        start = stop


def grouped_all_gather(
    params: list[Parameter], compute: Compute, apply: Apply, ranks: Ranks, dtype: torch.dtype
) -> None:
    """Windows of `world` matrices of one size, gathered asynchronously (record 15 on).

    Rank r computes the r-th.

    The previous window is applied while the next one is on its way. In a last window that is not
    full, ranks with nothing to do send zeros that nobody reads; so does the owner of a matrix
    without gradient.
    """
    ordered = by_shape(params)
    numel, device = ordered[0].numel(), ordered[0].device
    assert all(p.numel() == numel for p in ordered), (
        "build_optimizers makes one group per matrix size"
    )
    pending: tuple[list[Parameter], Tensor, Tensor, dist.Work] | None = None
    for start in range(0, len(ordered), ranks.world):
        window = ordered[start : start + ranks.world]
        mine = with_gradient(window[ranks.rank : ranks.rank + 1])
        computed = compute(mine) if mine else torch.zeros(numel, dtype=dtype, device=device)
        gathered = torch.empty(ranks.world * numel, dtype=dtype, device=device)
        work = all_gather(gathered, computed.flatten(), async_op=True)
        if pending is not None:
            _receive(pending, apply)
        pending = (window, gathered, computed, work)  # holds `computed` until it has been sent
    if pending is not None:
        _receive(pending, apply)


def _receive(pending: tuple[list[Parameter], Tensor, Tensor, dist.Work], apply: Apply) -> None:
    window, gathered, _, work = pending
    work.wait()
    rows = gathered.view(-1, window[0].numel())
    start = 0
    for (shape, absent), same in groupby(window, key=lambda p: (p.shape, p.grad is None)):
        batch = list(same)
        if not absent:
            apply(batch, rows[start : start + len(batch)].view(-1, *shape))
        start += len(batch)


# torch 2.13 renamed the gather into one tensor and warns at the old name
all_gather = (
    dist.all_gather_single if hasattr(dist, "all_gather_single") else dist.all_gather_into_tensor
)

Exchange = Callable[[list[Parameter], Compute, Apply, Ranks, torch.dtype], None]
EXCHANGES: dict[str, Exchange] = {
    "redundant": redundant,
    "flat_all_reduce": flat_all_reduce,
    "grouped_all_gather": grouped_all_gather,
}
