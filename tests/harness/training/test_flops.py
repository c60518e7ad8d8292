"""FLOPs from the configuration equal what the operators do, counted while they run."""

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from harness.config.run import with_fields
from harness.model.mask import dense_mask
from harness.model.tokens import Tokens
from harness.training.core import Core
from harness.training.flops import flops_per_token, keys_seen, mean_keys
from harness.training.utilisation import matrix_rate, mfu
from tests.small_presets import TOKENS, small

VOCAB = 257
PRODUCTS = {torch.ops.aten.mm, torch.ops.aten.bmm, torch.ops.aten.baddbmm, torch.ops.aten.addmm}


def counted(counter: FlopCounterMode) -> int:
    return sum(n for op, n in counter.get_flop_counts().get("Global", {}).items() if op in PRODUCTS)


GATES = {"attn_gate": "sigmoid12", "smear": True, "value_mix": "gate"} | {
    "unet_skip": False,
    "skip_layers": (1, 4),
    "skip_gate": True,
    "mlp_free_layers": (0,),
}
MUDD = {
    "unet_skip": False,
    "residual_form": "sub_layers",
    "backout": 2,
    "value_mix": "gate",
    "mudd": "plain",
    "mudd_gate": 3,
    "xsa": (1, 3),
    "attn_gate": "dynamic",
    "attn_gate_layers": (1, 5),
}


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("r02", {}),
        ("r04", {}),
        ("r08", {}),
        ("r18", {}),
        *(pytest.param("r18", f, id=name) for name, f in (("gates", GATES), ("mudd", MUDD))),
    ],
)
def test_the_products_of_an_update_are_those_counted_from_the_configuration(
    name: str, fields: dict[str, Any]
) -> None:
    config = with_fields(small(name, "fp32", **fields), {"data.ranks": 1})
    d = config.data
    core = Core(config, Tokens(vocab_size=VOCAB, separator=VOCAB - 1, seq_len=d.seq_len), seed=0)
    micro = d.batch_tokens // d.micro_tokens
    x = torch.arange(d.batch_tokens).view(micro, d.micro_tokens // d.seq_len, d.seq_len) % 200
    expected = flops_per_token(config, VOCAB)
    with FlopCounterMode(display=False) as model:
        core.gradients([(x, x)], core.set_step(0))
    with FlopCounterMode(display=False) as update:
        core.step()
    assert counted(model) == expected.matrices * d.batch_tokens
    assert counted(update) == pytest.approx(expected.optimizer * d.batch_tokens, rel=1e-12)
    assert (expected.optimizer == 0) == (name == "r02")


@pytest.mark.parametrize(
    ("kind", "window"),
    [
        (None, 0),
        ("token", 64),
        ("token", 192),
        ("token", 9999),
        ("block", 1),
        ("block", 3),
        ("clipped", 192),
    ],
)
def test_the_keys_of_a_query_are_those_of_the_mask(kind: str | None, window: int) -> None:
    T = 512
    mask = dense_mask(0, T, torch.zeros(T, dtype=torch.int32), torch.tensor(window), kind)
    assert mean_keys(T, kind, window) == mask.sum().item() / T


@pytest.mark.parametrize("kind", ["token", "block", "counted", "inclusive"])
def test_the_keys_of_all_layers_are_those_of_their_masks(kind: str) -> None:
    """Long and short layers, paired ones too: in these a token has as many queries as heads, too."""
    fields = {"attn_window": kind, "attn_window_layers": (1, 3), "paired_heads": (0, 3)}
    beside = {"rope_pairing": "adjacent", "block_mask": "traced"}
    beside |= {"schedule__window_warmup": None, "schedule__window_tokens": 256}
    config = small("r18", "fp32", **fields, **beside)
    core = Core(config, TOKENS, seed=0)
    masks = core.model.masks(
        torch.zeros(1, config.data.seq_len, dtype=torch.int64), core.set_step(0)
    )
    seen = [
        (mask == 0).sum().item() / len(mask)
        for mask, block in zip(masks, core.model.blocks, strict=True)
        if block.attn is not None
    ]
    assert len(set(seen)) >= 3
    assert keys_seen(config, range(1)) == pytest.approx(sum(seen), rel=1e-12)


def test_a_window_that_grows_is_averaged_over_the_updates() -> None:
    config = with_fields(
        small("r18", "fp32"),
        {"data.seq_len": 1024, "data.micro_tokens": 1024, "schedule.window_tokens": 960},
    )
    steps = [flops_per_token(config, VOCAB, step=i).attention for i in range(config.schedule.steps)]
    assert steps[0] < steps[-1]
    assert flops_per_token(config, VOCAB).attention == pytest.approx(
        sum(steps) / len(steps), rel=1e-12
    )


def test_utilisation_is_the_share_of_the_measured_rate() -> None:
    config = small("r08", "fp32")
    rate = matrix_rate("cpu", torch.float32)
    tokens_per_s = rate / flops_per_token(config, VOCAB).model
    assert rate > 1e6
    assert mfu(config, VOCAB, tokens_per_s, device="cpu", dtype=torch.float32) == pytest.approx(1.0)
    assert mfu(
        config, VOCAB, tokens_per_s, device="cpu", dtype=torch.float32, world=2
    ) == pytest.approx(0.5)


def test_what_a_run_costs_is_told_without_torch() -> None:
    """Every `plan` and `run` counts it, in a process that trains nothing: torch there would cost seconds and 100 MB."""
    code = "import sys, harness.experiment.cost; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
