"""Caps of the logits: c tanh(z/c), and from record 19 on a sigmoid."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class SigmoidCap:
    """top sigma((z + shift) / width), in fp32."""

    top: float
    shift: float
    width: float

    def gate(self, z: Tensor) -> Tensor:
        return torch.sigmoid((z.float() + self.shift) / self.width)

    def __call__(self, z: Tensor) -> Tensor:
        return self.top * self.gate(z)


Softcap = float | SigmoidCap  # a number: c of c tanh(z/c)


def softcap_of(chosen: float | str | None, d_model: int) -> Softcap | None:
    """What model.logit_softcap chooses. d_model: channels of the stream."""
    if not isinstance(chosen, str):
        return chosen
    sigmoids = {
        "sigmoid30": SigmoidCap(top=30.0, shift=0.0, width=7.5),
        "sigmoid30_by_width": SigmoidCap(top=30.0, shift=0.0, width=7.5 * d_model**0.5),
        "sigmoid23": SigmoidCap(top=23.0, shift=5.0, width=7.5),
    }
    return sigmoids[chosen]


def capped(z: Tensor, softcap: Softcap) -> Tensor:
    """Capped logits, in the dtype of z for tanh, in fp32 for a sigmoid."""
    if isinstance(softcap, SigmoidCap):
        return softcap(z)
    return softcap * torch.tanh(z / softcap)


def capped_with_slope(z: Tensor, softcap: Softcap) -> tuple[Tensor, Tensor]:
    """Capped logits, and their derivative by z in the dtype of z."""
    if isinstance(softcap, SigmoidCap):
        s = softcap.gate(z)
        return softcap.top * s, (softcap.top / softcap.width * s * (1 - s)).to(z.dtype)
    t = torch.tanh(z / softcap)
    return softcap * t, 1 - t * t
