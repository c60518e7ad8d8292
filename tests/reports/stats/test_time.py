"""Time to target: Fieller and the loss model against other derivations, the decomposition, planning."""

import math

import numpy as np
import pytest
from scipy import stats

from reports.analysis.time_estimates import decompose
from reports.stats.intervals import Estimate, fieller, total
from reports.stats.loss_model import LossModel, Slope, fit, local_window
from reports.stats.planning import (
    bracketing_budgets,
    detectable,
    plan_detectable,
    seeds_needed,
    smallest_p,
    upper_sd,
)
from tests.proof.study import planned_power


def test_learning_and_systems_gain_sum_to_the_whole():
    rng = np.random.default_rng(0)
    for n0, n1, s0, s1 in zip(
        *10 ** rng.uniform(1, 5, (2, 500)), *10 ** rng.uniform(-3, 1, (2, 500))
    ):
        learning, systems = decompose(n0, s0, n1, s1)
        assert learning + systems == pytest.approx(
            n1 * s1 - n0 * s0, abs=1e-12 * (n0 + n1) * (s0 + s1)
        )


def test_record_7_to_8_is_all_learning():
    learning, systems = decompose(5100, 0.14182, 4578, 0.14187)
    assert learning == pytest.approx(-522 * 0.141845) and systems == pytest.approx(4839 * 0.00005)


def test_fieller_is_the_set_its_definition_says():
    u, v, var_u, var_v, cov, t = 1.2, 2.0, 0.04, 0.09, 0.01, 2.1
    low, high = fieller(u, v, var_u, var_v, cov, t)
    grid = np.linspace(low - 0.5, high + 0.5, 4001)
    inside = (u - grid * v) ** 2 <= t**2 * (var_u - 2 * grid * cov + grid**2 * var_v)
    assert grid[inside][[0, -1]] == pytest.approx([low, high], abs=1e-3)
    assert low < u / v < high and (high - u / v) > (u / v - low)


def test_fieller_is_unbounded_where_the_slope_is_unsure():
    assert fieller(1.0, 0.1, 0.01, 0.01, 0.0, 2.0) is None


def test_sums_of_estimates_are_welchs_in_the_case_he_solved():
    rng = np.random.default_rng(1)
    a, b = rng.normal(0, 1, 6), rng.normal(1, 3, 4)
    one, other = (
        Estimate(value=x.mean(), se=x.std(ddof=1) / math.sqrt(len(x)), df=len(x) - 1)
        for x in (a, -b)
    )
    expected = stats.ttest_ind(a, b, equal_var=False)
    both = total(one, other)
    assert both.df == pytest.approx(expected.df) and both.p == pytest.approx(expected.pvalue)
    assert both.interval(0.05) == pytest.approx(tuple(expected.confidence_interval(0.95)))


def test_known_errors_have_the_normals_quantiles():
    e = total(Estimate(value=1.0, se=0.3), Estimate(value=2.0, se=0.4))
    assert (e.value, e.se, e.df) == (3.0, pytest.approx(0.5), math.inf) and e.p == pytest.approx(
        2 * stats.norm.sf(6.0)
    )


def runs(effects, budgets, n, rng, noise=0.001, beta=-0.19):
    arm, block, budget = (
        x.ravel()
        for x in np.meshgrid(np.arange(len(effects)), np.arange(n), budgets, indexing="ij")
    )
    loss = 3.28 + np.asarray(effects)[arm] + beta * np.log(budget / 3000) + rng.normal(0, noise, len(arm)) if noise else (
        3.28 + np.asarray(effects)[arm] + beta * np.log(budget / 3000)
    )  # fmt: skip
    return dict(arm=arm, budget=budget.astype(float), loss=loss, block=list(block), target=3.28)


def test_n_star_is_exact_without_noise():
    model = fit(**runs([0.0, -0.01], (2700, 3300), 3, np.random.default_rng(0), noise=1e-9))
    assert math.exp(model.x0 + model.theta(0)) == pytest.approx(3000, rel=1e-5)
    assert math.exp(model.shift(1).value) == pytest.approx(math.exp(-0.01 / 0.19), rel=1e-5)


