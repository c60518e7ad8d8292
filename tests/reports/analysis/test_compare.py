"""Whole experiments from results directories: the numbers of the page, the words, the warnings, the stopping rule."""

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from reports.analysis.adaptive import decide
from reports.analysis.cautions import Caution
from reports.analysis.compare import compare_all
from reports.analysis.outcomes import noise_floor
from reports.analysis.samples import outliers, unequal_noise
from reports.inputs.load import load
from reports.inputs.memory import Memory
from reports.inputs.recorded import first_crossing
from reports.stats.contrasts import Sample
from reports.stats.sequential import Continue, Stop, t_mixture
from reports.stats.simultaneous import max_t_quantile
from tests.report_fixtures import LADDER, Arm, write_experiment
from tests.sealing import seal_again


def compared(root, **how):
    write_experiment(root, **how)
    return compare_all(load("split", root))


def edit(root, **changes):
    path = root / "experiments" / "split" / "experiment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return load("split", root)


ON = (("model.untied_head", True),)
NULL = (Arm(name="base"), Arm(name="same", fields=ON))
STRONG = (
    Arm(name="base"),
    Arm(name="good", loss_effect=-0.05, step_factor=0.8, fields=ON),
    Arm(name="bad", loss_effect=0.05, step_factor=1.2, fields=(("model.embed_norm", True),)),
)


def test_every_metric_of_every_arm_is_compared(tmp_path):
    c = compared(tmp_path)
    assert set(c.comparisons) == {
        (a.name, m) for a in LADDER[1:] for m in ("val_loss", "step_ms", "train_time_s")
    }
    losses = load("split", tmp_path).runs.pivot(index="block", columns="arm", values="val_loss")
    r08 = c.of("r08", "val_loss")
    assert (
        r08.delta == pytest.approx((losses["r08"] - losses["r07"]).mean())
        and r08.n_comparisons == 4
    )
    assert any(
        r08.df == pytest.approx(df) for df in (16, 64 / 7)
    )  # one variance, or the baseline's own
    assert r08.sd_arm == pytest.approx(losses["r08"].std()) and r08.correlation == pytest.approx(
        losses["r08"].corr(losses["r07"])
    )
    assert (
        c.noise.sd == pytest.approx(losses["r07"].std()) and c.noise.low < c.noise.sd < c.noise.high
    )
    assert r08.verdict == "better" and r08.exploratory and Caution.EXPLORATORY in c.warnings


def test_times_are_ratios(tmp_path):
    c = compared(tmp_path, n_seeds=8)
    step = load("split", tmp_path).runs.pivot(index="block", columns="arm", values="step_ms")
    d = np.log(step["r08"] / step["r07"])
    r = c.of("r08", "step_ms")
    y = np.log(step.to_numpy())
    left = y - y.mean(0) - y.mean(1, keepdims=True) + y.mean()
    squares = dict(zip(step.columns, (left**2).sum(0), strict=True))
    # expected squares of one arm and of the four others hold 7/25 of (16 v + 4 w), (4 v + 76 w)
    own = max(
        np.linalg.solve(
            7 / 25 * np.array([[16, 4], [4, 76]]),
            [squares[arm], sum(squares.values()) - squares[arm]],
        ).sum()
        for arm in ("r07", "r08")
    )
    corr = 0.5 * (np.eye(4) + 1)
    half = max(
        max_t_quantile(0.95, corr, 28) * np.sqrt(2 * (left**2).sum() / 28 / 8),
        max_t_quantile(0.95, corr, 4 * 28 / 7) * np.sqrt(own / 8),
    )
    assert (r.ratio, r.ratio_low, r.ratio_high) == pytest.approx(
        tuple(np.exp([d.mean(), d.mean() - half, d.mean() + half]))
    )
    assert (
        r.delta == pytest.approx((r.ratio - 1) * stats.gmean(step["r07"]))
        and r.verdict == "faster"
        and r.unit == "ms"
    )


@pytest.mark.parametrize("n", [2, 4, 7])
def test_words(tmp_path, n):
    c = compared(tmp_path, arms=STRONG, n_seeds=n, sd=0.0005)
    assert [c.of(a, "val_loss").verdict for a in ("good", "bad")] == ["better", "worse"]
    assert [c.of(a, "train_time_s").verdict for a in ("good", "bad")] == ["faster", "slower"]


