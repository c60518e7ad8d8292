"""Units of what is told for every position: MUDD's makers, and mixtures of heads."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch

from harness.bench.unit import Arrays, Pairs, Unit
from harness.bench.units_model import BOUND, RECORDS, compared, documents, leaf, load
from harness.model.composed import correction, near, unit_mean_square
from harness.model.mudd import Maker
from harness.model.precision import PLAIN

PLACES = ("last", "post")  # makers, in the order of their weights


def dc_correction(arrays: Arrays) -> Pairs:
    """What heads add of the mixture of all their probabilities, with its normalised factor."""
    leaves = {name: leaf(arrays[f"in/{name}"]) for name in ("q", "k", "v", "w1_raw", "w2")}
    q, k, v = (leaves[name].transpose(0, 1)[None] for name in "qkv")
    w1, w2 = leaves["w1_raw"][None], leaves["w2"][None]
    seen = near(documents(arrays, q.shape[2]), int(arrays["h/window"]))
    y = correction(q, k, v, w1, w2, seen, float(arrays["h/scale"]))
    yield arrays["mid/w1"], unit_mean_square(w1)[0].detach().numpy()
    yield from compared(arrays, "", torch.tensor(arrays["in/base"]) + y[0], leaves)


def maker_of(arrays: Arrays, place: int) -> Maker:
    """A maker with its recorded weights, of as many coefficients as are used."""
    size = arrays[f"{PLACES[place]}/coef"].shape[1]
    w1, w2, b = (arrays[f"w/{name}"][place] for name in ("w1", "w2", "b"))
    scale, starts = float(arrays["h/scale"]), (0.0,) * size
    config = replace(RECORDS, d_model=w1.shape[1])
    maker = Maker(config, PLAIN, starts=starts, scale=scale, part="mudd", hidden=w1.shape[0])
    load(maker, {"down.weight": w1, "up.weight": w2[:size], "bias": b[:size]})
    return maker


def mudd_coef(arrays: Arrays) -> Pairs:
    """Both makers' coefficients, and the gradients of all."""
    x, scale = leaf(arrays["in/x"]), float(arrays["h/scale"])
    total = torch.zeros(())
    makers = [maker_of(arrays, place) for place in range(len(PLACES))]
    for place, maker in zip(PLACES, makers, strict=True):
        y = maker(x, scale)
        yield arrays[f"{place}/coef"], y.detach().numpy()
        total = total + (y * torch.tensor(arrays[f"in/cotangent_{place}"])).sum()
    total.backward()
    yield arrays["grad/x"], gradient(x)
    for name in ("up.weight", "bias"):
        theirs = arrays["grad/w2" if name == "up.weight" else "grad/b"]
        ours = np.zeros_like(theirs)
        for of_place, maker in zip(ours, makers, strict=True):
            rows = gradient(maker.get_parameter(name))
            of_place[: len(rows)] = rows
        yield theirs, ours
    norms = [np.linalg.norm(gradient(maker.down.weight)) for maker in makers]
    yield arrays["grad/w1_norm"], np.array(norms)


def gradient(leaf: torch.Tensor) -> np.ndarray:
    assert leaf.grad is not None
    return leaf.grad.numpy()


MUDD_UNITS: Mapping[str, Unit] = {
    "dc_correction": Unit(pairs=dc_correction, bound=BOUND, relative=True),
    "mudd_coef": Unit(pairs=mudd_coef, bound=BOUND, relative=True),
}
