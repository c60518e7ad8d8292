"""What makes no sense is refused before anything is allocated, in one line that names the fields and the way out."""

import math
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import Field
from typing import Any

import pytest

from harness.config.device import for_device
from harness.config.presets import preset_values, to_config
from harness.config.run import BLOCK, RunConfig, flat, toggles, with_fields
from harness.config.validate import check_config
from harness.errors import UserError, near
from harness.experiment.values import check_values

TOGGLES = dict(toggles())
DOCUMENTS = {
    "model.attn_mask": "document",
    "model.attn_kernel": "dense",
    "data.seq_len": 1024,
    "data.micro_tokens": 1024,
}
PAIRED = {**DOCUMENTS, "model.rope_pairing": "adjacent", "model.paired_heads": (3,)}
OFFSET = {"model.qk_norm": "before_rope", "model.rope_pairs": "half"}
MUON = {"optim.matrix_optimizer": "muon"}

# (fields beside the defaults, what the message must name)
MUDD = {
    "model.n_layer": 4,
    "model.x0_mix": True,
    "model.residual_form": "sub_layers",
    "model.backout": 1,
    "model.mudd": "plain",
}
BAD: list[tuple[dict[str, Any], list[str]]] = [
    ({"model.head_init": "zeros"}, ["model.head_init=zeros", "model.tied_head", "set model.tied_head, or leave"]),
    ({"model.embed_init": "normal"}, ["model.embed_init=normal", "model.tied_head"]),
    ({"model.pad_tables": False}, ["model.pad_tables=false", "model.tied_head"]),
    ({"optim.embed_lr": 0.3}, ["optim.embed_lr", "model.tied_head"]),
    ({"optim.gate_rule": "adam", "optim.matrix_optimizer": "muon"}, ["optim.gate_rule", "none"]),
    ({"optim.skip_beta1": 0.5}, ["optim.skip_beta1", "none"]),
    ({"model.attn_mask": "document"}, ["model.attn_mask=document", "model.attn_kernel", "flex or dense", "sdpa"]),
    ({"model.attn_kernel": "flex"}, ["model.attn_kernel=flex", "model.attn_mask"]),
    ({"model.attn_window": "token"}, ["model.attn_window=token", "model.attn_mask"]),
    ({**DOCUMENTS, "model.block_mask": "partial"}, ["model.block_mask=partial", "model.attn_kernel"]),
    ({"schedule.window_warmup": "tokens"}, ["schedule.window_warmup", "model.attn_window", "switched on"]),
    ({**DOCUMENTS, "model.attn_window": "block", "data.seq_len": 1000, "data.micro_tokens": 1000, "data.batch_tokens": 8000,
      "data.val_tokens": 8000}, ["data.seq_len=1000", "128", "model.attn_window=block"]),
    ({**DOCUMENTS, "data.micro_tokens": 2048}, ["model.attn_mask=document", "data.micro_tokens=2048", "data.seq_len=1024"]),
    ({**DOCUMENTS, "model.attn_window": "block", "schedule.window_tokens": 100}, ["schedule.window_tokens=100", "block"]),
    ({"precision.mode": "fp32", "model.attn_kernel": "cudnn"}, ["model.attn_kernel=cudnn", "precision.mode", "use sdpa"]),
    ({"precision.mode": "fp32", "model.attn_kernel": "flash"}, ["model.attn_kernel=flash", "precision.mode", "use sdpa"]),
    ({"precision.val_fp32": True, "model.attn_kernel": "cudnn"}, ["precision.val_fp32=true", "model.attn_kernel"]),
    ({"precision.val_fp32": True, "precision.policy": "bf16_model"}, ["precision.val_fp32=true", "precision.policy"]),
    ({**DOCUMENTS, "model.attn_kernel": "flex", "system.compile": "off", "data.seq_len": 65536, "data.micro_tokens": 65536,
      "data.batch_tokens": 524288}, ["system.compile=off", "sequences of 65536 tokens (data.seq_len", "192 GiB", "compile at auto"]),
    ({"model.d_model": 100}, ["model.head_dim=64", "model.d_model=100", "choose a divisor"]),
    ({"model.d_model": 66, "model.head_dim": 33}, ["model.head_dim=33", "model.rope_pairs=all"]),
    ({"model.d_model": 60, "model.head_dim": 30, "model.rope_pairs": "half"}, ["model.head_dim=30", "model.rope_pairs=half"]),
    ({"model.value_embed": (0, 1, None)}, ["model.value_embed", "3 layers", "model.n_layer is 12", "one entry per layer"]),
    ({"model.value_embed": (0, 2) * 6}, ["model.value_embed", "[0, 2]", "without gaps"]),
    ({"model.value_embed": (None,) * 12}, ["model.value_embed", "without gaps"]),
    ({"model.n_layer": 5, "model.value_embed": "mirrored"}, ["model.value_embed=mirrored", "model.n_layer", "5"]),
    ({"model.n_layer": 4, "model.value_embed": "ends"}, ["model.value_embed=ends", "model.n_layer", "at least 6"]),
    ({"model.value_embed": "each", "model.attn_free_layers": (7,)}, ["model.value_embed=each", "layer 7,", "model.attn_free_layers"]),
    ({"model.value_embed": tuple(range(12)), "model.attn_free_layers": (7,)}, ["model.value_embed", "layer 7,", "make it null"]),
    ({"model.value_embed": "each", "model.value_residual": "fixed"}, ["model.value_residual=fixed", "model.value_embed=each"]),
    ({"model.value_mix": "pair"}, ["model.value_mix=pair", "model.value_embed", "switched on"]),
    ({"model.value_residual": "learned", "model.attn_free_layers": (0,)}, ["model.value_residual", "model.attn_free_layers"]),
    ({"model.attn_free_layers": (12,)}, ["model.attn_free_layers=[12]", "model.n_layer"]),
    ({"model.attn_free_layers": (-1,)}, ["model.attn_free_layers=[-1]", "model.n_layer"]),
    ({"model.attn_free_layers": tuple(range(12))}, ["model.attn_free_layers", "none of the 12"]),
    ({"model.n_layer": 3, "model.attn_free_layers": "after_middle"}, ["model.attn_free_layers=after_middle", "model.n_layer"]),
    ({"model.n_layer": 5, "model.unet_skip": True}, ["model.unet_skip", "even model.n_layer"]),
    ({"model.attn_gate": "sigmoid12", "model.d_model": 8, "model.head_dim": 8}, ["model.attn_gate", "12 channels", "model.d_model=8"]),
    ({"model.smear": True, "model.d_model": 8, "model.head_dim": 8}, ["model.smear", "12 channels", "model.d_model=8"]),
    ({"model.value_mix": "gate", "model.value_embed": "each", "model.d_model": 8, "model.head_dim": 8}, ["model.value_mix", "12 channels", "model.d_model=8"]),
    ({**OFFSET, "model.key_offset": (12,)}, ["model.key_offset", "layer 12", "take it out"]),
    ({**OFFSET, "model.key_offset": (0, 7), "model.attn_free_layers": (7,)}, ["model.key_offset", "layer 7", "take it out"]),
    ({**OFFSET, "model.key_offset": (3,), "model.qk_norm": "after_rope"}, ["model.key_offset=[3]", "model.qk_norm", "before_rope"]),
    ({"model.bigram_width": 24}, ["model.bigram_width=24", "model.bigram_hash", "switched on"]),
    ({"model.bigram_sign": 16}, ["model.bigram_sign=16", "model.bigram_hash", "switched on"]),
    ({"model.bigram_hash": 97, "model.bigram_width": 769}, ["model.bigram_width=769", "model.d_model=768", "narrow it"]),
    ({"model.bigram_hash": 97, "model.bigram_in_x0": True, "model.x0_mix": True}, ["model.bigram_in_x0=true", "model.bigram_inject", "after_attention"]),
    ({"model.bigram_hash": 97, "model.bigram_in_x0": True, "model.bigram_inject": "after_attention"}, ["model.bigram_in_x0=true", "model.x0_mix"]),
    ({"model.bigram_hash": 2**31 - 1, "model.d_model": 768}, ["model.bigram_hash=2147483647", "parameters", "smaller"]),
    ({"optim.bigram_lr": 0.6}, ["optim.bigram_lr", "model.bigram_hash", "switched on"]),
    ({"optim.bigram_scale_lr": 0.008}, ["optim.bigram_scale_lr", "model.bigram_hash", "switched on"]),
    ({**PAIRED, "model.attn_mask": "causal", "model.attn_kernel": "cudnn"}, ["model.paired_heads=[3]", "model.attn_mask", "document"]),
    ({**PAIRED, "model.attn_kernel": "sdpa"}, ["model.attn_mask=document", "model.attn_kernel", "flex or dense", "sdpa"]),
    ({**PAIRED, "model.rope_pairing": "halves"}, ["model.paired_heads=[3]", "model.rope_pairing", "adjacent"]),
    ({**PAIRED, "model.d_model": 192}, ["model.paired_heads", "model.d_model=192", "make 3", "even"]),
    ({**PAIRED, "model.paired_heads": (0, 12)}, ["model.paired_heads", "layer 12", "take it out"]),
    ({**PAIRED, "model.attn_free_layers": (3,)}, ["model.paired_heads", "layer 3", "take it out"]),
    ({**PAIRED, **OFFSET, "model.key_offset": (2, 3)}, ["model.key_offset", "model.paired_heads", "layer 3", "out of one"]),
    ({**PAIRED, "model.xsa": (3, 4)}, ["model.xsa", "model.paired_heads", "layer 3", "out of one"]),
    ({"model.value_mix": "gate_mixed_all", "model.value_embed": "each"}, ["model.value_mix=gate_mixed_all", "model.paired_heads"]),
    ({**PAIRED, "model.attn_kernel": "flex", "system.compile": "off", "data.seq_len": 16384, "data.micro_tokens": 16384,
      "data.batch_tokens": 131072, "data.val_tokens": 131072}, ["16384 tokens", "24 GiB", "compile at auto"]),
    ({"model.xsa": (-1,)}, ["model.xsa", "layer -1", "take it out"]),
    ({"model.xsa_form": "ratio"}, ["model.xsa_form=ratio", "model.xsa", "switched on"]),
    ({"model.skip_layers": (7, 4)}, ["model.skip_layers=[7, 4]", "the earlier one first"]),
    ({"model.skip_layers": (4,)}, ["model.skip_layers=[4]", "two of the 12 layers"]),
    ({"model.skip_layers": (4, 12)}, ["model.skip_layers=[4, 12]", "two of the 12 layers"]),
    ({"model.skip_layers": (4, 7), "model.unet_skip": True}, ["model.skip_layers=[4, 7]", "model.unet_skip"]),
    ({"model.backout": 2, "model.backout_feeds_attention": True, "model.n_layer": 4, "model.attn_free_layers": (3,)},
     ["model.backout_feeds_attention", "model.backout=2", "earlier layer"]),
    ({"model.x0_mix": True, "model.residual_form": "sub_layers", "model.lanes": 4, "model.n_layer": 4}, ["model.lanes=4", "model.n_layer"]),
    ({"model.skip_layers": (1, 3), "model.skip_from": "attention", "model.n_layer": 4, "model.backout": 1}, ["model.skip_from=attention", "model.backout"]),
    ({**MUDD, "model.attn_free_layers": (3,)}, ["model.mudd=plain", "layer 3", "model.attn_free_layers"]),
    ({**MUDD, "model.mlp_free_layers": (3,)}, ["model.mudd=plain", "layer 3", "model.mlp_free_layers"]),
    ({**MUDD, "model.bigram_hash": 97, "model.bigram_inject": "before_block"}, ["model.mudd=plain scales pairs", "after_attention"]),
    ({**MUON, "model.qkv_layout": "separate", "optim.muon_groups": "head_pairs", "model.d_model": 192}, ["optim.muon_groups=head_pairs", "make 3", "even"]),
    ({**MUDD, "model.mudd_gate": 4}, ["model.mudd_gate=4", "model.n_layer"]),
    ({**MUDD, "model.mudd_gate": 2, "model.attn_free_layers": (1,), "model.dc_mha": (1,)}, ["model.dc_mha", "layer 1"]),
    ({**MUDD, "model.mudd_gate": 2, "model.xsa": (1,), "optim.xsa_lr": 0.1}, ["optim.xsa_lr=0.1", "none", "null"]),
    ({**MUDD, "model.mudd_gate": 2, "optim.x0_beta1": 0.5}, ["optim.x0_beta1=0.5", "none"]),
    ({**MUDD, "model.mudd_gate": 2, "model.bigram_hash": 97, "model.bigram_inject": "after_attention", "optim.bigram_scale_lr": 0.1},
     ["optim.bigram_scale_lr=0.1", "none"]),
    ({"model.attn_gate": "sigmoid12", "model.attn_gate_layers": (4,), "model.n_layer": 4}, ["model.attn_gate_layers", "layer 4"]),
    ({"model.attn_gate": "dynamic"}, ["model.attn_gate=dynamic", "model.mudd_gate"]),
    ({"model.skip_gate": True}, ["model.skip_gate=true", "model.skip_layers", "switched on"]),
    ({"model.mlp_free_layers": (12,)}, ["model.mlp_free_layers", "layer 12", "count from 0"]),
    ({"model.mlp_free_layers": (-1,)}, ["model.mlp_free_layers", "layer -1", "count from 0"]),
    ({**DOCUMENTS, "model.attn_window": "inclusive", "model.attn_window_layers": (0,), "schedule.windows": (512,),
      "schedule.window_last_layer": 1024}, ["schedule.window_last_layer=1024", "layer 11", "model.attn_window_layers=[0]", "list it"]),
    ({"model.backout": 12}, ["model.backout=12", "last of the 12 layers"]),
    ({"model.backout": 11}, ["model.backout=11", "last of the 12 layers", "an earlier layer"]),
    ({"optim.qkv_split": True}, ["optim.qkv_split=true", "optim.matrix_optimizer"]),
    ({**MUON, "optim.qkv_split": True, "model.qkv_layout": "separate"}, ["optim.qkv_split=true", "model.qkv_layout"]),
    ({**MUON, "optim.qkv_split": True, "model.mlp_ratio": 3}, ["optim.qkv_split", "model.mlp_ratio=3", "another ratio"]),
    ({"optim.adam_objects": "single"}, ["optim.adam_objects=single", "optim.matrix_optimizer"]),
    ({"optim.muon_lr": 0.1}, ["optim.muon_lr", "optim.matrix_optimizer"]),
    ({**MUON, "optim.muon_uneven": "refuse"}, ["optim.muon_uneven=refuse", "optim.muon_comm"]),
    ({"optim.matrix_optimizer": "orthogonal_nesterov", "optim.muon_comm": "flat_all_reduce"}, ["optim.muon_comm", "muon"]),
    ({"data.micro_tokens": 1000}, ["data.micro_tokens=1000", "data.seq_len=1024"]),
    ({"data.ranks": 3}, ["data.batch_tokens=524288", "data.ranks * data.micro_tokens"]),
    ({"data.val_tokens": 1024}, ["data.val_tokens=1024", "data.ranks * data.micro_tokens"]),
    ({"data.loader": "global", "data.first_batch_twice": True}, ["data.first_batch_twice=true", "data.loader"]),
    ({"schedule.cooldown_steps": 9000, "schedule.warmup_steps": 1000}, ["schedule.warmup_steps", "schedule.cooldown_steps"]),
    ({"schedule.cooldown_frac": 0.5, "schedule.warmup_steps": 9000}, ["schedule.warmup_steps=9000", "cooldown_frac=0.5"]),
    ({"schedule.lr_floor": 0.1}, ["schedule.lr_floor=0.1", "set schedule.cooldown_steps or schedule.cooldown_frac"]),
    (
        {"optim.matrix_optimizer": "muon", "optim.update_scale": "sqrt_ratio", "optim.up_lr_multiplier": 2.0},
        ["optim.up_lr_multiplier=2.0", "requires optim.update_scale to be one"],
    ),
    ({"schedule.cooldown_frac": 0.5, "schedule.cooldown_steps": 9}, ["schedule.cooldown_frac=0.5", "schedule.cooldown_steps=9"]),
    ({"model.n_layer": 1024, "model.d_model": 65536}, ["model.n_layer=1024", "model.d_model=65536", "smaller"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "named"), BAD, ids=lambda v: ",".join(v) if isinstance(v, dict) else ""
)
def test_a_combination_that_makes_no_sense_is_refused(
    fields: dict[str, Any], named: list[str], kept_line: Callable[[str], None]
) -> None:
    config = with_fields(RunConfig(), {"precision.val_fp32": False, **fields})
    with pytest.raises(UserError) as error:
        check_config(config)
    message = str(error.value)
    assert "\n" not in message
    assert all(part in message for part in named), message
    assert ": " in message.partition("=")[2] or ": " in message, "the way out comes after a colon"
    kept_line(message)


def test_the_defaults_and_what_the_refusals_stand_beside_are_fine() -> None:
    """Else every line above could be refused for another reason."""
    for fields in (
        {},
        MUON,
        DOCUMENTS,
        {**MUON, "optim.qkv_split": True},
        {"schedule.cooldown_frac": 0.5},
    ):
        check_config(with_fields(RunConfig(), fields))


def one_row(tokens: int) -> dict[str, Any]:
    """One sequence of so many tokens in a pass, eight in a batch."""
    several = ("data.batch_tokens", "data.val_tokens")
    return {
        "data.seq_len": tokens,
        "data.micro_tokens": tokens,
        **dict.fromkeys(several, 8 * tokens),
    }


EAGER = {
    **DOCUMENTS,
    "model.attn_kernel": "flex",
    "system.compile": "off",
}  # twelve heads of scores
RIGHT_AT_THE_BORDER: list[dict[str, Any]] = [
    {"model.n_layer": 4, "model.backout": 0, "model.backout_feeds_attention": True},
    {"model.attn_gate": "sigmoid12", "model.d_model": 12, "model.head_dim": 4},
    {"model.backout": 10},
    {"model.mlp_free_layers": (0, 3, 11), "model.attn_free_layers": (3,)},
    {"model.skip_layers": (0, 11)},
    {**OFFSET, "model.key_offset": (0, 11)},
    {"model.attn_free_layers": (11,)},
    {"model.attn_free_layers": (0,)},
    {"model.attn_free_layers": tuple(range(1, 12))},
    {"model.n_layer": 4, "model.attn_free_layers": "after_middle"},
    {"model.n_layer": 6, "model.value_embed": "ends"},
    {"model.value_residual": "learned", "model.attn_free_layers": (1,)},
    {**DOCUMENTS, "model.attn_window": "block", "schedule.window_tokens": BLOCK},
    {**DOCUMENTS, "model.attn_window": "block", "schedule.window_tokens": 100,
     "schedule.window_warmup": "blocks"},
    {**DOCUMENTS, "model.attn_window": "token", "data.seq_len": 1000, "data.micro_tokens": 1000,
     "data.batch_tokens": 8000, "data.val_tokens": 8000},
    {**DOCUMENTS, "model.attn_window": "block"},
    {"schedule.steps": 10, "schedule.cooldown_steps": 4, "schedule.warmup_steps": 6},
    {"schedule.steps": 10, "schedule.cooldown_frac": 0.4, "schedule.warmup_steps": 6},
    {"schedule.lr_floor": 0.1, "schedule.cooldown_steps": 9},
    {"schedule.lr_floor": 0.1, "schedule.cooldown_frac": 0.5},
    {"precision.mode": "fp32", "model.attn_kernel": "math"},
    {"precision.mode": "record", "precision.val_fp32": False, "model.attn_kernel": "cudnn"},
    {"optim.qkv_split": False, "model.mlp_ratio": 3},
    {**EAGER, **one_row(104 * BLOCK)},
    {"model.bigram_hash": 97, "model.bigram_width": 768},
    {"model.bigram_hash": 156_250_000, "model.d_model": 640, "model.head_dim": 64},
    {"model.n_layer": 100, "model.d_model": 10_000, "model.head_dim": 100, "model.mlp_ratio": 3},
    {"model.bigram_hash": 97, "model.d_model": 12, "model.head_dim": 4, "model.bigram_width": 12},
    {"model.x0_mix": True, "model.residual_form": "sub_layers", "model.n_layer": 4,
     "model.lanes": 3},
    {**MUDD, "model.mudd_gate": 3},
    {"schedule.steps": 12, "schedule.extension_steps": 2, "schedule.cooldown_frac": 0.4,
     "schedule.warmup_steps": 6},
    {"schedule.steps": 12, "schedule.extension_steps": 2, "schedule.cooldown_steps": 4,
     "schedule.warmup_steps": 6},
    {"schedule.steps": 7, "schedule.extension_steps": 2, "schedule.stages": 5},
    {**DOCUMENTS, "model.attn_window": "token", "schedule.window_warmup": "tokens",
     **MUON, "optim.scalar_freeze_steps": 3},
    {**DOCUMENTS, "model.attn_window": "inclusive", "schedule.windows": (0, 64),
     **MUON, "optim.scalar_freeze_steps": 3},
    {**DOCUMENTS, "model.attn_window": "inclusive", "model.attn_window_layers": (0, 11),
     "schedule.windows": (64,), "schedule.windows_short": (0,), "schedule.window_last_layer": 0},
    {"data.val_seq_len": 2048, "data.val_tokens": 8 * 2048},
    {"model.head_dim": 6, "model.d_model": 12},
    {"data.micro_tokens": 2**25, "data.ranks": 2**9, "data.batch_tokens": 2**34,
     "data.val_tokens": 2**34},
]  # fmt: skip


@pytest.mark.parametrize("fields", RIGHT_AT_THE_BORDER, ids=str)
def test_what_just_fits_is_taken(fields: dict[str, Any]) -> None:
    check_config(with_fields(RunConfig(), fields))


BEYOND_THE_BORDER: list[tuple[dict[str, Any], str]] = [
    ({**DOCUMENTS, "model.attn_window": "block", "schedule.window_tokens": BLOCK - 1}, "widen it"),
    ({"schedule.steps": 10, "schedule.cooldown_steps": 4, "schedule.warmup_steps": 7}, "= 11 exceed"),
    ({"schedule.steps": 10, "schedule.cooldown_frac": 0.4, "schedule.warmup_steps": 7}, "overlap"),
    ({"model.n_layer": 5, "model.value_embed": "ends"}, "at least 6"),
    ({**DOCUMENTS, "model.attn_kernel": "flex", "data.seq_len": 1000, "data.micro_tokens": 1000,
      "data.batch_tokens": 8000, "data.val_tokens": 8000},
     "data.seq_len=1000 must be a multiple of 128"),
    ({**DOCUMENTS, "model.attn_window": "clipped", "data.seq_len": 1000, "data.micro_tokens": 1000,
      "data.batch_tokens": 8000, "data.val_tokens": 8000},
     "data.seq_len=1000 must be a multiple of 128"),
    ({**EAGER, **one_row(105 * BLOCK)}, "of 12 heads, 8 GiB in every layer"),
    ({"data.micro_tokens": 2**26, "data.ranks": 2**9, "data.batch_tokens": 2**35,
      "data.val_tokens": 2**35}, "beyond any machine"),
    ({"schedule.steps": 12, "schedule.extension_steps": 2, "schedule.cooldown_frac": 0.4,
      "schedule.warmup_steps": 7}, "overlap"),
    ({"schedule.steps": 12, "schedule.extension_steps": 2, "schedule.cooldown_steps": 4,
      "schedule.warmup_steps": 7}, "= 13 exceed"),
    ({"schedule.steps": 7, "schedule.extension_steps": 2, "schedule.stages": 6}, "do not fit"),
    ({"schedule.stages": 2, "schedule.stage_rates": (1.0, 0.0)}, "all be greater than 0"),
    ({"data.val_seq_len": 2048, "data.val_tokens": 9 * 2048}, "data.val_seq_len = "),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "why"), BEYOND_THE_BORDER, ids=str)
