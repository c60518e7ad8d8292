"""What every configuration must be before anything is allocated: toggles that fit, sizes that fit.

Plain Python, as the training core needs it. What users write is checked for types and ranges
too, by harness/experiment/values.py.
"""

from collections.abc import Callable, Iterator
from dataclasses import MISSING

from harness.config.requires import check_requirements, value_text
from harness.config.run import DEFAULTS, RunConfig, Values, flat, toggles
from harness.config.schedule import check_factors, longest_sequence
from harness.config.validate_float8 import refused_float8
from harness.config.validate_schedule import (
    refused_alignment,
    refused_losses,
    refused_ramps,
    refused_rest,
    refused_stages,
    refused_window_lists,
    refused_windows,
)
from harness.config.validate_stream import refused_mudd, refused_sources
from harness.errors import UserError
from harness.model.layout import GATE_CHANNELS, attention_free, table_of_layer
from harness.model.value_config import GATED
from harness.optim.roles import ROWS

MAX_PARAMETERS = 10**11  # beyond this a configuration is a typing error
MAX_EAGER_SCORES = 2**31  # FlexAttention's, where nothing is compiled: 8 GiB in fp32
MAX_ROUND_TOKENS = 2**34  # read by all ranks together


def refused_heads(c: RunConfig) -> Iterator[str]:
    m = c.model
    if m.d_model % m.head_dim != 0:
        yield (
            f"model.head_dim={m.head_dim} does not divide model.d_model={m.d_model}: "
            "choose a divisor"
        )
    pairs = 4 if m.rope_pairs == "half" else 2
    if m.head_dim % pairs != 0:
        yield (
            f"model.head_dim={m.head_dim} must be a multiple of {pairs} "
            f"for model.rope_pairs={m.rope_pairs}: round it up"
        )
    n_heads = m.d_model // m.head_dim
    if m.paired_heads and n_heads % 2:
        yield (
            f"model.paired_heads takes heads by two, but model.d_model={m.d_model} and "
            f"model.head_dim={m.head_dim} make {n_heads}: make it even"
        )


def refused_gates(c: RunConfig) -> Iterator[str]:
    m = c.model
    gated = {
        "attn_gate": m.attn_gate == "sigmoid12",
        "smear": m.smear,
        "skip_gate": m.skip_gate,
        "value_mix": m.value_mix in GATED,
    }
    for field, is_gated in gated.items():
        if is_gated and m.d_model < GATE_CHANNELS:
            yield (
                f"model.{field} reads {GATE_CHANNELS} channels, but model.d_model={m.d_model}: "
                "widen the model"
            )


def refused_layers(c: RunConfig) -> Iterator[str]:
    m = c.model
    if m.attn_free_layers == "after_middle" and m.n_layer < 4:
        yield (
            "model.attn_free_layers=after_middle needs model.n_layer of at least 4, "
            f"not {m.n_layer}: list the layers"
        )
    free = sorted(attention_free(m))
    if free and not 0 <= free[0] <= free[-1] < m.n_layer:
        yield (
            f"model.attn_free_layers={free} lies outside the {m.n_layer} layers "
            "of model.n_layer: count from 0"
        )
    if len(free) == m.n_layer:
        yield (
            f"model.attn_free_layers leaves none of the {m.n_layer} layers of model.n_layer "
            "with attention: leave one out"
        )
    if m.value_residual is not None and 0 in free:
        yield (
            "model.value_residual needs layer 0's attention: take 0 out of model.attn_free_layers"
        )
    if m.unet_skip and m.n_layer % 2 != 0:
        yield f"model.unet_skip needs an even model.n_layer, not {m.n_layer}: add or drop a layer"


