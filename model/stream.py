"""The residual stream on its way through the blocks, and what parts of the network keep of it.

B batch, T sequence, C model_dim, N heads, H head_dim.
"""

from torch import Tensor


class Stream:
    """What the blocks change (B, T, C); components read from it and save to it.

    x: the stream now; second: the other one, where there are two lanes. x0: as it entered the first
    block. saved: after a layer, by the layer's number, for components that read it later.
    attended: after the last attention. values: the first attention's own (B, T, N, H). bigram: rows
    of pairs of tokens (B, T, C), where the network has them.
    """

    def __init__(self, x_BTC: Tensor) -> None:
        self.x = self.x0 = x_BTC
        self.second: Tensor | None = None
        self.saved: dict[int | None, Tensor] = {}
        self.attended = x_BTC
        self.values: Tensor | None = None
        self.bigram: Tensor
