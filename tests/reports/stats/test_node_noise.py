"""The noise between nodes: fitted without bias, and an interval that covers with it."""

import numpy as np
import pytest
from scipy import stats

from reports.stats.contrasts import Effect, Sample, analyse
from reports.stats.node_noise import NodeNoise, between_nodes, with_nodes

SD, RUN_SD = 0.03, 0.002


def programs(rng: np.random.Generator, n: int) -> list[list[np.ndarray]]:
    """n programs on three nodes each, runs of unequal number."""
    made = []
    for _ in range(n):
        nodes = [
            4.5 + SD * rng.normal() + RUN_SD * rng.normal(size=n_runs) for n_runs in (10, 5, 1)
        ]
        made.append(nodes)
    return made


def test_the_fit_finds_the_sd_between_nodes() -> None:
    rng = np.random.default_rng(1)
    fits = [between_nodes(programs(rng, 5)) for _ in range(400)]
    assert np.mean([fit.sd**2 for fit in fits]) == pytest.approx(SD**2, rel=0.06)
    assert {(fit.df, fit.n_programs) for fit in fits} == {(10, 5)}


def test_nodes_that_do_not_differ_add_nothing() -> None:
    rng = np.random.default_rng(2)
    same = [[4.5 + RUN_SD * rng.normal(size=10) for _ in range(2)] for _ in range(200)]
    assert between_nodes(same).sd < RUN_SD / 2


def test_without_a_program_on_several_nodes_there_is_no_fit() -> None:
    with pytest.raises(ValueError, match="no program ran on several nodes"):
        between_nodes([[np.zeros(3)]])


@pytest.mark.slow
def test_an_interval_with_unknown_nodes_misses_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    n, missed, missed_without = 2000, 0, 0
    for _ in range(n):
        noise = NodeNoise(
            sd=SD * float(np.sqrt(rng.chisquare(11) / 11)), df=11, largest=0.1, n_programs=8
        )
        arms = [
            Sample(values=SD * rng.normal() + RUN_SD * rng.normal(size=6), blocks=(None,) * 6)
            for _ in range(2)
        ]
        effect = analyse({"a": arms[0]}, arms[1], level=0.95)["a"]
        wide = with_nodes(effect, noise, alpha=0.05, m=1)
        missed_without += not effect.low <= 0 <= effect.high
        missed += not wide.low <= 0 <= wide.high
        assert (wide.p < 0.05) == (not wide.low <= 0 <= wide.high)
    assert stats.binomtest(missed, n, 0.05).pvalue > 0.001
    assert missed_without / n > 0.8


def test_an_effect_without_an_interval_gets_none() -> None:
    noise = NodeNoise(sd=SD, df=11, largest=0.1, n_programs=8)
    arm = Sample(values=np.array([1.0]), blocks=(None,))
    effect = analyse({"a": arm}, arm, level=0.95)["a"]
    assert isinstance(effect, Effect)
    assert with_nodes(effect, noise, alpha=0.05, m=1) == effect


def test_the_runs_own_noise_is_taken_off_the_nodes() -> None:
    """Means 1 and 5 have squares of 8; runs of variance 2, two on each node, add 1 to them."""
    noise = between_nodes([[np.array([0.0, 2.0]), np.array([4.0, 6.0])]])
    assert noise.sd == pytest.approx(7**0.5)
    three = between_nodes([[np.array([m - 1.0, m + 1.0]) for m in (1.0, 5.0, 9.0)]])
    assert (three.sd**2, three.df) == (pytest.approx((32 - 2) / 2), 2)
