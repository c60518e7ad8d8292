"""Successive halving: rung after rung by the command that a user types, and nothing judged by the runs that chose it."""

import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace

import pandas as pd
import pytest
import yaml

from harness.cli.plan_rungs import RungFacts, rung_words
from harness.cli.run import check_cost, planned_part
from harness.cli.run_options import RunOptions
from harness.errors import UserError
from harness.experiment.cost import PricedCost
from harness.experiment.experiment import load_experiment
from harness.experiment.rungs import at_rung, rungs_to_come
from harness.run.halving import Halving
from harness.run.read import read_json
from reports.analysis.adaptive import best_points
from reports.verify.verify import verify
from tests.fake_matrix import DEADLINE_S, EXPERIMENT, Matrix
from tests.warm import forked_ablate

KEYS = """
axes: {optim.muon_lr: [x0.5, x0.7, x1.4, x2]}
budgets: [x0.5, 20]
halving: 2
seeds: 2
"""
RUNGS = (10, 6)  # runs


def halved(folder: Path, keys: str = KEYS, **environment: str) -> Matrix:
    matrix = Matrix(folder, FAKE_MARKS=str(folder), **environment)
    matrix.file.write_text(EXPERIMENT.partition("changes:")[0] + keys)
    return matrix


def read_plan_of(matrix: Matrix, name: str) -> dict:
    return read_json(matrix.results / "experiments" / name / "experiment.json")


