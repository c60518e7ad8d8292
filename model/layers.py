"""What every part of the network is made of: norms and matrices."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .parameters import parameter
from .precision import FP32, Dtypes

EPS_BY_DTYPE = {torch.bfloat16: 2.0**-7, torch.float32: 2.0**-23, torch.float64: 2.0**-23}


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) over the last dimension, computed in fp32, without gain."""

    def __init__(self, eps: float | str, out: torch.dtype | None) -> None:
        super().__init__()
        self.eps = (
            {dtype: eps for dtype in EPS_BY_DTYPE} if isinstance(eps, float) else EPS_BY_DTYPE
        )
        self.out = out  # None: the dtype of the input

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.float(), x.shape[-1:], eps=self.eps[x.dtype]).to(self.out or x.dtype)


class Linear(nn.Module):
    """x W^T with W (rows, columns) stored in fp32, cast like x to the dtype of the products.

    role: of its parameter, by which optimizers take it. init: how it is drawn (parameters.py).
    part: of that role.
    """

    def __init__(
        self,
        rows: int,
        columns: int,
        *,
        role: str,
        init: str,
        dtypes: Dtypes,
        part: str | None = None,
    ) -> None:
        super().__init__()
        self.weight = parameter(
            (rows, columns),
            role=role,
            init=init,
            dtype=FP32,
            init_dtype=dtypes.linear_init,
            part=part,
        )
        self.dtype = dtypes.matmul

    def forward(self, x: Tensor, scale: Tensor | None = None) -> Tensor:
        """scale: a factor on the weight, before that is rounded; 0-d."""
        weight = self.weight if scale is None else scale * self.weight
        return F.linear(x.to(self.dtype), weight.to(self.dtype))
