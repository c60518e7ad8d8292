"""From roles to optimizers: the records' groups, the schedule written into them, and a toggle for every field."""

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter

import harness.optim.exchange
from harness.optim.build import Named, build_optimizers, normalize_gradients, set_schedule
from harness.optim.config import OptimConfig
from harness.optim.muon import Muon, OrthogonalNesterov
from harness.optim.orthogonalize import orthogonalize
from harness.optim.roles import ROWS

GOLDEN = Path(__file__).resolve().parents[1] / "data" / "golden"
ADAM_08 = {"adam_lr": 2e-3, "embed_lr": 0.3, "head_lr": 2e-3, "adam_fused": True}
ADAM_11 = {"embed_lr": 0.6, "head_lr": 8e-3, "scalar_lr": 0.04, "adam_fused": True}
CONFIGS = {
    "r03pre": OptimConfig(
        adam_lr=3.6e-3,
        matrix_optimizer="orthogonal_nesterov",
        muon_lr=3.6e-4,
        update_scale="unit_rms",
    ),
    "r04": OptimConfig(
        adam_lr=3.6e-3,
        matrix_optimizer="muon",
        muon_lr=3.6e-4,
        update_scale="sqrt_max",
        qkv_split=True,
    ),
    "r08": OptimConfig(
        matrix_optimizer="muon", update_scale="sqrt_ratio", muon_comm="flat_all_reduce", **ADAM_08
    ),
    "r15": OptimConfig(
        matrix_optimizer="muon",
        muon_lr=0.05,
        adam_beta1=0.8,
        muon_comm="grouped_all_gather",
        **ADAM_11,
    ),
    "r18": OptimConfig(
        matrix_optimizer="muon",
        muon_lr=0.05,
        adam_beta1=0.8,
        adam_objects="single",
        muon_comm="grouped_all_gather",
        **ADAM_11,
    ),
}


def role(name: str, shape: list[int]) -> str:
    if name == "embed.weight":
        return "embed"
    if name == "head.weight":
        return "head"
    if name.startswith("value_embeds"):
        return "value_embed"
    return "hidden" if len(shape) == 2 else "scalar"


def golden_parameters(record: str) -> tuple[dict[str, Named], list[dict[str, Any]]]:
    facts = json.loads((GOLDEN / f"{record}.json").read_text())
    shapes = facts["shapes"]
    if isinstance(shapes, list):
        shapes = dict(zip(facts["parameter_order"], shapes))
    params: dict[str, Named] = {}
    for name in facts["parameter_order"]:
        params.setdefault(role(name, shapes[name]), []).append(
            (name, Parameter(torch.randn(shapes[name])))
        )
    return params, facts["optimizer_groups"]


@pytest.mark.parametrize("record", CONFIGS)
def test_groups_are_those_of_the_record(record: str) -> None:
    params, recorded = golden_parameters(record)
    optimizers = build_optimizers(params, CONFIGS[record], dtype=torch.float32, device_type="cpu")
    built = {
        frozenset(group["names"]): (group["base_lr"], tuple(group.get("betas", ())))
        for optimizer in optimizers
        for group in optimizer.param_groups
    }
    assert built == {
        frozenset(group["params"]): (group["base_lr"], tuple(group["hyper"].get("betas", ())))
        for group in recorded
    }


@pytest.mark.parametrize(
    ("record", "kinds"),
    [
        ("r03pre", [torch.optim.Adam, OrthogonalNesterov]),
        ("r08", [torch.optim.Adam, torch.optim.Adam, Muon]),
        ("r15", [torch.optim.Adam, torch.optim.Adam, torch.optim.Adam, Muon]),
        ("r18", [torch.optim.Adam, Muon]),
    ],
)
def test_objects_are_those_of_the_record(record: str, kinds: list[type]) -> None:
    params, _ = golden_parameters(record)
    optimizers = build_optimizers(params, CONFIGS[record], dtype=torch.float32, device_type="cpu")
    assert [type(optimizer) for optimizer in optimizers] == kinds


def small_parameters() -> dict[str, Named]:
    generator = torch.Generator().manual_seed(0)
    shapes = {
        "embed": [(20, 8)],
        "value_embed": [(20, 8)],
        "head": [(20, 8)],
        "scalar": [(2,), (2,)],
        "hidden": [(24, 8), (8, 8), (32, 8), (8, 32)],
    }
    return {
        role: [
            (f"{role}{i}", Parameter(torch.randn(shape, generator=generator)))
            for i, shape in enumerate(some)
        ]
        for role, some in shapes.items()
    }


