"""Token table and head as one matrix for a part of a run (records 51 and 53).

Both are parameters throughout. While they are one, the table's gradient is added to the head's, the
head is moved, and the table becomes its copy, which is what one shared matrix does. Then they part:
the table goes on from copies of the head's moments and count.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from .adam import Adam


class Tie(NamedTuple):
    """The two parameters."""

    head: Parameter
    table: Parameter


@torch.no_grad()
def join_gradients(tie: Tie) -> None:
    """The gradient of the one matrix, in the head's place."""
    head, table = tie
    if table.grad is not None:
        added = table.grad.to(head.dtype)
        head.grad = added if head.grad is None else head.grad + added
    table.grad = None


@torch.no_grad()
def follow(tie: Tie) -> None:
    """The table becomes the head's copy, in its own dtype."""
    tie.table.copy_(tie.head)


@torch.no_grad()
def part(tie: Tie, optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """The optimizer's memory of the head, copied for a table that has none yet."""
    head, table = tie
    memory: Mapping[str, Tensor] = next((o.state[head] for o in optimizers if head in o.state), {})
    for optimizer in optimizers:
        moves_table = any(p is table for group in optimizer.param_groups for p in group["params"])
        if moves_table and memory and table not in optimizer.state:
            moments = optimizer.moments if isinstance(optimizer, Adam) else None
            dtype = moments or table.dtype
            optimizer.state[table] = {
                name: value.to(dtype if value.shape == head.shape else value.dtype, copy=True)
                for name, value in memory.items()
            }