def test_what_just_does_not_fit_is_refused(
    fields: dict[str, Any], why: str, kept_line: Callable[[str], None]
) -> None:
    config = with_fields(RunConfig(), {"precision.val_fp32": False, **fields})
    with pytest.raises(UserError, match=re.escape(why)) as error:
        check_config(config)
    kept_line(str(error.value))


WIDEST = 768**0.5 / 448  # scale of a stream whose largest value is just e4m3's
SUMMED = {"loss.reduction": "sum_per_rank"}
FURTHER = {**SUMMED, "loss.scale": 28672.0, "loss.next_tokens": (1.0, 0.5)}
EIGHT_BITS: dict[str, tuple[tuple[float, ...], dict[str, Any], str]] = {
    "two scales": ((1.0, 1.0), {}, "must be three scales"),
    "a scale of 0": ((1.0, 0.0, 1.0), {}, "must be three scales"),
    "a stream that fits": ((WIDEST, 1.0, 1.0), {}, ""),
    "a stream that does not": ((0.99999 * WIDEST, 1.0, 1.0), {}, "is beyond e4m3's 448"),
    "a mean that fits": ((1.0, 1.0, 2**-29), {"loss.scale": 7.0}, ""),
    "a mean that does not": ((1.0, 1.0, 2**-29), {"loss.scale": 7.001}, "is beyond e5m2's 57344"),
    "a sum that fits": ((1.0,) * 3, {**SUMMED, "loss.scale": 57344.0}, ""),
    "a sum that does not": ((1.0,) * 3, {**SUMMED, "loss.scale": 57344.1}, "is beyond e5m2's"),
    "losses that fit": ((1.0,) * 3, {**FURTHER, "loss.prefix_weight": 0.5}, ""),
    "losses that do not": ((1.0,) * 3, {**FURTHER, "loss.prefix_weight": 0.6}, "is beyond e5m2's"),
}


