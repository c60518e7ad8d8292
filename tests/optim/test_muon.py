"""Muon on one process against its formula, one matrix at a time; the exchange forms are in test_optim_exchange.py."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter

from harness.optim.config import OptimConfig
from harness.optim.muon import Muon, unit_rms
from harness.optim.orthogonalize import orthogonalize

SHAPES = [(8, 8), (24, 8), (8, 8), (32, 8), (8, 32), (8, 8), (32, 8), (24, 8)]
MOMENTA = [0.85, 0.9, 0.95, 0.95]


def make(shapes: list[tuple[int, ...]] = SHAPES, seed: int = 0) -> list[Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return [Parameter(torch.randn(*shape, generator=generator)) for shape in shapes]


def muon(
    params: list[Parameter],
    *,
    dtype: torch.dtype = torch.float32,
    compile: bool = False,
    **fields: Any,
) -> Muon:
    config = OptimConfig(matrix_optimizer="muon", **fields)
    names = [f"m{i}" for i in range(len(params))]
    return Muon([{"params": params, "names": names}], config, dtype=dtype, compile=compile)


def train(params: list[Parameter], optimizer: Muon, momenta: list[float] = MOMENTA) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    for momentum in momenta:
        for p in params:
            p.grad = torch.randn(p.shape, generator=generator)
        optimizer.param_groups[0]["momentum"] = momentum
        optimizer.step()
    return [p.detach() for p in params]


def by_the_formula(
    shapes: list[tuple[int, ...]], lr: float, dtype: torch.dtype, config: OptimConfig
) -> list[Tensor]:
    """The update rule written out for one matrix at a time."""

    def orthogonal(u: Tensor) -> Tensor:
        return orthogonalize(
            u,
            backend=config.muon_backend,
            steps=config.ns_steps,
            form=config.ns_form,
            norm=config.ns_norm,
            dtype=dtype,
        )

    def scaled(u: Tensor) -> Tensor:
        rows, cols = u.shape
        factor = {
            "one": 1.0,
            "unit_rms": math.sqrt(rows * cols) / u.float().norm().item(),
            "sqrt_max": math.sqrt(max(rows, cols)),
            "sqrt_ratio": math.sqrt(max(1, rows / cols)),
        }[config.update_scale]
        return u * factor if config.update_scale_in == "update" else u.float() * factor

    weights = [p.detach() for p in make(shapes)]
    buffers = [torch.zeros_like(w) for w in weights]
    generator = torch.Generator().manual_seed(1)
    for mu in MOMENTA:
        for i, w in enumerate(weights):
            g = torch.randn(w.shape, generator=generator)
            if config.muon_momentum_form == "sum":
                buffers[i] = mu * buffers[i] + g
                u = g + mu * buffers[i]
            else:
                buffers[i] = mu * buffers[i] + (1 - mu) * g
                u = (1 - mu) * g + mu * buffers[i]
            if not config.muon_nesterov:
                u = buffers[i]
            pieces = u.split(w.size(1)) if config.qkv_split and w.size(0) == 3 * w.size(1) else [u]
            w -= lr * torch.cat([scaled(orthogonal(piece)) for piece in pieces]).float()
    return weights


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"muon_momentum_form": "ema"},
        {"muon_nesterov": False},
        {"muon_nesterov": False, "muon_momentum_form": "ema"},
        {"muon_backend": "svd"},
        {"ns_steps": 3},
        {"ns_form": "polynomial"},
        {"ns_norm": "bf16"},
        {"ns_norm": "bf16_transposed"},
        {"update_scale": "unit_rms"},
        {"update_scale": "sqrt_max"},
        {"update_scale": "sqrt_ratio"},
        {"update_scale": "sqrt_max", "update_scale_in": "update"},
        {"update_scale": "unit_rms", "update_scale_in": "update"},
        {"qkv_split": True},
        {"qkv_split": True, "update_scale": "sqrt_max"},
        {"qkv_split": True, "update_scale": "sqrt_ratio", "update_scale_in": "update"},
        {"muon_comm": "flat_all_reduce"},
        {"muon_comm": "grouped_all_gather", "muon_uneven": "refuse"},
    ],
    ids=lambda fields: ",".join(f"{k}={v}" for k, v in fields.items()) or "plain",
)
def test_batches_move_matrices_as_the_formula_does_one_by_one(fields: dict[str, Any]) -> None:
    params = make()
    moved = train(params, muon(params, muon_lr=0.1, **fields))
    expected = by_the_formula(SHAPES, 0.1, torch.float32, OptimConfig(**fields))
    for result, reference in zip(moved, expected):
        torch.testing.assert_close(result, reference, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("where", ["step", "update"])
@pytest.mark.parametrize("norm", ["fp32", "bf16"])
def test_low_precision_agrees_to_its_rounding(where: str, norm: str) -> None:
    fields = {"update_scale": "sqrt_max", "update_scale_in": where, "ns_norm": norm}
    params = make()
    moved = train(params, muon(params, dtype=torch.bfloat16, muon_lr=0.1, **fields))
    expected = by_the_formula(SHAPES, 0.1, torch.bfloat16, OptimConfig(**fields))
    for result, reference in zip(moved, expected):
        torch.testing.assert_close(
            result, reference, atol=0.1 * math.sqrt(max(result.shape)) * 0.1, rtol=0
        )


def test_the_scale_in_the_update_costs_a_rounding_that_the_scale_in_the_step_does_not() -> None:
    """sqrt(8) is no bf16 number: multiplied into a bf16 update, the result is on the bf16 grid."""
    moved = {}
    for where in ("step", "update"):
        params = [Parameter(torch.zeros(8, 8))]
        optimizer = muon(
            params,
            dtype=torch.bfloat16,
            ns_norm="bf16",
            muon_lr=1.0,
            update_scale="sqrt_max",
            update_scale_in=where,
        )
        (moved[where],) = train(params, optimizer, momenta=[0.95])
    assert torch.equal(moved["update"], moved["update"].bfloat16().float())
    assert not torch.equal(moved["step"], moved["step"].bfloat16().float())
    torch.testing.assert_close(moved["step"], moved["update"], atol=0.02, rtol=0.01)


def test_sum_and_average_agree_while_momentum_is_constant_and_not_while_it_rises() -> None:
    def difference(momenta: list[float]) -> float:
        moved = []
        for form in ("sum", "ema"):
            params = make()
            moved.append(train(params, muon(params, muon_momentum_form=form, muon_lr=0.1), momenta))
        return max((a - b).abs().max().item() for a, b in zip(*moved))

    assert difference([0.95] * 4) < 1e-5
    assert difference([0.85, 0.9, 0.95, 0.95]) > 1e-3


def test_a_merged_matrix_is_split_into_three_orthogonal_squares() -> None:
    for split in (True, False):
        params = [Parameter(torch.zeros(24, 8)), Parameter(torch.zeros(32, 8))]
        merged, up = train(
            params, muon(params, qkv_split=split, muon_backend="svd", muon_lr=1.0), momenta=[0.95]
        )
        whole = merged.mT @ merged
        for square in merged.split(8):
            assert torch.allclose(square.mT @ square, torch.eye(8), atol=1e-5) == split
        torch.testing.assert_close(whole, torch.eye(8) * (3 if split else 1), atol=1e-5, rtol=0)
        torch.testing.assert_close(
            up.mT @ up, torch.eye(8), atol=1e-5, rtol=0
        )  # not 3d x d: never split


def test_unit_rms_is_exact_and_leaves_zero_at_zero() -> None:
    u = torch.randn(3, 4, 6)
    u[1] = 0
    rms = (u * unit_rms(u)).square().mean(dim=(-2, -1)).sqrt()
    torch.testing.assert_close(rms, torch.tensor([1.0, 0.0, 1.0]))


@pytest.mark.parametrize(
    ("kind", "size", "evens"),
    [("output", 1.0, False), ("tensor", 1.0, True), ("tensor", 1e-15, False)],
)
def test_rows_are_brought_to_one_size_where_their_moments_are_not_too_small(
    kind: Any, size: float, evens: bool
) -> None:
    """1e-10 at least for a moment; under `tensor` that is for its root."""
    p = Parameter(torch.zeros(8, 2))
    p.grad = size * torch.randn(p.shape, generator=torch.Generator().manual_seed(0))
    config = OptimConfig(matrix_optimizer="muon", muon_variance=kind, muon_beta2=1 - 1e-12)
    optimizer = Muon([{"params": [p], "names": ["m"], "averaged": -1}], config)
    assert optimizer.orthogonalize.func is orthogonalize, "nothing is compiled unless it is asked"
    optimizer.step()
    sizes = p.detach().norm(dim=1)
    assert bool(sizes.max() < 1.01 * sizes.min()) == evens
    assert sizes.min() > 0


def test_a_zero_gradient_moves_nothing() -> None:
    for scale in ("one", "unit_rms", "sqrt_max", "sqrt_ratio"):
        params = make()
        before = [p.detach().clone() for p in params]
        for p in params:
            p.grad = torch.zeros_like(p)
        muon(params, update_scale=scale).step()
        assert all(torch.equal(p, b) for p, b in zip(params, before))


def test_a_matrix_without_gradient_is_left_alone_or_refused_by_name() -> None:
    params = make()
    muon(params).step()  # no gradient at all: nothing to do
    before = params[2].detach().clone()
    for i, p in enumerate(params):
        p.grad = None if i == 2 else torch.ones_like(p)
    optimizer = muon(params)
    optimizer.step()
    assert torch.equal(params[2], before)
    assert params[2] not in optimizer.state
    assert len(optimizer.state) == len(params) - 1
    with pytest.raises(
        ValueError, match=r"^optim\.muon_require_grad: m2 has no gradient; set it to false"
    ):
        muon(params, muon_require_grad=True).step()


def test_a_vector_is_refused_by_name(kept_line: Callable[[str], None]) -> None:
    with pytest.raises(ValueError, match="is no matrix") as refused:
        muon(make([(2, 2), (3,)]))
    kept_line(str(refused.value))


def test_gradients_are_left_as_they_were() -> None:
    for form in ("sum", "ema"):
        params = make()
        for p in params:
            p.grad = torch.ones_like(p)
        muon(params, muon_momentum_form=form).step()
        assert all(torch.equal(p.grad, torch.ones_like(p)) for p in params if p.grad is not None)


def test_state_survives_a_round_trip() -> None:
    straight, resumed = make(), make()
    train(straight, muon(straight, muon_lr=0.1))
    first = muon(resumed, muon_lr=0.1)
    generator = torch.Generator().manual_seed(1)
    for step, momentum in enumerate(MOMENTA):
        if step == 2:
            second = muon(resumed, muon_lr=0.1)
            second.load_state_dict(first.state_dict())
            first = second
        for p in resumed:
            p.grad = torch.randn(p.shape, generator=generator)
        first.param_groups[0]["momentum"] = momentum
        first.step()
    assert all(torch.equal(a, b) for a, b in zip(straight, resumed))


def test_large_cpu_batches_are_cut_and_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, cut = make(), make()
    train(whole, muon(whole, muon_lr=0.1))
    monkeypatch.setattr("harness.optim.exchange.CPU_BATCH_ELEMENTS", 1)
    train(cut, muon(cut, muon_lr=0.1))
    for a, b in zip(whole, cut):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def test_one_orthogonalisation_per_shape() -> None:
    params = make()
    optimizer = muon(params)
    seen = []
    original = optimizer.orthogonalize

    def counting(u: Tensor) -> Tensor:
        seen.append(tuple(u.shape))
        return original(u)

    optimizer.orthogonalize = counting  # type: ignore[assignment]
    train(params, optimizer, momenta=[0.95])
    assert sorted(seen) == [(1, 8, 32), (2, 24, 8), (2, 32, 8), (3, 8, 8)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inside the compiler
def test_compiled_orthogonalisation_gives_the_same() -> None:
    torch._dynamo.reset()
    eager, compiled = make(), make()
    train(eager, muon(eager, muon_lr=0.1))
    train(compiled, muon(compiled, muon_lr=0.1, compile=True))
    for a, b in zip(eager, compiled):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)
