"""Which runs count, and what is doubted of them: small tables with answers by hand."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from harness.run.foreign import TrainerSpec
from harness.run.plan import Lock, Plan, PlanArm, SeedsRule
from harness.run.readings import OwnMetric, Readings
from reports.analysis import samples
from reports.analysis.cautions import Caution
from reports.analysis.copies import duplicated
from reports.inputs.experiment import Experiment
from reports.inputs.memory import Memory
from reports.stats.contrasts import Sample
from reports.stats.unblocked import welch, widening

NAN = float("nan")
ARMS = ("base", "a")


def plan_of(**how: Any) -> Plan:
    arms = tuple(PlanArm(name=name, of=name) for name in ("a", "base"))
    return Plan(name="x", baseline="base", arms=arms, **how)


def table(*rows: dict[str, Any]) -> pd.DataFrame:
    """Finished runs, each row what of it is another than of the others."""
    whole = []
    for i, row in enumerate(rows):
        usual: dict[str, Any] = {
            "arm": "a",
            "status": "finished",
            "role": "loss",
            "budget": 100,
            "block": i,
            "seed": i,
            "run_id": f"r{i}",
            "metrics_digest": f"m{i}",
            "val_loss": 3.0 + i / 64,
            "train_time_s": 9.0 + i,
            "step_ms": 10.0,
            "stale": False,
            "imported": False,
            "disturbed": False,
            "fingerprint": "f",
            "device": "cuda",
            "gpu": "H100",
            "n_gpus": 8,
            "gpu_memory_gb": 80,
            "node": "n1",
            "driver": "570",
            "cuda": "12",
            "torch": "2.9",
            "trunk_s": None,
        }
        whole.append(usual | row)
    return pd.DataFrame(whole)


def experiment_of(runs: pd.DataFrame, plan: Plan | None = None, **how: Any) -> Experiment:
    empty: dict[str, Any] = {"environments": {}, "configs": {}, "results": {}}
    return Experiment(
        name="x", plan=plan or plan_of(), runs=runs, curves=pd.DataFrame(), **empty | how
    )


def own(primary: str, *names: str) -> Plan:
    """A plan of scripts that measure these of their own."""
    metrics = tuple(OwnMetric(name=name, pattern="") for name in names)
    side = TrainerSpec(
        script="", command="", env={}, data={}, environment={}, readings=Readings(metrics=metrics)
    )
    return Plan(name="x", baseline="base", arms=(PlanArm(name="base", side=side),), primary=primary)


def test_what_decides_is_the_primary_loss_or_a_metric_of_ones_own_never_a_time() -> None:
    for primary, names, decides in (
        ("val_loss", (), "val_loss"),
        ("step_ms", (), "val_loss"),
        ("bpb", ("acc", "bpb"), "bpb"),
        ("step_ms", ("acc", "bpb"), "acc"),
        ("val_loss", ("acc",), "val_loss"),
    ):
        assert samples.deciding_metric(own(primary, *names)) == decides


# ---------------------------------------------------------------- which count


def counted(runs: pd.DataFrame, **how: Any) -> tuple[list[str], tuple[Caution, ...]]:
    use = samples.usable(experiment_of(runs, **how))
    assert use.arms == ARMS
    return use.runs["run_id"].tolist(), use.warnings


def test_runs_with_an_outcome_count_and_nothing_is_doubted() -> None:
    assert counted(table({}, {"arm": "base"}, {"status": "pending"})) == (["r0", "r1"], ())
    diverged = table({}, {"status": "diverged", "val_loss": NAN})
    assert counted(diverged) == (["r0", "r1"], ())


def test_what_does_not_count_is_told() -> None:
    stale = table({}, {"stale": True})
    assert counted(stale) == (["r0"], (Caution.STALE,))
    assert counted(stale, accept_stale=True) == (["r0", "r1"], (Caution.STALE_ACCEPTED,))
    copies = table({}, {"metrics_digest": "m0"}, {})
    assert counted(copies) == (["r0", "r2"], (Caution.DUPLICATE_RUN,))
    assert counted(table({}, {"disturbed": True})) == (["r0", "r1"], (Caution.DISTURBED,))
    for status in ("failed", "oom", "timeout"):
        assert counted(table({}, {"status": status})) == (["r0"], (Caution.FAILED_RUNS,))
    for status in ("running", "interrupted", "preempted", "claimed"):
        assert counted(table({}, {"status": status})) == (["r0"], ())


def test_a_finished_run_without_its_loss_diverged() -> None:
    use = samples.usable(experiment_of(table({}, {"val_loss": NAN}, {"val_loss": math.inf})))
    assert use.runs["status"].tolist() == ["finished", "diverged", "diverged"]
    assert use.warnings == (Caution.NOT_A_NUMBER,)


def test_runs_of_another_corpus_or_arm_are_refused() -> None:
    with pytest.raises(ValueError, match=r"mixes runs of 2 different data sets \(01234567, f\)"):
        counted(table({}, {"fingerprint": "0123456789"}, {"fingerprint": None}))
    with pytest.raises(ValueError, match="has runs of 'b', which is none of its arms: base, a"):
        counted(table({}, {"arm": "c"}, {"arm": "b"}))


def test_copies_are_the_same_run_file_or_numbers_of_one_arm_budget_and_role() -> None:
    same = {"val_loss": 3.0, "train_time_s": 9.0}
    for row, is_copy in (
        ({}, False),
        ({"run_id": "r0"}, True),
        ({"run_id": "r0", "arm": "base"}, False),
        ({"run_id": "r0", "budget": 50}, False),
        ({"run_id": "r0", "role": "timing"}, False),
        ({"metrics_digest": "m0"}, True),
        (same, True),
        ({"val_loss": 3.0}, False),
        ({"train_time_s": 9.0}, False),
    ):
        assert duplicated(table({}, row)).tolist() == [False, is_copy], row
    unknown = {"metrics_digest": None, "val_loss": NAN}
    assert not duplicated(table(unknown, {**unknown, "train_time_s": 9.0})).any()
    no_time = {"metrics_digest": None, "train_time_s": NAN, "val_loss": 3.0}
    assert not duplicated(table(no_time, no_time)).any()
    assert duplicated(table({}, same).drop(columns="metrics_digest")).tolist() == [0, 1]


def test_arms_stand_with_the_baseline_first_and_points_of_axes_apart() -> None:
    point = PlanArm(name="a at x2", of="a", point={"lr": "x2"})
    half = PlanArm(name="0.5", of="a", point={"lr": "x0.5"})
    plan = Plan(name="x", baseline="base", arms=(*plan_of().arms, point, half))
    assert samples.arms_in_order(plan) == ("base", "a", "a at x2", "0.5")
    assert [arm.name for arm in samples.arms_off_the_axes(plan)] == ["a", "base"]
    assert samples.arms_on_the_axes(plan) == [point, half]


def test_runs_are_of_a_role_where_there_is_one_and_at_the_longest_shared_budget() -> None:
    runs = table({}, {"budget": 200}, {"arm": "base"}, {"arm": "base", "budget": 300})
    assert samples.of_role(runs, "timing") is runs
    timing = table({}, {"role": "timing"})
    assert samples.of_role(timing, "timing")["run_id"].tolist() == ["r1"]
    assert samples.of_role(timing, "loss")["run_id"].tolist() == ["r0"]
    assert samples.shared_budget(runs, ARMS) == 100
    assert samples.shared_budget(runs, ("a", "none")) == 200  # an arm without runs has no say
    assert samples.shared_budget(runs[[False, True, False, True]], ARMS) is None
    assert samples.shared_budget(runs, ()) is None
    assert samples.at_budget(runs, 100)["run_id"].tolist() == ["r0", "r2"]
    assert samples.at_budget(runs, 200)["run_id"].tolist() == ["r1"]
    assert samples.at_budget(runs, None)["run_id"].tolist() == ["r1", "r3"]


def test_a_sample_is_the_finite_values_of_finished_runs_with_blocks_that_are_seeds() -> None:
    runs = table(
        {"val_loss": 3.5},
        {"val_loss": NAN},
        {"status": "diverged"},
        {"val_loss": 3.25, "seed": None},
        {"val_loss": 3.0, "block": None},
        {"arm": "base"},
        {"status": "timeout"},
        {"status": "claimed"},
    )
    found = samples.sample(runs, "a", "val_loss")
    assert (found.values.tolist(), found.n_diverged) == ([3.5, 3.25, 3.0], 1)
    assert found.blocks == (0, None, None)
    times = samples.sample(runs.assign(step_ms=[0.5, NAN, 5, 20, 40, 1, 9, 9]), "a", "step_ms")
    assert np.exp(times.values).tolist() == pytest.approx([0.5, 20, 40])
    assert (times.blocks, times.n_diverged) == ((0, 3, None), 0)  # in time blocks need no seed
    with pytest.raises(ValueError, match="arm 'a': step_ms of 0 in run r3 is no time"):
        samples.sample(runs.assign(step_ms=[10.0, NAN, 5, 0, 40, 1, 9, 9]), "a", "step_ms")


def test_final_losses_are_those_of_an_arm_at_the_shared_budget_with_what_is_doubted() -> None:
    runs = table(
        {"val_loss": 3.5},
        {"val_loss": 3.25},
        {"budget": 200},
        {"arm": "base"},
        {"arm": "base", "status": "failed"},
        {"stale": True},
        {"disturbed": True, "arm": "base"},
    )
    losses, doubts = samples.final_losses(experiment_of(runs), "a")
    assert losses == [3.5, 3.25]
    assert doubts == (Caution.STALE, Caution.FAILED_RUNS)  # of a time alone nothing is told


def test_an_arm_without_losses_says_why() -> None:
    def why(runs: pd.DataFrame, arm: str = "a") -> str:
        with pytest.raises(ValueError) as error:
            samples.final_losses(experiment_of(runs), arm)
        return str(error.value)

    assert why(table({}), "b") == "experiment 'x' has no arm 'b': there is base, a"
    diverged = {"status": "diverged"}
    assert why(table({}, diverged)).startswith("1 run of 'a' diverged: ")
    assert why(table({}, diverged, {**diverged, "val_loss": 9.0})).startswith("2 runs of 'a' div")
    assert "'a' of experiment 'x' has no finished run yet: ablate run x" in why(
        table({"arm": "base"})
    )
    stale = table({"arm": "base"}, {"stale": True})
    assert "has only runs of an older source: ablate run x" in why(stale)


# ---------------------------------------------------------------- what is watched


def lock(seeds: Any) -> Lock:
    return Lock(locked="2026", digest="d", plan={} if seeds is None else {"seeds": seeds})


def test_more_seeds_than_were_locked_extend_an_experiment() -> None:
    for locks, extended in (
        ((), False),
        ((lock([0, 1]), lock([0])), False),
        ((lock([0]), lock([0, 1])), True),
        ((lock([5, 6, 7]),), False),
        ((lock(None),), False),
        ((lock([]),), True),
    ):
        assert samples.extended(plan_of(seeds=(0, 1), locks=locks)) == extended, locks


def test_whoever_may_look_again_is_watched() -> None:
    done = table({})
    locked: dict[str, Any] = {"seeds": (0,), "locks": (lock([0]),)}
    assert not samples.watched(experiment_of(done, plan_of(**locked)))
    rule = SeedsRule(least=1, most=2, stop={})
    for watched in (
        experiment_of(done, plan_of(**locked, seeds_rule=rule)),
        experiment_of(done, plan_of(**locked | {"seeds": (0, 1)})),
        experiment_of(done, plan_of(**locked), memory=Memory(changed=True)),
        experiment_of(table({}, {"status": "running"}), plan_of(**locked)),
    ):
        assert samples.watched(watched)
    assert samples.pending(experiment_of(table({}, *[{"status": s} for s in samples.PENDING]))) == 5


# ---------------------------------------------------------------- what is doubted


def test_an_outlier_is_more_than_five_robust_sds_away() -> None:
    """Distances 0, 1, 1, 2 of the others, whose median is 1: five robust sds are 7.413."""
    for far, found in ((7.4, ()), (7.42, ("r4",)), (-7.42, ("r4",))):
        losses = [100.0, 101.0, 99.0, 102.0 if far < 0 else 98.0, 100.0 + far]
        runs = table(*({"val_loss": loss} for loss in losses))
        assert samples.outliers(runs, "a") == found, far


def test_four_values_tell_no_outlier_and_of_runs_that_did_not_finish_none_is_asked() -> None:
    four = [{"val_loss": loss} for loss in (100.0, 101.0, 99.0, 150.0)]
    assert samples.outliers(table(*four), "a") == ()
    for status in ("timeout", "claimed", "diverged"):
        assert samples.outliers(table(*four, {"status": status, "val_loss": 100.5}), "a") == ()
    assert samples.outliers(table(*four, {"val_loss": 100.5}), "a") == ("r3",)


def test_where_most_values_are_equal_no_spread_tells_an_outlier() -> None:
    runs = table(*({"val_loss": loss} for loss in (3.0, 3.0, 3.0, 3.0, 9.0)))
    assert samples.outliers(runs, "a") == ()


def told_unequal(*arms: Any) -> bool:
    of = [Sample(values=np.array(v, float), blocks=(None,) * len(v)) for v in arms]
    return samples.unequal_noise(of)


def test_noise_is_unequal_where_levenes_test_says_so_at_one_percent() -> None:
    rng = np.random.default_rng(5)
    seen = set()
    for factor in (1, 2, 3, 4, 6, 9):
        arms = rng.normal(0, 1, 12), rng.normal(0, factor, 12)
        p = stats.levene(*arms, center="median").pvalue
        assert told_unequal(*arms) == (p < 0.01)
        seen.add(p < 0.01)
        assert samples.unequal_noise([Sample(values=a, blocks=()) for a in arms], alpha=p) is False
    assert seen == {True, False}


def test_two_means_are_equivalent_inside_the_margin_by_two_widened_tests() -> None:
    a, b = np.array([1.0, 1.2, 1.1]), np.array([1.15, 1.25, 1.05, 1.35])
    delta, se, df = welch(a, b)
    least = abs(delta) + widening(3, 4, 0.1) * stats.t.isf(0.05, df) * se
    for first, second in ((a, b), (b, a)):
        assert samples.equivalent(first, second, least * 1.001)
        assert not samples.equivalent(first, second, least * 0.999)
    assert not samples.equivalent(a[:1], b, 1e9)


def packed(n_whole: int, shift: float = 0.0, sizes: tuple[Any, Any] = (1, 8)) -> bool:
    rows = [{"arm": "base", "val_loss": 3.0 + i * 1e-5} for i in range(4)]
    rows += [
        {"arm": "base", "role": "timing", "val_loss": 3.0 + shift + i * 1e-5}
        for i in range(n_whole)
    ]
    runs = table(*rows)
    configs = {f"r{i}": {"world_size": sizes[i >= 4]} for i in range(len(rows))}
    return samples.two_phase_verified(experiment_of(runs, configs=configs), runs, "base")


def test_packed_losses_stand_for_whole_nodes_where_three_of_those_agree_within_the_margin() -> None:
    assert packed(3) and packed(4, 0.0009)
    assert not packed(2)
    assert not packed(4, 0.0011) and not packed(4, -0.0011)
    assert packed(2, 1.0, sizes=(8, 8)) and packed(0)
    runs = table({"arm": "base", "role": "timing"}, {"role": "loss"})
    assert samples.two_phase_verified(experiment_of(runs), runs, "base")


@pytest.mark.parametrize(
    ("of_arm", "of_base", "doubts"),
    [
        ([{}, {"node": "n2"}], [{}, {"node": "n2"}], set()),
        ([{}], [{}], {Caution.ONE_NODE}),
        ([{"node": None}], [{}], {Caution.ONE_NODE}),
        ([{"node": None}], [{"node": None}], set()),
        ([{"node": "n2"}], [{}], {Caution.NO_SHARED_NODE}),
        (
            [{"node": "n2"}, {"node": "n2"}],
            [{}],
            {Caution.NO_SHARED_NODE, Caution.STICKY_NODE},
        ),
        ([{"gpu": "A100"}], [{}], {Caution.ONE_NODE, Caution.MIXED_HARDWARE}),
        ([{"torch": "2.8"}], [{}], {Caution.ONE_NODE, Caution.OTHER_ENVIRONMENT}),
        ([{"imported": True, "node": None}], [{}], {Caution.ONE_NODE, Caution.NODE_UNKNOWN}),
        ([{}], [{"imported": True, "node": None}], {Caution.ONE_NODE, Caution.NODE_UNKNOWN}),
        ([{"imported": True}], [{}], {Caution.ONE_NODE}),
        ([{"block": "0 on n1"}], [{}], {Caution.ONE_NODE, Caution.SPLIT_BLOCK}),
        (
            [{"block": 0, "driver": "550"}],
            [{"block": 0}],
            {Caution.ONE_NODE, Caution.OTHER_ENVIRONMENT, Caution.MIXED_HARDWARE},
        ),
        (
            [{"block": 0, "trunk_s": 4.0}],
            [{"block": 0, "trunk_s": 5.0}],
            {Caution.ONE_NODE, Caution.MIXED_HARDWARE},
        ),
    ],
)
def test_what_is_doubtful_about_times_is_what_of_their_machines_differs(
    of_arm: list[dict[str, Any]], of_base: list[dict[str, Any]], doubts: set[Caution]
) -> None:
    runs = table(*of_arm, *({"arm": "base", **row} for row in of_base))
    assert set(samples.time_warnings(runs, "a", "base")) == doubts


def test_a_mean_needs_one_value_and_an_sd_two() -> None:
    mean, sd = samples.mean_sd(np.array([]))
    assert math.isnan(mean) and sd is None
    assert samples.mean_sd(np.array([2.0])) == (2.0, None)
    assert samples.mean_sd(np.array([2.0, 6.0])) == (4.0, pytest.approx(math.sqrt(8)))
