"""FLOPs from the configuration equal what the operators do, counted while they run."""

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from harness.config.run import with_fields
from harness.config.schedule import tokens_trained
from harness.model.mask import dense_mask
from harness.model.tokens import Tokens
from harness.training import utilisation
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


MORE = {"gates": GATES, "mudd": MUDD, "merged": {"qkv_layout": "merged"}}
MORE["split"] = {**MORE["merged"], "optim__qkv_split": True}


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("r02", {}),
        ("r04", {}),
        ("r08", {}),
        ("r18", {}),
        *(pytest.param("r18", f, id=name) for name, f in MORE.items()),
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


LONG: dict[str, Any] = {"data.seq_len": 1024, "data.micro_tokens": 1024}
STAGES: dict[str, Any] = {"schedule.stages": 3, "schedule.window_warmup": None}
GROWING: dict[str, dict[str, Any]] = {
    "a window that warms up": {"schedule.window_tokens": 960},
    "a window in stages": {**STAGES, "schedule.windows": (128, 384, 960)},
    "a batch that grows": {
        **{**STAGES, "schedule.windows": (128, 960, 960), "schedule.batch_growth": (1, 2, 3)},
        **{"model.dc_mha": (1, 2), "model.dc_window": 16},
    },
}


@pytest.mark.parametrize("what", GROWING)
def test_what_grows_is_averaged_over_the_tokens_of_the_updates(what: str) -> None:
    config = with_fields(small("r18", "fp32"), {**LONG, **GROWING[what]})
    updates = range(config.schedule.steps)
    steps = [flops_per_token(config, VOCAB, step=i) for i in updates]
    tokens = [tokens_trained(config, range(i, i + 1)) for i in updates]
    assert steps[0].attention < steps[-1].attention
    whole, n = flops_per_token(config, VOCAB), sum(tokens)
    for part in ("matrices", "attention", "optimizer"):
        mean = sum(n * getattr(s, part) for s, n in zip(steps, tokens, strict=True)) / n
        assert getattr(whole, part) == pytest.approx(mean, rel=1e-12), part
    assert whole.model == whole.matrices + whole.attention


def test_where_batches_grow_sequences_do() -> None:
    config = with_fields(small("r18", "fp32"), {**LONG, **GROWING["a batch that grows"]})
    long = with_fields(config, {"schedule.batch_growth": (), "data.seq_len": 3 * 1024})
    last = config.schedule.steps - 1
    of_last = range(last, last + 1)
    assert keys_seen(config, of_last) == pytest.approx(keys_seen(long, of_last), rel=1e-12)


def test_layers_that_look_near_see_as_much_more_as_they_may() -> None:
    config = small("r18", "fp32")
    near = with_fields(config, {"model.dc_mha": (1, 2, 4), "model.dc_window": 16})
    more = 3 * mean_keys(config.data.seq_len, "token", 16)
    seen = keys_seen(config, range(1))
    assert keys_seen(near, range(1)) == pytest.approx(seen + more, rel=1e-12)


def test_a_singular_value_decomposition_is_not_counted() -> None:
    config = small("r04", "fp32")
    assert flops_per_token(config, VOCAB).optimizer > 0
    exact = with_fields(config, {"optim.muon_backend": "svd"})
    assert flops_per_token(exact, VOCAB).optimizer == 0


def test_the_rate_of_a_device_is_that_of_its_best_product(monkeypatch: pytest.MonkeyPatch) -> None:
    products: list[tuple[int, ...]] = []
    now, really = [0.0], torch.mm

    def mm(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        products.append((*a.shape, *b.shape))
        now[0] += (9.0, 2.0, 4.0)[len(products) % 3]
        return really(a, b, out=out)

    monkeypatch.setattr(torch, "mm", mm)
    monkeypatch.setattr(utilisation.time, "perf_counter", lambda: now[0])
    rate = matrix_rate.__wrapped__("cpu", torch.float32)
    assert rate == 2 * 512**3 / 2.0
    assert products == [(512,) * 4] * 10


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
