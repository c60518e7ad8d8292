"""Adam's moments in dtypes of their own, kept over a resumption."""

from typing import Literal

import pytest
import torch
from torch.nn import Parameter

from harness.optim.adam import Adam
from harness.optim.build import build_optimizers
from harness.optim.config import OptimConfig
from harness.optim.tying import Tie, part

BF16, FP32 = torch.bfloat16, torch.float32
Form = Literal["parameter", "bf16", "fp32"]


def made(form: Form, dtype: torch.dtype = BF16) -> tuple[dict[str, Parameter], list[Adam]]:
    """A table in bf16 and a head in fp32, with what moves them; dtype: of the products."""
    generator = torch.Generator().manual_seed(0)
    drawn = {role: torch.randn(6, 4, generator=generator) for role in ("embed", "head")}
    params = {
        "embed": Parameter(drawn["embed"].to(BF16)),
        "head": Parameter(drawn["head"]),
    }
    config = OptimConfig(
        adam_moments_dtype=form,
        adam_eps_form="uncorrected",
        matrix_optimizer="muon",
        embed_lr=0.1,
        head_lr=0.1,
    )
    named = {role: [(role, p)] for role, p in params.items()}
    optimizers = build_optimizers(named, config, dtype=dtype, device_type="cpu")
    assert all(isinstance(optimizer, Adam) for optimizer in optimizers)
    return params, [o for o in optimizers if isinstance(o, Adam)]


def step(params: dict[str, Parameter], optimizers: list[Adam], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for p in params.values():
        p.grad = torch.randn(p.shape, generator=generator).to(p.dtype)
    for optimizer in optimizers:
        optimizer.step()


def moments(params: dict[str, Parameter], optimizers: list[Adam]) -> dict[str, torch.Tensor]:
    of = {p: o.state[p]["exp_avg_sq"] for o in optimizers for p in o.state}
    return {role: of[p] for role, p in params.items()}


@pytest.mark.parametrize(
    ("form", "table", "head"),
    [("parameter", BF16, FP32), ("bf16", BF16, BF16), ("fp32", FP32, FP32)],
)
def test_moments_have_the_dtype_that_is_said_and_none_where_nothing_rounds(
    form: Form, table: torch.dtype, head: torch.dtype
) -> None:
    params, optimizers = made(form)
    step(params, optimizers, 1)
    assert {role: v.dtype for role, v in moments(params, optimizers).items()} == {
        "embed": table,
        "head": head,
    }
    params, optimizers = made(form, FP32)
    step(params, optimizers, 1)
    assert moments(params, optimizers)["head"].dtype == FP32


@pytest.mark.parametrize("form", ["bf16", "fp32"])
def test_moments_are_computed_in_fp32_and_rounded_once(form: Form) -> None:
    params, optimizers = made(form)
    dtype = BF16 if form == "bf16" else FP32
    expected = {role: torch.zeros(p.shape) for role, p in params.items()}
    for seed in range(3):
        step(params, optimizers, seed)
        for role, p in params.items():
            assert p.grad is not None
            v = 0.95 * expected[role] + (1 - 0.95) * p.grad.float() ** 2
            expected[role] = v.to(dtype).float()
    for role, v in moments(params, optimizers).items():
        tolerance = 2**-8 if form == "bf16" else 1e-6
        torch.testing.assert_close(v.float(), expected[role], rtol=tolerance, atol=0)


@pytest.mark.parametrize("form", ["parameter", "bf16", "fp32"])
def test_a_resumed_run_goes_on_to_the_bit(form: Form) -> None:
    params, optimizers = made(form)
    others, resumed = made(form)
    step(params, optimizers, 1)
    with torch.no_grad():
        for role, p in params.items():
            others[role].copy_(p)
    for saved, optimizer in zip(optimizers, resumed, strict=True):
        optimizer.load_state_dict(saved.state_dict())
    step(params, optimizers, 2)
    step(others, resumed, 2)
    for role, p in params.items():
        assert torch.equal(p, others[role])
    for role, v in moments(params, optimizers).items():
        assert torch.equal(v, moments(others, resumed)[role])
        assert v.dtype == moments(others, resumed)[role].dtype


@pytest.mark.parametrize(("form", "dtype"), [("parameter", BF16), ("fp32", FP32)])
def test_a_table_that_parts_from_the_head_has_moments_of_its_dtype(
    form: Form, dtype: torch.dtype
) -> None:
    params, optimizers = made(form)
    params["head"].grad = torch.ones_like(params["head"])
    for optimizer in optimizers:
        optimizer.step()
    part(Tie(params["head"], params["embed"]), optimizers)
    assert moments(params, optimizers)["embed"].dtype == dtype


@pytest.mark.parametrize(
    ("form", "share"),
    [
        ("decoupled", [0.05, 0.05, 0.05]),  # the rate times the decay
        ("cautious", [0.005, 0, 0.005]),  # the rate twice, where it shrinks or rests
        ("cautious_strict", [0.005, 0, 0]),
    ],
)
def test_a_weight_loses_its_share_of_what_it_was_in_the_form_that_is_said(
    form: Literal["decoupled", "cautious", "cautious_strict"], share: list[float]
) -> None:
    start, moved = torch.tensor([2.0, -1.0, 3.0]), []
    for decay in (0.0, 0.5):
        p = Parameter(start.clone())
        config = OptimConfig(weight_decay=decay, weight_decay_form=form)
        p.grad = torch.tensor([1.0, 1.0, 0.0])
        Adam([{"params": [p], "lr": 0.1}], config).step()
        moved.append(p.detach())
    torch.testing.assert_close(moved[0] - moved[1], torch.tensor(share) * start)
