"""`ablate rename` and `ablate delete`: what depends on an experiment is told, and nothing else is lost."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness.__main__ import main
from harness.cli import experiments
from harness.experiment.blocks import order_in_block
from harness.run.ledger import read_ledger
from harness.run.plan import Plan
from harness.store.launches import is_launched
from harness.store.plans import read_plan, save_plan
from harness.store.store import Store
from reports.inputs.load import load
from tests.foreign_bench import CPU, bench
from tests.report_arms import LADDER
from tests.report_fixtures import write_experiment


def ablate(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(a) for a in arguments])
    return int(ended.value.code or 0)


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two experiments that share their runs; the second took its rates from the first."""
    monkeypatch.chdir(tmp_path)
    write_experiment(tmp_path / "results", arms=LADDER[:2], n_seeds=2, n_points=3, target=None)
    [first] = (tmp_path / "results/experiments").iterdir()
    plan = json.loads((first / "experiment.json").read_text())
    second = first.parent / "second"
    second.mkdir()
    told = {**plan, "name": "second", "grid": first.name, "runs": plan["runs"][1:]}
    (second / "experiment.json").write_text(json.dumps(told))
    return tmp_path / "results"


def test_what_depends_on_an_experiment_is_told_and_its_rates_are_kept(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ablate("delete", "split", "--dry-run", "--runs", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["rates"], told["shared"], told["removed"]) == (["second"], {"second": 3}, False)
    assert len(told["own"]) == 1
    assert ablate("delete", "split") == ablate("rename", "split", "other") == 2
    assert "second took learning rates or points from it" in capsys.readouterr().err
    assert sorted(p.name for p in (results / "experiments").iterdir()) == ["second", "split"]


def test_a_deleted_experiment_takes_only_its_own_runs(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ablate("delete", "split", "--runs", "--force") == 0
    out = capsys.readouterr().out
    assert "second shares 3 of its runs, which stay" in out
    assert len(list((results / "runs").iterdir())) == 3
    assert len(load("second").runs) == 3
    assert '"by":"delete"' in (results / "ledger.jsonl").read_text()
    assert ablate("delete", "split") == 2
    assert "no experiment 'split' here; there is: second" in capsys.readouterr().err


def test_runs_that_an_unread_experiment_may_share_stay(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = sorted((results / "runs").iterdir())
    second = results / "experiments/second/experiment.json"
    second.write_text(json.dumps({**json.loads(second.read_text()), "schema": 999}))
    assert ablate("delete", "split", "--runs", "--force") == 2
    assert "the plan of second cannot be read" in capsys.readouterr().err
    assert sorted((results / "runs").iterdir()) == runs
    assert ablate("delete", "split") == 0


def test_a_renamed_experiment_is_what_it_was(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = load("second").runs.drop(columns="experiment")
    kept = results / "experiments/second/notes.txt"
    kept.write_text("mine")
    assert ablate("rename", "second", "third") == 0
    assert "split shares 3 of its runs" in capsys.readouterr().out
    after = load("third")
    assert after.runs.drop(columns="experiment").equals(before)
    assert (results / "experiments/third/notes.txt").read_text() == "mine"
    assert not (results / "experiments/second").exists()
    assert ablate("rename", "third", "fourth", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["experiment"], told["name"], told["shared"]) == ("third", "fourth", {"split": 3})
    assert ablate("rename", "fourth", "third") == 0
    assert ablate("rename", "third", "split") == ablate("rename", "third", "a/b") == 2
    err = capsys.readouterr().err
    assert "there is such an experiment" in err and "NAME" in err


def test_an_experiment_of_which_a_run_is_in_progress_stays(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from harness.store.state import RunState

    running = RunState(status="running")
    monkeypatch.setattr(Store, "state", lambda self, run_id: running)
    assert ablate("delete", "second") == 2
    assert "is in progress: wait, or ablate cancel second" in capsys.readouterr().err


def test_runs_that_somebody_has_stay(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ablate("delete", "second") == 0
    runs = sorted((results / "runs").iterdir())
    store = Store(results)
    n = store.hold(runs[-1].name)  # as one that mends it does; it has a result
    assert n is not None
    assert ablate("delete", "split", "--runs") == 2
    assert f"run {runs[-1].name} is in progress" in capsys.readouterr().err
    assert sorted((results / "runs").iterdir()) == runs
    assert (results / "experiments/split").is_dir()
    store.let_go(runs[-1].name, n)
    assert ablate("delete", "split", "--runs") == 0, "the others were given back"
    assert not list((results / "runs").iterdir())


def test_a_renamed_experiment_keeps_the_order_in_which_it_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def places(name: str) -> dict[str, int | None]:
        plan = read_plan(Path("results"), name)
        assert plan is not None
        return {run.run_id: run.place for run in plan.runs}

    bench(tmp_path, monkeypatch)
    ask = ("ab", "old.py", "new.py", *CPU, "-n", 1, "--experiment")
    assert ablate(*ask, "x") == 0
    ran = places("x")
    drawn = order_in_block("x", 0, 2)
    other = next(f"y{i}" for i in range(99) if order_in_block(f"y{i}", 0, 2) != drawn)
    assert ablate("rename", "x", other) == 0
    renamed = read_plan(Path("results"), other)
    assert renamed is not None and is_launched(Path("results"), renamed), "here, and by this user"
    assert ablate(*ask, other) == 0
    assert places(other) == ran


CUT_AT = {
    "before it is noted": "harness.cli.experiments.note_renamed",
    "before it has a plan": "harness.store.plans.begin_plan",
    "before it has its lock": "harness.store.plans.save_plan",
    "before its files are there": "harness.store.launches.is_launched",
    "before the old one goes": "harness.run.guarded.remove",
}


@pytest.mark.parametrize("where", CUT_AT)
def test_a_rename_that_was_interrupted_is_finished_by_a_second_call(
    results: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    assert ablate("compare", "second") == 0
    (results / "experiments/second/notes.txt").write_text("mine")
    plan = read_plan(results, "second")
    assert plan is not None
    with monkeypatch.context() as patched:
        patched.setattr(CUT_AT[where], cut)
        assert ablate("rename", "second", "third") == 130
    assert read_plan(results, "second") == plan
    assert ablate("rename", "second", "third") == 0
    renamed = replace(plan, name="third", command=f"{plan.command} --set name=third")
    assert read_plan(results, "third") == renamed
    assert not (results / "experiments/second").exists()
    assert (results / "experiments/third/notes.txt").read_text() == "mine"
    assert {look.experiment for look in read_ledger(results).looks} == {"third"}
    assert not list(results.glob("runs/*/attempts/*/owner.json")), "all were given back"


def test_an_experiment_is_not_renamed_to_itself_or_into_a_folder_with_files(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = results / "experiments/third/plan.lock"
    kept.parent.mkdir()
    kept.write_text("of another")
    for name in ("second", "third"):
        assert ablate("rename", "second", name) == 2
        assert f"{name}: there is such an experiment" in capsys.readouterr().err
    assert read_plan(results, "second") is not None
    assert kept.read_text() == "of another"


def test_a_name_that_another_call_took_meanwhile_stays_its_own(
    results: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ablate("compare", "second") == 0
    plan, looked = read_plan(results, "split"), experiments.dependents_of
    assert plan is not None
    other = replace(plan, name="third")

    def take(results: Path, plan: Plan) -> experiments.Dependents:
        save_plan(results, other)
        return looked(results, plan)

    monkeypatch.setattr(experiments, "dependents_of", take)
    assert ablate("rename", "second", "third") == 2
    assert "third: there is such an experiment" in capsys.readouterr().err
    assert read_plan(results, "third") == other
    assert {look.experiment for look in read_ledger(results).looks} == {"second"}


def test_an_experiment_of_which_somebody_has_a_run_keeps_its_name(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, runs = Store(results), load("second").runs["run_id"]
    n = store.hold(runs[0])
    assert n is not None
    assert ablate("rename", "second", "third") == 2
    assert f"run {runs[0]} is in progress" in capsys.readouterr().err
    assert not (results / "experiments/third").exists()
