"""The unit of the embedding of pairs of tokens: the hash, and what is added to the stream."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harness.bench.unit import Arrays, Pairs, Unit
from harness.bench.units_model import BOUND, RECORDS, compared, leaf, load
from harness.model.bigram import BigramEmbedding, hashed, sign_rows
from harness.model.block import Block
from harness.model.precision import PLAIN
from harness.model.stream import Stream


def made(table: np.ndarray, first: Any, d_model: int, **fields: Any) -> Any:
    """A block that adds rows of this table and does nothing else, and the table. fields: others."""
    rows, width = table.shape
    config = replace(
        RECORDS,
        d_model=d_model,
        bigram_hash=rows,
        bigram_width=width,
        bigram_first=first,
        **fields,
    )
    embedding = BigramEmbedding(config, PLAIN)
    load(embedding, {"weight": table})
    return embedding, Block(config, PLAIN, layer=0, attn=None, mlp=None)


def added(embedding: Any, block: Any, ids_BT: Tensor, x: Tensor, x0: Tensor) -> Tensor:
    """The stream x behind the block. x0: the embedding."""
    stream = Stream(x, 1)
    stream.x0 = x0
    embedding(stream, ids_BT)
    block(stream, None, None, None)
    return stream.x


def exactly(theirs: np.ndarray, ours: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Rows, where any other one is wrong: 0, and 1 where they differ."""
    if theirs.shape != tuple(ours.shape):
        raise ValueError(f"rows of shape {theirs.shape}, here {tuple(ours.shape)}")
    return np.zeros(theirs.shape), (theirs != ours.numpy()).astype(np.float64)


def bigram(arrays: Arrays, *, first: str = "last_row") -> Pairs:
    """Rows exactly; the stream of the first ids with rows of the table, plain or signed, added.

    first: model.bigram_first.
    """
    ids_1T = torch.tensor(arrays["in/ids"], dtype=torch.int64)[None]
    for name, theirs in arrays.items():
        kind, _, size = name.partition("/")
        if kind == "hash":
            yield exactly(theirs, hashed(ids_1T, int(arrays[f"h/rows_{size}"]), first)[0])
    told = dict(arrays)
    gradient = told.pop("add/grad/lambdas")
    told["add/grad/mix"], told["add/grad/scale"] = gradient[:2], gradient[2]
    _, T, d_model = arrays["in/x"].shape
    ids_1T, scales = ids_1T[:, :T], arrays["w/lambdas_resid_x0_bigram"]
    table, block = made(arrays["w/table"], first, d_model, x0_mix=True)
    load(block, {"residual_mix": scales[:2], "bigram_scale": scales[2]})
    x, x0 = leaf(arrays["in/x"]), leaf(arrays["in/x0"])
    leaves = {"mix": block.residual_mix, "scale": block.bigram_scale, "table": table.weight}
    y = added(table, block, ids_1T, x, x0)
    yield from compared(told, "add/", y, leaves | {"x": x, "x0": x0})
    signs = arrays["sign/table"]
    yield exactly(arrays["sign/index"], sign_rows(ids_1T, len(signs))[0])
    table, block = made(arrays["w/table_partial"], first, d_model, bigram_sign=len(signs))
    table.sign.copy_(torch.tensor(signs))
    load(block, {"bigram_scale": arrays["w/sign_lambda"]})
    y = added(table, block, ids_1T, leaf(arrays["in/x"]), x0)
    yield from compared(told, "sign/", y, {"table": table.weight})


BIGRAM = Unit(pairs=bigram, bound=BOUND, relative=True)
FIRST_TOKEN = Unit(pairs=partial(bigram, first="token"), bound=BOUND, relative=True)
BIGRAM_UNITS: Mapping[str, Unit] = {"bigram": BIGRAM}
# records 68 and 73 hash the first token with the second, those after them do not
OTHER_BIGRAMS: Mapping[str, Unit] = {
    "bigram_r68": FIRST_TOKEN,
    "bigram_r69": BIGRAM,
    "bigram_r73": FIRST_TOKEN,
    "bigram_r74": BIGRAM,
}
