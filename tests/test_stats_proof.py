"""The simulation study: its batch code is the production code, and every held row meets its bar."""

import numpy as np
import pytest

from reports.attribution import contrast_of
from reports.contrasts import Sample, analyse
from tests.proof.__main__ import BEGIN, DOCS, END, table
from tests.proof.batch import contrast_half, declared_analysis, unblocked_interval
from tests.proof.row import Row
from tests.proof.shares import FAMILIES
from tests.proof.study import PARTS


@pytest.mark.parametrize("n", [2, 4, 6, 9])
@pytest.mark.parametrize("noisy", [frozenset(), frozenset({1}), frozenset({0, 1, 2})])
def test_the_batch_is_the_production_analysis(n, noisy):
    rng = np.random.default_rng(n)
    y = rng.normal(size=(8, n, 4)) + np.array([0, 0, 1.5, 0.5])
    batch = declared_analysis(y, noisy=noisy)
    for r in range(8):
        samples = [Sample(values=y[r, :, j], blocks=tuple(range(n))) for j in range(4)]
        effects = analyse({f"a{j}": samples[j + 1] for j in range(3)}, samples[0], alters_noise=frozenset(f"a{j}" for j in noisy))
        for j in range(3):
            e = effects[f"a{j}"]
            assert (e.delta, e.low, e.high) == pytest.approx((batch.delta[r, j], batch.low[r, j], batch.high[r, j]))


@pytest.mark.parametrize("n", [2, 4, 7])
@pytest.mark.parametrize("kind", FAMILIES)
def test_the_batch_of_shares_is_the_production_analysis(n, kind):
    y = np.random.default_rng(n).normal(size=(3, n, 8)) * [1, 1, 2, 1, 1, 1, 1, 3]
    for c in FAMILIES[kind]:
        halves = contrast_half(y, c, 0.02)
        for r in range(3):
            share = contrast_of(y[r], c, 0.02)
            assert (share.low, share.high) == pytest.approx((share.value - halves[r], share.value + halves[r]))


@pytest.mark.parametrize(("n", "n0"), [(3, 3), (5, 11)])
def test_the_batch_of_unblocked_runs_is_the_production_analysis(n, n0):
    rng = np.random.default_rng(n)
    a, b = rng.normal(0, 3, (5, n)), rng.normal(size=(5, n0))
    delta, half = unblocked_interval(a, b)
    for r in range(5):
        arm, base = (Sample(values=x, blocks=(None,) * len(x)) for x in (a[r], b[r]))
        e = analyse({"a": arm}, base)["a"]
        assert (e.low, e.high) == pytest.approx((delta[r] - half[r], delta[r] + half[r]), rel=1e-5)


def test_a_bar_is_held_by_the_number_as_printed():
    row = Row(kind="x", n="3", noise="equal", replications=1, coverage=0.9296, family_error=0.0506, power=0.7994, width=1.5)
    assert row.misses() == ["family error 0.051", "power 0.799"]


def test_the_table_has_its_place_in_the_docs():
    text = DOCS.read_text(encoding="utf-8")
    assert text.count(BEGIN) == text.count(END) == 1
    written = text.split(BEGIN)[1].split(END)[0]
    for kind in (
        "simultaneous",
        "not blocked",
        "ratio of step times",
        "N*",
        "time to target",
        "peeking",
        "adaptive stop",
        "trimmed",
        "reproduced",
        "time to target, anytime-valid",
        "noise floor",
        "rate of diverged runs",
        "contribution alone",
        "Shapley share",
        "lost without it",
        "main effects and interactions",
        "Shapley share of steps",
        "Shapley share of seconds",
        "points of an axis",
        "verified",
        "published delta",
    ):
        assert kind in written
    assert written.strip().splitlines()[:2] == table([]).splitlines()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_every_printed_interval_meets_its_bar(part):
    missed = [f"{row.kind}, n {row.n}, {row.noise}: {why}" for row in part(2000) for why in row.misses()]
    assert missed == []
