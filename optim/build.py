"""From parameters by role to optimizers: which rule and which rate moves which parameter."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import partial

import torch
import torch._dynamo  # by every optimizer when it is made: imported here, a worker's forks share it
from torch.nn import Parameter

from .adam import MOMENTS, Adam
from .config import OptimConfig
from .muon import Group, Muon, OrthogonalNesterov
from .roles import role_like, row_of, setting
from .variance import AVERAGED, ROWS

Named = list[tuple[str, Parameter]]
# groups -> optimizers of somebody's own, and the groups that they leave to the configuration's
Rules = Callable[[list[Group]], tuple[list[torch.optim.Optimizer], list[Group]]]

JOINED = ("q", "k", "v", "out")  # a layer's attention, where statistics are of all in one
ROLES = ("embed", "value_embed", "head", "scalar", "hidden")
MATRIX_OPTIMIZERS = {"muon": Muon, "orthogonal_nesterov": OrthogonalNesterov}
FUSED_DEVICES = ("cpu", "cuda")  # elsewhere the library has no fused kernel to offer


def build_optimizers(
    params: Mapping[str, Named],
    config: OptimConfig,
    *,
    dtype: torch.dtype,
    device_type: str,
    head_dim: int = 1,
    compile: bool = False,
    own: Rules | None = None,
) -> list[torch.optim.Optimizer]:
    """Optimizers over named parameters by role: embed, value_embed, head, scalar, hidden.

    params: role -> (name, parameter); a tied table is an embed. dtype: of the orthogonalisation;
    where it is fp32, moments are, too. device_type: "cpu" or "cuda". head_dim: rows of q and k for
    each head. compile: run it through torch.compile. own: what moves some of them, or all, instead;
    it sees to `base_lr`.
    A group holds parameters of one role with equal settings, and carries `role`, `names`,
    `base_lr`, the rate that `set_schedule` scales, and whether it `waits` or `rests` (cadence.py).
    Call it after the process group exists. Errors: ValueError, see Muon.
    """
    assert params.keys() <= set(ROLES), f"unknown roles {sorted(params.keys() - set(ROLES))}"
    groups, matrix_groups = _groups(params, config, head_dim)
    optimizers: list[torch.optim.Optimizer] = []
    if own is not None:
        optimizers, left = own([*groups, *matrix_groups])
        ids = {id(group) for group in left}
        groups = [group for group in groups if id(group) in ids]
        matrix_groups = [group for group in matrix_groups if id(group) in ids]
    # record 2 is one AdamW over everything
    single = config.adam_objects == "single" or config.matrix_optimizer == "adamw"
    parts = [groups] if single else [[group] for group in groups]
    moments = None if dtype == torch.float32 else MOMENTS[config.adam_moments_dtype]
    optimizers += [_adam(part, config, device_type, moments) for part in parts if part]
    if matrix_groups:
        optimizers.append(
            MATRIX_OPTIMIZERS[config.matrix_optimizer](
                matrix_groups, config, dtype=dtype, compile=compile
            )
        )
    return optimizers


@dataclass(frozen=True, kw_only=True)
class AdamSettings:
    """What the parameters of a group of Adam's have in common, by its names for it."""

    lr: float
    betas: tuple[float, float]
    eps: float
    weight_decay: float
    waits: bool  # for its gradients to add up over several updates


@dataclass(frozen=True, kw_only=True)
class MatrixSettings:
    """What the matrices of a group have in common."""

    lr: float
    multiplier: float  # of the rate
    averaged: int | None  # axis of the second moments
    joined: int  # matrices in a row that have them in common
    rows: int | None  # of the blocks that are matrices of their own
    numel: int | None  # where updates are gathered in equal buffers, as record 15's are