def refused_layer_lists(c: RunConfig) -> Iterator[str]:
    m = c.model
    for layer in sorted(m.mlp_free_layers):
        if not 0 <= layer < m.n_layer:
            yield (
                f"model.mlp_free_layers lists layer {layer}, which lies outside the {m.n_layer} "
                "layers of model.n_layer: count from 0"
            )
    with_attention = set(range(m.n_layer)) - attention_free(m)
    unpaired = {"key_offset": m.key_offset, "xsa": m.xsa, "dc_mha": m.dc_mha}
    others = {"paired_heads": m.paired_heads, "attn_gate_layers": m.attn_gate_layers}
    for field, layers in {**unpaired, **others}.items():
        outside = sorted(set(layers) - with_attention)
        if outside:
            yield (
                f"model.{field} lists layer {outside[0]}, which is none of the {m.n_layer} of "
                "model.n_layer with attention: take it out"
            )
    for field, layers in unpaired.items():
        for layer in sorted(set(layers) & set(m.paired_heads)):
            yield (
                f"model.{field} and model.paired_heads both list layer {layer}: take it out of "
                "one of them"
            )


def refused_pairs(c: RunConfig) -> Iterator[str]:
    m = c.model
    if m.bigram_width is not None and m.bigram_width > m.d_model:
        yield (
            f"model.bigram_width={m.bigram_width} is more than model.d_model={m.d_model}: "
            "narrow it, or leave it at null"
        )


def refused_value_tables(c: RunConfig) -> Iterator[str]:
    m = c.model
    if m.value_embed is None:
        return
    if m.value_embed == "mirrored" and m.n_layer % 2 != 0:
        yield (
            f"model.value_embed=mirrored needs an even model.n_layer, not {m.n_layer}: "
            "add or drop a layer"
        )
    if m.value_embed == "ends" and m.n_layer < 6:
        yield (
            f"model.value_embed=ends needs model.n_layer of at least 6, not {m.n_layer}: "
            "list the tables, or deepen the model"
        )
    tables = table_of_layer(m)
    if len(tables) != m.n_layer:
        yield (
            f"model.value_embed lists {len(tables)} layers, but model.n_layer is {m.n_layer}: "
            "list one entry per layer"
        )
    free = sorted(attention_free(m))
    if free and m.value_embed == "each":
        yield (
            f"model.value_embed=each gives a table to layer {free[0]}, which "
            "model.attn_free_layers leaves without attention: list the tables, "
            "or take the layer out of model.attn_free_layers"
        )
    used = sorted({table for table in tables if table is not None})
    if not used or used != list(range(len(used))):
        yield f"model.value_embed uses tables {used}: number them 0, 1, ... without gaps"
    for layer in attention_free(m):
        if tables[layer] is not None:
            yield (
                f"model.value_embed gives a table to layer {layer}, which "
                "model.attn_free_layers leaves without attention: make it null"
            )


def refused_portions(c: RunConfig) -> Iterator[str]:
    d = c.data
    if d.micro_tokens % d.seq_len != 0:
        yield (
            f"data.micro_tokens={d.micro_tokens} must be a multiple of "
            f"data.seq_len={d.seq_len}: change one"
        )
    round_tokens = d.ranks * d.micro_tokens
    if d.batch_tokens % round_tokens != 0:
        yield (
            f"data.batch_tokens={d.batch_tokens} must be a multiple of data.ranks * "
            f"data.micro_tokens = {d.ranks} * {d.micro_tokens} = {round_tokens}: "
            "change one of them"
        )
    field = "micro_tokens" if d.val_seq_len is None else "val_seq_len"
    val_round = d.ranks * d.val_portion[0]
    if d.val_tokens % val_round != 0:
        yield (
            f"data.val_tokens={d.val_tokens} must be a multiple of data.ranks * "
            f"data.{field} = {val_round}: change one of them"
        )


def refused_head_pairs(c: RunConfig) -> Iterator[str]:
    n_heads = c.model.d_model // c.model.head_dim
    if c.optim.muon_groups == "head_pairs" and n_heads % 2:
        yield (
            f"optim.muon_groups=head_pairs takes two heads at a time, but model.d_model="
            f"{c.model.d_model} and model.head_dim={c.model.head_dim} make {n_heads}: "
            "make it even"
        )


