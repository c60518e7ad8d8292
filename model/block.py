"""A block: how the branches of attention and MLP join the residual stream.

B batch, T sequence, C model_dim.
"""

from torch import Tensor, nn

from .attention import Mask
from .config import ModelConfig
from .layers import RMSNorm
from .parameters import parameter
from .precision import Dtypes
from .stream import Stream


def scale(part: str, init: float, dtypes: Dtypes) -> nn.Parameter:
    """A learned number. part: of the scalars."""
    return parameter((), role="scalar", init=init, dtype=dtypes.scalar, part=part)


def joined(x: Tensor, residual: Tensor, branch: Tensor, post: Tensor | None) -> Tensor:
    """A stream and a branch with their scales: (B, T, C). post: None for 1."""
    return residual * x + (branch if post is None else post * branch)


class Block(nn.Module):
    """The stream, mixed with x0 where x0_mix is on, plus attention's branch, plus the MLP's.

    attn, mlp: None in a layer without it.
    """

    def __init__(
        self, c: ModelConfig, dtypes: Dtypes, *, attn: nn.Module | None, mlp: nn.Module | None
    ) -> None:
        super().__init__()
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
        self.attn, self.mlp = attn, mlp
        self.branch_scale = (
            (2 * c.n_layer) ** -0.5 if c.attn_branch_scale == "inv_sqrt_2l" else None
        )

    def forward(
        self, stream: Stream, rotary: tuple[Tensor, Tensor], mask: Mask, source: Tensor | None
    ) -> None:
        """Change the stream.

        rotary: cosines and sines. source: what is mixed into the values, None where nothing is.
        """
        x = stream.x
        if self.residual_mix is not None:
            x_weight, x0_weight = self.residual_mix.unbind()
            x = x_weight * x + x0_weight * stream.x0
        if self.residual_scale is not None:
            x = self.residual_scale * x + self.x0_scale * stream.x0
        if self.attn is not None:
            branch, own_v = self.attn(self.norm(x), rotary, mask, source)
            x = x + (branch if self.branch_scale is None else self.branch_scale * branch)
            stream.values = own_v if stream.values is None else stream.values
        if self.mlp is not None:
            x = x + self.mlp(self.norm(x))
        stream.x = x


class SubLayers(nn.Module):
    """x <- l x + p attention + m x0, then x <- l' x + p' MLP (record 73).

    attn, mlp: None in a layer without it.
    """

    def __init__(
        self, c: ModelConfig, dtypes: Dtypes, *, attn: nn.Module | None, mlp: nn.Module | None
    ) -> None:
        super().__init__()
        residual = c.residual_init**0.5
        if attn is not None:
            self.attn_residual = scale("residual", residual, dtypes)
            self.attn_post = scale("post", 1.0, dtypes)
            self.x0_scale = scale("x0", 0.0, dtypes)
        if mlp is not None:
            self.mlp_residual = scale("residual", residual, dtypes)
            self.mlp_post = scale("post", 1.0, dtypes)
        self.norm = RMSNorm(c.norm_eps, None)
        self.attn, self.mlp = attn, mlp

    def forward(
        self, stream: Stream, rotary: tuple[Tensor, Tensor], mask: Mask, source: Tensor | None
    ) -> None:
        """Change the stream.

        rotary: cosines and sines. source: what is mixed into the values, None where nothing is.
        """
        x = stream.x
        if self.attn is not None:
            branch, own_v = self.attn(self.norm(x), rotary, mask, source)
            x = joined(x, self.attn_residual, branch, self.attn_post) + self.x0_scale * stream.x0
            stream.values = own_v if stream.values is None else stream.values
        if self.mlp is not None:
            x = joined(x, self.mlp_residual, self.mlp(self.norm(x)), self.mlp_post)
        stream.x = x


# model.residual_form -> the block
BLOCKS = {"pair": Block, "apart": Block, "sub_layers": SubLayers}