def test_a_null_inside_the_margin_is_no_difference_and_a_wide_one_is_undecided(tmp_path):
    tight = compared(tmp_path / "a", arms=NULL, n_seeds=8, sd=0.001).of("same", "val_loss")
    assert (
        tight.verdict == "no difference larger than 0.01 nats per byte"
        and tight.kind == "equal"
        and tight.next_action == ""
    )
    for n, sd in ((5, 0.006), (3, 0.006)):
        wide = compared(tmp_path / f"{n}", arms=NULL, n_seeds=n, sd=sd).of("same", "val_loss")
        assert re.fullmatch(r"undecided: −0\.0\d+ to \+0\.0\d+ nats per byte", wide.verdict)
        assert wide.kind == "undecided" and wide.more_seeds is None
        assert (
            wide.next_action
            == f"ablate confirm --detect 0.01: {wide.fresh_seeds} fresh seeds ({2 * wide.fresh_seeds} runs)"
        )
    noisy = compared(tmp_path / "noisy", arms=NULL, n_seeds=3, sd=0.01).of("same", "val_loss")
    assert noisy.kind == "undecided" and noisy.fresh_seeds is None  # more than a hundred
    half = max(-noisy.low, noisy.high) / 2
    assert noisy.next_action == (
        "take the interval as the answer (to find the margin takes over 100 seeds), or look for half its reach: "
        f"ablate confirm --detect {half:.2g}"
    )


def test_without_a_margin_nothing_is_called_no_difference(tmp_path):
    """However narrow the interval: what does not matter is for the plan to say."""
    write_experiment(tmp_path, arms=NULL, n_seeds=20, sd=0.001)
    same = compare_all(edit(tmp_path, margin=None)).of("same", "val_loss")
    assert same.kind == "undecided"
    assert ends_said(same) == pytest.approx([same.low, same.high], abs=5e-5)


def test_one_seed_has_no_interval(tmp_path):
    c = compared(tmp_path, n_seeds=1).of("r08", "val_loss")
    assert (
        c.verdict == "too few runs"
        and (c.low, c.high, c.p, c.sd_arm) == (None, None, None, None)
        and c.delta < 0
    )
    assert c.next_action == "ablate confirm: 2 fresh seeds or more (10 runs)"


def test_an_unfinished_page_shows_sequences_and_says_so(tmp_path):
    how = dict(arms=STRONG, n_seeds=8, sd=0.001)
    fixed = compared(tmp_path / "a", **how)
    early = compared(tmp_path / "b", **how, outcome={("bad", 7): "pending"})
    assert not fixed.anytime and early.anytime and Caution.UNFINISHED in early.warnings
    one, other = (c.of("good", "val_loss") for c in (fixed, early))
    assert (
        other.method == "anytime-valid t-mixture"
        and other.low < one.low
        and other.high > one.high
        and other.verdict == "better"
    )
    absent = {("bad", seed): "pending" for seed in range(8)}
    alone = compared(tmp_path / "c", **how, outcome=absent).of("good", "val_loss")
    losses = load("split", tmp_path / "c").runs.pivot(
        index="block", columns="arm", values="val_loss"
    )
    expected = t_mixture((losses["good"] - losses["base"]).to_numpy(float), 0.05 / 2)
    assert (alone.low, alone.high) == pytest.approx(expected[:2])  # both planned arms share alpha
    assert alone.p == pytest.approx(2 * expected[2])


def test_before_five_blocks_a_sequence_is_too_few_runs(tmp_path):
    c = compared(tmp_path, arms=STRONG, n_seeds=4, outcome={("bad", 3): "pending"}).of(
        "good", "val_loss"
    )
    assert c.verdict == "too few runs" and c.p_attainable > 0.05 and np.isinf(c.high)


def test_raising_the_number_of_seeds_keeps_the_sequence(tmp_path):
    write_experiment(tmp_path, arms=STRONG, n_seeds=6)
    locks = load("split", tmp_path).plan.to_mapping()["locks"]
    locks[0]["plan"]["seeds"] = [0, 1, 2]
    c = compare_all(edit(tmp_path, locks=locks))
    assert c.anytime and Caution.EXTENDED in c.warnings


