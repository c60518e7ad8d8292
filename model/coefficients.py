"""Which coefficients MUDD makes for every position, and where they start.

As numbers of the configuration: what a plan counts does without torch.
"""

from typing import NamedTuple

from .config import ModelConfig
from .layout import attention_free, gated_layers, table_of_layer

HIDDEN = 64  # channels between a maker's two matrices
GATE_INIT, SKIP_INIT, MIX_INIT = 0.25, 0.5, 1.0  # of attention's gates, the skip's, w1

# ---------------------------------------------------------------- connections


class MuddForm(NamedTuple):
    """What tells the forms of model.mudd apart.

    scale: of the coefficients. values: a factor on those of the values. row: what the factor on the
    value row is beside its coefficient. saved: the initial coefficient of what back-out saves.
    """

    scale: float
    values: float
    row: float
    saved: float


RAISED = 0.2 / 3**0.5
FORMS = {
    "raised": MuddForm(scale=RAISED, values=1.15, row=2.0, saved=-4.34 * RAISED),
    "plain": MuddForm(scale=0.1, values=1.0, row=0.0, saved=-0.5),
}
VALUES, RESIDUAL = ("v_first", "v_saved", "v_last"), ("r_first", "r_saved", "r_last")
ROWS = ("row_lower", "row_upper")
LAST_SCALES = (
    *("attn_residual", "attn_post", "x0_scale"),
    *("bigram_scale", "mlp_residual", "mlp_post"),
)


def last_starts(c: ModelConfig) -> dict[str, float]:
    """The last block's coefficients in order, with their initial values, by name."""
    assert c.mudd is not None
    residual, of_row = c.residual_init**0.5, 2.0 - FORMS[c.mudd].row
    starts = {**dict.fromkeys((*VALUES, *RESIDUAL), 0.0), **dict.fromkeys(ROWS, of_row)}
    scales = (residual, 1.0, 0.0, c.bigram_scale_init, residual, 1.0)
    starts |= dict(zip(LAST_SCALES, scales, strict=True))
    if table_of_layer(c)[-1] is None:
        starts = {name: start for name, start in starts.items() if name not in ROWS}
    if c.bigram_hash is None:
        del starts["bigram_scale"]
    return starts


def post_starts(c: ModelConfig) -> dict[str, float]:
    """The coefficients of what is added after the last block, alike."""
    assert c.mudd is not None
    starts = {"first": 0.0, "saved": FORMS[c.mudd].saved, "last": 0.0, "row": 0.0, "skip": 0.0}
    if c.value_embed is None:
        del starts["row"]
    if not c.skip_layers:
        del starts["skip"]
    return starts


# ---------------------------------------------------------------- gates


class Coefficient(NamedTuple):
    """A coefficient, or one for each head: of which layer, and where it starts."""

    name: str
    layer: int
    size: int
    start: float


def told_coefficients(c: ModelConfig) -> list[Coefficient]:
    """What the gates' makers tell, in their order; the first maker tells it of the first layers."""
    n_heads, last = c.d_model // c.head_dim, c.n_layer - 1
    told = [Coefficient("xsa", i, n_heads, 0.0) for i in sorted(c.xsa)]
    if c.attn_gate == "dynamic":
        told += [Coefficient("gate", i, n_heads, GATE_INIT) for i in sorted(gated_layers(c))]
    for i in sorted(set(range(last)) - attention_free(c)):
        told.append(Coefficient("x0_scale", i, 1, 0.0))
        if c.bigram_hash is not None:
            told.append(Coefficient("bigram_scale", i, 1, c.bigram_scale_init))
    if c.skip_layers:
        told.append(Coefficient("skip", c.skip_layers[1], 1, SKIP_INIT))
    for i in sorted(c.dc_mha):
        told += [Coefficient("mixed", i, n_heads, MIX_INIT), Coefficient("taken", i, n_heads, 0.0)]
    return told


def told_by_makers(c: ModelConfig) -> dict[int, list[Coefficient]]:
    """Layer before which a maker tells -> what it tells."""
    assert c.mudd_gate is not None
    told = told_coefficients(c)
    parts = {
        0: [t for t in told if t.layer < c.mudd_gate],
        c.mudd_gate: [t for t in told if t.layer >= c.mudd_gate],
    }
    return {i: part for i, part in parts.items() if part}


def makers_sizes(c: ModelConfig) -> list[int]:
    """How many coefficients each maker of the network makes."""
    sizes = [] if c.mudd is None else [len(last_starts(c)), len(post_starts(c))]
    if c.mudd_gate is not None:
        sizes += [sum(t.size for t in part) for part in told_by_makers(c).values()]
    return sizes
