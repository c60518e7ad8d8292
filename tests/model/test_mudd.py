"""MUDD connections and gates, and mixtures of heads (records 81 and 85), against formulas written out here."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from harness.model.composed import correction, near
from tests.graphs import Graphs
from tests.model.test_stream import Seen, embedded, made
from tests.small_presets import core, ids, small

WINDOWS = torch.tensor([128, 40])  # of long and of short layers
TWO_STREAMS = {
    "residual_form": "sub_layers",
    "backout": 2,
    "backout_feeds_attention": True,
    "skip_layers": (1, 4),
    "value_mix": "gate",
    "bigram_hash": 97,
    "bigram_inject": "after_attention",
    "bigram_scale_init": 0.05,
    "residual_init": 1.1,
}
GATES = {
    "mudd": "plain",
    "mudd_gate": 3,
    "xsa": (0, 1, 3),
    "attn_gate": "dynamic",
    "attn_gate_layers": (1, 5),
    "dc_mha": (5,),
    "dc_window": 7,
}
EVERYTHING = {
    **TWO_STREAMS,
    **GATES,
    "smear": True,
    "key_offset": (1, 5),
    "rope_pairing": "adjacent",
    "attn_lambda": "in_out",
    "bigram_width": 24,
    "bigram_sign": 16,
    "attn_window": "inclusive",
    "attn_window_layers": (1, 5),
    "block_mask": "traced",
    "schedule__window_warmup": None,
}


def coefficients(maker: Any, x: Tensor, scale: float | Tensor) -> list[Tensor]:
    hidden = F.gelu(x @ maker.down.weight.T)
    made_BTK = scale * (hidden @ maker.up.weight.T + maker.bias)
    return list(made_BTK.split(1, dim=-1))


@pytest.mark.parametrize(
    ("form", "scale", "boost", "whole"),
    [("raised", 0.2 / 3**0.5, 1.15, 2.0), ("plain", 0.1, 1.0, 0.0)],
)
def test_the_last_block_s_scales_are_told_for_every_position(
    form: str, scale: float, boost: float, whole: float
) -> None:
    """And earlier streams enter it, its values and the head, by coefficients of the stream before it."""
    model: Any = made(**TWO_STREAMS, mudd=form).model
    assert model.backout is None
    assert [name for name, _ in model.blocks[5].named_parameters(recurse=False)] == []
    given: list[Tensor] = []
    attn, mlp = model.blocks[5].attn, model.blocks[5].mlp
    attn.register_forward_pre_hook(lambda m, a: given.append(a[3]))
    seen = Seen(model)
    with torch.no_grad():
        x0, rows = embedded(model), model.bigram.rows(ids(0))
        first = x0 + model.bigram.scale * rows
        x, saved, skip = seen.after[4], seen.after[2], seen.after[1]
        v0, v2, v4, r0, r2, r4, g0, g1, ra, pa, m0, b, rm, pm = coefficients(
            model.mudd.last, x, scale
        )
        row = model.value_embeds(ids(0))[5]
        half = row.shape[-1] // 2
        values = torch.cat([(whole + g0) * row[..., :half], (whole + g1) * row[..., half:]], -1)
        values = values + boost * (v0 * first + v2 * saved + v4 * x)
        torch.testing.assert_close(given[0], values)
        torch.testing.assert_close(seen.read[-2], model.norm(saved))
        y = (1 + r4) * x + r0 * first + r2 * saved
        y = ra * y + pa * seen.gave[-2] + m0 * first + b * rows
        torch.testing.assert_close(seen.read[-1], model.norm(y))
        y = rm * y + pm * seen.gave[-1]
        c0, c2, c4, ve, s = coefficients(model.mudd.post, y, scale)
        row = model.value_embeds(ids(0))[0]
        y = y + c0 * first + c2 * saved + c4 * x + ve * row + s * skip
        torch.testing.assert_close(seen.out, model.norm(y))
    assert attn.value_gate is None and mlp is not None


@pytest.mark.parametrize(("form", "saved"), [("raised", -0.5011), ("plain", -0.5)])
def test_at_the_start_mudd_is_back_out_and_the_scales_of_the_other_blocks(
    form: str, saved: float
) -> None:
    """x - b / 2 with value factors of 2, and the initial scales."""
    model: Any = core(small("r18", "fp32", unet_skip=False, **TWO_STREAMS, mudd=form)).model
    with torch.no_grad():
        told = [c.unique().item() for c in coefficients(model.mudd.last, embedded(model),
                                                        model.mudd.form.scale)]  # fmt: skip
        post = [c.unique().item() for c in coefficients(model.mudd.post, embedded(model),
                                                        model.mudd.form.scale)]  # fmt: skip
    factor = 0.0 if form == "raised" else 2.0
    root = 1.1**0.5
    assert told == pytest.approx([0] * 6 + [factor] * 2 + [root, 1, 0, 0.05, root, 1])
    assert post == pytest.approx([0, saved, 0, 0, 0], abs=1e-4)


def test_what_is_not_there_has_no_coefficient() -> None:
    without = {"value_embed": None, "value_mix": "lerp", "value_tables": "packed"}
    fields = {k: v for k, v in TWO_STREAMS.items() if k not in ("skip_layers", "value_mix")}
    fields = {k: v for k, v in fields.items() if not k.startswith("bigram")}
    model: Any = made(**fields, **without, mudd="plain").model
    assert (len(model.mudd.last.bias), len(model.mudd.post.bias)) == (11, 3)
    loss = model(ids(0), ids(1), torch.tensor(128))
    loss.backward()
    assert all(p.grad is not None for p in model.parameters())


def test_two_makers_tell_gates_shares_and_scales_of_x0() -> None:
    """The first from x0, of the layers before the fourth; the second from the stream before that."""
    model: Any = made(**TWO_STREAMS, **GATES).model
    told: list[dict[str, Tensor]] = []
    for i, block in enumerate(model.blocks):
        block.register_forward_hook(lambda m, a, o, i=i: told.append(a[0].told[i]))
    seen = Seen(model)
    with torch.no_grad():
        x0, scale = embedded(model), model.mudd_gates.scale
        early, late = (
            torch.cat(coefficients(model.mudd_gates.makers[i], x, scale), dim=-1)
            for i, x in (("0", x0), ("3", seen.after[2]))
        )
    n = 2  # heads
    names = [("xsa", 0, n), ("xsa", 1, n), ("gate", 1, n)]
    names += [(f"{kind}_scale", i, 1) for i in (0, 1, 2) for kind in ("x0", "bigram")]
    check_told(told, names, early)
    names = [("xsa", 3, n), ("gate", 5, n), ("x0_scale", 3, 1), ("bigram_scale", 3, 1)]
    check_told(told, [*names, ("skip", 4, 1), ("mixed", 5, n), ("taken", 5, n)], late)
    assert not {"xsa_alpha", "x0_scale", "bigram_scale", "head_gate"} & {
        part for name, _ in model.named_parameters() for part in name.split(".")
    }


def check_told(
    told: list[dict[str, Tensor]], names: list[tuple[str, int, int]], all_: Tensor
) -> None:
    sizes = [size for _, _, size in names]
    for (name, layer, _), expected in zip(names, all_.split(sizes, dim=-1), strict=True):
        torch.testing.assert_close(told[layer][name], expected)


def test_the_gates_start_at_a_quarter_and_the_others_where_learned_ones_do() -> None:
    model: Any = core(small("r18", "fp32", unet_skip=False, **TWO_STREAMS, **GATES)).model
    scale, makers = model.mudd_gates.scale.detach(), model.mudd_gates.makers
    early, late = ((scale * makers[i].bias).tolist() for i in ("0", "3"))
    assert early == pytest.approx([0] * 4 + [0.25] * 2 + [0, 0.05] * 3)
    assert late == pytest.approx([0, 0, 0.25, 0.25, 0, 0.05, 0.5, 1, 1, 0, 0])


def test_told_gates_and_skips_scale_what_they_are_of() -> None:
    model: Any = made(**TWO_STREAMS, **GATES).model
    entered: list[Tensor] = []
    projected: list[Tensor] = []
    told: list[dict[str, Tensor]] = []
    model.blocks[4].register_forward_pre_hook(lambda m, a: entered.append(a[0].x))
    for i in (1, 4):
        model.blocks[i].register_forward_hook(lambda m, a, o, i=i: told.append(a[0].told[i]))
    out = model.blocks[1].attn.out
    out.register_forward_pre_hook(lambda m, a: projected.append(a[0]))
    seen = Seen(model)
    share = torch.sigmoid(model.skip.scale) * told[1]["skip"]
    torch.testing.assert_close(entered[0], seen.after[3] + share * seen.after[1])
    gate = told[0]["gate"].clone()
    model.mudd_gates.makers["0"].bias.data[4:6] *= 3
    again = Seen(model)
    ratio = projected[1].unflatten(-1, (2, -1)) / projected[0].unflatten(-1, (2, -1))
    expected = (told[2]["gate"] / gate)[..., None].expand_as(ratio)
    torch.testing.assert_close(ratio, expected, atol=1e-3, rtol=1e-3)
    assert not torch.equal(seen.out, again.out)


@pytest.mark.parametrize(("T", "window", "size"), [(30, 7, 1.0), (5, 8, 1.0), (16, 8, 1e-3)])
def test_heads_mix_probabilities_over_near_keys_of_their_document(
    T: int, window: int, size: float
) -> None:
    """Tiled as it is, against whole matrices."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, 3, T, 4, generator=generator)
    w1, w2 = torch.randn(2, 1, T, 3, generator=generator)
    w1 *= size
    document = (torch.arange(T) >= T // 3).long()[None]
    t = torch.arange(T)
    back = t[:, None] - t
    seen = (back >= 0) & (back < window) & (document[0][:, None] == document[0])
    p = (0.3 * q @ k.transpose(-1, -2)).masked_fill(~seen, -torch.inf).softmax(-1)
    unit = w1 / (w1.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    mixed = torch.einsum("btg,bgts->bts", unit, p)
    expected = w2[..., None] * torch.einsum("bts,bnsh->btnh", mixed, v)
    torch.testing.assert_close(correction(q, k, v, w1, w2, near(document, window), 0.3), expected)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's own
def test_everything_at_once_compiles_to_one_graph_with_the_same_loss() -> None:
    network: Any = made(**EVERYTHING).model
    tokens, graphs = ids(0), Graphs()
    compiled = torch.compile(network, backend=graphs, fullgraph=True, dynamic=False)
    losses = [f(tokens, tokens.roll(-1), WINDOWS) for f in (network, compiled)]
    for loss in losses:
        loss.backward()
    torch.testing.assert_close(losses[0], losses[1])
    assert graphs.n == 1
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


def test_no_position_sees_the_future_with_everything_on() -> None:
    model = made(**EVERYTHING).model
    tokens, other = ids(0), ids(0)
    other[0, 100] = (other[0, 100] + 1) % 256
    with torch.no_grad():
        before, after = model.logits(tokens, WINDOWS), model.logits(other, WINDOWS)
    assert torch.equal(before[0, :100], after[0, :100])
    assert not torch.equal(before[0, 100:102], after[0, 100:102])
