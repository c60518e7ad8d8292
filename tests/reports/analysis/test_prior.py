"""A noise that the plan declares beforehand: it tightens, it is named, and it is refused where it came late."""

import json
from dataclasses import replace

import pytest

from reports.analysis.cautions import Caution
from reports.analysis.compare import compare_all
from reports.inputs.load import load
from reports.page.embed import table_rows
from reports.page.write import render
from reports.stats.moderated import Prior
from reports.stats.planning import plan_detectable, seeds_needed
from reports.verify.page import read_page
from reports.verify.verify import check_statistics, verify
from tests.report_fixtures import LADDER, write_experiment

NOISE = {"sd": 0.003, "df": 4.0, "source": "38 runs of the same scale"}
LATE = ({"seeds": [0, 1, 2]}, {"seeds": [0, 1, 2], "prior_noise": NOISE})


def declared(root, *plans, noise=NOISE, n_seeds=3, sd=0.003, n_arms=3):
    """An experiment whose plans were locked in this order."""
    write_experiment(root, arms=LADDER[:n_arms], n_seeds=n_seeds, sd=sd, design="explicit")
    path = root / "experiments" / "split" / "experiment.json"
    plan = json.loads(path.read_text())
    locks = [
        {"locked": "2026-01-01", "digest": f"{i}" * 16, "plan": p} for i, p in enumerate(plans)
    ]
    path.write_text(json.dumps(plan | {"prior_noise": noise, "locks": locks}))
    return load("split", root)


@pytest.mark.parametrize("n_arms", [2, 3])
def test_a_noise_declared_beforehand_narrows_and_is_named(tmp_path, n_arms, kept_line):
    in_time = declared(tmp_path / "a", {"seeds": [0, 1, 2], "prior_noise": NOISE}, n_arms=n_arms)
    without = declared(tmp_path / "b", {"seeds": [0, 1, 2]}, noise=None, n_arms=n_arms)
    outcome, plain = compare_all(in_time), compare_all(without)
    arm = outcome.arms[0]
    c, p = outcome.of(arm, "val_loss"), plain.of(arm, "val_loss")
    assert c.method == "two-way model with moderated variance, max-t" and not outcome.anytime
    assert c.df == p.df + 4
    assert outcome.of(arm, "step_ms").df == plain.of(arm, "step_ms").df
    (note,) = [note for note in outcome.notes if "moderated variance" in note]
    kept_line(note)
    assert Caution.PRIOR_TOO_SMALL not in outcome.warnings


def test_a_noise_that_no_comparison_uses_is_not_named(tmp_path):
    """Runs in no blocks are judged by Welch's t."""
    experiment = declared(tmp_path, {"seeds": [0, 1, 2], "prior_noise": NOISE})
    experiment.runs["block"] = None
    outcome = compare_all(experiment)
    assert outcome.of(outcome.arms[0], "val_loss").method == "Welch t, Holm"
    assert not any("moderated variance" in note for note in outcome.notes)


def test_a_noise_declared_after_the_launch_makes_sequences(tmp_path):
    outcome = compare_all(declared(tmp_path, *LATE))
    assert outcome.anytime and Caution.PRIOR_DECLARED_LATE in outcome.warnings
    c = outcome.of(outcome.arms[0], "val_loss")
    assert c.method == "anytime-valid t-mixture" and outcome.notes == ()


def test_a_noise_that_was_taken_back_makes_sequences_too(tmp_path):
    back = declared(tmp_path, {"seeds": [0, 1, 2], "prior_noise": NOISE}, noise=None)
    assert compare_all(back).anytime


def test_runs_noisier_than_the_declared_noise_are_told(tmp_path):
    quiet = NOISE | {"sd": 0.0004}
    outcome = compare_all(
        declared(tmp_path, {"seeds": [0, 1, 2], "prior_noise": quiet}, noise=quiet)
    )
    assert Caution.PRIOR_TOO_SMALL in outcome.warnings


@pytest.mark.parametrize("noisy", [True, False])
def test_an_arm_that_alters_the_noise_says_nothing_against_the_declared(tmp_path, noisy):
    experiment = declared(tmp_path, {"seeds": [0, 1, 2], "prior_noise": NOISE})
    arms = list(experiment.plan.arms)
    arms[2] = replace(arms[2], alters_noise=noisy)
    of_it = experiment.runs["arm"] == arms[2].name
    experiment.runs.loc[of_it, "val_loss"] += [0.05, 0.0, -0.05]
    outcome = compare_all(replace(experiment, plan=replace(experiment.plan, arms=tuple(arms))))
    assert (Caution.PRIOR_TOO_SMALL in outcome.warnings) != noisy


def test_both_paths_take_a_noise_without_a_locked_plan_for_late(tmp_path):
    experiment = declared(tmp_path)
    assert not experiment.plan.locks and compare_all(experiment).anytime
    page = read_page(render([experiment]))
    data = page.data["experiments"][0]
    assert list(check_statistics(page, 0, data, table_rows(data["runs"]))) == []


@pytest.mark.parametrize("n_arms", [2, 3])
def test_the_second_path_moderates_too(tmp_path, n_arms):
    page = tmp_path / "page.html"
    experiment = declared(tmp_path, {"seeds": [0, 1, 2], "prior_noise": NOISE}, n_arms=n_arms)
    page.write_text(render([experiment]), encoding="utf-8")
    assert "moderated variance" in page.read_text() and verify(page) == []
    read = read_page(page)
    data = read.data["experiments"][0]
    wider = data | {"plan": data["plan"] | {"prior_noise": NOISE | {"sd": 0.006}}}
    wider["plan"]["locks"][0]["plan"]["prior_noise"] = wider["plan"]["prior_noise"]
    found = list(check_statistics(read, 0, wider, table_rows(data["runs"])))
    assert any("val_loss.interval has the error rate" in sentence for sentence in found)
    assert not any("step_ms" in sentence for sentence in found)


@pytest.mark.parametrize(("n_arms", "without", "given"), [(1, 7, 6), (4, 8, 7)])
def test_a_plan_with_a_noise_needs_fewer_seeds(n_arms, without, given):
    """For an effect of two sds with power 0.8."""
    prior = Prior(sd=1.0, df=4.0)
    assert seeds_needed(2.0, sd=1.0, n_arms=n_arms) == without
    assert seeds_needed(2.0, sd=1.0, n_arms=n_arms, prior=prior) == given
    able = plan_detectable(sd=1.0, n=3, n_arms=n_arms, prior=prior).loss
    assert able < plan_detectable(sd=1.0, n=3, n_arms=n_arms).loss
