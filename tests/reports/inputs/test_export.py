"""Tidy tables for other tools."""

import csv
import dataclasses
import importlib.util
from pathlib import Path

import pandas as pd
import pytest

from reports.inputs.experiment import Experiment
from reports.inputs.export import export
from reports.inputs.load import load
from tests.report_arms import HOSTILE, LADDER, Arm
from tests.report_fixtures import write_experiment

PROMISED = {
    "experiment", "arm", "seed", "replicate", "budget", "role", "status", "val_loss", "train_time_s", "step_ms", "steps",
    "tokens", "first_crossing_s", "censored", "peak_allocated_mib", "node", "gpu", "stale", "run_id",
}  # fmt: skip


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    write_experiment(
        tmp_path,
        arms=LADDER[:3],
        n_seeds=3,
        outcome={("r07", 1): "diverged", ("untied_head", 0): "pending"},
    )
    return load("split", results=tmp_path)


def test_every_run_and_every_promised_column_is_exported(experiment, tmp_path):
    with export([experiment], tmp_path / "runs.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 9
    assert set(rows[0]) >= PROMISED
    losses = [float(r["val_loss"]) for r in rows if r["val_loss"]]
    assert losses == experiment.runs["val_loss"].dropna().tolist(), "to the last digit"
    assert sorted({r["status"] for r in rows}) == ["diverged", "finished", "pending"]


def test_curves_give_every_validation_point(experiment, tmp_path):
    table = pd.read_csv(export([experiment, experiment], tmp_path / "points.csv", curves=True))
    assert len(table) == 2 * len(experiment.curves)
    assert list(table.columns[:2]) == ["experiment", "run_id"]


def test_hostile_names_survive_the_round_trip(tmp_path):
    write_experiment(tmp_path, arms=HOSTILE, n_seeds=2, design="add-one")
    table = pd.read_csv(export([load("split", results=tmp_path)], tmp_path / "runs.csv"))
    assert set(table["arm"]) == {a.name for a in HOSTILE}


def test_a_spreadsheet_takes_no_name_for_a_formula(tmp_path):
    names = ["base", "=1+1", "+cmd|' /C calc'!A0", "-2", "@SUM(A1)", "\uff1d1", "a=b"]
    arms = [Arm(name=n, fields=((f"model.f{i}", True),)) for i, n in enumerate(names)]
    write_experiment(tmp_path, arms=arms, n_seeds=1, design="add-one")
    loaded = load("split", results=tmp_path)
    for curves in (False, True):
        table = pd.read_csv(export([loaded], tmp_path / "out.csv", curves=curves))
        assert set(table["arm"]) == {
            "base",
            "'=1+1",
            "'+cmd|' /C calc'!A0",
            "'-2",
            "'@SUM(A1)",
            "'\uff1d1",
            "a=b",
        }
    plain = loaded.runs.assign(val_loss=-loaded.runs["val_loss"])
    negative = export([dataclasses.replace(loaded, runs=plain)], tmp_path / "out.csv")
    assert pd.read_csv(negative)["val_loss"].tolist() == plain["val_loss"].tolist(), (
        "numbers stay numbers"
    )


def test_other_file_names_and_nothing_to_export_are_refused(experiment, tmp_path):
    for name, given, said in (
        ("runs.xlsx", [experiment], "cannot write .xlsx; name a .csv or .parquet file"),
        (
            "none",
            [experiment],
            "cannot write a file without a suffix; name a .csv or .parquet file",
        ),
        ("runs.csv", [], "no experiment was given to export"),
    ):
        with pytest.raises(ValueError, match=r"export|name a") as refused:
            export(given, tmp_path / name)
        assert str(refused.value) == f"{tmp_path / name}: {said}"
    assert list(tmp_path.glob("*runs*")) == [tmp_path / "runs"]


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is not None, reason="pyarrow is installed")
def test_parquet_without_pyarrow_says_how_to_get_it(experiment, tmp_path):
    with pytest.raises(ValueError, match="pip install pyarrow"):
        export([experiment], tmp_path / "runs.parquet")
    assert not (tmp_path / "runs.parquet").exists()


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="pyarrow is not installed")
def test_parquet_gives_the_same_table_back(experiment, tmp_path):
    table = pd.read_parquet(export([experiment], tmp_path / "runs.parquet"))
    assert table["run_id"].tolist() == experiment.runs["run_id"].tolist()
