"""Layers that a preset lists, in a network with fewer of them.

A scale says for a preset of so many layers which of them it keeps; each brings along what is said
of it. Patterns that have a name (after_middle, ends) know every depth by themselves.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence

from harness.config.run import NewValues, Values

# lists of layers: those that are left out are dropped
LISTS = (
    "model.attn_free_layers",
    "model.mlp_free_layers",
    "model.attn_window_layers",
    "model.key_offset",
    "model.attn_gate_layers",
    "model.dc_mha",
    "model.paired_heads",
    "model.xsa",
)
TABLES = ("model.value_embed",)  # an entry for every layer: the number of its table, or None
AFTER = ("model.backout",)  # what comes out of a layer: of the last one kept up to there
BEFORE = ("model.lanes", "model.mudd_gate")  # from a layer on: the next one kept
BETWEEN = ("model.skip_layers",)  # from behind a layer to before a later one, the next one kept


def at_depth(values: Values, kept: Sequence[int]) -> NewValues:
    """The values of the network of these layers of it alone, in ascending order."""
    place = {layer: i for i, layer in enumerate(kept)}
    made: NewValues = {}
    for name, value in values.items():
        if value is None or isinstance(value, str):
            continue
        if name in LISTS:
            made[name] = tuple(place[layer] for layer in value if layer in place)
        elif name in TABLES:
            made[name] = numbered([value[layer] for layer in kept])
        elif name in AFTER:
            made[name] = bisect_right(kept, value) - 1
        elif name in BEFORE:
            made[name] = bisect_left(kept, value)
        elif name in BETWEEN and value:
            source, into = value
            made[name] = (bisect_right(kept, source) - 1, bisect_left(kept, into))
    return {**values, **made}


def numbered(tables: Sequence[int | None]) -> tuple[int | None, ...]:
    """Tables of which some may be gone, numbered 0, 1, ... again."""
    there = sorted({table for table in tables if table is not None})
    number: Mapping[int | None, int] = {table: i for i, table in enumerate(there)}
    return tuple(number.get(table) for table in tables)