def test_record_2_is_one_adamw_over_everything() -> None:
    config = OptimConfig(weight_decay=0.1)
    (optimizer,) = build_optimizers(
        small_parameters(), config, dtype=torch.float32, device_type="cpu"
    )
    assert type(optimizer) is torch.optim.AdamW
    assert {(group["base_lr"], group["weight_decay"]) for group in optimizer.param_groups} == {
        (1.8e-3, 0.1)
    }
    assert sum(len(group["params"]) for group in optimizer.param_groups) == 9


def test_every_parameter_is_in_exactly_one_group() -> None:
    for config in (*CONFIGS.values(), OptimConfig(), OptimConfig(value_embed_lr=0.1)):
        params = small_parameters()
        optimizers = build_optimizers(params, config, dtype=torch.float32, device_type="cpu")
        grouped = [
            id(p)
            for optimizer in optimizers
            for group in optimizer.param_groups
            for p in group["params"]
        ]
        assert sorted(grouped) == sorted(id(p) for named in params.values() for _, p in named)
        assert all(
            len(group["names"]) == len(group["params"])
            for optimizer in optimizers
            for group in optimizer.param_groups
        )


def test_value_tables_share_the_token_tables_rate_until_they_have_their_own() -> None:
    def rates(config: OptimConfig) -> dict[str, float]:
        optimizers = build_optimizers(
            small_parameters(), config, dtype=torch.float32, device_type="cpu"
        )
        groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        return {name: group["base_lr"] for group in groups for name in group["names"]}

    shared = rates(OptimConfig(embed_lr=0.3))
    assert (shared["embed0"], shared["value_embed0"], shared["head0"]) == (0.3, 0.3, 1.8e-3)
    own = rates(OptimConfig(embed_lr=0.3, value_embed_lr=0.1))
    assert (own["embed0"], own["value_embed0"]) == (0.3, 0.1)


def test_absent_roles_leave_nothing_behind() -> None:
    config = CONFIGS["r08"]
    some = {"embed": small_parameters()["embed"], "scalar": [], "hidden": []}
    (optimizer,) = build_optimizers(some, config, dtype=torch.float32, device_type="cpu")
    assert [group["role"] for group in optimizer.param_groups] == ["embed"]
    assert build_optimizers({}, config, dtype=torch.float32, device_type="cpu") == []


def test_the_schedule_reaches_every_group() -> None:
    optimizers = build_optimizers(
        small_parameters(), CONFIGS["r15"], dtype=torch.float32, device_type="cpu"
    )
    set_schedule(optimizers, 0.5, 0.87)
    set_schedule(optimizers, 0.25, 0.88)  # factors do not accumulate
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            assert group["lr"] == 0.25 * group["base_lr"]
            assert group.get("momentum", 0.88) == 0.88
    assert (
        sum("momentum" in group for group in optimizers[-1].param_groups)
        == len(optimizers[-1].param_groups)
        == 3
    )


@pytest.mark.parametrize("fused", [True, False])
def test_low_precision_tables_keep_their_dtype(fused: bool) -> None:
    table = Parameter(torch.randn(20, 8).bfloat16())
    table.grad = torch.randn_like(table)
    config = OptimConfig(adam_fused=fused)
    (optimizer,) = build_optimizers(
        {"embed": [("embed", table)]}, config, dtype=torch.bfloat16, device_type="cpu"
    )
    before = table.detach().clone()
    optimizer.step()
    assert not torch.equal(table, before)
    assert {optimizer.state[table][key].dtype for key in ("exp_avg", "exp_avg_sq")} == {
        torch.bfloat16
    }


def test_gradients_are_normalised_tensor_by_tensor() -> None:
    params = [
        Parameter(torch.randn(3, 4)),
        Parameter(torch.randn(5)),
        Parameter(torch.randn(2)),
        Parameter(torch.randn(2)),
    ]
    for p, size in zip(params, (1e3, 1e-2, 0.0)):
        p.grad = size * torch.randn_like(p)
    before = [None if p.grad is None else p.grad.clone() for p in params]
    normalize_gradients(params)
    for p, g in zip(params, before):
        if g is None:
            assert p.grad is None
        else:
            torch.testing.assert_close(p.grad, g / (g.norm() + 1e-6))


