"""What is mixed into the values."""

from dataclasses import dataclass
from typing import Literal

from .toggle import ON, toggle

GATED = ("gate", "gate_mixed", "gate_mixed_all")  # values of value_mix


@dataclass(frozen=True, kw_only=True)
class ValueConfig:
    """First values, value tables and how they are mixed in: a part of ModelConfig."""

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
    value_mix: Literal["lerp", "pair", "add", "gate", "gate_mixed", "gate_mixed_all"] = toggle(
        "lerp",
        record="r14",
        affects=("parameters", "groups", "loss"),
        choices={
            "lerp": "r14",
            "pair": "r15",
            "add": "r48",
            "gate": "r55",
            "gate_mixed": "r70",
            "gate_mixed_all": "r85",
        },
        doc=(
            "v <- (1-l) v + l ve, or a v + b ve (a scales v in layers without a table too),"
            " init 0.5; or v + ve; or v + g ve, g = 2 sigma(W z) for each head, W init 0, z 12"
            " channels of the normed stream (gate), or six of it and six of ve (gate_mixed: but in"
            " layers with paired heads; gate_mixed_all: there, too)"
        ),
        requires={
            "*": {"model.value_embed": ON},
            "gate_mixed_all": {"model.paired_heads": ON},
        },
    )
    xsa: tuple[int, ...] = toggle(
        (),
        record="r82",
        affects=("parameters", "groups", "loss"),
        example=(0,),
        doc=(
            "layers whose heads give up tanh(a) of what their output has along their own value;"
            " a learned for each head, init 0; [1, 3, 4, 7, 8, 10] of 11 layers in record 82"
        ),
    )
    xsa_form: Literal["projection", "ratio"] = toggle(
        "projection",
        record="r82",
        affects=("rounding",),
        choices={"projection": "r82", "ratio": "r86"},
        doc="along v / max(|v|, 1e-4); or (y.v) / max(v.v, 1e-8) times v",
        requires={"ratio": {"model.xsa": ON}},
    )
    value_init: Literal["normal", "zeros", "normal_0.01"] = toggle(
        "normal",
        record="r14",
        affects=("initial", "loss"),
        choices={"normal": "r14", "zeros": "r49", "normal_0.01": "r70"},
        doc="value tables: N(0, 1), zero, or 0.01 N(0, 1)",
        requires={"*": {"model.value_embed": ON}},
    )
    value_tables: Literal["packed", "separate"] = toggle(
        "packed",
        record="r14",
        affects=("parameters", "loss"),
        choices={"packed": "r14", "separate": "r16"},
        doc="one wide value table cut into slices, or one module per table",
        requires={"separate": {"model.value_embed": ON}},
    )
