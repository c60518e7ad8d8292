"""A folder's memory: p for all changes that were asked about, and no interval where results are gone."""

from dataclasses import replace
from typing import Any

import pytest

from reports.analysis.remembered import as_remembered, of_the_family
from reports.inputs.memory import Memory
from reports.stats.contrasts import Effect, Method

EFFECT = Effect(
    delta=-0.5,
    low=-1.0,
    high=0.0,
    p=0.05,
    p_attainable=0.0,
    df=4.0,
    se=0.2,
    method=Method.SLOPE,
    n_blocks=3,
    correlation=0.1,
)


@pytest.mark.parametrize(
    ("p", "raised", "told"),
    [(0.05, 1, 0.05), (0.05, 2.0, 0.1), (0.05, 3.0, 0.15), (0.5, 3.0, 1.0), (None, 3.0, None)],
)
def test_a_p_is_for_the_whole_family_and_never_above_one(
    p: float | None, raised: float, told: float | None
) -> None:
    effect: Any = replace(EFFECT, p=p)
    for found in (
        as_remembered(Memory(), "a", effect, raised),
        as_remembered(Memory(lost={"b": "gone"}), "a", effect, raised),
        of_the_family(effect, raised),
    ):
        assert found.p == (told if told is None else pytest.approx(told))
        assert replace(found, p=p) == effect


def test_an_arm_whose_results_are_gone_keeps_its_difference_alone() -> None:
    found = as_remembered(Memory(lost={"a": "gone"}), "a", EFFECT, 1)
    assert (found.delta, found.n_blocks, found.correlation) == (-0.5, 3, 0.1)
    assert (found.low, found.high, found.p, found.method) == (None, None, None, Method.DIFFERENCE)
