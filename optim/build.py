"""From parameters by role to optimizers: which rule and which rate moves which parameter."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
import torch._dynamo  # by every optimizer when it is made: imported here, a worker's forks share it
from torch.nn import Parameter

from .adam import Adam
from .config import OptimConfig
from .muon import Group, Muon, OrthogonalNesterov
from .variance import AVERAGED

Named = list[tuple[str, Parameter]]
# groups -> optimizers of somebody's own, and the groups that they leave to the configuration's
Rules = Callable[[list[Group]], tuple[list[torch.optim.Optimizer], list[Group]]]

ADAM_RATES = {  # role: the configuration field of its rate; None there means adam_lr
    "embed": "embed_lr",
    "value_embed": "value_embed_lr",
    "head": "head_lr",
    "scalar": "scalar_lr",
    "hidden": "adam_lr",  # only under matrix_optimizer adamw
}
MULTIPLIERS = {  # matrix of a block: the configuration field of the factor on its rate
    "qkv": "attn_lr_multiplier",
    "out": "attn_lr_multiplier",
    "up": "up_lr_multiplier",
    "down": "down_lr_multiplier",
}
MATRIX_OPTIMIZERS = {"muon": Muon, "orthogonal_nesterov": OrthogonalNesterov}
FUSED_DEVICES = ("cpu", "cuda")  # elsewhere the library has no fused kernel to offer


def build_optimizers(
    params: Mapping[str, Named],
    config: OptimConfig,
    *,
    dtype: torch.dtype,
    device_type: str,
    compile: bool = False,
    own: Rules | None = None,
) -> list[torch.optim.Optimizer]:
    """Optimizers over named parameters by role: embed, value_embed, head, scalar, hidden.

    params: role -> (name, parameter); a tied table is an embed. dtype: of the orthogonalisation.
    device_type: "cpu" or "cuda". compile: run it through torch.compile. Every group carries
    `role`, `names` and `base_lr`, the rate that `set_schedule` scales. own: what moves some of
    them, or all, instead; it sees to `base_lr`.
    Call it after the process group exists. Errors: ValueError, see Muon.
    """
    assert params.keys() <= ADAM_RATES.keys(), (
        f"unknown roles {sorted(params.keys() - ADAM_RATES.keys())}"
    )
    by_adam = {role: named for role, named in params.items() if named}
    matrices = by_adam.pop("hidden", []) if config.matrix_optimizer != "adamw" else []
    groups = _adam_groups(by_adam, config)
    matrix_groups = _matrix_groups(matrices, config)
    optimizers: list[torch.optim.Optimizer] = []
    if own is not None:
        optimizers, left = own([*groups, *matrix_groups])
        ids = {id(group) for group in left}
        groups = [group for group in groups if id(group) in ids]
        matrix_groups = [group for group in matrix_groups if id(group) in ids]
    # record 2 is one AdamW over everything
    single = config.adam_objects == "single" or config.matrix_optimizer == "adamw"
    parts = [groups] if single else [[group] for group in groups]
    optimizers += [_adam(part, config, device_type) for part in parts if part]
    if matrix_groups:
        optimizers.append(
            MATRIX_OPTIMIZERS[config.matrix_optimizer](
                matrix_groups, config, dtype=dtype, compile=compile
            )
        )
    return optimizers


def _group(role: str, named: Named, lr: float) -> Group:
    return {
        "params": [p for _, p in named],
        "names": [name for name, _ in named],
        "role": role,
        "base_lr": lr,
        "lr": lr,
    }


def _adam_groups(params: dict[str, Named], config: OptimConfig) -> list[Group]:
    """One group per role; value tables without a rate of their own join the token table's group."""
    if config.value_embed_lr is None and "embed" in params and "value_embed" in params:
        joined = params["embed"] + params["value_embed"]
        params = {role: named for role, named in params.items() if role != "value_embed"}
        params["embed"] = joined
    rates = {role: getattr(config, ADAM_RATES[role]) for role in params}
    return [
        _group(role, params[role], config.adam_lr if lr is None else lr)
        for role, lr in rates.items()
    ]


def _adam(groups: list[Group], config: OptimConfig, device_type: str) -> torch.optim.Optimizer:
    if config.adam_eps_form == "uncorrected":
        return Adam(groups, config)
    fused = config.adam_fused and device_type in FUSED_DEVICES
    rule = torch.optim.AdamW if config.weight_decay else torch.optim.Adam
    return rule(
        groups,
        lr=config.adam_lr,
        betas=(config.adam_beta1, config.adam_beta2),
        eps=config.adam_eps,
        weight_decay=config.weight_decay,
        fused=fused,
        foreach=not fused,
    )


@dataclass(frozen=True, kw_only=True)
class MatrixSettings:
    """What the matrices of a group have in common."""

    multiplier: float  # of the rate
    averaged: int | None  # axis of the second moments
    numel: int | None  # where updates are gathered in equal buffers, as record 15's are


def _settings_of(p: Parameter, config: OptimConfig) -> MatrixSettings:
    """A matrix that is none of a block's own is taken as attention's; a gate has no factor."""
    matrix = getattr(p, "matrix", None) or "qkv"
    averaged = AVERAGED[config.muon_variance][matrix] if config.muon_variance else None
    return MatrixSettings(
        multiplier=getattr(config, MULTIPLIERS[matrix]) if matrix in MULTIPLIERS else 1.0,
        averaged=averaged,
        numel=p.numel() if config.muon_comm == "grouped_all_gather" else None,
    )


def _matrix_groups(matrices: Named, config: OptimConfig) -> list[Group]:
    """One group for all matrices of equal settings, in the order of the first of each."""
    by_settings: dict[MatrixSettings, Named] = {}
    for name, p in matrices:
        by_settings.setdefault(_settings_of(p, config), []).append((name, p))
    groups = []
    for settings, named in by_settings.items():
        group = _group("hidden", named, config.muon_lr)
        groups.append(group | {"multiplier": settings.multiplier, "averaged": settings.averaged})
    return groups


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
