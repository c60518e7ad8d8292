"""The toggles of Adam, which moves tables, head and scalars (metadata as in model/config.py)."""

from dataclasses import dataclass
from typing import Literal

from .toggle import MUON_ONLY, ORTHOGONAL, toggle


@dataclass(frozen=True, kw_only=True)
class AdamConfig:
    """Adam's part of OptimConfig: tables, head, scalars, and the matrices in record 2."""

    adam_lr: float = toggle(
        1.8e-3,
        record="r02",
        affects=("groups", "loss"),
        example=1e-3,
        doc="rate of every Adam parameter without a rate of its own",
        gt=0,
        le=100,
    )
    adam_beta1: float = toggle(
        0.9,
        record="r02",
        affects=("groups", "loss"),
        doc="Adam first-moment decay",
        choices={0.8: "r13"},
        ge=0,
        lt=1,
    )
    adam_beta2: float = toggle(
        0.95,
        record="r02",
        affects=("groups", "loss"),
        example=0.99,
        doc="Adam second-moment decay",
        ge=0,
        lt=1,
    )
    adam_eps: float = toggle(
        1e-8, record="r02", affects=("groups", "loss"), example=1e-6, doc="Adam epsilon", gt=0, le=1
    )
    weight_decay: float = toggle(
        0.0,
        record="r02",
        affects=("groups", "loss"),
        doc="decay of the Adam parameters without one of their own",
        choices={0.1: "r02"},
        ge=0,
        le=10,
    )
    weight_decay_form: Literal["decoupled", "cautious", "cautious_strict"] = toggle(
        "decoupled",
        record="r50",
        choices={"decoupled": "r02", "cautious": "r50", "cautious_strict": "r53"},
        doc=(
            "p <- (1 - lr wd) p; or p - lr^2 wd p where p and its update have one sign, where one"
            " is 0 too, or not there"
        ),
        requires={
            "*": {
                "optim.weight_decay": "not null",
                "optim.adam_eps_form": ("uncorrected",),
            }
        },
    )
    adam_eps_form: Literal["library", "uncorrected"] = toggle(
        "library",
        record="r24",
        affects=("groups", "loss"),
        choices={"library": "r02", "uncorrected": "r24"},
        doc="epsilon beside the bias-corrected root of the second moment, or the uncorrected one",
        conflicts={"uncorrected": {"optim.adam_fused": "not null"}},
    )
    adam_moments_dtype: Literal["parameter", "bf16", "fp32"] = toggle(
        "parameter",
        record="r32",
        affects=("rounding",),
        choices={"parameter": "r02", "bf16": "r32", "fp32": "r56"},
        rounds=True,
        doc=(
            "moments in the dtype of their parameter, or in one for all. Under precision.mode fp32"
            " nothing is rounded"
        ),
        requires={"*": {"optim.adam_eps_form": ("uncorrected",)}},
    )
    adam_fused: bool = toggle(
        False,
        record="r03pre",
        affects=("groups", "rounding"),
        doc="the library's fused Adam kernel",
    )
    adam_objects: Literal["split", "single"] = toggle(
        "split",
        record="r08",
        affects=("groups",),
        choices={"single": "r18"},
        doc="one Adam object per role, or one object with groups",
        requires={"single": ORTHOGONAL},
    )
    adam_every: int = toggle(
        1,
        record="r39",
        affects=("groups", "loss"),
        choices={2: "r39"},
        doc="Adam acts at the last of every so many updates, by the sum of their gradients",
        ge=1,
        le=1000,
        requires={"*": {**MUON_ONLY, "optim.grad_norm_per_tensor": (False,)}},
    )
    scalar_freeze_steps: int = toggle(
        0,
        record="r52",
        choices={40: "r52"},
        doc="mixing scalars that are as the row scalar rest for so many updates from each change of"
        " the window or the batch on; their gradients are dropped",
        ge=0,
    )
    tie_until: float | None = toggle(
        None,
        record="r51",
        affects=("initial", "loss"),
        choices={1.0: "r51", 2 / 3: "r53"},
        doc="token table and head are one matrix until this share of the steps, at first the head"
        " as it is drawn; then each goes on from that and its moments",
        gt=0,
        le=1,
        requires={
            "*": {
                "model.tied_head": (False,),
                "model.pad_tables": (True,),
                "model.head_init": ("uniform", "normal_0.005"),
                "model.embed_init": ("uniform", "normal_0.005"),
            }
        },
    )
    tie_ends: Literal["after_adam", "before_pass"] = toggle(
        "after_adam",
        record="r54",
        choices={"before_pass": "r53", "after_adam": "r54"},
        doc="they part after Adam's first update at that share or later, or before the first pass"
        " there, whether Adam is due or not",
        requires={"before_pass": {"optim.tie_until": "not null"}},
    )
    grad_norm_per_tensor: bool = toggle(
        False,
        record="r02",
        doc="divide every gradient tensor by its L2 norm + 1e-6 (the code of June 2024)",
    )