def settings_of(
    role: str, p: Parameter, config: OptimConfig, head_dim: int
) -> AdamSettings | MatrixSettings:
    """What the table of roles says of a parameter.

    A matrix that is none of a block's own is taken as attention's.
    """
    part = getattr(p, "part", None)
    row = row_of(role, part)
    of_row = partial(setting, config, row)
    if role != "hidden" or of_row("rule") in ("adam", "adamw"):
        return AdamSettings(
            lr=of_row("lr"),
            betas=(of_row("beta1"), of_row("beta2")),
            eps=of_row("eps"),
            weight_decay=of_row("weight_decay"),
            waits=config.adam_every > 1,
        )
    axes = AVERAGED[config.muon_variance] if config.muon_variance else {}
    averaged = axes.get(row, axes.get("attn"))
    of_heads = config.muon_groups == "head_pairs" and part in ("q", "k")
    joined = config.muon_variance == "tensor" and part in JOINED
    return MatrixSettings(
        lr=config.muon_lr,
        multiplier=of_row("lr_multiplier"),
        averaged=ROWS if of_heads and averaged is not None else averaged,
        joined=len(JOINED) if joined else 1,
        rows=2 * head_dim if of_heads else None,
        numel=p.numel() if config.muon_comm == "grouped_all_gather" else None,
    )


def _groups(
    params: Mapping[str, Named], config: OptimConfig, head_dim: int
) -> tuple[list[Group], list[Group]]:
    """Groups of Adam's and of matrices, in the order of the first parameter of each.

    Value tables that are as the token table join it.
    """
    of_scalars = settings_of("scalar", Parameter(torch.empty(0)), config, head_dim)
    groups: dict[tuple[str, AdamSettings | MatrixSettings], Group] = {}
    for role, named in params.items():
        for name, p in named:
            settings = settings_of(role, p, config, head_dim)
            key = (role_like(role), settings)
            if key not in groups:
                groups[key] = {"params": [], "names": [], "role": role, "base_lr": settings.lr}
                groups[key] |= {**asdict(settings), "rests": key == ("scalar", of_scalars)}
            group = groups[key]
            group["params"].append(p)
            group["names"].append(name)
    adam = [group for (_, s), group in groups.items() if isinstance(s, AdamSettings)]
    matrices = [group for (_, s), group in groups.items() if isinstance(s, MatrixSettings)]
    return adam, matrices


def _adam(
    groups: list[Group], config: OptimConfig, device_type: str, moments: torch.dtype | None
) -> torch.optim.Optimizer:
    if config.adam_eps_form == "uncorrected":
        return Adam(groups, config, moments)
    fused = config.adam_fused and device_type in FUSED_DEVICES
    decays = any(group["weight_decay"] for group in groups)
    rule = torch.optim.AdamW if decays else torch.optim.Adam
    return rule(groups, fused=fused, foreach=not fused)


@torch.no_grad()
def narrow_matrices(params: Mapping[str, Named], config: OptimConfig) -> None:
    """Store the matrices of Muon's in bf16, under `weights_dtype: bf16_mantissa`."""
    for _, p in params.get("hidden", ()) if config.weights_dtype == "bf16_mantissa" else ():
        if isinstance(settings_of("hidden", p, config, 1), MatrixSettings):
            p.data = p.data.to(torch.bfloat16)


def set_schedule(
    optimizers: Iterable[torch.optim.Optimizer], lr_factor: float, momentum: float
) -> None:
    """Write this step's rate into every group, and its momentum into every group of Muon's."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["base_lr"] * lr_factor
            if isinstance(optimizer, Muon):
                group["momentum"] = momentum


@torch.no_grad()
def normalize_gradients(params: Iterable[Parameter]) -> None:
    """g <- g / (||g||_2 + 1e-6) for each tensor by itself, in place (the code of June 2024)."""
    grads = [p.grad for p in params if p.grad is not None]
    norms = torch._foreach_norm(grads)
    torch._foreach_add_(norms, 1e-6)
    torch._foreach_div_(grads, norms)
