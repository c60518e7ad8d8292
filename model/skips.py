"""What later parts of the network take from the output of a block.

B batch, T sequence, C model_dim.
"""

from torch import Tensor, nn

from .parameters import parameter
from .precision import Dtypes


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
