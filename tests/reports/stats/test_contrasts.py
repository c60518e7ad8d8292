"""The fixed-n analyses against textbook numbers, scipy, and least squares done another way."""

import math

import numpy as np
import pytest
from scipy import stats

from reports.stats.contrasts import Sample, analyse, correlation
from reports.stats.moderated import Prior
from reports.stats.outcomes import exact_rate, labels, permuted_effect
from reports.stats.simultaneous import max_t_quantile
from reports.stats.two_way import drawn_squares, split_variances, two_way
from reports.stats.unblocked import welch, widening


def blocked(values, n_diverged: int = 0) -> Sample:
    return Sample(
        values=np.array(values, float), blocks=tuple(range(len(values))), n_diverged=n_diverged
    )


def free(values, n_diverged: int = 0) -> Sample:
    return Sample(
        values=np.array(values, float), blocks=(None,) * len(values), n_diverged=n_diverged
    )


def test_two_way_is_the_randomised_block_anova_by_hand():
    # three arms in three blocks; row means 3, 5, 4 and column means 2, 4, 6; residual sum of squares 4 on (3-1)(3-1) = 4 df
    y = np.array([[1.0, 2.0, 6.0], [3.0, 6.0, 6.0], [2.0, 4.0, 6.0]])
    fitted = two_way(y.ravel(), [0, 1, 2] * 3, [0] * 3 + [1] * 3 + [2] * 3)
    one, own = fitted.errors
    assert fitted.delta == pytest.approx([2.0, 4.0]) and fitted.corr == pytest.approx(
        np.array([[1, 0.5], [0.5, 1]])
    )
    assert one.df.tolist() == [4, 4] and one.se == pytest.approx([math.sqrt(2 / 3)] * 2)
    # residuals (0, -1, 1), (0, 1, -1), (0, 0, 0), sums of squares 0, 2, 2 by arm. Of an arm's own variance v and that of the two
    # others w they hold (8 v + 4 w)/9, of the others' (4 v + 20 w)/9: baseline v = -1, w = 2; either arm v = 2, w = 1/2
    assert own.df == pytest.approx([4 * 2 * 2 / 5] * 2) and own.se == pytest.approx(
        [math.sqrt(max(-1 + 2, 2 + 1 / 2) / 3)] * 2
    )


@pytest.mark.parametrize("noisy", [0, 2])
def test_a_variance_of_its_own_is_the_textbooks_in_complete_blocks(noisy):
    """One arm against the mean of the others, and those among themselves; the noisy one decides."""
    rng = np.random.default_rng(3)
    n, m = 4, 3
    y = rng.normal(size=(n, m + 1)) * np.where(np.arange(m + 1) == noisy, 30, 1)
    fitted = two_way(y.ravel(), [0, 1, 2, 3] * n, np.repeat(np.arange(n), m + 1).tolist())
    rest = np.delete(y, noisy, axis=1)
    left = rest - rest.mean(0) - rest.mean(1, keepdims=True) + rest.mean()
    variance = np.var(y[:, noisy] - rest.mean(1), ddof=1) + (left**2).sum() / (n - 1) / (m - 1) * (
        1 - 1 / m
    )
    own = fitted.errors[1]
    assert own.df == pytest.approx([4 * (n - 1) * m / (m + 3)] * m)
    assert own.se[noisy - 1] == pytest.approx(math.sqrt(variance / n))
    assert (own.se == pytest.approx(own.se[0])) == (noisy == 0)


def test_any_contrast_of_arms_has_its_errors():
    """By hand for one variance; three arms against a noisy fourth is a paired t test of their mean, whose error decides."""
    rng = np.random.default_rng(4)
    y = rng.normal(size=(5, 4)) * [1, 1, 1, 40]
    c = np.array([[0.5, -1.0, 0.5, 0.0], [0.25, 0.25, 0.25, -0.75]])
    fitted = two_way(y.ravel(), [0, 1, 2, 3] * 5, np.repeat(np.arange(5), 4).tolist(), c)
    left = y - y.mean(0) - y.mean(1, keepdims=True) + y.mean()
    one, own = fitted.errors
    assert fitted.delta == pytest.approx(c @ y.mean(0))
    assert one.se == pytest.approx(np.sqrt((left**2).sum() / 12 * (c**2).sum(1) / 5))
    gap = 0.75 * (y[:, :3].mean(1) - y[:, 3])
    assert (
        own.se[1] == pytest.approx(gap.std(ddof=1) / math.sqrt(5)) and own.se[1] > 1.5 * one.se[1]
    )


