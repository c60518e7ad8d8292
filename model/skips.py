"""What later parts of the network take from the output of a block."""

import torch
from torch import nn

from .gates import Gate
from .parameters import parameter
from .precision import Dtypes
from .stream import Stream

SKIP_INIT = -1.5  # of what a sigmoid makes a share of


class Backout(nn.Module):
    """x - l b after the last block, b the output of block `layer`, l learned, init 0.5 (record 40).

    layer: its number, from 0.
    """

    def __init__(self, layer: int, dtypes: Dtypes) -> None:
        super().__init__()
        self.layer = layer
        self.scale = parameter((), role="scalar", init=0.5, dtype=dtypes.scalar)

    def forward(self, stream: Stream) -> None:
        stream.x = stream.x - self.scale * stream.saved[self.layer]


class Skip(nn.Module):
    """x + f s before block `into`, s the output of block `source` (record 45).

    f = sigma(w), w learned, init -1.5; gated 2 sigma(w) sigma(u x0[0:12)), u init 0 (record 55); or
    sigma(w) times what is told for each position.
    """

    def __init__(self, source: int, into: int, dtypes: Dtypes, *, gated: bool) -> None:
        super().__init__()
        self.source, self.into = source, into
        self.scale = parameter((), role="scalar", init=SKIP_INIT, dtype=dtypes.scalar, part="skip")
        self.gate = Gate(1, dtypes, "skip_gate") if gated else None

    def forward(self, stream: Stream) -> None:
        share = torch.sigmoid(self.scale)
        told = stream.told[self.into].get("skip")
        if told is not None:
            share = share * told
        if self.gate is not None:
            share = 2 * share * self.gate(stream.x0)
        stream.x = stream.x + share * stream.saved[self.source]
