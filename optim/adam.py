"""Adam as the records from 24 on write it: epsilon beside the uncorrected root.

For a parameter p with gradient g, moments m and v at first 0, and k its updates so far, from 1:
    m <- b1 m + (1 - b1) g;  v <- b2 v + (1 - b2) g^2
    delta = lr sqrt(1 - b2^k) / (1 - b1^k) m / (sqrt(v) + eps)
The library adds eps to sqrt(v / (1 - b2^k)) instead, so that it weighs less in the first updates.
Decay by wd, always from the old p:
    decoupled        p <- p - lr wd p - delta
    cautious         p <- p - delta - lr^2 wd p where delta p >= 0 (record 50)
    cautious_strict  the same where delta p > 0: what did not move is left alone (record 53)
Moments have the parameter's dtype or one for all, in which delta is computed, too.
"""

import math

import torch
from torch import Tensor

from .config import OptimConfig
from .decay import with_cautious_decay
from .memory import AsSaved
from .muon import Group

MOMENTS = {"parameter": None, "bf16": torch.bfloat16, "fp32": torch.float32}


class Adam(AsSaved):
    """Adam over groups of parameters of any shape.

    A group is a dict with `params` and `lr`, read at every step. Parameters without a gradient are
    left alone, and their counts too. moments: dtype of the moments, None: of the parameter.
    """

    def __init__(
        self, groups: list[Group], config: OptimConfig, moments: torch.dtype | None = None
    ) -> None:
        settings = {
            "lr": config.adam_lr,
            "betas": (config.adam_beta1, config.adam_beta2),
            "eps": config.adam_eps,
            "weight_decay": config.weight_decay,
        }
        super().__init__(groups, settings)
        self.decay_form, self.moments = config.weight_decay_form, moments

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        assert closure is None, "the gradient is computed once, by the caller"
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if params:
                self._apply(group, params, self._deltas(group, params))

    def _deltas(self, group: Group, params: list[Tensor]) -> list[Tensor]:
        """What every parameter moves by; moments and counts are moved on."""
        beta1, beta2 = group["betas"]
        for p in params:
            if p not in self.state:
                zeros = {
                    name: torch.zeros_like(p, dtype=self.moments)
                    for name in ("exp_avg", "exp_avg_sq")
                }
                # on the CPU: read at every step
                self.state[p] = {"step": torch.zeros(()), **zeros}
        states = [self.state[p] for p in params]
        grads: list[Tensor] = [p.grad for p in params if p.grad is not None]
        m, v = [s["exp_avg"] for s in states], [s["exp_avg_sq"] for s in states]
        kept = m, v
        if self.moments is not None:  # gradients have other dtypes: computed in fp32
            m, v, grads = ([tensor.float() for tensor in part] for part in (m, v, grads))
        torch._foreach_lerp_(m, grads, 1 - beta1)
        torch._foreach_mul_(v, beta2)
        torch._foreach_addcmul_(v, grads, grads, 1 - beta2)
        if self.moments is not None:
            torch._foreach_copy_([*kept[0], *kept[1]], [*m, *v])
            m, v = kept
        roots = torch._foreach_sqrt(v)
        torch._foreach_add_(roots, group["eps"])
        deltas = torch._foreach_div(m, roots)
        sizes = []
        for state in states:
            state["step"] += 1
            k = state["step"].item()
            sizes.append(group["lr"] * math.sqrt(1 - beta2**k) / (1 - beta1**k))
        torch._foreach_mul_(deltas, sizes)
        return list(deltas)

    def _apply(self, group: Group, params: list[Tensor], deltas: list[Tensor]) -> None:
        lr, decay = group["lr"], group["weight_decay"]
        if decay and self.decay_form == "decoupled":
            torch._foreach_mul_(params, 1 - lr * decay)
        elif decay:
            strict = self.decay_form == "cautious_strict"
            deltas = with_cautious_decay(deltas, params, lr * lr * decay, strict=strict)
        torch._foreach_sub_(params, deltas)
