"""The residual stream on its way through the blocks, and what parts of the network keep of it.

B batch, T sequence, C model_dim, N heads, H head_dim.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from torch import Tensor

ENTERED = -1  # the layer before the first block, as whose output the stream entered that

NOTHING: Mapping[str, Tensor] = MappingProxyType({})  # that is told a layer


def held(name: str) -> Any:
    """An attribute of the stream that is an entry of its dictionary.

    Tracing FlexAttention, PyTorch's compiler forgets without a word which attributes of an object
    were set since; entries of a dictionary it keeps.
    """

    def get(stream: "Stream") -> Any:
        return stream.held.get(name)

    def put(stream: "Stream", value: Any) -> None:
        stream.held[name] = value

    return property(get, put)


class Stream:
    """What the blocks change (B, T, C); components read from it and save to it.

    x: the stream now; second: the other one, where there are two lanes. x0: as it entered the first
    block. saved: after a layer, by the layer's number, for components that read it later.
    attended: after the last attention. values: the first attention's own (B, T, N, H). bigram: rows
    of pairs of tokens (B, T, C), where the network has them. before_last: as it came to the last
    block. told: for every layer, scales and gates for each position, (B, T, 1) or (B, T, N), by
    name: in place of numbers that it would have learned.
    """

    x, second, x0 = held("x"), held("second"), held("x0")
    attended, values, bigram = held("attended"), held("values"), held("bigram")
    before_last = held("before_last")

    def __init__(self, x_BTC: Tensor, n_layer: int) -> None:
        self.held: dict[str, Tensor] = {"x": x_BTC, "x0": x_BTC}
        self.saved: dict[int | None, Tensor] = {}
        self.told: list[dict[str, Tensor]] = [{} for _ in range(n_layer)]

    def tell(self, layers: Iterable[int], name: str, value: Tensor) -> None:
        """Tell layers the same."""
        for i in layers:
            self.told[i][name] = value