@pytest.mark.parametrize("arm", [0, 1])
def test_diverged_runs_are_outcomes(tmp_path, arm):
    name = STRONG[arm].name
    c = compared(tmp_path, arms=STRONG[:2], n_seeds=6, outcome={(name, 1): "diverged"})
    cell, effect = c.cells[name], c.of("good", "val_loss")
    assert (cell.n_finished, cell.n_diverged) == (5, 1)
    assert (cell.diverged_low, cell.diverged_high) == pytest.approx(
        tuple(stats.binomtest(1, 6).proportion_ci(method="exact"))
    )
    assert (
        "trimmed" in effect.method
        and Caution.DIVERGED in effect.warnings
        and (effect.n_arm, effect.n_baseline) == (6, 6)
        and effect.p < 0.05
    )


def test_failed_runs_are_counted_and_named(tmp_path):
    c = compared(tmp_path, outcome={("r08", 0): "oom", ("r08", 1): "failed"})
    assert c.cells["r08"].n_failed == 2 and Caution.FAILED_RUNS in c.warnings and not c.anytime
    assert (
        Caution.MISSING_CELLS in c.of("r08", "val_loss").warnings
        and c.of("r08", "val_loss").n_blocks == 3
    )


def test_stale_runs_are_left_out_unless_accepted(tmp_path):
    write_experiment(tmp_path, stale=[("r08", 0)])
    out, kept = load("split", tmp_path), load("split", tmp_path, accept_stale=True)
    assert out.runs["stale"].sum() == 1 and set(out.runs.loc[out.runs["stale"], "stale_files"]) == {
        "optim/muon.py"
    }
    assert (
        compare_all(out).of("r08", "val_loss").n_arm == 4
        and Caution.STALE in compare_all(out).warnings
    )
    assert (
        compare_all(kept).of("r08", "val_loss").n_arm == 5
        and Caution.STALE_ACCEPTED in compare_all(kept).warnings
    )


def test_the_same_run_twice_counts_once(tmp_path):
    write_experiment(tmp_path, arms=STRONG[:2])
    runs = load("split", tmp_path).runs
    first, second = runs.loc[runs["arm"] == "good", "run_id"].iloc[:2]
    for file in ("metrics.jsonl", "result.json"):
        shutil.copy(tmp_path / "runs" / first / file, tmp_path / "runs" / second / file)
    seal_again(tmp_path / "runs" / second, run_id=second)
    c = compare_all(load("split", tmp_path))
    assert Caution.DUPLICATE_RUN in c.warnings and c.of("good", "val_loss").n_arm == 4


def test_mixed_data_is_refused(tmp_path):
    write_experiment(tmp_path, arms=STRONG[:2])
    experiment = load("split", tmp_path)
    experiment.runs.loc[0, "fingerprint"] = "0" * 64
    with pytest.raises(ValueError, match="mixes runs of 2 different data sets"):
        compare_all(experiment)


def test_times_are_not_compared_across_hardware(tmp_path):
    write_experiment(tmp_path, arms=STRONG)
    experiment = load("split", tmp_path)
    experiment.runs.loc[experiment.runs["arm"] == "good", "gpu"] = "another"
    c = compare_all(experiment)
    assert (
        c.of("good", "step_ms") is None
        and c.of("bad", "step_ms") is not None
        and Caution.MIXED_HARDWARE in c.warnings
    )
    assert c.of("good", "val_loss") is not None and "good" not in c.decompositions


def test_a_block_of_several_drivers_is_none_for_times_and_blocks_may_differ_in_them(tmp_path):
    write_experiment(tmp_path, arms=STRONG)
    experiment = load("split", tmp_path)
    runs = experiment.runs
    runs["driver"] = np.where(runs["block"] == 0, "550", "570")
    c = compare_all(experiment)
    assert c.of("good", "step_ms") is not None
    assert not {Caution.MIXED_HARDWARE, Caution.OTHER_ENVIRONMENT} & {*c.warnings}
    runs.loc[(runs["arm"] == "good") & (runs["block"] == 0), "driver"] = "570"
    c = compare_all(experiment)
    assert c.of("good", "step_ms") is None
    assert c.of("bad", "step_ms") is not None
    assert c.of("good", "val_loss") is not None
    assert Caution.MIXED_HARDWARE in c.warnings


def test_nodes_are_spoken_of(tmp_path):
    assert Caution.ONE_NODE in compared(tmp_path / "a", n_nodes=1).of("r08", "step_ms").warnings
    write_experiment(tmp_path / "b", n_nodes=2)
    experiment = load("split", tmp_path / "b")
    experiment.runs["node"] = np.where(experiment.runs["arm"] == "r08", "one", "two")
    assert Caution.NO_SHARED_NODE in compare_all(experiment).of("r08", "step_ms").warnings


