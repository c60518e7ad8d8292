"""A block: how the branches of attention and MLP join the residual stream.

B batch, T sequence, C model_dim.
"""

from functools import partial
from typing import Any

from torch import Tensor, nn

from .attention import Mask
from .bigram import bigram_scale
from .config import ModelConfig
from .layers import RMSNorm
from .layout import takes_bigram, told_scales
from .parameters import parameter
from .precision import Dtypes
from .rotary import Turns
from .stream import Stream

# scale of a block of two sub-layers -> part of the scalars
PART_OF_SCALE = {
    "attn_residual": "residual",
    "attn_post": "post",
    "x0_scale": "x0",
    "mlp_residual": "residual",
    "mlp_post": "post",
}


def scale(part: str, init: float, dtypes: Dtypes) -> nn.Parameter:
    """A learned number. part: of the scalars."""
    return parameter((), role="scalar", init=init, dtype=dtypes.scalar, part=part)


def joined(
    x: Tensor,
    residual: Tensor,
    branch: Tensor,
    post: Tensor | None,
    beside: Tensor | None = None,
) -> Tensor:
    """residual x + post branch + beside: (B, T, C), post None for 1, beside None for 0."""
    y = residual * x + (branch if post is None else post * branch)
    return y if beside is None else y + beside


def fed_by(c: ModelConfig) -> int | None:
    """The layer whose output attention of later ones reads; None: it reads the stream."""
    return c.backout if c.backout_feeds_attention else None


class WithPairs(nn.Module):
    """A block that adds its share of the rows of pairs of tokens to the stream, or none.

    layer: its number, from 0.
    """

    def __init__(self, c: ModelConfig, dtypes: Dtypes, layer: int) -> None:
        super().__init__()
        self.layer, self.takes_pairs = layer, takes_bigram(c, layer)
        self.bigram_first = c.bigram_inject == "before_block"  # or behind attention
        self.bigram_scale = None
        if self.takes_pairs and "bigram_scale" not in told_scales(c, layer):
            self.bigram_scale = bigram_scale(c, dtypes)

    def with_pairs(self, x: Tensor, stream: Stream, *, entering: bool) -> Tensor:
        """x with the share, where its place is here. entering: at the block's beginning."""
        if not self.takes_pairs or self.bigram_first != entering:
            return x
        share: Any = stream.told[self.layer].get("bigram_scale", self.bigram_scale)
        y: Tensor = x + share * stream.bigram
        return y


class Empty(nn.Module):
    """A layer without attention and MLP: the stream stays as it is (record 35)."""

    attn = mlp = None  # to whoever asks every layer for its parts

    def forward(self, stream: Stream, rotary: Turns, mask: Mask, source: Tensor | None) -> None:
        """Change nothing."""


class Block(WithPairs):
    """The stream, mixed with x0 where x0_mix is on, plus attention's branch, plus the MLP's.

    attn, mlp: None in a layer without it.
    """

    def __init__(
        self,
        c: ModelConfig,
        dtypes: Dtypes,
        *,
        layer: int,
        attn: nn.Module | None,
        mlp: nn.Module | None,
    ) -> None:
        super().__init__(c, dtypes, layer)
        self.residual_mix = self.residual_scale = None
        if c.x0_mix and c.residual_form == "pair":
            init = (c.residual_init, 0.0)
            self.residual_mix = parameter(
                (2,), role="scalar", init=init, dtype=dtypes.scalar, part="residual"
            )
        elif c.x0_mix:
            self.residual_scale = scale("residual", c.residual_init, dtypes)
            self.x0_scale = scale("x0", 0.0, dtypes)
        self.norm = RMSNorm(c.norm_eps, None)
        self.attn, self.mlp, self.fed_by = attn, mlp, fed_by(c)
        self.branch_scale = (
            (2 * c.n_layer) ** -0.5 if c.attn_branch_scale == "inv_sqrt_2l" else None
        )

    def forward(self, stream: Stream, rotary: Turns, mask: Mask, source: Tensor | None) -> None:
        """Change the stream.

        rotary: what q and k turn by. source: what is mixed into the values, None where nothing is.
        """
        x = stream.x
        if self.residual_mix is not None:
            x_weight, x0_weight = self.residual_mix.unbind()
            x = x_weight * x + x0_weight * stream.x0
        if self.residual_scale is not None:
            x = self.residual_scale * x + self.x0_scale * stream.x0
        x = self.with_pairs(x, stream, entering=True)
        if self.attn is not None:
            read = stream.saved.get(self.fed_by, x)
            branch, own_v = self.attn(self.norm(read), rotary, mask, source)
            x = x + (branch if self.branch_scale is None else self.branch_scale * branch)
            x = self.with_pairs(x, stream, entering=False)
            stream.values = own_v if stream.values is None else stream.values
            stream.attended = x
        if self.mlp is not None:
            x = x + self.mlp(self.norm(x))
        stream.x = x


