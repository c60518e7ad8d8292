"""Anytime-valid times: the union over slopes against a grid, the linear identity behind it, what is unbounded."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest

from reports.analysis.time_sequences import complete_blocks, sequence
from reports.stats.loss_model import Slope, fit
from reports.stats.sequential import t_mixture
from reports.stats.time_sequences import SHARE, attainable, log_time_interval, slope_interval

X = np.log([2700.0, 3300.0])


def table(rng, n, noise=0.001):
    """Three arms, n blocks, two budgets; arm 2 reaches 3.28 at 3000 exp(-0.008 / 0.19) steps."""
    arm, block, which = (i.ravel() for i in np.indices((3, n, 2)))
    loss = 3.28 - 0.004 * arm - 0.19 * (X[which] - math.log(3000)) + rng.normal(0, noise, len(arm))
    return pd.DataFrame(
        {"arm": arm, "block": block, "budget": np.exp(X[which]).round(), "val_loss": loss}
    )


def model_of(runs, slope=None):
    return fit(arm=runs["arm"].to_numpy(), budget=runs["budget"].to_numpy(), loss=runs["val_loss"].to_numpy(),
               block=list(runs["block"]), target=3.28, slope=slope)  # fmt: skip


def test_without_noise_it_closes_on_the_truth():
    runs = table(np.random.default_rng(0), 12, noise=1e-7)
    steps, n = sequence(runs, model_of(runs), (2,), 0.05, None)
    assert n == 12 and steps == pytest.approx((math.log(3000) - 0.008 / 0.19,) * 2, abs=1e-5)
    ratio, _ = sequence(
        runs,
        model_of(runs),
        (2, 0),
        0.05,
        [{b: 5.0 for b in range(12)}, {b: 4.9 for b in range(12)}],
    )
    assert ratio == pytest.approx((-0.008 / 0.19 + 0.1,) * 2, abs=1e-5)


def test_the_corners_hold_the_union_over_all_slopes():
    runs = table(np.random.default_rng(1), 9, noise=0.004)
    model = model_of(runs)
    _, loss = complete_blocks(runs, (2, 0))
    low, high = log_time_interval(loss, X, model, 0.05, None)
    slopes = slope_interval(loss, X, 0.05 * SHARE)
    d = loss.mean(axis=2) @ [1.0, -1.0]
    ends = np.array(
        [t_mixture(d / -beta, 0.05 * (1 - SHARE))[:2] for beta in np.linspace(*slopes, 201)]
    )
    assert (low, high) == pytest.approx((ends[:, 0].min(), ends[:, 1].max()))


def test_slopes_of_their_own_share_what_slopes_may_take_of_alpha():
    runs = table(np.random.default_rng(1), 12, noise=0.0005)
    steeper = (runs["arm"] == 2) * -0.1 * (np.log(runs["budget"]) - math.log(3000))
    runs["val_loss"] += steeper
    model = model_of(runs)
    assert not model.common
    _, loss = complete_blocks(runs, (2, 0))
    ends = []
    slopes = [slope_interval(loss[:, [i]], X, 0.05 * SHARE / 2) for i in range(2)]
    for of_arm, of_base in itertools.product(*slopes):
        excess = loss.mean(axis=2) - 3.28
        ratio = excess[:, 0] / -of_arm - excess[:, 1] / -of_base
        ends.append(t_mixture(ratio, 0.05 * (1 - SHARE))[:2])
    low, high = log_time_interval(loss, X, model, 0.05, None)
    assert low == pytest.approx(min(end[0] for end in ends))
    assert high == pytest.approx(max(end[1] for end in ends))


def test_a_given_slope_brings_its_own_error():
    runs = table(np.random.default_rng(2), 9)
    runs = runs[runs["budget"] == 2700]
    widths = []
    for se in (0.0, 0.02):
        ends, _ = sequence(
            runs, model_of(runs, Slope(per_step=0.19 / 2700, se=se / 2700)), (2, 0), 0.05, None
        )
        widths.append(ends[1] - ends[0])
    assert widths[1] > widths[0]


def test_blocks_that_lack_a_run_are_left_out_and_few_are_unbounded():
    runs = table(np.random.default_rng(3), 8).drop(index=[0])
    assert [len(complete_blocks(runs, arms)[0]) for arms in ((0,), (2,), (2, 0))] == [7, 8, 7]
    few = table(np.random.default_rng(4), 4)
    assert sequence(few, model_of(few), (2, 0), 0.05, None) == (None, 4) and attainable(
        4
    ) > 0.05 > attainable(7)
    assert sequence(few[few["block"] == 0], model_of(few), (2,), 0.05, None) == (None, 1)
    assert attainable(0) == attainable(1) == 1.0


def test_without_a_slope_that_falls_for_sure_no_time_is_bounded():
    noisy = table(np.random.default_rng(4), 9, noise=0.2)
    assert sequence(noisy, model_of(noisy), (2, 0), 0.05, None) == (None, 9)


def test_steps_timed_apart_have_a_sequence_of_their_own():
    runs, rng = table(np.random.default_rng(5), 9), np.random.default_rng(6)
    timed = [
        {b: 5.0 + e for b, e in enumerate(rng.normal(0, 0.001, 9), start=100)} for _ in range(2)
    ]
    apart, _ = sequence(runs, model_of(runs), (2, 0), 0.05, timed)
    steps, _ = sequence(runs, model_of(runs), (2, 0), 0.025, None)
    of_times = t_mixture(np.array([timed[0][b] - timed[1][b] for b in timed[0]]), 0.025)
    assert apart == pytest.approx((steps[0] + of_times[0], steps[1] + of_times[1]))
    assert (
        sequence(runs, model_of(runs), (2, 0), 0.05, [dict(list(t.items())[:3]) for t in timed])[0]
        is None
    )
