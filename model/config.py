"""The network's configuration: every toggle of the model, declared once.

The defaults are the plain values, those of record 2; how a toggle is declared: toggle.py.
"""

from dataclasses import dataclass
from typing import Literal

from .bigram_config import BigramConfig
from .ends_config import EndsConfig
from .rotary_config import RotaryConfig
from .stream_config import StreamConfig
from .toggle import AFFECTS as AFFECTS
from .toggle import ON as ON
from .toggle import toggle as toggle
from .value_config import ValueConfig


@dataclass(frozen=True, kw_only=True)
class ModelConfig(BigramConfig, StreamConfig, ValueConfig, RotaryConfig, EndsConfig):
    """Sizes in units of channels, rows or layers.

    Every width is checked before anything is allocated.
    """

    # --- norms, MLP, branches
    post_embed_norm: bool = toggle(
        False, record="r08", doc="RMSNorm of the embedding before the first block"
    )
    norm_eps: float | Literal["by_dtype"] = toggle(
        1e-6,
        record="r02",
        choices={"by_dtype": "r05"},
        gt=0,
        doc=(
            "RMSNorm epsilon; by_dtype: 2^-7 for a bf16 input, 2^-23 for fp32 (the library default"
            " of the records' torch)"
        ),
    )
    activation: Literal["gelu", "relu2"] = toggle(
        "gelu",
        record="r02",
        doc="MLP activation: erf GELU, or max(x, 0)^2",
        choices={"relu2": "r05"},
    )
    mlp_free_layers: tuple[int, ...] = toggle(
        (),
        record="r30",
        affects=("parameters", "loss"),
        example=(0,),
        doc="layers without MLP; [0] of 12 layers in record 30",
    )
    qkv_init: Literal["uniform", "uniform_half", "uniform_one"] = toggle(
        "uniform",
        record="r02",
        affects=("initial", "loss"),
        choices={"uniform_half": "r19", "uniform_one": "r53"},
        doc=(
            "matrices of q, k and v: uniform on +-d_model^-1/2, or of standard deviation"
            " 1/2 d_model^-1/2 or d_model^-1/2"
        ),
    )
    up_init: Literal["uniform", "uniform_half"] = toggle(
        "uniform",
        record="r02",
        affects=("initial", "loss"),
        choices={"uniform_half": "r19"},
        doc="the MLP's first matrix, alike",
    )
    proj_init: Literal["uniform", "zeros"] = toggle(
        "uniform",
        record="r02",
        affects=("initial", "loss"),
        doc="attention output and MLP down projections: uniform by fan-in, or zero",
        choices={"zeros": "r05"},
    )
    out_init: Literal["uniform", "uniform_half", "zeros", "mimetic"] | None = toggle(
        None,
        record="r64",
        affects=("initial", "loss"),
        choices={"mimetic": "r64", "uniform_half": "r67"},
        doc=(
            "attention output; null: as proj_init; uniform_half as qkv_init has it; mimetic: of the"
            " values 0.05^1/2 I, of the output -0.05^1/2 I, both with 0.01 N(0, 1) added"
        ),
        requires={"mimetic": {"model.qkv_layout": ("separate",)}},
    )
    attn_branch_scale: Literal["one", "inv_sqrt_2l"] = toggle(
        "one",
        record="r02",
        doc="factor on the attention branch: 1, or (2 n_layer)^-1/2",
        choices={"one": "r05", "inv_sqrt_2l": "r02"},
    )

    # --- attention
    qkv_layout: Literal["merged", "separate"] = toggle(
        "merged",
        record="r02",
        affects=("parameters", "loss"),
        doc="one 3d x d matrix for q, k, v, or three d x d matrices",
        choices={"separate": "r05"},
    )
    qk_norm: Literal["after_rope", "before_rope"] | None = toggle(
        None,
        record="r05",
        doc="RMSNorm of q and k per head, without gain",
        choices={"after_rope": "r05", "before_rope": "r06"},
    )
    attn_free_layers: tuple[int, ...] | Literal["after_middle"] = toggle(
        (),
        record="r17",
        affects=("parameters", "loss"),
        choices={"after_middle": "r17"},
        doc="layers without attention; after_middle: n_layer//2 + 1, layer 7 of 12",
    )
    attn_kernel: Literal["sdpa", "flash", "cudnn", "math", "flex", "dense"] = toggle(
        "sdpa",
        record="r02",
        affects=("kernel", "rounding"),
        choices={"cudnn": "r08", "flex": "r12"},
        doc=(
            "attention kernel: SDPA default, one SDPA backend only, FlexAttention, or SDPA with a"
            " dense mask"
        ),
        requires={
            "flex": {"model.attn_mask": ("document",)},
            "dense": {"model.attn_mask": ("document",)},
        },
    )
    key_offset: tuple[int, ...] = toggle(
        (),
        record="r49",
        example=(0,),
        doc=(
            "layers whose keys have the channels that do not turn from the position before;"
            " [3, 10] of 11 layers in record 49"
        ),
        requires={"*": {"model.qk_norm": ("before_rope",), "model.rope_pairs": ("half",)}},
    )
    key_offset_channels: Literal["unturned", "quarters"] = toggle(
        "unturned",
        record="r49",
        choices={"unturned": "r49", "quarters": "r58"},
        doc=(
            "those that do not turn; or the second and the last quarter of a head's, of which half"
            " turn"
        ),
        requires={
            "quarters": {"model.key_offset": ON, "model.rope_pairing": ("adjacent",)},
        },
    )
    paired_heads: tuple[int, ...] = toggle(
        (),
        record="r58",
        affects=("mask", "loss"),
        example=(0,),
        doc=(
            "layers where heads n and n + N/2 share one sequence of twice the positions, in which"
            " windows are counted; [0, 2, 5, 9] of 11 layers in record 58"
        ),
        requires={"*": {"model.rope_pairing": ("adjacent",), "model.attn_mask": ("document",)}},
    )
    attn_scale: float | None = toggle(
        None,
        record="r20",
        choices={0.12: "r20", 0.1: "r31"},
        doc="factor on the scores q.k; null: head_dim^-1/2",
        gt=0,
        le=100,
    )
    attn_gate: Literal["sigmoid12", "dynamic"] | None = toggle(
        None,
        record="r28",
        affects=("parameters", "loss"),
        choices={"sigmoid12": "r28", "dynamic": "r85"},
        doc=(
            "each head's output times a gate before the output projection; sigmoid12: sigma(W h),"
            " of 12 channels of the normed stream, W init 0; a matrix to the optimizers; dynamic:"
            " what mudd_gate tells, init 0.25"
        ),
        requires={"dynamic": {"model.mudd_gate": ON}},
    )
    attn_gate_layers: tuple[int, ...] = toggle(
        (),
        record="r85",
        affects=("parameters", "loss"),
        example=(0,),
        doc="layers with such gates; none: all with attention; [3, 10] of 11 layers in record 85",
        requires={"*": {"model.attn_gate": ON}},
    )
    attn_lambda: Literal["weights", "in_out"] | None = toggle(
        None,
        record="r47",
        affects=("parameters", "groups", "loss"),
        choices={"weights": "r47", "in_out": "r48"},
        doc=(
            "learned factors on attention's matrices; weights: a of the pair of value_mix on those"
            " of q, k and v; in_out: one on them, init 0.5, one on the output's, init 1"
        ),
        requires={"weights": {"model.value_mix": ("pair",)}},
        conflicts={"in_out": {"model.value_mix": ("pair",)}},
    )
    attn_mask: Literal["causal", "document"] = toggle(
        "causal",
        record="r02",
        affects=("mask", "kernel", "loss"),
        choices={"document": "r12"},
        doc="causal, or causal within a document (a document opens at the separator token)",
        requires={"document": {"model.attn_kernel": ("flex", "dense")}},
    )
    attn_window: Literal["token", "block", "clipped", "counted", "inclusive"] | None = toggle(
        None,
        record="r12",
        affects=("mask", "schedule", "loss"),
        choices={
            "token": "r12",
            "clipped": "r15",
            "block": "r16",
            "counted": "r20",
            "inclusive": "r29",
        },
        doc=(
            "window by tokens, by blocks of 128, or the token window clipped by record 15's block"
            " list; counted: so many of the nearest blocks that lie in the same document or share"
            " one; inclusive: by tokens, the last one seen, too"
        ),
        requires={"*": {"model.attn_mask": ("document",)}},
    )
    attn_window_layers: tuple[int, ...] = toggle(
        (),
        record="r20",
        affects=("mask", "schedule", "loss"),
        example=(0,),
        doc=(
            "layers with the long window, all others have the short one, half of it if no other is"
            " said; none: all have the long one; [0, 4, 11] of 12 layers in record 20"
        ),
        requires={"*": {"model.attn_window": ON}},
    )
    block_mask: Literal["traced", "partial", "partial_and_full"] = toggle(
        "traced",
        record="r12",
        affects=("kernel",),
        choices={"partial": "r15", "partial_and_full": "r16"},
        doc=(
            "FlexAttention block lists: create_block_mask, built by hand as partial blocks, or"
            " partial and full ones"
        ),
        requires={
            "*": {"model.attn_kernel": ("flex",)},
            "partial_and_full": {"model.attn_window": ("block", "counted")},
        },
    )
