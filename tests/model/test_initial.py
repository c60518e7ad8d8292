"""What the records' own initialisation implies: the loss before training, and which weights can move when."""

import math
from typing import Any

import pytest
import torch

from harness.config.device import for_device
from harness.config.presets import preset_values, to_config
from harness.model.gpt import GPT
from harness.model.parameters import initial_values
from harness.model.precision import dtypes
from harness.model.tokens import Tokens
from tests.small_presets import PRESETS, SEPARATOR, VOCAB, batch, core, small

UNTIED = [name for name in PRESETS if not preset_values(name)[0]["model.tied_head"]]
ZERO_PROJECTIONS = [
    name for name in PRESETS if preset_values(name)[0]["model.proj_init"] == "zeros"
]


@pytest.mark.parametrize("name", UNTIED)
@pytest.mark.parametrize("mode", ["fp32", "record"])
def test_the_first_loss_is_the_logarithm_of_the_vocabulary(name: str, mode: str) -> None:
    config = small(name, mode)
    made = core(config)
    rows = math.ceil(VOCAB / config.model.vocab_multiple) * config.model.vocab_multiple
    (loss,) = made.gradients([batch(0)], made.set_step(0))
    assert loss.item() == pytest.approx(math.log(rows), abs=1e-5)


def first_loss(name: str, **sizes: Any) -> float:
    """Loss of random tokens at the records' width and vocabulary, with fewer layers and tokens."""
    values = {
        **preset_values(name)[0],
        "model.n_layer": 2,
        **{f"model.{k}": v for k, v in sizes.items()},
    }
    config, _ = for_device(to_config(values), "cpu", frozenset())
    model = GPT(
        config.model,
        Tokens(vocab_size=50257, separator=50256, seq_len=64),
        dtypes("fp32", "autocast"),
    )
    model.initialize(0)
    ids = torch.randint(0, 50256, (1, 65), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return float(model(ids[:, :-1], ids[:, 1:]))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["r05", "r06", "r07"])
def test_a_tied_identity_network_predicts_each_token_itself(name: str) -> None:
    """Zero projections make the network the identity: the token's own logit is sqrt(d/3) = 16, the others are about N(0, 1/3)."""
    assert first_loss(name) == pytest.approx(
        16.0, abs=0.3
    )  # the records' logs: 16.006, 16.010, 16.028


def test_the_first_loss_of_the_early_records_is_a_little_above_the_logarithm() -> None:
    assert 10.85 < first_loss("r04") < 11.2  # logged with 12 layers: 10.93 to 10.97


def test_the_first_loss_of_record_8_at_full_width_is_exact() -> None:
    assert first_loss("r08") == pytest.approx(10.8258, abs=5e-5)


def moving(name: str, n_steps: int) -> list[set[str]]:
    """Parameters with a gradient that is not zero, update by update, and all weights finite after each."""
    made = core(small(name, "fp32"))
    out = []
    for step in range(n_steps):
        made.gradients([batch(step)], made.set_step(step))
        named = dict(made.model.named_parameters())
        assert all(p.grad is not None for p in named.values()), (
            "a zero gradient is not a missing one"
        )
        out.append({n for n, p in named.items() if p.grad.any()})  # type: ignore[union-attr]
        before = {n: p.detach().clone() for n, p in named.items()}
        made.step()
        moved = {n for n, p in named.items() if not torch.equal(p, before[n])}
        assert all(p.isfinite().all() for p in named.values())
        assert moved <= set().union(*out), (
            "a weight without gradient moved: Muon and Adam map zero to zero"
        )
    return out


@pytest.mark.parametrize("name", UNTIED)
def test_head_first_then_projections_then_the_rest(name: str) -> None:
    steps = moving(name, 3)
    projections = {n for n in steps[2] if n.endswith(("attn.out.weight", "mlp.down.weight"))}
    assert projections
    assert steps[0] == {"head.weight"}
    assert projections <= steps[1]
    inner = {
        n for n in steps[2] if n.endswith((".q.weight", ".k.weight", ".v.weight", ".up.weight"))
    }
    assert inner
    assert not inner & steps[1]
    assert {"embed.weight", "head.weight"} <= steps[2]


