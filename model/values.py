"""What is mixed into the values of a layer."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .layout import GATE_CHANNELS

# v, the source mixed into it (a layer's value embedding, or the first layer's v), the learned
# scalars -> v
ValueMix = Callable[[Tensor, Tensor | None, Any], Tensor]


def lerp(v: Tensor, source: Tensor | None, mix: Tensor | float) -> Tensor:
    # the first layer's values are mixed with themselves
    return (1 - mix) * v + mix * (v if source is None else source)


def pair(v: Tensor, source: Tensor | None, mix: Tensor) -> Tensor:
    v_weight, source_weight = mix.unbind()
    mixed = v_weight * v
    return mixed if source is None else mixed + source_weight * source


def add(v: Tensor, source: Tensor | None, mix: Tensor | float) -> Tensor:
    return v if source is None else v + source


def remainder_of_pair(v: Tensor, source: Tensor | None, mix: Tensor) -> Tensor:
    """What of `pair` is left where its first weight has scaled v's matrix."""
    return v if source is None else v + mix[1] * source


def of_both(x_BTC: Tensor, source_BTC: Tensor) -> Tensor:
    """Half of what a gate reads from the stream, half from the value row: (B, T, 12)."""
    half = GATE_CHANNELS // 2
    return torch.cat([x_BTC[..., :half], source_BTC[..., :half]], dim=-1)


# model.value_mix -> what the gate of the value row reads, of the stream and the row
GATE_INPUTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "gate": lambda x_BTC, source_BTC: x_BTC,
    "gate_mixed": of_both,
    "gate_mixed_all": of_both,
}