@pytest.mark.parametrize("case", EIGHT_BITS)
def test_the_scales_of_a_head_in_eight_bits_leave_room_for_what_is_known_to_come(
    case: str, kept_line: Callable[[str], None]
) -> None:
    scales, fields, said = EIGHT_BITS[case]
    sizes = {"data.micro_tokens": 65536, "data.ranks": 8, "data.batch_tokens": 524288}
    whole = {**sizes, "precision.val_fp32": False, "model.tied_head": False, **fields}
    config = with_fields(RunConfig(), {**whole, "model.fp8_head": scales})
    if not said:
        check_config(config)
        return
    with pytest.raises(UserError, match=said) as error:
        check_config(config)
    kept_line(str(error.value))


def test_a_round_of_as_many_tokens_as_any_machine_reads_is_taken() -> None:
    sizes = {"data.micro_tokens": 2**26, "data.ranks": 2**8}
    totals = {"data.batch_tokens": 2**34, "data.val_tokens": 2**34}
    check_config(with_fields(RunConfig(), {**sizes, **totals}))


def test_parameters_are_counted_as_the_model_has_them(kept_line: Callable[[str], None]) -> None:
    """10^11 is the limit: 4 + 2 * 4 matrices of d * d in a layer."""
    wide = {"model.d_model": 65536, "model.head_dim": 64}
    assert 12 * 65536**2 == 51_539_607_552
    check_config(with_fields(RunConfig(), {**wide, "model.n_layer": 1}))
    with pytest.raises(UserError, match=re.escape("makes about 1.0e+11 parameters")) as refused:
        check_config(with_fields(RunConfig(), {**wide, "model.n_layer": 2}))
    kept_line(str(refused.value))


