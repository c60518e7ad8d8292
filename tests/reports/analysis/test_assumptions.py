"""What a plan rests on: own runs where there are any, else what was published, and it says which."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from harness.cli.power import known_of
from harness.config.run import plain
from harness.experiment.experiment import load_experiment
from reports.analysis.assumptions import (
    Noise,
    nearest_known,
    noise_at_scale,
    plans_of_ours,
    same_baseline,
)
from reports.analysis.compare import compare_all
from reports.analysis.prior import sd_beside_blocks
from reports.inputs.load import load
from reports.inputs.published import era_sd
from reports.stats.loss_model import Slope
from reports.stats.planning import upper_sd
from tests.report_fixtures import Arm, write_experiment
from tests.sealing import seal_again

ARMS = (
    Arm(name="base"),
    Arm(name="good", loss_effect=-0.01, fields=(("model.untied_head", True),)),
)
PLACE = {"base": "r07", "scale": "tiny", "steps": 300}


def test_before_any_run_the_eras_values_stand_in_and_say_so():
    k = nearest_known(None, **PLACE)
    assert (
        k.sd == 0.004
        and "published for the era of r07" in k.sd_source
        and "smaller runs are noisier" in k.sd_source
    )
    assert (
        k.slope.per_step == pytest.approx(0.0037 / 100 * 5100 / 300)
        and k.step_ms is None
        and not k.bracketed
    )
    given = nearest_known(None, **PLACE, slope=Slope(per_step=1e-4, se=0.0))
    assert given.slope.per_step == 1e-4
    other = nearest_known(None, base="r07", scale="gpt2", steps=5100, as_published=False)
    assert other.step_ms is None and not other.sd_is_of_scale and not other.slope_is_of_scale
    assert "at full size on FineWeb" in other.sd_source
    full = nearest_known(None, base="r07", scale="gpt2", steps=5100)
    assert (k.slope_is_of_scale, given.slope_is_of_scale, full.slope_is_of_scale) == (0, 1, 1)
    assert (
        full.step_ms == pytest.approx(721.882 / 5100 * 1e3, rel=1e-3)
        and "on 8 H100" in full.step_source
    )
    assert [era_sd(r) for r in ("r07", "r14", "r15", "r18", "today")] == [
        0.004,
        0.004,
        0.002,
        0.002,
        0.00181,
    ]


def launched(root: Path, name: str, baseline: str, **how) -> None:
    """An experiment of our own trainer, whose baseline stands for a configuration."""
    write_experiment(root, name=name, arms=ARMS, **how)
    path = root / "experiments" / name / "experiment.json"
    path.write_text(
        json.dumps(
            {**json.loads(path.read_text()), "scale": "tiny", "baseline_config": {"of": baseline}}
        )
    )


def test_the_noise_recorded_for_a_scale_comes_before_the_eras():
    k = nearest_known(None, **PLACE, noise=Noise(sd=0.0245, df=32, source="38 runs at this scale"))
    assert k.sd == pytest.approx(0.0245 * math.sqrt(32 / stats.chi2.ppf(0.2, 32)))
    assert k.sd_source == "upper 80 % bound of 0.0245 from 38 runs at this scale"


@pytest.mark.parametrize(
    ("n_seeds", "sd", "lent", "taken"),
    [
        (2, 0.2, True, "38 runs"),  # as of a halving: their bound is four times their sd
        (2, 2.0, True, "2 runs of the baseline"),  # far more than was lent: not borne out
        (2, 0.2, False, "2 runs of the baseline"),  # nothing of this scale was
        (8, 0.03, True, "8 runs of the baseline"),
    ],
)
def test_few_runs_that_bear_out_what_is_known_do_not_take_its_place(
    tmp_path, n_seeds, sd, lent, taken
):
    write_experiment(tmp_path, arms=ARMS[:1], n_seeds=n_seeds, sd=sd)
    noise = Noise(sd=0.0245, df=32, source="38 runs") if lent else None
    known = nearest_known(load("split", tmp_path), **PLACE, noise=noise)
    assert known.sd_source.endswith(taken)


def test_other_experiments_of_the_scale_come_before_what_is_recorded(tmp_path):
    launched(tmp_path, "first", "r07", n_seeds=4, sd=0.02, seed=1)
    launched(tmp_path, "second", "r08", n_seeds=3, sd=0.03, seed=2)
    losses = [
        load(n, tmp_path).runs.query("arm == 'base'")["val_loss"] for n in ("first", "second")
    ]
    found = noise_at_scale(tmp_path, plans_of_ours(tmp_path), "tiny")
    assert (
        found is not None
        and found.df == 5
        and "7 runs of other baselines at scale tiny: first, second" in found.source
    )
    assert found.sd == pytest.approx(math.sqrt((3 * losses[0].var() + 2 * losses[1].var()) / 5))
    assert noise_at_scale(tmp_path, plans_of_ours(tmp_path), "small") is None
    plans = plans_of_ours(tmp_path)
    corpus = plans[0].corpus.name
    assert noise_at_scale(tmp_path, plans, "tiny", corpus=corpus) == found
    assert noise_at_scale(tmp_path, plans, "tiny", corpus="elsewhere") is None


def test_a_run_that_two_experiments_share_counts_once(tmp_path):
    launched(tmp_path, "first", "r07", n_seeds=4)
    folder = tmp_path / "experiments" / "again"
    folder.mkdir()
    plan = json.loads((tmp_path / "experiments" / "first" / "experiment.json").read_text())
    (folder / "experiment.json").write_text(json.dumps({**plan, "name": "again"}))
    assert noise_at_scale(tmp_path, plans_of_ours(tmp_path), "tiny").df == 3


def test_the_last_loss_of_a_run_that_diverged_is_no_noise(tmp_path):
    """A run that exploded ends with a loss that is large, but a number."""
    launched(tmp_path, "first", "r07", n_seeds=4, outcome={("base", 0): "diverged"})
    of_finished = noise_at_scale(tmp_path, plans_of_ours(tmp_path), "tiny")
    plan = json.loads((tmp_path / "experiments" / "first" / "experiment.json").read_text())
    (diverged,) = [r for r in plan["runs"] if (r["arm"], r["seed"]) == ("base", 0)]
    seal_again(tmp_path / "runs" / diverged["run_id"], val_loss=9.5)
    assert of_finished is not None and of_finished.df == 2
    assert noise_at_scale(tmp_path, plans_of_ours(tmp_path), "tiny") == of_finished


def test_an_experiment_with_the_same_baseline_lends_noise_slope_and_step_time(tmp_path):
    launched(
        tmp_path, "explored", "r07", n_seeds=4, budgets=(250, 300, 350), target=1.575, sd=0.002
    )
    launched(tmp_path, "other", "r08", n_seeds=6)
    near = same_baseline(tmp_path, plans_of_ours(tmp_path), {"of": "r07"})
    assert (
        near == "explored"
        and same_baseline(tmp_path, plans_of_ours(tmp_path), {"of": "r09"}) is None
    )
    lent, own = (
        nearest_known(None, **PLACE, alike=load(near, tmp_path)),
        nearest_known(load(near, tmp_path), **PLACE),
    )
    assert (lent.sd, lent.slope.per_step, lent.step_ms) == (own.sd, own.slope.per_step, own.step_ms)
    assert (
        "runs of 2 arms beside their blocks in explored" in lent.sd_source
        and "of the baseline in explored" in lent.step_source
        and "explored" in lent.slope.source
    )
    assert lent.n_star == () and not lent.bracketed and own.bracketed  # targets may differ


def test_arms_of_one_trunk_lend_nothing_to_arms_without(tmp_path):
    """Beside their blocks they differ by less: nearly all of a run is its trunk's."""
    launched(tmp_path, "branched", "r07", n_seeds=6)
    launched(tmp_path, "whole", "r07", n_seeds=3)
    path = tmp_path / "experiments" / "branched" / "experiment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"branch_at": 200}))
    plans = plans_of_ours(tmp_path)
    found = {}
    for at in (None, 200, 100):
        found[at] = same_baseline(tmp_path, plans, {"of": "r07"}, branch_at=at)
    assert found == {None: "whole", 200: "branched", 100: None}


