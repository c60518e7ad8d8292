"""Units of what turns q and k: frequencies and scores that follow the long window (YaRN).

T positions, H head_dim, P = H/2 pairs. Arrays end in how many changes of the window came before.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch

from harness.bench.unit import Arrays, Pairs, Unit
from harness.config.run import BLOCK
from harness.model.precision import FP32
from harness.model.rotary import (
    ROTATIONS,
    Rotary,
    frequencies,
    growth_of_scores,
    stretched,
)

BASE = 1024.0  # of all these records
SCALE = 0.1  # of their scores before the first change


def counted(arrays: Arrays, figure: str) -> Iterator[tuple[np.ndarray, int]]:
    """Every array FIGURE followed by a number, and the number."""
    for name, theirs in arrays.items():
        if match := re.fullmatch(rf"{figure}(\d+)", name):
            yield theirs, int(match[1])


def rotary_after(windows: Sequence[float], head_dim: int, seq_len: int) -> Rotary:
    """The tables of so many positions once the window went through these, in tokens."""
    rotary = Rotary(
        head_dim=head_dim,
        base=BASE,
        pairs="half",
        freq_dtype=FP32,
        table_dtype=FP32,
        seq_len=seq_len,
        as_buffers=False,
        yarn=True,
    )
    rotary.follow(tuple(windows))
    return rotary


def window_yarn(arrays: Arrays) -> Pairs:
    """Frequencies (P,) and the scale of the scores after each window."""
    windows = [BLOCK * int(blocks) for blocks in arrays["windows"]]
    for theirs, n in counted(arrays, "freq"):
        start_P = frequencies(2 * len(theirs), BASE, "half", FP32)
        yield theirs, stretched(start_P, windows[: n + 1]).numpy()
    for theirs, n in counted(arrays, "scale"):
        yield theirs, np.array(SCALE * growth_of_scores(windows[: n + 1]))


def yarn(arrays: Arrays) -> Pairs:
    """The same with tables and what they turn, in either pairing and with two heads in a row.

    split/: channels half a head apart; pair/, tokens/: neighbours; paired/: these, a position's
    heads at 2t and 2t + 1.
    """
    windows = [int(arrays["h/block"]) * int(blocks) for blocks in arrays["h/windows_blocks"]]
    ends = {"slow": float(arrays["h/alpha"]), "fast": float(arrays["h/beta"])}
    _, T, _, H = arrays["in/x"].shape
    start_P = frequencies(H, BASE, "half", FP32)

    def frequencies_after(n_changes: int) -> np.ndarray:
        return stretched(start_P, windows[: n_changes + 1], **ends).numpy()

    for i, theirs in enumerate(arrays["split/freq"], start=1):
        yield theirs, frequencies_after(i)
    for i, scale in enumerate(arrays["split/scale"], start=1):
        yield scale, np.array(SCALE * growth_of_scores(windows[: i + 1]))
    for theirs, n in counted(arrays, "tokens/scale"):
        yield theirs, np.array(SCALE * growth_of_scores(windows[: n + 1]))
    for theirs, n in counted(arrays, "split/freq"):
        yield theirs, frequencies_after(n)
    for form in ("pair", "paired", "tokens"):
        for theirs, n in counted(arrays, f"{form}/freq"):
            yield theirs, frequencies_after(n).repeat(2)
    for figure in ("cos", "sin"):
        for theirs, n in counted(arrays, f"split/{figure}"):
            turns = rotary_after(windows[: n + 1], H, T)
            yield theirs, getattr(turns, figure)[:, 0].numpy()
    x, in_a_row = torch.tensor(arrays["in/x"]), torch.tensor(arrays["in/x_paired"])
    for form, pairing in (("split", "halves"), ("pair", "adjacent")):
        for theirs, n in counted(arrays, f"{form}/rotated"):
            cos, sin, _ = rotary_after(windows[: n + 1], H, T)(T)
            yield theirs, ROTATIONS[pairing]["promote"](x, cos, sin).numpy()
    for theirs, n in counted(arrays, "paired/rotated"):
        cos, sin, _ = rotary_after(windows[: n + 1], H, 2 * T)(2 * T)
        heads = in_a_row.unflatten(-1, (2, H))  # (1, T, pairs of heads, 2, H)
        slots = heads.transpose(2, 3).flatten(1, 2)  # (1, 2T, pairs of heads, H)
        turned = ROTATIONS["adjacent"]["promote"](slots, cos, sin)
        yield theirs, turned.unflatten(1, (T, 2)).transpose(2, 3).flatten(-2).numpy()


ROTARY_UNITS: Mapping[str, Unit] = {
    "yarn": Unit(pairs=yarn, bound=1e-5, relative=True),
    "window_yarn": Unit(pairs=window_yarn, bound=1e-6),
}
