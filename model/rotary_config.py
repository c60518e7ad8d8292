"""How positions turn q and k."""

from dataclasses import dataclass
from typing import Literal

from .toggle import ON, toggle


@dataclass(frozen=True, kw_only=True)
class RotaryConfig:
    """Rotary position embedding: a part of ModelConfig."""

    rope_base: float = toggle(
        10000.0,
        record="r02",
        affects=("buffers", "loss"),
        doc="rotary base",
        choices={1024.0: "r17"},
        gt=1,
    )
    rope_pairs: Literal["all", "half"] = toggle(
        "all",
        record="r02",
        affects=("buffers", "loss"),
        choices={"half": "r17"},
        doc=(
            "rotate all head_dim/2 pairs by base^(-2i/head_dim), or half by base^(-linspace(0, 1))"
            " and leave the rest"
        ),
    )
    rope_pairing: Literal["halves", "adjacent"] = toggle(
        "halves",
        record="r02",
        choices={"adjacent": "r58"},
        doc="channel j turns with channel j + head_dim/2, or channel 2j with its neighbour 2j + 1",
    )
    window_yarn: bool = toggle(
        False,
        record="r31",
        affects=("buffers", "schedule", "loss"),
        doc=(
            "YaRN while training: when the long window changes from a to b tokens, pairs that turn"
            " at most once within a go a/b times as fast, those that turn 32 times or more as"
            " before, and the scores grow by 1 + 0.2 ln(b/a)"
        ),
        requires={True: {"schedule.windows": ON}},
    )
    rope_freq_dtype: Literal["fp32", "bf16"] = toggle(
        "fp32",
        record="r02",
        affects=("buffers", "loss"),
        rounds=True,
        doc="storage of the rotary frequencies",
        choices={"bf16": "r14"},
    )
    rope_table_dtype: Literal["fp32", "bf16"] = toggle(
        "fp32",
        record="r02",
        affects=("buffers", "precision", "loss"),
        rounds=True,
        doc="storage of the cos and sin tables",
        choices={"bf16": "r05"},
    )
    rope_math: Literal["promote", "fp32"] = toggle(
        "promote",
        record="r02",
        choices={"fp32": "r17"},
        rounds=True,
        doc="rotate in the promoted dtype of input and table, or in fp32 with the result cast back",
    )
    rope_buffers: bool = toggle(
        False,
        record="r17",
        affects=("buffers",),
        doc="rotary tables as non-persistent buffers; off: as plain tensors beside the parameters",
    )