def test_nothing_is_allocated_for_a_refusal() -> None:
    """The checks do not even import torch."""
    code = "import sys, harness.config.validate as v, harness.config.run as c; v.check_config(c.RunConfig()); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---------------------------------------------------------------- single values

BEYOND = {"ge": -1, "gt": -1, "le": 1, "lt": 1}  # the way out of the range
WORDS = {"ge": "at least", "gt": "greater than", "le": "at most", "lt": "less than"}
RANGES = [(name, key) for name, f in TOGGLES.items() for key in BEYOND if key in f.metadata]


def refused(name: str, value: Any) -> str:
    with pytest.raises(UserError) as error:
        check_values({name: value}, lambda field: f"exp.yaml:3 {field}")
    return str(error.value)


@pytest.mark.parametrize(("name", "key"), RANGES)
def test_a_range_ends_where_it_is_said_to(name: str, key: str) -> None:
    """The bound itself is refused if it is outside, the next value beyond it always, the next one within never."""
    f = TOGGLES[name]
    bound, way = f.metadata[key], BEYOND[key]
    whole = int in (type(f.default), type(f.metadata.get("example")))

    def beside(sign: int) -> Any:
        return bound + sign if whole else math.nextafter(bound, sign * math.inf)

    refusals = {beside(way): True, bound: key in ("gt", "lt")}
    for value, is_refused in refusals.items():
        number = value if whole else float(value)
        if is_refused:
            assert refused(name, number) == (
                f"exp.yaml:3 {name}: {name} is {number!r}, but must be {WORDS[key]} {bound}"
            )
        else:
            assert check_values({name: number}, str) == {name: number}
    within = beside(-way) if whole else float(beside(-way))
    assert check_values({name: within}, str) == {name: within}


