"""Units of the update rules: orthogonalisation, matrices, Adam, decay.

Legend: S updates; K matrices of M rows and N columns.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch.nn import Parameter

from harness.bench.unit import Arrays, Pairs, Unit, tensor
from harness.optim.adam import Adam
from harness.optim.build import JOINED
from harness.optim.config import OptimConfig
from harness.optim.decay import with_cautious_decay
from harness.optim.mantissa import joined, parted, stepped
from harness.optim.muon import Group, Muon
from harness.optim.orthogonalize import POLAR_EXPRESS, orthogonalize
from harness.optim.variance import AVERAGED, COLUMNS, ROWS

# ---------------------------------------------------------------- orthogonalisation

BACKENDS = {"quintic": "newton_schulz", "polar_express": "polar_express"}  # figure: its iteration


def _orthogonal(given: np.ndarray, backend: str) -> np.ndarray:
    return orthogonalize(
        tensor(given),
        backend=backend,
        form="polynomial",
        norm="bf16_transposed",
        dtype=torch.float64,
    ).numpy()


def polar_express(arrays: Arrays) -> Pairs:
    """CASE/input with what each iteration makes of it, and the coefficients."""
    yield arrays["coefficients"], np.array(POLAR_EXPRESS)
    for name, given in arrays.items():
        case, _, kind = name.partition("/")
        if kind == "input":
            for figure, backend in BACKENDS.items():
                yield arrays[f"{case}/{figure}"], _orthogonal(given, backend)


# ---------------------------------------------------------------- matrices

Variance = Literal["tensor", "input", "output"]  # the form of second moments
MODERN = OptimConfig(
    matrix_optimizer="muon",
    muon_momentum_form="ema",
    muon_backend="polar_express",
    ns_form="polynomial",
    ns_norm="bf16_transposed",
    muon_weight_decay_form="cautious",
)


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """Matrices of one tensor of a script: their starts and gradients, (K, M, N) and (S, K, M, N).

    theirs: the tensor after every update, (S, K, M, N) in our layout, too.
    """

    start: torch.Tensor
    grads: torch.Tensor
    theirs: torch.Tensor
    group: Group


def moves(
    tensors: Sequence[Recorded], arrays: Arrays, variance: Variance
) -> Iterator[tuple[Muon, list[Parameter]]]:
    """Muon over these tensors' matrices, and all of them in order, after every update.

    variance: the form of second moments.
    """
    config = replace(
        MODERN,
        muon_variance=variance,
        muon_beta2=float(arrays["beta2"]),
        muon_weight_decay=float(arrays["weight_decay"]),
    )
    matrices: list[Parameter] = []
    groups: list[Group] = []
    for t in tensors:
        of_tensor = [Parameter(matrix.clone()) for matrix in t.start]
        groups.append(
            {"params": of_tensor, "names": [str(len(groups))] * len(of_tensor), **t.group}
        )
        matrices += of_tensor
    muon = Muon(groups, config, dtype=torch.float64)
    for step, (lr, momentum) in enumerate(zip(arrays["lr"], arrays["momentum"], strict=True)):
        grads = [g for t in tensors for g in t.grads[step]]
        for p, grad in zip(matrices, grads, strict=True):
            p.grad = grad.clone()
        for group in muon.param_groups:
            group["lr"], group["momentum"] = float(lr), float(momentum)
        muon.step()
        yield muon, matrices


def compared(
    tensors: Sequence[Recorded], seconds: Sequence[np.ndarray], arrays: Arrays, variance: Variance
) -> Pairs:
    """Every matrix after every update, and the second moments after the last one.

    seconds: theirs, in the order of the tensors, with one axis for each matrix's numbers.
    variance: the form of second moments.
    """
    held: list[torch.Tensor] = []
    for step, (muon, matrices) in enumerate(moves(tensors, arrays, variance)):
        theirs = torch.cat([t.theirs[step].flatten() for t in tensors])
        ours = torch.cat([p.detach().flatten() for p in matrices])
        yield theirs.numpy(), ours.numpy()
        states = [muon.state[p] for p in matrices]
        held = [state["second"].flatten() for state in states if "second" in state]
    yield np.concatenate([s.ravel() for s in seconds]), torch.cat(held).numpy()


def in_our_layout(matrix: str, array: np.ndarray) -> torch.Tensor:
    """A tensor (..., M, N) as matrices (..., K, rows, columns) of outputs and inputs.

    Attention's hold q, k, v and the output, each as wide as the tensor is narrow; an MLP's have
    their hidden units, of which there are more, where ours have them.
    """
    stored = tensor(array)
    rows, columns = stored.shape[-2:]
    if matrix == "attn":
        width = min(rows, columns)
        return stored.reshape(*stored.shape[:-2], 4, width, width)
    upright = {"up": rows > columns, "down": rows < columns}.get(matrix, True)
    return (stored if upright else stored.mT).unsqueeze(-3)


# tensor of a script: which matrix of a block it is, and the kind of its second moments
KINDS = {
    "attn0": ("attn", "attn"),
    "attn1": ("attn", "attn"),
    "fc": ("up", "mlp"),
    "proj": ("down", "mlp"),
    "gate0": ("gate", "attn_gate"),
    "gate1": ("gate", "attn_gate"),
    "smear": ("gate", "smear_gate"),
}


def normuon(arrays: Arrays, variance: Variance, **multipliers: float) -> Pairs:
    """A script's whole optimizer of matrices.

    variance: the form of its second moments. multipliers: of rates, by their rows.
    """
    averaged = AVERAGED[variance]
    tensors, kinds = [], []
    for name, (matrix, kind) in KINDS.items():
        group = {
            "averaged": averaged.get(matrix, averaged["attn"]),
            "multiplier": multipliers.get(matrix, 1.0),
            "joined": len(JOINED) if (variance, matrix) == ("tensor", "attn") else 1,
        }
        shaped = [
            in_our_layout(matrix, arrays[f"{name}/{part}"]) for part in ("init", "grad", "param")
        ]
        start, grads, theirs = shaped
        tensors.append(Recorded(start=start, grads=grads, theirs=theirs, group=group))
        kinds.append(kind)
    seconds = [arrays[f"second/{kind}"] for kind in dict.fromkeys(kinds)]
    return compared(tensors, seconds, arrays, variance)


def muon_per_head(arrays: Arrays) -> Pairs:
    """Blocks of heads as matrices of their own beside whole ones."""
    tensors = []
    for bank, averaged in (("qk_bank", ROWS), ("vo_bank", COLUMNS)):
        start, grads, theirs = (
            tensor(arrays[f"{bank}/{part}"]) for part in ("init", "grad", "param")
        )
        group = {"averaged": averaged}
        tensors.append(Recorded(start=start, grads=grads, theirs=theirs, group=group))
    seconds = [arrays["qk_bank/second"], arrays["vo_bank/second"]]
    return compared(tensors, seconds, arrays, "output")


# ---------------------------------------------------------------- Adam and decay


def adam_after(
    start: np.ndarray, grads: np.ndarray, rates: Sequence[float], **fields: Any
) -> np.ndarray:
    """A parameter after each of S updates by its gradients (S, ...), at these rates.

    fields: of the optimizers' configuration.
    """
    config = OptimConfig(adam_eps_form="uncorrected", **fields)
    p = Parameter(tensor(start))
    adam = Adam([{"params": [p]}], config)
    after = []
    for grad, lr in zip(grads, rates, strict=True):
        p.grad = tensor(grad)
        adam.param_groups[0]["lr"] = lr
        adam.step()
        after.append(p.detach().clone())
    return torch.stack(after).numpy()


def adam_records(arrays: Arrays) -> Pairs:
    """Gradients so small that epsilon matters, under each epsilon of param_epsX."""
    beta1, beta2 = map(float, arrays["betas"])
    rates = [float(lr * arrays["lr_mul"]) for lr in arrays["lr"]]
    for name, theirs in arrays.items():
        eps = name.removeprefix("param_eps")
        if eps != name:
            fields = {"adam_eps": float(eps), "adam_beta1": beta1, "adam_beta2": beta2}
            yield theirs, adam_after(arrays["init"], arrays["grad"], rates, **fields)


def mantissa(arrays: Arrays) -> Pairs:
    """The bits of the same steps in two halves, after each."""
    halves = [arrays["mantissa/init_bits"], np.zeros_like(arrays["mantissa/init_bits"])]
    for i, update in enumerate(arrays["muon/update"]):
        lr = float(arrays["muon/lr_t"][i])
        high, low = (torch.from_numpy(half.view(np.int16)) for half in halves)
        after = stepped(
            joined(high.view(torch.bfloat16), low),
            torch.from_numpy(update),
            lr * float(arrays["muon/shape_multiplier"]),
            lr * float(arrays["muon/weight_decay"]),
            cautious=True,
        )
        high, low = parted(after)
        halves = [half.numpy().view(np.uint16) for half in (high.view(torch.int16), low)]
        for name, half in zip(("high", "low"), halves, strict=True):
            yield arrays[f"mantissa/{name}_bits"][i].astype(float), half.astype(float)


CAUTIOUS = {"adam_r50/param": "cautious", "adam_r53/param": "cautious_strict"}


def cautious_weight_decay(arrays: Arrays) -> Pairs:
    """Both optimizers' decay of what agrees with its update."""
    p, decay = tensor(arrays["muon/init"]), float(arrays["muon/weight_decay"])
    updates = (tensor(u) for u in arrays["muon/update"])
    for u, lr, theirs in zip(updates, arrays["muon/lr_t"], arrays["muon/param"], strict=True):
        (decayed,) = with_cautious_decay([u], [p], float(lr) * decay, strict=False)
        p = p - float(lr * arrays["muon/shape_multiplier"]) * decayed
        yield theirs, p.numpy()
    yield from mantissa(arrays)
    beta1, beta2 = map(float, arrays["adam/betas"])
    grads = arrays["adam/grad"]
    rates = [float(lr * arrays["adam/lr_mul"]) for lr in arrays["adam/lr_t"][: len(grads)]]
    for name, form in CAUTIOUS.items():
        fields = {
            "adam_beta1": beta1,
            "adam_beta2": beta2,
            "adam_eps": float(arrays["adam/eps"]),
            "weight_decay": float(arrays["adam/weight_decay"] * arrays["adam/wd_mul"]),
            "weight_decay_form": form,
        }
        yield arrays[name], adam_after(arrays["adam/init"], grads, rates, **fields)


# ---------------------------------------------------------------- all of these

OPTIM_UNITS: Mapping[str, Unit] = {
    "polar_express": Unit(pairs=polar_express, bound=1e-4),
    "normuon_r41": Unit(pairs=partial(normuon, variance="tensor"), bound=1e-5),
    "normuon_r42": Unit(pairs=partial(normuon, variance="input", up=2.0), bound=1e-5),
    "normuon_r43_cautious": Unit(pairs=partial(normuon, variance="input", up=2.0), bound=1e-5),
    "normuon_r48": Unit(
        pairs=partial(normuon, variance="output", attn=2.0, up=2.0, down=4.0),
        bound=1e-5,
    ),
    "muon_per_head": Unit(pairs=muon_per_head, bound=1e-5),
    "adam_records": Unit(pairs=adam_records, bound=5e-6),
    "cautious_weight_decay": Unit(pairs=cautious_weight_decay, bound=2e-6),
}
