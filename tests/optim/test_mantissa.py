"""Matrices in two halves of their bits: together an fp32 step, the first half cut off."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from harness.optim.build import build_optimizers, narrow_matrices
from harness.optim.config import OptimConfig
from harness.optim.mantissa import joined, parted
from harness.optim.muon import Muon

SHAPES = [(8, 8), (24, 8), (8, 8)]
DECAYS: list[dict[str, Any]] = [
    {},
    {"muon_weight_decay": 1.0},
    {"muon_weight_decay": 1.0, "muon_weight_decay_form": "cautious", "muon_variance": "output"},
]


def start() -> list[Parameter]:
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(shape, generator=generator) for shape in SHAPES]
    return [Parameter(matrix.bfloat16().float()) for matrix in drawn]


def made(params: list[Parameter], config: OptimConfig) -> Muon:
    named = {"hidden": [(f"m{i}", p) for i, p in enumerate(params)]}
    narrow_matrices(named, config)
    (muon,) = build_optimizers(named, config, dtype=torch.float32, device_type="cpu")
    assert isinstance(muon, Muon)
    return muon


def give(params: list[Parameter], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for p in params:
        p.grad = torch.randn(p.shape, generator=generator).bfloat16().to(p.dtype)


def whole(muon: Muon, p: Parameter) -> Tensor:
    return joined(p.detach(), muon.state[p]["bits"])


def test_two_halves_are_the_value_cut_off() -> None:
    value = torch.randn(1000) * torch.randn(1000).exp()
    high, low = parted(value)
    assert (high.dtype, low.dtype) == (torch.bfloat16, torch.int16)
    assert torch.equal(joined(high, low), value)
    assert bool((high.float().abs() <= value.abs()).all())
    assert not torch.equal(high, value.bfloat16())  # rounded


def test_a_step_is_the_step_in_fp32() -> None:
    for fields in DECAYS:
        plain = OptimConfig(matrix_optimizer="muon", **fields)
        halves = OptimConfig(matrix_optimizer="muon", weights_dtype="bf16_mantissa", **fields)
        params, of_halves = start(), start()
        muon, muon_of_halves = made(params, plain), made(of_halves, halves)
        assert {p.dtype for p in of_halves} == {torch.bfloat16}
        for seed in range(4):
            for each, optimizer in ((params, muon), (of_halves, muon_of_halves)):
                give(each, seed)
                optimizer.step()
        for p, of_halves_p in zip(params, of_halves):
            torch.testing.assert_close(
                whole(muon_of_halves, of_halves_p), p.detach(), atol=1e-6, rtol=0
            )
        memory = muon_of_halves.state[of_halves[0]]
        assert memory["momentum_buffer"].dtype == torch.float32


def test_what_was_saved_goes_on_bit_for_bit() -> None:
    config = OptimConfig(matrix_optimizer="muon", weights_dtype="bf16_mantissa")
    params, again = start(), start()
    muon, later = made(params, config), made(again, config)
    give(params, 0)
    muon.step()
    for p, q in zip(params, again):
        q.data.copy_(p.data)
    later.load_state_dict(muon.state_dict())
    for each, optimizer in ((params, muon), (again, later)):
        give(each, 1)
        optimizer.step()
    for p, q in zip(params, again):
        assert torch.equal(whole(muon, p), whole(later, q))


def test_gates_that_adam_moves_stay_as_they_are() -> None:
    gate, matrix = Parameter(torch.zeros(4, 12)), Parameter(torch.zeros(8, 8))
    gate.part = "gate"  # type: ignore[attr-defined]
    params = {"hidden": [("gate", gate), ("matrix", matrix)]}
    config = OptimConfig(matrix_optimizer="muon", weights_dtype="bf16_mantissa", gate_rule="adam")
    narrow_matrices(params, config)
    assert (gate.dtype, matrix.dtype) == (torch.float32, torch.bfloat16)
