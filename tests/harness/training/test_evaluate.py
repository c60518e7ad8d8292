"""A validation: one loss for every micro-batch, however many there are, in the mode that the configuration asks for."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from harness.config.run import RunConfig, from_plain, with_fields
from harness.model.tokens import Tokens
from harness.run.spec import RunSpec
from harness.training.core import Core
from tests.one_training import STEPS

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
