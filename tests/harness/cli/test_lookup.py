"""EXP as a user names it: what is read of it, what of it cannot run, what is said of what is wrong with it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.cli.ab_experiment import ab_experiment, trainer_of
from harness.cli.ab_options import AbOptions
from harness.cli.ab_sides import Side
from harness.cli.lookup import keep_if_writable, load_for_report, read_experiment, read_foreign
from harness.errors import UserError
from harness.run.foreign import TrainerLimits
from harness.run.plan import Plan
from harness.store.plans import read_plan, save_plan
from reports.inputs.experiment import Experiment
from reports.inputs.load import load
from tests.foreign_bench import CPU, ablate, bench, write
from tests.report_arms import LADDER
from tests.report_fixtures import write_experiment

OURS = Plan(name="mine", command="ablate run files/mine.yaml")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return bench(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("kind", "settings", "said"),
    [
        ({}, None, "is in r, but its file is not here: name its path (it was: ablate run files/"),
        ({"imported": True, "foreign": True}, None, "holds imported logs: nothing of it can run; `a"),
        ({"foreign": True}, ["seeds=2"], "goes on as it was started (ablate run files/mine.yaml): "),
    ],
)  # fmt: skip
def test_what_the_results_folder_alone_knows_may_not_run_as_asked(
    kind: dict[str, bool], settings: list[str] | None, said: str, folder: Path
) -> None:
    save_plan(Path("r"), replace(OURS, **kind))
    with pytest.raises(UserError) as refused:
        read_foreign("mine", Path("r"), settings)
    assert str(refused.value).startswith(f"experiment 'mine' {said}")
    with pytest.raises(UserError, match=r"unknown experiment 'mime'; did you mean 'mine'\?"):
        read_foreign("mime", Path("r"))
    assert read_foreign("elsewhere", Path("r")) is None


def test_a_file_is_of_scripts_where_it_names_a_trainer(folder: Path) -> None:
    foreign = write(folder, changes={"new": {"file": "new.py"}})
    found = read_foreign(str(foreign), Path("r"), ["seeds=3"])
    assert found is not None and (found.name, found.seeds) == ("foreign", (0, 1, 2))
    for text in ("name: own\n", "name: [unclosed", "- a list\n"):
        Path("own.yaml").write_text(text)
        assert read_foreign("own.yaml", Path("r")) is None, "the other reader says what is wrong"


def test_scripts_that_were_never_launched_have_nothing_to_show(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, changes={"new": {"file": "new.py"}})
    assert ablate("compare", "foreign.yaml") == 2
    assert capsys.readouterr().err == (
        "ablate: foreign.yaml: was never launched in results: `ablate plan foreign.yaml` says what"
        " it would do\n"
    )


def test_what_is_not_sound_is_said_once_where_every_file_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = write_experiment(tmp_path, arms=LADDER[:2], n_seeds=2, n_points=3, target=None)
    plan = read_plan(results, "split")
    monkeypatch.setattr("harness.store.deep.wrong_in", lambda *_: ["a is cut", "b", "a is cut"])
    for verify, said in ((False, []), (True, ["a is cut", "b"])):
        assert len(load_for_report("split", results, plan=plan, verify=verify).runs) == 4
        assert capsys.readouterr().err.splitlines() == said

    def with_damage(*named: str, **how: Any) -> Experiment:
        assert how == {"results": results, "accept_stale": True, "verify": False}
        return replace(load(*named, **how), unsound=("c is left out", "d is left out"))

    monkeypatch.setattr("reports.inputs.load.load", with_damage)
    load_for_report("split", results, plan=plan, accept_stale=True)
    assert capsys.readouterr().err == "c is left out\nd is left out\n"

    def mixed(*_: object, **__: object) -> None:
        raise ValueError("mixes runs")

    monkeypatch.setattr("reports.inputs.load.load", mixed)
    with pytest.raises(UserError, match=r"^mixes runs$"):
        load_for_report("split", results, plan=plan)


def test_an_experiment_in_a_folder_that_cannot_be_written_is_read_where_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    monkeypatch.setattr("harness.cli.lookup.remember_look", lambda *of: looks.append(of[-1]))
    save_plan(tmp_path, OURS)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("harness.store.plans.save_plan", full)
    for look in ("", "compare"):
        keep_if_writable(OURS, tmp_path, look=look)
    assert looks == ["compare"]
    with pytest.raises(OSError, match="No space left"):
        keep_if_writable(replace(OURS, name="another"), tmp_path, look="compare")
    assert looks == ["compare"]


def test_the_text_that_comes_with_the_program_is_prepared_where_it_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ABLATE_DATA", str(tmp_path))
    prepared: list[str] = []
    monkeypatch.setattr("harness.corpora.index.prepare", prepared.append)
    assert read_experiment("quickstart", device="cpu").name == "quickstart"
    assert prepared == ["stdlib"]
    assert capsys.readouterr().err == f"preparing corpus stdlib in {tmp_path}\n"
    read_experiment("quickstart", ["data.corpus=mine"], device="cpu")
    (tmp_path / "stdlib").mkdir()
    (tmp_path / "stdlib" / "corpus.json").touch()
    read_experiment("quickstart", device="cpu")
    assert prepared == ["stdlib"] and capsys.readouterr().err == ""


def test_scripts_do_not_take_the_name_of_an_experiment_of_our_own_trainer(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_plan(Path("results"), OURS)
    assert ablate("ab", "old.py", "new.py", *CPU, "-n", 1, "--experiment", "mine") == 2
    assert capsys.readouterr().err == (
        "ablate: experiment 'mine' in results holds other runs: choose another name (--experiment)\n"
    )
    assert read_plan(Path("results"), "mine") == OURS


@pytest.mark.parametrize("of", ["python", "container"])
def test_a_script_runs_in_the_environment_that_is_named(of: str, folder: Path) -> None:
    asked: dict[str, Any] = {of: "box run", "gpus_per_run": 0}
    spec = trainer_of(Side.of("old.py"), AbOptions(old="old.py", new=["new.py"], **asked))
    assert [*spec.environment] == [of] and spec.file == folder / "old.py"
    asked = {"gpus_per_run": 0}
    spec = trainer_of(Side.of("old.py"), AbOptions(old="old.py", new=["new.py"], **asked))
    assert spec.environment == {}


def test_scripts_are_compared_as_the_options_of_ab_say(folder: Path) -> None:
    asked = AbOptions(old="old.py", new=["new.py"], gpus_per_run=0, command="python {script}")
    e = ab_experiment(asked)
    assert (e.name, e.question) == ("ab-old-new", "Is new better than old?")
    assert [(arm.name, arm.changes) for arm in e.arms] == [("old", ()), ("new", ("new",))]
    assert e.target is not None and e.target.val_loss == 3.28
    assert (e.primary, e.margin, e.confirm, e.seeds) == ("val_loss", None, False, ())
    assert e.limits == TrainerLimits(wall_s=None, silence_s=3600.0, retries=0, output_mib=1024.0)
    for name in ("c d.py", f"{'n' * 120}.py"):
        Path(name).write_text(Path("new.py").read_text())
    limits = {"wall_limit": 9.0, "silence_limit": 8.0, "retries": 2, "output_limit": 7.0}
    own = {"metric": ["acc: ([0-9.]+)"], "margin": 0.5, **limits}
    more = ab_experiment(replace(asked, new=["new.py", "c d.py"], **own))
    assert (more.name, more.primary, more.margin) == ("ab-old-new-c-d", "acc", 0.5)
    assert more.question == "Which of new, c d is better than old?"
    assert [arm.changes for arm in more.arms] == [(), ("new",), ("c d",)]
    assert more.target is None, "of a loss alone"
    assert more.limits == TrainerLimits(wall_s=9.0, silence_s=8.0, retries=2, output_mib=7.0)
    long = replace(asked, new=[f"{'n' * 120}.py"])
    assert ab_experiment(long).name == "ab-old-".ljust(100, "n")
    assert ab_experiment(replace(long, experiment="x")).name == "x"
