"""attention_gate: a gate, opened by its input, scales every position's attention output."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from harness.model.config import toggle
from harness.model.gpt import GPT
from harness.model.heads import Attention
from harness.model.parameters import parameter


@dataclass(frozen=True, kw_only=True)
class Toggles:
    """Set as plugin.attention_gate.FIELD. While every field has its default, it is off."""

    opened: float | None = toggle(
        None, record="own", doc="the gate where its input says nothing", gt=0, lt=1
    )


def build(model: GPT, toggles: Toggles) -> None:
    """Change the new network, before its parameters are drawn; a role decides what moves one."""
    for block in model.blocks:
        attn: Any = block.attn
        if attn is not None:
            channels = attn.out.weight.shape[0]
            attn.gate = parameter((channels,), role="scalar", init=0.0, dtype=torch.float32)
            attn.bias = float(torch.logit(torch.tensor(toggles.opened)))
            attn.register_forward_hook(scaled)


def scaled(attn: Attention, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> Any:
    branch_BTC, own_v = output
    gate_BT1 = torch.sigmoid(inputs[0].float() @ attn.gate + attn.bias)[..., None]
    return (gate_BT1 * branch_BTC).to(branch_BTC.dtype), own_v
