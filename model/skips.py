"""What later parts of the network take from the output of a block.

B batch, T sequence, C model_dim.
"""

import torch
from torch import Tensor, nn

from .gates import Gate
from .parameters import parameter
from .precision import Dtypes

SKIP_INIT = -1.5  # of what a sigmoid makes a share of


class Backout(nn.Module):
    """x - l b after the last block, b the output of block `layer`, l learned, init 0.5 (record 40).

    layer: its number, from 0.
    """

    def __init__(self, layer: int, dtypes: Dtypes) -> None:
        super().__init__()
        self.layer = layer
        self.scale = parameter((), role="scalar", init=0.5, dtype=dtypes.scalar)

    def forward(self, x_BTC: Tensor, saved_BTC: Tensor) -> Tensor:
        return x_BTC - self.scale * saved_BTC


class Skip(nn.Module):
    """x + f s before block `into`, s the output of block `source` (record 45).

    f = sigma(w), w learned, init -1.5; gated 2 sigma(w) sigma(u x0[0:12)), u init 0 (record 55).
    """

    def __init__(self, source: int, into: int, dtypes: Dtypes, *, gated: bool) -> None:
        super().__init__()
        self.source, self.into = source, into
        self.scale = parameter((), role="scalar", init=SKIP_INIT, dtype=dtypes.scalar, part="skip")
        self.gate = Gate(1, dtypes, "skip_gate") if gated else None

    def forward(self, x_BTC: Tensor, saved_BTC: Tensor, x0_BTC: Tensor) -> Tensor:
        share = torch.sigmoid(self.scale)
        if self.gate is not None:
            share = 2 * share * self.gate(x0_BTC)
        return x_BTC + share * saved_BTC
