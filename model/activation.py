"""Activations of the MLP.

A table from the toggle's name to a function of (x, the dtype that squares are lifted to or None).
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


class ReLU2(torch.autograd.Function):
    """max(x, 0)^2 in the lifted dtype.

    The gradient 2 max(x, 0) in one product, where the library's takes a power and a mask.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, lifted: torch.dtype | None) -> Tensor:
        y = F.relu(x)
        ctx.save_for_backward(y)
        return y.to(lifted or x.dtype).square()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (y,) = ctx.saved_tensors
        return (2 * y.to(grad.dtype)).mul_(grad).to(y.dtype), None


def relu2(x: Tensor, lifted: torch.dtype | None) -> Tensor:
    if torch.compiler.is_compiling():  # which fuses the library's own operators
        return F.relu(x).to(lifted or x.dtype).square()
    y: Tensor = ReLU2.apply(x, lifted)
    return y


ACTIVATIONS: dict[str, Callable[[Tensor, torch.dtype | None], Tensor]] = {
    "gelu": lambda x, lifted: F.gelu(x),
    "relu2": relu2,
}
