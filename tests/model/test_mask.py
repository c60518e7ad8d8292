"""One mask, three forms: dense, FlexAttention's block lists, and a reading of the definition pair by pair."""

import weakref
from collections.abc import Callable
from itertools import accumulate

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

import harness.model.attention
from harness.model.attention import KERNELS, make_mask
from harness.model.mask import (
    BLOCK,
    DIAGONALS,
    IN_WINDOW,
    block_mask,
    dense_mask,
    document_ids,
)
from tests.small_presets import PRESETS, core, disturb, small

SEPARATOR = 256
KINDS = (None, "token", "block", "clipped", "counted", "inclusive")
BUILDERS = {kind: ("traced", "partial") for kind in KINDS} | {
    k: ("traced", "partial", "partial_and_full") for k in (None, "block")
}


def blocks_counted(tokens: list[int], size: int) -> list[list[int]]:
    """For every block of queries those of keys in its window, one list after another."""
    documents = list(accumulate(token == SEPARATOR for token in tokens))
    of = [set(documents[at : at + 128]) for at in range(0, len(tokens), 128)]
    counted = []
    for i in range(len(of)):
        whole = [j for j in range(i) if len(of[j] | of[i]) == 1]
        others = [j for j in range(i + 1) if of[j] & of[i] and j not in whole]
        n_whole = max(0, min(len(whole), size - 1))
        n_others = min(len(others), max(size - len(whole), 1))
        counted.append(whole[len(whole) - n_whole :] + others[len(others) - n_others :])
    return counted


def brute(tokens: list[int], window: int, kind: str | None) -> Tensor:
    """Every query reads backwards until it has read the separator that opened its document, or to the window's end."""
    seen = [[False] * len(tokens) for _ in tokens]
    counted = blocks_counted(tokens, window) if kind == "counted" else []
    for q in range(len(tokens)):
        for k in range(q, -1, -1):
            blocks_back = q // 128 - k // 128
            if kind == "inclusive" and q - k > window:
                break
            if kind in ("token", "clipped") and q - k >= window:
                break
            if kind == "block" and blocks_back >= window:
                break
            if kind == "clipped" and blocks_back > (window - 1) // 128:
                break
            seen[q][k] = kind != "counted" or k // 128 in counted[q // 128]
            if tokens[k] == SEPARATOR:
                break
    return torch.tensor(seen)