def test_inverse_prediction_of_one_arm_is_the_textbook_fieller():
    """Draper and Smith's inverse regression interval, from simple linear regression formulas."""
    rng = np.random.default_rng(3)
    x = np.log(np.repeat([2700.0, 3000.0, 3300.0], 4))
    y = 3.28 - 0.19 * (x - math.log(3000)) + rng.normal(0, 0.001, 12)
    model = fit(arm=np.zeros(12, int), budget=np.exp(x), loss=y, block=[None] * 12, target=3.281)
    line = stats.linregress(x, y)
    t, s = (
        stats.t.isf(0.025, 10),
        math.sqrt(((y - line.intercept - line.slope * x) ** 2).sum() / 10),
    )
    sxx = ((x - x.mean()) ** 2).sum()
    g = t**2 * s**2 / (line.slope**2 * sxx)
    shift = (3.281 - y.mean()) / line.slope
    half = t * s / abs(line.slope) * math.sqrt((1 - g) / 12 + shift**2 / sxx)
    assert model.theta_interval(0, 0.05) == pytest.approx(
        ((shift - half) / (1 - g), (shift + half) / (1 - g)), rel=1e-6
    )
    assert model.slope_se(0) == pytest.approx(line.stderr)


def test_runs_without_blocks_need_one_more_than_there_are_numbers_to_fit():
    """A mean and a slope by three runs leave one degree of freedom; by two, or at one budget, none."""
    budget, loss = np.array([2700.0, 3000.0, 3300.0]), np.array([3.30, 3.281, 3.27])
    line = stats.linregress(np.log(budget), loss)

    def of_first(n: int, **given) -> LossModel | None:
        some = {"arm": np.zeros(n, int), "loss": loss[:n], "block": [None] * n, "target": 3.28}
        return fit(**{**some, "budget": budget[:n], **given})

    three = of_first(3)
    assert three.slope_se(0) == pytest.approx(line.stderr) and three.log_steps(0).df == 1
    assert of_first(2) is None and of_first(3, budget=np.full(3, 3000.0)) is None
    slope = Slope(per_step=0.0045 / 100, se=0.0)
    two = of_first(2, budget=np.full(2, 3000.0), slope=slope)
    assert two.log_steps(0).df == 1 and two.theta(0) == pytest.approx(0.0105 / 0.135)
    assert of_first(1, slope=slope) is None


def test_slopes_that_differ_are_noticed_and_used():
    rng = np.random.default_rng(4)
    data = runs([0.0, 0.0], (2700, 3300), 6, rng)
    data["loss"] = np.where(
        data["arm"] == 1,
        3.28 - 0.30 * np.log(data["budget"] / 3000) + rng.normal(0, 0.001, 24),
        data["loss"],
    )
    model = fit(**data)
    assert not model.common and model.beta == pytest.approx([-0.19, -0.30], abs=0.02)
    assert fit(**runs([0.0, -0.004], (2700, 3300), 6, rng)).common
    few = {key: data[key][[*range(6), *range(12, 18)]] for key in ("arm", "budget", "loss")}
    alone = fit(**few, block=[None] * 12, target=3.28)  # each arm by its own line through 6 runs
    lines = [
        stats.linregress(np.log(few["budget"][a]), few["loss"][a]) for a in (np.s_[:6], np.s_[6:])
    ]
    assert [alone.slope_se(0), alone.slope_se(1)] == pytest.approx([line.stderr for line in lines])
    assert [alone.log_steps(i).df for i in (0, 1)] == pytest.approx([4, 4])


def test_one_budget_needs_a_slope_and_carries_its_error():
    data = runs([0.0, -0.01], (3000,), 4, np.random.default_rng(5))
    assert fit(**data) is None
    sure = fit(**data, slope=Slope(per_step=0.0045 / 100, se=0.0))
    unsure = fit(**data, slope=Slope(per_step=0.0045 / 100, se=0.0010 / 100))
    assert sure.given and sure.shift(1).value == pytest.approx(unsure.shift(1).value)
    assert unsure.shift(1).se > sure.shift(1).se
    relative = 0.0010 / 0.0045 * unsure.shift(1).value  # of the slope's error, to first order
    assert unsure.shift(1).se ** 2 == pytest.approx(sure.shift(1).se ** 2 + relative**2)
    assert (
        fit(**data, slope=Slope(per_step=0.0045 / 100, se=0.0030 / 100)).theta_interval(1, 0.05)
        is None
    )


