"""The optimizers' configuration.

Every toggle of the update rules, declared once (metadata as in model/config.py).
"""

from dataclasses import dataclass
from typing import Literal

from .adam_config import AdamConfig
from .roles import with_rows
from .toggle import MUON_ONLY, ORTHOGONAL, toggle


@dataclass(frozen=True, kw_only=True)
@with_rows
class OptimConfig(AdamConfig):
    """Learning rates are per step, unscaled by the schedule.

    The cells of the table of roles (roles.py) are fields, too.
    """

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
    muon_momentum_cooldown_steps: int = toggle(
        0,
        record="r39",
        affects=("schedule", "loss"),
        doc="momentum falls linearly towards 0.85 over the last so many steps",
        choices={50: "r39"},
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
    muon_backend: Literal["newton_schulz", "polar_express", "svd"] = toggle(
        "newton_schulz",
        record="r04",
        choices={"polar_express": "r38", "svd": "r04"},
        doc=(
            "orthogonalisation: quintic iteration, one polynomial for each of five steps, or exact"
            " U V^T"
        ),
        requires={"*": ORTHOGONAL, "polar_express": {"optim.ns_steps": (5,)}},
    )
    muon_groups: Literal["matrix", "head_pairs"] = toggle(
        "matrix",
        record="r80",
        affects=("groups", "loss"),
        choices={"head_pairs": "r80"},
        doc="q and k are orthogonalised whole, or in blocks of two heads, each a matrix of its own",
        requires={"*": {**MUON_ONLY, "model.qkv_layout": ("separate",)}},
    )
    muon_variance: Literal["tensor", "input", "output"] | None = toggle(
        None,
        record="r41",
        affects=("groups", "loss"),
        choices={"tensor": "r41", "input": "r42", "output": "r48"},
        doc=(
            "bring an update's parts to one size by second moments: of each hidden unit of the MLP,"
            " and of each input or each output of attention's matrices; tensor: of the columns of"
            " a layer's q, k, v and output in one d x 4d tensor, whose memory is theirs in a row"
        ),
        requires={
            "*": MUON_ONLY,
            "tensor": {
                "model.qkv_layout": ("separate",),
                "optim.muon_comm": ("redundant",),
                "optim.muon_require_grad": (True,),
            },
        },
    )
    muon_beta2: float = toggle(
        0.95,
        record="r41",
        doc="decay of these second moments",
        choices={0.9: "r78"},
        ge=0,
        lt=1,
        requires={"*": {"optim.muon_variance": "not null"}},
    )
    muon_weight_decay: float = toggle(
        0.0,
        record="r24",
        doc="decay of the matrices",
        choices={1.2: "r43"},
        ge=0,
        le=100,
        requires={"*": MUON_ONLY},
    )
    muon_weight_decay_form: Literal["multiplicative", "cautious"] = toggle(
        "multiplicative",
        record="r24",
        choices={"multiplicative": "r24", "cautious": "r43"},
        doc=(
            "p <- (1 - lr wd) p; or p - lr^2 wd p, times the update scale, where p and its update"
            " have one sign"
        ),
        requires={"*": {"optim.muon_weight_decay": "not null"}},
    )
    weights_dtype: Literal["fp32", "bf16_mantissa"] = toggle(
        "fp32",
        record="r57",
        affects=("parameters", "initial", "loss"),
        choices={"fp32": "r02", "bf16_mantissa": "r57"},
        rounds=True,
        doc="matrices of Muon's in fp32; or in bf16, cut off and not rounded, with the other"
        " sixteen bits in the optimizer. Under precision.mode fp32 nothing is cut",
        requires={"*": MUON_ONLY},
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
        rounds=True,
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