@pytest.mark.parametrize("name", [n for n in ZERO_PROJECTIONS if n not in UNTIED])
def test_with_a_tied_head_projections_move_at_once(name: str) -> None:
    steps = moving(name, 2)
    assert {n.rpartition(".")[0].rpartition(".")[2] for n in steps[0]} == {"embed", "out", "down"}
    assert any(n.endswith(".up.weight") for n in steps[1])


@pytest.mark.parametrize("name", PRESETS)
def test_every_weight_is_drawn_as_the_record_drew_it(name: str) -> None:
    made = core(small(name))
    m = made.config.model
    for n, p in made.model.named_parameters():
        values = initial_values(n, p, seed=0)
        assert torch.equal(p, values.to(p.dtype)), n
        if n == "embed.weight" and m.tied_head:
            assert_uniform(values, m.d_model)
        elif n.startswith(("embed", "value_embeds")):
            assert abs(values.mean()) < 0.05 and abs(values.std() - 1) < 0.03, n
        elif n == "head.weight" or (
            m.proj_init == "zeros" and n.endswith(("out.weight", "down.weight"))
        ):
            assert not values.any(), n
        elif n.endswith("residual_mix"):
            assert values.tolist() == [1, 0], n
        elif n.endswith("value_mix"):
            assert (values == 0.5).all(), n
        elif n == "skip_weights":
            assert (values == 1).all(), n
        else:
            assert_uniform(values, p.shape[1])


def assert_uniform(values: torch.Tensor, fan_in: int) -> None:
    bound = fan_in**-0.5
    assert (
        0.98 * bound < values.abs().max() <= bound * 1.004
    )  # bf16 rounding of r10 to r17 may lift the bound
    assert values.float().std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)


def test_a_seed_and_a_name_give_the_weights_whatever_else_is_there() -> None:
    """The other sections' toggles are held to this by the law tests ("initial")."""
    a, b, other = (
        core(small("r08")).model,
        core(small("r18")).model,
        core(small("r08"), seed=1).model,
    )
    shared = {n: p for n, p in b.named_parameters() if n in dict(a.named_parameters())}
    assert len(shared) > 20
    for n, p in a.named_parameters():
        if n in shared and n != "embed.weight":  # a bf16 table in record 18
            assert torch.equal(p, shared[n]), n
        assert not p.any() or not torch.equal(p, dict(other.named_parameters())[n]), n
    assert a.separator == SEPARATOR


def test_values_and_output_start_as_nearly_opposite_multiples_of_the_identity() -> None:
    made = core(small("r18", out_init="mimetic")).model
    for block in made.blocks:
        if block.attn is None:
            continue
        v, out = (linear.weight.float() for linear in (block.attn.v, block.attn.out))
        for weight, sign in ((v, 1), (out, -1)):
            noise = weight - sign * 0.05**0.5 * torch.eye(len(weight))
            assert noise.std().item() == pytest.approx(0.01, rel=0.15)
            assert abs(noise.mean()) < 0.002
        assert not torch.equal(v, -out)


def test_the_output_may_start_otherwise_than_the_mlp() -> None:
    made = core(small("r18", out_init="uniform_half")).model  # whose projections start at zero
    block = made.blocks[0]
    assert not block.mlp.down.weight.any()
    assert block.attn.out.weight.abs().max() <= 0.75**0.5 * 32**-0.5


def test_a_head_may_start_small() -> None:
    made = core(small("r18", head_init="normal_0.005", embed_init="normal_0.005")).model
    for weight in (made.head.weight, made.embed.weight):
        assert weight.float().std().item() == pytest.approx(0.005, rel=0.05)


def test_values_of_the_table_may_be_drawn_a_hundredth_as_wide() -> None:
    wide, small_ones = (
        dict(core(small("r18", value_init=init)).model.named_parameters())
        for init in ("normal", "normal_0.01")
    )
    name, *_ = tables = [name for name in wide if "value_embed" in name]
    assert wide[name].detach().float().std().item() == pytest.approx(1.0, rel=0.05)
    for name in tables:
        torch.testing.assert_close(small_ones[name], 0.01 * wide[name])
