"""The t-mixture against direct integration of the Bayes factor, its own inversion, and Ville's bound."""

import math

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from reports.analysis.cautions import Caution
from reports.analysis.sequence_doubts import sequence_warnings
from reports.stats.anytime import sequences
from reports.stats.contrasts import Sample
from reports.stats.sequential import (
    attainable_p,
    critical_t,
    independent_t_mixture,
    log_e_of,
    log_e_value,
    rate_sequence,
    smallest_alpha,
    t_mixture,
)
from tests.proof.batch import running_h, running_independent


@pytest.mark.parametrize(("t", "n"), [(0.3, 3), (2.0, 5), (4.0, 12), (-3.0, 30)])
def test_e_value_is_the_bayes_factor_of_the_t_statistic(t, n):
    """Integrating the noncentral t density over the effect size prior gives the same number, computed without our formula."""

    def density(delta: float) -> float:
        return float(stats.nct.pdf(t, n - 1, delta * np.sqrt(n)) * stats.norm.pdf(delta))

    marginal = integrate.quad(density, -8, 8, limit=400)[0]
    assert np.exp(log_e_value(t, n)) == pytest.approx(marginal / stats.t.pdf(t, n - 1), rel=1e-5)


def test_critical_t_is_where_the_e_value_meets_one_over_alpha():
    for n in (7, 8, 20, 50):
        assert np.exp(log_e_value(float(critical_t(n, 0.05)), n)) == pytest.approx(20)


def test_the_interval_is_unbounded_up_to_six_blocks_and_the_attainable_p_says_so():
    assert np.isinf(critical_t(np.arange(2, 7), 0.05)).all() and np.isfinite(critical_t(7, 0.05))
    assert attainable_p(6) == 1.0 and attainable_p(7) < 0.05
    assert np.isinf(critical_t(7, 0.05 / 100)) and attainable_p(7) > 0.05 / 100


def test_a_skewed_sample_has_halls_interval_on_the_side_that_t_misses():
    """Against Hall's polynomial solved numerically, and scipy's adjusted skewness; symmetric values have the old interval."""
    d = np.array([0.1, 0.15, 0.3, 0.35, 0.5, 0.6, 0.9, 1.0, 1.4, 2.1, 2.2, 2.4])
    n, skew, sd = len(d), stats.skew(d, bias=False), d.std(ddof=1)
    c = float(critical_t(n, 0.05))

    def h(mu: float) -> float:
        u = (d.mean() - mu) / sd
        return math.sqrt(n) * (u + skew * u**2 / 3 + skew**2 * u**3 / 27 + skew / 6 / n)

    low, high, _ = t_mixture(d, 0.05)
    upper = optimize.brentq(lambda mu: h(mu) + c, d.mean(), d.mean() + 50)
    half = c * sd / math.sqrt(n)
    assert low == pytest.approx(d.mean() - half)
    assert half < upper - d.mean() and high == pytest.approx(min(upper, d.mean() + 1.3 * half))
    even = np.r_[d, -d]
    assert t_mixture(even, 0.05)[1] == pytest.approx(
        float(critical_t(24, 0.05)) * even.std(ddof=1) / math.sqrt(24)
    )


@pytest.mark.slow
def test_skewed_noise_in_one_arm_is_called_an_effect_less_often_than_alpha_says():
    rng = np.random.default_rng(3)
    wrong = 0
    for _ in range(400):
        d = np.exp(rng.normal(size=50)) - math.exp(0.5) - 2.16 * rng.normal(size=50)
        for n in range(7, 51):
            low, high, _ = t_mixture(d[:n], 0.05)
            if low > 0 or high < 0:
                wrong += 1
                break
    assert wrong / 400 <= 0.05


def test_interval_and_p_agree():
    rng = np.random.default_rng(0)
    for n in range(2, 30):
        d = rng.normal(0.8, 1, n)
        low, high, p = t_mixture(d, 0.05)
        assert (low > 0 or high < 0) == (p < 0.05)