def test_two_way_with_a_missing_cell_is_least_squares():
    rng = np.random.default_rng(5)
    arm, block = np.array([0, 0, 0, 1, 1, 1, 2, 2]), np.array([0, 1, 2, 0, 1, 2, 0, 2])
    y = rng.normal(size=8)
    fitted = two_way(y, arm, block)
    x = np.column_stack([np.ones(8), arm == 1, arm == 2, block == 1, block == 2]).astype(float)
    beta, rss, *_ = np.linalg.lstsq(x, y, rcond=None)
    se = np.sqrt(rss[0] / 3 * np.diag(np.linalg.inv(x.T @ x))[1:3])
    assert (
        fitted.delta == pytest.approx(beta[1:3])
        and fitted.errors[0].df.tolist() == [3, 3]
        and fitted.errors[0].se == pytest.approx(se)
    )


def test_a_missing_run_of_another_arm_costs_an_arm_next_to_nothing():
    """It once lent everybody the few df of the arm that lacks it: 1.9 times the width at 3 blocks."""
    rng = np.random.default_rng(5)
    base, a, b, c = (rng.normal(size=3) for _ in range(4))
    arms = {"a": blocked(a), "b": blocked(b), "c": blocked(c)}
    whole = analyse(arms, blocked(base))["a"]
    holed = analyse(arms | {"c": Sample(values=c[1:], blocks=(1, 2))}, blocked(base))
    assert holed["a"].high - holed["a"].low < 1.15 * (whole.high - whole.low)
    assert holed["c"].df < 2 < 3 < holed["a"].df
    assert holed["c"].high - holed["c"].low > 1.5 * (holed["a"].high - holed["a"].low)


def test_two_way_refuses_an_arm_without_shared_blocks():
    with pytest.raises(ValueError, match="shares no block with the baseline"):
        two_way(np.arange(4.0), [0, 0, 1, 1], [0, 1, 2, 3])


@pytest.mark.parametrize("n", [2, 3, 5, 6, 12])
def test_one_arm_in_blocks_is_scipys_paired_t(n):
    rng = np.random.default_rng(n)
    a, b = rng.normal(0.5, 1, n), rng.normal(0, 1, n)
    effect = analyse({"a": blocked(a)}, blocked(b))["a"]
    expected = stats.ttest_rel(a, b)
    low, high = expected.confidence_interval(0.95)
    assert (effect.delta, effect.p) == pytest.approx(((a - b).mean(), expected.pvalue))
    assert (effect.low, effect.high) == pytest.approx((low, high)) and effect.df == n - 1


def test_unblocked_runs_are_scipys_welch_with_a_wider_error():
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.5, 2, 7), rng.normal(0, 1, 4)
    effect, factor = analyse({"a": free(a)}, free(b))["a"], widening(7, 4, 0.05)
    expected = stats.ttest_ind(a, b, equal_var=False)
    assert effect.p == pytest.approx(2 * stats.t.sf(abs(expected.statistic) / factor, expected.df))
    assert effect.df == pytest.approx(expected.df) and effect.delta == pytest.approx(
        a.mean() - b.mean()
    )
    assert effect.high - effect.low == pytest.approx(
        factor * np.ptp(expected.confidence_interval(0.95))
    )
    assert effect.n_blocks == 0 and effect.method.startswith("Welch")


