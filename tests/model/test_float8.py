"""The head's product in eight bits: rounded while training alone, with scales that fit what comes."""

from typing import Any

import pytest
import torch
from torch import Tensor

from harness.config.device import for_device
from harness.config.run import with_fields
from harness.errors import UserError
from harness.model.float8 import Float8Head
from harness.training.core import Core
from tests.small_presets import batch, core, disturb, small

SCALES = (0.1, 0.01, 1 / 448)


def made(mode: str = "record", scales: tuple[float, ...] = SCALES, **fields: Any) -> Core:
    network = core(small("r18", mode, fp8_head=scales, loss__reduction="sum_per_rank", **fields))
    disturb(network.model)
    return network


def head(network: Core) -> Float8Head:
    assert isinstance(network.model.head, Float8Head)
    return network.model.head


def stream(requires_grad: bool = False) -> Tensor:
    x = torch.randn(1, 20, 32, generator=torch.Generator().manual_seed(0)).bfloat16()
    return x.requires_grad_(requires_grad)


def rounded(x: Tensor, scale: float, dtype: torch.dtype = torch.float8_e4m3fn) -> Tensor:
    return (x / scale).to(dtype).float() * scale


def test_training_multiplies_what_is_left_of_eight_bits() -> None:
    part, x = head(made()), stream(requires_grad=True)
    x8, w8 = rounded(x, 0.1), rounded(part.weight, 0.01)
    z = part(x)
    assert z.dtype == torch.bfloat16
    torch.testing.assert_close(z.float(), x8 @ w8.T, rtol=2**-7, atol=1e-4)
    gradient = torch.randn(z.shape, generator=torch.Generator().manual_seed(1)).bfloat16()
    z.backward(gradient)
    g8 = rounded(gradient, 1 / 448, torch.float8_e5m2)
    assert x.grad is not None
    assert part.weight.grad is not None
    torch.testing.assert_close(x.grad.float(), g8 @ w8, rtol=2**-7, atol=1e-3)
    torch.testing.assert_close(part.weight.grad, (g8[0].T @ x8[0]), rtol=1e-4, atol=1e-4)


def test_validation_and_fp32_round_nothing_to_eight_bits() -> None:
    network, x = made(), stream()
    plain = torch.nn.functional.linear(x, head(network).weight.bfloat16())
    assert not torch.equal(head(network)(x), plain)
    network.model.eval()
    assert torch.equal(head(network)(x), plain)
    in_fp32 = head(made("fp32"))
    exact = torch.nn.functional.linear(x.float(), in_fp32.weight)
    assert torch.equal(in_fp32(x.float()), exact)


@pytest.mark.parametrize("val_grad", [False, True])
def test_a_validation_leaves_training_as_it_was(val_grad: bool) -> None:
    network = made(precision__val_grad=val_grad)
    plain = core(with_fields(network.config, {"model.fp8_head": ()}))
    disturb(plain.model)
    x, y = (tokens[0] for tokens in batch(0))
    validated = [one.evaluate(0, [(x, y)]) for one in (network, plain)]
    assert torch.equal(*validated)
    assert network.model.training
    assert not torch.equal(*(one.update(0, [batch(0)]) for one in (network, plain)))


def test_ranks_that_one_process_plays_share_the_gradient_s_scale() -> None:
    sizes = {"data__ranks": 4, "data__batch_tokens": 1024, "data__val_tokens": 1024}
    assert head(made(**sizes)).scales == (*SCALES[:2], SCALES[2] / 4)


def test_a_gpu_is_told_that_it_is_emulated() -> None:
    config = made().config
    assert for_device(config, "cuda", frozenset())[1] == (
        "model.fp8_head by float8 casts around a product in fp32",
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"fp8_head": (1.0, 1.0)}, r"must be three scales greater than 0"),
        ({"fp8_head": (1.0, -0.5, 1.0)}, r"must be three scales greater than 0"),
        ({"fp8_head": (1.0, 0.0, 1.0)}, r"must be three scales greater than 0"),
        ({"fp8_head": (0.01, 1.0, 1.0)}, r"divides the stream by 0.01.*take at least 0.0126"),
        (
            {"fp8_head": (1.0, 1.0, 2**-29)},
            r"divides the gradient by 1.86e-09.*data.micro_tokens=256.*take at least 6.81e-08",
        ),
    ],
)
def test_scales_that_would_give_no_numbers_are_refused(
    fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        small("r18", **fields)
