"""What times to target are made of: log step times with the error of nodes, and why there is no model; by hand."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness.run.plan import Plan, PlanArm, Target
from reports.analysis.cautions import Caution
from reports.analysis.time_model import TimeModel
from reports.inputs.experiment import Experiment
from reports.inputs.noise import benchmark_noise
from reports.stats.intervals import Estimate, total

ARMS = ("base", "a", "b")
TARGET = 3.28
NOISE = (0.0006, -0.0004, -0.0005, 0.0003, 0.0007, -0.0002, -0.0006)


def losses(*budgets: int, n: int = 3, arms: tuple[str, ...] = ARMS[:2]) -> pd.DataFrame:
    """Runs on a common line through the target at 3000 steps, and what times are compared by."""
    rows: list[dict[str, Any]] = []
    for arm in arms:
        for seed in range(n):
            for budget in budgets:
                loss = TARGET - 0.19 * math.log(budget / 3000) + NOISE[len(rows) % 7]
                rows.append(
                    {
                        "arm": arm,
                        "seed": seed,
                        "block": seed,
                        "budget": budget,
                        "val_loss": loss,
                        "step_ms": 100.0 + seed + (arm == "a"),
                        "status": "finished",
                        "run_id": f"r{len(rows)}",
                        "device": "cuda",
                        "node": "n1",
                    }
                )
    return pd.DataFrame(rows)


def model_of(
    runs: pd.DataFrame, *, timed: pd.DataFrame | None = None, target: Any = TARGET, **how: Any
) -> TimeModel:
    if not isinstance(target, Target | None):
        target = Target(val_loss=target)
    arms = tuple(PlanArm(name=name, of=name) for name in ARMS)
    plan = Plan(name="x", baseline="base", arms=arms, target=target, seeds=(0, 1, 2), **how)
    experiment = Experiment(
        name="x", plan=plan, runs=runs, curves=runs, environments={}, configs={}, results={}
    )
    if timed is None:
        timed = runs[runs["budget"] == runs["budget"].max()]
    return TimeModel.of(experiment, runs, timed, ARMS)


# ---------------------------------------------------------------- why there is none


def edited(runs: pd.DataFrame, rows: Any, column: str, value: Any) -> pd.DataFrame:
    changed = runs.copy()
    changed.loc[rows, column] = value
    return changed


TWO = losses(2700, 3300)
SLOPE = {"per_step": 0.19 / 3000, "se": 0.0}


@pytest.mark.parametrize(
    ("runs", "how", "why"),
    [
        (TWO, {"target": None}, "the experiment has no target loss"),
        (
            TWO,
            {"target": Target(val_loss=None, from_baseline=True)},
            "the target is set by the baseline's first block, which is not finished",
        ),
        (TWO[TWO["arm"] == "a"], {}, "the baseline has no finished run"),
        (
            edited(TWO, TWO["arm"] == "base", "status", "failed"),
            {},
            "the baseline has no finished run",
        ),
        (TWO[:0], {}, "the baseline has no finished run"),
        (edited(TWO, 11, "status", "diverged"), {}, "runs diverged, so no mean loss against steps"),
        (losses(2700, 3300, n=1, arms=("base",)), {}, "too few runs for an error: add seeds"),
        (losses(3000, n=1), {"slope": SLOPE}, "too few runs for an error: add seeds"),
        (losses(3000), {}, Caution.FEW_BUDGETS.text),
    ],
)
def test_where_no_line_can_be_fitted_it_says_why(
    runs: pd.DataFrame, how: dict[str, Any], why: str
) -> None:
    found = model_of(runs, **how)
    assert found.model is None
    assert found.why_not.startswith(why)
    few = why == Caution.FEW_BUDGETS.text
    assert found.warnings == ((Caution.FEW_BUDGETS,) if few else ())
    assert found.log_ratio("a") is None


def test_a_fitted_line_is_that_of_finished_runs_of_arms_that_have_some() -> None:
    runs = edited(TWO, 0, "status", "failed")
    runs = edited(runs, 1, "val_loss", float("nan"))
    found = model_of(runs)
    assert found.model is not None
    assert (found.arms, found.why_not, found.warnings) == (("base", "a"), "", ())
    assert len(found.runs) == 10
    assert model_of(losses(3000), slope=SLOPE).warnings == (Caution.SLOPE_GIVEN,)


def test_the_block_that_sets_the_target_takes_no_part() -> None:
    found = model_of(TWO, target=Target(val_loss=TARGET, from_baseline=True))
    assert sorted(set(found.runs["seed"])) == [1, 2]


def test_lines_of_their_own_are_told() -> None:
    steep = TWO["val_loss"] - 0.2 * np.log(TWO["budget"] / 3000) * (TWO["arm"] == "a")
    assert model_of(TWO.assign(val_loss=steep)).warnings == (Caution.SLOPES_DIFFER,)


# ---------------------------------------------------------------- step times


def test_a_mean_step_time_needs_two_runs_and_has_the_error_of_their_logs() -> None:
    timed = TWO[TWO["budget"] == 3300]
    found = model_of(TWO, timed=timed[:4])  # three of the baseline, one of a
    log_ms = np.log([100.0, 101.0, 102.0])
    estimate = found.log_step("base")
    assert estimate is not None
    assert estimate.value == pytest.approx(log_ms.mean())
    assert (estimate.se, estimate.df) == (pytest.approx(log_ms.std(ddof=1) / math.sqrt(3)), 2.0)
    assert found.log_step("a") is None
    assert model_of(TWO, timed=timed[1:4]).log_step("base") is not None


def test_times_of_a_seed_on_several_nodes_carry_what_a_node_may_add() -> None:
    timed = TWO[TWO["budget"] == 3300]
    of_runs = model_of(TWO, timed=timed).log_step("base")
    cut = model_of(TWO, timed=timed.assign(block=[f"{s} on n{s}" for s in timed["seed"]]))
    nodes = benchmark_noise().nodes
    assert of_runs is not None and cut.is_cut
    assert cut.log_step("base") == total(of_runs, Estimate(value=0.0, se=nodes.sd, df=nodes.df))


def test_a_ratio_of_times_is_that_of_steps_and_step_times_of_runs_side_by_side() -> None:
    found = model_of(TWO)
    ratio = found.log_ratio("a")
    assert found.model is not None and ratio is not None
    d = np.log([101 / 100, 102 / 101, 103 / 102])
    steps = found.model.shift(1)
    paired = Estimate(value=d.mean(), se=d.std(ddof=1) / math.sqrt(3), df=2.0)
    expected = total(steps, paired)
    assert (ratio.value, ratio.se, ratio.df) == pytest.approx(
        (expected.value, expected.se, expected.df)
    )
    turned = found.log_ratio("base", "a")
    assert turned is not None and turned.value == pytest.approx(-ratio.value)
    assert found.log_ratio("base") is None
    assert found.log_ratio("b") is None and found.log_ratio("a", "b") is None  # b has no runs


@pytest.mark.parametrize("nodes", [("n1", "n1"), ("n1", "n2")])
def test_times_of_blocks_that_are_not_shared_carry_the_noise_of_two_nodes_if_there_are_two(
    nodes: tuple[str, str],
) -> None:
    timed = TWO[TWO["budget"] == 3300]
    is_a = timed["arm"] == "a"
    apart = timed.assign(block=timed["block"] + 10 * is_a, node=np.where(is_a, *nodes[::-1]))
    found = model_of(TWO, timed=apart)
    ratio, same = found.log_ratio("a"), model_of(TWO, timed=apart.assign(node="n1")).log_ratio("a")
    assert ratio is not None and same is not None
    assert found.elsewhere == (frozenset() if nodes[0] == nodes[1] else {"a"})
    if nodes[0] == nodes[1]:
        assert ratio == same
    else:
        wider = math.hypot(same.se, benchmark_noise().nodes.of_two.se)
        assert (ratio.value, ratio.se) == pytest.approx((same.value, wider))
    side_by_side = timed.assign(node=np.where(is_a, *nodes[::-1]))
    assert model_of(TWO, timed=side_by_side).log_ratio("a") == model_of(TWO).log_ratio("a")


def test_a_ratio_needs_times_of_the_same_hardware_of_both() -> None:
    timed = TWO[TWO["budget"] == 3300]
    other = timed.assign(device=np.where(timed["arm"] == "a", "cpu", "cuda"))
    found = model_of(TWO, timed=other)
    assert found.comparable == {"base", "b"}
    assert found.log_ratio("a") is None
    assert model_of(TWO, timed=timed[timed["arm"] == "base"]).log_ratio("a") is None


def test_the_times_beside_a_comparison_have_the_arms_time_as_their_mean() -> None:
    found = model_of(TWO)
    sample = found.time_sample("a", 500.0)
    assert np.exp(sample.values.mean()) == pytest.approx(500.0)
    assert np.diff(sample.values) == pytest.approx(np.diff(np.log([101.0, 102.0, 103.0])))
    assert sample.blocks == found.step["a"].blocks
    assert found.time_sample("a", None).values.tolist() == found.step["a"].values.tolist()


@pytest.mark.parametrize(
    ("factor", "is_far"),
    [(1.0, False), (1.19, False), (1 / 1.19, False), (1.21, True), (1 / 1.21, True)],
)
def test_a_given_slope_carries_a_fifth_of_the_budget_and_no_further(
    factor: float, is_far: bool
) -> None:
    model = SimpleNamespace(given=True, theta=lambda i: math.log(factor))
    of_slope: Any = SimpleNamespace(model=model, target=3.28, arms=("baseline",))
    assert TimeModel.extrapolated(of_slope, "baseline") is is_far
