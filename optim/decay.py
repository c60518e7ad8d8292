"""Cautious weight decay: a weight shrinks only while its update shrinks it too.

For an update U that is subtracted from p:  U <- U + c p where U p >= 0, else U. Source: Chen, Li,
Liang, Liu, 2025 (cautious weight decay); records 43 and 50.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def with_cautious_decay(
    updates: Sequence[Tensor], params: Sequence[Tensor], c: float, *, strict: bool
) -> list[Tensor]:
    """Updates with the decay of their parameters in them.

    strict: an update of 0 agrees with nothing; else with everything.
    """
    decayed = []
    for u, p in zip(updates, params, strict=True):
        product = u * p
        agrees = product > 0 if strict else product >= 0
        decayed.append(torch.where(agrees, u + c * p, u))
    return decayed
