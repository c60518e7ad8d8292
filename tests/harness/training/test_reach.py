"""The map of the network in docs/your-idea.md: what a plug-in's `build` can reach, in every record."""

import re

import pytest
from torch import nn

from harness.config.presets import names
from harness.model.coefficients import makers_sizes
from harness.model.tokens import Tokens
from tests.laws.test_docs import table_rows
from tests.small_presets import PRESETS, SEPARATOR, VOCAB, core, small, tiny

ROWS = [row for row in table_rows("your-idea.md", "name") if row[0].startswith("`model")]


def spans(words: str) -> list[tuple[str, str]]:
    """The first and the last record of every part of a cell."""
    listed = []
    for part in words.split(", "):
        first, last = "r02", "r99"
        if part.startswith("from "):
            first = part.removeprefix("from ")
        elif " to " in part:
            first, last = part.split(" to ")
        else:
            assert part == "all"
        listed.append((first, last))
    return listed


def normal(name: str) -> str:
    """A name as the map has it, of whichever block."""
    return re.sub(r"\.\d+", "[i]", f"model.{name}".rstrip("."))


@pytest.mark.parametrize("record", names("records"))
def test_the_map_has_what_is_there_and_nothing_else(record: str) -> None:
    made = small(record) if record in PRESETS else tiny(record)
    tokens = Tokens(vocab_size=VOCAB, separator=SEPARATOR, seq_len=made.data.seq_len)
    config, model = made.model, core(made, tokens=tokens).model
    rows = {}
    for name, kind, shape, records in ROWS:
        if any(first <= record[:3] <= last for first, last in spans(records)):
            rows[name.strip("`")] = (kind, shape)
    # what is not told of a whole beside its parts, or of a twin
    told = {part for name in rows for part in (name, name.rpartition(".weight")[0] or name)}
    told |= {re.sub(r"\.q\b", f".{twin}", name) for name in told for twin in "kv"}
    wholes = {"model.blocks", "model.value_embeds"}
    there = {normal(name): part for name, part in model.named_modules()}
    weights = {normal(name): p for name, p in model.named_parameters()}
    assert {*there, *weights} | wholes == told | wholes
    sizes = {"C": config.d_model, "R": config.mlp_ratio, "L": config.n_layer}
    sizes["N"] = config.d_model // config.head_dim
    sizes["P"] = config.bigram_hash or 0
    sizes["V"] = -(-VOCAB // config.vocab_multiple) * config.vocab_multiple
    sizes["T"] = sizes["V"] if config.pad_tables else VOCAB
    sizes["K"] = getattr(model.value_embeds, "n_tables", 0)
    sizes["G"] = [0, *makers_sizes(config)][-1]
    for name, (kind, shape) in rows.items():
        part: object = there.get(name.removesuffix(".weight"))
        if isinstance(part, nn.Module):
            assert f"`{type(part).__name__}`" in kind or "[i].weight" in name
        if shape:
            terms = [re.sub(r"(?<=\w) (?=[A-Z])", "*", one) for one in shape.split(" or ")]
            values = [eval(term.replace("/", "//"), {}, sizes) for term in terms]
            assert tuple(weights[name].shape) in values, name
        else:
            assert name not in weights
