"""Paired heads against the definition, read slot by slot, and in the whole network."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import harness.model.attention
from harness.config.validate import check_config
from harness.model.attention import KERNELS, QUERIES, Mask
from harness.model.config import ModelConfig
from harness.model.gpt import Attention, make_rotary
from harness.model.layout import LayerKind, layer_kinds
from harness.model.mask import dense_mask
from harness.model.paired import by_parity, from_slots, in_slots
from harness.model.precision import PLAIN
from harness.training.core import Core
from tests.small_presets import core, disturb, ids, small

CONFIG = ModelConfig(
    n_layer=1,
    norm_eps="by_dtype",
    qk_norm="before_rope",
    rope_base=1024.0,
    rope_pairs="half",
    rope_pairing="adjacent",
    attn_kernel="dense",
    attn_mask="document",
    attn_scale=0.1,
    paired_heads=(0,),
)


# ---------------------------------------------------------------- the definition


def turned(z: np.ndarray, position: int) -> np.ndarray:
    """Channels 2j, 2j + 1 as a complex number, turned by minus the angle."""
    quarter = len(z) // 4
    w = np.zeros(len(z) // 2)
    for j in range(quarter):
        w[j] = 1024.0 ** (-j / (quarter - 1) if quarter > 1 else 0.0)
    pairs = (z[0::2] + 1j * z[1::2]) * np.exp(-1j * position * w)
    return np.stack([pairs.real, pairs.imag], axis=-1).ravel()


def slot_by_slot(x: np.ndarray, layer: Attention, documents: list[int], window: int) -> np.ndarray:
    """What a paired layer makes of x (T, C), in float64."""
    T, C = x.shape
    H = layer.head_dim
    N = C // H
    q, k, v = (x @ layer.qkv.weight.detach().double().numpy().T).reshape(T, 3, N, H).swapaxes(0, 1)
    y = np.zeros((T, N, H))

    def slot(t: int, n: int) -> int:
        return 2 * t + (1 if n >= N // 2 else 0)

    def ready(z: np.ndarray, t: int, n: int) -> np.ndarray:
        normed = z[t, n] / math.sqrt(np.mean(z[t, n] ** 2) + 2**-23)
        return turned(normed, 2 * t + n % 2)

    for t in range(T):
        for n in range(N):
            seen = [
                (s, m)
                for s in range(T)
                for m in (n % (N // 2), n % (N // 2) + N // 2)
                if 0 <= slot(t, n) - slot(s, m) <= window and documents[s] == documents[t]
            ]
            scores = np.array([0.1 * ready(q, t, n) @ ready(k, s, m) for s, m in seen])
            shares = np.exp(scores) / np.exp(scores).sum()
            y[t, n] = sum(p * v[s, m] for p, (s, m) in zip(shares, seen, strict=True))
    return y.reshape(T, C) @ layer.out.weight.detach().double().numpy().T


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    n_pairs=st.integers(1, 3),
    head_dim=st.sampled_from([4, 8]),
    opening=st.lists(st.booleans(), min_size=1, max_size=6),
    window=st.integers(0, 13),
)
def test_a_paired_layer_is_its_definition(
    n_pairs: int, head_dim: int, opening: list[bool], window: int
) -> None:
    T, config = len(opening), replace(CONFIG, d_model=2 * n_pairs * head_dim, head_dim=head_dim)
    layer = Attention(config, PLAIN, layer=0)
    generator = torch.Generator().manual_seed(0)
    for p in layer.parameters():
        p.data = torch.randn(p.shape, generator=generator)
    x = torch.randn(1, T, config.d_model, generator=generator)
    doc_T = torch.tensor(opening).cumsum(0, dtype=torch.int32)
    mask = dense_mask(0, 2 * T, doc_T.repeat_interleave(2), torch.tensor(window), "inclusive")
    y, _ = layer(x, make_rotary(config, PLAIN, seq_len=T)(2 * T), mask, None)
    expected = slot_by_slot(x[0].double().numpy(), layer, doc_T.tolist(), window)
    size = np.abs(expected).max()
    np.testing.assert_allclose(y[0].detach().numpy() / size, expected / size, atol=2e-5)


@pytest.mark.parametrize("n_heads", [2, 4, 6])
def test_slots_are_a_position_s_two_heads_one_after_the_other(n_heads: int) -> None:
    T = 3
    head_TN = 10 * torch.arange(T)[:, None] + torch.arange(n_heads)
    heads = head_TN.T[None, :, :, None]
    sequences = in_slots(heads)
    for pair in range(n_heads // 2):
        expected = [10 * t + n for t in range(T) for n in (pair, pair + n_heads // 2)]
        assert sequences[0, pair, :, 0].tolist() == expected
    assert torch.equal(from_slots(sequences), heads)


# ---------------------------------------------------------------- in the network

PAIRED = {
    "paired_heads": (0, 3),
    "rope_pairing": "adjacent",
    "attn_window": "inclusive",
    "attn_window_layers": (1, 3),
    "block_mask": "traced",
    "schedule__window_warmup": None,
}
WINDOWS = torch.tensor([100, 40])  # of long and of short layers


def made(**fields: object) -> Core:
    network = core(small("r18", "fp32", **{**PAIRED, **fields}))
    disturb(network.model)
    return network


def test_layers_of_four_kinds_have_four_masks() -> None:
    """A window is as many slots as positions, so half as far."""
    model = made().model
    kinds = [LayerKind(True, 2), LayerKind(False, 1), LayerKind(True, 1), LayerKind(False, 2)]
    assert model.kinds[:4] == kinds
    masks = model.masks(torch.zeros(1, 256, dtype=torch.int64), WINDOWS)
    for mask, kind in zip(masks, model.kinds, strict=True):
        window = 40 if kind.is_short else 100
        assert mask.shape == (256 * kind.slots,) * 2
        seen = [(mask[q] == 0).nonzero().flatten().tolist() for q in (0, 200, 201)]
        assert seen == [[0], [*range(200 - window, 201)], [*range(201 - window, 202)]]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
@pytest.mark.parametrize("kind", [None, "token", "block", "inclusive", "counted"])
def test_flex_attention_sees_what_the_dense_kernel_does(kind: str | None) -> None:
    """Every window and list of blocks, on the doubled sequence too."""
    windows = {"attn_window": kind, "attn_window_layers": (1, 3) if kind else ()}
    sizes = torch.tensor([2, 1]) if kind in ("block", "counted") else WINDOWS
    network = made(**windows).model
    builders = ["traced", "partial"] + ["partial_and_full"] * (kind in (None, "block"))
    with torch.no_grad():
        expected = network.logits(ids(0), None if kind is None else sizes)
        for builder in builders:
            network.mask_args = ("flex", kind, builder)
            for block in network.blocks:
                if block.attn is not None:
                    block.attn.kernel = KERNELS["flex"]
            y = network.logits(ids(0), None if kind is None else sizes)
            torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4)


def test_chunks_of_queries_give_what_one_mask_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions that fit into one mask whose slots do not."""
    network, tokens = made(), ids(0)
    assert tokens.shape[1] < QUERIES
    losses, grads = [], []
    for queries in (QUERIES, 300):
        monkeypatch.setattr(harness.model.attention, "QUERIES", queries)
        masks: list[Mask] = network.model.masks(tokens, WINDOWS)
        assert callable(masks[0]) == (queries == 300) and not callable(masks[1])
        network.model.zero_grad()
        loss = network.model(tokens, tokens.roll(-1), WINDOWS)
        loss.backward()
        losses.append(loss)
        grads.append([p.grad for p in network.model.parameters() if p.grad is not None])
    torch.testing.assert_close(losses[0], losses[1])
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-4, atol=1e-6)


