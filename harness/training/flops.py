"""What a run computes, counted from its configuration.

Per token, forward and backward (three times the forward pass, a product and a sum counting as two):
    6 N            N: entries of the matrices that a token meets (attention, MLP, head);
                   table look-ups cost nothing
    12 d_model K   per layer with attention; K: keys that a query sees, averaged over the
                   sequence (mask and window)
Documents shorten what is seen by an amount that the configuration does not know; they are not
counted. Neither are norms, activations and the optimizer. The products of the orthogonalisation
are counted by themselves: they fall due once an update.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import ceil
from typing import Any

import numpy as np

from harness.config.run import BLOCK, RunConfig
from harness.config.schedule import growth_at, tokens_trained, windows_at
from harness.model.coefficients import HIDDEN, makers_sizes
from harness.model.config import ModelConfig
from harness.model.layout import (
    GATE_CHANNELS,
    attention_free,
    gated_layers,
    layer_kinds,
    table_of_layer,
)
from harness.model.value_config import GATED

# window kind -> (query positions, window in the kind's unit) -> first key seen
FIRST_KEY: dict[str | None, Callable[[Any, int], Any]] = {
    None: lambda q, w: np.zeros_like(q),
    "token": lambda q, w: q - w + 1,
    "inclusive": lambda q, w: q - w,
    "counted": lambda q, w: BLOCK * (q // BLOCK - max(w, 1) + 1),
    "block": lambda q, w: BLOCK * (q // BLOCK - w + 1),
    "clipped": lambda q, w: np.maximum(
        q - w + 1, BLOCK * (q // BLOCK - (w + BLOCK - 1) // BLOCK + 1)
    ),
}
# form of the iteration -> (short side, long side) -> FLOPs of one step
NEWTON_SCHULZ: dict[str, Callable[[int, int], int]] = {
    "products": lambda m, n: 6 * m * m * n,
    "polynomial": lambda m, n: 4 * m * m * n + 2 * m**3,
}


@dataclass(frozen=True, kw_only=True)
class Flops:
    """FLOPs per token.

    Of the matrices, of attention, and of the orthogonalisation spread over an update's tokens.
    """

    matrices: float
    attention: float
    optimizer: float

    @property
    def model(self) -> float:
        """What MFU counts."""
        return self.matrices + self.attention


@cache
def mean_keys(seq_len: int, kind: str | None, window: int) -> float:
    """Keys that a query sees, averaged over a sequence of one document."""
    q = np.arange(seq_len)
    return float(np.mean(q + 1 - np.maximum(0, FIRST_KEY[kind](q, window))))


def keys_seen(config: RunConfig, updates: range) -> float:
    """Keys that a token's queries see in all layers together, averaged over the updates' tokens."""
    m, s = config.model, config.schedule
    if not (s.window_warmup or s.windows or s.batch_growth):
        updates = updates[:1]  # all are alike
    free = attention_free(m)
    layers = Counter(kind for i, kind in enumerate(layer_kinds(m)) if i not in free)
    seen = tokens = 0.0
    kinds = Counter((windows_at(config, i) or (0,), growth_at(config, i)) for i in updates)
    for (windows, growth), n_updates in kinds.items():
        T = growth * config.data.seq_len
        for kind, n in layers.items():
            # paired: half the heads with twice the queries, as many keys as one query sees
            keys = mean_keys(kind.slots * T, m.attn_window, windows[kind.is_short])
            seen += n_updates * growth * n * keys
        near = mean_keys(T, "token", m.dc_window)
        seen += n_updates * growth * len(m.dc_mha) * near
        tokens += n_updates * growth
    return seen / tokens


def gate_shapes(m: ModelConfig) -> list[tuple[int, int]]:
    """Shapes of all gates' matrices, and of those of MUDD's makers."""
    n_gates = 0  # of all heads of a layer
    if m.attn_gate == "sigmoid12":
        n_gates += len(gated_layers(m))
    if m.value_mix in GATED:
        tables = table_of_layer(m)[:-1] if m.mudd is not None else table_of_layer(m)
        n_gates += len(tables) - tables.count(None)
    single = [(1, GATE_CHANNELS)] * (m.smear + m.skip_gate)
    makers = [shape for k in makers_sizes(m) for shape in ((HIDDEN, m.d_model), (k, HIDDEN))]
    return [(m.d_model // m.head_dim, GATE_CHANNELS)] * n_gates + single + makers


def hidden_shapes(config: RunConfig) -> list[tuple[int, int]]:
    """Shapes of all block matrices, as the orthogonalisation takes them."""
    m = config.model
    d, wide = m.d_model, m.mlp_ratio * m.d_model
    merged = m.qkv_layout == "merged" and not config.optim.qkv_split
    attention = [(3 * d, d), (d, d)] if merged else [(d, d)] * 4
    n_attention = m.n_layer - len(attention_free(m))
    n_mlp = m.n_layer - len(set(m.mlp_free_layers))
    return attention * n_attention + [(wide, d), (d, wide)] * n_mlp + gate_shapes(m)


def flops_per_token(config: RunConfig, vocab_size: int, *, step: int | None = None) -> Flops:
    """FLOPs of training, at update `step` or averaged over all updates.

    A window that grows makes the later ones dearer.
    """
    m, o = config.model, config.optim
    padded = ceil(vocab_size / m.vocab_multiple) * m.vocab_multiple
    shapes = hidden_shapes(config)
    updates = range(config.schedule.steps) if step is None else range(step, step + 1)
    tokens = tokens_trained(config, updates)
    iterated = o.matrix_optimizer != "adamw" and o.muon_backend != "svd"
    update = (
        sum(o.ns_steps * NEWTON_SCHULZ[o.ns_form](min(shape), max(shape)) for shape in shapes)
        if iterated
        else 0
    )
    return Flops(
        matrices=6.0 * (sum(rows * columns for rows, columns in shapes) + padded * m.d_model),
        attention=12.0 * m.d_model * keys_seen(config, updates),
        optimizer=update * len(updates) / tokens,
    )