def test_peeking_without_an_effect_stays_below_alpha_and_the_plug_in_mixture_does_not():
    rng = np.random.default_rng(1)
    d = rng.normal(size=(4000, 50))
    n = np.arange(1, 51)
    mean = d.cumsum(1) / n
    sd = np.sqrt(np.maximum((d**2).cumsum(1) - n * mean**2, 0) / np.maximum(n - 1, 1))
    t = mean[:, 1:] / (sd[:, 1:] / np.sqrt(n[1:]))
    assert (np.abs(t) > critical_t(n[1:], 0.05)).any(1).mean() < 0.05
    plug_in = np.sqrt(
        (n + 1) / n * (np.log(n + 1) + 2 * np.log(1 / 0.05))
    )  # the normal mixture with the sd put in
    assert (np.abs(t)[:, 1:] > plug_in[2:]).any(1).mean() > 0.10


def test_one_difference_says_nothing():
    assert t_mixture(np.array([0.3]), 0.05) == (-np.inf, np.inf, 1.0)
    noisy, alike = np.arange(7.0), np.ones(7)
    unknown = (-np.inf, np.inf, 1.0)
    assert independent_t_mixture(noisy[1:], noisy, 0.05) == unknown
    assert independent_t_mixture(noisy, noisy[1:], 0.05) == unknown
    assert independent_t_mixture(alike, alike + 1, 0.05) == unknown  # no error to judge by
    assert independent_t_mixture(noisy, noisy, 0.05) != unknown


def test_independent_samples_have_the_wider_of_two_sequences():
    rng = np.random.default_rng(2)
    for n, ratio in ((20, 1.0), (8, 3.0), (8, 0.3)):
        a, b = rng.normal(1, 0.2 * ratio, n), rng.normal(0, 0.2, 22)
        low, high, p = independent_t_mixture(a, b, 0.05)
        share = n * 22 / (n + 22)
        squares = ((a - a.mean()) ** 2).sum() + ((b - b.mean()) ** 2).sum()
        welch = stats.ttest_ind(a, b, equal_var=False)
        errors = (
            (math.sqrt(squares / (n + 20) / share), n + 20.0),
            (
                (a.mean() - b.mean()) / welch.statistic,
                welch.df,
            ),
        )
        for end in (
            low,
            high,
        ):  # where neither martingale has more than 1 / alpha, and one has that
            at = [log_e_of((a.mean() - b.mean() - end) / se, share, df) for se, df in errors]
            assert min(at) == pytest.approx(math.log(20))
        assert (low > 0) == (p < 0.05)
    few = independent_t_mixture(a[:6], b, 0.05)
    assert few == (-math.inf, math.inf, 1.0)


@pytest.mark.parametrize("grows", [True, False])
def test_the_batch_of_independent_sequences_is_the_production_analysis(grows):
    rng = np.random.default_rng(4)
    a, b = rng.normal(size=(3, 30)) * 2, rng.normal(size=(3, 30))
    delta, half = running_independent(a, b, 0.05, grows=grows)
    for r, n in ((0, 7), (1, 12), (2, 30)):
        low, high, _ = independent_t_mixture(a[r, :n], b[r, : n if grows else 30], 0.05)
        at = delta[r, n - 1], half[r, n - 1]
        assert (low, high) == pytest.approx((at[0] - at[1], at[0] + at[1]))


@pytest.mark.parametrize("paired", [True, False])
def test_arms_share_alpha_and_a_divergence_leaves_a_sequence_no_interval(paired):
    """A diverged run has no loss, so the mean of the others is no estimate of all: its arm is told by outcomes."""
    rng = np.random.default_rng(2)
    a, b = rng.normal(1, 0.1, 20), rng.normal(0, 0.1, 20)

    def of(values, n_diverged=0):
        blocks = tuple(range(20)) if paired else (None,) * 20
        return Sample(values=values, blocks=blocks, n_diverged=n_diverged)

    whole = sequences({"a": of(a)}, of(b), m=3, level=0.95)["a"]
    expected = (t_mixture(a - b, 0.05 / 3) if paired else independent_t_mixture(a, b, 0.05 / 3))[:2]
    assert (whole.low, whole.high) == pytest.approx(expected)
    if paired:
        assert whole.p == pytest.approx(3 * t_mixture(a - b, 0.05)[2])
    for of_arm, of_base in ((1, 0), (0, 1)):
        cut = sequences({"a": of(a, of_arm)}, of(b, of_base), m=3, level=0.95)["a"]
        assert (cut.low, cut.high, cut.p) == (None, None, None)
        assert cut.delta == pytest.approx((a - b).mean())


