"""Cross-entropy: of tokens whose logits never exist all at once, and of more tokens than the next.

B batch, T sequence, N = B T tokens, C model_dim, V vocabulary, K tokens ahead.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from .precision import FP32
from .softcap import Softcap, capped_with_slope

NO_TOKEN = -1  # a target that no loss is on


def log_probabilities(
    x_NC: Tensor, head_VC: Tensor, softcap: Softcap | None
) -> tuple[Tensor, Tensor | None]:
    """Of every token in fp32 (N, V), and the slope of the cap where there is one."""
    z = x_NC @ head_VC.T
    if softcap is None:
        return F.log_softmax(z.float(), dim=-1), None
    z, slope = capped_with_slope(z, softcap)
    return F.log_softmax(z.float(), dim=-1), slope


class ChunkedCrossEntropy(torch.autograd.Function):
    """Part after part, each part's gradient made with its loss.

    Plain cross-entropy holds N x V logits, their log-probabilities and their gradient; here they
    are `rows` x V, at the price of the head's gradient (V, C) kept between the passes. Nothing is
    computed twice. Sums over the parts in fp32; every other rounding where the plain form has it.
    """

    @staticmethod
    def forward(
        ctx: Any, x_NC: Tensor, head_VC: Tensor, y_N: Tensor, softcap: Softcap | None, rows: int
    ) -> Tensor:
        """The mean loss in nats.

        x_NC: the stream. head_VC: the head's matrix. y_N: targets. softcap: of the logits, None for
        none. rows: of a part.
        """
        total, grad_x = torch.zeros((), dtype=FP32, device=x_NC.device), torch.empty_like(x_NC)
        grad_head = torch.zeros_like(head_VC, dtype=FP32)
        for x, y, out in zip(x_NC.split(rows), y_N.split(rows), grad_x.split(rows), strict=True):
            p, slope = log_probabilities(x, head_VC, softcap)
            total -= p.gather(1, y[:, None]).sum()
            p.exp_().scatter_add_(1, y[:, None], torch.full_like(p[:, :1], -1.0)).div_(len(y_N))
            grad = p.to(x.dtype) if slope is None else slope.mul_(p.to(x.dtype))
            torch.mm(grad, head_VC, out=out)
            grad_head += grad.T @ x
            del p, slope, grad  # before the next part's are made
        ctx.save_for_backward(grad_x, grad_head)
        return total / len(y_N)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        grad_x, grad_head = ctx.saved_tensors
        return grad_x * grad.to(grad_x.dtype), (grad_head * grad).to(grad_x.dtype), None, None, None


def chunked_cross_entropy(
    x_NC: Tensor, head_VC: Tensor, y_N: Tensor, *, softcap: Softcap | None, rows: int
) -> Tensor:
    """Mean cross-entropy (nats per token, fp32 scalar) of logits x W^T.

    The logits are capped where softcap is given.

    x_NC, head_VC: in the dtype of the products. y_N: the target tokens. rows: tokens at a time.
    """
    if torch.is_grad_enabled():
        loss: Tensor = ChunkedCrossEntropy.apply(x_NC, head_VC, y_N, softcap, rows)
        return loss
    parts = zip(x_NC.split(rows), y_N.split(rows), strict=True)
    losses = [
        -log_probabilities(x, head_VC, softcap)[0].gather(1, y[:, None]).sum() for x, y in parts
    ]
    return torch.stack(losses).sum() / len(y_N)


def weighted_cross_entropy(
    logits_BTV: Tensor,
    y_BT: Tensor,
    weights_K: Tensor,
    prefixes: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Mean over positions of weighted losses on several tokens by the same logits (record 53).

    Position t: the sum over k of weights_K[k] times the cross-entropy of y[t + k], which is dropped
    where t + k lies beyond the row; documents' ends are not respected. Weights are not normalised.
    prefixes: for every token the one that it begins with, (V,), -1 where none does, and the weight
    of the cross-entropy of these (record 88).
    """
    log_p_NV = F.log_softmax(logits_BTV, -1).flatten(0, 1)

    def cross_entropy(targets_BT: Tensor) -> Tensor:
        targets_N = targets_BT.flatten()
        return F.nll_loss(log_p_NV, targets_N, ignore_index=NO_TOKEN, reduction="none")

    total_N = log_p_NV.new_zeros(y_BT.numel())  # one sum: several of unequal lengths do not compile
    for k, weight in enumerate(weights_K.unbind()):
        total_N = total_N + weight * cross_entropy(F.pad(y_BT[:, k:], (0, k), value=NO_TOKEN))
    if prefixes is not None:
        table_V, weight = prefixes
        total_N = total_N + weight * cross_entropy(table_V[y_BT])
    return total_N.mean()


def prefix_table(tokens: Sequence[bytes | None]) -> list[int]:
    """For every token the longest other one that its bytes begin with, -1 where none does.

    tokens: the bytes of each; None of one that is no text.
    """
    by_bytes = {text: i for i, text in enumerate(tokens) if text}
    table = []
    for text in tokens:
        starts = (text[:n] for n in range(len(text or b"") - 1, 0, -1)) if text else ()
        table.append(next((by_bytes[start] for start in starts if start in by_bytes), -1))
    return table
