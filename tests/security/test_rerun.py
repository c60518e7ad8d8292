"""A run of a stranger's folder is looked at before anything of it starts, and starts when it is trusted."""

import json
import shutil
import zipfile
from pathlib import Path

import pytest
import yaml

from harness.experiment.scaffold import new_change
from harness.provenance.source import source_of
from harness.run.read import read_config, read_json
from harness.run.results import result_text, sealed
from harness.run.spec import PlannedRun, RunSpec
from harness.runner.executor import Summary
from harness.store.store import Store
from tests.fake_matrix import Matrix
from tests.fake_matrix import ablate as of_matrix
from tests.foreign_bench import CPU, ablate, bench
from tests.hostile import program, watched
from tests.sealing import write_plan


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return bench(tmp_path, monkeypatch)


def renamed(results: Path, run: Path, config: dict) -> str:
    """Give a run another configuration, and the name that belongs to it, as a stranger can."""
    spec = RunSpec.from_mapping(config)
    text = spec.to_yaml()
    (run / "config.yaml").write_text(text)
    result = json.loads((run / "result.json").read_text())
    result |= {"run_id": spec.run_id, "intent_id": spec.intent_id}
    (run / "result.json").write_text(result_text(sealed(result)))
    run.rename(results / "runs" / spec.run_id)
    return spec.run_id


