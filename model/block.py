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


class Block(nn.Module):
    """The stream, mixed with x0 where x0_mix is on, plus attention's branch, plus the MLP's.

    attn, mlp: None in a layer without it.
    """

    def __init__(
        self, c: ModelConfig, dtypes: Dtypes, *, attn: nn.Module | None, mlp: nn.Module | None
    ) -> None:
        super().__init__()
        self.residual_mix = None
        if c.x0_mix:
            init = (c.residual_init, 0.0)
            self.residual_mix = parameter(
                (2,), role="scalar", init=init, dtype=dtypes.scalar, part="residual"
            )
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
        if self.attn is not None:
            branch, own_v = self.attn(self.norm(x), rotary, mask, source)
            x = x + (branch if self.branch_scale is None else self.branch_scale * branch)
            stream.values = own_v if stream.values is None else stream.values
        if self.mlp is not None:
            x = x + self.mlp(self.norm(x))
        stream.x = x
