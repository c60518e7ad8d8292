"""Token table and head tied by their optimizer train as one shared matrix does, until they part."""

from typing import Any

import pytest
import torch

from harness.config.run import RunConfig, with_fields
from harness.config.validate import check_config
from harness.training.core import Core
from tests.small_presets import batch, core, small

PLAIN = {
    "model.head_init": "uniform",
    "model.embed_init": "uniform",
    "optim.embed_lr": None,
    "optim.head_lr": None,
    "optim.adam_eps": 1e-4,  # a gradient of rounding alone decides nothing
    "schedule.steps": 6,
    "schedule.cooldown_steps": 3,
}


def config(**fields: Any) -> RunConfig:
    made = with_fields(small("r08", "fp32"), {**PLAIN, **fields})
    check_config(made)
    return made


def losses(trained: Core, steps: int) -> torch.Tensor:
    return torch.cat([trained.update(step, [batch(step)]) for step in range(steps)])


@pytest.mark.parametrize("every", [1, 2])
def test_two_that_are_tied_train_as_one(every: int) -> None:
    two = core(config(**{"optim.tie_until": 1.0, "optim.adam_every": every}))
    one = core(config(**{"model.tied_head": True, "optim.adam_every": every}))
    assert two.model.head is not None
    with torch.no_grad():
        one.model.embed.weight.copy_(two.model.head.weight)
    assert torch.equal(two.model.embed.weight, two.model.head.weight)
    torch.testing.assert_close(losses(two, 6), losses(one, 6), atol=1e-5, rtol=0)
    assert torch.equal(two.model.embed.weight, two.model.head.weight)
    torch.testing.assert_close(one.model.embed.weight, two.model.head.weight, atol=1e-5, rtol=0)


def test_they_part_when_their_share_of_the_steps_is_over() -> None:
    trained = core(config(**{"optim.tie_until": 0.5}))
    head = trained.model.head
    assert head is not None
    equal = []
    for step in range(6):
        trained.update(step, [batch(step)])
        equal.append(torch.equal(head.weight, trained.model.embed.weight))
    assert equal == [True] * 4 + [False] * 2
