"""What the file boundary checks: types and ranges of every field, requirements between toggles, sizes that must fit.

`check_values` needs pydantic and guards what users write; `check_config` is plain Python and guards every configuration
before anything is allocated.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, replace
from functools import cache
from typing import Any, get_type_hints

from harness.config import plugins
from harness.config.requires import _text, check_requirements
from harness.config.run import BLOCK, SECTIONS, RunConfig, flat, toggles
from harness.config.values import _check_range, allowed_text
from harness.errors import UserError
from harness.model.layout import attention_free, table_of_layer

MAX_PARAMETERS = 10**11  # beyond this a configuration is a typing error


@cache
def _adapters() -> dict[str, Any]:
    from pydantic import (
        TypeAdapter,
    )  # not on a bare GPU image, where configurations come from presets alone

    hints = {s: get_type_hints(type(getattr(RunConfig(), s))) for s in SECTIONS}
    return {name: TypeAdapter(hints[name.partition(".")[0]][f.name]) for name, f in toggles()}


def check_values(values: Mapping[str, Any], where: Callable[[str], str]) -> dict[str, Any]:
    """Values with their fields' types (an integer becomes a number where one is due), or the first that does not fit, by name."""
    from pydantic import ValidationError

    facts = {name: f.metadata for name, f in toggles()}
    out = dict(values)
    for name, value in values.items():
        if name not in facts:
            out[name] = plugins.check_value(name, value, where(name))
            continue
        try:
            out[name] = _adapters()[name].validate_python(value, strict=True)
        except ValidationError:
            hint = get_type_hints(type(getattr(RunConfig(), name.partition(".")[0])))[
                name.partition(".")[2]
            ]
            raise UserError(
                f"{where(name)}: {name} is {value!r}, but must be {allowed_text(hint)}"
            ) from None
        _check_range(name, out[name], facts[name], where)
    return out


def _refuse(condition: bool, message: str) -> None:
    if condition:
        raise UserError(message)