def test_runs_without_seeds_are_not_paired(tmp_path):
    write_experiment(tmp_path, arms=STRONG[:2])
    experiment = load("split", tmp_path)
    experiment.runs["block"] = None
    c = compare_all(experiment).of("good", "val_loss")
    assert c.method == "Welch t, Holm" and c.n_blocks == 0 and Caution.NOT_BLOCKED in c.warnings


def test_equal_losses_and_outliers_are_flagged(tmp_path):
    write_experiment(tmp_path, arms=STRONG[:2], n_seeds=8, sd=0.001)
    experiment = load("split", tmp_path)
    experiment.runs.loc[experiment.runs.index[0], "val_loss"] += 0.5
    assert Caution.OUTLIER in compare_all(experiment).of("good", "val_loss").warnings
    experiment.runs["val_loss"] = np.where(experiment.runs["arm"] == "good", 1.5, 1.6)
    c = compare_all(experiment).of("good", "val_loss")
    assert (
        Caution.ZERO_VARIANCE in c.warnings and c.verdict == "no error estimate" and c.low is None
    )
    experiment.runs["block"] = None  # as of a script that is told no seed
    c = compare_all(experiment).of("good", "val_loss")
    assert c.warnings[0] == Caution.ZERO_VARIANCE and Caution.NOT_BLOCKED not in c.warnings
    experiment.runs.loc[experiment.runs.index[0], "val_loss"] += 0.001  # one arm still has no sd
    c = compare_all(experiment).of("good", "val_loss")
    assert c.low is not None and Caution.NOT_BLOCKED in c.warnings


def test_noise_is_called_unequal_where_two_arms_of_three_runs_tell():
    quiet, loud = (np.random.default_rng(3).normal(0, sd, 20) for sd in (1, 20))

    def told(*arms) -> bool:
        of = [Sample(values=np.array(v, float), blocks=(None,) * len(v)) for v in arms]
        return unequal_noise(of)

    assert told(quiet, loud) and told(loud[:2], quiet, loud)
    alike = (quiet, quiet + 1), (loud,), (quiet, loud[:2]), (loud, quiet, [1.0, 1.0, 1.0])
    assert [told(*arms) for arms in alike] == [False] * 4


def test_an_outlier_is_told_among_five_values_and_those_that_are_missing_are_none():
    step_ms = [10.0, 10.1, 9.9, 10.2, np.nan, 30.0]
    runs = pd.DataFrame(
        {
            "arm": "a",
            "status": "finished",
            "run_id": list("uvwxyz"),
            "step_ms": step_ms,
            "val_loss": 1.0,
        }
    )
    assert outliers(runs, "a", "step_ms") == ("z",)
    assert outliers(runs.iloc[1:], "a", "step_ms") == ()
    assert outliers(runs.assign(status=["finished"] * 5 + ["failed"]), "a", "step_ms") == ()
    assert outliers(runs, "a") == ()


def test_a_confirmatory_experiment_is_not_exploratory(tmp_path):
    c = compared(tmp_path, confirm=True)
    assert not c.of("r08", "val_loss").exploratory and Caution.EXPLORATORY not in c.warnings


def test_declared_noise_is_not_pooled(tmp_path):
    write_experiment(tmp_path)
    arms = load("split", tmp_path).plan.to_mapping()["arms"]
    c = compare_all(
        edit(tmp_path, arms=[*arms[:-1], arms[-1] | {"alters_noise": True, "estimand": "retuned"}])
    )
    assert (
        c.of("r08", "val_loss").method == "paired t, Holm"
        and c.of("r08", "val_loss").estimand == "retuned"
    )
    assert c.of("untied_head", "val_loss").method == "two-way model, max-t"


# ---- time


def test_three_budgets_resolve_time_and_its_parts(tmp_path):
    c = compared(tmp_path, n_seeds=3, budgets=(240, 300, 360), target=1.57)
    for arm, d in c.decompositions.items():
        t0, t1 = c.times["r07"], c.times[arm]
        assert (
            d.learning_s + d.systems_s
            == pytest.approx(d.total_s)
            == pytest.approx(t1.seconds - t0.seconds, rel=1e-2)
        )
        assert d.total_percent == pytest.approx(d.learning_percent + d.systems_percent)
        ratio = c.of(arm, "time_to_target").ratio
        assert ratio == pytest.approx(t1.seconds / t0.seconds, rel=1e-6)
        assert t1.n_low < t1.n_star < t1.n_high and t1.seconds_low < t1.seconds < t1.seconds_high
    assert c.of("r08", "time_to_target").verdict == "faster"


