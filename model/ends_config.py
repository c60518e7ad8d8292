"""The network's sizes and its two ends: what token ids become, and what becomes logits."""

from dataclasses import dataclass
from typing import Literal

from .toggle import ON, toggle


@dataclass(frozen=True, kw_only=True)
class EndsConfig:
    """Sizes, vocabulary, embedding and head: a part of ModelConfig."""

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
    embed_init: Literal["uniform", "normal", "normal_0.005"] = toggle(
        "uniform",
        record="r02",
        affects=("initial", "loss"),
        doc="token table: uniform on +-1/sqrt(d_model), N(0, 1), or 0.005 N(0, 1)",
        choices={"normal": "r08", "normal_0.005": "r51"},
        requires={"normal": {"model.tied_head": (False,)}},
    )
    head_init: Literal["uniform", "zeros", "normal_0.005"] = toggle(
        "uniform",
        record="r02",
        affects=("initial", "loss"),
        doc="head: uniform on +-1/sqrt(d_model), zero, or 0.005 N(0, 1)",
        choices={"zeros": "r08", "normal_0.005": "r51"},
        requires={"*": {"model.tied_head": (False,)}},
    )
    smear: bool = toggle(
        False,
        record="r34",
        affects=("parameters", "groups", "loss"),
        doc=(
            "embedding of a position plus l sigma(u e) times that of the position before, u of 12"
            " channels; l and u init 0"
        ),
    )
    logit_softcap: float | Literal["sigmoid30", "sigmoid30_by_width", "sigmoid23"] | None = toggle(
        None,
        record="r09",
        doc=(
            "squash logits to (-c, c) by c*tanh(z/c); sigmoid30: 30 sigma(z/7.5), by_width:"
            " 30 sigma(z/(7.5 d_model^1/2)); sigmoid23: 23 sigma((z+5)/7.5)"
        ),
        choices={
            30.0: "r09",
            15.0: "r18",
            "sigmoid30": "r19",
            "sigmoid30_by_width": "r22",
            "sigmoid23": "r54",
        },
        gt=0,
    )
    logits_dtype: Literal["fp32", "bf16"] = toggle(
        "fp32",
        record="r37",
        affects=("rounding",),
        choices={"fp32": "r02", "bf16": "r37"},
        rounds=True,
        doc=(
            "logits while training: as the cap leaves them (a sigmoid in fp32), or rounded; the"
            " loss of them is in fp32. Under precision.mode fp32 nothing is rounded"
        ),
        conflicts={"*": {"model.loss_rows": ON}},
    )
    fp8_head: tuple[float, ...] = toggle(
        (),
        record="r19",
        affects=("rounding",),
        choices={
            (0.5, 2**-5, 2**-29): "r19",
            (0.5, 2**-9, 2**-19): "r21",
            (768**0.5 / 448, 24 / 448, 1 / 448): "r22",
            (768**0.5 / 448, 2**-9, 1 / 448): "r28",
            (100 / 448, 1.5 / 448, 0.75 / 448): "r51",
            (100 / 448, 1.6 / 448, 0.75 / 448): "r55",
        },
        rounds=True,
        doc=(
            "the head's product in eight bits while training, emulated by casts: stream and matrix"
            " as e4m3, gradient as e5m2, divided by these three scales first. Under precision.mode"
            " fp32 nothing is rounded"
        ),
        requires={"*": {"model.tied_head": (False,)}},
        conflicts={"*": {"model.loss_rows": ON}},
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