def test_a_strangers_interpreter_and_trainer_start_only_when_trusted(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ablate("ab", "old.py", "new.py", "-n", 1, *CPU) == 0
    Path("results").rename("strange")
    evil = program(folder / "evil" / "python", folder / "mark")
    runs = Path("strange/runs")
    run = sorted(runs.iterdir())[0]
    known = run.name
    said = watched("rerun", known, "--results", "strange", cwd=folder)
    assert said.code == 0  # this user launched it: it may lie in another folder
    config = read_config(run)
    config["config"]["trainer"]["environment"] = {"python": str(evil)}
    config["config"]["trainer"]["env"] = {"LD_PRELOAD": "evil.so"}
    name = renamed(Path("strange"), run, config)
    said = watched("rerun", name, "--results", "strange", cwd=folder)
    assert (said.code, said.started, said.err.count("\n")) == (2, [], 1)
    assert f"run {name} was not launched here by you: it would execute" in said.err
    assert "`LD_PRELOAD=evil.so python {script}` with code/" in said.err
    assert f"the python `{evil}`" in said.err
    assert not (folder / "mark").exists()
    said = watched("rerun", name, "--results", "strange", "--trust", cwd=folder)
    assert f"trusted: the python `{evil}`" in said.err
    assert said.started != []
    assert (folder / "mark").exists()


def test_a_repetition_says_how_it_ended_without_a_result_why_and_where_its_log_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ablate("ab", "old.py", "new.py", "-n", 1, *CPU) == 0
    run = sorted(Path("results/runs").iterdir())[0]

    def fails(planned: PlannedRun, store: Store, again: Store) -> Summary:
        run_id = planned.spec.run_id
        return Summary(statuses={run_id: "failed"}, reasons={run_id: "no device"})

    monkeypatch.setattr("harness.foreign.runner.run_again", fails)
    capsys.readouterr()
    assert ablate("rerun", run.name) == 1
    begun, last = capsys.readouterr().out.splitlines()
    place = begun.rpartition(", in ")[2]
    assert last == f"failed: no device ({place}/log.txt)"

    def stopped(planned: PlannedRun, store: Store, again: Store) -> Summary:
        return Summary(stopped="preempted")

    def repeated(planned: PlannedRun, store: Store, again: Store) -> Summary:
        shutil.copytree(run, again.directory(run.name))
        return Summary(statuses={run.name: "finished"})

    monkeypatch.setattr("harness.foreign.runner.run_again", stopped)
    assert ablate("rerun", run.name) == 143
    monkeypatch.setattr("harness.foreign.runner.run_again", repeated)
    monkeypatch.setattr("harness.store.launches.launched_runs", lambda *_: set())
    capsys.readouterr()
    assert ablate("rerun", run.name, "--trust") == 0
    said = capsys.readouterr()
    loss = read_json(run / "result.json")["val_loss"]
    assert said.out.splitlines()[-1] == f"finished: val_loss {loss:.6f}, bit for bit as before"
    assert (
        said.err.startswith("trusted: `python {script}` with code/") and said.err.count("\n") == 1
    )
    (run / "metrics.jsonl").write_text("{}\n")
    assert ablate("ab", "old.py", "new.py", "-n", 1, *CPU) == 0
    err = capsys.readouterr().err
    assert "metrics.jsonl" in err and err.endswith(": set aside, it is run again\n")
    assert (run / "result.json").is_file()


def test_a_record_of_another_run_starts_nothing(folder: Path) -> None:
    """The run's name is one that was launched here; what its record says is not what was launched."""
    assert ablate("ab", "old.py", "new.py", "-n", 1, *CPU) == 0
    evil = program(folder / "evil" / "python", folder / "mark")
    run = sorted(Path("results/runs").iterdir())[0]
    config = read_config(run)
    config["config"]["trainer"]["environment"] = {"python": str(evil)}
    (run / "config.yaml").write_text(RunSpec.from_mapping(config).to_yaml())
    for trust in ((), ("--trust",)):
        said = watched("rerun", run.name, *trust, cwd=folder)
        assert (said.code, said.started) == (2, [])
        assert "its config.yaml is the configuration of run" in said.err
    (run / "config.yaml").write_text("just a word")
    assert "is not the configuration of a run" in watched("rerun", run.name, cwd=folder).err


def test_kept_code_that_was_exchanged_is_not_run(folder: Path) -> None:
    assert ablate("ab", "old.py", "new.py", "-n", 1, *CPU) == 0
    run = sorted(Path("results/runs").iterdir())[0]
    script = read_config(run)["config"]["trainer"]["script"]
    digest = read_config(run)["source"]["digest"]
    with zipfile.ZipFile(f"results/code/{digest}.zip", "w") as archive:
        archive.writestr(script, f"open({str(folder / 'mark')!r}, 'w')\n")
    said = watched("rerun", run.name, cwd=folder)
    assert said.code == 2
    assert "is not the code that its name says" in said.err
    assert not (folder / "mark").exists()


def test_a_run_is_not_repeated_behind_a_link(folder: Path) -> None:
    assert ablate("ab", "old.py", "new.py", "-n", 1, *CPU) == 0
    run = sorted(Path("results/runs").iterdir())[0]
    (folder / "outside").mkdir()
    for leads_to in ("outside", "nowhere"):
        Path("results/reruns").unlink(missing_ok=True)
        Path("results/reruns").symlink_to(folder / leads_to)
        said = watched("rerun", run.name, cwd=folder)
        assert (said.code, said.err.count("\n"), said.out) == (2, 1, "")
    assert (
        "links in a results folder are not followed" in watched("rerun", run.name, cwd=folder).err
    )
    assert list((folder / "outside").iterdir()) == [] and not (folder / "nowhere").exists()


@pytest.mark.slow
def test_a_plug_in_of_a_stranger_is_imported_only_when_trusted(tmp_path: Path) -> None:
    new_change("louder", tmp_path)
    matrix = Matrix(tmp_path, n_seeds=1)
    matrix.file.write_text(matrix.file.read_text() + f"plugins: [{tmp_path}/louder.py]\n")
    assert matrix.run()[0] == 0
    run = matrix.runs()[0][0]
    mark = tmp_path / "mark"
    before = of_matrix(matrix, "rerun", run.name)
    assert before.code == 0, before.err
    # a plan that names other plug-ins than the run was made with
    path = matrix.results / "experiments" / "fake" / "experiment.json"
    plan = json.loads(path.read_text())
    evil = tmp_path / "evil" / "louder.py"
    evil.parent.mkdir()
    evil.write_text(f"open({str(mark)!r}, 'w').close()\n" + (tmp_path / "louder.py").read_text())
    write_plan(path, {**plan, "plugins": [str(evil)]})
    for trust in ((), ("--trust",)):
        said = watched("rerun", run.name, *trust, "--results", matrix.results, cwd=tmp_path)
        assert said.code == 2
        assert "was made by other code (plugin/louder.py)" in said.err
        assert not mark.exists()
    # a stranger's run, made with that plug-in: all of it fits, and nobody here launched it
    config = yaml.safe_load((run / "config.yaml").read_text())
    source = source_of([evil])
    config["source"] = {"digest": source.digest, "files": dict(source.files)}
    name = renamed(matrix.results, run, config)
    plan["runs"][0]["run_id"] = name
    write_plan(path, {**plan, "plugins": [str(evil)]})
    said = watched("rerun", name, "--results", matrix.results, cwd=tmp_path)
    assert said.code == 2
    assert f"it would execute the plug-in {evil}" in said.err
    assert not mark.exists()