def trajectory(config: OptimConfig, dtype: torch.dtype) -> tuple[Any, list[Tensor]]:
    """What a configuration builds, and where three steps lead."""
    params = small_parameters()
    optimizers = build_optimizers(params, config, dtype=dtype, device_type="cpu")
    everything = [p for named in params.values() for _, p in named]
    generator = torch.Generator().manual_seed(1)
    for momentum in (0.85, 0.9, config.muon_momentum):
        for p in everything:
            p.grad = torch.randn(p.shape, generator=generator)
        if config.grad_norm_per_tensor:
            normalize_gradients(everything)
        set_schedule(optimizers, 1.0, momentum)
        for optimizer in optimizers:
            optimizer.step()
    structure = [
        (
            type(optimizer).__name__,
            optimizer.defaults.get("fused"),
            [group["names"] for group in optimizer.param_groups],
        )
        for optimizer in optimizers
    ]
    return structure, [p.detach() for p in everything]


# Another value for every field whose effect one process shows. Elsewhere: muon_uneven and the collectives of muon_comm in
# test_optim_exchange.py, muon_require_grad in test_optim_muon.py, the order of ns_norm's operations in
# test_optim_orthogonalize.py, muon_momentum_warmup_steps in test_optim_schedule.py.
OTHER: dict[str, tuple[OptimConfig, Any]] = {
    field: (base, value)
    for base, changes in (
        (
            OptimConfig(),
            {
                "adam_lr": 1e-3,
                "embed_lr": 0.3,
                "head_lr": 0.1,
                "value_embed_lr": 0.2,
                "scalar_lr": 0.04,
                "adam_beta1": 0.8,
                "adam_beta2": 0.99,
                "adam_eps": 1e-3,
                "weight_decay": 0.1,
                "adam_eps_form": "uncorrected",
                "adam_fused": True,
                "grad_norm_per_tensor": True,
                "matrix_optimizer": "muon",
            },
        ),
        (
            OptimConfig(matrix_optimizer="muon", ns_norm="bf16", update_scale="sqrt_max"),
            {
                "adam_objects": "single",
                "muon_lr": 0.05,
                "muon_momentum": 0.9,
                "muon_momentum_form": "ema",
                "muon_nesterov": False,
                "muon_backend": "svd",
                "ns_steps": 6,
                "ns_form": "polynomial",
                "ns_norm": "fp32",
                "update_scale": "sqrt_ratio",
                "update_scale_in": "update",
                "qkv_split": True,
                "muon_comm": "grouped_all_gather",
                "muon_variance": "output",
                "muon_weight_decay": 1.2,
                "attn_lr_multiplier": 2.0,
            },
        ),
        (
            OptimConfig(matrix_optimizer="muon", muon_variance="input", muon_weight_decay=1.2),
            {"muon_beta2": 0.9, "muon_weight_decay_form": "cautious"},
        ),
        (
            OptimConfig(adam_eps_form="uncorrected", weight_decay=0.1),
            {"weight_decay_form": "cautious"},
        ),
    )
    for field, value in changes.items()
}
ELSEWHERE = {
    "muon_uneven",
    "muon_require_grad",
    "muon_momentum_warmup_steps",
    "muon_momentum_cooldown_steps",
    "muon_groups",  # of q and k: test_two_heads_are_a_matrix_of_their_own
    "adam_every",  # test_cadence.py
    "adam_moments_dtype",  # test_adam.py
    "scalar_freeze_steps",
    "tie_until",
    "tie_ends",
    "weights_dtype",  # test_mantissa.py
}
CELLS = {f"{row}_{name}" for row in ROWS for name in ROWS[row].settings}  # test_roles.py


def test_no_field_is_forgotten() -> None:
    assert OTHER.keys() | ELSEWHERE | CELLS == {field.name for field in fields(OptimConfig)}


@pytest.mark.parametrize("field", OTHER)
def test_every_toggle_bites(field: str) -> None:
    base, value = OTHER[field]
    structure, weights = trajectory(base, torch.bfloat16)
    other_structure, other_weights = trajectory(replace(base, **{field: value}), torch.bfloat16)
    assert structure != other_structure or not all(
        torch.equal(a, b) for a, b in zip(weights, other_weights)
    )


def test_orthogonal_nesterov_is_muon_at_its_plain_values_under_its_own_name() -> None:
    (structure, weights), (other_structure, other_weights) = (
        trajectory(OptimConfig(matrix_optimizer=name), torch.float32)  # type: ignore[arg-type]
        for name in ("muon", "orthogonal_nesterov")
    )
    assert (structure[-1][0], other_structure[-1][0]) == ("Muon", "OrthogonalNesterov")
    assert all(torch.equal(a, b) for a, b in zip(weights, other_weights))


