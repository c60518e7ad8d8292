"""One graph, traced once: no break, no new graph when window, documents or weights change. For every preset.

The records' kernel is FlexAttention from record 12 on. On a CPU it has no backward pass, so those presets are traced twice:
forward and loss with the kernel itself without gradients, and with the dense kernel with them. What is not run here: the
CUDA kernels of flex, cudnn and flash, and Inductor's code for them.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from torch.nn.attention import SDPBackend
from torch.nn.attention.flex_attention import BlockMask, flex_attention

import harness.model.attention
from harness.config.presets import preset_values
from harness.config.run import RunConfig, with_fields
from harness.model.activation import relu2
from harness.model.gpt import GPT
from harness.model.mask import BLOCK, block_mask, document_ids
from harness.model.precision import dtypes
from harness.optim.orthogonalize import FORMS, NORMS, orthogonalize
from harness.training.core import Core
from harness.training.runtime import set_runtime
from tests.graphs import Graphs
from tests.small_presets import PRESETS, SEPARATOR, TOKENS, core, ids, small

pytestmark = [
    pytest.mark.filterwarnings(
        "ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"
    ),  # at an import
]
FLEX = [name for name in PRESETS if preset_values(name)[0]["model.attn_kernel"] == "flex"]


def shallow(name: str, mode: str = "record") -> RunConfig:
    """Two layers, an encoder's and a decoder's; the last records' value tables need six."""
    return (
        small(name, mode)
        if preset_values(name)[0]["model.value_embed"] == "ends"
        else small(name, mode, n_layer=2)
    )


@pytest.fixture
def graphs() -> Iterator[Graphs]:
    torch._dynamo.reset()
    yield Graphs()
    torch._dynamo.reset()


def other_documents(seed: int) -> torch.Tensor:
    """Token ids of another layout: from no separator at all to many."""
    return ids(seed, every=(10_000, 40, 7)[seed % 3])