def points(matrix: Matrix, name: str) -> list[str]:
    return [arm["name"] for arm in read_plan_of(matrix, name)["arms"][1:]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    matrix = halved(tmp_path_factory.mktemp("halved"))
    code, out, err = matrix.run()
    assert (code, "rung 2 of 2, 20 steps" in out) == (0, True), err
    return matrix


def test_the_best_half_goes_on_and_is_selected_by_its_mean(whole: Matrix) -> None:
    means: dict[str, dict[str, float]] = {}
    for name in ("fake.rung1", "fake"):
        plan = read_plan_of(whole, name)
        losses: dict[str, list[float]] = {}
        for run in plan["runs"]:
            result = read_json(whole.results / "runs" / run["run_id"] / "result.json")
            losses.setdefault(run["arm"], []).append(result["val_loss"])
        means[name] = {arm: sum(of) / len(of) for arm, of in losses.items()}
    first, last = means["fake.rung1"], means["fake"]
    assert {run["budget"] for run in read_plan_of(whole, "fake.rung1")["runs"]} == {10}
    assert {run["budget"] for run in read_plan_of(whole, "fake")["runs"]} == {20}
    best = sorted((arm for arm in first if arm != "baseline"), key=first.__getitem__)[:2]
    assert set(points(whole, "fake")) == {*best} and len(last) == 3
    said = whole.forked("compare", "fake").stdout
    chosen = min(best, key=last.__getitem__)
    assert f"Selected by halving: {chosen}" in said
    assert "not judged" in said and "better" not in said.partition("Selected")[0]
    again = whole.run()
    assert (again[0], "rung" in again[1]) == (0, False)


def test_the_page_judges_nothing_and_what_it_says_is_verified(whole: Matrix) -> None:
    assert whole.forked("report", "fake").returncode == 0
    page = whole.results / "experiments" / "fake" / "report.html"
    assert verify(page, whole.results) == []
    text = page.read_text()
    assert "Halving, rung 1 of 2: of 4 points at 10 steps" in text
    forged = text.replace("the best of 4 points", "the best of 5 points", 1)
    assert forged != text
    page.write_text(forged)
    assert any("the best of 5 points" in sentence for sentence in verify(page))
    page.write_text(text)


@pytest.mark.slow
def test_a_halving_is_renamed_with_its_page_and_deleted_after_its_rungs(
    whole: Matrix, tmp_path: Path
) -> None:
    results = tmp_path / "results"
    copytree(whole.results, results)

    def typed(*arguments: str) -> subprocess.CompletedProcess[str]:
        return forked_ablate(*arguments, "--results", str(results), cwd=tmp_path)

    needed = typed("delete", "fake.rung1", "--runs")
    assert needed.returncode == 2
    assert "fake took learning rates or points from it" in needed.stderr
    said = typed("compare", "fake").stdout
    assert typed("rename", "fake", "other").returncode == 0
    assert typed("compare", "other").stdout == said.replace(
        "fake.yaml", "fake.yaml --set name=other"
    ).replace("fake:", "other:")
    asked = typed("confirm", str(whole.file), "--set", "name=other")
    chosen = asked.stderr.partition("--arm '")[2].partition("'")[0]
    out = tmp_path / "confirming.yaml"
    confirming = ("confirm", str(whole.file), "--set", "name=other", "--arm", chosen)
    written = typed(*confirming, "--margin", "0.05", "-o", str(out))
    assert written.returncode == 0, written.stderr
    assert load_experiment(str(out), device="cpu").name == "other_confirm"
    assert typed("report", "other").returncode == 0
    page = results / "experiments" / "other" / "report.html"
    assert verify(page, results) == []
    assert typed("rename", "fake.rung1", "first").returncode == 2
    for name in ("other", "fake.rung1"):
        gone = typed("delete", name, "--runs")
        assert gone.returncode == 0, gone.stderr
    assert list((results / "runs").iterdir()) == list((results / "experiments").iterdir()) == []


@pytest.mark.slow
def test_what_it_selects_is_confirmed_by_name_alone(whole: Matrix) -> None:
    refused = whole.forked("confirm", str(whole.file))
    assert refused.returncode == 2 and "confirm: name the selected point: --arm '" in refused.stderr
    chosen = refused.stderr.partition("--arm '")[2].partition("'")[0]
    out = whole.results.parent / "confirming.yaml"
    asked = ("confirm", str(whole.file), "--arm", chosen, "--margin", "0.05", "-o", str(out))
    written = whole.forked(*asked)
    assert written.returncode == 0, written.stderr
    assert written.stdout.endswith(f"\nnext: ablate plan {out}\n")
    e = load_experiment(str(out), device="cpu")
    assert (len(e.arms), e.budgets, e.confirm, e.halving) == (2, (20,), True, None)
    assert min(e.seeds) >= 1000 and "1 of 4 arms of fake" in e.question
    unknown = whole.forked("confirm", str(whole.file), "--arm", "elsewhere")
    assert (unknown.returncode, unknown.stderr.count("\n")) == (2, 1)


@pytest.mark.slow
def test_a_plan_tells_every_rung_with_its_cost(tmp_path: Path) -> None:
    matrix = halved(tmp_path)
    said = matrix.forked("plan", str(matrix.file), "--price", "100").stdout
    assert "rung 1 of 2: the best 2 points go on" in said
    assert "then 2 points and the baseline at 20 steps: 6 runs" in said
    facts = yaml.safe_load(matrix.forked("plan", str(matrix.file), "--json").stdout)
    assert [rung["runs"] for rung in facts["rungs"]] == [RUNGS[1]]
    (rung,) = facts["rungs"]
    assert rung["hours"] == pytest.approx(rung["hours_at_most"])
    dry = matrix.run("--dry-run")
    assert dry[0] == 0 and "all rungs together" in dry[1]
    hours = facts["cost"]["slot_hours"] + rung["hours"] / 2
    over = matrix.run("--max-gpu-hours", f"{hours:.8f}")
    assert over[0] == 2 and f"{sum(RUNGS)} runs need about" in over[2]
    assert not (matrix.results / "experiments").exists()


def test_a_rung_to_come_costs_what_its_dearest_points_do_at_most(tmp_path: Path) -> None:
    matrix = halved(
        tmp_path,
        KEYS.replace("optim.muon_lr: [x0.5, x0.7, x1.4, x2]", "model.n_layer: [1, 3, 4, 8]"),
    )
    facts = yaml.safe_load(matrix.forked("plan", str(matrix.file), "--json").stdout)
    (rung,) = facts["rungs"]
    assert rung["hours_at_most"] > 1.2 * rung["hours"]
    first = at_rung(load_experiment(str(matrix.file), device="cpu"), 0)
    (to_come,) = rungs_to_come(first)
    assert to_come.n_points == 2
    for n_left, n_points in ((3, 2), (2, 2), (1, 1)):  # where fewer came so far
        (fewer,) = rungs_to_come(replace(first, arms=first.arms[: 1 + n_left]))
        assert fewer.n_points == n_points
    assert [*to_come.of_points][:2] == ["baseline @ n_layer 8", "baseline @ n_layer 4"]


def test_a_rung_costs_no_more_than_is_allowed_with_those_to_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(halved(tmp_path).file)
    first = at_rung(load_experiment(file, device="cpu"), 0)
    asked = RunOptions(experiment=file, results=tmp_path, max_gpu_hours=1e-9)
    part = planned_part(first, replace(asked, dry_run=True))
    with pytest.raises(UserError, match=f"{sum(RUNGS)} runs need about"):
        check_cost(part, asked)
    check_cost(part, replace(asked, max_gpu_hours=9.0))
    check_cost(part, replace(asked, max_gpu_hours=None))
    with pytest.raises(UserError, match="after 9 "):
        check_cost(part, replace(asked, max_gpu_hours=9.0), already=9.0)
    done = tmp_path / "runs" / part.runs[0].spec.run_id
    monkeypatch.setattr("harness.run.results.read_result", lambda run: run == done or None)
    with pytest.raises(UserError, match=f"{sum(RUNGS) - 1} runs need about"):
        check_cost(part, asked)


def test_rungs_before_the_last_keep_the_name_they_were_run_under(tmp_path: Path) -> None:
    """Of a halving that was renamed since; the last one has the name of the whole."""
    e = load_experiment(str(halved(tmp_path).file), device="cpu")
    for known_as, first in (("", "fake.rung1"), ("old", "old.rung1")):
        rungs = [at_rung(e, rung, known_as=known_as) for rung in range(2)]
        assert [rung.name for rung in rungs] == [first, "fake"]
        assert rungs[0].grid is None
        assert rungs[1].grid is not None and rungs[1].grid.name == first


@pytest.mark.slow
def test_a_killed_halving_goes_on_where_it_was_and_two_runners_make_one(
    tmp_path: Path, whole: Matrix
) -> None:
    matrix = halved(tmp_path, FAKE='{"1": "hold each once"}')
    process = matrix.start("--max-parallel", "1")
    matrix.at("hold", 1)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=DEADLINE_S)
    (tmp_path / "go").touch()
    both = [matrix.start(), matrix.start()]
    ends = [process.communicate(timeout=DEADLINE_S) for process in both]
    assert [process.returncode for process in both] == [0, 0], ends
    assert points(matrix, "fake") == points(whole, "fake")
    ids = [{run["run_id"] for run in read_plan_of(m, "fake")["runs"]} for m in (matrix, whole)]
    assert ids[0] == ids[1]


