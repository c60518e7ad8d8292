"""The changes of records after 18 in the whole network, against formulas written out here."""

import pytest
import torch
from torch import Tensor

import harness.model.rotary
from harness.model.rotary import ROTATIONS, Rotary, offset_keys
from harness.training.core import Core
from tests.small_presets import core, disturb, ids, small

WINDOW = torch.tensor(128)
WINDOWS = torch.tensor([128, 40])  # of long and of short layers


def made(**fields: object) -> Core:
    """Record 18's network with these changes, every parameter drawn anew."""
    network = core(small("r18", "fp32", **fields))
    disturb(network.model)
    return network


def outputs(network: Core) -> tuple[list[Tensor], Tensor]:
    """The output of every block, and what the head sees."""
    after: list[Tensor] = []
    hooks = [
        block.register_forward_hook(lambda m, a, o: after.append(a[0].x))
        for block in network.model.blocks
    ]
    stream = network.model.stream(ids(0), WINDOW)
    for hook in hooks:
        hook.remove()
    return after, stream


def test_backout_takes_a_block_s_output_from_the_last_one() -> None:
    network = made(backout=3)
    after, stream = outputs(network)
    assert network.model.backout is not None
    expected = network.model.norm(after[-1] - network.model.backout.scale * after[3])
    torch.testing.assert_close(stream, expected)


def test_smear_comes_before_the_norm_of_the_embedding() -> None:
    network = made(smear=True)
    model, x0 = network.model, []
    assert model.smear is not None
    hook = model.blocks[0].register_forward_hook(lambda m, a, o: x0.append(a[0].x0))
    model.stream(ids(0), WINDOW)
    hook.remove()
    e = model.embed.weight[ids(0)[0]]
    share = model.smear.scale * torch.sigmoid(e[:, :12] @ model.smear.gate.weight[0])
    expected = torch.stack([e[0], *(e[t] + share[t] * e[t - 1] for t in range(1, len(e)))])
    torch.testing.assert_close(
        x0[0][0], expected * (expected.square().mean(-1, True) + 2**-23).rsqrt()
    )


