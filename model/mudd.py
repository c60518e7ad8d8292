"""Coefficients for every position, made from the stream, in place of learned numbers.

MUDD connections (record 81): the last block reads earlier streams and has scales of its own for
each position. MUDD gates (record 85): so have the parts of the other blocks.
B batch, T sequence, C model_dim, N heads, H head_dim, K coefficients.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .coefficients import (
    FORMS,
    HIDDEN,
    LAST_SCALES,
    last_starts,
    post_starts,
    told_by_makers,
)
from .config import ModelConfig
from .layers import Linear
from .parameters import parameter
from .precision import Dtypes
from .stream import ENTERED, Stream

GATE_SCALE = 0.1  # initial, of the gates' makers


class Maker(nn.Module):
    """s (W2 gelu(W1 x) + b): the stream (B, T, C), not normed, to coefficients (B, T, K).

    starts: what the coefficients are at the start, where W2 is 0. scale: s, a number or a
    parameter that starts there. part: of the matrices; its bias is the part PART_bias. hidden:
    channels between the matrices.
    """

    def __init__(
        self,
        c: ModelConfig,
        dtypes: Dtypes,
        *,
        starts: Sequence[float],
        scale: float,
        part: str,
        hidden: int = HIDDEN,
    ) -> None:
        super().__init__()
        self.down = Linear(
            hidden, c.d_model, role="hidden", init="uniform", dtypes=dtypes, part=part
        )
        self.up = Linear(len(starts), hidden, role="hidden", init="zeros", dtypes=dtypes, part=part)
        bias = tuple(start / scale for start in starts)
        self.bias = parameter(
            (len(starts),), role="scalar", init=bias, dtype=dtypes.scalar, part=f"{part}_bias"
        )

    def forward(self, x_BTC: Tensor, scale: Tensor | float) -> Tensor:
        y_BTK: Tensor = scale * (self.up(F.gelu(self.down(x_BTC))) + self.bias)
        return y_BTK.to(x_BTC.dtype)


# ---------------------------------------------------------------- connections


class Mudd(nn.Module):
    """The last block's coefficients, and those of the streams that are added after it.

    With X the stream as it entered the first block, b what back-out saves, x the stream: before
    the block, x <- (1 + r_last) x + r_first X + r_saved b, values take v_first X + v_saved b +
    v_last x and a factor on their row for each half of the heads, and the block's scales are
    coefficients, of which that of x0 is X's. After it, coefficients of X, b, x as it was before the
    block, the first value row, and what the skip saves, are added.
    """

    def __init__(self, c: ModelConfig, dtypes: Dtypes) -> None:
        super().__init__()
        assert c.mudd is not None
        self.form, self.head_dim = FORMS[c.mudd], c.head_dim
        self.saved, self.skip = c.backout, c.skip_layers[0] if c.skip_layers else None
        self.names, self.post_names = tuple(last_starts(c)), tuple(post_starts(c))
        starts = tuple(last_starts(c).values()), tuple(post_starts(c).values())
        self.last, self.post = (
            Maker(c, dtypes, starts=s, scale=self.form.scale, part="mudd") for s in starts
        )

    def before(self, stream: Stream, row_BTC: Tensor | None) -> Tensor:
        """Change the stream before the last block; what that adds to its values, (B, T, C).

        row_BTC: its row of a value table.
        """
        x, first, saved = stream.x, stream.saved[ENTERED], stream.saved[self.saved]
        told = dict(zip(self.names, self.last(x, self.form.scale).split(1, dim=-1), strict=True))
        stream.before_last, stream.x0 = x, first
        stream.x = (1 + told["r_last"]) * x + told["r_first"] * first + told["r_saved"] * saved
        stream.told[-1] |= {name: told[name] for name in LAST_SCALES if name in told}
        v_BTC: Tensor = told["v_first"] * first + told["v_saved"] * saved + told["v_last"] * x
        v_BTC = self.form.values * v_BTC
        if row_BTC is None:
            return v_BTC
        n_heads = row_BTC.shape[-1] // self.head_dim
        halves = [told["row_lower"]] * (n_heads // 2)
        halves += [told["row_upper"]] * (n_heads - len(halves))
        factor_BTN1 = self.form.row + torch.cat(halves, dim=-1)[..., None]
        row = factor_BTN1 * row_BTC.unflatten(-1, (n_heads, self.head_dim))
        y_BTC: Tensor = v_BTC + row.flatten(-2)
        return y_BTC

    def after(self, stream: Stream, row_BTC: Tensor | None) -> None:
        """Add what the coefficients after the last block are of.

        row_BTC: the first row of a value table.
        """
        of = {
            "first": stream.saved[ENTERED],
            "saved": stream.saved[self.saved],
            "last": stream.before_last,
            "row": row_BTC,
            "skip": stream.saved.get(self.skip),
        }
        told = self.post(stream.x, self.form.scale).split(1, dim=-1)
        for name, coefficient in zip(self.post_names, told, strict=True):
            stream.x = stream.x + coefficient * of[name]


# ---------------------------------------------------------------- gates


class MuddGates(nn.Module):
    """Gates, shares and scales of x0 for each position, by two makers with a scale in common.

    The first reads x0 and tells those of the layers before `layer`; the second reads the stream
    before that layer and tells those from it on.
    """

    def __init__(self, c: ModelConfig, dtypes: Dtypes) -> None:
        super().__init__()
        self.told = told_by_makers(c)
        self.scale = parameter(
            (), role="scalar", init=GATE_SCALE, dtype=dtypes.scalar, part="mudd_gate_bias"
        )
        self.makers = nn.ModuleDict()
        for i, part in self.told.items():
            starts = [start for _, _, size, start in part for _ in range(size)]
            self.makers[str(i)] = Maker(
                c, dtypes, starts=starts, scale=GATE_SCALE, part="mudd_gate"
            )

    def forward(self, i: int, stream: Stream) -> None:
        """Tell the layers what is told before layer i."""
        if i not in self.told:
            return
        coefficients_BTK = self.makers[str(i)](stream.x0 if i == 0 else stream.x, self.scale)
        split = coefficients_BTK.split([t.size for t in self.told[i]], dim=-1)
        for told, coefficient in zip(self.told[i], split, strict=True):
            stream.told[told.layer][told.name] = coefficient
