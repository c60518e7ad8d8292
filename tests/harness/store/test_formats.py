"""Folders of earlier releases are read, those of later ones refused, and what is not sound is never used."""

import json
import math
import os
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.__main__ import main
from harness.cli.complete import complete
from harness.errors import UserError
from harness.provenance.code import Code
from harness.provenance.source import zipped
from harness.run import remembered
from harness.run.archive import unpacked
from harness.run.code import CODE_LIMIT, code_digest
from harness.run.digests import short_digest
from harness.run.ledger import read_ledger
from harness.run.plan_file import read_plan_file
from harness.run.results import SEALED
from harness.run.versions import ARCHIVE, CLAIM, LEDGER, LOCK, PLAN, RESULT
from harness.runner.executor import ExecutorOptions
from harness.store.claims import read_owner
from harness.store.deep import wrong_in
from harness.store.kept import Kept
from harness.store.merge import merge
from harness.store.plans import read_plan, save_plan
from harness.store.store import Store
from reports.analysis.compare import compare_all
from reports.inputs.load import load
from reports.page.write import write_report
from reports.verify.verify import verify
from tests.sealing import seal_again, write_plan

FOLDERS = sorted((Path(__file__).resolve().parents[2] / "data" / "folders").glob("*.zip"))


def unpack(archive: Path, place: Path) -> Path:
    with zipfile.ZipFile(archive) as zipped:
        zipped.extractall(place)
    return place


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A folder of the format as it is now."""
    return unpack(FOLDERS[-1], tmp_path / "results")


@pytest.mark.parametrize("archive", FOLDERS, ids=lambda path: path.stem)
def test_a_folder_of_every_format_is_read_brought_in_and_reported(
    archive: Path, tmp_path: Path
) -> None:
    theirs = unpack(archive, tmp_path / "theirs")
    states = [state for _, state in Store(theirs).states()]
    assert [state.status for state in states] == ["finished"] * 4
    plan = read_plan(theirs, "small")
    assert plan is not None and list(wrong_in(theirs, plan)) in (
        [],
        [f"{theirs}/experiments/small/plan.lock is missing"],
    )
    store = Store.create(tmp_path / "ours")
    brought = merge(theirs, store)
    assert (len(brought.copied), brought.problems) == (4, [])
    losses = []
    for folder in (theirs, store.root):
        experiment = load("small", folder, accept_stale=True)
        assert experiment.unsound == ()
        losses.append(sorted(experiment.runs["val_loss"]))
        assert "untied_head" in {c.arm for c in compare_all(experiment).comparisons.values()}
    assert losses[0] == losses[1]
    page = write_report([experiment], tmp_path / "page.html")
    assert verify(page, store.root) == []
    save_plan(theirs, plan)  # as every launch and every look does
    assert json.loads((theirs / "experiments/small/experiment.json").read_text())["schema"] == PLAN


def newer(path: Path, version: int) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": version}))


def test_what_a_later_release_wrote_is_refused_in_one_line(results: Path, tmp_path: Path) -> None:
    run = next((results / "runs").iterdir())
    later = "of a later release"
    newer(run / "result.json", RESULT + 1)
    for read in (lambda: Store(results).state(run.name), lambda: load("small", results)):
        with pytest.raises(UserError, match=later) as refused:
            read()
        assert "\n" not in str(refused.value)
    [problem] = merge(results, Store.create(tmp_path / "ours")).problems
    assert later in problem
    with pytest.raises(UserError, match=later):
        Store(results).repair(run.name)
    assert (run / "result.json").exists()  # nothing is set aside
    assert read_ledger(results).looks
    newer(results / "ledger.jsonl", LEDGER + 1)
    with pytest.raises(UserError, match=later):
        read_ledger(results)
    newer(results / "experiments/small/experiment.json", PLAN + 1)
    with pytest.raises(UserError, match=later):
        read_plan(results, "small")
    owner = tmp_path / "owner.json"
    owner.write_text(json.dumps({"schema": CLAIM + 1}))
    with pytest.raises(UserError, match=later):
        read_owner(owner)


def test_archives_and_locks_have_versions(results: Path) -> None:
    content = zipped({"a.py": b"x = 1"})
    assert unpacked(content) == {"a.py": b"x = 1"}
    with pytest.raises(UserError, match="of a later release"):
        unpacked(content.replace(f"schema {ARCHIVE}".encode(), f"schema {ARCHIVE + 1}".encode()))
    plan = read_plan(results, "small")
    assert plan is not None
    newer(results / "experiments/small/plan.lock", LOCK + 1)
    with pytest.raises(UserError, match="of a later release"):
        list(wrong_in(results, plan))


def flip(path: Path) -> None:
    """Another digit, or another letter, in the middle."""
    text = path.read_bytes()
    at = next(i for i in range(len(text) // 2, len(text)) if chr(text[i]).isalnum())
    path.write_bytes(text[:at] + (b"1" if text[at : at + 1] != b"1" else b"2") + text[at + 1 :])


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


OF_RUN = ("result.json", "config.yaml", "environment.json", "metrics.jsonl", "log.txt", "attempts.jsonl")  # fmt: skip


@pytest.mark.parametrize("harm", [flip, cut, Path.unlink])
@pytest.mark.parametrize("name", OF_RUN)
def test_a_run_with_a_changed_file_is_left_out_with_a_line(
    results: Path, tmp_path: Path, name: str, harm: Callable[[Path], Any]
) -> None:
    run = sorted((results / "runs").iterdir())[0]
    plan = read_plan(results, "small")
    harm(run / name)
    experiment = load("small", results, accept_stale=True)
    row = experiment.runs.set_index("run_id").loc[run.name]
    assert math.isnan(row["val_loss"])
    if (run / "result.json").exists():
        [line] = experiment.unsound
        assert run.name in line and name in line
        assert plan is not None and any(name in wrong for wrong in wrong_in(results, plan))
        assert len(merge(results, Store.create(tmp_path / "ours")).problems) == 1
    expected = "finished"
    if name == "result.json":
        expected = "interrupted" if harm is Path.unlink else "damaged"
    assert Store(results).state(run.name).status == expected


def test_what_a_call_of_run_took_for_sound_a_report_reads_itself(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whose time somebody set back looks untouched to `ablate run`, which looks at sizes and times."""
    monkeypatch.setattr(remembered, "WORTH_WRITING", 1)
    monkeypatch.setattr(remembered, "FRESH_NS", 0)
    run_ids = sorted(run.name for run in (results / "runs").iterdir())
    metrics = results / "runs" / run_ids[0] / "metrics.jsonl"
    flip(metrics)
    for run_id in run_ids:
        for path in (results / "runs" / run_id).iterdir():
            os.utime(path, ns=(1, 1))
    runs: list[Any] = [SimpleNamespace(spec=SimpleNamespace(run_id=name)) for name in run_ids]
    nobody: Any = None
    had = complete(Store(results), runs, nobody, ExecutorOptions(experiment="small")).had_result
    assert list(had) == run_ids and (results / "cache" / "sound.json").exists()
    for _ in range(2):
        with pytest.raises(SystemExit):
            main(["compare", "small", "--results", str(results)])
        told = capsys.readouterr()
        assert "metrics.jsonl is not the file that the run wrote" in told.out + told.err


