"""The head in eight bits: a product of rounded factors, and gradients by a rounded one (record 19).

N tokens, C model_dim, V vocabulary. Emulated: factors are cast to float8, and what they are then is
multiplied in fp32. The kernels of the records multiply the same eight bits.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .layers import Linear
from .precision import Dtypes

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
Scales = tuple[float, ...]  # of the stream, the matrix and the gradient: each is divided by its own


def product(a8: Tensor, b8: Tensor, scale: float) -> Tensor:
    """scale a b, in fp32."""
    return (a8.float() @ b8.float()) * scale


class Float8Product(torch.autograd.Function):
    """x W^T of rounded factors; no gradient of the rounding itself."""

    @staticmethod
    def forward(ctx: Any, x_NC: Tensor, weight_VC: Tensor, scales: Scales) -> Tensor:
        """(N, V) in the dtype of x. What was rounded is kept for the gradients."""
        s_x, s_w, _ = scales
        x8_NC, w8_VC = (x_NC / s_x).to(E4M3), (weight_VC / s_w).to(E4M3)
        ctx.save_for_backward(x8_NC, w8_VC)
        ctx.scales = scales
        ctx.dtypes = x_NC.dtype, weight_VC.dtype
        return product(x8_NC, w8_VC.T, s_x * s_w).to(x_NC.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_NV: Tensor) -> tuple[Tensor | None, ...]:
        x8_NC, w8_VC = ctx.saved_tensors
        s_x, s_w, s_g = ctx.scales
        g8_NV = (grad_NV / s_g).to(E5M2)
        of_x, of_weight = ctx.dtypes
        grad_x = product(g8_NV, w8_VC, s_g * s_w).to(of_x)
        return grad_x, product(g8_NV.T, x8_NC, s_x * s_g).to(of_weight), None


class Float8Head(Linear):
    """A head whose product is rounded while it trains; in fp32 nothing is.

    rows, columns: V, C. init: how it is drawn. scales: of stream, matrix and gradient.
    """

    def __init__(
        self, rows: int, columns: int, *, init: str, dtypes: Dtypes, scales: Scales
    ) -> None:
        super().__init__(rows, columns, role="head", init=init, dtypes=dtypes)
        self.scales, self.rounds = scales, dtypes.rounds

    def averages(self, n_passes: int) -> None:
        """So many passes of one process are averaged, each with a share of the gradient."""
        self.scales = (*self.scales[:2], self.scales[2] / n_passes)

    def forward(self, x: Tensor, scale: Tensor | None = None) -> Tensor:
        if not (self.training and self.rounds):
            return super().forward(x, scale)
        rows_NC = x.to(self.dtype).flatten(0, -2)
        z_NV: Tensor = Float8Product.apply(rows_NC, self.weight, self.scales)
        z: Tensor = z_NV.unflatten(0, x.shape[:-1])
        return z
