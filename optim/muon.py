"""Muon: momentum, orthogonalised (Keller Jordan, github.com/KellerJordan/Muon; records 4 to 18).

For a matrix p of M rows (outputs) and N columns with gradient g and momentum b, starting at 0:
    1. momentum        sum: b <- mu b + g,            u = g + mu b
                       ema: b <- b + (1 - mu)(g - b), u = g + mu (b - g)
                       without Nesterov u = b
    2. orthogonalise   U = U V^T of u                 (optim/orthogonalize.py), or of each of its
                       blocks of rows, where they are matrices of their own
       normalise       rows or columns of U           (optim/variance.py, where it is on)
    3. step            p <- p - lr s U                (s: the update scale, of the shape or of U,
                                                       times the matrix's own multiplier)
       decay by wd     multiplicative: p <- (1 - lr wd) p before it (record 24)
                       cautious: p <- p - lr s U - lr s lr wd p where U p >= 0, of the old p (record
                       43): quadratic in the scheduled rate
                       in fp32, whatever p is stored in (optim/mantissa.py, where it is on)
Constant mu makes sum and ema differ by a factor that step 2 removes; while mu is warmed up they
differ. Matrices of one shape are treated as one batch; which rank treats which is
optim/exchange.py. Legend: K matrices of one shape.
"""

import math
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from .config import OptimConfig
from .decay import with_cautious_decay
from .exchange import EXCHANGES, Ranks, redundant
from .mantissa import joined, parted, stepped
from .memory import AsSaved
from .orthogonalize import frobenius, orthogonalize, result_dtype
from .variance import LEAST, normalize, second_shape, side_by_side

Tensors = list[Tensor] | tuple[Tensor, ...]
Group = dict[str, Any]  # of parameters, as torch.optim keeps it: a rule's settings by name


def accumulate_sum(buffers: Tensors, grads: Tensors, mu: float) -> None:
    """b <- mu b + g, in place."""
    torch._foreach_mul_(buffers, mu)
    torch._foreach_add_(buffers, grads)


def accumulate_ema(buffers: Tensors, grads: Tensors, mu: float) -> None:
    """b <- b + (1 - mu)(g - b), in place."""
    torch._foreach_lerp_(buffers, grads, 1 - mu)


def look_ahead_sum(grads: Tensors, buffers: Tensors, mu: float) -> None:
    """g <- g + mu b, in place."""
    torch._foreach_add_(grads, buffers, alpha=mu)


def look_ahead_ema(grads: Tensors, buffers: Tensors, mu: float) -> None:
    """g <- g + mu (b - g), in place."""
    torch._foreach_lerp_(grads, buffers, mu)


MOMENTA = {"sum": (accumulate_sum, look_ahead_sum), "ema": (accumulate_ema, look_ahead_ema)}


def unit_rms(u_KMN: Tensor) -> Tensor:
    """(K, 1, 1): what brings each matrix's root mean square to one; zero stays zero."""
    return math.sqrt(u_KMN.size(-2) * u_KMN.size(-1)) / frobenius(u_KMN).clamp_min(1e-7)


# s of an update of K matrices: a number where it follows from the shape, else a tensor (K, 1, 1)
UPDATE_SCALES: dict[str, Callable[[Tensor], float | Tensor]] = {
    "one": lambda u_KMN: 1.0,
    "unit_rms": unit_rms,
    "sqrt_max": lambda u_KMN: math.sqrt(max(u_KMN.shape[-2:])),
    "sqrt_ratio": lambda u_KMN: math.sqrt(max(1.0, u_KMN.size(-2) / u_KMN.size(-1))),
}


def thirds(u_KMN: Tensor) -> Tensor:
    """Merged q, k, v of 3d x d as 3K squares (a view); other shapes as they are.

    Record 4 goes by the shape alone.
    """
    rows, cols = u_KMN.shape[-2:]
    return u_KMN.view(-1, cols, cols) if rows == 3 * cols else u_KMN


def whole(u_KMN: Tensor) -> Tensor:
    """Every matrix as it is."""
    return u_KMN


