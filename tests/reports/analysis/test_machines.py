"""Imported times: never across machines, labelled across environments, with the nodes' noise in the interval."""

from pathlib import Path

import pytest

from harness.__main__ import main
from reports.analysis.cautions import Caution
from reports.analysis.compare import compare_all
from reports.inputs.load import load
from reports.inputs.noise import benchmark_noise
from tests.foreign_logs import SMI, year_2025
from tests.report_fixtures import write_experiment

GPU_1 = "|   1  NVIDIA H100"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def compared(folder: Path, old: str, new: str, *, ms: float = 150.0):  # type: ignore[no-untyped-def]
    """Two arms of six logs each, whose tables of GPUs or versions are replaced."""
    for arm, smi, time in (("old", old, 150.0), ("new", new, ms)):
        (folder / arm).mkdir()
        for i in range(6):
            text = year_2025(3.277 + 0.001 * i, ms=time, seed=10 * len(arm) + i + (arm == "new"))
            (folder / arm / f"{i}.txt").write_text(text.replace(SMI, smi))
        with pytest.raises(SystemExit):
            main(["import", arm, "--experiment", "x"])
    return compare_all(load("x"))


def one_gpu() -> str:
    return "\n".join(line for line in SMI.splitlines() if not line.startswith(GPU_1))


@pytest.mark.parametrize(
    "other",
    [one_gpu(), SMI.replace("H100 80GB HBM3", "H200"), SMI.replace("81559MiB", "40960MiB")],
    ids=["count", "name", "memory"],
)
def test_times_of_other_machines_are_no_comparison(other: str, folder: Path) -> None:
    result = compared(folder, SMI, other, ms=1200.0)
    assert result.of("new", "train_time_s") is None
    assert result.of("new", "step_ms") is None
    assert result.of("new", "val_loss") is not None
    assert Caution.MIXED_HARDWARE in result.warnings


def test_a_log_without_a_table_says_nothing_of_its_gpus(folder: Path) -> None:
    result = compared(folder, SMI, "no table")
    assert result.of("new", "train_time_s") is not None


def test_another_environment_is_labelled(folder: Path) -> None:
    other = SMI.replace("Driver Version: 550.127.05", "Driver Version: 570.148.08")
    result = compared(folder, SMI, other)
    time = result.of("new", "train_time_s")
    assert time is not None
    assert Caution.OTHER_ENVIRONMENT in time.warnings
    label = "new: environment effect: driver 570.148.08 instead of 550.127.05."
    assert label in result.notes


def test_equal_environments_have_no_label(folder: Path) -> None:
    result = compared(folder, SMI, SMI)
    time = result.of("new", "train_time_s")
    assert time is not None
    assert Caution.OTHER_ENVIRONMENT not in time.warnings
    assert not any("environment effect" in note for note in result.notes)


def test_where_the_node_is_unknown_an_interval_carries_the_nodes(folder: Path) -> None:
    """Two per cent are less than one program's times differ by from node to node."""
    result = compared(folder, SMI, SMI, ms=147.0)
    time = result.of("new", "train_time_s")
    assert time is not None
    assert Caution.NODE_UNKNOWN in time.warnings
    assert time.ratio_low is not None
    assert time.ratio_high is not None
    assert time.ratio_low < 1 < time.ratio_high
    noise = benchmark_noise().nodes
    assert time.ratio_high / time.ratio > 1 + 2 * 2**0.5 * noise.sd * 0.95
    assert time.p is not None
    assert time.p > 0.3
    assert any(f"{noise.sd:.1%} between nodes" in note for note in result.notes)


def test_a_loss_has_no_node(folder: Path) -> None:
    loss = compared(folder, SMI, SMI).of("new", "val_loss")
    assert loss is not None
    assert Caution.NODE_UNKNOWN not in loss.warnings


def test_times_of_two_makings_of_a_trunk_are_no_comparison(tmp_path: Path) -> None:
    write_experiment(tmp_path)
    experiment = load("split", tmp_path)
    runs = experiment.runs
    runs["trunk_s"] = runs["block"] + 100.0  # another trunk at each seed
    assert compare_all(experiment).of("untied_head", "train_time_s") is not None
    arm = runs["arm"] == "untied_head"
    runs.loc[arm & (runs["block"] == 1), "trunk_s"] = 90.0
    result = compare_all(experiment)
    assert result.of("untied_head", "train_time_s") is None
    assert result.of("untied_head", "val_loss") is not None
    assert Caution.MIXED_HARDWARE in result.warnings
