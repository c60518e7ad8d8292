"""Every toggle with every value that is not the baseline's, and the smallest configurations that show its effect."""

from collections.abc import Iterator
from dataclasses import Field, dataclass
from typing import Any

from harness.config.listing import choices
from harness.config.run import RunConfig, get, toggles, with_fields
from harness.config.validate import check_config
from harness.errors import UserError
from harness.model.config import ON
from harness.optim.roles import ROWS
from tests.observe import RUNS_ON_CPU

TOGGLES = dict(toggles())
BASE = with_fields(
    RunConfig(),
    {
        "model.n_layer": 2,
        "model.d_model": 32,
        "model.head_dim": 8,
        "precision.mode": "fp32",
        "data.seq_len": 256,
        "data.micro_tokens": 256,
        "data.batch_tokens": 512,
        "data.ranks": 2,
        "data.val_tokens": 1024,
        "data.val_every": 4,
        "schedule.steps": 4,
        "schedule.window_tokens": 128,
    },
)
# values at this size, where the declared ones are a record's
VALUES: dict[str, tuple[Any, ...]] = {
    "model.n_layer": (4,),
    "model.d_model": (64,),
    "model.head_dim": (16,),
    "model.mlp_ratio": (2,),
    "model.backout": (0,),
    "model.fp8_head": ((28 / 448, 24 / 448, 1 / 448), (100 / 448, 1.5 / 448, 0.75 / 448)),
    "model.lanes": (1,),
    "model.bigram_hash": (97,),
    "model.bigram_width": (24,),
    "model.bigram_sign": (16,),
    "model.mudd_gate": (1,),
    **{f"optim.{row}_beta1": (0.6,) for row in ROWS if "beta1" in ROWS[row].settings},
    "optim.bigram_scale_beta2": (0.5,),
    "schedule.steps": (3,),
    "schedule.warmup_steps": (2,),
    "schedule.extension_steps": (1,),
    "schedule.stages": (2,),
    "schedule.window_tokens": (64, 256),
    "schedule.window_last_layer": (64,),
    "schedule.yarn_until": (96,),
    "schedule.windows": ((64, 128),),
    "optim.scalar_freeze_steps": (1,),
    "data.corpus": ("other",),
    "data.batch_tokens": (1024,),
    "data.seq_len": (128,),
    "data.micro_tokens": (512,),
    "data.ranks": (1,),
    "data.val_tokens": (2048,),
    "data.val_seq_len": (512,),
    "data.val_every": (2,),
    "precision.mode": ("record",),
}
ROUNDED = {"precision.mode": "record"}
STAGED = {"model.attn_window": "inclusive", "schedule.stages": 2, "schedule.windows": (64, 128)}
# what must stand beside a toggle for its effect to show; what it requires is added by itself
BESIDE: dict[str, dict[str, Any]] = {
    "model.attn_kernel": ROUNDED,
    "model.pad_tables": {"model.vocab_multiple": 128},
    "model.rope_freq_dtype": ROUNDED,
    "model.rope_table_dtype": ROUNDED,
    "model.rope_math": {**ROUNDED, "model.rope_table_dtype": "bf16"},
    "model.value_embed": {"model.n_layer": 6},
    "model.attn_free_layers": {"model.n_layer": 4},
    "model.backout_feeds_attention": {"model.n_layer": 4},
    **{f"optim.scalar_{setting}": {"model.x0_mix": True} for setting in ROWS["scalar"].settings},
    **{f"optim.skip_{setting}": {"model.unet_skip": True} for setting in ROWS["skip"].settings},
    **{
        f"optim.gate_{setting}": {"model.attn_gate": "sigmoid12"}
        for setting in ROWS["gate"].settings
    },
    "optim.scalar_freeze_steps": {
        "model.x0_mix": True,
        "model.attn_window": "token",
        "schedule.window_tokens": 256,
        "schedule.window_warmup": "tokens",
    },
    "model.fp8_head": {**ROUNDED, "loss.reduction": "sum_per_rank"},
    "model.logits_dtype": ROUNDED,
    "optim.adam_moments_dtype": {**ROUNDED, "precision.policy": "bf16_embeds"},
    "optim.tie_ends": {"optim.tie_until": 2 / 3},
    "optim.adam_objects": {"model.tied_head": False},
    "optim.ns_norm": ROUNDED,
    "optim.weights_dtype": ROUNDED,
    "optim.update_scale_in": {"optim.update_scale": "sqrt_max"},
    "optim.muon_uneven": {"model.n_layer": 3},
    "schedule.lr_floor": {"schedule.cooldown_steps": 3},
    "schedule.extension_steps": {"schedule.cooldown_steps": 3},
    "schedule.extension_rate": {"schedule.cooldown_steps": 3},
    "schedule.stages": {"loss.next_tokens": (1.0, 0.5)},
    "schedule.stage_start": {"schedule.stages": 3, "loss.next_tokens": (1.0, 0.5)},
    "schedule.batch_growth": {"data.alignment": "packed"},
    "data.max_doc_len": {"data.alignment": "packed"},
    "schedule.stage_rates": {"schedule.stages": 2},
    "schedule.stage_rates_after": {"schedule.stages": 2},
    "schedule.windows": {"model.attn_window": "inclusive"},
    "schedule.windows_short": {"model.attn_window": "inclusive", "schedule.windows": (64,)},
    "schedule.window_last_layer": {
        "model.attn_window": "inclusive",
        "model.attn_window_layers": (1,),
        "schedule.windows": (128,),
    },
    "schedule.window_tokens": {"model.attn_window": "token"},
    "model.window_yarn": STAGED,
    "schedule.yarn_until": STAGED,
    "schedule.window_warmup": {"schedule.window_tokens": 256},
    "data.micro_tokens": {"data.batch_tokens": 1024},
    "data.loader": {"data.batch_tokens": 1024},
    "precision.policy": ROUNDED,
    "precision.val_fp32": ROUNDED,
    "system.accumulate": {"data.batch_tokens": 1024},
    "system.skip_guards": {"system.compile": "on"},
}
# choices that compute the same in every respect, with the reason
SAME = {
    ("model.residual_form", "apart"): "two numbers in place of a pair, each moved as before",
    ("model.out_init", "uniform"): "what model.proj_init says there",
    ("data.shard_switch", "reaches"): "pos+G+1 > S and pos+G >= S are one rule in whole numbers",
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A toggle at a value (on) against the baseline's value (off), all else equal as far as the requirements allow."""

    name: str
    value: Any
    on: RunConfig
    off: RunConfig

    def __str__(self) -> str:
        return f"{self.name}={self.value}"


def values(name: str, f: Field) -> list[Any]:
    """What a toggle is tried at: its listed choices, or its declared example."""
    listed = VALUES.get(name) or [c["value"] for c in choices(name, f)] + [
        f.metadata.get("example")
    ]
    out = [v for v in listed if v is not None or f.default is not None]
    out = [v for v in dict.fromkeys(out) if v != get(BASE, name) and v is not None]
    assert out, f"{name} lists no choice: declare example=, a value that shows what it does"
    return out


def with_requirements(config: RunConfig, name: str, value: Any) -> RunConfig:
    """The configuration with this value, and with whatever that requires, in turn."""
    config = with_fields(config, {name: value})
    for condition, needs in TOGGLES[name].metadata.get("requires", {}).items():
        if value == condition or (condition == "*" and value != TOGGLES[name].default):
            for other, accepted in needs.items():
                fits = (
                    [v for v in values(other, TOGGLES[other])] if accepted == ON else list(accepted)
                )
                if get(config, other) not in fits:
                    chosen = next((v for v in fits if v in RUNS_ON_CPU), fits[0])
                    config = with_requirements(config, other, chosen)
    return config


def valid(config: RunConfig) -> bool:
    try:
        check_config(config)
    except UserError:
        return False
    return True


def cases() -> Iterator[Case]:
    for name, f in TOGGLES.items():
        context = BASE
        for other, value in BESIDE.get(name, {}).items():
            context = with_requirements(context, other, value)
        for value in values(name, f):
            on = with_requirements(context, name, value)
            others = [get(BASE, name), *values(name, f)]
            offs = (with_fields(on, {name: v}) for v in others if v != value)
            yield Case(
                name=name, value=value, on=on, off=next((c for c in offs if valid(c)), context)
            )


CASES = list(cases())
