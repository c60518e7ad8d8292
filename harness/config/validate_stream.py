"""Where the residual stream is read and saved, layers must be there: a part of validate.py."""

from collections.abc import Iterator

from harness.config.run import RunConfig
from harness.model.layout import attention_free


def refused_sources(c: RunConfig) -> Iterator[str]:
    m = c.model
    ends = m.skip_layers
    if ends and not (len(ends) == 2 and 0 <= ends[0] < ends[1] < m.n_layer):
        yield (
            f"model.skip_layers={list(ends)} must be two of the {m.n_layer} layers of "
            "model.n_layer, from and into: the earlier one first"
        )
    if m.backout is not None and m.backout >= m.n_layer - 1:
        yield (
            f"model.backout={m.backout} is not before the last of the {m.n_layer} layers of "
            "model.n_layer: choose an earlier layer"
        )
    if m.backout_feeds_attention and m.backout is not None:
        later = set(range(m.backout + 1, m.n_layer))
        if later <= attention_free(m):
            yield (
                f"model.backout_feeds_attention feeds none: no layer after model.backout="
                f"{m.backout} has attention: choose an earlier layer"
            )
    if m.lanes is not None and m.lanes >= m.n_layer:
        yield (
            f"model.lanes={m.lanes} is none of the {m.n_layer} layers of model.n_layer: "
            "choose an earlier layer"
        )
    if m.skip_from == "attention" and ends[0] in {m.backout, *attention_free(m)}:
        yield (
            f"model.skip_from=attention needs a layer of model.skip_layers with attention, not "
            f"{ends[0]}, that is not model.backout: choose another"
        )


def refused_mudd(c: RunConfig) -> Iterator[str]:
    m = c.model
    last = m.n_layer - 1
    if m.mudd is not None and last in {*attention_free(m), *m.mlp_free_layers}:
        yield (
            f"model.mudd={m.mudd} has coefficients of the last layer's attention and MLP, but "
            f"layer {last} lacks one: take it out of model.attn_free_layers and "
            "model.mlp_free_layers"
        )
    if m.mudd is not None and m.bigram_hash and m.bigram_inject != "after_attention":
        yield (
            f"model.mudd={m.mudd} scales pairs of tokens behind attention, but "
            f"model.bigram_inject is {m.bigram_inject}: set it to after_attention"
        )
    if m.mudd_gate is not None and m.mudd_gate >= m.n_layer:
        yield (
            f"model.mudd_gate={m.mudd_gate} is none of the {m.n_layer} layers of model.n_layer: "
            "choose an earlier layer"
        )