def test_the_delta_method_is_the_slope_of_the_answer():
    """Without blocks: standard errors against numerical derivatives of N* with respect to every loss, at the pooled variance."""
    data = runs([0.0, -0.006], (2700, 3000, 3300), 1, np.random.default_rng(6))
    data["block"] = [None] * 6
    model = fit(**data)

    def answer(losses: np.ndarray) -> tuple[float, float]:
        again = fit(**{**data, "loss": losses})
        return again.log_steps(1).value, again.shift(1).value

    base, h = np.array(answer(data["loss"])), 1e-7
    slopes = np.array([(np.array(answer(data["loss"] + h * e)) - base) / h for e in np.eye(6)])
    x = np.column_stack([data["arm"] == 0, data["arm"] == 1, np.log(data["budget"])]).astype(float)
    rss = np.linalg.lstsq(x, data["loss"], rcond=None)[1][0]
    expected = np.sqrt((slopes**2).sum(0) * rss / 3)
    assert [model.log_steps(1).se, model.shift(1).se] == pytest.approx(expected.tolist(), rel=1e-4)


def test_in_blocks_n_star_is_fiellers_ratio_of_the_blocks_own_lines():
    """One arm, five seeds: numpy's line through each seed's losses, then the ratio of their means by Fieller with 4 df."""
    rng = np.random.default_rng(7)
    data = runs([0.0], (2700, 3000, 3300), 5, rng)
    x = np.log([2700, 3000, 3300])
    losses = data["loss"].reshape(5, 3) + rng.normal(
        0, 0.005, (5, 1)
    )  # what a seed does to all its budgets
    data["loss"] = losses.ravel()
    slope, level = np.polyfit(x - x.mean(), losses.T, 1)
    u = 3.28 - level
    cov = np.cov(u, slope) / 5
    expected = fieller(
        u.mean(), slope.mean(), cov[0, 0], cov[1, 1], cov[0, 1], stats.t.isf(0.025, 4)
    )
    model = fit(**data)
    assert model.theta_interval(0, 0.05) == pytest.approx(expected, rel=1e-9)
    linear = (
        u - u.mean() / slope.mean() * slope
    ) / slope.mean()  # the delta method's, seed by seed
    assert (
        model.log_steps(0).se == pytest.approx(linear.std(ddof=1) / math.sqrt(5))
        and model.log_steps(0).df == 4
    )
    independent = fit(**{**data, "block": [None] * 15})
    assert (
        model.log_steps(0).se > 1.3 * independent.log_steps(0).se
    )  # which takes 15 runs for independent


def test_a_block_that_lacks_a_budget_is_left_to_the_other_arms():
    rng = np.random.default_rng(8)
    whole = runs([0.0, -0.01], (2700, 3300), 4, rng)
    cut = {
        k: v if k == "target" else [x for i, x in enumerate(v) if i != 15] for k, v in whole.items()
    }
    cut = {k: np.array(v) if k in ("arm", "budget", "loss") else v for k, v in cut.items()}
    model = fit(**cut)
    assert model.log_steps(0).df == 3 and model.log_steps(1).df == 2 and model.shift(1).df == 2


