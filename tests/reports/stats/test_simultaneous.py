"""max-t against tables, scipy's Dunnett and multivariate t; Holm against a worked example."""

import numpy as np
import pytest
from scipy import stats

from reports.stats.simultaneous import (
    agree_with_holm,
    holm,
    max_t_cdf,
    max_t_p,
    max_t_quantile,
    power_of_t,
    product_structure,
)


def equal(m: int, r: float = 0.5) -> np.ndarray:
    return r + (1 - r) * np.eye(m)


@pytest.mark.parametrize(
    ("df", "m", "published"),  # Dunnett (1964), two-sided 5 %, equal group sizes
    [
        (5, 2, 3.03),
        (5, 3, 3.29),
        (10, 2, 2.57),
        (10, 5, 2.99),
        (20, 4, 2.65),
        (20, 9, 2.95),
        (60, 3, 2.41),
        (np.inf, 4, 2.44),
    ],
)
def test_critical_values_are_dunnetts_table(df, m, published):
    assert max_t_quantile(0.95, equal(m), df) == pytest.approx(published, abs=0.006)


def test_p_values_are_scipys_dunnett_on_unblocked_data():
    rng = np.random.default_rng(3)
    control, groups = (
        rng.normal(size=6),
        [rng.normal(0.8, 1, 6), rng.normal(1.4, 1, 6), rng.normal(0, 1, 6)],
    )
    reference = stats.dunnett(*groups, control=control, rng=np.random.default_rng(0))
    every = [control, *groups]
    s2 = np.mean([g.var(ddof=1) for g in every])
    t = np.array([(g.mean() - control.mean()) / np.sqrt(s2 * 2 / 6) for g in groups])
    assert t == pytest.approx(reference.statistic)
    assert max_t_p(t, equal(3), 20) == pytest.approx(reference.pvalue, abs=1e-3)


@pytest.mark.parametrize(("m", "df"), [(4, 4), (8, 9), (14, 16), (14, np.inf)])
def test_quasi_monte_carlo_of_many_arms_is_within_what_it_says(m, df):
    loadings = np.random.default_rng(m).uniform(0.2, 0.9, m)
    corr = np.outer(loadings, loadings)
    np.fill_diagonal(corr, 1.0)
    odd = corr.copy()
    odd[0, 1] = odd[1, 0] = corr[0, 1] + 1e-6
    assert product_structure(corr) is not None and product_structure(odd) is None
    for c in np.linspace(1.2, 3.2, 6):
        assert max_t_cdf(c, odd, df) == pytest.approx(max_t_cdf(c, corr, df), abs=0.0025)


def test_quasi_monte_carlo_is_within_its_stated_error_of_the_integral():
    corr = equal(4)
    odd = corr.copy()
    odd[0, 1] = odd[1, 0] = 0.5 + 1e-6  # breaks the product structure, nothing else
    assert product_structure(corr) is not None and product_structure(odd) is None
    for c in (1.5, 2.2, 2.9):
        assert max_t_cdf(c, odd, 9) == pytest.approx(max_t_cdf(c, corr, 9), abs=0.0005)


def test_unequal_correlations_agree_with_scipys_multivariate_t():
    corr = np.array([[1.0, 0.7, 0.2], [0.7, 1.0, 0.1], [0.2, 0.1, 1.0]])
    expected = stats.multivariate_t(shape=corr, df=7, seed=0).cdf(
        np.full(3, 2.5), lower_limit=np.full(3, -2.5), random_state=0
    )
    assert max_t_cdf(2.5, corr, 7) == pytest.approx(expected, abs=2e-3)


def test_one_arm_is_a_plain_t_and_many_lie_between_t_and_bonferroni():
    assert max_t_quantile(0.95, np.eye(1), 4) == pytest.approx(stats.t.isf(0.025, 4))
    c = max_t_quantile(0.95, equal(6), 12)
    assert stats.t.isf(0.025, 12) < c < stats.t.isf(0.025 / 6, 12)
    assert max_t_cdf(c, equal(6), 12) == pytest.approx(0.95, abs=1e-6)


def test_no_chance_is_above_one_however_its_integral_is_rounded():
    chances = [
        max_t_cdf(c, equal(m), df) for c in (50.0, 1e3) for m in (2, 5) for df in (5, np.inf)
    ]
    assert max(chances) <= 1.0 and chances == pytest.approx(np.ones(8), abs=1e-6)


def test_far_in_the_tail_p_stays_positive():
    odd = equal(3)
    odd[0, 1] = odd[1, 0] = -0.2
    t = np.array([-30.0, 12.0, 0.5])
    p = max_t_p(t, odd, 10)
    assert 0 < p[0] < p[1] < 1e-5 < p[2]
    assert p[:2] == pytest.approx(3 * stats.t.sf(np.abs(t[:2]), 10) * 2, rel=1e-9)  # Bonferroni's


def test_arms_that_do_not_go_with_each_other_have_no_product_structure():
    """Each pair of three at zero: what the others say of it divides by nothing."""
    for i, j in ((0, 1), (0, 2), (1, 2)):
        corr = equal(3)
        corr[i, j] = corr[j, i] = 0.0
        assert product_structure(corr) is None
    assert product_structure(equal(3)) == pytest.approx(np.sqrt([0.5] * 3))
    assert product_structure(equal(1)) == [0.0]
    for r in (-0.1, 1.0):
        assert product_structure(equal(2, r)) is None
    for r in (0.0, 0.3):
        assert product_structure(equal(2, r)) == pytest.approx([np.sqrt(r)] * 2)


def test_the_last_bits_of_a_correlation_do_not_move_what_is_simulated_from_it():
    corr = equal(5)
    corr[0, 1:] = corr[1:, 0] = (
        0.3  # no shared baseline, three equal eigenvalues: any basis of their space would do
    )
    corr[0, 1] = corr[1, 0] = 0.31
    assert product_structure(corr) is None
    noise = np.random.default_rng(0).normal(size=(5, 5)) * 2e-16
    one, other = (max_t_quantile(0.95, c, 12.0) for c in (corr, corr + noise + noise.T))
    assert one == pytest.approx(other, abs=1e-11)


def test_power_is_scipys_noncentral_t_where_that_is_finite():
    for df, shift, c in ((8, 2.0, 2.3), (20, 3.0, 2.1)):
        expected = stats.nct.sf(c, df, shift) + stats.nct.cdf(-c, df, shift)
        assert power_of_t(c, shift, df) == pytest.approx(expected, abs=1e-9)


def test_holm_by_hand():
    assert holm(np.array([0.01, 0.04, 0.03, 0.005])) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_holms_decision_and_the_interval_agree():
    delta, low, high = (
        np.array([2.0, -2.0, 1.0]),
        np.array([-0.1, -4.0, -1.0]),
        np.array([4.1, 0.1, 3.0]),
    )
    new_low, new_high = agree_with_holm(delta, low, high, np.array([0.04, 0.03, 0.5]), alpha=0.05)
    assert list(new_low) == [0, -4, -1] and list(new_high) == [4.1, 0, 3]