def test_own_runs_lend_nothing_where_arms_part_elsewhere(tmp_path):
    e = load_experiment("quickstart", device="cpu")
    launched(tmp_path, e.name, "r07", n_seeds=4)
    path = tmp_path / "experiments" / e.name / "experiment.json"
    plan = json.loads(path.read_text()) | {"baseline_config": plain(e.baseline.config)}
    path.write_text(json.dumps(plan))
    own = known_of(e, tmp_path)
    assert "runs of the baseline" in own.step_source and "other" not in own.sd_source
    path.write_text(json.dumps(plan | {"branch_at": 200}))
    assert known_of(e, tmp_path).step_source == "known after one run"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "4 runs of the baseline"),
        ({"model.n_layer": 3}, "other baselines at scale tiny: quickstart"),
        ({"data.corpus": "mine"}, "38 runs of record 7 at this scale"),
        ({"scale": "gpt2"}, "published for the era of r07, at full size"),
    ],
    ids=str,
)
def test_own_runs_lend_nothing_to_another_baseline_of_their_name(tmp_path, asked, said):
    """An experiment is launched, then planned with --set: what was seen is of what it was."""
    was = load_experiment("quickstart", device="cpu")
    launched(tmp_path, was.name, "r07", n_seeds=4)
    path = tmp_path / "experiments" / was.name / "experiment.json"
    plan = json.loads(path.read_text()) | {"baseline_config": plain(was.baseline.config)}
    plan["corpus"] = {**plan["corpus"], "name": "stdlib"}
    path.write_text(json.dumps(plan))
    known = known_of(load_experiment("quickstart", device="cpu", overrides=asked), tmp_path)
    assert said in known.sd_source
    assert (known.step_ms is not None) == (not asked)


