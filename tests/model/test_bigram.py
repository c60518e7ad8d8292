"""The embedding of pairs of tokens: its hash by 32-bit arithmetic, and where its rows are added."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from harness.model.bigram import hashed, sign_rows
from harness.model.layout import takes_bigram
from harness.training.core import Core
from tests.small_presets import core, disturb, ids, small

WINDOW = torch.tensor(128)


def wrapped(n: int) -> int:
    """A whole number as int32 holds it."""
    return (n + 2**31) % 2**32 - 2**31


def rows_of_pairs(tokens: list[int], rows: int, first: str) -> list[int]:
    """Position by position, by Python's whole numbers."""
    found = [rows - 1]
    for t in range(1, len(tokens)):
        before = rows - 1 if t == 1 and first == "last_row" else tokens[t - 1]
        pair = wrapped(36313 * tokens[t]) ^ wrapped(27191 * before)
        found.append(pair - (rows - 1) * (pair // (rows - 1)))
    return found


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    tokens=st.lists(st.integers(0, 2**17), min_size=1, max_size=6),
    rows=st.one_of(st.integers(2, 200), st.sampled_from([251520, 754560, 2**31 - 1])),
    first=st.sampled_from(["last_row", "token"]),
    dtype=st.sampled_from([torch.int32, torch.int64]),
)
def test_a_row_is_the_hash_of_two_tokens(
    tokens: list[int], rows: int, first: str, dtype: torch.dtype
) -> None:
    """Also where the products wrap, and a sequence at a time."""
    two = torch.tensor([tokens, tokens[::-1]], dtype=dtype)
    expected = [rows_of_pairs(sequence, rows, first) for sequence in two.tolist()]
    assert hashed(two, rows, first).tolist() == expected
    signs = [[0, *((a ^ b) % rows for a, b in pairwise(s))] for s in two.tolist()]
    assert sign_rows(two, rows).tolist() == signs


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("first", ["last_row", "token"])
def test_a_compiled_hash_wraps_as_the_plain_one_does(first: str) -> None:
    torch._dynamo.reset()
    tokens = torch.randint(0, 2**17, (2, 999), generator=torch.Generator().manual_seed(0))
    compiled = torch.compile(hashed, fullgraph=True, dynamic=False)
    for ids_BT in (tokens, tokens.to(torch.int32)):
        assert torch.equal(compiled(ids_BT, 251520, first), hashed(ids_BT, 251520, first))


# ---------------------------------------------------------------- in the network

BIGRAM = {"bigram_hash": 97, "bigram_scale_init": 0.3}


def made(**fields: object) -> Core:
    network = core(small("r18", "fp32", **{**BIGRAM, **fields}))
    disturb(network.model)
    return network


def streams(network: Core) -> tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]:
    """Of every block: the stream before and after it, x0, and what its attention gave."""
    before: list[Tensor] = []
    after: list[Tensor] = []
    x0: list[Tensor] = []
    branches: list[Tensor] = []
    for block in network.model.blocks:
        block.register_forward_pre_hook(lambda m, a: (before.append(a[0].x), x0.append(a[0].x0))[0])
        block.register_forward_hook(lambda m, a, o: after.append(a[0].x))
        if block.attn is not None:
            block.attn.register_forward_hook(lambda m, a, o: branches.append(o[0]))
    network.model.stream(ids(0), WINDOW)
    return before, after, x0, branches


def row(network: Core) -> Tensor:
    """(1, T, C): the rows of the pairs of ids(0), with their signs, in their channels."""
    model, tokens = network.model, ids(0)[0].tolist()
    table, out = model.bigram.weight, torch.zeros(1, len(tokens), 32)
    rows = rows_of_pairs(tokens, len(table), model.bigram.first)
    for t, r in enumerate(rows):
        sign = 1.0
        if model.bigram.sign is not None:
            at = (tokens[t] ^ tokens[t - 1]) % len(model.bigram.sign) if t else 0
            sign = model.bigram.sign[at].float()
        out[0, t, : table.shape[1]] = sign * table[r]
    return out