def test_the_rates_interval_holds_what_the_mixture_has_no_evidence_against():
    for count, n in ((0, 6), (2, 9), (9, 9)):
        low, high = rate_sequence(count, n, 0.05)
        for rate, inside in (
            (low - 1e-6, False),
            (low + 1e-6, True),
            (high - 1e-6, True),
            (high + 1e-6, False),
        ):
            if 0 < rate < 1:
                mixture = stats.betabinom.pmf(count, n, 0.5, 0.5)
                assert (mixture / stats.binom.pmf(count, n, rate) < 20) == inside
    fixed = stats.binomtest(2, 9).proportion_ci(0.95, method="exact")
    low, high = rate_sequence(2, 9, 0.05)
    assert low < fixed.low and high > fixed.high


def test_the_smallest_alpha_inverts_a_sequence():
    d = np.random.default_rng(5).normal(1.0, 1.0, 12)
    assert smallest_alpha(lambda alpha: t_mixture(d, alpha)[:2]) == pytest.approx(
        t_mixture(d, 0.05)[2], rel=1e-4
    )
    assert smallest_alpha(lambda alpha: None) == 1.0
    assert smallest_alpha(lambda alpha: (1.0, 2.0)) == smallest_alpha(lambda alpha: (-2.0, -1.0))
    assert smallest_alpha(lambda alpha: (1.0, 2.0)) == 1e-9  # its floor
    assert (
        smallest_alpha(lambda alpha: (0.0, 2.0)) == smallest_alpha(lambda alpha: (-2.0, 0.0)) == 1.0
    )
    assert smallest_alpha(lambda alpha: (1.0, 2.0), floor=1e-3) == 1e-3


def test_a_sequence_that_errs_for_skewed_noise_of_one_arm_warns():
    """A wrong result comes where the long tail was not seen: the noise betrays it, the skewness does not."""
    rng = np.random.default_rng(8)
    arm = rng.exponential(size=(2000, 30)) - 1
    base = rng.normal(size=(2000, 30)) / 10
    wrong = np.abs(running_h((arm - base)[:, :, None])[:, :, 0]) > critical_t(
        np.arange(2, 31), 0.05
    )
    said = []
    for i in np.flatnonzero(wrong.any(1)):
        n = 2 + int(wrong[i].argmax())
        said.append(sequence_warnings(arm[i, :n], base[i, :n]))
    assert len(said) > 2000 * 0.04  # beyond the condition
    assert np.mean([Caution.UNLIKE_NOISE in doubts for doubts in said]) > 0.7
    assert np.mean([Caution.SKEWED in doubts for doubts in said]) < 0.2


def test_a_sequence_of_noise_that_is_alike_rarely_warns_and_one_that_drifts_does():
    rng = np.random.default_rng(9)
    said = [sequence_warnings(*rng.normal(size=(2, 10))) for _ in range(400)]
    for caution, most in ((Caution.UNLIKE_NOISE, 0.08), (Caution.SKEWED, 0.025), (Caution.DRIFTS, 0.08)):  # fmt: skip
        assert np.mean([caution in doubts for doubts in said]) < most
    rising = np.linspace(0, 6, 20)
    assert Caution.DRIFTS in sequence_warnings(rng.normal(size=20) + rising, rng.normal(size=20))
    assert sequence_warnings(*rng.exponential(size=(2, 6))) == []  # there is no interval yet
    tail = np.r_[rng.normal(size=19), 30.0]
    assert Caution.SKEWED in sequence_warnings(tail, rng.normal(size=20))
    steps = np.arange(7.0)  # of so many on
    assert sequence_warnings(steps, 0 * steps)[-1] is Caution.DRIFTS
    assert sequence_warnings(steps[:6], 0 * steps[:6]) == []
    assert sequence_warnings(steps + 1, steps) == []  # one difference, whatever the noise
    assert sequence_warnings(np.cos(steps**2), -np.cos(steps**2)) == []  # one sum
