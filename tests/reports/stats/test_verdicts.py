"""Words from intervals, and the seeds that are asked for: each limit from both sides, quantiles by scipy."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, stats

from reports.stats.planning import detectable, plan_detectable
from reports.stats.sequential import critical_t
from reports.stats.simultaneous import max_t_cdf, max_t_quantile
from reports.stats.verdicts import (
    MANY_SEEDS,
    Evidence,
    Family,
    Next,
    enough_for_sequence,
    enough_to_permute,
    fresh_seeds,
    more_seeds,
    verdict,
)

ONE = Family(metric="val_loss", n_arms=1, follows=Next.SEQUENCE, margin=0.002)
SEEN = Evidence(delta=-0.001, se=0.001, low=-0.003, high=0.001, p_attainable=0.0, n=5, enough=3)


@pytest.mark.parametrize(
    ("low", "high", "delta", "text", "kind"),
    [
        (-0.004, -0.001, -0.003, "better", "helps"),
        (-0.004, 0.0, -0.003, "better", "helps"),  # the end itself is not rejected by chance alone
        (0.0, 0.004, 0.003, "worse", "hurts"),
        (0.001, 0.004, 0.003, "worse", "hurts"),
        (-0.0019, 0.0019, 0.0, "no difference larger than 0.002", "equal"),
    ],
)
def test_the_words_follow_from_the_interval(
    low: float, high: float, delta: float, text: str, kind: str
) -> None:
    said = verdict(replace(SEEN, low=low, high=high, delta=delta), ONE)
    assert (said.text, said.kind) == (text, kind)


@pytest.mark.parametrize(("low", "high"), [(-0.0021, 0.001), (-0.001, 0.0021), (-0.002, 0.002)])
def test_an_interval_beyond_the_margin_on_either_side_is_undecided(low: float, high: float) -> None:
    assert verdict(replace(SEEN, low=low, high=high), ONE).kind == "undecided"


@pytest.mark.parametrize(
    ("low", "high", "ends"),
    [
        (-0.0523, 0.0134, "−0.052 to +0.013"),
        (-0.0400, 0.0336, "−0.040 to +0.034"),
        (-0.0996, 0.0004, "−0.10 to 0.00"),
        (-24.7, 121.4, "−25 to +121"),
    ],
)
def test_undecided_tells_both_ends_with_as_many_decimals(
    low: float, high: float, ends: str
) -> None:
    """As the further one needs for two digits, each rounded as it is and neither turned round."""
    family = replace(ONE, follows=Next.PLANNED, margin=None)
    assert (
        verdict(replace(SEEN, low=low, high=high, delta=0.0), family).text == f"undecided: {ends}"
    )


def test_fast_and_slow_are_the_words_of_times() -> None:
    times = replace(ONE, metric="step_ms")
    assert verdict(replace(SEEN, low=-2.0, high=-1.0), times).text == "faster"
    assert verdict(replace(SEEN, low=1.0, high=2.0), times).text == "slower"


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        ({"n": 1, "p_attainable": None}, 2),
        ({"n": 2, "p_attainable": 0.0501}, 1),
        ({"n": 3, "p_attainable": 0.0501}, 1),  # enough by the count, yet the method cannot
    ],
)
def test_what_no_outcome_could_decide_asks_for_the_seeds_that_are_missing(
    change: dict, missing: int
) -> None:
    said = verdict(replace(SEEN, **change), replace(ONE, n_arms=3, n_budgets=2))
    assert (said.text, said.more_seeds) == ("too few runs", missing)
    assert said.next_runs == missing * (3 + 1) * 2  # the arms and the baseline, at every budget
    assert verdict(replace(SEEN, p_attainable=0.05), ONE).text != "too few runs"


def by_scipy(evidence: Evidence, reach: float) -> int | None:
    """Blocks more until a sequence's half width and 0.84 sds of how far the mean may still move are within reach.

    The sd at its upper 80 % bound."""
    assert evidence.se is not None
    n = evidence.n
    sd = evidence.se * math.sqrt(n) * math.sqrt((n - 1) / stats.chi2.ppf(0.2, n - 1))
    for k in range(1, MANY_SEEDS + 1):
        moves = stats.norm.ppf(0.8) * sd * math.sqrt(1 / n - 1 / (n + k))
        if float(critical_t(n + k, 0.05)) * sd / math.sqrt(n + k) + moves <= reach:
            return k
    return None


@pytest.mark.parametrize(
    ("delta", "margin", "reach"),
    [
        (-0.0015, None, 0.0015),
        (0.0015, None, 0.0015),
        (-0.0015, 0.002, 0.0015),  # it leaves zero before it would fit into the margin
        (-0.0004, 0.002, 0.0016),  # it fits into the margin before
        (0.0009, 0.002, 0.0011),
        (-0.0019, 0.002, 0.0019),  # near the margin it is the effect that is found
    ],
)
def test_seeds_are_asked_for_until_zero_is_left_or_the_margin_holds(
    delta: float, margin: float | None, reach: float
) -> None:
    evidence = replace(SEEN, delta=delta, se=0.0004)
    expected = by_scipy(evidence, reach)
    assert expected is not None and expected > 1
    assert more_seeds(evidence, replace(ONE, margin=margin)) == expected


@pytest.mark.parametrize(("factor", "expected"), [(1.0001, MANY_SEEDS), (0.9999, None)])
def test_no_more_seeds_are_asked_for_than_many(factor: float, expected: int | None) -> None:
    evidence = replace(SEEN, se=0.0004)
    low, high = 0.0, 0.01
    for _ in range(60):  # the least effect that many seeds find
        middle = (low + high) / 2
        low, high = (low, middle) if by_scipy(evidence, middle) else (middle, high)
    assert by_scipy(evidence, factor * high) == expected
    seen = replace(evidence, delta=factor * high)
    assert more_seeds(seen, replace(ONE, margin=None)) == expected


def test_fresh_seeds_find_a_difference_that_is_one_by_a_noise_that_is_known() -> None:
    found = fresh_seeds(0.002, SEEN, ONE)
    assert found is not None and 2 <= found < MANY_SEEDS
    assert (fresh_seeds(0.004, SEEN, ONE) or MANY_SEEDS) < found
    for difference, evidence in (
        *((0.0, SEEN), (-0.002, SEEN), (1e-5, SEEN)),
        *((0.002, replace(SEEN, se=None)), (0.002, replace(SEEN, se=0.0))),
    ):
        assert fresh_seeds(difference, evidence, ONE) is None


def test_a_large_margin_is_told_whole() -> None:
    tight = replace(SEEN, low=-1.0, high=1.0, delta=0.1)
    for margin, told in ((999.0, "1e+03"), (1000.0, "1000"), (1234.0, "1234"), (-0.5, None)):
        text = verdict(tight, replace(ONE, margin=margin)).text
        assert (text == f"no difference larger than {told}") == (told is not None)


def test_a_margin_in_percent_is_compared_on_the_scale_of_the_analysis() -> None:
    """Differences of logarithms, a margin in ms: 1 % of 200 ms is 2 ms."""
    evidence = replace(SEEN, delta=-0.002, se=0.003, scale=200.0)
    assert by_scipy(evidence, 0.008) is not None
    assert more_seeds(evidence, replace(ONE, metric="step_ms", margin=2.0)) == by_scipy(
        evidence, 0.008
    )


def test_what_is_undecided_asks_for_one_seed_at_least() -> None:
    """An interval may be wider than its standard error alone makes it, as a ragged design's is."""
    assert more_seeds(replace(SEEN, delta=-0.001, se=1e-5, n=7), ONE) == 1