def test_a_value_of_the_wrong_type_is_refused_by_name() -> None:
    for name, f in TOGGLES.items():
        check_wrong_types(name, f)


def check_wrong_types(name: str, f: Field) -> None:
    wrong: Any = {"an": "object"}
    assert refused(name, wrong).startswith(f"exp.yaml:3 {name}: {name} is {wrong!r}, but must be ")
    if isinstance(f.default, int | float):
        assert name in refused(name, "many")
    if isinstance(f.default, bool):
        assert "true or false" in refused(name, 1)
    if isinstance(f.default, int) and not isinstance(f.default, bool):
        assert name in refused(name, True)
        assert name in refused(name, 1.5)
    if isinstance(f.default, float):
        for value in (float("nan"), float("inf")):
            assert name in refused(name, value)


def test_a_default_is_a_value_of_its_field() -> None:
    for name, f in TOGGLES.items():
        for value in (f.default, *f.metadata.get("choices", {})):
            assert check_values({name: value}, str) == {name: value}


# ---------------------------------------------------------------- kernels on a machine without CUDA


def test_a_presets_kernel_is_replaced_and_said_so() -> None:
    config, notes = for_device(to_config(preset_values("r16")[0]), "cpu", frozenset())
    assert config.model.attn_kernel == "dense"
    assert config.model.block_mask == "traced"
    assert config.precision.mode == "fp32"
    assert any("flex" in note and "dense" in note for note in notes)
    changed = {
        k for k, v in flat(config).items() if flat(to_config(preset_values("r16")[0]))[k] != v
    }
    assert changed == {"model.attn_kernel", "model.block_mask", "precision.mode"}


