"""Runs of a block on several nodes: times are compared within seed and node, and what cannot be is told."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from reports.analysis.cautions import Caution
from reports.analysis.compare import compare_all
from reports.analysis.machines import cut_by_node, on_several_nodes
from reports.analysis.samples import sample
from reports.inputs.experiment import Experiment
from reports.inputs.load import load
from reports.inputs.noise import benchmark_noise
from reports.page.write import write_report
from reports.stats.contrasts import analyse
from reports.stats.node_noise import with_nodes
from reports.verify.verify import verify
from tests.proof.nodes import PLACES, drawn, intervals
from tests.report_fixtures import Arm, write_experiment

SAME = (Arm(name="base"), Arm(name="same", fields=(("model.untied_head", True),)))
SLOWER_NODE = 1.02


def placed(root: Path, of_base: str, of_same: str) -> Experiment:
    """Equal arms; each letter names the node of a seed's run, and node b takes 2 % more time."""
    write_experiment(root, arms=SAME, n_seeds=len(of_base))
    experiment = load("split", root)
    runs = experiment.runs
    for arm, nodes in (("base", of_base), ("same", of_same)):
        for seed, node in enumerate(nodes):
            row = (runs["arm"] == arm) & (runs["seed"] == seed)
            runs.loc[row, "node"] = node
            runs.loc[row, "step_ms"] *= SLOWER_NODE if node == "b" else 1.0
    return experiment


def differences(experiment: Experiment, seeds: tuple[int, ...]) -> float:
    logs = {}
    for arm in ("base", "same"):
        rows = experiment.runs[experiment.runs["arm"] == arm].set_index("seed")
        logs[arm] = np.log(rows.loc[list(seeds), "step_ms"].to_numpy(float))
    return float(np.exp((logs["same"] - logs["base"]).mean()))


def test_times_are_compared_within_seed_and_node(tmp_path: Path) -> None:
    experiment = placed(tmp_path, "aabbab", "bbbbab")
    outcome = compare_all(experiment)
    step = outcome.of("same", "step_ms")
    assert step is not None and step.n_blocks == 4
    assert step.ratio == pytest.approx(differences(experiment, (2, 3, 4, 5)), rel=1e-12)
    assert Caution.SPLIT_BLOCK in step.warnings and Caution.STICKY_NODE not in step.warnings
    loss = outcome.of("same", "val_loss")
    assert loss is not None and loss.n_blocks == 6
    page = write_report([experiment], tmp_path / "page.html")
    assert verify(page) == []


def test_an_arm_that_is_always_on_one_node_is_not_slower_for_it(tmp_path: Path) -> None:
    experiment = placed(tmp_path, "aaaaaa", "bbbbbb")
    step = compare_all(experiment).of("same", "step_ms")
    assert step is not None and step.ratio == pytest.approx(SLOWER_NODE, rel=0.01)
    assert step.n_blocks == 0 and step.ratio_low is not None and step.ratio_low < 0.97
    assert {Caution.STICKY_NODE, Caution.NO_SHARED_NODE, Caution.SPLIT_BLOCK} <= set(step.warnings)
    assert step.verdict.startswith("undecided")
    page = write_report([experiment], tmp_path / "page.html")
    assert verify(page) == []


def test_blocks_that_each_have_a_node_are_paired_whole(tmp_path: Path) -> None:
    step = compare_all(placed(tmp_path, "ababab", "ababab")).of("same", "step_ms")
    assert step is not None and step.n_blocks == 6
    assert Caution.SPLIT_BLOCK not in step.warnings and Caution.STICKY_NODE not in step.warnings


@pytest.mark.parametrize("place", PLACES)
def test_the_batch_of_nodes_is_the_production_analysis(place: str) -> None:
    y, nodes = drawn(np.random.default_rng(7), 6, 5, PLACES[place])
    delta, half = intervals(y, nodes)
    for r in range(len(y)):
        block, arm = np.indices(y[r].shape).reshape(2, -1)
        names = [f"n{i}" for i in nodes[r].ravel()]
        columns = {"arm": arm.astype(str), "block": block, "node": names, "status": "finished"}
        times = {"run_id": "", "step_ms": np.exp(y[r]).ravel()}
        runs = cut_by_node(pd.DataFrame(columns | times))
        effect = analyse({"1": sample(runs, "1", "step_ms")}, sample(runs, "0", "step_ms"))["1"]
        if not effect.n_blocks and on_several_nodes(runs, "0", "1"):
            effect = with_nodes(effect, benchmark_noise().nodes, alpha=0.05, m=1)
        assert effect.delta == pytest.approx(delta[r])
        if effect.low is None or effect.high is None:
            assert np.isinf(half[r])
        else:
            ends = (delta[r] - half[r], delta[r] + half[r])
            assert (effect.low, effect.high) == pytest.approx(ends, rel=1e-6)
