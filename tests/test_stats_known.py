"""What a plan rests on: own runs where there are any, else what was published, and it says which."""

import math

import numpy as np
import pytest
from report_fixtures import Arm, write_experiment
from scipy import stats

from reports import load
from reports.known import known
from reports.loss_model import Slope
from reports.published import era_sd

ARMS = (Arm(name="base"), Arm(name="good", loss_effect=-0.01, fields=(("model.untied_head", True),)))
PLACE = {"base": "r07", "scale": "tiny", "steps": 300}


def test_before_any_run_the_eras_values_stand_in_and_say_so():
    k = known(None, **PLACE)
    assert k.sd == 0.004 and "published for the era of r07" in k.sd_source and "smaller runs are noisier" in k.sd_source
    assert k.slope.per_step == pytest.approx(0.0037 / 100 * 5100 / 300) and k.step_ms is None and not k.bracketed
    assert known(None, **PLACE, slope=Slope(per_step=1e-4, se=0.0)).slope.per_step == 1e-4
    full = known(None, base="r07", scale="gpt2", steps=5100)
    assert full.step_ms == pytest.approx(721.882 / 5100 * 1e3, rel=1e-3) and "on 8 H100" in full.step_source
    assert [era_sd(r) for r in ("r07", "r14", "r15", "r18", "today")] == [0.004, 0.004, 0.002, 0.002, 0.0013]


def test_own_runs_take_their_place(tmp_path):
    write_experiment(tmp_path, arms=ARMS, n_seeds=4, budgets=(250, 300, 350), target=1.575, sd=0.002)
    experiment = load("split", tmp_path)
    k = known(experiment, **PLACE)
    base = experiment.runs[experiment.runs["arm"] == "base"]
    within = math.sqrt(base.groupby("budget")["val_loss"].var().mean())  # equal sizes: pooled is the mean
    assert k.sd == pytest.approx(within * math.sqrt(9 / stats.chi2.ppf(0.2, 9))) and "from 12 runs" in k.sd_source
    assert k.step_ms == pytest.approx(stats.gmean(base["step_ms"])) and "measured" in k.step_source
    fitted = experiment.comparisons().times["base"]
    assert k.slope.per_step == pytest.approx(-fitted.slope / 300) and "250, 300, 350" in k.slope.source
    assert k.bracketed and k.n_star == pytest.approx([t.n_star for t in experiment.comparisons().times.values()])


def test_budgets_that_miss_the_target_are_known_to(tmp_path):
    write_experiment(tmp_path, arms=ARMS, n_seeds=3, budgets=(280, 300), target=1.54, sd=0.0005)
    k = known(load("split", tmp_path), **PLACE)
    assert not k.bracketed and len(k.n_star) == 2 and min(k.n_star) > 300


def test_one_run_says_nothing_of_noise(tmp_path):
    write_experiment(tmp_path, arms=ARMS, n_seeds=1)
    k = known(load("split", tmp_path), **PLACE)
    assert k.sd == 0.004 and "published" in k.sd_source and np.isfinite(k.step_ms)