def test_more_than_many_seeds_are_not_asked_for() -> None:
    assert more_seeds(replace(SEEN, delta=-1e-5), replace(ONE, margin=None)) is None
    assert more_seeds(replace(SEEN, delta=0.0), replace(ONE, margin=None)) is None
    assert more_seeds(replace(SEEN, se=None), ONE) is None
    tight = replace(ONE, margin=1.05e-5)
    assert verdict(replace(SEEN, delta=-1e-5), tight).text == (
        f"undecided: −0.0030 to +0.0010, more than {MANY_SEEDS} more seeds needed"
    )


@pytest.mark.parametrize(("n_arms", "alpha"), [(1, 0.05), (3, 0.05), (8, 0.05), (4, 0.01)])
def test_enough_is_the_first_number_at_which_the_method_can_decide(
    n_arms: int, alpha: float
) -> None:
    n = enough_to_permute(n_arms, alpha)
    p = {k: n_arms * 2 / math.comb(2 * k, k) for k in (n - 1, n)}
    assert p[n] <= alpha and (n == 2 or p[n - 1] > alpha)
    blocks = enough_for_sequence(n_arms, alpha)
    assert math.isfinite(critical_t(blocks, alpha / n_arms))
    assert blocks == 2 or math.isinf(critical_t(blocks - 1, alpha / n_arms))