class SubLayers(WithPairs):
    """x <- l x + p attention + m x0, then x <- l' x + p' MLP (record 73).

    attn, mlp: None in a layer without it. Scales are numbers, or told for each position.
    """

    def __init__(
        self,
        c: ModelConfig,
        dtypes: Dtypes,
        *,
        layer: int,
        attn: nn.Module | None,
        mlp: nn.Module | None,
    ) -> None:
        super().__init__(c, dtypes, layer)
        residual = c.residual_init**0.5
        is_scaled = c.lanes is None or layer >= c.lanes or c.lane_branch == "attention_and_x0"
        learned = {}
        if attn is not None:
            learned = {"attn_residual": residual, "attn_post": 1.0, "x0_scale": 0.0}
        if not is_scaled:
            learned.pop("attn_post", None)
        if mlp is not None:
            learned |= {"mlp_residual": residual, "mlp_post": 1.0}
        for name, part in PART_OF_SCALE.items():
            is_number = name in learned and name not in told_scales(c, layer)
            number = scale(part, learned[name], dtypes) if is_number else None
            self.register_parameter(name, number)
        self.norm = RMSNorm(c.norm_eps, None)
        self.attn, self.mlp, self.fed_by = attn, mlp, fed_by(c)
        self.x0_in_branch = c.lane_branch == "attention_and_x0"

    def scale(self, stream: Stream, name: str) -> Tensor:
        """One of PART_OF_SCALE."""
        told: Tensor = stream.told[self.layer].get(name, getattr(self, name))
        return told

    def branch(
        self, stream: Stream, rotary: Turns, mask: Mask, source: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Attention's branch, and what is added beside it: (B, T, C) each, None for nothing."""
        assert self.attn is not None
        read = self.norm(stream.saved.get(self.fed_by, stream.x))
        branch, own_v = self.attn(read, rotary, mask, source, stream.told[self.layer])
        stream.values = own_v if stream.values is None else stream.values
        beside = self.scale(stream, "x0_scale") * stream.x0
        beside = self.with_pairs(beside, stream, entering=False)
        return (branch + beside, None) if self.x0_in_branch else (branch, beside)

    def forward(self, stream: Stream, rotary: Turns, mask: Mask, source: Tensor | None) -> None:
        """Change the stream.

        rotary: what q and k turn by. source: what is mixed into the values, None where nothing is.
        """
        stream.x = self.with_pairs(stream.x, stream, entering=True)
        of = partial(self.scale, stream)
        if self.attn is not None:
            branch, beside = self.branch(stream, rotary, mask, source)
            stream.x = joined(stream.x, of("attn_residual"), branch, of("attn_post"), beside)
            stream.attended = stream.x
        if self.mlp is not None:
            branch = self.mlp(self.norm(stream.x))
            stream.x = joined(stream.x, of("mlp_residual"), branch, of("mlp_post"))


class Lanes(SubLayers):
    """The same with two streams: attention reads the first and the MLP the second (record 73).

    Both take both branches, with scales of their own; they begin as one. layer: its number.
    """

    def __init__(
        self,
        c: ModelConfig,
        dtypes: Dtypes,
        *,
        layer: int,
        attn: nn.Module | None,
        mlp: nn.Module | None,
    ) -> None:
        super().__init__(c, dtypes, layer=layer, attn=attn, mlp=mlp)
        if attn is not None:
            self.attn_post_second = scale("post", 1.5, dtypes)
        if mlp is not None:
            self.mlp_post_second = scale("post", 1.0, dtypes)

    def forward(self, stream: Stream, rotary: Turns, mask: Mask, source: Tensor | None) -> None:
        """Change both streams, alike."""
        stream.x = self.with_pairs(stream.x, stream, entering=True)
        first, second = stream.x, stream.x if stream.second is None else stream.second
        of = partial(self.scale, stream)
        if self.attn is not None:
            branch, beside = self.branch(stream, rotary, mask, source)
            first = joined(first, of("attn_residual"), branch, of("attn_post"), beside)
            second = joined(second, of("attn_residual"), branch, self.attn_post_second)
            stream.attended = first
        if self.mlp is not None:
            branch = self.mlp(self.norm(second))
            first = joined(first, of("mlp_residual"), branch, of("mlp_post"))
            second = joined(second, of("mlp_residual"), branch, self.mlp_post_second)
        stream.x, stream.second = first, second


def make_block(
    c: ModelConfig,
    dtypes: Dtypes,
    *,
    layer: int,
    attn: nn.Module | None,
    mlp: nn.Module | None,
) -> nn.Module:
    """The block of a layer, from 0; attn, mlp: None in one without it."""
    if attn is None and mlp is None:
        return Empty()
    form: Any = Block
    if c.residual_form == "sub_layers":
        form = SubLayers if c.lanes is None or layer < c.lanes else Lanes
    block: WithPairs = form(c, dtypes, layer=layer, attn=attn, mlp=mlp)
    return block
