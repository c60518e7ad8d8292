"""Units of the matrices: near-inverse initial values, and the head in eight bits.

d model_dim.
"""

from collections.abc import Mapping

import numpy as np
import torch

from harness.bench.unit import Arrays, Pairs, Unit
from harness.model.parameters import MIMETIC, UNIFORM, mimetic


def vo_init(arrays: Arrays) -> Pairs:
    """Matrices (d, d) of values and output from given noise, and how far those of q and k go."""
    square, deviation = float(arrays["h/beta"]), float(arrays["h/noise_std"])
    for part, name in (("v", "mimetic_v"), ("o", "mimetic_out")):
        for theirs, noise in zip(arrays[f"out/{part}"], arrays[f"in/noise_{part}"], strict=True):
            ours = mimetic(torch.tensor(noise), MIMETIC[name], square=square, deviation=deviation)
            yield theirs, ours.numpy()
    bound = np.array(UNIFORM["uniform_one"] * arrays["out/v"].shape[-1] ** -0.5)
    yield arrays["h/qk_bound"], bound
    yield arrays["out/qk_absmax"], np.minimum(arrays["out/qk_absmax"], bound)


MATRIX_UNITS: Mapping[str, Unit] = {
    "vo_init": Unit(pairs=vo_init, bound=1e-5, relative=True),
}