# ---------------------------------------------------------------- plans


def test_too_few_blocks_for_a_sequence_detect_nothing() -> None:
    losses = [plan_detectable(sd=1.0, n=n, n_arms=1, anytime=True).loss for n in (6, 7)]
    assert losses[0] is None and losses[1] is not None


def test_an_adaptive_plan_shares_its_alpha_among_the_arms() -> None:
    for n in (12, 20):
        shared = plan_detectable(sd=1.0, n=n, n_arms=4, anytime=True).loss
        alone = plan_detectable(sd=1.0, n=n, n_arms=1, level=1 - 0.05 / 4, anytime=True).loss
        assert shared is not None and shared == pytest.approx(alone)
        assert shared > (plan_detectable(sd=1.0, n=n, n_arms=1, anytime=True).loss or math.inf)


def test_a_detectable_difference_is_that_of_a_two_sided_test() -> None:
    """Power by scipy's noncentral t, both tails."""
    n, df = 6, 10
    shift = detectable(sd=1.0, n=n, df=df) * math.sqrt(n / 2)
    c = stats.t.isf(0.025, df)
    power = stats.nct.sf(c, df, shift) + stats.nct.cdf(-c, df, shift)
    assert power == pytest.approx(0.8, abs=1e-6)


@pytest.mark.parametrize("n", [3, 5, 10])
def test_a_plan_of_several_arms_counts_the_larger_of_both_errors(n: int) -> None:
    """It asks for more than either error alone would: the pooled one, or the arm's own."""
    n_arms, corr = 4, np.full((4, 4), 0.5) + 0.5 * np.eye(4)
    planned = plan_detectable(sd=1.0, n=n, n_arms=n_arms).loss
    alone = [
        detectable(sd=1.0, n=n, df=df, critical=max_t_quantile(0.95, corr, df))
        for df in (float((n - 1) * n_arms), 4 * (n - 1) * n_arms / (n_arms + 3))
    ]
    assert planned is not None and planned > max(alone)


# ---------------------------------------------------------------- the largest of several t


@pytest.mark.parametrize("df", [2.0, 5.0, math.inf])
@pytest.mark.parametrize("level", [0.5, 0.95, 0.9995])
def test_the_largest_of_two_is_scipys_double_integral_into_the_tails(
    df: float, level: float
) -> None:
    """P(|T1| <= c, |T2| <= c) with correlation 1/2, by an integral over the common denominator."""
    corr = np.array([[1.0, 0.5], [0.5, 1.0]])
    c = max_t_quantile(level, corr, df)

    def inside(s: float) -> float:
        box = stats.multivariate_normal(cov=corr)
        return float(box.cdf([c * s, c * s], lower_limit=[-c * s, -c * s]))

    if math.isinf(df):
        expected = inside(1.0)
    else:
        chi = stats.chi(df, scale=1 / math.sqrt(df))
        expected, _ = integrate.quad(
            lambda s: inside(s) * chi.pdf(s), *chi.ppf([1e-12, 1 - 1e-12]), limit=200
        )
    assert max_t_cdf(c, corr, df) == pytest.approx(level, abs=1e-9)
    assert expected == pytest.approx(level, abs=2e-5)
