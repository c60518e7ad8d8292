"""A validation: one loss for every micro-batch, however many there are, in the mode that the configuration asks for."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.distributed as dist

from harness.config.run import RunConfig, from_plain, with_fields
from harness.model.tokens import Tokens
from harness.run.spec import RunSpec
from harness.training import core as core_module
from harness.training.core import Core
from tests.one_training import STEPS
from tests.small_presets import TOKENS as SMALL_TOKENS
from tests.small_presets import batch, small

TOKENS = Tokens(vocab_size=257, separator=256, seq_len=64)


def core_of(config: RunConfig, fields: dict[str, Any]) -> Core:
    return Core(with_fields(config, fields), TOKENS, seed=0)


@pytest.mark.parametrize("n", [0, 1, 2, 1023, 1024, 1025, 2048, 2051])
def test_every_micro_batch_has_its_loss_in_its_place(
    spec_of: Callable[..., RunSpec], n: int
) -> None:
    core = core_of(from_plain(spec_of().config), {})
    core.local = lambda x, y, window: x.float().sum() + y.float().sum()  # type: ignore[assignment]
    batches = [(torch.tensor([i]), torch.tensor([2 * i])) for i in range(n)]
    assert core.evaluate(0, batches).tolist() == [3.0 * i for i in range(n)]


@pytest.mark.parametrize("val_grad", [False, True])
def test_a_graph_is_built_only_if_asked_for_and_never_kept(
    spec_of: Callable[..., RunSpec], val_grad: bool
) -> None:
    core = core_of(from_plain(spec_of().config), {"precision.val_grad": val_grad})
    x = torch.zeros(1, 64, dtype=torch.int64)
    seen, model = [], core.local

    def watched(*inputs: Any) -> torch.Tensor:
        loss = model(*inputs)
        seen.append(loss.requires_grad)
        return loss

    core.local = watched  # type: ignore[assignment]
    losses = core.evaluate(0, [(x, x)])
    assert seen == [val_grad]
    assert not losses.requires_grad
    assert torch.is_grad_enabled()
    assert all(p.grad is None for p in core.parameters)


@pytest.mark.parametrize(("val_fp32", "expected"), [(False, torch.bfloat16), (True, torch.float32)])
def test_a_validation_in_fp32_leaves_training_in_its_own_type(
    spec_of: Callable[..., RunSpec], val_fp32: bool, expected: torch.dtype
) -> None:
    fields = {"precision.mode": "record", "precision.val_fp32": val_fp32}
    core = core_of(from_plain(spec_of().config), fields)
    assert core.model.matmul_dtype is torch.bfloat16
    seen, model = [], core.local

    def watched(*inputs: Any) -> torch.Tensor:
        seen.append(core.model.matmul_dtype)
        return model(*inputs)

    core.local = watched  # type: ignore[assignment]
    x = torch.zeros(1, 64, dtype=torch.int64)
    core.evaluate(STEPS, [(x, x)])
    assert seen == [expected]
    assert core.model.matmul_dtype is torch.bfloat16


@pytest.mark.parametrize(
    ("fields", "first"),
    [
        ({}, "group"),
        ({"precision.val_grad": False}, "alone"),
        ({"system.compile": "off"}, "alone"),
        ({"model.logits_dtype": "bf16"}, "alone"),  # a validation has a graph of its own
    ],
)
def test_the_first_pass_of_a_graph_that_both_share_is_that_of_the_group(
    fields: dict[str, Any], first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[str] = []

    class InGroup:
        def __init__(self, network: Any, **settings: bool) -> None:
            assert settings == {"broadcast_buffers": True, "gradient_as_bucket_view": False}
            self.network, self.no_sync = network, nullcontext

        def __call__(self, *inputs: Any) -> torch.Tensor:
            passed.append("group")
            return self.network(*inputs)

    monkeypatch.setattr(core_module, "DistributedDataParallel", InGroup)
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(dist, "get_rank", lambda: 0)
    monkeypatch.setattr(torch, "compile", lambda network, **_: network)
    whole = {"system.compile": "on", "system.broadcast_buffers": True, "system.bucket_view": False}
    made = {"precision.val_grad": True, "data.ranks": 2, **whole, **fields}
    x, y = batch(0)

    def new_core() -> Core:
        core = Core(with_fields(small("r08", "fp32", n_layer=2), made), SMALL_TOKENS, seed=0)
        network = core.local
        core.local = lambda *inputs: passed.append("alone") or network(*inputs)
        return core

    core = new_core()
    core.evaluate(0, [(x[0], y[0])] * 2)
    core.evaluate(0, [(x[0], y[0])])
    assert passed == [first, "alone", "alone"]
    passed.clear()
    core = new_core()
    core.gradients([batch(0)], core.set_step(0))
    core.evaluate(0, [(x[0], y[0])])
    assert passed == ["group", "alone"]
