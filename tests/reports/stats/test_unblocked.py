"""Samples without common blocks: the widened Welch interval errs as seldom as it says, whatever the noise, or is not given."""

import numpy as np
import pytest
from scipy import stats

from reports.analysis.cautions import Caution
from reports.analysis.compare import compare_all
from reports.inputs.load import load
from reports.stats.contrasts import Sample, analyse
from reports.stats.unblocked import more_runs, too_few, welch, widening
from tests.report_fixtures import Arm, write_experiment


def free(values) -> Sample:
    return Sample(values=np.asarray(values, float), blocks=(None,) * len(values))


def error_of_welch(n, n0, ratio, alpha, factor) -> float:
    """How often Welch's interval times `factor` misses, simulated."""
    rng = np.random.default_rng([n, n0])
    va, vb = (
        rng.chisquare(k - 1, 200_000) / (k - 1) * sd**2 / k for k, sd in ((n, ratio), (n0, 1.0))
    )
    d = rng.normal(0, np.sqrt(ratio**2 / n + 1 / n0), len(va))
    df = (va + vb) ** 2 / (va**2 / (n - 1) + vb**2 / (n0 - 1))
    return float((np.abs(d) > factor * stats.t.isf(alpha / 2, df) * np.sqrt(va + vb)).mean())


@pytest.mark.parametrize(
    ("n", "n0", "ratio", "alpha", "plain"),
    [(3, 10, 2.0, 0.05, 0.072), (5, 10, 2.0, 0.0125, 0.0174)],
)
def test_welchs_error_is_brought_to_alpha_where_it_is_worst(n, n0, ratio, alpha, plain):
    assert error_of_welch(n, n0, ratio, alpha, 1.0) == pytest.approx(plain, abs=0.0015)
    assert error_of_welch(n, n0, ratio, alpha, widening(n, n0, alpha)) == pytest.approx(
        0.99 * alpha, abs=0.0015
    )


@pytest.mark.parametrize("ratio", [0.2, 0.5, 1.0, 3.0, 10.0])
def test_no_ratio_of_sds_misses_more_often_than_alpha(ratio):
    assert error_of_welch(3, 4, ratio, 0.05, widening(3, 4, 0.05)) <= 0.0505


def test_the_factor_is_symmetric_and_fades_with_the_runs():
    assert widening(3, 8, 0.05) == pytest.approx(widening(8, 3, 0.05), rel=1e-3)
    factors = [widening(n, n, 0.05) for n in (3, 5, 10, 40)]
    assert factors == sorted(factors, reverse=True) and 1.0 <= factors[-1] < 1.005


def test_few_runs_against_many_have_no_interval_and_say_how_many_more():
    assert [too_few(*n, 0.05) for n in ((2, 2), (3, 3), (3, 5), (3, 10), (4, 10), (1, 9))] == [
        True,
        False,
        False,
        True,
        False,
        True,
    ]
    assert [too_few(*n, 0.0125) for n in ((3, 3), (3, 4), (4, 10), (5, 10))] == [
        False,
        True,
        True,
        False,
    ]
    assert not too_few(*(n + more_runs(3, 10, 0.0125) for n in (3, 10)), 0.0125)
    effect = analyse({"a": free([1.0, 2.0, 4.0])}, free(np.arange(10.0)))["a"]
    assert (effect.low, effect.high, effect.p, effect.p_attainable) == (None, None, None, 1.0)


def test_an_interval_is_scipys_welch_times_the_factor():
    rng = np.random.default_rng(3)
    a, b = rng.normal(0.5, 2, 7), rng.normal(0, 1, 5)
    effect, ends = (
        analyse({"a": free(a)}, free(b))["a"],
        stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95),
    )
    assert effect.high - effect.low == pytest.approx(widening(7, 5, 0.05) * (ends.high - ends.low))
    assert (effect.low + effect.high) / 2 == pytest.approx(welch(a, b)[0])


def test_the_page_refuses_what_so_few_runs_cannot_tell(tmp_path):
    arms = (
        Arm(name="base"),
        Arm(name="short", loss_effect=-0.05, fields=(("model.untied_head", True),)),
    )
    lost = {("short", s): "failed" for s in range(3, 10)}
    write_experiment(tmp_path, arms=arms, n_seeds=10, outcome=lost)
    experiment = load("split", tmp_path)
    experiment.runs["block"] = None
    c = compare_all(experiment).of("short", "val_loss")
    assert c is not None and (c.low, c.p, c.verdict, c.fresh_seeds) == (
        None,
        None,
        "too few runs",
        4,
    )
    assert (
        Caution.FEW_UNBLOCKED in c.warnings
        and Caution.ZERO_VARIANCE not in c.warnings
        and c.next_action == "ablate confirm: 4 fresh seeds or more (8 runs)"
    )