def trained(made: Core, config: RunConfig) -> Iterator[torch.Tensor]:
    """Losses with gradients, at every window of the schedule's ends and middle."""
    steps = config.schedule.steps
    for seed, step in enumerate((0, steps // 2, steps)):
        tokens = other_documents(seed)
        loss = made.local(tokens, tokens.roll(-1, 1), made.set_window(step))
        loss.backward()
        yield loss.detach()


LONG = [pytest.mark.slow, pytest.mark.long]


@pytest.mark.slow
@pytest.mark.parametrize("name", PRESETS)
def test_forward_and_loss_are_one_graph(name: str, graphs: Graphs) -> None:
    config = shallow(name)
    plain, made = core(config), core(config)
    made.local = torch.compile(made.model, backend=graphs, fullgraph=True, dynamic=False)
    for expected, loss in zip(trained(plain, config), trained(made, config), strict=True):
        torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)
        assert graphs.n == 1
    with torch.no_grad():  # validation: another grad mode is another graph, once
        for seed in range(3):
            made.local(
                other_documents(seed),
                other_documents(seed),
                made.set_window(seed * config.schedule.steps // 2),
            )
    assert graphs.n == 2
    assert graphs.calls.isdisjoint({"cos", "sin", "outer"}), "the tables are made outside"


def listed(mask: BlockMask) -> torch.Tensor:
    """(N, N): the blocks that the mask's lists hold, partial or full."""
    n = mask.seq_lengths[0] // BLOCK
    found = torch.zeros(n, n + 1, dtype=torch.bool)  # a column for what lies behind a list's end
    for counts, indices in (
        (mask.kv_num_blocks, mask.kv_indices),
        (mask.full_kv_num_blocks, mask.full_kv_indices),
    ):
        if counts is not None:
            ends = torch.arange(n) < counts[0, 0][:, None]
            found = found.scatter(1, indices[0, 0].long().where(ends, n), True)
    return found[:, :n]


def flex_by_blocks(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Any, scale: float | None = None
) -> torch.Tensor:
    """As a kernel reads the mask: its function in listed blocks alone. Eager code asks that everywhere."""
    blocks = listed(mask)

    def mask_mod(
        b: torch.Tensor, h: torch.Tensor, q: torch.Tensor, k: torch.Tensor
    ) -> torch.Tensor:
        return blocks[q // BLOCK, k // BLOCK] & mask.mask_mod(b, h, q, k)

    inner = BlockMask.from_kv_blocks(
        mask.kv_num_blocks,
        mask.kv_indices,
        mask.full_kv_num_blocks,
        mask.full_kv_indices,
        BLOCK_SIZE=BLOCK,
        mask_mod=mask_mod,
    )
    return flex_attention(q, k, v, block_mask=inner, scale=scale)


@pytest.mark.parametrize(
    ("kind", "builder"),
    [
        pytest.param("block", "partial", marks=pytest.mark.slow),
        ("block", "partial_and_full"),
        ("token", "partial"),
        ("clipped", "partial"),
    ],
)
def test_a_compiled_mask_asks_for_no_window_that_its_blocks_hold(
    kind: str, builder: str, graphs: Graphs
) -> None:
    """The same lists, and in each listed block the same pairs."""
    docs = document_ids(other_documents(0)[0], SEPARATOR)
    positions = torch.arange(len(docs))
    asked: list[Any] = []

    def pairs(window: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mask = block_mask(docs, window, kind, builder)
        zero = torch.zeros((), dtype=torch.int64)
        return mask.mask_mod(zero, zero, positions[:, None], positions[None, :]), listed(mask)

    compiled = torch.compile(pairs, backend=graphs, fullgraph=True, dynamic=False)
    for size in (1, 2) if kind == "block" else (70, 200):
        window = torch.tensor(size, dtype=torch.int32)
        (plain, lists), (quick, same_lists) = pairs(window), compiled(window)
        assert torch.equal(same_lists, lists)
        inside = lists.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
        assert torch.equal(quick & inside, plain)
        asked.append(quick)
    assert torch.equal(asked[0], asked[1]) == (kind == "block"), "which needs no window"
    sorts = {"argsort", "sort", "cumsum"}  # one compiles for minutes, one not on PyTorch 2.11
    assert graphs.calls.isdisjoint(sorts)


@pytest.mark.parametrize(
    "name",
    ["r16", *(pytest.param(n, marks=LONG) for n in PRESETS if n != "r16")],
)
def test_twenty_updates_break_no_graph_and_make_none_anew(
    name: str, graphs: Graphs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the compiler's own counters, while window, rates, momentum and documents change."""
    compile_it: Any = torch.compile
    made_of: list[Graphs] = []

    def counted(function: Any, **settings: Any) -> Any:
        made_of.append(Graphs())
        return compile_it(function, backend=made_of[-1], **settings)

    monkeypatch.setattr(torch, "compile", counted)
    changes = {"schedule.steps": 20, "schedule.warmup_steps": 0, "system.compile": "on"}
    by_steps = shallow(name).schedule.cooldown_steps
    cooldown = {"schedule.cooldown_steps": 16} if by_steps else {"schedule.cooldown_frac": 0.8}
    config = with_fields(shallow(name), changes | cooldown)
    counters.clear()
    made = core(config)
    seen = set()
    for step in range(21):
        tokens = other_documents(step)
        if step % 10 == 0:
            made.evaluate(step, [(tokens, tokens.roll(-1, 1))] * 2)
        if step < 20:
            made.update(step, [(tokens[None], tokens[None].roll(-1, 2))])
            window = 0 if made.window is None else int(made.window)
            seen.add((window, made.optimizers[-1].param_groups[0]["lr"]))
        if step == 1:
            first = [graphs.n for graphs in made_of]
    assert len(seen) > 10
    assert not counters["graph_break"], dict(counters["graph_break"])
    assert [graphs.n for graphs in made_of] == first
    assert first[0] == (1 if config.precision.val_grad else 2)
    assert counters["stats"]["unique_graphs"] == sum(first)


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:.*should not be instantiated:DeprecationWarning"
)  # torch's own, tracing create_block_mask
@pytest.mark.parametrize("name", FLEX)
def test_flex_attention_and_its_mask_are_one_graph(
    name: str, graphs: Graphs, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = shallow(name, "fp32")
    flex = with_fields(
        config,
        {
            "model.attn_kernel": "flex",
            "model.block_mask": preset_values(name)[0]["model.block_mask"],
        },
    )
    monkeypatch.setitem(harness.model.attention.KERNELS, "flex", flex_by_blocks)
    made, dense = core(config), GPT(flex.model, TOKENS, dtypes("fp32", "autocast"))
    dense.initialize(0)
    compiled = torch.compile(dense, backend=graphs, fullgraph=True, dynamic=False)
    with torch.no_grad():
        for seed, step in enumerate((0, config.schedule.steps // 2, config.schedule.steps)):
            tokens, window = other_documents(seed), made.set_window(step)
            loss, expected = compiled(tokens, tokens, window), made.model(tokens, tokens, window)
            torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)
            assert graphs.n == 1


@pytest.mark.slow
def test_a_long_sequence_in_chunks_is_one_graph(
    graphs: Graphs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dense kernel's checkpointed chunks, whose masks are made again in the backward pass."""
    monkeypatch.setattr(harness.model.attention, "QUERIES", 128)
    config = shallow("r16", "fp32")
    plain, made = core(config), core(config)
    made.local = torch.compile(made.model, backend=graphs, fullgraph=True, dynamic=False)
    for expected, loss in zip(trained(plain, config), trained(made, config), strict=True):
        torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)
    assert graphs.n == 1
    for (n, p), q in zip(made.model.named_parameters(), plain.model.parameters(), strict=True):
        if q.grad is not None:
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-6, msg=n)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("form", FORMS)
def test_orthogonalisation_is_one_graph(form: str, norm: str, graphs: Graphs) -> None:
    compiled = torch.compile(orthogonalize, backend=graphs, fullgraph=True, dynamic=False)
    for seed in range(3):
        u = torch.randn(2, 12, 8, generator=torch.Generator().manual_seed(seed))
        settings = {"form": form, "norm": norm, "dtype": torch.bfloat16}
        assert torch.equal(compiled(u, **settings), orthogonalize(u, **settings))
    assert graphs.n == 1


def test_the_core_compiles_without_a_break_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """system.compile=on goes through torch.compile, for the network and for the orthogonalisation."""
    asked: list[Any] = []
    monkeypatch.setattr(torch, "compile", lambda f, **kw: (asked.append(f), f)[1])
    config = with_fields(small("r18"), {"system.compile": "on"})
    made = core(config)
    assert asked == [made.model, orthogonalize]
    assert made.model.separator == SEPARATOR


@pytest.mark.slow
@pytest.mark.parametrize("name", ["r08", "r18"])
def test_inductor_gives_the_losses_of_eager_mode(name: str) -> None:
    torch._dynamo.reset()
    config = small(name, "fp32")
    plain, made = core(config), core(with_fields(config, {"system.compile": "on"}))
    for seed, step in enumerate((0, config.schedule.steps // 2)):
        tokens = other_documents(seed)[None]
        expected, loss = (c.update(step, [(tokens, tokens.roll(-1, 2))]) for c in (plain, made))
        torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-4)
    torch._dynamo.reset()


@pytest.mark.slow
def test_a_graph_that_chooses_its_sdpa_kernel_is_traced_once(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    q = torch.randn(1, 2, 64, 32, requires_grad=True)
    for found in ("autograd_cache_saved", "autograd_cache_hit"):
        set_runtime(with_fields(small("r08"), {"system.compile": "on"}), "cpu", seed=0)
        counters.clear()
        torch.compile(
            partial(harness.model.attention.sdpa_only, backend=SDPBackend.MATH), dynamic=False
        )(q, q, q, None).sum().backward()
        assert counters["aot_autograd"][found] == 1


@pytest.mark.parametrize("lifted", [None, torch.float32])
def test_squares_are_lifted_in_a_graph_as_outside_one(
    lifted: torch.dtype | None, graphs: Graphs
) -> None:
    x = torch.linspace(-1, 2, 8, dtype=torch.bfloat16)
    made = torch.compile(relu2, backend=graphs)(x, lifted)
    assert graphs.n == 1 and made.dtype == (lifted or x.dtype)
    assert torch.equal(made, relu2(x, lifted))
