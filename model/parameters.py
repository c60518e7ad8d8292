"""Parameters that know their role and their initial values.

They are drawn by (seed, name) so that no toggle moves another's.

Roles: embed, head, hidden, scalar, value_embed. One of them may say which part of its role it is:
the table of pairs, a block's matrix, a gate, a scale of the stream. Optimizers find a parameter's
settings by them (optim/roles.py).
"""

import hashlib
import math

import torch
from torch import Tensor, nn

ROLES = ("embed", "head", "hidden", "scalar", "value_embed")
PARTS = {
    "embed": ("bigram",),
    "hidden": (
        *("qkv", "q", "k", "v", "out", "up", "down"),
        *("gate", "smear_gate", "skip_gate", "mudd", "mudd_gate"),
    ),
    "scalar": (
        "residual",
        "x0",
        "post",
        "skip",
        "xsa",
        "bigram_scale",
        "mudd_bias",
        "mudd_gate_bias",
    ),
}
# initial values: their standard deviation
NORMAL = {"normal": 1.0, "normal_0.01": 0.01, "normal_0.005": 0.005}
# the same times shape[-1]^1/2: half the width of uniform ones, of standard deviation 3^-1/2, 1/2, 1
UNIFORM = {"uniform": 1.0, "uniform_half": 3**0.5 / 2, "uniform_one": 3**0.5}
MIMETIC = {"mimetic_v": 1.0, "mimetic_out": -1.0}  # the sign of their diagonal


def parameter(
    shape: tuple[int, ...],
    *,
    role: str,
    init: str | float | tuple[float, ...],
    dtype: torch.dtype,
    init_dtype: torch.dtype = torch.float32,
    part: str | None = None,
) -> nn.Parameter:
    """An uninitialised parameter.

    role: one of ROLES, by which an optimizer finds it. init: "normal" N(0, 1), a narrower one of
    NORMAL, "uniform" +-1/sqrt(shape[-1]), another one of UNIFORM, one of MIMETIC, "zeros", or its
    constant values. init_dtype: in which it is drawn. part: one of its role's PARTS, by which an
    optimizer tells them apart.
    """
    assert role in ROLES, role
    assert part is None or part in PARTS[role], part
    p = nn.Parameter(torch.empty(shape, dtype=dtype))
    p.role, p.init, p.init_dtype = role, init, init_dtype  # type: ignore[attr-defined]
    p.part = part  # type: ignore[attr-defined]
    return p


def generator_of(name: str, seed: int) -> torch.Generator:
    """What `name` is drawn from, whatever else is there."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8]) >> 1)


def mimetic(noise: Tensor, sign: float, *, square: float = 0.05, deviation: float = 0.01) -> Tensor:
    """Plus or minus square^1/2 I, and deviation times `noise`, standard normal (d, d) (record 64).

    Of values and output, whose signs are opposite, the product is about -square I.
    """
    return torch.eye(len(noise)) * (sign * math.sqrt(square)) + deviation * noise


def initial_values(name: str, p: nn.Parameter, seed: int) -> Tensor:
    """Initial values of parameter `name`.

    fp32 on the CPU, from a generator of its own, rounded to its init dtype.
    """
    generator = generator_of(name, seed)
    init = p.init  # type: ignore[attr-defined]
    if init in NORMAL:
        values = NORMAL[init] * torch.randn(p.shape, generator=generator)
    elif init in UNIFORM:
        drawn = torch.rand(p.shape, generator=generator) * 2 - 1
        values = UNIFORM[init] * drawn / math.sqrt(p.shape[-1])
    elif init in MIMETIC:
        values = mimetic(torch.randn(p.shape, generator=generator), MIMETIC[init])
    elif init == "zeros":
        values = torch.zeros(p.shape)
    else:
        values = torch.tensor(init, dtype=torch.float32).expand(p.shape)
    return values.to(p.init_dtype)  # type: ignore[attr-defined]


@torch.no_grad()
def initialize(model: nn.Module, seed: int) -> None:
    """Give every parameter its initial values for this seed, whatever device it is on."""
    for name, p in model.named_parameters():
        p.copy_(initial_values(name, p, seed))


def parameters_by_role(model: nn.Module) -> dict[str, list[tuple[str, nn.Parameter]]]:
    """Role to (name, parameter), in the order of the model."""
    roles: dict[str, list[tuple[str, nn.Parameter]]] = {}
    for name, p in model.named_parameters():
        roles.setdefault(p.role, []).append((name, p))  # type: ignore[attr-defined]
    return roles