@pytest.mark.parametrize("n", [2, 5, 6, 12])
def test_one_analysis_serves_every_number_of_blocks(n):
    y = np.random.default_rng(1).normal(size=(n, 4))
    effects = analyse({f"a{j}": blocked(y[:, j]) for j in (1, 2, 3)}, blocked(y[:, 0]))
    assert {e.method for e in effects.values()} == {"two-way model, max-t"}
    dfs = (3 * (n - 1), 4 * (n - 1) * 3 / 6)
    assert all(any(e.df == pytest.approx(df) for df in dfs) for e in effects.values())


def test_a_sixth_block_never_takes_power():
    """Means and sds of the first five blocks as they are: the sixth narrows every interval."""
    y = np.random.default_rng(4).normal(size=(5, 16))
    y = (y - y.mean(0)) / y.std(0, ddof=1)
    widths = []
    for table in (y, np.vstack([y, y[:1] * 0 + 1])):
        table = (table - table.mean(0)) / table.std(0, ddof=1)
        effects = analyse(
            {f"a{j}": blocked(table[:, j]) for j in range(1, 16)}, blocked(table[:, 0])
        )
        widths.append(np.median([e.high - e.low for e in effects.values()]))
    assert widths[1] < widths[0]


@pytest.mark.parametrize("sd", [1.0, 3.0])
def test_the_larger_error_counts(sd):
    """With a noisy baseline its own variance decides; never is an interval narrower than that of the textbook's one variance."""
    rng = np.random.default_rng(9)
    wider = 0
    for _ in range(50):
        y = rng.normal(size=(4, 4)) * [sd, 1, 1, 1]
        effects = analyse({f"a{j}": blocked(y[:, j]) for j in (1, 2, 3)}, blocked(y[:, 0]))
        rest = y - y.mean(0) - y.mean(1, keepdims=True) + y.mean()
        textbook = max_t_quantile(0.95, 0.5 * (np.eye(3) + 1), 9) * math.sqrt(
            (rest**2).sum() / 9 * 2 / 4
        )
        halves = [(e.high - e.low) / 2 for e in effects.values()]
        assert min(halves) >= textbook * (1 - 1e-9)
        wider += halves[0] > textbook * 1.2
    assert wider > 30 if sd == 3 else wider < 30


def test_an_arm_that_alters_noise_is_not_pooled_and_the_family_still_spends_its_level_once():
    rng = np.random.default_rng(2)
    y = rng.normal(size=(4, 4)) * [1, 1, 1, 9]
    arms = {f"a{j}": blocked(y[:, j]) for j in (1, 2, 3)}
    effects = analyse(arms, blocked(y[:, 0]), alters_noise=frozenset({"a3"}))
    assert effects["a3"].method == "paired t, Holm" and effects["a3"].df == 3
    assert effects["a1"].method == "two-way model, max-t" and effects["a1"].df < 7
    d = y[:, 3] - y[:, 0]
    assert effects["a3"].high - d.mean() == pytest.approx(
        stats.t.isf(0.025 / 3, 3) * d.std(ddof=1) / 2
    )
    everything = analyse(arms, blocked(y[:, 0]))
    assert everything["a1"].high - everything["a1"].low > effects["a1"].high - effects["a1"].low


@pytest.mark.parametrize("n", [3, 5, 8])
def test_interval_and_p_never_disagree(n):
    rng = np.random.default_rng(n)
    for _ in range(40):
        y = rng.normal(size=(n, 5)) + rng.choice([0, 1, 2], 5)
        for e in analyse(
            {str(j): blocked(y[:, j]) for j in range(1, 5)}, blocked(y[:, 0])
        ).values():
            excluded = e.low >= 0 or e.high <= 0
            assert excluded == (e.p <= 0.05)


def test_one_run_gives_a_difference_and_no_interval():
    effect = analyse({"a": blocked([2.0])}, blocked([1.5]))["a"]
    assert (
        effect.delta == 0.5
        and effect.low is None
        and effect.p is None
        and effect.p_attainable is None
    )


def test_equal_losses_give_no_error_estimate():
    for n in (3, 8):
        effect = analyse({"a": blocked([2.0] * n)}, blocked([1.0] * n))["a"]
        assert effect.delta == pytest.approx(1.0) and effect.low is None and effect.p is None