def expanded(mask: BlockMask) -> tuple[Tensor, Tensor, Tensor]:
    """What the block lists admit (T, T), the positions of partial blocks, those of full blocks."""
    T = mask.seq_lengths[0]
    q, k = torch.arange(T)[:, None], torch.arange(T)[None, :]
    zero = torch.zeros((), dtype=torch.int32)
    listed = []
    for counts, indices in (
        (mask.kv_num_blocks, mask.kv_indices),
        (mask.full_kv_num_blocks, mask.full_kv_indices),
    ):
        here = torch.zeros(T, T, dtype=torch.bool)
        for i in range(T // BLOCK if counts is not None else 0):
            for j in indices[0, 0, i, : int(counts[0, 0, i])].tolist():
                here[i * BLOCK : (i + 1) * BLOCK, j * BLOCK : (j + 1) * BLOCK] = True
        listed.append(here)
    partial, full = listed
    return (partial & mask.mask_mod(zero, zero, q, k)) | full, partial, full


@st.composite
def sequences(draw: st.DrawFn) -> tuple[list[int], int, str | None]:
    """Token ids of 1 to 4 blocks, some of them separators, with a window of some kind; edges of blocks come up often."""
    n_blocks, kind = draw(st.integers(1, 4)), draw(st.sampled_from(KINDS))
    T = n_blocks * BLOCK
    edges = st.sampled_from(
        [
            e
            for b in range(n_blocks + 1)
            for e in (b * BLOCK - 1, b * BLOCK, b * BLOCK + 1)
            if 0 <= e < T
        ]
    )
    opening = draw(st.sets(st.one_of(edges, st.integers(0, T - 1)), max_size=8))
    tokens = [SEPARATOR if t in opening else 0 for t in range(T)]
    near_edges = st.integers(1, n_blocks).flatmap(
        lambda b: st.integers(max(1, b * BLOCK - 2), b * BLOCK + 2)
    )
    window = draw(
        st.integers(1, n_blocks + 1)
        if kind in ("block", "counted")
        else st.one_of(near_edges, st.integers(1, T + BLOCK))
    )
    return tokens, window, kind


# three blocks of one document are counted, which ends within the fourth
ENDS_LATE = [SEPARATOR if t == 3 * BLOCK + 40 else 0 for t in range(4 * BLOCK)]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(sequences())
@example((ENDS_LATE, 3, "counted"))
def test_dense_and_block_masks_are_the_definition(
    sequence: tuple[list[int], int, str | None],
) -> None:
    tokens, size, kind = sequence
    docs = document_ids(torch.tensor(tokens), SEPARATOR)
    window = None if kind is None else torch.tensor(size, dtype=torch.int32)
    expected = brute(tokens, size, kind)
    assert torch.equal(dense_mask(0, len(tokens), docs, window, kind), expected)
    for builder in BUILDERS[kind]:
        admitted, partial, full = expanded(block_mask(docs, window, kind, builder))
        assert torch.equal(admitted, expected), builder
        assert expected[full].all(), f"{builder}: a full block holds a pair that is not allowed"
        assert not expected[~(partial | full)].any(), (
            f"{builder}: an allowed pair lies in no listed block"
        )
        assert not (partial & full).any(), f"{builder}: a block is listed twice"


def test_full_blocks_are_found_by_hand() -> None:
    """A lower bound, without which listing no full block at all would pass."""
    docs = document_ids(torch.zeros(4 * BLOCK, dtype=torch.int64), SEPARATOR)
    mask = block_mask(docs, torch.tensor(3, dtype=torch.int32), "block", "partial_and_full")
    assert mask.full_kv_num_blocks.flatten().tolist() == [0, 1, 2, 2]
    assert mask.kv_num_blocks.flatten().tolist() == [1, 1, 1, 1]


def are_lists_of(counts: Tensor, indices: Tensor, blocks_NN: Tensor) -> bool:
    """Whether they list these pairs of blocks as a stable sort does."""
    by_sort = blocks_NN.int().argsort(dim=-1, descending=True, stable=True)
    n = blocks_NN.sum(-1, dtype=torch.int32)
    return torch.equal(indices[0, 0], by_sort.int()) and torch.equal(counts[0, 0], n)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(sequences())
def test_lists_of_blocks_are_those_of_a_stable_sort_from_both_sides(
    sequence: tuple[list[int], int, str | None],
) -> None:
    """Listed blocks first, then the others, each in order; also of the keys' side, which gradients read."""
    tokens, size, kind = sequence
    docs = document_ids(torch.tensor(tokens), SEPARATOR)
    window = None if kind is None else torch.tensor(size, dtype=torch.int32)
    for builder in set(BUILDERS[kind]) - {"traced"}:
        mask = block_mask(docs, window, kind, builder)
        assert mask.seq_lengths == (len(tokens), len(tokens)) and mask.BLOCK_SIZE == (BLOCK, BLOCK)
        for of_queries, of_keys in (
            ((mask.kv_num_blocks, mask.kv_indices), (mask.q_num_blocks, mask.q_indices)),
            (
                (mask.full_kv_num_blocks, mask.full_kv_indices),
                (mask.full_q_num_blocks, mask.full_q_indices),
            ),
        ):
            if of_queries[0] is None:
                assert builder == "partial" and of_keys == (None, None)
                continue
            counts, indices = of_queries
            rows = torch.arange(indices.shape[-1]) < counts[0, 0][:, None]
            pairs = torch.zeros_like(rows).scatter(1, indices[0, 0].long(), rows)
            assert are_lists_of(*of_queries, pairs) and are_lists_of(*of_keys, pairs.T)


def test_lists_of_hundreds_of_blocks_are_exact() -> None:
    """More than bf16 counts to: every block of 600 sees all before it, or those of its document."""
    T = 600 * BLOCK
    docs = document_ids((torch.arange(T) == 350 * BLOCK).long() * SEPARATOR, SEPARATOR)
    mask = block_mask(docs, torch.tensor(T), "token", "partial")
    i = torch.arange(600)
    pairs = (i[:, None] >= i) & ((i[:, None] >= 350) == (i >= 350))
    assert are_lists_of(mask.kv_num_blocks, mask.kv_indices, pairs)
    assert are_lists_of(mask.q_num_blocks, mask.q_indices, pairs.T)


def inputs(T: int, grad: bool) -> list[Tensor]:
    generator = torch.Generator().manual_seed(T)
    return [torch.randn(1, 2, T, 8, generator=generator, requires_grad=grad) for _ in range(3)]


def documents(T: int) -> Tensor:
    """Five tokens, a document longer than every window here and than a block, one token, the rest."""
    tokens = torch.zeros(T, dtype=torch.int64)
    tokens[[5, T - 40, T - 39]] = SEPARATOR
    return document_ids(tokens, SEPARATOR)


def window_of(kind: str | None, size: int = 200) -> Tensor | None:
    in_blocks = torch.tensor(2, dtype=torch.int32)
    return {None: None, "block": in_blocks, "counted": in_blocks}.get(
        kind, torch.tensor(size, dtype=torch.int32)
    )


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        (None, 0),
        ("block", 2),
        ("token", 50),
        ("token", 200),
        ("clipped", 50),
        ("clipped", 200),
        ("inclusive", 50),
    ],
)
@pytest.mark.parametrize("T", [384, 300])
def test_chunks_of_queries_equal_one_mask(
    kind: str | None, size: int, T: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows within a chunk of 128 queries and beyond it; each leaves out keys of a query's own document."""
    docs, window = documents(T), window_of(kind, size)
    assert (kind is None) == torch.equal(
        dense_mask(0, T, docs, window, kind), dense_mask(0, T, docs, None, None)
    )
    results = []
    for queries in (T, 128):
        monkeypatch.setattr(harness.model.attention, "QUERIES", queries)
        q, k, v = inputs(T, grad=True)
        y = KERNELS["dense"](q, k, v, make_mask("dense", docs, window, kind, "traced"))
        y.square().sum().backward()
        results.append((y, q.grad, k.grad, v.grad))
    for whole, chunked in zip(*results, strict=True):
        torch.testing.assert_close(chunked, whole, rtol=1e-5, atol=1e-6)


def test_a_long_sequence_makes_no_mask_beyond_its_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    """QUERIES x T booleans at most, none of them kept for the backward pass, which makes them again."""
    T, queries = 512, 128
    sizes: list[int] = []
    masks: list[weakref.ref[Tensor]] = []

    def watched(*args: object) -> Tensor:
        mask = dense_mask(*args)  # type: ignore[arg-type]
        sizes.append(mask.numel())
        masks.append(weakref.ref(mask))
        return mask

    monkeypatch.setattr(harness.model.attention, "QUERIES", queries)
    monkeypatch.setattr(harness.model.attention, "dense_mask", watched)
    q, k, v = inputs(T, grad=True)
    y = KERNELS["dense"](
        q, k, v, make_mask("dense", documents(T), window_of("token"), "token", "traced")
    )
    assert len(sizes) == T // queries
    assert [m for m in masks if m() is not None] == []
    y.sum().backward()
    assert len(sizes) == 2 * T // queries
    assert max(sizes) <= queries * T


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize(
    ("kind", "builder"),
    [(kind, builder) for kind, builders in BUILDERS.items() for builder in builders],
)
def test_flex_attention_equals_the_dense_kernel(kind: str | None, builder: str) -> None:
    """Forward only: FlexAttention has no backward pass on a CPU, and refuses inputs that require gradients."""
    T = 384
    q, k, v = inputs(T, grad=False)
    with torch.no_grad():
        y, expected = (
            KERNELS[kernel](
                q, k, v, make_mask(kernel, documents(T), window_of(kind), kind, builder)
            )
            for kernel in ("flex", "dense")
        )
    torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-6)


