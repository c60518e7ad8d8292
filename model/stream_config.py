"""The residual stream: how branches join it, and what later parts of the network take from it."""

from dataclasses import dataclass
from typing import Literal

from .toggle import ON, toggle


@dataclass(frozen=True, kw_only=True)
class StreamConfig:
    """Scales of the stream and of x0, skips and back-out: a part of ModelConfig."""

    x0_mix: bool = toggle(
        False,
        record="r09",
        affects=("parameters", "groups", "loss"),
        doc="each block starts from l0*x + l1*x0, learned, init (1, 0)",
    )
    residual_form: Literal["pair", "apart", "sub_layers"] = toggle(
        "pair",
        record="r49",
        affects=("parameters", "loss"),
        choices={"pair": "r09", "apart": "r49", "sub_layers": "r73"},
        doc=(
            "the scales of x0_mix: a pair for each block; two that have settings of their own; or"
            " x <- l0 x + p attention + l1 x0, then x <- l0' x + p' MLP, p and p' init 1"
        ),
        requires={"*": {"model.x0_mix": (True,)}},
        conflicts={"sub_layers": {"model.attn_branch_scale": ("inv_sqrt_2l",)}},
    )
    residual_init: float = toggle(
        1.0,
        record="r09",
        affects=("initial", "loss"),
        choices={1.1: "r45"},
        doc="initial l0 of x0_mix; its square root for each of two sub-layers",
        gt=0,
        le=100,
        requires={"*": {"model.x0_mix": (True,)}},
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

    skip_weight: Literal["weight", "sigmoid"] = toggle(
        "weight",
        record="r11",
        affects=("initial", "loss"),
        choices={"weight": "r11", "sigmoid": "r32"},
        doc="the weights of unet_skip as they are, or sigma(w), w init -1.5",
        requires={"*": {"model.unet_skip": (True,)}},
    )
    skip_layers: tuple[int, ...] = toggle(
        (),
        record="r45",
        affects=("parameters", "groups", "loss"),
        example=(0, 1),
        doc=(
            "two layers: before the second one, sigma(w) times the output of the first is added; w"
            " learned, init -1.5; [4, 7] of 12 layers in record 45"
        ),
        conflicts={"*": {"model.unet_skip": ON}},
    )
    skip_from: Literal["block", "attention"] = toggle(
        "block",
        record="r73",
        choices={"block": "r77", "attention": "r73"},
        doc="what skip_layers takes of a layer: its output, or the stream after its attention",
        requires={"attention": {"model.skip_layers": ON}},
    )
    skip_gate: bool = toggle(
        False,
        record="r55",
        affects=("parameters", "loss"),
        doc="the skip of skip_layers times 2 sigma(u x0), u of 12 channels, init 0",
        requires={"*": {"model.skip_layers": ON}},
    )
    backout: int | None = toggle(
        None,
        record="r40",
        affects=("parameters", "groups", "loss"),
        choices={8: "r40", 7: "r49"},
        example=0,
        doc=(
            "layer whose output, times l, is taken off the stream before the final norm; l learned,"
            " init 0.5; it must not be the last layer"
        ),
        ge=0,
    )
    backout_feeds_attention: bool = toggle(
        False,
        record="r77",
        doc="attention of the layers after that of backout reads its output, not the stream",
        requires={"*": {"model.backout": ON}},
    )
    lanes: int | None = toggle(
        None,
        record="r73",
        affects=("parameters", "loss"),
        choices={7: "r73"},
        example=1,
        doc=(
            "layer from which on there are two streams: attention reads the first, the MLP the"
            " second, both take both branches, with scales of their own; the head sees their mean"
        ),
        ge=0,
        requires={"*": {"model.residual_form": ("sub_layers",)}},
        conflicts={"*": {"model.unet_skip": ON}},
    )
    lane_branch: Literal["attention", "attention_and_x0"] = toggle(
        "attention",
        record="r73",
        affects=("parameters", "loss"),
        choices={"attention_and_x0": "r73", "attention": "r74"},
        doc=(
            "what lanes scale as the branch: attention, with no scale of it before them; or"
            " attention and the part of x0"
        ),
        requires={"*": {"model.lanes": ON}},
    )
    mudd: Literal["raised", "plain"] | None = toggle(
        None,
        record="r81",
        affects=("parameters", "loss"),
        choices={"raised": "r81", "plain": "r85"},
        doc=(
            "a coefficient for each position, s (W2 gelu(W1 x) + b), in place of every scale of the"
            " last block and of back-out's l; earlier streams enter that block, its values and the"
            " head alike; raised: s 0.2/3^1/2, of the values 1.15 times that; plain: s 0.1"
        ),
        requires={"*": {"model.residual_form": ("sub_layers",), "model.backout": ON}},
        conflicts={"*": {"model.lanes": ON, "model.value_residual": ON}},
    )
    mudd_gate: int | None = toggle(
        None,
        record="r85",
        affects=("parameters", "loss"),
        choices={4: "r85"},
        example=1,
        doc=(
            "gates, shares of xsa and scales of x0 are told for each position by two makers alike,"
            " s learned, init 0.1: of the layers before this one from x0, of the others from the"
            " stream before it"
        ),
        ge=1,
        requires={"*": {"model.mudd": ON}},
        conflicts={"*": {"model.attn_gate": ("sigmoid12",), "model.skip_gate": (True,)}},
    )
    dc_mha: tuple[int, ...] = toggle(
        (),
        record="r85",
        affects=("parameters", "loss"),
        example=(1,),
        doc=(
            "layers whose heads add a mixture of all heads' probabilities over near keys, of their"
            " values, by two factors that mudd_gate tells; [10] of 11 layers in record 85"
        ),
        requires={"*": {"model.mudd_gate": ON}},
    )
    dc_window: int = toggle(
        112,
        record="r85",
        example=16,
        doc="keys of dc_mha, the query's own and those before it, of its document",
        ge=1,
        unit="tokens",
        requires={"*": {"model.dc_mha": ON}},
    )