def test_damaged_and_foreign_plans_lend_nothing(tmp_path):
    launched(tmp_path, "first", "r07", n_seeds=4)
    for name, text in (("torn", '{"name":'), ("theirs", '{"name": "theirs", "foreign": {}}')):
        (tmp_path / "experiments" / name).mkdir()
        (tmp_path / "experiments" / name / "experiment.json").write_text(text)
    ours = json.loads((tmp_path / "experiments" / "first" / "experiment.json").read_text())
    for field, value in (("foreign", True), ("imported", True), ("baseline_config", {})):
        (tmp_path / "experiments" / field).mkdir()
        text = json.dumps(ours | {"name": field, field: value})
        (tmp_path / "experiments" / field / "experiment.json").write_text(text)
    assert [p.name for p in plans_of_ours(tmp_path)] == ["first"]


def test_own_runs_take_their_place(tmp_path):
    write_experiment(
        tmp_path, arms=ARMS, n_seeds=4, budgets=(250, 300, 350), target=1.575, sd=0.002
    )
    experiment = load("split", tmp_path)
    k = nearest_known(experiment, **PLACE)
    base = experiment.runs[experiment.runs["arm"] == "base"]
    losses = experiment.runs.pivot_table(
        index="block", columns=["arm", "budget"], values="val_loss"
    )
    within = math.sqrt(
        (losses["good"] - losses["base"]).var().mean() / 2
    )  # equal sizes: pooled is the mean
    assert (
        k.sd == pytest.approx(within * math.sqrt(9 / stats.chi2.ppf(0.2, 9)))
        and "runs of 2 arms beside their blocks, 9 df: pairing helped" in k.sd_source
    )
    # the fixture's runs of a block share half of their variance
    assert k.sd < math.sqrt(base.groupby("budget")["val_loss"].var().mean())
    assert k.step_ms == pytest.approx(stats.gmean(base["step_ms"])) and "measured" in k.step_source
    fitted = compare_all(experiment).times["base"]
    assert (
        k.slope.per_step == pytest.approx(-fitted.slope / 300) and "250, 300, 350" in k.slope.source
    )
    assert k.bracketed and k.n_star == pytest.approx(
        [t.n_star for t in compare_all(experiment).times.values()]
    )


