"""Units of the network's parts: what they make of their inputs, and the gradients.

T positions, C model_dim. Figures are fp32: out, and grad/LEAF of sum(out x in/cotangent).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from harness.bench.unit import Arrays, Pairs, Unit
from harness.model.composed import near
from harness.model.config import ModelConfig
from harness.model.gates import Smear
from harness.model.heads import Attention, make_rotary
from harness.model.layers import RMSNorm
from harness.model.layout import layer_kinds
from harness.model.loss import chunked_cross_entropy
from harness.model.mask import COUNTED, dense_mask
from harness.model.precision import FP32, PLAIN
from harness.model.skips import Backout, Skip
from harness.model.softcap import capped, softcap_of
from harness.model.stream import Stream

BOUND = 1e-5  # of a difference, in units of the figure's largest value
NORM = RMSNorm("by_dtype", None)


def leaf(array: np.ndarray) -> Tensor:
    """A copy that takes a gradient."""
    return torch.tensor(array, dtype=FP32, requires_grad=True)


@torch.no_grad()
def load(module: nn.Module, weights: Arrays) -> None:
    """Give every parameter its recorded values, by name."""
    for name, p in module.named_parameters():
        p.copy_(torch.tensor(weights[name]))


def compared(arrays: Arrays, case: str, y: Tensor, leaves: Mapping[str, Tensor]) -> Pairs:
    """The outcome and every recorded gradient of it.

    case: in front of the figures' names. y: of the shape of in/cotangent. leaves: by the names that
    their gradients have.
    """
    (y * torch.tensor(arrays["in/cotangent"])).sum().backward()
    yield arrays[f"{case}out"], y.detach().numpy()
    start = f"{case}grad/"
    for name, theirs in arrays.items():
        if name.startswith(start):
            grad = leaves[name.removeprefix(start)].grad
            assert grad is not None, name
            yield theirs, grad.numpy()


# ---------------------------------------------------------------- around the blocks


def smear(arrays: Arrays) -> Pairs:
    """From the token table to the first norm, whose outcome enters the blocks."""
    table, ids = leaf(arrays["w/embed"]), torch.tensor(arrays["in/ids"], dtype=torch.int64)
    smeared = Smear(PLAIN)
    load(smeared, {"gate.weight": arrays["w/gate"], "scale": arrays["w/scale"]})
    y = NORM(smeared(F.embedding(ids, table)[None]))
    leaves = {"embed": table, "gate": smeared.gate.weight, "scale": smeared.scale}
    yield from compared(arrays, "", y[0], leaves)


def backout(arrays: Arrays) -> Pairs:
    """With the final norm."""
    x, saved = leaf(arrays["in/x"]), leaf(arrays["in/saved"])
    part = Backout(0, PLAIN)
    load(part, {"scale": arrays["w/scale"]})
    stream = Stream(x, 1)
    stream.saved[0] = saved
    part(stream)
    y = NORM(stream.x)
    yield from compared(arrays, "", y, {"x": x, "saved": saved, "scale": part.scale})


def skip_gate(arrays: Arrays) -> Pairs:
    """A skip by a share alone (scalar), and by a gate too (gated)."""
    for case, gated in (("scalar/", False), ("gated/", True)):
        x, saved, x0 = (leaf(arrays[f"in/{name}"]) for name in ("x", "skip", "x0"))
        part = Skip(0, 1, PLAIN, gated=gated)
        load(part, {"scale": arrays[f"{case}w"], "gate.weight": arrays["w/gate"]})
        leaves = {"x": x, "skip": saved, "x0": x0, "w": part.scale}
        if part.gate is not None:
            leaves["gate"] = part.gate.weight
        told = dict(arrays)
        told[f"{case}grad/w"] = arrays[f"{case}grad/w"].reshape(-1)[-1]  # of several weights
        stream = Stream(x0, 2)
        stream.x, stream.saved[0] = x, saved
        part(stream)
        yield from compared(told, case, stream.x, leaves)


LOGIT_CAPS = ("sigmoid30", "sigmoid30_by_width", "sigmoid23")  # in the order of their records


def logit_cap(arrays: Arrays) -> Pairs:
    """Capped logits, their loss and its gradient: as autograd has it, and as the chunked loss."""
    target = torch.tensor(arrays["in/y"], dtype=torch.int64)
    identity = torch.eye(arrays["in/z"].shape[1])
    records = sorted(name.partition("/")[0] for name in arrays if name.endswith("/capped"))
    for record, name in zip(records, LOGIT_CAPS, strict=True):
        softcap = softcap_of(name, int(arrays["h/width"]))
        assert softcap is not None
        z, in_chunks = leaf(arrays["in/z"]), leaf(arrays["in/z"])
        y = capped(z, softcap)
        yield arrays[f"{record}/capped"], y.detach().numpy()
        chunked = chunked_cross_entropy(in_chunks, identity, target, softcap=softcap, rows=5)
        for loss, start in ((F.cross_entropy(y, target), z), (chunked, in_chunks)):
            loss.backward()
            assert start.grad is not None
            yield arrays[f"{record}/loss"], loss.detach().numpy()
            yield arrays[f"{record}/grad"], start.grad.numpy()


def window_long_short(arrays: Arrays) -> Pairs:
    """Which key a query sees: of n blocks in the long layers, of half as many in the short ones."""
    T = int(arrays["h/T"])
    document_T = np.searchsorted(arrays["in/doc_starts"], np.arange(T), side="right")
    for name, theirs in arrays.items():
        kind, _, size = name.partition("/n")
        if kind in ("long", "short"):
            n_blocks = int(size) if kind == "long" else int(size) // 2
            seen = dense_mask(0, T, torch.tensor(document_T), torch.tensor(n_blocks), COUNTED)
            yield theirs, np.packbits(seen.numpy(), axis=-1)


# ---------------------------------------------------------------- attention

# name here -> of the weight in a unit, of its gradient
ATTENTION = {
    "qkv.weight": ("w/qkv", "qkv"),
    "out.weight": ("w/out", "out_w"),
    "value_mix": ("w/value_mix", "value_mix"),
    "head_gate.weight": ("w/gate", "gate"),
    "value_gate.weight": ("w/value_gate", "value_gate"),
    "xsa_alpha": ("w/alpha", "alpha"),
    "in_scale": ("w/in_scale", "in_scale"),
    "out_scale": ("w/out_scale", "out_scale"),
}
RECORDS = ModelConfig(  # what the attention of all these records has in common
    n_layer=1,
    norm_eps="by_dtype",
    qk_norm="before_rope",
    rope_base=1024.0,
    rope_pairs="half",
    attn_kernel="dense",
    attn_mask="document",
)


def seen(arrays: Arrays, T: int, slots: int) -> Tensor:
    """(T, T): whether a query sees a key, as it is told, or by documents and positions back.

    T: of the sequence that heads attend in, with so many slots of a position.
    """
    if "mask/packed" in arrays:
        return torch.tensor(np.unpackbits(arrays["mask/packed"], axis=1, count=T)).bool()
    t_T, document_1T = torch.arange(T), documents(arrays, T, slots)
    back_TT = t_T[:, None] - t_T
    is_near = (back_TT >= 0) & (back_TT <= int(arrays["h/window_back"]))
    return is_near & (document_1T == document_1T.T)


def documents(arrays: Arrays, T: int, slots: int = 1) -> Tensor:
    """Each position's document: (1, T). slots: so many of T in a row are one position."""
    t_T = np.arange(T) // slots
    return torch.tensor(np.searchsorted(arrays["h/docs"], t_T, side="right"))[None]