class Muon(AsSaved):
    """Muon over groups of matrices.

    A group is a dict with `params`, `names` and optionally `lr` and `momentum`, which are read at
    every step, `multiplier`, of its rate, `averaged`, the axis over which second moments are taken
    (None: there are none), `joined`, the number of matrices in a row that have them in common, and
    `rows`, of the blocks that are matrices of their own (None: each is whole).

    dtype: of the orthogonalisation (bfloat16 in the records, float32 for exact arithmetic).
    compile: orthogonalise through torch.compile, one graph per batch shape. Errors: ValueError for
    a parameter that is no matrix, for a matrix without gradient under `muon_require_grad`, and for
    groups that do not divide by the number of ranks under `muon_uneven: refuse`.
    """

    def __init__(
        self,
        groups: list[Group],
        config: OptimConfig,
        *,
        dtype: torch.dtype = torch.float32,
        compile: bool = False,
    ) -> None:
        settings = {"lr": config.muon_lr, "momentum": config.muon_momentum}
        super().__init__(
            groups, {**settings, "multiplier": 1.0, "averaged": None, "joined": 1, "rows": None}
        )
        self.beta2, self.weight_decay = config.muon_beta2, config.muon_weight_decay
        self.cautious = config.muon_weight_decay_form == "cautious"
        self.ranks = Ranks.current()
        self.require_grad = config.muon_require_grad
        self.nesterov = config.muon_nesterov
        self.accumulate, self.look_ahead = MOMENTA[config.muon_momentum_form]
        self.split = thirds if config.qkv_split else whole
        self.keeps_bits = config.weights_dtype == "bf16_mantissa"
        # record 41 bounds the root of a second moment, not the moment
        self.least = LEAST**2 if config.muon_variance == "tensor" else LEAST
        rule: Callable[..., Tensor] = orthogonalize
        if compile:
            rule = torch.compile(orthogonalize, dynamic=False, fullgraph=True)
        self.orthogonalize = partial(
            rule,
            backend=config.muon_backend,
            steps=config.ns_steps,
            form=config.ns_form,
            norm=config.ns_norm,
            dtype=dtype,
        )
        scale = UPDATE_SCALES[config.update_scale]
        self.scale_of_update = scale if config.update_scale_in == "update" else None
        self.scale_of_step = scale if config.update_scale_in == "step" else None
        self.exchange = EXCHANGES[config.muon_comm] if self.ranks.world > 1 else redundant
        self.update_dtype = result_dtype(config.ns_norm, dtype)
        self._refuse(config)

    def _refuse(self, config: OptimConfig) -> None:
        sizes: Counter[int] = Counter()
        for group in self.param_groups:
            for name, p in zip(group["names"], group["params"]):
                sizes[p.numel()] += 1
                if p.ndim != 2:
                    raise ValueError(
                        f"optim.matrix_optimizer: {name} of shape {tuple(p.shape)} is no matrix;"
                        " give it a role besides hidden"
                    )
        uneven = [
            f"{count} matrices of {numel} elements"
            for numel, count in sizes.items()
            if count % self.ranks.world
        ]
        if config.muon_uneven == "refuse" and uneven:
            raise ValueError(
                f"optim.muon_uneven is 'refuse', and {' and '.join(uneven)} do not divide by"
                f" {self.ranks.world} ranks; set optim.muon_uneven: handle"
            )

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update of every matrix that has a gradient."""
        assert closure is None, "the gradient is computed once, by the caller"
        for group in self.param_groups:
            absent = [name for name, p in zip(group["names"], group["params"]) if p.grad is None]
            if absent and self.require_grad:
                raise ValueError(
                    f"optim.muon_require_grad: {absent[0]} has no gradient; set it to false to"
                    " leave such matrices alone"
                )
            if len(absent) < len(group["params"]):
                update, apply = partial(self._update, group), partial(self._apply, group)
                exchange = self.exchange
                if group["joined"] > 1:
                    exchange = partial(redundant, together=group["joined"])
                exchange(group["params"], update, apply, self.ranks, self.update_dtype)

    def pieces(self, group: Group, u_KMN: Tensor) -> Tensor:
        """What is orthogonalised by itself: blocks of rows, thirds or whole matrices (a view)."""
        if group["rows"] is not None:
            return u_KMN.view(-1, group["rows"], u_KMN.size(-1))
        return self.split(u_KMN)

    def _update(self, group: Group, batch: list[Parameter]) -> Tensor:
        """Advance the momenta of a batch of one shape; its orthogonalised updates, (K, M, N)."""
        dtype = self.dtype_of(batch[0])
        grads: list[Tensor] = [p.grad.to(dtype) for p in batch if p.grad is not None]
        for p in batch:
            if "momentum_buffer" not in self.state[p]:
                self.state[p]["momentum_buffer"] = torch.zeros_like(p, dtype=dtype)
        buffers = [self.state[p]["momentum_buffer"] for p in batch]
        self.accumulate(buffers, grads, group["momentum"])
        u_KMN = torch.stack(grads if self.nesterov else buffers)
        if self.nesterov:
            self.look_ahead(u_KMN.unbind(), buffers, group["momentum"])
        pieces = self.orthogonalize(self.pieces(group, u_KMN))
        if group["averaged"] is not None:
            normal = self._normalized(side_by_side(pieces, group["joined"]), group, batch)
            pieces = normal.view_as(pieces)
        if self.scale_of_update is not None:
            pieces = pieces * self.scale_of_update(pieces)
        return pieces.view_as(u_KMN)

    def _normalized(self, pieces: Tensor, group: Group, batch: list[Parameter]) -> Tensor:
        """The updates of a batch of one shape, second moments moved on.

        Where several are joined, the first one holds theirs.
        """
        holders, axis = batch[:: group["joined"]], group["averaged"]
        each = len(pieces) // len(holders)
        states = [self.state[p] for p in holders]
        for state, matrices in zip(states, pieces.split(each), strict=True):
            if "second" not in state:
                dtype = state["momentum_buffer"].dtype
                state["second"] = torch.zeros(
                    second_shape(matrices, axis), dtype=dtype, device=matrices.device
                )
        seconds = [state["second"] for state in states]
        second = torch.cat(seconds)
        normal = normalize(pieces, second, axis, self.beta2, self.least)
        torch._foreach_copy_(seconds, second.split(each))
        return normal

    def _apply(self, group: Group, batch: list[Parameter], u_KMN: Tensor) -> None:
        """p <- p - lr s U and the decay, in the parameters' dtype, for a batch of one shape."""
        u_KMN, step_size = u_KMN.to(self.dtype_of(batch[0])), group["lr"] * group["multiplier"]
        if self.scale_of_step is not None:
            pieces = self.pieces(group, u_KMN)
            scale = self.scale_of_step(pieces)
            if isinstance(scale, Tensor):
                u_KMN = (pieces * scale).view_as(u_KMN)
            else:
                step_size = step_size * scale
        updates, decay = u_KMN.unbind(), group["lr"] * self.weight_decay
        if batch[0].dtype != self.dtype_of(batch[0]):
            self._apply_to_bits(batch, u_KMN, step_size, decay)
            return
        if decay and self.cautious:
            updates = tuple(with_cautious_decay(updates, batch, decay, strict=False))
        elif decay:
            torch._foreach_mul_(tuple(batch), 1 - decay)
        torch._foreach_add_(tuple(batch), updates, alpha=-step_size)

    def dtype_of(self, p: Tensor) -> torch.dtype:
        """Of a matrix's momentum and of its step: fp32 where further bits of it are kept here."""
        return torch.float32 if self.keeps_bits and p.dtype == torch.bfloat16 else p.dtype

    def _apply_to_bits(
        self, batch: list[Parameter], u_KMN: Tensor, step_size: float, decay: float
    ) -> None:
        """The step of a batch of one shape in fp32, of bf16 matrices and their bits kept here."""
        states = [self.state[p] for p in batch]
        for p, state in zip(batch, states, strict=True):
            if "bits" not in state:
                state["bits"] = torch.zeros_like(p, dtype=torch.int16)
        weights = joined(torch.stack(list(batch)), torch.stack([s["bits"] for s in states]))
        weights = stepped(weights, u_KMN, step_size, decay, cautious=self.cautious)
        high, low = parted(weights)
        torch._foreach_copy_(list(batch), list(high.unbind()))
        torch._foreach_copy_([s["bits"] for s in states], list(low.unbind()))


class OrthogonalNesterov(Muon):
    """Muon with what came later left at its plain value, so it needs no code of its own.

    Sum momentum, Newton-Schulz with products, fp32 norm and fp32 result, a merged qkv matrix
    orthogonalised as one piece, every rank doing every matrix; record 3 scales the update by one,
    its successor to unit RMS.
    """