def test_one_budget_says_what_is_missing_and_shows_the_systems_gain(tmp_path):
    write_experiment(tmp_path)
    c = compare_all(edit(tmp_path, primary="time_to_target"))
    assert c.times["r08"].n_star is None and "two or more budgets" in c.times["r08"].reason
    assert c.primary == "val_loss" and "two or more budgets" in c.notes[0]
    assert c.decompositions["r08"].learning_s is None and c.decompositions[
        "r08"
    ].systems_percent == pytest.approx(-10, abs=1)


def test_a_slope_from_outside_is_marked(tmp_path):
    write_experiment(tmp_path, target=1.575)
    c = compare_all(edit(tmp_path, slope={"per_step": 0.15 / 300, "se": 0.01 / 300}))
    assert c.times["r08"].slope_given and Caution.SLOPE_GIVEN in c.times["r08"].warnings
    assert Caution.SLOPE_GIVEN in c.of("untied_head", "time_to_target").warnings


def test_budgets_that_do_not_bracket_give_no_verdict(tmp_path):
    c = compared(tmp_path, n_seeds=3, budgets=(280, 300), target=1.50)
    assert c.times["r08"].extrapolated and Caution.NOT_BRACKETED in c.times["r08"].warnings
    assert c.of("r08", "time_to_target") is None


def test_sequences_for_time_to_target_too(tmp_path):
    """The planned arms share alpha, also one that has no runs yet."""
    good = Arm(name="good", loss_effect=-0.01, step_factor=0.9, fields=ON)
    late = Arm(name="late", fields=STRONG[2].fields)
    waiting = {("good", 8): "pending"} | {("late", seed): "pending" for seed in range(9)}
    write_experiment(tmp_path, arms=(Arm(name="base"), good, late), n_seeds=9, sd=0.0005,
                     budgets=(260, 300, 360), target=1.57, outcome=waiting)  # fmt: skip
    three = load("split", tmp_path)
    runs = three.runs[three.runs["arm"] != "late"]
    two = replace(three, plan=replace(three.plan, arms=three.plan.arms[:2]), runs=runs)
    found, alone = (compare_all(e).of("good", "time_to_target") for e in (three, two))
    assert found.method.startswith("anytime-valid") and found.verdict == "faster" and found.p < 0.05
    assert found.p == pytest.approx(2 * alone.p) and found.low < alone.low < alone.high < found.high


def test_first_crossing_interpolates_and_is_censored():
    assert first_crossing([0, 10, 20], [4.0, 3.0, 2.0], 2.5) == pytest.approx(15)
    assert first_crossing([0, 10], [4.0, 3.0], 2.5) is None
    assert first_crossing([0, 10], [float("nan"), 2.0], 2.5) == 10


def test_packed_losses_need_whole_node_ones_to_vouch_for_them(tmp_path):
    write_experiment(tmp_path, arms=STRONG[:2], n_seeds=8, sd=0.0002)
    experiment = load("split", tmp_path)
    timing = experiment.runs["block"] >= 4
    experiment.runs.loc[timing, "role"] = "timing"
    ids = set(experiment.runs.loc[timing, "run_id"])
    experiment.configs.update({r: {**experiment.configs[r], "world_size": 8} for r in ids})
    assert Caution.TWO_PHASE_UNVERIFIED not in compare_all(experiment).warnings
    experiment.runs.loc[timing, "val_loss"] += 0.002
    assert Caution.TWO_PHASE_UNVERIFIED in compare_all(experiment).warnings


def test_an_arm_has_its_times_from_timing_runs_and_what_failed_is_not_stale(tmp_path):
    write_experiment(tmp_path, arms=STRONG[:2], n_seeds=4)
    experiment = load("split", tmp_path)
    runs = experiment.runs
    runs.loc[runs["block"] >= 2, ["role", "step_ms"]] = ["timing", 7.0]
    runs.loc[(runs["block"] == 0) & (runs["arm"] == "good"), ["status", "stale"]] = ["failed", True]
    told = compare_all(experiment).cells["good"]
    assert told.values["step_ms"] == (7.0, 7.0)
    assert len(told.values["val_loss"]) == 1
    assert (told.n_failed, told.n_stale, told.n_finished) == (1, 0, 1)


