"""Units of whole networks: NAME_forward is that of the preset NAME, at the sizes of the unit.

A unit holds ids, the windows, and what a record's network makes of them: its loss, some of what its
head reads, and the gradients' norms, by the CRC-32 of the parameters' names in the records. Weights
are drawn by those names (`weight`). T positions, C model_dim.
"""

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from harness.bench.replay import drawn
from harness.bench.unit import Arrays, Pairs, Unit
from harness.config.presets import names, preset_values, to_config
from harness.config.run import BLOCK, NewValues, RunConfig, with_fields
from harness.model.coefficients import HIDDEN, makers_sizes
from harness.model.config import ModelConfig
from harness.model.gpt import GPT
from harness.model.tokens import Tokens
from harness.optim.schedule import IN_BLOCKS
from harness.optim.tying import Tie, follow, join_gradients

# of each figure, in units of its largest value; norms of which nothing is left in FLOOR are 0
TOLERANCES = {"loss": 1e-5, "stream": 5e-5, "grad_norm": 1e-3}
FLOOR = 1e-6
VOCAB, SEPARATOR = 257, 256
PAIRS = {  # of tokens: sizes of the tables, where a preset has them
    "model.bigram_hash": 97,
    "model.bigram_width": 24,
    "model.bigram_sign": 16,
}
SHOWN = (37, 16)  # of the stream: every so many positions, so many channels
NAME = re.compile(r"(r\d+)_forward(?:_|$)")

# end of a name here -> in the records
RENAMED = {
    "attn.head_gate.weight": "attn.gate.weight",
    "attn_residual": "attn.residual_scale",
    "mlp_residual": "mlp.residual_scale",
    "attn_post": "attn.post_scale",
    "mlp_post": "mlp.post_scale",
    "attn_post_second": "attn.lane1.post_scale",
    "mlp_post_second": "mlp.lane1.post_scale",
    "bigram.scale": "blocks.0.bigram_scale",
    "mudd_gates.scale": "mudd.gate_scale",
}
CENTRES: Mapping[
    str, float | tuple[float, ...]
] = {  # end of a name in the records -> what 0.02 z is added to
    "residual_mix": (1.0, 0.0),
    "value_mix": 0.5,
    "residual_scale": 1.05,
    "x0_scale": 0.1,
    "bigram_scale": 0.1,
    "post_scale": 1.0,
    "in_scale": 0.5,
    "out_scale": 1.0,
    "skip.scale": -1.5,
    "smear.scale": 0.3,
    "backout.scale": 0.5,
}
SPREADS = {  # end of a name in the records -> standard deviation
    "embed.weight": 0.5,
    "bigram.weight": 0.5,
    "gate.weight": 0.5,
    "xsa_alpha": 0.5,
}


def ending(name: str, table: Mapping[str, object]) -> str | None:
    """The key of a table that a name ends with, as a whole word."""
    ends = (key for key in table if name == key or re.search(rf"[._]{re.escape(key)}$", name))
    return next(ends, None)


def weight(name: str, shape: tuple[int, ...], centre: float | None = None) -> np.ndarray:
    """The values of a parameter by its name in the records.

    shape: there. centre: of what lies about a number that the name does not tell.
    """
    z = drawn(name, shape)
    if centre is not None:
        return np.asarray(centre + 0.02 * z, dtype=np.float32)
    if name.startswith("mudd"):
        return np.asarray(_of_maker(name, z), dtype=np.float32)
    if (end := ending(name, CENTRES)) is not None:
        return np.asarray(np.array(CENTRES[end]) + 0.02 * z, dtype=np.float32)
    end = "embed.weight" if name.startswith("value_embeds") else ending(name, SPREADS)
    return np.asarray(SPREADS.get(end or "", 0.05) * z, dtype=np.float32)


def _of_maker(name: str, z: np.ndarray) -> np.ndarray:
    """Of MUDD's, by its name in the records."""
    if name == "mudd.gate_scale":
        return 0.1 + 0.002 * z
    return z if name.endswith("bias") else 0.2 * z