@pytest.mark.parametrize("name", ["experiment.json", "plan.lock"])
@pytest.mark.parametrize("harm", [flip, cut])
def test_a_changed_plan_is_refused_or_named(
    results: Path, name: str, harm: Callable[[Path], None]
) -> None:
    plan = read_plan(results, "small")
    assert plan is not None
    harm(results / "experiments/small" / name)
    if name == "plan.lock":
        assert [line for line in wrong_in(results, plan) if "plan.lock" in line]
        return
    with pytest.raises(UserError, match=r"experiment\.json"):
        read_plan(results, "small")
    with pytest.raises(ValueError, match=r"experiment\.json"):
        load("small", results)


@pytest.mark.parametrize("name", SEALED)
def test_the_story_of_a_run_says_which_file_is_not_its_own(
    results: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = sorted((results / "runs").iterdir())[0]
    for harmed in (False, True):
        with pytest.raises(SystemExit) as ended:
            main(["log", run.name, "--results", str(results)])
        told = capsys.readouterr()
        line = f"not all of this is what the run wrote: {run / name} is not the file"
        assert (ended.value.code or 0, line in told.err) == (0, harmed), told.err
        flip(run / name)


ANOTHER = {
    "without a baseline": lambda plan: plan | {"baseline": "gone"},
    "without an arm": lambda plan: plan | {"arms": plan["arms"][:1]},
    "with an arm twice": lambda plan: plan | {"arms": [*plan["arms"], plan["arms"][0]]},
    "with a parent that is none": lambda plan: plan | {"parents": {plan["baseline"]: "gone"}},
}


@pytest.mark.parametrize("how", ANOTHER)
def test_a_plan_that_speaks_of_arms_that_it_has_not_is_refused_in_one_line(
    results: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = results / "experiments" / "small" / "experiment.json"
    write_plan(path, ANOTHER[how](json.loads(path.read_text())))
    for command in (("compare", "small"), ("status", "small"), ("export", "small", "-o", "x.csv")):
        with pytest.raises(SystemExit) as ended:
            main([*command, "--results", str(results)])
        told = capsys.readouterr()
        assert (ended.value.code, told.err.count("\n")) == (2, 1), told.err
        assert "arm" in told.err and "a fault of its own" not in told.err


@pytest.mark.parametrize("harm", [flip, cut])
def test_a_changed_ledger_is_told(results: Path, harm: Callable[[Path], None]) -> None:
    assert load("small", results).memory.notes == ()
    harm(results / "ledger.jsonl")
    [note] = load("small", results).memory.notes
    assert note == "ledger.jsonl has 1 lines that say nothing: they were passed over"


def test_more_code_than_a_run_of_ours_has_is_not_parsed(tmp_path: Path) -> None:
    """A small archive may hold what takes gigabytes to parse."""
    digest = short_digest({"model/a.py": code_digest("GAIN = 2")})
    kept = Kept(kind="code", digest=digest, suffix=".zip", script=None)
    foreign = Code(script="a.py", files={"a.py": b"x=1\n" * 10})
    long = Code(script="a.py", files={"a.py": b"x=1\n" + b"#" * CODE_LIMIT})
    assert long.source.digest != replace(long, files={"a.py": b"x=1\n"}).source.digest
    assert foreign.source.digest == replace(foreign, files={"a.py": b"x=1;" * 10}).source.digest
    kept.path(tmp_path).parent.mkdir()
    for n, sound in ((0, True), (CODE_LIMIT, False)):
        kept.path(tmp_path).write_bytes(zipped({"model/a.py": b"GAIN = 2\n" + b"#" * n}))
        assert (kept.read(tmp_path) is not None) is sound


def test_a_shuffled_plan_is_no_plan(results: Path) -> None:
    path = results / "experiments/small/experiment.json"
    plan = json.loads(path.read_text())
    arms = [run["arm"] for run in plan["runs"]]
    for run, arm in zip(plan["runs"], reversed(arms), strict=True):
        run["arm"] = arm
    path.write_text(json.dumps(plan))
    with pytest.raises(ValueError, match="is not the file that was written"):
        read_plan_file(path)


def test_another_runs_files_are_no_result_of_this_one(results: Path) -> None:
    plan = json.loads((results / "experiments/small/experiment.json").read_text())
    at = {(run["arm"], run["seed"]): results / "runs" / run["run_id"] for run in plan["runs"]}
    one, other = at["baseline", 0], at["untied_head", 0]
    names = {path.name for path in one.iterdir()}
    files = {name: ((one / name).read_bytes(), (other / name).read_bytes()) for name in names}
    for name, (ours, theirs) in files.items():  # signs flipped
        (one / name).write_bytes(theirs)
        (other / name).write_bytes(ours)
    assert len(load("small", results, accept_stale=True).unsound) == 2
    for run in (one, other):  # by one who seals them again under the folder's name
        seal_again(run, run_id=run.name)
    unsound = load("small", results, accept_stale=True).unsound
    assert len(unsound) == 2 and all("is the configuration of run" in line for line in unsound)


def test_a_plan_that_gives_a_run_another_seed_has_no_result_of_it(results: Path) -> None:
    path = results / "experiments/small/experiment.json"
    plan = json.loads(path.read_text())
    plan["runs"][0]["seed"] = 7
    plan["seeds"].append(7)
    write_plan(path, plan)
    [line] = load("small", results, accept_stale=True).unsound
    assert "its plan: 7" in line