# ---- stopping


def adaptive(root, n_seeds, stop, **how):
    write_experiment(root, n_seeds=n_seeds, **how)
    return edit(root, seeds_rule={"min": 3, "max": 12, "stop": stop}, margin=None)


def test_a_strong_effect_stops_and_a_null_goes_on(tmp_path):
    strong = decide(adaptive(tmp_path / "a", 8, {"decide": 0.05}, arms=STRONG, sd=0.001))
    null = decide(adaptive(tmp_path / "b", 8, {"decide": 0.05}, arms=NULL, sd=0.001))
    assert strong == Stop(reason="every arm is decided") and null == Continue(
        n=1, reason="8 seeds; open: same"
    )


def test_the_rule_keeps_its_least_and_its_most(tmp_path):
    assert decide(adaptive(tmp_path / "a", 2, {"decide": 0.05}, arms=STRONG)) == Continue(
        n=1, reason="2 of at least 3 seeds"
    )
    most = decide(adaptive(tmp_path / "b", 12, {"decide": 0.05}, arms=NULL))
    assert most == Stop(reason="12 seeds, the most allowed; open: same")


def test_half_width_stops_when_narrow(tmp_path):
    rule = {"half_width": 0.01}
    narrow = decide(adaptive(tmp_path / "a", 8, rule, arms=NULL, sd=0.001))
    assert narrow == Stop(reason="every interval is within +-0.01")
    wide = decide(adaptive(tmp_path / "b", 8, rule, arms=NULL, sd=0.02))
    assert wide == Continue(n=1, reason="8 seeds; open: same")


def test_without_a_rule_the_planned_seeds_are_the_answer(tmp_path):
    write_experiment(tmp_path, arms=NULL)
    said = decide(load("split", tmp_path))
    assert said == Stop(reason="the planned seeds are run; there is no stopping rule")


# ---- loading


def test_load_names_what_there_is(tmp_path):
    write_experiment(tmp_path)
    with pytest.raises(ValueError, match="no experiment 'spilt' here; there are split"):
        load("spilt", tmp_path)
    experiment = load(tmp_path / "experiments" / "split")
    assert (
        len(experiment.runs) == 25
        and len(experiment.curves) == 25 * 16
        and set(experiment.results) == set(experiment.runs["run_id"])
    )


def test_a_broken_result_is_named(tmp_path):
    write_experiment(tmp_path, arms=NULL, n_seeds=1)
    result = next((tmp_path / "runs").glob("*/result.json"))
    result.write_text("{")
    [line] = load("split", tmp_path).unsound
    assert line.endswith(f"seed 0: run {result.parent.name} is left out: result.json is damaged")


@pytest.mark.parametrize(
    ("key", "value"),
    [("cpu", []), ("gpus", [3]), ("gpus", [{"memory_mib": "80"}]), ("git", "main"), ("lock", 1)],
)
def test_an_environment_that_no_run_writes_leaves_its_run_out_though_it_is_sealed(
    tmp_path, key, value
):
    write_experiment(tmp_path, arms=NULL, n_seeds=2)
    run = next((tmp_path / "runs").iterdir())
    environment = run / "environment.json"
    environment.write_text(json.dumps(json.loads(environment.read_text()) | {key: value}))
    seal_again(run)
    [line] = load("split", tmp_path).unsound
    assert f"run {run.name} is left out: environment.json is not what a run writes" in line


def test_an_experiment_without_any_result_is_a_table_of_pending_runs(tmp_path):
    write_experiment(
        tmp_path,
        arms=NULL,
        n_seeds=2,
        outcome={(a.name, s): "pending" for a in NULL for s in range(2)},
    )
    experiment = load("split", tmp_path)
    assert set(experiment.runs["status"]) == {"pending"} and experiment.curves.empty
    told = {"retired": ("n1 gets no more runs",), "unsound": ("run x is left out: torn",)}
    c = compare_all(replace(experiment, **told))
    assert c.comparisons == {} and c.cells["same"].n_pending == 2 and c.noise.sd is None
    assert c.notes == ("n1 gets no more runs.", "run x is left out: torn.")
    assert isinstance(experiment.runs, pd.DataFrame)


