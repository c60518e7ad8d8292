"""Rotary position embedding: split halves, rotated by minus p * w_j (ladder 2.0.2).

y_j = x_j cos + x_{j+H/2} sin;  y_{j+H/2} = -x_j sin + x_{j+H/2} cos.
T sequence, H head_dim, P = H/2 pairs.
The tables hold cos twice and sin with both signs, so that one product each rotates both halves.
"""

import torch
from torch import Tensor, nn


def frequencies(head_dim: int, base: float, pairs: str) -> Tensor:
    """(P,) angles per position: "all" base^(-2j/H).

    "half" base^(-linspace(0, 1, H/4)) and as many zeros (not rotated).
    """
    if pairs == "all":
        return base ** (-torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    return torch.cat(
        [
            (1 / base) ** torch.linspace(0, 1, head_dim // 4, dtype=torch.float32),
            torch.zeros(head_dim // 4),
        ]
    )


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate (B, T, N, H) by tables (T, 1, H), in the promoted dtype of both."""
    return x * cos + x.roll(x.shape[-1] // 2, dims=-1) * sin


def rotate_in_fp32(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The same in fp32, cast back to the dtype of x (r17)."""
    return rotate(x.float(), cos, sin).to(x.dtype)


ROTATE = {"promote": rotate, "fp32": rotate_in_fp32}


class Rotary(nn.Module):
    """The tables of positions 0..T-1, shared by all layers.

    Stored as buffers of `buffer_len` positions if that is given.
    """

    freq_P: Tensor
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
        buffer_len: int | None,
    ) -> None:
        super().__init__()
        self.table_dtype, self.buffer_len = table_dtype, buffer_len
        # the frequencies are rounded where a record stored them so, the angles never: its compiled
        # kernels keep fp32
        self.register_buffer(
            "freq_P", frequencies(head_dim, base, pairs).to(freq_dtype).float(), persistent=False
        )
        if buffer_len is not None:
            cos, sin = self.tables(buffer_len)
            self.register_buffer("cos", cos, persistent=False)
            self.register_buffer("sin", sin, persistent=False)

    def tables(self, T: int) -> tuple[Tensor, Tensor]:
        theta_TP = torch.outer(
            torch.arange(T, dtype=torch.float32, device=self.freq_P.device), self.freq_P
        )
        cos, sin = (
            theta_TP.cos()[:, None].to(self.table_dtype),
            theta_TP.sin()[:, None].to(self.table_dtype),
        )
        return torch.cat([cos, cos], dim=-1), torch.cat([sin, -sin], dim=-1)

    def forward(self, T: int) -> tuple[Tensor, Tensor]:
        return self.tables(T) if self.buffer_len is None else (self.cos[:T], self.sin[:T])