def check_sizes(c: RunConfig) -> None:
    """Refuse sizes and patterns that make no sense together, naming the fields."""
    m, d, s = c.model, c.data, c.schedule
    _refuse(
        m.d_model % m.head_dim != 0,
        f"model.head_dim={m.head_dim} does not divide model.d_model={m.d_model}: choose a divisor",
    )
    pairs = 4 if m.rope_pairs == "half" else 2
    _refuse(
        m.head_dim % pairs != 0,
        f"model.head_dim={m.head_dim} must be a multiple of {pairs} for model.rope_pairs={m.rope_pairs}: round it up",
    )
    _refuse(
        m.attn_free_layers == "after_middle" and m.n_layer < 4,
        f"model.attn_free_layers=after_middle needs model.n_layer of at least 4, not {m.n_layer}: list the layers",
    )
    free = attention_free(m)
    _refuse(
        any(not 0 <= i < m.n_layer for i in free),
        f"model.attn_free_layers={sorted(free)} lies outside the {m.n_layer} layers of model.n_layer: count from 0",
    )
    _refuse(
        len(free) == m.n_layer,
        f"model.attn_free_layers leaves none of the {m.n_layer} layers of model.n_layer with attention: leave one out",
    )
    _refuse(
        m.value_residual is not None and 0 in free,
        "model.value_residual needs layer 0's attention: take 0 out of model.attn_free_layers",
    )
    _refuse(
        m.unet_skip and m.n_layer % 2 != 0,
        f"model.unet_skip needs an even model.n_layer, not {m.n_layer}: add or drop a layer",
    )
    if m.value_embed is not None:
        _refuse(
            m.value_embed == "mirrored" and m.n_layer % 2 != 0,
            f"model.value_embed=mirrored needs an even model.n_layer, not {m.n_layer}: add or drop a layer",
        )
        _refuse(
            m.value_embed == "ends" and m.n_layer < 6,
            f"model.value_embed=ends needs model.n_layer of at least 6, not {m.n_layer}: list the tables, or deepen the model",
        )
        tables = table_of_layer(m)
        _refuse(
            len(tables) != m.n_layer,
            f"model.value_embed lists {len(tables)} layers, but model.n_layer is {m.n_layer}: list one entry per layer",
        )
        lost = [i for i in sorted(free) if m.value_embed == "each"]
        _refuse(
            bool(lost),
            f"model.value_embed=each gives a table to layer {lost[:1]}, which model.attn_free_layers leaves without attention: "
            "list the tables, or take the layer out of model.attn_free_layers",
        )
        used = sorted({t for t in tables if t is not None})
        _refuse(
            used != list(range(len(used))) or not used,
            f"model.value_embed uses tables {used}: number them 0, 1, ... without gaps",
        )
        bad = [i for i in free if tables[i] is not None]
        _refuse(
            bool(bad),
            f"model.value_embed gives a table to layer {bad[:1]}, which model.attn_free_layers leaves without "
            "attention: make it null",
        )
    _refuse(
        d.micro_tokens % d.seq_len != 0,
        f"data.micro_tokens={d.micro_tokens} must be a multiple of data.seq_len={d.seq_len}: change one",
    )
    per_round = d.ranks * d.micro_tokens
    _refuse(
        d.batch_tokens % per_round != 0,
        f"data.batch_tokens={d.batch_tokens} must be a multiple of data.ranks * data.micro_tokens = {d.ranks} * "
        f"{d.micro_tokens} = {per_round}: change one of them",
    )
    _refuse(
        d.val_tokens % per_round != 0,
        f"data.val_tokens={d.val_tokens} must be a multiple of data.ranks * data.micro_tokens = {per_round}: change one of them",
    )
    if m.attn_mask == "document":
        _refuse(
            d.micro_tokens != d.seq_len,
            "model.attn_mask=document takes one sequence per forward pass: make "
            f"data.micro_tokens={d.micro_tokens} equal data.seq_len={d.seq_len}",
        )
        blocks = m.attn_window in ("block", "clipped") or m.attn_kernel == "flex"
        _refuse(
            blocks and d.seq_len % BLOCK != 0,
            f"data.seq_len={d.seq_len} must be a multiple of {BLOCK} for model.attn_window={_text(m.attn_window)} and "
            f"model.attn_kernel={m.attn_kernel}: round it up",
        )
    _refuse(
        m.attn_window == "block" and s.window_tokens < BLOCK and not s.window_warmup,
        f"schedule.window_tokens={s.window_tokens} is less than one block of {BLOCK} for model.attn_window=block: widen it",
    )
    ramps = s.warmup_steps + (s.cooldown_steps or 0)
    _refuse(
        ramps > s.steps,
        f"schedule.warmup_steps + schedule.cooldown_steps = {ramps} exceed schedule.steps={s.steps}: shorten one of them",
    )
    ramps = s.warmup_steps + int((s.cooldown_frac or 0) * s.steps)
    _refuse(
        ramps > s.steps,
        f"schedule.warmup_steps={s.warmup_steps} and the last schedule.cooldown_frac={s.cooldown_frac} of "
        f"schedule.steps={s.steps} overlap: shorten one of them",
    )
    _refuse(
        s.lr_floor > 0 and not s.cooldown_steps and not s.cooldown_frac,
        f"schedule.lr_floor={s.lr_floor} ends a cooldown, but there is none: set schedule.cooldown_steps or "
        "schedule.cooldown_frac, or leave schedule.lr_floor at 0.0",
    )
    _refuse(
        c.optim.qkv_split and m.mlp_ratio == 3,
        "optim.qkv_split goes by the shape 3d x d, which model.mlp_ratio=3 gives the MLP as well: choose another ratio, or "
        "switch optim.qkv_split off",
    )
    _refuse(
        c.precision.mode == "fp32" and m.attn_kernel in ("cudnn", "flash"),
        f"model.attn_kernel={m.attn_kernel} computes in bf16 only, but precision.mode is fp32: use sdpa or math, "
        "or precision.mode=record",
    )
    size = (4 + 2 * m.mlp_ratio) * m.n_layer * m.d_model**2
    _refuse(
        size > MAX_PARAMETERS,
        f"model.n_layer={m.n_layer} x model.d_model={m.d_model} makes about {size:.1e} parameters: choose a smaller model",
    )
    _refuse(
        per_round > 2**34,
        f"data.ranks * data.micro_tokens = {per_round} tokens in one round is beyond any machine: choose less",
    )


def check_config(config: RunConfig) -> None:
    """All of it; raises UserError with one line for the first thing that does not fit."""
    check_requirements(config)
    check_sizes(config)


def defaults() -> dict[str, Any]:
    """Dotted field -> default value."""
    assert all(f.default is not MISSING for _, f in toggles())
    return flat(replace(RunConfig()))