# ---------------------------------------------------------------- causality by gradient


def causal(T: int) -> Tensor:
    return torch.ones(T, T, dtype=torch.bool).tril()


def seen_by_documents(kind: str | None) -> Callable[[int], Tensor]:
    return lambda T: dense_mask(0, T, documents(T), window_of(kind), kind)


CAUSAL = [(kernel, None, causal) for kernel in ("sdpa", "math", "flash")]
DOCUMENT = [("dense", kind, seen_by_documents(kind)) for kind in KINDS]


@pytest.mark.parametrize(("kernel", "kind", "seen"), [*CAUSAL, *DOCUMENT])
@pytest.mark.parametrize("queries", [2048, 128])
def test_a_query_has_gradients_to_the_keys_it_sees_and_no_others(
    kernel: str,
    kind: str | None,
    seen: Callable[[int], Tensor],
    queries: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    T = 256
    monkeypatch.setattr(harness.model.attention, "QUERIES", queries)
    q, k, v = inputs(T, grad=True)
    mask = (
        make_mask("dense", documents(T), window_of(kind), kind, "traced")
        if kernel == "dense"
        else None
    )
    y = KERNELS[kernel](q, k, v, mask)
    expected = seen(T)
    for position in (0, 4, 5, 127, 128, 129, 230, 255):
        dk, dv = torch.autograd.grad(y[:, :, position].square().sum(), (k, v), retain_graph=True)
        assert torch.equal(dv.abs().sum((0, 1, 3)) > 0, expected[position]), position
        assert not dk[:, :, ~expected[position]].any(), position


@pytest.mark.parametrize("name", PRESETS)
def test_no_position_sees_the_future(name: str) -> None:
    """Every position has a token of its own, so a row of a table stands for a position, in value tables too."""
    made = core(small(name, "fp32"))
    network, window = made.model, made.set_window(0)
    disturb(network)
    T = 256
    tokens = torch.randperm(T + 1, generator=torch.Generator().manual_seed(3))[:T]
    last: list[Tensor] = []
    network.norm.register_forward_hook(
        lambda module, args, out: last.append(out)
    )  # before the head, which may be the table
    network.logits(tokens[None], window)
    tables = [(n, p) for n, p in network.named_parameters() if p.role in ("embed", "value_embed")]
    for position in (0, 100, 200, 254):
        network.zero_grad()
        weights = torch.linspace(-1, 1, last[0].shape[-1])  # the squares would sum to a constant
        (last[0][0, position] * weights).sum().backward(retain_graph=True)
        for n, table in tables:
            rows = table.grad[tokens].abs().sum(-1)
            assert rows[position] > 0, n
            assert not rows[position + 1 :].any(), f"{n}: position {position} sees a later token"


@pytest.mark.parametrize("kind", ["token", "inclusive"])
def test_no_more_diagonals_of_blocks_are_looked_at_than_a_window_reaches(kind: str) -> None:
    q, k = torch.tensor(8 * BLOCK), torch.arange(8 * BLOCK + 1)  # the first token of its block
    for w in (1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 1):
        seen = k[IN_WINDOW[kind](q, k, w)] // BLOCK
        assert DIAGONALS[kind](w) == 8 - int(seen.min()) + 1


def test_a_clipped_window_reaches_as_many_blocks_as_its_tokens_fill() -> None:
    sizes = (1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 1)
    assert [DIAGONALS["clipped"](w) for w in sizes] == [1, 1, 1, 2, 2, 3]
