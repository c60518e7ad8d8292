"""Gates: factors between 0 and 1 for a position, from the first few of its channels.

Source: record 28 and later. T positions, C channels, G gates.
"""

import torch
from torch import Tensor

from .layers import Linear
from .layout import GATE_CHANNELS
from .precision import Dtypes


class Gate(Linear):
    """sigma(W x[0:12)), W (gates, 12): (..., T, C) to (..., T, G), one half at the start.

    gates: their number.
    """

    def __init__(self, gates: int, dtypes: Dtypes) -> None:
        super().__init__(
            gates, GATE_CHANNELS, role="hidden", init="zeros", dtypes=dtypes, matrix="gate"
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(super().forward(x[..., :GATE_CHANNELS]))
