"""Rotary position embedding: pairs of channels, rotated by minus p * w_j (ladder 2.0.2).

y_j = x_j cos + x_i sin;  y_i = -x_j sin + x_i cos, where i is j + H/2, or from record 58 on the
channel beside it.
T sequence, H head_dim, P = H/2 pairs.
The tables are made once, outside of any compiled graph: a graph that makes them computes them in
every kernel again, and never rounds what it does not store.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling


def frequencies(head_dim: int, base: float, pairs: str, stored: torch.dtype) -> Tensor:
    """(P,) fp32 angles per position, rounded to the dtype in which a record stored them.

    pairs: "all" base^(-2j/H); "half" base^(-linspace(0, 1, H/4)) and as many zeros (not rotated).
    """
    if pairs == "all":
        freq_P = base ** (-torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    else:
        rotated = (1 / base) ** torch.linspace(0, 1, head_dim // 4, dtype=torch.float32)
        freq_P = torch.cat([rotated, torch.zeros(head_dim // 4)])
    return freq_P.to(stored).float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate (B, T, N, H) by the tables of Rotary, in the promoted dtype of both.

    Both forms give the same bits. The one of two halves keeps a compiled backward pass in the
    dtype of x; the one of whole rows takes half the operators where each is a call.
    """
    if is_compiling():
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos + second * sin, second * cos - first * sin], dim=-1)
    return x * cos + x.roll(x.shape[-1] // 2, dims=-1) * sin


def rotate_in_fp32(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The same in fp32, cast back to the dtype of x (r17)."""
    return rotate(x.float(), cos, sin).to(x.dtype)


def rotate_adjacent(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate (B, T, N, H) in pairs of neighbours, by either form of the tables (r58)."""
    P = x.shape[-1] // 2
    cos, sin = cos[..., :P], sin[..., :P]
    first, second = x.unflatten(-1, (P, 2)).unbind(-1)
    pairs = [first * cos + second * sin, second * cos - first * sin]
    return torch.stack(pairs, dim=-1).flatten(-2)


def rotate_adjacent_in_fp32(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The same in fp32, cast back to the dtype of x."""
    return rotate_adjacent(x.float(), cos, sin).to(x.dtype)


ROTATE = {"promote": rotate, "fp32": rotate_in_fp32}
# model.rope_pairing -> model.rope_math -> the rotation
ROTATIONS = {
    "halves": ROTATE,
    "adjacent": {"promote": rotate_adjacent, "fp32": rotate_adjacent_in_fp32},
}


# model.rope_pairing -> the quarters of a head's channels that half of the pairs leave unturned
UNTURNED = {"halves": (1, 3), "adjacent": (2, 3)}


def offset_keys(k_BTNH: Tensor, unturned: tuple[int, ...]) -> Tensor:
    """Keys whose unturned channels are those of the position before; the first keeps its own.

    A query then matches a key's predecessor and reads the key's value, across documents too (r49).
    """
    before = torch.cat([k_BTNH[:, :1], k_BTNH[:, :-1]], dim=1).chunk(4, dim=-1)
    quarters = list(k_BTNH.chunk(4, dim=-1))
    for i in unturned:
        quarters[i] = before[i]
    return torch.cat(quarters, dim=-1)


class Rotary(nn.Module):
    """The tables of positions 0..seq_len-1, shared by all layers.

    head_dim: even, its halves turn together. base: of the frequencies. pairs: all or half of them
    turn. seq_len: in tokens. as_buffers: whether the module's buffers hold them, as the last
    records' do; data-parallel training broadcasts buffers.
    """

    cos: Tensor
    sin: Tensor

    def __init__(
        self,
        *,
        head_dim: int,
        base: float,
        pairs: str,
        freq_dtype: torch.dtype,
        table_dtype: torch.dtype,
        seq_len: int,
        as_buffers: bool,
    ) -> None:
        super().__init__()
        self.as_buffers = as_buffers
        # the angles are never rounded: the records' compiled kernels keep fp32
        freq_P = frequencies(head_dim, base, pairs, freq_dtype)
        theta_TP = torch.outer(torch.arange(seq_len, dtype=torch.float32), freq_P)[:, None]
        for name, table in (("cos", theta_TP.cos()), ("sin", theta_TP.sin())):
            if as_buffers:
                self.register_buffer(name, table.to(table_dtype), persistent=False)
            else:
                setattr(self, name, table.to(table_dtype))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Rotary":
        """Move the tables with the module where they are no buffers."""
        super()._apply(fn, recurse)
        if not self.as_buffers:
            self.cos, self.sin = fn(self.cos), fn(self.sin)
        return self

    def forward(self, T: int) -> tuple[Tensor, Tensor]:
        """Cosine and sine of the first T positions, as `rotate` wants them.

        (T, 1, P) in a compiled graph, else (T, 1, H): cos twice, and sin with both signs, so that
        one product each rotates both halves.
        """
        cos, sin = self.cos[:T], self.sin[:T]
        if is_compiling():
            return cos, sin
        return torch.cat([cos, cos], dim=-1), torch.cat([sin, -sin], dim=-1)
