"""Paired heads: two heads share one sequence of twice the positions (record 58).

Head n of position t sits in slot 2t + [n >= N/2] of the sequence that it shares with the head N/2
away, and turns by the angle of slot 2t where n is even, 2t + 1 where it is odd.
B batch, T positions, N heads, P = N/2 pairs, S = 2T slots, H head_dim.
"""

from collections.abc import Callable

from torch import Tensor


def in_slots(x_BNTH: Tensor) -> Tensor:
    """Heads (B, N, T, H) to sequences of two heads each, (B, P, S, H)."""
    x_BPT2H: Tensor = x_BNTH.unflatten(1, (2, -1)).permute(0, 2, 3, 1, 4)
    return x_BPT2H.flatten(2, 3)


def from_slots(x_BPSH: Tensor) -> Tensor:
    """Sequences of two heads each (B, P, S, H) to heads (B, N, T, H)."""
    x_B2PTH: Tensor = x_BPSH.unflatten(2, (-1, 2)).permute(0, 3, 1, 2, 4)
    return x_B2PTH.flatten(1, 2)


def by_parity(rotate: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    """The rotation of heads (B, T, N, H) by the tables of all slots, (S, 1, channels) each."""

    def rotated(x_BTNH: Tensor, *tables: Tensor) -> Tensor:
        cos, sin = (table.unflatten(0, (-1, 2)).transpose(1, 2) for table in tables)
        return rotate(x_BTNH.unflatten(2, (-1, 2)), cos, sin).flatten(2, 3)

    return rotated
