"""The memory of a results folder, as commands keep it."""

import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from harness.__main__ import main
from harness.cli.confirm import fresh_seeds
from harness.cli.looks import refuse_seen_seeds
from harness.errors import UserError
from harness.run.ledger import FILE, StreamRow, add_rows, read_ledger
from harness.run.stream import place_of
from harness.store.merge import merge
from harness.store.plans import read_plan
from harness.store.store import Store
from reports.inputs.load import load
from tests.report_fixtures import Arm, write_experiment

ARMS = (Arm(name="base"), Arm(name="same", fields=(("model.untied_head", True),)))
COMMANDS = {
    "status": ["status"],
    "status EXP": ["status", "split"],
    "compare": ["compare", "split"],
    "export": ["export", "split", "-o", "runs.csv"],
    "report": ["report", "split"],
    "compare --format": ["compare", "split", "--format", "latex"],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_experiment(Path("results"), arms=ARMS, n_seeds=2)


def ablate(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main([*arguments])
    return int(ended.value.code or 0)


@pytest.mark.parametrize("command", COMMANDS)
def test_whatever_shows_results_is_a_look(command: str, folder: Path) -> None:
    for _ in range(2):  # the second shows nothing new
        assert ablate(*COMMANDS[command]) == 0
    (look,) = read_ledger(folder).looks
    assert (look.by, look.experiment, len(look.results)) == (command.split()[0], "split", 4)
    assert {seen.val_loss is None for seen in look.results} == {False}


@pytest.mark.parametrize(
    ("command", "told"), [("compare split", "ledger.jsonl cannot be read"), ("status", "finished")]
)
def test_where_nothing_can_be_written_a_look_is_forgotten_in_one_line(
    command: str, told: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / FILE).mkdir()
    assert ablate(*command.split()) == 0
    said = capsys.readouterr()
    why = os.strerror(errno.EISDIR)
    assert said.err == f"results: cannot be written ({why}): this look is not noted\n"
    assert told in said.out


def test_merging_brings_the_looks_of_the_other_folder(folder: Path) -> None:
    assert ablate("compare", "split") == 0
    shutil.copytree(folder, "theirs")
    (folder / FILE).unlink()
    store = Store.create(folder)
    for _ in range(2):
        merge(Path("theirs"), store)
    assert read_ledger(folder).looks == read_ledger(Path("theirs")).looks


def test_confirmatory_seeds_that_have_results_are_refused_and_fresh_ones_named(
    folder: Path,
) -> None:
    plan = read_plan(folder, "split")
    assert plan is not None
    assert fresh_seeds(plan, folder, 3) == 3  # seeds 0 and 1 are no confirmatory ones
    with pytest.raises(UserError, match=r"seeds 0, 1 have results already .*set seeds: \[2, 3\]"):
        refuse_seen_seeds(plan, folder)
    shutil.rmtree(folder / "experiments" / "split")
    refuse_seen_seeds(plan, folder)  # nobody saw them


def test_what_was_seen_of_a_renamed_experiment_is_known_by_its_new_name(folder: Path) -> None:
    place = StreamRow(place=place_of("daily", 1, 0), candidate="a1", kept=True)
    add_rows(folder, [place.to_json()])
    assert ablate("compare", "split") == 0
    shutil.copytree(folder, "theirs")
    before, memory = read_ledger(folder), load("split").memory
    written = (folder / FILE).read_text()
    assert ablate("rename", "split", "other") == 0
    assert (folder / FILE).read_text().startswith(written)  # it only grows
    after = read_ledger(folder)
    assert after.looks == (replace(before.looks[0], experiment="other"),)
    assert (after.streams, after.gone, after.n_passed_over) == (before.streams, {}, 0)
    assert load("other").memory == memory
    assert ablate("compare", "other") == 0
    assert read_ledger(folder).looks == after.looks  # nothing is first shown again
    merge(Path("theirs"), Store.create(folder))
    assert read_ledger(folder).looks == after.looks
    later = replace(before.looks[0], at="2030-01-01T00:00:00.000+00:00")
    add_rows(folder, [later.to_json()])  # of a new experiment under the old name
    assert [look.experiment for look in read_ledger(folder).looks] == ["other", "split"]


def test_seeds_that_were_seen_are_refused_by_where_the_first_of_them_was(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = read_plan(folder, "split")
    assert plan is not None
    seen = {0: "there", 1: "elsewhere", 7: "far"}
    monkeypatch.setattr("harness.store.looks.seeds_with_results", lambda *_: seen)
    words = r"seeds 0, 1 have results already \(in there\), .* set seeds: \[8, 9\]"
    with pytest.raises(UserError, match=words):
        refuse_seen_seeds(plan, folder)


def test_what_was_brought_in_is_counted_by_folder(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(folder, "theirs")
    shutil.rmtree(folder)
    assert ablate("merge", "theirs") == 1  # configurations that no run was made by
    heading, line, *problems = capsys.readouterr().out.splitlines()
    assert heading.split() == ["folder", "copied", "here", "unfinished", "experiments", "problems"]
    assert line.split() == ["theirs", "0", "0", "0", "1", "4"] and len(problems) == 4