@pytest.mark.parametrize("missing", [0, 7])
def test_where_a_run_is_missing_fiellers_errors_are_of_the_same_blocks(missing):
    """The blocks that fix the arm's loss at the middle: their mean losses, and the slopes that all arms of a block share."""
    rng = np.random.default_rng(9)
    data = runs([0.0, -0.01], (2700, 3300), 4, rng)
    for key in ("arm", "budget", "loss"):
        data[key] = np.delete(data[key], 8 + missing)  # of the second arm: first or last block
    data["block"] = np.delete(data["block"], 8 + missing).tolist()
    model = fit(**data)
    assert model.common
    table = np.full((2, 4, 2), np.nan)
    table[data["arm"], data["block"], (data["budget"] > 3000).astype(int)] = data["loss"]
    whole = [block for block in range(4) if block != missing // 2]
    slope = np.diff(table[:, whole], axis=2)[:, :, 0].mean(0) / math.log(3300 / 2700)
    level = table[1, whole].mean(1)
    cov = np.cov(3.28 - level, slope) / 3
    u, v = 3.28 - model.z[1], model.beta[1]
    expected = fieller(u, v, cov[0, 0], cov[1, 1], cov[0, 1], stats.t.isf(0.025, 2))
    assert model.theta_interval(1, 0.05) == pytest.approx(expected, rel=1e-9)
    of_base = table[0].mean(1)  # it has every block; the other arm is known by its differences
    added = (level - of_base[whole]).mean()
    n_stars = [model.log_steps(0).value - model.x0, model.log_steps(1).value - model.x0]
    u = 3.28 - of_base.mean()
    assert n_stars == pytest.approx([u / v, (u - added) / v], rel=1e-9)


def test_an_error_of_one_df_is_not_lent_the_others():
    """Banerjee's half width, at the level of the tables; Satterthwaite's is too narrow beside one of one df."""
    one, other = Estimate(value=0.0, se=1.0, df=1), Estimate(value=0.0, se=1.5, df=2)
    half = math.hypot(stats.t.isf(0.025, 1), 1.5 * stats.t.isf(0.025, 2))
    assert total(one, other).interval(0.05) == pytest.approx((-half, half))
    rng = np.random.default_rng(10)
    a, b = rng.normal(size=(4000, 2)), rng.normal(0, 0.6, size=(4000, 3))
    held = 0
    for x, y in zip(a, b):
        parts = [Estimate(value=z.mean(), se=z.std(ddof=1) / math.sqrt(len(z)), df=len(z) - 1) for z in (x, y)]  # fmt: skip
        low, high = total(*parts).interval(0.05)
        held += low <= 0 <= high
    assert held / 4000 >= 0.945


def test_the_window_stays_near_the_target():
    budgets = np.repeat([1000.0, 2000, 2800, 3000, 3200, 5000], 2)
    losses = 3.28 - 0.19 * np.log(budgets / 3000)
    assert local_window(budgets, losses, 3.28) == (2800, 3000, 3200)
    assert local_window(budgets, losses, losses.min() - 0.01) == (3000, 3200, 5000)
    assert local_window(budgets, losses, losses.max() + 0.01) == (1000, 2000, 2800)


# ---- planning


@pytest.mark.parametrize(
    ("n", "one", "eight", "pooled"),  # statistics.md, sd 0.0013
    [(3, 0.0040, 0.0071, 0.0043), (4, 0.0031, 0.0048, 0.0036), (5, 0.0026, 0.0039, 0.0031), (10, 0.0017, 0.0023, 0.0021),
     (20, 0.0012, 0.0016, 0.0015)],
)  # fmt: skip
def test_the_table_of_detectable_differences(n, one, eight, pooled):
    assert detectable(sd=0.0013, n=n, df=2 * n - 2) == pytest.approx(one, abs=6e-5)
    assert detectable(sd=0.0013, n=n, df=2 * n - 2, alpha=0.05 / 8) == pytest.approx(
        eight, abs=6e-5
    )
    assert detectable(sd=0.0013, n=n, df=8 * (n - 1), alpha=0.05 / 8) == pytest.approx(
        pooled, abs=6e-5
    )


@pytest.mark.parametrize(("n", "n_arms"), [(3, 4), (5, 1), (10, 4)])
def test_planned_power_is_what_simulation_gives(n, n_arms):
    effect = plan_detectable(sd=1.0, n=n, n_arms=n_arms).loss
    assert planned_power(n, n_arms, 6000, 1.0, effect) == pytest.approx(0.8, abs=0.025)


def test_plans_speak_of_steps_and_seconds():
    plan = plan_detectable(
        sd=0.0013, n=5, n_arms=8, slope=Slope(per_step=0.0045 / 100, se=0), step_ms=150
    )
    assert plan.steps == pytest.approx(plan.loss / 4.5e-5) and plan.seconds == pytest.approx(
        plan.steps * 0.15
    )
    assert plan.runs == 45
    assert plan_detectable(sd=0.0013, n=1, n_arms=8).loss is None


def test_seeds_needed_is_the_smallest_n_that_detects():
    n = seeds_needed(0.002, sd=0.0013, n_arms=3)
    assert (
        plan_detectable(sd=0.0013, n=n, n_arms=3).loss
        <= 0.002
        < plan_detectable(sd=0.0013, n=n - 1, n_arms=3).loss
    )
    assert seeds_needed(1e-6, sd=0.0013, n_arms=3) is None


def test_small_helpers_of_a_plan():
    assert smallest_p(5, 5) == pytest.approx(0.0079, abs=5e-5) and smallest_p(5, 5, 8) > 0.05
    ends = [2 / stats.chi2.ppf(q, 2) for q in (0.975, 0.025)]
    assert np.sqrt(ends) == pytest.approx(
        [0.52, 6.28], abs=0.01
    )  # three runs' sd is uncertain by 0.5 to 6 times
    assert upper_sd(1.0, 3) == pytest.approx(math.sqrt(2 / stats.chi2.ppf(0.2, 2)))
    assert bracketing_budgets([2900.0, 3100.0], multiple=10) == (2720, 3290)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: upper_sd(1.0, 1), "sd of one run is unknown"),
        (lambda: detectable(sd=0.0, n=3, df=4), "needs sd > 0"),
        (lambda: seeds_needed(0.0, sd=1, n_arms=1), "positive difference"),
        (lambda: bracketing_budgets([]), "positive guess"),
    ],
)
def test_bad_plans_have_their_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