@pytest.mark.parametrize("math", ["promote", "fp32"])
@pytest.mark.parametrize("compiling", [False, True])
def test_adjacent_channels_turn_by_minus_the_angle(
    math: str, compiling: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As complex numbers, x_2j + i x_2j+1 times e^(-i p w_j); the second half of the pairs stands still."""
    T, H = 7, 16
    rotary = Rotary(head_dim=H, base=1024.0, pairs="half", freq_dtype=torch.float32,
                    table_dtype=torch.float32, seq_len=T, as_buffers=False)  # fmt: skip
    x = torch.randn(1, T, 2, H, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(harness.model.rotary, "is_compiling", lambda: compiling)
    y = ROTATIONS["adjacent"][math](x, *rotary(T)[:2])
    w = torch.cat([1024.0 ** -torch.linspace(0, 1, H // 4), torch.zeros(H // 4)])
    angle = -torch.arange(T)[:, None, None] * w
    turned = torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.polar(torch.ones(1), angle)
    torch.testing.assert_close(y, torch.view_as_real(turned).flatten(-2))
    assert torch.equal(y[..., H // 2 :], x[..., H // 2 :])


def test_a_skip_is_added_before_the_block_it_leads_into() -> None:
    network = made(unet_skip=False, skip_layers=(1, 4), skip_gate=True)
    skip, entered = network.model.skip, []
    assert skip is not None and skip.gate is not None
    hook = network.model.blocks[4].register_forward_pre_hook(
        lambda m, a: entered.append((a[0].x, a[0].x0))
    )
    after, _ = outputs(network)
    hook.remove()
    (x, x0) = entered[0]
    gate = torch.sigmoid(x0[..., :12] @ skip.gate.weight[0])[..., None]
    torch.testing.assert_close(x, after[3] + 2 * torch.sigmoid(skip.scale) * gate * after[1])


def test_the_u_net_s_weights_may_be_shares() -> None:
    network = made(skip_weight="sigmoid")
    weights, entered = network.model.skip_weights, []
    assert weights is not None
    hook = network.model.blocks[4].register_forward_pre_hook(lambda m, a: entered.append(a[0].x))
    after, _ = outputs(network)
    hook.remove()
    torch.testing.assert_close(entered[0], after[3] + torch.sigmoid(weights[1]) * after[1])
    fresh = core(small("r18", "fp32", skip_weight="sigmoid")).model.skip_weights
    assert fresh is not None and fresh.tolist() == [-1.5] * 3


def test_the_stream_s_initial_weight_is_every_block_s() -> None:
    blocks = core(small("r18", "fp32", residual_init=1.1)).model.blocks
    mixes = [block.residual_mix for block in blocks]
    assert all(torch.equal(mix, torch.tensor([1.1, 0.0])) for mix in mixes)


def test_a_layer_without_mlp_adds_its_attention_alone() -> None:
    network = made(mlp_free_layers=(0,))
    block, branch = network.model.blocks[0], []
    assert block.mlp is None
    hook = block.attn.register_forward_hook(lambda m, a, o: branch.append(o[0]))
    after, _ = outputs(network)
    hook.remove()
    model = network.model
    x0 = model.embed_norm(model.embed(ids(0)))
    torch.testing.assert_close(after[0], block.residual_mix.sum() * x0 + branch[0])


def test_short_layers_see_less_than_long_ones() -> None:
    """Queries of one document whose keys 41 to 128 tokens back change: only long layers notice."""
    network = made(
        attn_window="inclusive",
        attn_window_layers=(1, 4),
        block_mask="traced",
        schedule__window_warmup=None,
    )
    masks = network.model.masks(torch.zeros(1, 256, dtype=torch.int64), WINDOWS)
    seen = [[(mask[t] == 0).nonzero().flatten().tolist() for t in (0, 200)] for mask in masks]
    for layer, keys in enumerate(seen):
        w = 128 if layer in (1, 4) else 40
        assert keys == [[0], list(range(200 - w, 201))]


EVERY_CHANGE = {
    "smear": True,
    "attn_gate": "sigmoid12",
    "attn_scale": 0.12,
    "attn_lambda": "in_out",
    "value_mix": "gate_mixed",
    "value_init": "zeros",
    "key_offset": (1, 5),
    "rope_pairing": "adjacent",
    "xsa": (0, 2),
    "paired_heads": (3,),
    "bigram_hash": 97,
    "bigram_width": 24,
    "bigram_inject": "after_attention",
    "bigram_sign": 16,
    "logit_softcap": "sigmoid23",
    "unet_skip": False,
    "skip_layers": (1, 4),
    "skip_gate": True,
    "backout": 3,
    "residual_init": 1.1,
    "mlp_free_layers": (0,),
    "attn_window": "inclusive",
    "attn_window_layers": (1, 5),
    "block_mask": "traced",
    "schedule__window_warmup": None,
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's own
@pytest.mark.parametrize("rows", [None, 96])
def test_all_changes_together_compile_to_one_graph_with_the_same_loss(rows: int | None) -> None:
    network = made(**EVERY_CHANGE, loss_rows=rows).model
    tokens, graphs = ids(0), []

    def count(graph: torch.fx.GraphModule, inputs: object) -> object:
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(network, backend=count, fullgraph=True, dynamic=False)
    losses = [f(tokens, tokens.roll(-1), WINDOWS) for f in (network, compiled)]
    for loss in losses:
        loss.backward()
    torch.testing.assert_close(losses[0], losses[1])
    assert len(graphs) == 1
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


def test_no_position_sees_the_future_in_the_changed_network() -> None:
    """A token's change moves nothing before it, with every change on."""
    model = made(**EVERY_CHANGE).model
    tokens, other = ids(0), ids(0)
    other[0, 100] = (other[0, 100] + 1) % 256
    with torch.no_grad():
        before, after = model.logits(tokens, WINDOWS), model.logits(other, WINDOWS)
    assert torch.equal(before[0, :100], after[0, :100])
    assert not torch.equal(before[0, 100:102], after[0, 100:102])


@pytest.mark.parametrize(("init", "sd"), [("uniform_half", 0.5), ("uniform_one", 1.0)])
def test_initial_matrices_are_the_same_draws_of_another_width(init: str, sd: float) -> None:
    """Standard deviation sd / d^1/2, so uniform on +-3^1/2 of it; every other matrix as before."""
    plain = dict(core(small("r18", "fp32")).model.named_parameters())
    for name, p in core(small("r18", "fp32", qkv_init=init)).model.named_parameters():
        factor = sd * 3**0.5 if any(f".{z}.weight" in name for z in "qkv") else 1.0
        torch.testing.assert_close(p, factor * plain[name])
    for name, p in core(small("r18", "fp32", up_init="uniform_half")).model.named_parameters():
        factor = 3**0.5 / 2 if name.endswith("up.weight") else 1.0
        torch.testing.assert_close(p, factor * plain[name])
    drawn = core(small("r18", "fp32", qkv_init=init)).model.blocks[0].attn.q.weight
    assert drawn.std().item() == pytest.approx(sd / 32**0.5, rel=0.05)


def test_an_empty_layer_is_passed_and_gives_no_skip() -> None:
    """Record 35: of six layers the first is empty, so that the last one adds nothing."""
    network = made(mlp_free_layers=(0,), attn_free_layers=(0,))
    after, _ = outputs(network)
    assert not list(network.model.blocks[0].parameters())
    assert network.model.skip_sources == [2, 1]
    assert network.model.skip_weights.shape == (2,)
    before: list[Tensor] = []
    hook = network.model.blocks[1].register_forward_pre_hook(lambda m, a: before.append(a[0].x0))
    network.model.stream(ids(0), WINDOW)
    hook.remove()
    torch.testing.assert_close(after[0], before[0])


def test_the_offset_may_take_the_quarters_that_stood_still_under_the_other_pairing() -> None:
    fields = {"key_offset": (1,), "rope_pairing": "adjacent"}
    networks = [made(**fields, key_offset_channels=name) for name in ("unturned", "quarters")]
    assert [n.model.blocks[1].attn.unturned for n in networks] == [(2, 3), (1, 3)]
    one, other = (n.model.stream(ids(0), WINDOW) for n in networks)
    assert not torch.allclose(one, other)


def test_the_last_layer_has_a_window_of_its_own() -> None:
    fields = {"attn_window": "inclusive", "attn_window_layers": (0, 5), "block_mask": "traced"}
    model = made(**fields, schedule__window_warmup=None).model
    masks = model.masks(ids(0), torch.tensor([128, 40, 200]))
    for i, window in enumerate((128, 40, 40, 40, 40, 200)):
        torch.testing.assert_close(masks[i], model.mask(ids(0), torch.tensor(window)))


def test_unturned_quarters_of_a_key_are_those_of_the_position_before() -> None:
    k = torch.arange(3 * 64, dtype=torch.float32).view(1, 3, 1, 64)
    moved = offset_keys(k, (1, 3))
    for quarter in range(4):
        channels = slice(16 * quarter, 16 * (quarter + 1))
        expected = k[:, [0, 0, 1]] if quarter in (1, 3) else k
        assert torch.equal(moved[..., channels], expected[..., channels])
