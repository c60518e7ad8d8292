"""The network's configuration: every toggle of the model, declared once.

A toggle's metadata carries the record that introduced it, its meaning in one line, which of its
values belong to which record (`choices`), and what a value needs (`requires`) or cannot stand
beside (`conflicts`) in other sections. The defaults are the plain values, those of record 2.
Listing, documentation, validation and the JSON Schema derive from this file. `affects` says what a
value other than the default changes, in words of AFFECTS; the law tests hold every toggle to it,
and to changing nothing else.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

ON = "not null"  # in `requires`: any value that switches the other toggle on


AFFECTS = {
    "loss": "the losses, within the first updates",
    "rounding": "the losses by rounding alone: the same mathematics",
    "parameters": "names, shapes, dtypes and roles of the parameters",
    "initial": "initial values of parameters that are there either way",
    "buffers": "the network's buffers",
    "precision": "dtypes inside the network while it trains",
    "kernel": "the attention kernel and what it is handed as its mask",
    "mask": "which key a query sees",
    "groups": "optimizer objects, their groups and settings",
    "schedule": "rates, momentum or window by step",
    "data": "tokens, their order and how they reach the device",
    "validation": "when, on what and how the loss is validated",
    "comm": "what several processes exchange, and when",
    "runtime": "compiler, allocator and files",
    "clock": "which steps are timed",
    "placement": "what may run beside it",
}


def toggle(default: Any, **facts: Any) -> Any:
    """A configuration field with its facts.

    Record, doc, affects, example, choices, requires, conflicts, ge, gt, le, unit.

    example: a value that shows the effect, where the type and `choices` list none.
    """
    return field(default=default, metadata={"affects": ("loss",), **facts})


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Sizes in units of channels, rows or layers.

    Every width is checked before anything is allocated.
    """

    n_layer: int = toggle(
        12, record="r02", affects=("parameters", "loss"), doc="number of blocks", ge=1, le=1024
    )
    d_model: int = toggle(
        768,
        record="r02",
        affects=("parameters", "loss"),
        doc="width of the residual stream",
        ge=8,
        le=65536,
    )
    head_dim: int = toggle(
        64,
        record="r02",
        affects=("buffers", "loss"),
        doc="channels per attention head; d_model / head_dim heads",
        choices={128: "r05"},
        ge=4,
        le=1024,
    )
    mlp_ratio: int = toggle(
        4,
        record="r02",
        affects=("parameters", "loss"),
        doc="hidden width of the MLP in multiples of d_model",
        ge=1,
        le=64,
    )

    # --- vocabulary, embedding, head
    vocab_multiple: int = toggle(
        1,
        record="r05",
        affects=("parameters", "loss"),
        doc="pad the head's rows (ordinary logits) to a multiple of this",
        choices={128: "r05"},
        ge=1,
        le=65536,
    )
    pad_tables: bool = toggle(
        True,
        record="r17",
        affects=("parameters", "loss"),
        doc="token and value tables get the head's padded rows; off: the vocabulary's own",
        choices={False: "r17"},
        requires={False: {"model.tied_head": (False,)}},
    )
    tied_head: bool = toggle(
        True,
        record="r02",
        affects=("parameters", "groups", "loss"),
        doc="the head is the token table",
        choices={False: "r08"},
    )
    embed_init: Literal["uniform", "normal"] = toggle(
        "uniform",
        record="r02",
        affects=("initial", "loss"),
        doc="token table: uniform on +-1/sqrt(d_model), or N(0, 1)",
        choices={"normal": "r08"},
        requires={"normal": {"model.tied_head": (False,)}},
    )
    head_init: Literal["uniform", "zeros"] = toggle(
        "uniform",
        record="r02",
        affects=("initial", "loss"),
        doc="head: uniform on +-1/sqrt(d_model), or zero",
        choices={"zeros": "r08"},
        requires={"zeros": {"model.tied_head": (False,)}},
    )
    post_embed_norm: bool = toggle(
        False, record="r08", doc="RMSNorm of the embedding before the first block"
    )
    logit_softcap: float | None = toggle(
        None,
        record="r09",
        doc="squash logits to (-c, c) by c*tanh(z/c)",
        choices={30.0: "r09", 15.0: "r18"},
        gt=0,
    )
    loss_rows: int | None = toggle(
        None,
        record="r02",
        affects=("rounding",),
        example=96,
        doc=(
            "cross-entropy of this many tokens at a time, so that no more logits exist at once"
            " (compiled on a GPU dear: about 30 ms a step at r08's size);"
            " null: of all of a pass"
        ),
        ge=1,
        unit="tokens",
    )

    # --- norms, MLP, residual branches
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
    proj_init: Literal["uniform", "zeros"] = toggle(
        "uniform",
        record="r02",
        affects=("initial", "loss"),
        doc="attention output and MLP down projections: uniform by fan-in, or zero",
        choices={"zeros": "r05"},
    )
    attn_branch_scale: Literal["one", "inv_sqrt_2l"] = toggle(
        "one",
        record="r02",
        doc="factor on the attention branch: 1, or (2 n_layer)^-1/2",
        choices={"one": "r05", "inv_sqrt_2l": "r02"},
    )
    x0_mix: bool = toggle(
        False,
        record="r09",
        affects=("parameters", "groups", "loss"),
        doc="each block starts from l0*x + l1*x0, learned, init (1, 0)",
    )
    unet_skip: bool = toggle(
        False,
        record="r11",
        affects=("parameters", "groups", "loss"),
        doc=(
            "decoder block n/2+i adds w_i times the output of encoder block n/2-1-i; w learned,"
            " init 1"
        ),
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
    rope_freq_dtype: Literal["fp32", "bf16"] = toggle(
        "fp32",
        record="r02",
        affects=("buffers", "loss"),
        doc="storage of the rotary frequencies",
        choices={"bf16": "r14"},
    )
    rope_table_dtype: Literal["fp32", "bf16"] = toggle(
        "fp32",
        record="r02",
        affects=("buffers", "precision", "loss"),
        doc="storage of the cos and sin tables",
        choices={"bf16": "r05"},
    )
    rope_math: Literal["promote", "fp32"] = toggle(
        "promote",
        record="r02",
        choices={"fp32": "r17"},
        doc="rotate in the promoted dtype of input and table, or in fp32 with the result cast back",
    )
    rope_buffers: bool = toggle(
        False,
        record="r17",
        affects=("buffers",),
        doc="rotary tables as non-persistent buffers; off: as plain tensors beside the parameters",
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
    attn_mask: Literal["causal", "document"] = toggle(
        "causal",
        record="r02",
        affects=("mask", "kernel", "loss"),
        choices={"document": "r12"},
        doc="causal, or causal within a document (a document opens at the separator token)",
        requires={"document": {"model.attn_kernel": ("flex", "dense")}},
    )
    attn_window: Literal["token", "block", "clipped"] | None = toggle(
        None,
        record="r12",
        affects=("mask", "schedule", "loss"),
        choices={"token": "r12", "clipped": "r15", "block": "r16"},
        doc=(
            "window by tokens, by blocks of 128, or the token window clipped by record 15's block"
            " list"
        ),
        requires={"*": {"model.attn_mask": ("document",)}},
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
            "partial_and_full": {"model.attn_window": ("block",)},
        },
    )

    # --- values
    value_residual: Literal["fixed", "learned"] | None = toggle(
        None,
        record="r09",
        affects=("parameters", "groups", "loss"),
        doc="v <- (1-l) v + l v1, v1 the first layer's values, l 0.5: fixed, or learned per layer",
        choices={"fixed": "r09", "learned": "r09"},
        conflicts={"*": {"model.value_embed": ON}},
    )
    value_embed: tuple[int | None, ...] | Literal["each", "mirrored", "ends"] | None = toggle(
        None,
        record="r14",
        affects=("parameters", "groups", "loss"),
        choices={"each": "r14", "mirrored": "r15", "ends": "r17"},
        doc=(
            "value tables mixed into v: one per layer, mirrored halves, the first and last three"
            " (012...012), or a list"
        ),
    )
    value_mix: Literal["lerp", "pair"] = toggle(
        "lerp",
        record="r14",
        affects=("parameters", "loss"),
        choices={"lerp": "r14", "pair": "r15"},
        doc=(
            "v <- (1-l) v + l ve, or a v + b ve (a scales v in layers without a table too);"
            " init 0.5"
        ),
        requires={"pair": {"model.value_embed": ON}},
    )
    value_tables: Literal["packed", "separate"] = toggle(
        "packed",
        record="r14",
        affects=("parameters", "loss"),
        choices={"packed": "r14", "separate": "r16"},
        doc="one wide value table cut into slices, or one module per table",
        requires={"separate": {"model.value_embed": ON}},
    )