@pytest.mark.slow
def test_where_no_point_is_whole_nothing_goes_on(tmp_path: Path) -> None:
    matrix = halved(tmp_path, FAKE='{"1": "nan"}')
    code, _, err = matrix.run()
    assert (code, err.count("\n")) == (2, 1)
    assert "experiment 'fake.rung1': no point of it has a loss at every seed" in err


def rung_of(losses: dict[str, list[float | None]]) -> SimpleNamespace:
    """What best_points asks of an experiment."""
    rows = []
    for arm, of_arm in losses.items():
        for loss in of_arm:
            status = "finished" if loss is not None else "diverged"
            rows.append({"arm": arm, "status": status, "val_loss": loss})
    plan = SimpleNamespace(by_arm=dict.fromkeys(losses), baseline="base")
    return SimpleNamespace(name="exp", plan=plan, runs=pd.DataFrame(rows))


def test_ties_go_to_the_first_point_and_a_diverged_one_never_goes_on() -> None:
    losses = {"base": [0.1], "a": [2.0, 2.2], "b": [2.2, 2.0], "c": [1.0, None], "d": [1.9, 1.9]}
    assert best_points(rung_of(losses), 2) == ["d", "a"]
    assert best_points(rung_of(losses), 9) == ["d", "a", "b"]
    with pytest.raises(ValueError, match="no point of it has a loss"):
        best_points(rung_of({"base": [1.0], "a": [None]}), 1)


def test_how_many_go_on_is_known_before() -> None:
    halving = Halving(one_in=3, budgets=(100, 200, 400, 800), n_points=16)
    assert [halving.n_at(rung) for rung in range(4)] == [16, 5, 1, 1]
    assert [halving.name_at("e", rung) for rung in range(4)] == [
        "e.rung1",
        "e.rung2",
        "e.rung3",
        "e",
    ]
    assert Halving.from_mapping(halving.to_mapping()).to_mapping() == halving.to_mapping()


@pytest.mark.parametrize(("dearest", "told"), [(1.0, ""), (1.03, ""), (1.5, ", at most 4.50")])
def test_the_most_that_all_rungs_take_is_told_where_it_is_more(dearest: float, told: str) -> None:
    cost = PricedCost(
        **{"runs": 8, "slot_hours": 3.0, "gpu_hours": 3.0, "source": None, "words": ""},
        **{"price_per_hour": None, "price": None},
    )
    rung = RungFacts(steps=20, points=2, runs=6, hours=1.0, hours_at_most=dearest)
    words = rung_words(Halving(one_in=2, budgets=(10, 20), n_points=4), [rung], cost)
    assert f"all rungs together: about 4.00 GPU-hours{told}" in words.splitlines()
