"""Where the records round (precision.mode record): the dtype of every tensor along the way, for each of the three policies."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import harness.model.gpt
import harness.model.layers
import harness.model.rotary
from harness.config.presets import preset_values
from harness.model.attention import KERNELS
from harness.model.gpt import GPT
from harness.model.rotary import Rotary
from harness.training.core import Core
from tests.small_presets import PRESETS, batch, core, disturb, ids, small

BF16, FP32 = torch.bfloat16, torch.float32
POLICY = {name: preset_values(name)[0]["precision.policy"] for name in PRESETS}
OF = {
    policy: [n for n in PRESETS if POLICY[n] == policy]
    for policy in ("autocast", "bf16_model", "bf16_embeds")
}
BY_DTYPE = {BF16: 2.0**-7, FP32: 2.0**-23}


@dataclass(frozen=True, kw_only=True)
class Watched:
    """What one pass through a network showed."""

    inputs: Mapping[str, torch.dtype]  # of every module
    outputs: Mapping[str, torch.dtype]
    eps: list[
        tuple[torch.dtype, float, int]
    ]  # of every norm: dtype of its input, epsilon, channels
    rotated: set[tuple[torch.dtype, torch.dtype]]  # (input, result) of the rotation
    kernel: set[torch.dtype]  # q, k, v
    tanh: set[torch.dtype]
    squared: set[torch.dtype]


def watch(made: Core, monkeypatch: pytest.MonkeyPatch, *, evaluate: bool = False) -> Watched:
    inputs: dict[str, torch.dtype] = {}
    outputs: dict[str, torch.dtype] = {}
    eps: list[tuple[torch.dtype, float, int]] = []
    rotated, kernel, tanh, squared = set(), set(), set(), set()  # type: ignore[var-annotated]

    def first(value: Any) -> Any:
        return value[0] if isinstance(value, tuple | list) else value

    def note(name: str, args: Any, out: Any) -> None:
        for kept, value in ((inputs, first(args)), (outputs, first(out))):
            if isinstance(value, Tensor):
                kept[name] = value.dtype

    handles = [
        m.register_forward_hook(lambda m, a, o, n=n: note(n, a, o))
        for n, m in made.model.named_modules()
    ]
    handles += [
        m.register_forward_pre_hook(
            lambda m, a: eps.append((a[0].dtype, m.eps[a[0].dtype], a[0].shape[-1]))
        )
        for m in made.model.modules()
        if isinstance(m, harness.model.layers.RMSNorm)
    ]
    for block in made.model.blocks:
        if block.attn is None:
            continue
        rotate, run = block.attn.rotate, block.attn.kernel
        monkeypatch.setattr(
            block.attn,
            "rotate",
            lambda x, *a, f=rotate: (y := f(x, *a), rotated.add((x.dtype, y.dtype)))[0],
        )
        monkeypatch.setattr(
            block.attn,
            "kernel",
            lambda *a, f=run: (kernel.update(t.dtype for t in a[:3]), f(*a))[1],
        )
    for mlp in (block.mlp for block in made.model.blocks):
        act = mlp.activation
        monkeypatch.setattr(
            mlp, "activation", lambda x, lifted, f=act: (y := f(x, lifted), squared.add(y.dtype))[0]
        )
    real = torch.tanh
    monkeypatch.setattr(torch, "tanh", lambda x: (tanh.add(x.dtype), real(x))[1])
    x, y = batch(0)
    if evaluate:
        made.evaluate(0, [(x[0], y[0])])
    else:
        made.gradients([(x, y)], made.set_step(0))
    for handle in handles:
        handle.remove()
    monkeypatch.undo()
    return Watched(
        inputs=inputs,
        outputs=outputs,
        eps=eps,
        rotated=rotated,
        kernel=kernel,
        tanh=tanh,
        squared=squared,
    )


def linears(seen: Watched) -> set[torch.dtype]:
    return {
        d
        for n, d in seen.outputs.items()
        if n.rpartition(".")[2] in ("q", "k", "v", "qkv", "out", "up", "down", "head")
    }


def stream(seen: Watched) -> set[torch.dtype]:
    """The residual stream, its norms among it."""
    return {
        d
        for n, d in seen.outputs.items()
        if (n.startswith("blocks.") and n.count(".") == 1) or n in ("embed", "norm", "embed_norm")
    }


def storage(network: GPT) -> dict[str, set[torch.dtype]]:
    out: dict[str, set[torch.dtype]] = {}
    for p in network.parameters():
        out.setdefault(p.role, set()).add(p.dtype)  # type: ignore[attr-defined]
    return out


@pytest.mark.parametrize("name", OF["autocast"])
def test_autocast_keeps_the_stream_in_fp32_and_multiplies_in_bf16(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = core(small(name))
    m = made.config.model
    seen = watch(made, monkeypatch)
    assert set().union(*storage(made.model).values()) == {FP32}
    assert stream(seen) == {FP32}
    assert linears(seen) == {BF16}
    assert seen.kernel == {BF16}
    assert seen.tanh == ({BF16} if m.logit_softcap is not None else set())
    assert seen.squared == {
        FP32 if m.activation == "relu2" else BF16
    }  # a square is a power, which autocast lifts
    norms = {n: d for n, d in seen.outputs.items() if n.endswith(("norm_first", "norm_last"))}
    assert set(norms.values()) == ({FP32} if m.qk_norm is not None else set())
    into, out = {None: (BF16, FP32), "after_rope": (BF16, BF16), "before_rope": (FP32, FP32)}[
        m.qk_norm
    ]
    assert seen.rotated == {(into, out)}  # the table is fp32 before record 5, bf16 since
    if isinstance(m.norm_eps, float):
        assert {e for _, e, _ in seen.eps} == {1e-6}
    else:
        assert {(d, e) for d, e, channels in seen.eps if channels == m.d_model} == {
            (FP32, 2.0**-23)
        }
        assert {(d, e) for d, e, channels in seen.eps if channels == m.head_dim} == {
            (BF16, 2.0**-7)
        }


@pytest.mark.parametrize("name", OF["bf16_model"] + OF["bf16_embeds"])
def test_a_bf16_embedding_makes_everything_bf16_but_the_stored_matrices(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = core(small(name))
    m = made.config.model
    seen, stored = watch(made, monkeypatch), storage(made.model)
    assert stored["embed"] == {BF16}
    assert stored.get("value_embed", {BF16}) == {BF16}
    assert stored["hidden"] == stored["head"] == {FP32}
    assert stored["scalar"] == {BF16 if POLICY[name] == "bf16_model" else FP32}
    assert stream(seen) == linears(seen) == seen.kernel == seen.squared == seen.tanh == {BF16}
    assert seen.rotated == {(BF16, BF16)}
    assert {(d, e) for d, e, _ in seen.eps} == {(BF16, 2.0**-7)}
    states = {
        n: s
        for o in made.optimizers
        for g in o.param_groups
        for n, s in zip(g["names"], g["params"], strict=True)
    }
    assert states["embed.weight"].dtype == BF16  # so Adam's state is bf16, too
    rounded = [
        p
        for p in made.model.parameters()
        if p.role == "hidden" and torch.equal(p, p.to(BF16).to(FP32))
    ]
    zeros = [p for p in made.model.parameters() if p.role == "hidden" and not p.any()]
    every = [p for p in made.model.parameters() if p.role == "hidden"]
    assert len(rounded) == (len(every) if POLICY[name] == "bf16_model" else len(zeros))
    assert m.norm_eps == "by_dtype"


@pytest.mark.parametrize("name", PRESETS)
def test_fp32_mode_makes_every_cast_a_no_op(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = core(small(name, "fp32"))
    seen = watch(made, monkeypatch)
    assert set().union(*storage(made.model).values()) == {FP32}
    assert set(seen.outputs.values()) - {torch.int64} == {FP32}
    assert {e for _, e, _ in seen.eps} == {
        1e-6 if isinstance(made.config.model.norm_eps, float) else 2.0**-23
    }
    assert made.model.rotary.cos.dtype == FP32


@pytest.mark.parametrize("name", PRESETS)
def test_validation_is_fp32_in_records_2_to_4_alone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = core(small(name))
    in_validation = watch(made, monkeypatch, evaluate=True)
    after = watch(made, monkeypatch)
    early = name in ("r02", "r03", "r03pre", "r04")
    assert linears(in_validation) == {FP32 if early else BF16}
    assert in_validation.kernel == ({FP32} if early else {BF16})
    assert linears(after) == {BF16}, "training goes on in bf16"


@pytest.mark.parametrize("name", PRESETS)
def test_logits_and_loss_are_fp32(name: str) -> None:
    made = core(small(name))
    window = made.set_window(0)
    assert made.model.logits(ids(0), window).dtype == FP32
    assert made.model(ids(0), ids(0), window).dtype == FP32


# ---------------------------------------------------------------- rotary tables

POSITIONS = np.arange(65536, dtype=np.float32)


def to_bf16(x: np.ndarray) -> Tensor:
    return torch.from_numpy(x).to(BF16)


def frequencies(name: str) -> np.ndarray:
    """(64,) fp32 for heads of 128 channels, as the record stored them."""
    if name in ("r17", "r18"):
        return np.concatenate([1024.0 ** -np.linspace(0, 1, 32), np.zeros(32)]).astype(np.float32)
    w = (10000.0 ** -(np.arange(0, 128, 2) / 128)).astype(np.float32)
    return to_bf16(w).float().numpy() if name in ("r14", "r15", "r16") else w


@pytest.mark.parametrize("name", ["r05", "r12", "r14", "r16", "r17", "r18"])
def test_rotary_tables_are_rounded_as_the_record_rounded_them(name: str) -> None:
    m = core(small(name)).config.model
    values = preset_values(name)[0]
    dtype = {"fp32": FP32, "bf16": BF16}
    freq_dtype = dtype[values["model.rope_freq_dtype"]]
    freq_P = harness.model.rotary.frequencies(128, m.rope_base, m.rope_pairs, freq_dtype).numpy()
    np.testing.assert_allclose(
        freq_P, frequencies(name), rtol=5e-7 if name not in ("r14", "r16") else 0
    )
    rotary = Rotary(
        head_dim=128,
        base=m.rope_base,
        pairs=m.rope_pairs,
        freq_dtype=freq_dtype,
        table_dtype=dtype[values["model.rope_table_dtype"]],
        seq_len=2048,
        as_buffers=m.rope_buffers,
    )
    assert {n for n, _ in rotary.named_buffers()} == ({"cos", "sin"} if m.rope_buffers else set())
    cos, sin = (t[:, 0] for t in rotary(2048)[:2])  # both halves: cos twice, sin with both signs
    assert torch.equal(
        torch.cat([cos[:, :64], -sin[:, :64]], -1), torch.cat([cos[:, 64:], sin[:, 64:]], -1)
    )
    cos, sin = cos[:, :64], sin[:, :64]
    stored = FP32 if name == "r18" else BF16
    assert cos.dtype == sin.dtype == stored
    theta = (
        POSITIONS[:2048, None] * freq_P[None, :]
    )  # fp32: the records' kernels never rounded an angle
    error = {FP32: 1e-6, BF16: 2.0**-8}[stored]
    for table, exact in (
        (cos, np.cos(theta.astype(np.float64))),
        (sin, np.sin(theta.astype(np.float64))),
    ):
        assert (table.double() - torch.from_numpy(exact)).abs().max() <= error
    if name in ("r17", "r18"):
        assert (cos[:, 32:] == 1).all()
        assert (sin[:, 32:] == 0).all()


def test_frequencies_in_bf16_are_off_by_up_to_0_37_percent() -> None:
    exact, rounded = frequencies("r13"), frequencies("r14")
    assert 0.003 < np.max(np.abs(rounded / exact - 1)) < 0.0039


def small_tables(dtype: torch.dtype, *, as_buffers: bool = False) -> Rotary:
    """The tables of four positions, heads of 8 channels."""
    return Rotary(
        head_dim=8,
        base=1024.0,
        pairs="half",
        freq_dtype=FP32,
        table_dtype=dtype,
        seq_len=4,
        as_buffers=as_buffers,
    )


def test_the_two_rotations_differ_by_rounding_alone() -> None:
    x = torch.randn(1, 4, 2, 8, generator=torch.Generator().manual_seed(0)).to(BF16)
    rotary = small_tables(BF16)
    promoted, lifted = (
        harness.model.rotary.ROTATE[k](x, *rotary(4)[:2]) for k in ("promote", "fp32")
    )
    assert promoted.dtype == lifted.dtype == BF16
    torch.testing.assert_close(promoted, lifted, rtol=2.0**-6, atol=2.0**-6)
    assert not torch.equal(promoted, lifted)


@pytest.mark.parametrize("dtype", [FP32, BF16])
@pytest.mark.parametrize("math", ["promote", "fp32"])
def test_the_form_of_a_compiled_graph_rotates_to_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, math: str
) -> None:
    rotary = small_tables(dtype)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 4, 2, 8, generator=generator).to(dtype).requires_grad_()
    g = torch.randn(3, 4, 2, 8, generator=generator).to(dtype)

    def rotated() -> tuple[Tensor, Tensor]:
        y = harness.model.rotary.ROTATE[math](x, *rotary(4)[:2])
        return y, torch.autograd.grad(y, x, g)[0]

    eager = rotated()
    monkeypatch.setattr(harness.model.rotary, "is_compiling", lambda: True)
    assert rotary(4)[0].shape == (4, 1, 4)
    for one, other in zip(rotated(), eager, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("as_buffers", [False, True])
def test_the_tables_move_with_their_module(as_buffers: bool) -> None:
    rotary = small_tables(FP32, as_buffers=as_buffers)
    assert rotary.state_dict() == {}
    assert {t.device.type for t in rotary.to("meta")(4)[:2]} == {"meta"}


def test_the_norm_is_the_librarys_at_its_epsilon() -> None:
    x = torch.randn(3, 16, generator=torch.Generator().manual_seed(0))
    norm = harness.model.layers.RMSNorm
    for dtype, eps in {**BY_DTYPE, torch.float64: 2.0**-23}.items():
        for size in (1.0, 1e-4):  # the square of which is less than each epsilon
            given = (size * x).to(dtype)
            for name, value in (("by_dtype", eps), (1e-5, 1e-5)):
                expected = F.rms_norm(given.float(), (16,), eps=value).to(dtype)
                assert torch.equal(norm(name, None)(given), expected)
    assert KERNELS.keys() >= {"sdpa", "dense"}


def test_logits_are_rounded_to_bf16_while_training_alone() -> None:
    plain, rounded = (
        core(small("r18", logit_softcap="sigmoid30", logits_dtype=dtype))
        for dtype in ("fp32", "bf16")
    )
    for made in (plain, rounded):
        disturb(made.model)
    x = ids(0)
    logits = plain.model.logits(x, plain.set_window(0))
    of_training = rounded.model.logits(x, rounded.set_window(0))
    assert of_training.dtype == logits.dtype == torch.float32
    assert torch.equal(of_training, logits.bfloat16().float())
    assert not torch.equal(of_training, logits)
    batches = [(x, x.roll(-1, dims=1))]
    assert torch.equal(plain.evaluate(0, batches), rounded.evaluate(0, batches))