# name of what a stream tells of every position -> in a unit, as its gradient is called
TOLD = {"gate": "in/gate", "xsa": "w/alpha", "mixed": "in/dc1", "taken": "in/dc2"}


def told_by(arrays: Arrays) -> dict[str, Tensor]:
    """What later records compute for every position elsewhere: arrays (1, T, N)."""
    by_position = {name: key for name, key in TOLD.items() if key in arrays}
    return {n: leaf(arrays[key]) for n, key in by_position.items() if arrays[key].ndim == 3}


def attention(arrays: Arrays, *, case: str = "", **fields: Any) -> Pairs:
    """A record's attention, with a value row where there is one.

    case: in front of the figures' names. fields: of the configuration, where it is not RECORDS.
    """
    T, d_model = arrays["in/x"].shape
    has_table = "in/ve" in arrays
    config = replace(
        RECORDS,
        d_model=d_model,
        head_dim=d_model // int(arrays["h/heads"]),
        attn_scale=float(arrays["h/scale"]),
        value_embed=(0 if has_table else None,),
        **fields,
    )
    layer: Any = Attention(config, PLAIN, layer=0)
    load(layer, {name: arrays[key] for name, (key, _) in ATTENTION.items() if key in arrays})
    x = leaf(arrays["in/x"])
    leaves = {ATTENTION[name][1]: p for name, p in layer.named_parameters()} | {"x": x}
    source = None
    if has_table:
        leaves["ve"] = leaf(arrays["in/ve"])
        source = leaves["ve"][None]
    told = told_by(arrays)
    leaves |= {TOLD[name].partition("/")[2]: t for name, t in told.items()}
    if "mixed" in told:
        told["near"] = near(documents(arrays, T), config.dc_window)
    slots = layer_kinds(config)[0].slots
    S = slots * T
    mask = torch.zeros(S, S).masked_fill_(~seen(arrays, S, slots), -torch.inf)
    y, _ = layer(x[None], make_rotary(config, PLAIN, seq_len=T)(S), mask, source, told)
    yield from compared(arrays, case, y[0], leaves)


