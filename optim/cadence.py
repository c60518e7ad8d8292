"""Which parameters move at an update: Adam may wait, scalars may rest, two tables may be one.

What is due is told by the schedule. Gradients that nobody used stay and add up.
"""

from collections.abc import Sequence

import torch

from .tying import Tie, follow, join_gradients, part


def act(
    optimizers: Sequence[torch.optim.Optimizer],
    *,
    adam: bool = True,
    scalars_rest: bool = False,
    tie: Tie | None = None,
    tied: bool = False,
) -> None:
    """One update of every optimizer that is due; the gradients that it used are dropped.

    adam: whether Adam is due; other rules always are, a plug-in's too. scalars_rest: the gradients
    of the mixing scalars are dropped, so that neither they nor their moments move. tie: a head and
    a token table that are one for a part of the run. tied: whether they are at this update.
    """
    if scalars_rest:
        rest(optimizers)
    if tie is not None and tied:
        join_gradients(tie)
    elif tie is not None:
        part(tie, optimizers)
    due = [o for o in optimizers if adam or not all(g.get("waits") for g in o.param_groups)]
    for optimizer in due:
        optimizer.step()
    for optimizer in due:
        optimizer.zero_grad(set_to_none=True)
    if tie is not None and tied:
        follow(tie)


def rest(optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """Drop the gradients of groups that rest."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            if group.get("rests"):
                for p in group["params"]:
                    p.grad = None