SHAPES = [{}, {"bigram_width": 24}, {"bigram_width": 24, "bigram_sign": 16}, {"bigram_sign": 8},
          {"bigram_first": "token"}]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rows_are_added_before_every_block(shape: dict[str, object]) -> None:
    """In a layer without attention, too."""
    network = made(**shape, mlp_free_layers=(0,))
    before, after, x0, branches = streams(network)
    assert network.model.bigram.scale is None
    rows, blocks = row(network), network.model.blocks
    with_rows = {
        i: blocks[i].residual_mix[0] * before[i]
        + blocks[i].residual_mix[1] * x0[i]
        + blocks[i].bigram_scale * rows
        for i in (0, 4)
    }
    torch.testing.assert_close(after[0], with_rows[0] + branches[0])
    mlp = blocks[4].mlp(network.model.norm(with_rows[4]))
    torch.testing.assert_close(after[4], with_rows[4] + mlp)
    assert all(block.bigram_scale is not None for block in blocks)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("in_x0", [False, True])
def test_rows_are_added_behind_attention_and_before_the_first_block(
    shape: dict[str, object], in_x0: bool
) -> None:
    network = made(
        **shape, bigram_inject="after_attention", bigram_in_x0=in_x0, mlp_free_layers=(0, 2)
    )
    model = network.model
    before, after, x0, branches = streams(network)
    rows, e = row(network), model.embed_norm(model.embed(ids(0)))
    torch.testing.assert_close(before[0], e + model.bigram.scale * rows)
    torch.testing.assert_close(x0[3], before[0] if in_x0 else e)
    mixes = [block.residual_mix for block in model.blocks]
    entered = mixes[0][0] * before[0] + mixes[0][1] * x0[0]
    torch.testing.assert_close(after[0], entered + branches[0])
    entered = mixes[2][0] * before[2] + mixes[2][1] * x0[2]
    expected = entered + branches[2] + model.blocks[2].bigram_scale * rows
    torch.testing.assert_close(after[2], expected)
    have = [block.bigram_scale is not None for block in model.blocks]
    assert have == [False, True, True, True, False, True], "the first has its share before it"
    assert have == [takes_bigram(network.config.model, i) for i in range(6)]


@pytest.mark.parametrize("inject", ["before_block", "after_attention"])
def test_rows_join_the_stream_where_sub_layers_have_scales(inject: str) -> None:
    network = made(residual_form="sub_layers", bigram_inject=inject, mlp_free_layers=(0, 2))
    before, after, x0, branches = streams(network)
    block, rows = network.model.blocks[2], row(network)
    share = block.bigram_scale * rows
    entered = before[2] + (share if inject == "before_block" else 0)
    expected = block.attn_residual * entered + block.attn_post * branches[2]
    expected = expected + block.x0_scale * x0[2] + (share if inject == "after_attention" else 0)
    torch.testing.assert_close(after[2], expected)


def test_the_table_starts_at_zero_and_signs_are_drawn_by_the_seed() -> None:
    fresh = [core(small("r18", "fp32", **BIGRAM, bigram_sign=64), seed).model for seed in (0, 0, 1)]
    plain = dict(core(small("r18", "fp32")).model.named_parameters())
    for name, p in fresh[0].named_parameters():
        if name in plain:
            assert torch.equal(p, plain[name]), name
    assert not fresh[0].bigram.weight.any()
    scales = [block.bigram_scale.item() for block in fresh[0].blocks]
    assert scales == pytest.approx([0.3] * 6)
    signs = [network.bigram.sign for network in fresh]
    assert torch.equal(signs[0], signs[1]) and not torch.equal(signs[0], signs[2])
    assert signs[0].unique().tolist() == [-1, 1]
    assert abs(signs[0].float().mean()) < 0.1
    assert "bigram.sign" in fresh[0].state_dict()
    assert "bigram.sign" not in core(small("r18", "fp32", **BIGRAM)).model.state_dict()


def test_a_first_token_is_the_same_whatever_follows_it() -> None:
    """Position 1 alone tells the two ways of hashing the first token apart."""
    logits = []
    for first in ("last_row", "token"):
        network = made(bigram_first=first)
        with torch.no_grad():
            logits.append(network.model.logits(ids(0), WINDOW))
    assert torch.equal(logits[0][0, 0], logits[1][0, 0])
    assert not torch.equal(logits[0][0, 1], logits[1][0, 1])