def test_the_matrices_of_a_block_have_settings_of_their_own() -> None:
    """A factor on the rate, and the axis of their second moments; one group where they are equal."""
    shapes = {"qkv": (8, 8), "out": (8, 8), "up": (32, 8), "down": (8, 32), "gate": (4, 12)}
    named: Named = []
    for matrix, shape in shapes.items():
        p = Parameter(torch.ones(shape))
        p.part = matrix  # type: ignore[attr-defined]
        named.append((matrix, p))

    def settings(**fields: Any) -> dict[str, tuple[float, int | None]]:
        config = OptimConfig(matrix_optimizer="muon", **fields)
        (muon,) = build_optimizers(
            {"hidden": named}, config, dtype=torch.float32, device_type="cpu"
        )
        groups = {tuple(g["names"]): (g["multiplier"], g["averaged"]) for g in muon.param_groups}
        return {"+".join(names): of_group for names, of_group in groups.items()}

    assert settings() == {"qkv+out+up+down+gate": (1.0, None)}
    assert settings(up_lr_multiplier=2.0, down_lr_multiplier=4.0) == {
        "qkv+out+gate": (1.0, None),
        "up": (2.0, None),
        "down": (4.0, None),
    }
    assert settings(muon_variance="input") == {"qkv+out+down+gate": (1.0, -2), "up": (1.0, -1)}
    assert settings(muon_variance="output") == {"qkv+out+up+gate": (1.0, -1), "down": (1.0, -2)}
    assert settings(attn_lr_multiplier=2.0) == {
        "qkv+out": (2.0, None),
        "up+down+gate": (1.0, None),
    }


def attention(inputs: int = 8) -> Named:
    """q, k, v and the output of two layers of four heads of two channels, and a matrix of an MLP."""
    generator = torch.Generator().manual_seed(0)
    named: Named = []
    for layer in range(2):
        for part in ("q", "k", "v", "out", "up"):
            p = Parameter(torch.randn(32 if part == "up" else 8, inputs, generator=generator))
            p.part = part  # type: ignore[attr-defined]
            named.append((f"{part}{layer}", p))
    return named


def after_a_step(named: Named, **fields: Any) -> tuple[Muon, dict[str, Tensor]]:
    """Muon, and what it moved every matrix by."""
    config = OptimConfig(matrix_optimizer="muon", muon_lr=1.0, muon_momentum=0.0, **fields)
    (muon,) = build_optimizers(
        {"hidden": named}, config, dtype=torch.float32, device_type="cpu", head_dim=2
    )
    before = {name: p.detach().clone() for name, p in named}
    for i, (_, p) in enumerate(named):
        p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(i))
    muon.step()
    assert isinstance(muon, Muon)
    return muon, {name: before[name] - p.detach() for name, p in named}


def test_two_heads_are_a_matrix_of_their_own() -> None:
    """q and k by blocks of four rows, with numbers for every input; the rest as it was."""
    _, whole = after_a_step(attention(12))
    muon, pairs = after_a_step(attention(12), muon_groups="head_pairs")
    for name, update in pairs.items():
        if name[0] in "qk":
            gradient = torch.randn(
                8, 12, generator=torch.Generator().manual_seed(list(pairs).index(name))
            )
            torch.testing.assert_close(update, torch.cat([*map(orthogonalize, gradient.split(4))]))
            assert not torch.allclose(update, whole[name])
        else:
            assert torch.equal(update, whole[name])
    muon, _ = after_a_step(attention(12), muon_groups="head_pairs", muon_variance="output")
    seconds = {
        name: tuple(muon.state[p]["second"].shape)
        for group in muon.param_groups
        for name, p in zip(group["names"], group["params"])
    }
    assert (seconds["q0"], seconds["v0"]) == ((2, 1, 12), (1, 8, 1))


@pytest.mark.parametrize("elements", [2**17, 64])
def test_a_layers_attention_has_its_numbers_in_common(
    elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The update of all four keeps its size, by the columns of one 8 x 32 tensor; no batch parts them."""
    monkeypatch.setattr(harness.optim.exchange, "CPU_BATCH_ELEMENTS", elements)
    muon, joined = after_a_step(attention(), muon_variance="tensor")
    _, plain = after_a_step(attention())
    for layer in range(2):
        names = [f"{part}{layer}" for part in ("q", "k", "v", "out")]
        tensor = torch.cat([plain[name].flatten() for name in names]).view(8, 32)
        scaled = tensor / tensor.square().mean(0).sqrt()
        scaled *= tensor.norm() / scaled.norm()
        ours = torch.cat([joined[name].flatten() for name in names]).view(8, 32)
        torch.testing.assert_close(ours, scaled)
    held = [p for group in muon.param_groups for p in group["params"] if "second" in muon.state[p]]
    assert sorted(p.part for p in held) == ["q", "q", "up", "up"]  # type: ignore[attr-defined]
