"""lion: the matrices move by the sign of their momentum (Lion, arXiv 2302.06675)."""

from dataclasses import dataclass
from typing import Any

import torch

from harness.model.config import toggle


@dataclass(frozen=True, kw_only=True)
class Toggles:
    """Set as plugin.lion.FIELD. While every field has its default, it is off."""

    lr: float | None = toggle(None, record="own", doc="rate of the matrices", gt=0)


class Lion(torch.optim.Optimizer):
    def __init__(self, groups: list[Any]) -> None:
        super().__init__(groups, {"betas": (0.9, 0.99)})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p not in self.state:
                    self.state[p]["momentum"] = torch.zeros_like(p)
                momentum = self.state[p]["momentum"]
                p.add_(momentum.lerp(p.grad, 1 - beta1).sign(), alpha=-group["lr"])
                momentum.lerp_(p.grad, 1 - beta2)


def optimizers(groups: list[Any], toggles: Toggles) -> list[Any]:
    """Optimizers, and the groups that stay with the preset's own rules: every parameter once."""
    matrices = [{**g, "lr": toggles.lr} for g in groups if g["role"] == "hidden"]
    return [Lion(matrices), *(g for g in groups if g["role"] != "hidden")]