def test_replicates_of_the_baseline_in_a_block_sharpen_it():
    rng = np.random.default_rng(8)
    base = Sample(values=rng.normal(size=6), blocks=(0, 0, 1, 1, 2, 2))
    effects = analyse({"a": blocked(rng.normal(size=3)), "b": blocked(rng.normal(size=3))}, base)
    twice = two_way(
        np.arange(12.0) ** 0.5,
        [0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2],
        [0, 0, 1, 1, 2, 2] + [0, 1, 2] * 2,
    )
    assert [e.df[0] for e in twice.errors] == pytest.approx([12 - 2 - 3, effects["a"].df])
    assert effects["a"].delta == pytest.approx(effects["a"].low / 2 + effects["a"].high / 2)


def test_correlation_is_pearsons_over_shared_blocks():
    a, b = Sample(values=np.array([1.0, 2, 4, 9]), blocks=(0, 1, 2, 7)), blocked([1.0, 3, 4])
    assert correlation(a, b) == pytest.approx(stats.pearsonr([1, 2, 4], [1, 3, 4]).statistic)
    assert correlation(blocked([1.0, 2]), b) is None


def test_welch_of_single_runs_has_no_error():
    delta, se, df = welch(np.array([2.0]), np.array([1.0, 1.2]))
    assert delta == pytest.approx(0.9) and math.isnan(se) and math.isnan(df)


@pytest.mark.parametrize(("n", "k"), [(2, 2), (5, 2), (2, 3), (4, 3), (3, 4), (2, 6), (4, 6)])
def test_squares_are_drawn_as_those_of_drawn_runs_and_split_without_bias(n, k):
    """Means, variances and covariances of two arms' residual squares and of all, against normal runs in blocks."""
    y = np.random.default_rng(1).normal(size=(40_000, n, k))
    y = y - y.mean(1, keepdims=True) - y.mean(2, keepdims=True) + y.mean((1, 2), keepdims=True)
    rss = (y**2).sum(1)
    expected = np.column_stack([rss[:, :2], rss.sum(1)])
    of_two, whole = drawn_squares(np.random.default_rng(2), 40_000, n, k)
    drawn = np.column_stack([of_two, whole])
    assert drawn.mean(0) == pytest.approx(expected.mean(0), rel=0.03)
    assert np.cov(drawn.T) == pytest.approx(np.cov(expected.T), rel=0.1, abs=0.05)
    one, own, rest = split_variances(of_two, whole, n, k)
    assert one.mean() == pytest.approx(1, rel=0.03)
    if k > 2:
        assert [*own.mean(0), *rest.mean(0)] == pytest.approx([1] * 4, rel=0.06)


# ---- diverged runs


def test_exact_rates_are_scipys_clopper_pearson():
    for count, n in ((0, 5), (1, 5), (3, 20), (5, 5)):
        expected = stats.binomtest(count, n).proportion_ci(0.95, method="exact")
        assert exact_rate(count, n) == pytest.approx((expected.low, expected.high))
    with pytest.raises(ValueError, match="a rate of 6 in 5"):
        exact_rate(6, 5)


def test_without_divergence_the_permutation_p_is_scipys():
    rng = np.random.default_rng(4)
    a, b = rng.normal(1, 1, 5), rng.normal(0, 1, 5)
    expected = stats.permutation_test(
        (a, b), lambda x, y, axis: x.mean(axis) - y.mean(axis), n_resamples=np.inf, vectorized=True
    )
    result = permuted_effect(a, 0, b, 0, alpha=0.05)
    assert result.p == pytest.approx(expected.pvalue) and result.p_attainable == pytest.approx(
        2 / 252
    )


def test_worst_rank_trimming_by_hand():
    # one of four arm runs diverged: the worst quarter of both goes; (1 + 2 + 3)/3 against (2 + 3 + 4)/3
    result = permuted_effect(
        np.array([1.0, 2.0, 3.0]), 1, np.array([2.0, 3.0, 4.0, 9.0]), 0, alpha=0.05
    )
    assert result.delta == pytest.approx(-1.0)


