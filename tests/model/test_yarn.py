"""Rotary frequencies and scores follow the long window, in one graph, and go back with it."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from harness.config.run import RunConfig
from harness.config.schedule import followed_at
from harness.errors import UserError
from harness.model.rotary import growth_of_scores, stretched
from harness.training.core import Core
from tests.graphs import Graphs
from tests.small_presets import batch, core, disturb, ids, small

BLOCKS = {  # of stages, extension and last validation, as records 31, 36 and 42 had them
    "r31": (0, (3, 7, 11, 13)),
    "r36": (4, (3, 7, 11, 11, 20)),
    "r42": (4, (3, 7, 11, 13, 20)),
}


def yarn(record: str = "r42", **fields: Any) -> RunConfig:
    """Record 18 with the windows of a later one in 12 updates, blocks of 8 tokens in place of 128."""
    extension, blocks = BLOCKS[record]
    return small(
        "r18",
        "fp32",
        attn_window="inclusive",
        attn_window_layers=(0, 4),
        window_yarn=True,
        schedule__window_warmup=None,
        schedule__steps=12,
        schedule__extension_steps=extension,
        schedule__stages=3,
        schedule__windows=tuple(8 * n for n in blocks),
        **{"schedule__yarn_until": 104} | fields,
    )


@pytest.mark.parametrize(
    ("record", "in_extension", "at_last"),
    [("r31", [], 13), ("r36", [3, 7, 11], 13), ("r42", [3, 7, 11, 13], 13)],
)
def test_it_follows_every_change_up_to_its_end(
    record: str, in_extension: list[int], at_last: int
) -> None:
    config = yarn(record)
    followed = [[w // 8 for w in followed_at(config, step)] for step in range(13)]
    assert followed[0] == [3]
    assert [3, 7, 11] in followed
    if in_extension:
        assert followed[11] == in_extension
    assert followed[12] == [3, 7, 11, at_last]


def test_without_an_end_the_last_validation_is_followed_too() -> None:
    assert followed_at(yarn(schedule__yarn_until=None), 12)[-1] == 160


def test_slow_pairs_turn_less_as_the_window_widens_and_quick_ones_as_before() -> None:
    turns = torch.tensor([40.0, 32.0, 16.5, 1.0, 0.5, 0.0])  # within the narrow window
    freq = turns * 2 * math.pi / 100
    wider = stretched(freq, (100, 200))
    torch.testing.assert_close(wider / freq, torch.tensor([1, 1, 0.75, 0.5, 0.5, math.nan]),
                               equal_nan=True)  # fmt: skip
    assert growth_of_scores((100, 200)) == pytest.approx(1 + 0.2 * math.log(2))
    assert growth_of_scores((100,)) == 1
    # a change by two steps is another one than by one
    two = stretched(freq, (100, 150, 200))
    assert not torch.allclose(two, wider)


def state(made: Core) -> list[torch.Tensor]:
    return [table.clone() for table in made.model.rotary(64)]


@pytest.mark.parametrize("rope_pairing", ["halves", "adjacent"])
@pytest.mark.parametrize("rope_buffers", [False, True])
def test_the_scores_grow_with_the_window(rope_pairing: str, rope_buffers: bool) -> None:
    """As a network has them whose scale is the larger one, with the same tables."""
    fields = {"rope_pairing": rope_pairing, "rope_buffers": rope_buffers}
    made = core(yarn(attn_scale=0.1, **fields))
    window = made.set_window(12)
    growth = growth_of_scores((3, 7, 11, 13))
    plain = core(yarn(attn_scale=0.1 * growth, **fields))
    plain.model.rotary.follow(tuple(followed_at(made.config, 12)))
    assert plain.model.rotary.growth is not None
    plain.model.rotary.growth.fill_(1.0)
    for network in (made, plain):
        disturb(network.model)
    torch.testing.assert_close(
        made.model.stream(ids(0), window), plain.model.stream(ids(0), window)
    )


def test_a_window_s_tables_are_the_same_whatever_came_between() -> None:
    made, fresh = core(yarn()), core(yarn())
    for step in (0, 12, 5, 12, 0, 8):
        made.set_window(step)
    fresh.set_window(8)
    for one, other in zip(state(made), state(fresh), strict=True):
        assert torch.equal(one, other)
    fresh.set_window(0)
    assert not any(map(torch.equal, state(made), state(fresh)))


@pytest.fixture
def graphs() -> Iterator[Graphs]:
    torch._dynamo.reset()
    yield Graphs()
    torch._dynamo.reset()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("rope_buffers", [False, True])
def test_no_graph_is_made_anew_and_none_is_out_of_date(rope_buffers: bool, graphs: Graphs) -> None:
    config = yarn(rope_buffers=rope_buffers)
    made, plain = core(config), core(config)
    made.forward = torch.compile(made.model, backend=graphs, fullgraph=True, dynamic=False)
    for step in range(12):
        losses = [network.update(step, [batch(step)]) for network in (made, plain)]
        torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-5)
    assert graphs.n == 1


def test_a_window_of_nothing_cannot_be_followed() -> None:
    with pytest.raises(UserError, match=r"model.window_yarn .* one of them is 0"):
        small("r18", attn_window="inclusive", window_yarn=True, schedule__window_warmup=None,
              schedule__windows=(0,))  # fmt: skip
