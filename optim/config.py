"""The optimizers' configuration.

Every toggle of the update rules, declared once (metadata as in model/config.py).
"""

from dataclasses import dataclass, field
from typing import Any, Literal


def toggle(default: Any, **facts: Any) -> Any:
    """A configuration field with its facts.

    Record, doc, affects, example, choices, requires, conflicts, ge, gt, le, unit.
    """
    return field(default=default, metadata={"affects": ("loss",), **facts})


MUON_ONLY = {"optim.matrix_optimizer": ("muon",)}
ORTHOGONAL = {"optim.matrix_optimizer": ("muon", "orthogonal_nesterov")}


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """Learning rates are per step, unscaled by the schedule.

    `None` for a role's rate means adam_lr.
    """

    # --- Adam family: tables, head, scalars (and the matrices in record 2)
    adam_lr: float = toggle(
        1.8e-3,
        record="r02",
        affects=("groups", "loss"),
        example=1e-3,
        doc="rate of every Adam parameter without a rate of its own",
        gt=0,
        le=100,
    )
    embed_lr: float | None = toggle(
        None,
        record="r08",
        affects=("groups", "loss"),
        doc="Adam rate of the token table",
        choices={0.3: "r08", 0.6: "r11"},
        gt=0,
        le=100,
        requires={"*": {"model.tied_head": (False,)}},
    )
    head_lr: float | None = toggle(
        None,
        record="r08",
        affects=("groups", "loss"),
        doc="Adam rate of the head",
        choices={0.002: "r08", 0.008: "r11"},
        gt=0,
        le=100,
        requires={"*": {"model.tied_head": (False,)}},
    )
    value_embed_lr: float | None = toggle(
        None,
        record="r14",
        affects=("groups", "loss"),
        example=0.1,
        doc="Adam rate of the value tables; null: the token table's",
        gt=0,
        le=100,
        requires={"*": {"model.value_embed": "not null"}},
    )
    scalar_lr: float | None = toggle(
        None,
        record="r09",
        affects=("groups", "loss"),
        doc="Adam rate of the mixing scalars",
        choices={0.02: "r09", 0.04: "r11"},
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
        doc="decoupled weight decay of the Adam parameters",
        choices={0.1: "r02"},
        ge=0,
        le=10,
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
    grad_norm_per_tensor: bool = toggle(
        False,
        record="r02",
        doc="divide every gradient tensor by its L2 norm + 1e-6 (the code of June 2024)",
    )

    # --- matrices
    matrix_optimizer: Literal["adamw", "orthogonal_nesterov", "muon"] = toggle(
        "adamw",
        record="r02",
        affects=("groups", "schedule", "loss"),
        choices={"orthogonal_nesterov": "r03", "muon": "r04"},
        doc="update rule of the block matrices",
    )
    muon_lr: float = toggle(
        0.02,
        record="r03",
        affects=("groups", "loss"),
        example=0.05,
        doc="rate of the orthogonalised updates; belongs to an update scale",
        gt=0,
        le=100,
        requires={"*": ORTHOGONAL},
    )
    muon_momentum: float = toggle(
        0.95,
        record="r03",
        affects=("schedule", "loss"),
        example=0.9,
        doc="momentum after its warm-up",
        ge=0,
        lt=1,
        requires={"*": ORTHOGONAL},
    )
    muon_momentum_warmup_steps: int = toggle(
        0,
        record="r09",
        affects=("schedule", "loss"),
        doc="momentum rises linearly from 0.85 over this many steps",
        choices={500: "r09", 300: "r13"},
        ge=0,
        requires={"*": MUON_ONLY},
    )
    muon_momentum_form: Literal["sum", "ema"] = toggle(
        "sum",
        record="r03",
        choices={"ema": "r15"},
        requires={"*": MUON_ONLY},
        doc="b <- mu b + g, u = g + mu b; or b <- b + (1-mu)(g-b), u = g + mu (b-g)",
    )
    muon_nesterov: bool = toggle(
        True,
        record="r03",
        doc="Nesterov's look-ahead; off: u is the momentum buffer",
        requires={"*": ORTHOGONAL},
    )
    muon_backend: Literal["newton_schulz", "svd"] = toggle(
        "newton_schulz",
        record="r04",
        choices={"svd": "r04"},
        doc="orthogonalisation: quintic iteration, or exact U V^T",
        requires={"*": ORTHOGONAL},
    )
    ns_steps: int = toggle(
        5,
        record="r03",
        example=6,
        doc="Newton-Schulz iterations",
        ge=1,
        le=100,
        requires={"*": ORTHOGONAL},
    )
    ns_form: Literal["products", "polynomial"] = toggle(
        "products",
        record="r03",
        choices={"polynomial": "r11"},
        requires={"*": ORTHOGONAL},
        doc="X <- aX + bB + cAB with B = AX; or X <- aX + BX with B = bA + cA^2",
    )
    ns_norm: Literal["fp32", "bf16", "bf16_transposed"] = toggle(
        "fp32",
        record="r03",
        choices={"bf16": "r05", "bf16_transposed": "r18"},
        requires={"*": ORTHOGONAL},
        doc=(
            "Frobenius normalisation: norm of the fp32 gradient, fp32 result; of the bf16 copy,"
            " bf16 result; the same after the transpose"
        ),
    )
    update_scale: Literal["one", "unit_rms", "sqrt_max", "sqrt_ratio"] = toggle(
        "one",
        record="r03",
        choices={"one": "r03", "unit_rms": "r03pre", "sqrt_max": "r04", "sqrt_ratio": "r08"},
        doc=(
            "scale of a rows x cols update: 1, sqrt(numel)/||U||_F, sqrt(max(rows, cols)),"
            " sqrt(max(1, rows/cols))"
        ),
        requires={"*": ORTHOGONAL},
    )
    update_scale_in: Literal["step", "update"] = toggle(
        "step",
        record="r03",
        choices={"update": "r06", "step": "r15"},
        requires={"*": MUON_ONLY},
        doc="the scale multiplies the fp32 step coefficient, or the update in its own dtype",
    )
    qkv_split: bool = toggle(
        False,
        record="r04",
        doc="orthogonalise a merged 3d x d matrix in three chunks, scaled by sqrt(d) each",
        requires={True: {"model.qkv_layout": ("merged",), **MUON_ONLY}},
    )
    muon_require_grad: bool = toggle(
        False,
        record="r08",
        affects=("groups",),
        doc="a matrix without gradient is an error; off: it is left alone",
        requires={"*": MUON_ONLY},
    )
    muon_comm: Literal["redundant", "flat_all_reduce", "grouped_all_gather"] = toggle(
        "redundant",
        record="r03",
        affects=("comm", "groups"),
        choices={"flat_all_reduce": "r06", "grouped_all_gather": "r15"},
        requires={"*": MUON_ONLY},
        doc=(
            "every rank updates every matrix; rank i % world owns matrix i, one flat SUM; groups by"
            " size, asynchronous gather"
        ),
    )
    muon_uneven: Literal["refuse", "handle"] = toggle(
        "handle",
        record="r15",
        affects=("comm",),
        choices={"refuse": "r15", "handle": "r17"},
        doc="matrices of a size that do not divide by the world size are refused, or handled",
        requires={"refuse": {"optim.muon_comm": ("grouped_all_gather",)}},
    )