@dataclass(frozen=True, kw_only=True)
class Origin:
    """A parameter here as a part of one in the records: so many rows of it, or an entry.

    turned: whether its first axis there is the last one here.
    """

    of: str
    shape: tuple[int, ...]  # there
    at: slice | int | list[int] | None = None  # None: all
    centre: float | None = None
    turned: bool = False

    def values(self) -> Tensor:
        whole = weight(self.of, self.shape, self.centre)
        if self.turned:
            whole = whole.reshape(len(whole), -1).T
        elif isinstance(self.at, list):
            whole = whole.reshape(-1)
        return torch.tensor(whole if self.at is None else whole[self.at])


def parts_of(model: nn.Module, config: RunConfig, recorded: set[int]) -> dict[str, Origin]:
    """Name of every parameter here -> what it is in the records.

    recorded: the names there, as crc32 has them.
    """
    return {name: _part(name, p, config, recorded) for name, p in model.named_parameters()}


def _part(name: str, p: nn.Parameter, config: RunConfig, recorded: set[int]) -> Origin:
    m, shape = config.model, tuple(p.shape)
    end = ending(name, RENAMED)
    of = name.removesuffix(end) + RENAMED[end] if end else name
    block, _, leaf = name.rpartition(".attn.")
    if leaf in ("q.weight", "k.weight", "v.weight") and crc(name) not in recorded:
        place = "qkv".index(leaf[0]) * m.d_model
        rows = slice(place, place + m.d_model)
        return Origin(of=f"{block}.attn.qkv.weight", shape=(3 * m.d_model, m.d_model), at=rows)
    if name == "skip_weights":
        centre = -1.5 if m.skip_weight == "sigmoid" else 1.0
        return Origin(of=of, shape=shape, centre=centre)
    if name == "skip.scale" and crc(name) not in recorded:
        half = m.n_layer // 2
        return Origin(of="skip_weights", shape=(half,), at=m.skip_layers[1] - half, centre=-1.5)
    if name.startswith(("mudd.", "mudd_gates.makers.")):
        return _part_of_maker(name, shape, m)
    if m.lanes is not None and ending(name, RENAMED) in ("attn_post", "mlp_post"):
        of = of.replace(".post_scale", ".lane0.post_scale")
    return Origin(of=of, shape=shape)


# the records' order of record 81's coefficients, two channels of eight, by that here
CHANNELS = {
    "last": [0, 1, 2, 8, 9, 10, 3, 11, 4, 5, 6, 7, 12, 13],
    "post": [8, 9, 10, 11, 12],
}


def _part_of_maker(name: str, shape: tuple[int, ...], m: ModelConfig) -> Origin:
    """Of one of MUDD's, whose makers have as many coefficients there as the one with the most."""
    *start, maker, leaf = re.split(r"\.(?=last|post|[0-9]|down|up|bias)", name)
    is_late = maker not in ("last", "0")
    of = f"{'mudd' if start == ['mudd'] else 'mudd_gate'}.{int(is_late)}.{leaf}"
    if leaf == "down.weight":
        return Origin(of=of, shape=shape)
    if start == ["mudd"] and m.mudd == "raised":
        channels = (2, 8) if leaf == "bias" else (HIDDEN, 2, 8)
        return Origin(of=of, shape=channels, at=CHANNELS[maker], turned=leaf != "bias")
    sizes = makers_sizes(m)
    rows = max(sizes[:2] if start == ["mudd"] else sizes[2:])
    return Origin(of=of, shape=(rows, *shape[1:]), at=slice(shape[0]))


def crc(name: str) -> int:
    return zlib.crc32(name.encode())


