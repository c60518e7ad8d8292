"""`ablate ab --pool`: earlier losses of the baseline are borrowed where fresh runs agree with them, and the page says so."""

import itertools
import json
import re
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from harness.cli.ab_options import AbOptions
from harness.cli.ab_pool import borrowing
from harness.foreign import pool as pool_module
from harness.foreign.pool import at_every_seed, borrowable, earlier_runs, node_class
from harness.run.ledger import read_ledger
from reports.inputs.load import load
from reports.page.write import write_report
from reports.stats.pool import drift_p
from reports.verify.verify import verify
from tests.foreign_bench import CPU, ablate, bench
from tests.one_run import SPEC
from tests.proof.__main__ import written_rows
from tests.proof.pool import AGREE, BOTH_RUNS, FRESH, POOLED_RUNS, WITHOUT


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "marks").mkdir()
    monkeypatch.setenv("MARKS", str(tmp_path / "marks"))  # a run's noise is that of its turn
    folder = bench(tmp_path, monkeypatch)
    assert ablate("ab", "old.py", "new.py", *CPU, "-n", 5) == 0  # five runs to borrow
    Path("other.py").write_text(Path("new.py").read_text() + "\nother = True\n")
    return folder


def asked(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    capsys.readouterr()
    assert ablate("ab", "old.py", "other.py", *CPU, "--json", *arguments) == 0
    return json.loads(capsys.readouterr().out)


def test_earlier_losses_are_borrowed_and_the_page_says_how_many(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verdict = asked(capsys, "--pool", "-n", 4)
    assert len(list((folder / "marks").iterdir())) == 10 + 2 + 4
    assert [arm["runs"] for arm in verdict["arms"]] == [7, 4]
    loss = next(c for c in verdict["comparisons"] if c["metric"] == "val_loss")
    assert (loss["n_baseline"], loss["method"]) == (7, "Welch t, Holm")
    assert any(note.startswith("5 of 7 losses of old are borrowed") for note in verdict["notes"])
    time = next(c for c in verdict["comparisons"] if c["metric"] == "train_time_s")
    assert time["n"] == 2  # of the blocks in which both ran
    experiment = load("ab-old-other")
    assert experiment.runs["borrowed"].sum() == 5
    page = write_report([experiment], folder / "page.html")
    assert verify(page) == []
    said = (
        r"5 of 7 losses of old are borrowed from earlier experiments, begun [0-9.]+ to [0-9.]+ h "
    )
    assert re.search(said, page.read_text())
    again = asked(capsys, "--pool", "-n", 4)
    assert again["comparisons"] == verdict["comparisons"]
    assert len(list((folder / "marks").iterdir())) == 16


def test_a_pool_that_fresh_runs_disagree_with_is_not_borrowed(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BETTER", "0.01")  # ten sds, of whatever is not in the runs' identity
    verdict = asked(capsys, "--pool", "-n", 3)
    assert [arm["runs"] for arm in verdict["arms"]] == [3, 3]
    assert not any("borrowed" in note for note in verdict["notes"])


def test_a_budget_that_does_not_pay_for_the_fresh_runs_starts_none_and_takes_no_place_in_a_stream(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    until = (*CPU, "--until", "decided", "--pool", "--stream", "daily")
    assert ablate("ab", "old.py", "other.py", *until, "--budget", "3runs") == 2
    assert "--budget 3runs: the first 4 runs take more" in capsys.readouterr().err
    assert len(list((folder / "marks").iterdir())) == 10
    assert not read_ledger(Path("results")).streams


def test_what_the_rest_takes_has_one_count_of_runs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    until = (*CPU, "--until", "decided", "--pool", "--budget", "4runs", "--json")
    assert ablate("ab", "old.py", "other.py", *until) == 5
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["decision"]["spent"]["runs"] == 4
    loss = next(c for c in verdict["comparisons"] if c["metric"] == "val_loss")
    assert (
        verdict["decision"]["rest"]["runs"] == loss["next_cost"]["runs"] == loss["more_seeds"] > 0
    )
    assert loss["next_action"].endswith(f": {loss['more_seeds']} runs")
    assert loss["next_cost"]["hours"] > 0


def test_few_runs_are_no_pool_and_another_node_has_none(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("old.py").write_text(Path("old.py").read_text() + "\nedited = True\n")
    assert ablate("ab", "old.py", "other.py", *CPU, "-n", 1, "--pool") == 0
    assert "--pool: 0 earlier runs of old: none is borrowed" in capsys.readouterr().out
    gpus = [{"name": "NVIDIA H100"}] * 2
    assert node_class({"gpus": gpus, "cpu": "x"}) == node_class({"gpus": gpus, "cpu": "y"})
    assert node_class({"gpus": gpus}) == node_class({"gpus": gpus[:1]}), "a run takes its own"
    assert node_class({"gpus": gpus}) != node_class({"gpus": [{"name": "NVIDIA H200"}] * 2})
    assert node_class({"gpus": None, "cpu": "x"}) != node_class({"cpu": "y"})


@dataclass(frozen=True)
class Seen:
    """An experiment whose baseline ran before."""

    baseline: Any
    name: str = "x"
    primary: str = "val_loss"
    borrowed: tuple[int, ...] = ()


@pytest.mark.parametrize(("n", "n_borrowed"), [(4, 0), (5, 5), (6, 6)])
def test_earlier_runs_are_borrowed_from_five_on(
    n: int, n_borrowed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished = SimpleNamespace(status="finished")
    specs = [SimpleNamespace(run_id=str(i), replicate=i) for i in range(n)]
    pool = [SimpleNamespace(spec=spec, result=finished) for spec in specs]
    monkeypatch.setattr(pool_module, "borrowable", lambda *_: pool)
    old = SimpleNamespace(name="old", trainer=SimpleNamespace(seeded=False))
    e: Any = Seen(old)
    asked = AbOptions(old="old.py", new=["new.py"], results=tmp_path)
    assert borrowing(e, asked).borrowed == tuple(range(n_borrowed))


def test_a_script_that_takes_the_blocks_seed_borrows_nothing_and_is_told_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bench(tmp_path, monkeypatch)
    seeded = (*CPU, "-n", 1, "--env", "SEED={seed}")
    assert ablate("ab", "old.py", "new.py", *seeded, "--pool") == 0
    said = "--pool: runs of old are paired by the block's seed: none is borrowed"
    assert said in capsys.readouterr().out


def test_earlier_runs_are_looked_for_as_far_as_the_gap_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = []

    def result_of(folder: str, run_id: str) -> Any:
        looked.append(run_id)
        return {"run-7": "a result", "run-207": "the last"}.get(run_id)

    specs = (SimpleNamespace(run_id=f"run-{number}") for number in itertools.count())
    monkeypatch.setattr(pool_module, "spec_of", lambda e, arm: None)
    monkeypatch.setattr(pool_module, "at_every_seed", lambda spec, *, seeded: specs)
    monkeypatch.setattr(pool_module, "result_in", result_of)
    arm: Any = SimpleNamespace(trainer=SimpleNamespace(seeded=False))
    found = earlier_runs(SimpleNamespace(), arm, tmp_path)  # type: ignore[arg-type]
    assert [run.result for run in found] == ["a result", "the last"]
    assert len(looked) == 208 + 200, "names of a hundred seeds, two of each"


def test_the_drift_check_is_a_t_test_by_the_pools_sd() -> None:
    pool, fresh = np.array([1.0, 2.0, 3.0, 4.0]), np.array([5.0, 5.5])
    t = (5.25 - 2.5) / (pool.std(ddof=1) * np.sqrt(1 / 4 + 1 / 2))
    assert drift_p(pool, fresh) == pytest.approx(2 * stats.t.sf(t, 3))
    assert drift_p(pool[:1], fresh) == 1.0
    assert (drift_p(np.ones(5), fresh), drift_p(np.ones(5), np.ones(2))) == (0.0, 1.0)


def test_a_pool_of_20_has_the_same_power_from_at_most_three_fifths_of_the_runs() -> None:
    power = {row.kind: row.power for row in written_rows() if row.power is not None}
    assert power[AGREE[1]] >= power[WITHOUT]
    assert POOLED_RUNS + FRESH <= 0.6 * 2 * BOTH_RUNS


def test_runs_of_a_script_with_a_seed_are_two_of_each_and_of_another_numbered() -> None:
    seeded = itertools.islice(at_every_seed(SPEC, seeded=True), 5)
    assert [(s.seed, s.replicate) for s in seeded] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]
    bare = itertools.islice(at_every_seed(SPEC, seeded=False), 3)
    assert [(s.seed, s.replicate) for s in bare] == [(3, 0), (3, 1), (3, 2)]


def test_runs_of_this_experiment_of_another_node_and_of_no_known_node_are_not_borrowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = {"cpu": "this one"}
    told = {"a": here, "b": {"cpu": "another"}, "c": here, "own": here, "d": here}
    for name, environment in told.items():
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "environment.json").write_text(json.dumps(environment))
    (tmp_path / "runs/c/environment.json").write_text("{")
    runs = [SimpleNamespace(spec=SimpleNamespace(run_id=name)) for name in told]
    known = SimpleNamespace(to_json=lambda: here)
    monkeypatch.setattr(pool_module, "describe_environment", lambda: known)
    monkeypatch.setattr(pool_module, "earlier_runs", lambda *_: runs)
    made = [
        SimpleNamespace(run_id="own", borrowed=False),
        SimpleNamespace(run_id="a", borrowed=True),
    ]
    plan: Any = SimpleNamespace(runs=made)

    def names(seeded: bool, plan: Any) -> list[str]:
        e: Any = Seen(SimpleNamespace(trainer=SimpleNamespace(seeded=seeded)))
        return [run.spec.run_id for run in borrowable(e, tmp_path, plan)]

    assert names(False, plan) == ["a", "d"]
    assert names(False, None) == ["a", "own", "d"]
    assert names(True, plan) == []
