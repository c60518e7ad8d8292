"""z_loss: the training loss holds the logits' normaliser near one (PaLM, arXiv 2204.02311)."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from harness.model.config import toggle


@dataclass(frozen=True, kw_only=True)
class Toggles:
    """Set as plugin.z_loss.FIELD. While every field has its default, it is off."""

    weight: float = toggle(0.0, record="own", doc="of the squared log of the normaliser", ge=0)


def loss(logits: Tensor, targets: Tensor, toggles: Toggles) -> Tensor:
    """What is trained on, of logits (N, V) and targets (N,); validation never sees it."""
    log_z_N = torch.logsumexp(logits, dim=-1)
    return F.cross_entropy(logits, targets) + toggles.weight * log_z_N.square().mean()