def network(record: str, arrays: Arrays) -> Pairs:
    """Loss, stream and norms of the network of a record's preset."""
    ids_1T, targets_1T = (
        torch.tensor(arrays[f"in/{name}"], dtype=torch.int64)[None]
        for name in ("inputs", "targets")
    )
    config = sized(record, arrays)
    tokens = Tokens(vocab_size=VOCAB, separator=SEPARATOR, seq_len=ids_1T.shape[1])
    model = GPT(config.model, tokens)
    theirs = dict(zip(arrays["name_crc32"].tolist(), arrays["grad_norm"], strict=True))
    parts = parts_of(model, config, set(theirs))
    fill(model, parts)
    # recorded while they are one, token table and head are the head
    tie = None
    if config.optim.tie_until is not None and not theirs.get(crc("embed.weight")):
        assert model.head is not None
        tie = Tie(model.head.weight, model.embed.weight)
        follow(tie)
    window = windows(config, arrays)
    loss = model(ids_1T, targets_1T, window)
    loss.backward()
    if tie is not None:
        join_gradients(tie)
    positions, channels = SHOWN
    with torch.no_grad():
        stream = model.stream(ids_1T, window)[0, ::positions, :channels]
    yield in_tolerances("loss", arrays["loss"], np.array(loss.item()))
    yield in_tolerances("stream", arrays["stream"], stream.numpy())
    ours = gradient_norms(model, parts)
    for key in theirs.keys() | ours.keys():
        norms = np.array(theirs.get(key, 0.0)), np.array(ours.get(key, 0.0))
        yield in_tolerances("grad_norm", *norms)


@torch.no_grad()
def fill(model: GPT, parts: Mapping[str, Origin]) -> None:
    """Give every parameter its values, and the signs of pairs of tokens."""
    for name, p in model.named_parameters():
        p.copy_(parts[name].values())
    if model.bigram is not None and model.bigram.sign is not None:
        signs = np.sign(drawn("bigram.sign", tuple(model.bigram.sign.shape)))
        model.bigram.sign.copy_(torch.tensor(signs))


def sized(record: str, arrays: Arrays) -> RunConfig:
    """A preset with the sizes of a unit, on a CPU in fp32."""
    width = int(arrays["h/width"])
    changed: NewValues = {
        "model.n_layer": int(arrays["h/layers"]),
        "model.d_model": width,
        "model.head_dim": width // int(arrays["h/heads"]),
        "model.attn_kernel": "dense",
        "model.block_mask": "traced",
        "precision.mode": "fp32",
    }
    values = preset_values(record)[0]
    tables = {field: size for field, size in PAIRS.items() if values[field] is not None}
    return with_fields(to_config(values), {**changed, **tables})


def windows(config: RunConfig, arrays: Arrays) -> Tensor:
    """Of the long layers and the short ones, as the network takes them."""
    short, long = arrays["h/window_short_long_blocks"]
    unit = 1 if config.model.attn_window in IN_BLOCKS else BLOCK
    return torch.tensor((long * unit, short * unit))


def gradient_norms(model: nn.Module, parts: Mapping[str, Origin]) -> dict[int, float]:
    """crc32 of a name in the records -> the norm of its gradient."""
    squares: dict[int, float] = {}
    for name, p in model.named_parameters():
        key = crc(parts[name].of)
        square = 0.0 if p.grad is None else float(p.grad.double().square().sum())
        squares[key] = squares.get(key, 0.0) + square
    return {key: square**0.5 for key, square in squares.items()}


def in_tolerances(
    figure: str, theirs: np.ndarray, ours: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Both in units of what they may differ by."""
    unit = TOLERANCES[figure] * max(float(np.max(np.abs(theirs))), FLOOR)
    return theirs / unit, ours / unit


def network_unit(name: str) -> Unit | None:
    """How the unit of a record's whole network is checked; None where it has no preset."""
    match = NAME.match(name)
    if match is None or match[1] not in names("records"):
        return None
    return Unit(pairs=partial(network, match[1]), bound=1.0)


NETWORKS = (
    *("r20_forward", "r21_forward", "r28_forward", "r32_forward", "r35_forward"),
    *("r40_forward", "r49_forward", "r51_forward", "r58_forward", "r62_forward"),
    *("r70_forward", "r77_forward", "r80_forward", "r82_forward", "r85_forward"),
)
NETWORK_UNITS = {name: unit for name in NETWORKS if (unit := network_unit(name)) is not None}
