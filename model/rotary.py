"""Rotary position embedding: pairs of channels, rotated by minus p * w_j (ladder 2.0.2).

y_j = x_j cos + x_i sin;  y_i = -x_j sin + x_i cos, where i is j + H/2, or from record 58 on the
channel beside it.
T sequence, H head_dim, P = H/2 pairs.
The tables are made once, outside of any compiled graph: a graph that makes them computes them in
every kernel again, and never rounds what it does not store.
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

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


def stretched(
    freq_P: Tensor, windows: Sequence[float], *, slow: float = 1.0, fast: float = 32.0
) -> Tensor:
    """The frequencies after the long window went through `windows`, in tokens (YaRN, record 31).

    Pairs that turn at most `slow` times within the window before a change slow down as it widens;
    those that turn `fast` times or more stay; in between by linear interpolation.
    """
    for before, after in pairwise(windows):
        turns_P = before * freq_P / (2 * math.pi)
        kept_P = ((turns_P - slow) / (fast - slow)).clamp(0, 1)
        freq_P = freq_P * (before / after + kept_P * (1 - before / after))
    return freq_P


def growth_of_scores(windows: Sequence[float]) -> float:
    """What multiplies the scores after the long window went through these (YaRN, record 31)."""
    return math.prod(1 + 0.2 * math.log(after / before) for before, after in pairwise(windows))


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


class Turns(NamedTuple):
    """What a pass's q and k are turned by, and q multiplied by where scores grow."""

    cos: Tensor
    sin: Tensor
    growth: Tensor | None = None  # 0-d


class Rotary(nn.Module):
    """The tables of positions 0..seq_len-1, shared by all layers.

    head_dim: even, its halves turn together. base: of the frequencies. pairs: all or half of them
    turn. seq_len: in tokens. as_buffers: whether the module's buffers hold them, as the last
    records' do; data-parallel training broadcasts buffers. yarn: whether frequencies and scores
    follow the long window.
    """

    cos: Tensor
    sin: Tensor
    growth: Tensor | None

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
        yarn: bool = False,
    ) -> None:
        super().__init__()
        self.as_buffers = as_buffers
        self.start_P = frequencies(head_dim, base, pairs, freq_dtype)
        self.windows: tuple[float, ...] = ()  # that the tables have followed
        cos, sin = (table.to(table_dtype) for table in self._tables(self.start_P, seq_len))
        growth = torch.ones(()) if yarn else None
        for name, table in (("cos", cos), ("sin", sin), ("growth", growth)):
            if as_buffers:
                self.register_buffer(name, table, persistent=False)
            else:
                setattr(self, name, table)

    def _tables(self, freq_P: Tensor, seq_len: int) -> tuple[Tensor, Tensor]:
        """(T, 1, P) of cosines and of sines."""
        # the angles are never rounded: the records' compiled kernels keep fp32
        position_T = torch.arange(seq_len, dtype=torch.float32, device=freq_P.device)
        theta_TP = torch.outer(position_T, freq_P)[:, None]
        return theta_TP.cos(), theta_TP.sin()

    @torch.no_grad()
    def follow(self, windows: tuple[float, ...]) -> None:
        """The tables once the long window has gone through these, in tokens.

        The same tensors, refilled, so that nothing recompiles; they follow from the windows alone,
        whatever they held before.
        """
        if self.growth is None or windows == self.windows:
            return
        self.windows = windows
        tables = self._tables(stretched(self.start_P, windows), len(self.cos))
        for held, table in zip((self.cos, self.sin), tables, strict=True):
            held.copy_(table)
        self.growth.fill_(growth_of_scores(windows))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Rotary":
        """Move the tables with the module where they are no buffers."""
        super()._apply(fn, recurse)
        self.start_P = fn(self.start_P)
        if not self.as_buffers:
            self.cos, self.sin = fn(self.cos), fn(self.sin)
            self.growth = None if self.growth is None else fn(self.growth)
        return self

    def forward(self, T: int) -> Turns:
        """Cosine and sine of the first T positions, as `rotate` wants them.

        (T, 1, P) in a compiled graph, else (T, 1, H): cos twice, and sin with both signs, so that
        one product each rotates both halves.
        """
        cos, sin = self.cos[:T], self.sin[:T]
        if is_compiling():
            return Turns(cos, sin, self.growth)
        return Turns(torch.cat([cos, cos], dim=-1), torch.cat([sin, -sin], dim=-1), self.growth)