def test_a_partner_is_seen_at_the_same_position_by_the_upper_head_alone() -> None:
    """Of one position's own keys head 0 sees its own, head N/2 both."""
    config = replace(CONFIG, d_model=16, head_dim=8)
    layer = Attention(config, PLAIN, layer=0)
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(torch.eye(16).repeat(p.shape[0] // 16, 1))
    x = torch.arange(1.0, 17.0)[None, None].requires_grad_()
    mask = torch.tensor([[0.0, -math.inf], [0.0, 0.0]])
    y, _ = layer(x, make_rotary(config, PLAIN, seq_len=1)(2), mask, None)
    torch.testing.assert_close(y[..., :8], x[..., :8])
    assert y[0, 0, 8:].lt(x[0, 0, 8:]).all(), "the mean of both heads' values"


def test_gates_of_paired_layers_read_the_stream_alone_unless_all_are_mixed() -> None:
    """The value row moves its gate in layers 0 and 3 under gate_mixed_all, elsewhere under both."""
    for value_mix, paired_too in (("gate_mixed", False), ("gate_mixed_all", True)):
        model = made(value_mix=value_mix).model
        x, row = torch.zeros(1, 1, 32), torch.ones(1, 1, 32)
        for i, block in enumerate(model.blocks):
            if block.attn is None or block.attn.value_gate is None:
                continue
            mixed = bool(block.attn.gate_input(x, row)[..., :12].any())
            assert mixed == (paired_too or model.kinds[i].slots == 1), (value_mix, i)


def test_layers_are_paired_where_they_are_listed() -> None:
    kinds = layer_kinds(replace(CONFIG, n_layer=3, paired_heads=(0, 2), attn_window_layers=(1,)))
    assert kinds == [LayerKind(True, 2), LayerKind(False, 1), LayerKind(True, 2)]
    check_config(small("r18", "fp32", **PAIRED))


def test_slots_turn_by_frequencies_that_follow_the_long_window_as_positions_do() -> None:
    """Two tables, of positions and of slots, after the same windows: slot 2t + n % 2 of one."""
    network = made(window_yarn=True, schedule__windows=(64, 128), schedule__stages=2)
    rotary, T = network.model.rotary, 256
    rotary.follow((64.0, 128.0))
    assert len(rotary.cos) == 2 * T
    alone = make_rotary(replace(network.config.model, paired_heads=()), PLAIN, seq_len=T)
    alone.follow((64.0, 128.0))
    for ours, theirs in zip(rotary(T), alone(T), strict=True):
        assert torch.equal(ours, theirs)
    turned = by_parity(lambda z, cos, sin: z * cos)(torch.ones(1, T, 2, 16), *rotary(2 * T)[:2])
    slots = rotary(2 * T).cos
    for t, n in ((0, 0), (0, 1), (7, 0), (255, 1)):
        assert torch.equal(turned[0, t, n], slots[2 * t + n, 0])