def refused_rows(c: RunConfig) -> Iterator[str]:
    m = c.model
    present = {
        "gate": m.attn_gate == "sigmoid12" or m.value_mix in GATED,
        "skip": m.unet_skip or bool(m.skip_layers),
        **dict.fromkeys(("xsa", "x0", "bigram_scale"), m.mudd_gate is None),  # numbers, not told
    }
    for row, is_there in present.items():
        for name in ROWS[row].settings if not is_there else ():
            field = f"optim.{row}_{name}"
            if getattr(c.optim, f"{row}_{name}") is not None:
                yield (
                    f"{field}={value_text(getattr(c.optim, f'{row}_{name}'))} is of "
                    f"{ROWS[row].doc}, of which the network has none: leave {field} at null"
                )


def refused_shapes_and_dtypes(c: RunConfig) -> Iterator[str]:
    if c.optim.qkv_split and c.model.mlp_ratio == 3:
        yield (
            "optim.qkv_split goes by the shape 3d x d, which model.mlp_ratio=3 gives the MLP "
            "as well: choose another ratio, or switch optim.qkv_split off"
        )
    if c.precision.mode == "fp32" and c.model.attn_kernel in ("cudnn", "flash"):
        yield (
            f"model.attn_kernel={c.model.attn_kernel} computes in bf16 only, but "
            "precision.mode is fp32: use sdpa or math, or precision.mode=record"
        )


def refused_eager_scores(c: RunConfig) -> Iterator[str]:
    if c.model.attn_kernel != "flex" or c.system.compile != "off":
        return
    n_heads = c.model.d_model // c.model.head_dim
    longest = longest_sequence(c)
    slots = 2 if c.model.paired_heads else 1  # half the heads, each on twice the positions
    scores = slots * n_heads * longest**2
    if scores > MAX_EAGER_SCORES:
        yield (
            "system.compile=off with model.attn_kernel=flex would hold, of sequences of "
            f"{longest} tokens (data.seq_len, data.val_seq_len), the scores of {n_heads} heads, "
            f"{4 * scores / 2**30:.0f} GiB in every layer: leave system.compile at auto, or use "
            "model.attn_kernel=dense"
        )


def refused_totals(c: RunConfig) -> Iterator[str]:
    m, d = c.model, c.data
    in_blocks = (4 + 2 * m.mlp_ratio) * m.n_layer * m.d_model**2  # attention's matrices, the MLP's
    if in_blocks > MAX_PARAMETERS:
        yield (
            f"model.n_layer={m.n_layer} x model.d_model={m.d_model} makes about "
            f"{in_blocks:.1e} parameters: choose a smaller model"
        )
    of_pairs = (m.bigram_hash or 0) * m.d_model
    if of_pairs > MAX_PARAMETERS:
        yield (
            f"model.bigram_hash={m.bigram_hash} rows of model.d_model={m.d_model} make about "
            f"{of_pairs:.1e} parameters: choose a smaller table"
        )
    round_tokens = d.ranks * d.micro_tokens
    if round_tokens > MAX_ROUND_TOKENS:
        yield (
            f"data.ranks * data.micro_tokens = {round_tokens} tokens in one round is beyond "
            "any machine: choose less"
        )


# Each yields what it refuses, in order: what follows may rely on what did not come before it.
SIZE_RULES: tuple[Callable[[RunConfig], Iterator[str]], ...] = (
    refused_heads,
    refused_gates,
    refused_layers,
    refused_layer_lists,
    refused_pairs,
    refused_sources,
    refused_mudd,
    refused_value_tables,
    refused_portions,
    refused_windows,
    refused_window_lists,
    refused_ramps,
    refused_stages,
    refused_rest,
    refused_alignment,
    refused_losses,
    refused_head_pairs,
    refused_rows,
    refused_shapes_and_dtypes,
    refused_float8,
    refused_eager_scores,
    refused_totals,
)


def check_sizes(config: RunConfig) -> None:
    """Refuse sizes and patterns that make no sense together, naming the fields."""
    for rule in SIZE_RULES:
        for message in rule(config):
            raise UserError(message)


def check_config(config: RunConfig) -> None:
    """Check everything; raises UserError with one line for the first thing that does not fit."""
    check_requirements(config)
    check_sizes(config)
    check_factors(config)


def defaults() -> Values:
    """Dotted field -> default value."""
    assert all(f.default is not MISSING for _, f in toggles())
    return flat(DEFAULTS)
