"""An embedding of pairs of tokens, whose rows a hash finds (record 62).

B batch, T sequence, C model_dim, W width of the table.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .config import ModelConfig
from .parameters import generator_of, parameter
from .precision import Dtypes
from .stream import Stream

FACTORS = (36313, 27191)  # of a token, of the one before it


def bigram_scale(c: ModelConfig, dtypes: Dtypes) -> nn.Parameter:
    """A factor on the rows."""
    init, part = c.bigram_scale_init, "bigram_scale"
    return parameter((), role="scalar", init=init, dtype=dtypes.scalar, part=part)


def tokens_before(ids_BT: Tensor) -> Tensor:
    """Every position's token before it, across documents too; the first one's is of no use."""
    return ids_BT.roll(1, dims=1)


def hashed(ids_BT: Tensor, rows: int, first: str) -> Tensor:
    """(B, T) token ids to the row of each with the one before it, in int32 that wraps.

    A sequence's first token has the last row, which no pair has. rows: of the table. first:
    model.bigram_first.
    """
    last, position_T = rows - 1, torch.arange(ids_BT.shape[1], device=ids_BT.device)
    before_BT = tokens_before(ids_BT).long()
    if first == "last_row":
        before_BT = before_BT.masked_fill(position_T == 1, last)
    token, before = (
        (factor * ids).to(torch.int32)
        for factor, ids in zip(FACTORS, (ids_BT.long(), before_BT), strict=True)
    )
    return ((token ^ before) % last).masked_fill(position_T == 0, last)


def sign_rows(ids_BT: Tensor, rows: int) -> Tensor:
    """(B, T) token ids to the row of signs of each with the one before it; the first one's is 0."""
    position_T = torch.arange(ids_BT.shape[1], device=ids_BT.device)
    return ((tokens_before(ids_BT) ^ ids_BT) % rows).masked_fill(position_T == 0, 0)


class BigramEmbedding(nn.Module):
    """Rows of a table by the hash of token ids (B, T), times rows of fixed signs: (B, T, C).

    The table is narrower than the stream or as wide; channels beyond it get 0. Blocks add it to
    the stream, each times a factor of its own; where they do behind their attention, the first
    one's is added before the blocks.
    """

    sign: Tensor | None

    def __init__(self, c: ModelConfig, dtypes: Dtypes) -> None:
        assert c.bigram_hash is not None
        rows, width = c.bigram_hash, c.bigram_width or c.d_model
        super().__init__()
        self.weight = parameter(
            (rows, width), role="embed", init="zeros", dtype=dtypes.table, part="bigram"
        )
        self.first, self.beyond, self.in_x0 = c.bigram_first, c.d_model - width, c.bigram_in_x0
        self.scale = None
        self.enters = c.bigram_inject == "after_attention"
        if self.enters and c.mudd_gate is None:
            self.scale = bigram_scale(c, dtypes)
        signs = None
        if c.bigram_sign is not None:
            signs = torch.ones((c.bigram_sign, width), dtype=torch.int8)
        self.register_buffer("sign", signs)

    def draw_signs(self, name: str, seed: int) -> None:
        """Random signs by (seed, name), as parameters are drawn."""
        if self.sign is not None:
            drawn = torch.randint(2, self.sign.shape, generator=generator_of(name, seed))
            self.sign.copy_(2 * drawn - 1)

    def rows(self, ids_BT: Tensor) -> Tensor:
        """What blocks add, (B, T, C)."""
        y_BTW = F.embedding(hashed(ids_BT, self.weight.shape[0], self.first), self.weight)
        if self.sign is not None:
            y_BTW = y_BTW * self.sign[sign_rows(ids_BT, self.sign.shape[0])]
        return F.pad(y_BTW, (0, self.beyond)) if self.beyond else y_BTW

    def forward(self, stream: Stream, ids_BT: Tensor) -> None:
        """Give the stream its rows, and the first block's share of them."""
        stream.bigram = self.rows(ids_BT)
        if self.enters:
            share: Any = stream.told[0].get("bigram_scale", self.scale)
            stream.x = stream.x + share * stream.bigram
        if self.in_x0:
            stream.x0 = stream.x