def test_a_kernel_that_was_asked_for_is_never_replaced(kept_line: Callable[[str], None]) -> None:
    with pytest.raises(UserError, match=r"model\.attn_kernel=cudnn needs CUDA") as refused:
        for_device(to_config(preset_values("r08")[0]), "cpu", frozenset({"model.attn_kernel"}))
    kept_line(str(refused.value))


def test_a_precision_that_was_asked_for_is_never_replaced() -> None:
    config = to_config(preset_values("r08")[0])
    replaced, notes = for_device(config, "cpu", frozenset({"precision.mode"}))
    assert replaced.precision.mode == "record"
    assert notes == ("model.attn_kernel=cudnn by sdpa (no CUDA)",)
    replaced, notes = for_device(config, "cpu", frozenset({"precision.policy"}))
    assert replaced.precision.mode == "fp32"
    assert notes[-1] == "precision.mode=record by fp32 (CPU)"


def test_what_a_cpu_can_do_is_left_as_it_is() -> None:
    plain = {"model.attn_kernel": "math", "precision.mode": "fp32"}
    config = with_fields(RunConfig(), plain)
    assert for_device(config, "cpu", frozenset()) == (config, ())


def test_on_cuda_nothing_is_replaced() -> None:
    config = to_config(preset_values("r16")[0])
    assert for_device(config, "cuda", frozenset()) == (config, ())


def test_what_there_is_is_listed_up_to_forty_names() -> None:
    names = [f"name{n}" for n in range(41)]
    assert near("?", names[:40]) == f"; there is: {', '.join(names[:40])}"
    assert near("?", names) == near("?", []) == ""


@pytest.mark.parametrize("value", [0.0, -0.5])
def test_the_training_loss_is_not_multiplied_by_nothing(value: float) -> None:
    assert "greater than 0" in refused("loss.scale", value)