def test_losses_that_rise_with_the_budget_are_no_slope(tmp_path):
    write_experiment(tmp_path, arms=ARMS, n_seeds=3, budgets=(250, 300, 350), sd=0.002)
    experiment = load("split", tmp_path)
    runs = experiment.runs.assign(val_loss=3.2 - experiment.runs["val_loss"])
    known = nearest_known(replace(experiment, runs=runs), **PLACE)
    assert "measured over budgets" not in known.slope.source and not known.slope_is_of_scale


def test_the_noise_of_ones_own_baseline_is_pooled_within_budgets(tmp_path):
    waiting = {("good", seed): "pending" for seed in range(4)}
    write_experiment(
        tmp_path, arms=ARMS, n_seeds=4, budgets=(250, 300, 350), sd=0.002, outcome=waiting
    )
    experiment = load("split", tmp_path)
    k = nearest_known(experiment, **PLACE)
    base = experiment.runs[experiment.runs["arm"] == "base"]
    within = math.sqrt(
        base.groupby("budget")["val_loss"].var().mean()
    )  # equal sizes: pooled is the mean
    assert (
        k.sd == pytest.approx(within * math.sqrt(9 / stats.chi2.ppf(0.2, 9)))
        and "from 12 runs" in k.sd_source
    )


def test_budgets_that_miss_the_target_are_known_to(tmp_path):
    write_experiment(tmp_path, arms=ARMS, n_seeds=3, budgets=(280, 300), target=1.54, sd=0.0005)
    k = nearest_known(load("split", tmp_path), **PLACE)
    assert not k.bracketed and len(k.n_star) == 2 and min(k.n_star) > 300


def test_one_run_says_nothing_of_noise(tmp_path):
    write_experiment(tmp_path, arms=ARMS, n_seeds=1)
    k = nearest_known(load("split", tmp_path), **PLACE)
    assert k.sd == 0.004 and "published" in k.sd_source and np.isfinite(k.step_ms)


def test_one_run_of_ones_own_leaves_the_noise_of_the_scale(tmp_path):
    write_experiment(tmp_path, arms=ARMS, n_seeds=1)
    k = nearest_known(
        load("split", tmp_path), **PLACE, noise=Noise(sd=0.02, df=8, source="elsewhere")
    )
    assert (
        k.sd == upper_sd(0.02, 9)
        and "elsewhere" in k.sd_source
        and "measured in 1 run of" in k.step_source
    )


@pytest.mark.parametrize("together", [True, False])
def test_noise_that_arms_share_in_a_block_is_not_planned_with(together):
    """Runs of a seed that scatter together by 0.01 and apart by 0.0003; and apart altogether."""
    rng = np.random.default_rng(2)
    y = rng.normal(0, 0.0003 if together else 0.01, (6, 2)) + rng.normal(0, 0.01, (6, 1)) * together
    runs = pd.DataFrame(
        [
            {"block": i, "arm": arm, "budget": 300, "status": "finished", "val_loss": y[i, j]}
            for i in range(6)
            for j, arm in enumerate(("base", "good"))
        ]
    )
    sd, df = sd_beside_blocks(runs, ("base", "good"))
    assert df == 5 and sd == pytest.approx((y[:, 1] - y[:, 0]).std(ddof=1) / math.sqrt(2))
    assert (sd < 0.0006) == together
    assert sd_beside_blocks(runs[runs["block"] == 0], ("base", "good"))[1] == 0
