"""How branches join the residual stream in records after 48, against formulas written out here."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from harness.model.gpt import GPT
from harness.training.core import Core
from tests.graphs import Graphs
from tests.small_presets import TOKENS, core, disturb, ids, small

WINDOW = torch.tensor(128)
Branch = Callable[[Tensor], Tensor]  # what the next branch reads, before its norm -> what it gives


def made(**fields: object) -> Core:
    """Record 18's network without U-net and with these changes, every parameter drawn anew."""
    network = core(small("r18", "fp32", unet_skip=False, **fields))
    disturb(network.model)
    return network


class Seen:
    """What every branch of a network read (normed), and what it gave, in order; the stream after each block."""

    def __init__(self, model: Any) -> None:
        self.read: list[Tensor] = []
        self.gave: list[Tensor] = []
        self.after: list[Tensor] = []
        for block in model.blocks:
            block.register_forward_hook(lambda m, a, o: self.after.append(a[0].x))
            for part in filter(None, (block.attn, block.mlp)):
                part.register_forward_hook(self.note)
        with torch.no_grad():
            self.out = model.stream(ids(0), WINDOW)

    def note(self, part: nn.Module, given: tuple[Any, ...], gave: Any) -> None:
        self.read.append(given[0])
        self.gave.append(gave[0] if isinstance(gave, tuple) else gave)


def embedded(model: Any) -> Tensor:
    x: Tensor = model.embed_norm(model.embed(ids(0)))
    return x


def check(model: Any, formula: Callable[[Any, Tensor, Branch], Tensor]) -> None:
    """The formula's stream from the branches as they were; it hands what each should have read."""
    seen = Seen(model)
    left = list(zip(seen.read, seen.gave, strict=True))

    def branch(x: Tensor) -> Tensor:
        read, gave = left.pop(0)
        torch.testing.assert_close(read, model.norm(x))
        return gave

    with torch.no_grad():
        x = formula(model, embedded(model), branch)
    assert not left
    torch.testing.assert_close(seen.out, model.norm(x))


def test_scales_apart_are_the_pair_s() -> None:
    """The same stream from the same numbers, and its two sorts of scales are parts of their own."""
    pairs, apart = (made(residual_form=form) for form in ("pair", "apart"))
    values = dict(pairs.model.named_parameters())
    with torch.no_grad():
        for name, p in apart.model.named_parameters():
            block, _, kind = name.rpartition(".")
            if kind in ("residual_scale", "x0_scale"):
                p.copy_(values[f"{block}.residual_mix"][int(kind == "x0_scale")])
            else:
                p.copy_(values[name])
    torch.testing.assert_close(Seen(apart.model).out, Seen(pairs.model).out)
    fresh = core(small("r18", "fp32", residual_form="apart", residual_init=1.1)).model.blocks[1]
    assert (fresh.residual_scale.item(), fresh.x0_scale.item()) == (pytest.approx(1.1), 0)
    assert (fresh.residual_scale.part, fresh.x0_scale.part) == ("residual", "x0")


def test_each_sub_layer_has_a_scale_of_the_stream_and_of_its_branch() -> None:
    """Record 73, in layers without an MLP and without attention, too."""
    network = made(residual_form="sub_layers", mlp_free_layers=(1,), attn_free_layers=(4,))

    def formula(model: Any, x0: Tensor, branch: Branch) -> Tensor:
        x = x0
        for block in model.blocks:
            if block.attn is not None:
                x = block.attn_residual * x + block.attn_post * branch(x) + block.x0_scale * x0
            if block.mlp is not None:
                x = block.mlp_residual * x + block.mlp_post * branch(x)
        return x

    check(network.model, formula)
    fresh = core(small("r18", "fp32", residual_form="sub_layers", residual_init=1.1)).model.blocks
    names = ("attn_residual", "mlp_residual", "attn_post", "mlp_post", "x0_scale")
    starts = [getattr(fresh[0], name).item() for name in names]
    assert starts == pytest.approx([1.1**0.5, 1.1**0.5, 1, 1, 0])
    assert [getattr(fresh[0], name).part for name in names] == [
        *("residual", "residual", "post", "post", "x0")
    ]


def parts(block: Any) -> list[str]:
    return sorted(name for name, _ in block.named_parameters(recurse=False))