def test_what_is_to_be_known_of_the_runs_stands_above_the_table_in_one_order(tmp_path, kept_line):
    write_experiment(tmp_path, arms=NULL, n_seeds=3)
    made = load("split", tmp_path)
    arms = (made.plan.arms[0], replace(made.plan.arms[1], environment_effect="torch 2.9"))
    of_base = made.runs["arm"] == "base"
    sessions = made.runs["block"].astype(str).where(of_base | (made.runs["block"] < 2), "alone")
    runs = made.runs.assign(session=sessions, borrowed=of_base & (made.runs["block"] == 0))
    told = {"retired": ("n1 gets no more runs",), "memory": Memory(notes=("Of a memory.",))}
    c = compare_all(replace(made, runs=runs, plan=replace(made.plan, arms=arms), **told))
    kept_line("\n".join(c.notes))


def test_an_interval_holds_for_the_family_that_the_memory_knows(tmp_path):
    """Of ten changes asked about this baseline one is this: a tenth of the error rate."""
    write_experiment(tmp_path, arms=NULL, n_seeds=3)
    made = load("split", tmp_path)
    of_ten = compare_all(replace(made, memory=Memory(family=10))).of("same", "val_loss")
    alone = compare_all(made, level=0.995).of("same", "val_loss")
    assert (of_ten.low, of_ten.high) == pytest.approx((alone.low, alone.high))


def test_an_arm_that_always_diverges_is_said_to(tmp_path):
    c = compared(
        tmp_path, arms=STRONG, n_seeds=3, outcome={("bad", s): "diverged" for s in range(3)}
    )
    assert (
        c.of("bad", "val_loss") is None
        and c.cells["bad"].diverged_rate == 1.0
        and c.cells["bad"].diverged_high == 1.0
    )
    assert (
        any("All 3 runs of bad diverged" in note for note in c.notes)
        and c.of("good", "val_loss").verdict == "better"
    )


def test_every_warning_names_a_cure():
    assert all(
        len(w.text) < 200
        and w.text.endswith(".")
        and (":" in w.text or ". " in w.text or ";" in w.text)
        for w in Caution
    )


def test_a_rules_own_seeds_are_no_extension(tmp_path):
    experiment = adaptive(tmp_path, 6, {"decide": 0.05}, arms=STRONG)
    lock = experiment.plan.locks[0]
    locked = replace(lock, plan={**lock.plan, "seeds": [0, 1, 2]})
    c = compare_all(replace(experiment, plan=replace(experiment.plan, locks=(locked,))))
    assert (
        c.anytime
        and Caution.EXTENDED not in c.warnings
        and c.of("good", "val_loss").method == "anytime-valid t-mixture"
    )


def ends_said(c):
    """The two numbers of the verdict "undecided: −0.052 to +0.013"."""
    return [float(end.replace("−", "-")) for end in c.verdict.split()[1:4:2]]


def test_an_open_verdict_tells_both_ends_of_its_interval(tmp_path):
    """A time's is a ratio's, so that they are not symmetric."""
    arms = (Arm(name="base"), Arm(name="same", fields=(("model.untied_head", True),)))
    write_experiment(tmp_path, arms=arms, n_seeds=8, confirm=True)
    experiment = load("split", tmp_path)
    runs = experiment.runs
    runs["step_ms"] = 20.0 * np.exp(
        np.where(runs["arm"] == "same", 0.8 * (-1.0) ** runs["seed"] + 0.01, 0.0)
    )
    c = compare_all(experiment).of("same", "step_ms")
    assert c is not None and c.low is not None and c.high is not None and c.high > -1.2 * c.low > 0
    low, high = ends_said(c)
    assert low == pytest.approx(c.low, abs=0.5) and high == pytest.approx(c.high, abs=0.5)


def test_the_sd_of_ten_runs_lies_between_0_69_and_1_83_times_what_is_seen():
    """Of 95 in 100 draws, by the tables of chi square with nine df."""
    values = stats.zscore(np.arange(10.0), ddof=1)
    floor = noise_floor(values)
    assert (floor.n, floor.sd) == (10, pytest.approx(1.0))
    assert (floor.low, floor.high) == pytest.approx((0.6878, 1.8256), abs=1e-4)
    assert noise_floor(values, anytime=True).low is None
