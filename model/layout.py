"""Layer patterns at any depth.

Which layers have no attention, and which value table serves which layer.
"""

from collections.abc import Callable
from typing import NamedTuple

from .config import ModelConfig

GATE_CHANNELS = 12  # of the stream, that a gate reads
ALL_SCALES = frozenset(
    ("attn_residual", "attn_post", "x0_scale", "bigram_scale", "mlp_residual", "mlp_post")
)  # of a block of two sub-layers
N_ENDS = 3  # layers at either end that "ends" gives tables to


def at_the_ends(layer: int, n_layer: int) -> int | None:
    """Tables 0, 1, 2 of the first three layers, and of the last three again."""
    if layer < N_ENDS:
        return layer
    from_the_last = layer - (n_layer - N_ENDS)
    return from_the_last if from_the_last >= 0 else None


# name -> (layer, n_layer) -> table
TABLE_PATTERNS: dict[str, Callable[[int, int], int | None]] = {
    "each": lambda i, n: i,
    "mirrored": lambda i, n: min(i, n - 1 - i),  # 0-5, 5-0
    "ends": at_the_ends,  # 012------012
}


class LayerKind(NamedTuple):
    """Layers that share a mask and the tables of their rotation.

    is_short: by its window. slots: of a position in the sequences that heads attend in.
    """

    is_short: bool
    slots: int


def layer_kinds(c: ModelConfig) -> list[LayerKind]:
    """Every layer's."""
    long = c.attn_window_layers or range(c.n_layer)
    return [LayerKind(i not in long, 2 if i in c.paired_heads else 1) for i in range(c.n_layer)]


def attention_free(c: ModelConfig) -> frozenset[int]:
    """Layers without attention; "after_middle" is record 17's layer 7 of 12."""
    if c.attn_free_layers == "after_middle":
        return frozenset({c.n_layer // 2 + 1})
    return frozenset(c.attn_free_layers)


def empty_layers(c: ModelConfig) -> frozenset[int]:
    """Layers without attention and MLP, which the stream passes as it is."""
    return attention_free(c) & frozenset(c.mlp_free_layers)


def skip_sources(c: ModelConfig) -> list[int]:
    """The layer whose output each layer from the middle on adds, in their order, under unet_skip.

    The first half's, the last one first; an empty one gives none, so that the last layers go
    without.
    """
    return [i for i in reversed(range(c.n_layer // 2)) if i not in empty_layers(c)]


def takes_bigram(c: ModelConfig, layer: int) -> bool:
    """Whether a layer adds rows of pairs of tokens; behind attention the first one has them."""
    if c.bigram_hash is None or layer in empty_layers(c):
        return False
    if c.bigram_inject == "before_block":
        return True
    return layer > 0 and layer not in attention_free(c)


def table_of_layer(c: ModelConfig) -> tuple[int | None, ...]:
    """Value table per layer, None where there is none."""
    if c.value_embed is None:
        return (None,) * c.n_layer
    if isinstance(c.value_embed, str):
        free = attention_free(c)
        pattern = TABLE_PATTERNS[c.value_embed]
        return tuple(None if i in free else pattern(i, c.n_layer) for i in range(c.n_layer))
    return c.value_embed


def gated_layers(c: ModelConfig) -> frozenset[int]:
    """Layers whose attention has gates."""
    if c.attn_gate is None:
        return frozenset()
    return frozenset(c.attn_gate_layers or range(c.n_layer)) - attention_free(c)


def told_scales(c: ModelConfig, layer: int) -> frozenset[str]:
    """Scales of a block that are no parameters: what MUDD tells for every position."""
    if c.mudd is not None and layer == c.n_layer - 1:
        return ALL_SCALES
    return frozenset(("x0_scale", "bigram_scale")) if c.mudd_gate is not None else frozenset()
