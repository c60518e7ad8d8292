"""Gates: factors between 0 and 1 for a position, from the first few of its channels.

Source: record 28 and later. T positions, C channels, G gates.
"""

import torch
from torch import Tensor, nn

from .layers import Linear
from .layout import GATE_CHANNELS
from .parameters import parameter
from .precision import Dtypes


class Gate(Linear):
    """sigma(W x[0:12)), W (gates, 12): (..., T, C) to (..., T, G), one half at the start.

    gates: their number. part: of the matrices.
    """

    def __init__(self, gates: int, dtypes: Dtypes, part: str = "gate") -> None:
        super().__init__(
            gates, GATE_CHANNELS, role="hidden", init="zeros", dtypes=dtypes, part=part
        )

    def forward(self, x: Tensor, scale: Tensor | None = None) -> Tensor:
        return torch.sigmoid(super().forward(x[..., :GATE_CHANNELS], scale))


class Smear(nn.Module):
    """e_t + l sigma(u e_t[0:12)) e_(t-1), l and u learned, 0 at the start: (B, T, C) to the same.

    The first position stays; the one before is taken as it came, across documents too (record 34).
    """

    def __init__(self, dtypes: Dtypes) -> None:
        super().__init__()
        self.gate = Gate(1, dtypes, "smear_gate")
        self.scale = parameter((), role="scalar", init=0.0, dtype=dtypes.scalar)

    def forward(self, e_BTC: Tensor) -> Tensor:
        share_BT1 = self.scale * self.gate(e_BTC)
        smeared = e_BTC[:, 1:] + share_BT1[:, 1:] * e_BTC[:, :-1]
        return torch.cat([e_BTC[:, :1], smeared], dim=1)
