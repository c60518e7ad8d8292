"""Exclusive attention against its formula, head by head, where values are large and where they are next to nothing."""

import math

import pytest
import torch
from torch import Tensor

from harness.model.exclusive import EXCLUDE


def by_hand(form: str, y: list[float], v: list[float], a: float) -> list[float]:
    """Of one head at one position."""
    norm = math.hypot(*v)
    inner = sum(y_h * v_h for y_h, v_h in zip(y, v, strict=True))
    least = max(norm, 1e-4) ** 2 if form == "projection" else max(norm**2, 1e-8)
    return [y_h - math.tanh(a) * inner / least * v_h for y_h, v_h in zip(y, v, strict=True)]


@pytest.mark.parametrize("form", EXCLUDE)
@pytest.mark.parametrize("size", [1.0, 1e-3, 2e-5])
@pytest.mark.parametrize("of_each_position", [False, True])
def test_a_position_loses_its_share_of_what_it_has_of_its_own_value(
    form: str, size: float, of_each_position: bool
) -> None:
    generator = torch.Generator().manual_seed(0)
    B, T, N, H = 2, 3, 2, 4

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    v = drawn(B, T, N, H)
    v = size * v / v.norm(dim=-1, keepdim=True)
    y, a = drawn(B, T, N, H) / size, drawn(B, T, N) if of_each_position else drawn(N)
    expected = [
        [
            [by_hand(form, y[b, t, n].tolist(), v[b, t, n].tolist(), each) for n, each in of_heads]
            for t in range(T)
            for of_heads in [list(enumerate(a.expand(B, T, N)[b, t].tolist()))]
        ]
        for b in range(B)
    ]
    torch.testing.assert_close(EXCLUDE[form](y, v, a), torch.tensor(expected, dtype=torch.float64))