def test_divergence_counts_against_the_arm_that_diverges():
    good, bad = np.array([1.0, 1.1, 1.2, 1.3, 1.4, 1.5]), np.array([1.0, 1.1])
    assert (
        permuted_effect(bad, 4, good, 0, alpha=0.05).delta > bad.mean() - good.mean()
    )  # what dropping the diverged would say
    all_lost = permuted_effect(np.array([]), 5, good[:5], 0, alpha=0.05)
    assert (
        math.isnan(all_lost.delta) and all_lost.p == pytest.approx(2 / 252) and all_lost.low is None
    )


def test_where_runs_diverged_the_error_is_welchs_of_the_finished_ones():
    base, few = free([1.0, 1.2, 1.1, 1.4]), [2.0, 2.4, 2.1]
    found = analyse({"a": free(few, n_diverged=1), "b": free(few[:1], n_diverged=3)}, base)
    assert found["a"].se == pytest.approx(welch(np.array(few), base.values)[1])
    assert found["b"].se is None


def test_the_inverted_interval_holds_what_the_test_does_not_reject():
    rng = np.random.default_rng(6)
    a, b = rng.normal(0.3, 1, 6), rng.normal(0, 1, 6)
    r = permuted_effect(a, 1, b, 0, alpha=0.1)
    for shift, inside in ((r.low + 1e-4, True), (r.low - 1e-4, False), (r.delta, True)):
        assert (permuted_effect(a - shift, 1, b, 0, alpha=0.1).p > 0.1) == inside


def test_too_few_runs_for_the_level_say_so():
    r = permuted_effect(np.array([1.0, 2.0]), 1, np.array([1.0, 2.0, 3.0]), 0, alpha=0.05)
    assert r.p_attainable == pytest.approx(2 / 20) and r.low is None


def test_of_more_labellings_than_are_tried_some_are_drawn_the_observed_one_first():
    every, drawn = labels(6, 12), labels(8, 16)
    assert (len(every), len(drawn)) == (math.comb(12, 6), 4000)
    for rows, n in ((every, 6), (drawn, 8)):
        assert rows[0].tolist() == [True] * n + [False] * n and (rows.sum(axis=1) == n).all()
    assert drawn.mean(axis=0) == pytest.approx([0.5] * 16, abs=0.05)
    assert len({tuple(row) for row in drawn.tolist()}) > 3000
    arm, baseline = np.arange(8.0), np.arange(8.0) + 9
    apart = permuted_effect(arm, 0, baseline, 0, alpha=2e-4)
    assert apart.p_attainable == 1 / 4000 <= apart.p < 0.002 and apart.low is None
    assert permuted_effect(arm[:5], 0, baseline[:4], 0, alpha=0.05).p_attainable == 1 / 126


def test_a_declared_noise_is_averaged_with_the_runs_own_and_its_df_are_added():
    """One arm at three seeds: differences 1, 2, 6 have variance 7, two of sd 1 have 2 with 4 df."""
    base = np.array([0.3, -1.0, 0.4])
    arm, prior = blocked(base + [1.0, 2.0, 6.0]), Prior(sd=1.0, df=4.0)
    e = analyse({"a": arm}, blocked(base), prior=prior)["a"]
    se = math.sqrt((2 * 7 + 4 * 2) / 6 / 3)
    assert (e.method, e.df) == ("two-way model with moderated variance, max-t", 6)
    assert e.se == pytest.approx(se) and e.high - e.delta == pytest.approx(
        stats.t.isf(0.025, 6) * se
    )
    assert e.p == pytest.approx(2 * stats.t.sf(3 / se, 6))


def test_a_declared_noise_is_told_to_be_too_small():
    prior = Prior(sd=0.001, df=4.0)
    assert not prior.is_too_small(0.001, 8) and prior.is_too_small(0.0015, 8)
    assert not prior.is_too_small(math.nan, 0) and not prior.is_too_small(0.0001, 8)
    drawn = np.sqrt(np.random.default_rng(1).chisquare(8, 2000) / 8)
    assert np.mean([prior.is_too_small(0.001 * s, 8) for s in drawn]) == pytest.approx(
        0.05, abs=0.015
    )
