"""Units of the matrices: near-inverse initial values, and the head in eight bits.

d model_dim.
"""

import math
from collections.abc import Mapping

import numpy as np
import torch

from harness.bench.unit import Arrays, Pairs, Unit
from harness.model.float8 import Float8Product
from harness.model.parameters import MIMETIC, UNIFORM, mimetic

SUMMED, SHARE = 8192, 0.3  # of a summed loss, and of what comes after the logits


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


def gradient_of(G: np.ndarray, factor: float) -> torch.Tensor:
    """The gradient of the logits in bf16: times a power of two, or that of a sum in two steps."""
    gradient = torch.tensor(G)
    if math.frexp(factor)[0] == 0.5:
        return (gradient * factor).bfloat16()
    return (gradient * SUMMED).bfloat16() * SHARE


def fp8_head(arrays: Arrays) -> Pairs:
    """First rows of logits and gradients with every record's scales; sums of logits, too.

    Scales multiply before the cast where the record said so, else they divide.
    """
    for record in [name.partition("/")[0] for name in arrays if name.endswith("/scales")]:
        told = {name: arrays[f"{record}/{name}"] for name in ("scales", "multiply", "g_factor")}
        scales = tuple(1 / told["scales"] if told["multiply"] else told["scales"])
        x = torch.tensor(arrays["in/x"]).bfloat16().requires_grad_()
        unit = arrays["in/w_unit"]
        size = float(arrays[f"{record}/w_scale_normal"] / unit.std(ddof=1, dtype=np.float64))
        weight = torch.tensor(unit * np.float32(round(size, 4))).requires_grad_()
        z = Float8Product.apply(x, weight, tuple(map(float, scales)))
        z.backward(gradient_of(arrays["in/G"], float(told["g_factor"])))
        assert x.grad is not None
        assert weight.grad is not None
        yield arrays[f"{record}/z_row0"], z[0].detach().float().numpy()
        yield arrays[f"{record}/gx_row0"], x.grad[0].float().numpy()
        yield arrays[f"{record}/gw_row0"], weight.grad[0].numpy()
        yield arrays[f"{record}/z_sum_abs"], z.detach().float().abs().sum().numpy()


MATRIX_UNITS: Mapping[str, Unit] = {
    "vo_init": Unit(pairs=vo_init, bound=1e-5, relative=True),
    # sums in another order may round to the bf16 number beside
    "fp8_head": Unit(pairs=fp8_head, bound=2.0**-8, relative=True),
}
