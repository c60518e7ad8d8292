"""Units of the losses: capped logits, cross-entropy on several tokens, and their gradients.

T positions, V vocabulary.
"""

from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from harness.bench.unit import Arrays, Pairs, Unit, tensor
from harness.model.loss import prefix_table, weighted_cross_entropy
from harness.model.softcap import capped, softcap_of

WIDTH = 768  # of the records' network


def cap(z: Tensor, name: str, width: int = 1) -> Tensor:
    """Capped logits (T, V)."""
    softcap = softcap_of(name, width)
    assert softcap is not None
    return capped(z, softcap)


def targets_of(arrays: Arrays) -> Tensor:
    return torch.tensor(arrays["target"], dtype=torch.int64)


def logits_of(arrays: Arrays, name: str = "logits") -> Tensor:
    return tensor(arrays[name]).requires_grad_()


def gradient(z: Tensor) -> np.ndarray:
    assert z.grad is not None
    return z.grad.numpy()


def caps(arrays: Arrays, end: str, name: str, width: int) -> Pairs:
    """Capped logits, the loss of every row, and the gradient of their sum.

    end: of the figures' names. name: of the cap, by which logits grow with the root of the width.
    """
    z = (logits_of(arrays).detach() * width**0.5).requires_grad_()
    y = cap(z, name, width)
    losses = F.cross_entropy(y, targets_of(arrays), reduction="none")
    losses.sum().backward()
    yield arrays[f"capped{end}"], y.detach().numpy()
    yield arrays[f"loss{end}"], losses.detach().numpy()
    yield arrays[f"grad{end}"], gradient(z)


def sigmoid_softcap(arrays: Arrays) -> Pairs:
    """Of logits as they are, and of those of a head that is as much larger as the width's root."""
    yield from caps(arrays, "_r19", "sigmoid30", 1)
    yield from caps(arrays, "_r22", "sigmoid30_by_width", WIDTH)


def asymmetric_rescale(arrays: Arrays) -> Pairs:
    yield from caps(arrays, "", "sigmoid23", 1)


def cases(arrays: Arrays, weights: str) -> list[str]:
    """The numbers of the cases, by the arrays of their weights."""
    return [name.removeprefix(weights) for name in arrays if name.startswith(weights)]


def mtp_loss(arrays: Arrays) -> Pairs:
    """Several sets of weights, by a position; and the mean loss of validation."""
    T = len(arrays["target"])
    for case in cases(arrays, "w"):
        z = logits_of(arrays)
        mean = weighted_cross_entropy(
            cap(z, "sigmoid30")[None], targets_of(arrays)[None], tensor(arrays[f"w{case}"])
        )
        (mean * T).backward()
        yield arrays[f"loss{case}"] / T, mean.detach().numpy()
        yield arrays[f"grad{case}"], gradient(z)
    validated = F.cross_entropy(cap(logits_of(arrays), "sigmoid30"), targets_of(arrays))
    yield arrays["loss_validation"], validated.detach().numpy()


def prefix_loss(arrays: Arrays) -> Pairs:
    """Which token every token begins with, the loss of a row, and its exact gradient."""
    texts = [bytes(int(b) for b in row if b >= 0) or None for row in arrays["vocab_bytes"]]
    table = prefix_table(texts)
    yield arrays["prefix_table"], np.array(table)
    for case in cases(arrays, "weights"):
        z = logits_of(arrays)
        mean = weighted_cross_entropy(
            cap(z, "sigmoid23")[None],
            targets_of(arrays)[None],
            tensor(arrays[f"weights{case}"]),
            (torch.tensor(table), tensor(arrays[f"prefix_weight{case}"])),
        )
        (mean * len(z)).backward()
        yield arrays[f"loss_rows{case}"].mean(), mean.detach().numpy()
        yield arrays[f"grad_exact{case}"], gradient(z)


LOSS_UNITS: Mapping[str, Unit] = {
    "sigmoid_softcap": Unit(pairs=sigmoid_softcap, bound=1e-5),
    "asymmetric_rescale": Unit(pairs=asymmetric_rescale, bound=1e-5),
    "mtp_loss": Unit(pairs=mtp_loss, bound=1e-5),
    "prefix_loss": Unit(pairs=prefix_loss, bound=1e-5),
}
