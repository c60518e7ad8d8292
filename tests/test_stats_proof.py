"""The simulation study: its batch code is the production code, and every held row meets its bar."""

import numpy as np
import pytest

from reports.contrasts import Sample, analyse
from tests.proof.__main__ import BEGIN, DOCS, END, table
from tests.proof.batch import declared_analysis
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


def test_the_table_has_its_place_in_the_docs():
    text = DOCS.read_text(encoding="utf-8")
    assert text.count(BEGIN) == text.count(END) == 1
    written = text.split(BEGIN)[1].split(END)[0]
    for kind in (
        "simultaneous",
        "Welch",
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
    ):
        assert kind in written
    assert written.strip().splitlines()[:2] == table([]).splitlines()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_every_printed_interval_meets_its_bar(part):
    missed = [f"{row.kind}, n {row.n}, {row.noise}: {why}" for row in part(2000) for why in row.misses()]
    assert missed == []