def attn_scale(arrays: Arrays) -> Pairs:
    """With a value row and without."""
    yield from attention(arrays, case="ve/", value_mix="pair")
    without = {name: array for name, array in arrays.items() if name != "in/ve"}
    yield from attention(without, case="nove/", value_mix="pair")


def value_pair(arrays: Arrays, **fields: Any) -> Pairs:
    """Gated attention whose pair `lambdas` is that of the values. fields: of the configuration."""
    renamed = {name.replace("lambdas", "value_mix"): array for name, array in arrays.items()}
    yield from attention(renamed, value_mix="pair", attn_gate="sigmoid12", **fields)


def told_heads(arrays: Arrays, **fields: Any) -> Pairs:
    """With gates and shares that are told for every position. fields: of the configuration."""
    yield from in_out(arrays, gated=False, mudd_gate=1, rope_pairing="adjacent", **fields)


def in_out(arrays: Arrays, *, value_mix: str = "add", gated: bool = True, **fields: Any) -> Pairs:
    """Attention whose pair `lambdas` scales its matrices. fields: of the configuration."""
    parts = dict(arrays)
    for start in ("w/", "grad/"):
        parts[f"{start}in_scale"], parts[f"{start}out_scale"] = parts.pop(f"{start}lambdas")
    gate = "sigmoid12" if gated else None
    yield from attention(parts, value_mix=value_mix, attn_lambda="in_out", attn_gate=gate, **fields)


# ---------------------------------------------------------------- all of these

PAIRS: Mapping[str, Callable[[Arrays], Pairs]] = {
    "smear": smear,
    "backout": backout,
    "skip_gate": skip_gate,
    "logit_cap": logit_cap,
    "attn_scale": attn_scale,
    "attn_gate": value_pair,
    "attn_lambda_r47": partial(value_pair, attn_lambda="weights"),
    "attn_lambda_r48": in_out,
    "key_offset_r49": partial(in_out, key_offset=(0,)),
    "key_offset_r62": partial(in_out, key_offset=(0,), rope_pairing="adjacent"),
    "paired_heads": partial(in_out, rope_pairing="adjacent", paired_heads=(0,)),
    "paired_heads_value": partial(
        in_out, value_mix="gate", rope_pairing="adjacent", paired_heads=(0,)
    ),
    "xsa_r82": partial(in_out, value_mix="gate_mixed", rope_pairing="adjacent", xsa=(0,)),
    "xsa_r86": partial(told_heads, xsa=(0,), xsa_form="ratio"),
    "dc_mha": partial(told_heads, xsa=(0,), key_offset=(0,)),
    "value_gate_r55": partial(in_out, value_mix="gate"),
    "value_gate_r70": partial(in_out, value_mix="gate_mixed", rope_pairing="adjacent"),
}
MODEL_UNITS: Mapping[str, Unit] = {
    "window_long_short": Unit(pairs=window_long_short, bound=0.0),
    **{name: Unit(pairs=pairs, bound=BOUND, relative=True) for name, pairs in PAIRS.items()},
}
# record 85's gate of the value row reads the row in paired layers, too
MIXED = partial(in_out, value_mix="gate_mixed_all", rope_pairing="adjacent", paired_heads=(0,))
OTHER_ATTENTION: Mapping[str, Unit] = {
    "paired_heads_value_r85": Unit(pairs=MIXED, bound=BOUND, relative=True)
}