def test_two_lanes_take_both_branches_and_the_head_their_mean() -> None:
    """Record 74: attention reads the first lane, the MLP the second."""
    network = made(
        residual_form="sub_layers", lanes=3, backout=3, skip_layers=(1, 4), skip_from="attention",
        attn_free_layers=(4,), value_embed=None, value_mix="lerp", value_tables="packed",
    )  # fmt: skip

    def formula(model: Any, x0: Tensor, branch: Branch) -> Tensor:
        a, kept = x0, {}
        for i, block in enumerate(model.blocks[:3]):
            a = block.attn_residual * a + branch(a) + block.x0_scale * x0
            kept[i] = a
            a = block.mlp_residual * a + block.mlp_post * branch(a)
        c = a
        for i, block in enumerate(model.blocks[3:], 3):
            if i == 4:
                a = a + torch.sigmoid(model.skip.scale) * kept[1]
            else:
                y = branch(a)
                a = block.attn_residual * a + block.attn_post * y + block.x0_scale * x0
                c = block.attn_residual * c + block.attn_post_second * y
            y = branch(c)
            a = block.mlp_residual * a + block.mlp_post * y
            c = block.mlp_residual * c + block.mlp_post_second * y
            kept[f"out{i}"] = a
        return (a + c) / 2 - model.backout.scale * kept["out3"]

    check(network.model, formula)
    before, after = (parts(network.model.blocks[i]) for i in (2, 3))
    assert before == ["attn_residual", "mlp_post", "mlp_residual", "x0_scale"]
    assert after == [
        *("attn_post", "attn_post_second", "attn_residual"),
        *("mlp_post", "mlp_post_second", "mlp_residual", "x0_scale"),
    ]
    fresh = core(small("r18", "fp32", unet_skip=False, residual_form="sub_layers", lanes=3)).model
    assert fresh.blocks[3].attn_post_second.item() == 1.5
    assert fresh.blocks[3].mlp_post_second.item() == 1.0


def test_the_first_lanes_scale_the_part_of_x0_with_attention() -> None:
    """Record 73: in every layer, and in both lanes."""
    network = made(residual_form="sub_layers", lanes=3, lane_branch="attention_and_x0")

    def formula(model: Any, x0: Tensor, branch: Branch) -> Tensor:
        a = x0
        for block in model.blocks[:3]:
            a = block.attn_residual * a + block.attn_post * (branch(a) + block.x0_scale * x0)
            a = block.mlp_residual * a + block.mlp_post * branch(a)
        c = a
        for block in model.blocks[3:]:
            if block.attn is not None:
                y = branch(a) + block.x0_scale * x0
                a = block.attn_residual * a + block.attn_post * y
                c = block.attn_residual * c + block.attn_post_second * y
            y = branch(c)
            a = block.mlp_residual * a + block.mlp_post * y
            c = block.mlp_residual * c + block.mlp_post_second * y
        return (a + c) / 2

    check(network.model, formula)
    assert "attn_post" in parts(network.model.blocks[0])


@pytest.mark.parametrize("form", ["apart", "sub_layers"])
def test_attention_after_the_saved_layer_reads_what_was_saved(form: str) -> None:
    network = made(residual_form=form, backout=2, backout_feeds_attention=True)
    seen = Seen(network.model)
    b = network.model.norm(seen.after[2])
    reads, i = [], 0
    for block in network.model.blocks:
        if block.attn is not None:
            reads.append(torch.equal(seen.read[i], b))
            i += 1
        i += 1
    assert reads == [False] * 3 + [True] * (len(reads) - 3)
    expected = seen.after[-1] - network.model.backout.scale * seen.after[2]
    torch.testing.assert_close(seen.out, network.model.norm(expected))


def test_a_skip_may_be_taken_after_attention() -> None:
    network = made(skip_layers=(1, 4), skip_from="attention")
    model, entered = network.model, []
    model.blocks[4].register_forward_pre_hook(lambda m, a: entered.append(a[0].x))
    seen = Seen(model)
    attended = seen.after[1] - seen.gave[3]  # its MLP's
    share = torch.sigmoid(model.skip.scale)
    torch.testing.assert_close(entered[0], seen.after[3] + share * attended)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's own
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")  # to compare
@pytest.mark.parametrize("fields", [{}, {"unet_skip": False, "backout": 2}])
def test_the_compiler_keeps_what_blocks_change_under_flex_attention(fields: dict[str, Any]) -> None:
    """Traced through the library's own kernel, whose tracing drops attributes that were set on an object."""
    config = replace(small("r18", "fp32", **fields).model, attn_kernel="flex")
    model = GPT(config, TOKENS)
    model.initialize(0)
    disturb(model)
    graphs = Graphs()
    compiled = torch.compile(model, backend=graphs, fullgraph=True, dynamic=False)
    with torch.no_grad():
        losses = [f(ids(0), ids(1), WINDOW).item() for f in (model, compiled)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    assert graphs.n == 1 and "flex_attention" in graphs.calls
