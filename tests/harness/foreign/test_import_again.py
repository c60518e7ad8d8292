"""A second import into an experiment: what is there stays, what is new follows it, arms of other programs are told apart."""

import re
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UserError
from harness.foreign.imports import Imported, import_logs
from harness.foreign.log_arms import ArmBy
from harness.run.plan import Plan
from harness.run.results import read_result
from harness.store.errors import ResultsError
from harness.store.store import Store
from tests.foreign_logs import LINE, first_records, late_2024, year_2025


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.create(tmp_path / "results")


def taken(store: Store, folder: Path, *names: str, **options: Any) -> Imported:
    files = [folder / name for name in names]
    return import_logs(files, store=store, experiment="x", **options)


def written(folder: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def plan_of(imported: Imported) -> Plan:
    assert imported.plan is not None
    return imported.plan


def test_what_was_there_is_counted_and_what_is_new_follows_it(store: Store, tmp_path: Path) -> None:
    written(tmp_path, {f"{i}.txt": late_2024(3.27 + 0.01 * i) for i in range(3)})
    first = taken(store, tmp_path, "0.txt", arm="A")
    assert (first.n_added, first.n_present) == (1, 0)
    again = taken(store, tmp_path, "0.txt", "1.txt", "2.txt", arm="A")
    assert (again.n_added, again.n_present) == (2, 1)
    plan = plan_of(again)
    assert [(run.arm, run.replicate, run.imported) for run in plan.runs] == [
        ("A", 0, True),
        ("A", 1, True),
        ("A", 2, True),
    ]
    assert plan.seeds == (0, 1, 2), "as many as the largest arm has runs"


def test_another_program_under_the_name_of_an_arm_is_an_arm_of_its_own(
    store: Store, tmp_path: Path
) -> None:
    changed = late_2024(3.30).replace("class Muon(", "class Adam(")
    written(tmp_path / "old", {"r/1.txt": late_2024(3.28)})
    written(tmp_path / "same", {"r/2.txt": late_2024(3.29)})
    written(tmp_path / "new", {"r/1.txt": changed})
    arms = []
    for folder in ("old", "same", "new"):
        arms = [arm.name for arm in plan_of(taken(store, tmp_path, f"{folder}/r")).arms]
    first, second = arms
    assert first == "r", "of the same program there is one arm"
    assert second.startswith("r (code ")


def test_arms_by_folder_mix_programs_and_say_so(store: Store, tmp_path: Path) -> None:
    changed = late_2024(3.30).replace("class Muon(", "class Adam(")
    written(tmp_path, {"r/1.txt": late_2024(3.28), "r/2.txt": changed})
    imported = taken(store, tmp_path, "r", arm="all", arm_by=ArmBy.CODE)
    assert [(arm.name, arm.code) for arm in plan_of(imported).arms] == [("all", None)]
    assert [*imported.mixed] == ["all"]


def test_seeds_that_several_logs_of_an_arm_used_are_named_with_the_logs(
    store: Store, tmp_path: Path
) -> None:
    line = "Running pytorch"
    seeded = {
        f"{i}.txt": late_2024(3.28 + 0.01 * i).replace(line, f"seed: {seed}\n{line}", 1)
        for i, seed in enumerate((5, 6, 5))
    }
    written(tmp_path, seeded)
    imported = taken(store, tmp_path, *seeded, arm="A")
    (of_arm,) = imported.seeds.values()
    assert [*of_arm] == [5]
    assert [Path(name).name for name in of_arm[5]] == ["0.txt", "2.txt"]


@pytest.mark.parametrize("first", ["step:0/250", "step:125/250 val_loss"])
def test_a_part_of_a_log_is_its_twin_and_no_second_run(
    first: str, store: Store, tmp_path: Path
) -> None:
    whole = year_2025(3.28)
    points = "".join(line + "\n" for line in whole.splitlines() if line.startswith("step:"))
    bare = points[points.rindex(first) :]
    written(tmp_path, {"a/whole.txt": whole, "b/bare.txt": bare})
    imported = taken(store, tmp_path, "b", "a", arm="A")
    assert imported.n_added == 1
    ((twin, of),) = imported.twins.items()
    assert (Path(twin).name, Path(of).name) == ("bare.txt", "whole.txt")
    assert (imported.copies, imported.refused) == ({}, {})


def test_a_log_is_the_run_that_it_was_for_versions_before(store: Store, tmp_path: Path) -> None:
    """Else all that a results folder has imported would come in a second time."""
    written(tmp_path, {"coded.txt": late_2024(3.28), "bare.txt": first_records(3.28)})
    plan = plan_of(taken(store, tmp_path, "coded.txt", "bare.txt", arm="A"))
    assert [run.run_id for run in plan.runs] == ["68e2b6be5e35c10f", "9719d9fb4b00e013"]


def test_logs_of_another_memory_are_two_runs_of_the_same_losses(
    store: Store, tmp_path: Path
) -> None:
    text = year_2025(3.28)
    other = text.replace("peak memory allocated: 31361", "peak memory allocated: 31362")
    written(tmp_path, {"1.txt": text, "2.txt": other})
    imported = taken(store, tmp_path, "1.txt", "2.txt", arm="A")
    assert (imported.n_added, imported.twins, imported.copies) == (2, {}, {})
    written(tmp_path, {"again/3.txt": other[other.rindex("step:0/250") :]})
    found = taken(store, tmp_path, "1.txt", "2.txt", "again/3.txt", arm="A")
    ((twin, of),) = found.twins.items()
    assert (Path(twin).name, Path(of).name) == ("3.txt", "2.txt")


def test_logs_that_diverged_before_their_first_validation_are_runs(
    store: Store, tmp_path: Path
) -> None:
    runs = {"a/1.txt": "9.5", "a/2.txt": "9.25", "b/3.txt": "9"}
    for name, loss in runs.items():
        text = f"step:1/8 train_loss:{loss}\nstep:2/8 train_loss:nan\n"
        written(tmp_path, {name: text, f"copies/{name}": text})
    imported = taken(store, tmp_path, *runs, "copies", arm="A")
    assert (imported.n_added, len(imported.copies), imported.twins) == (3, 3, {})
    for run in plan_of(imported).runs:
        result = read_result(store.directory(run.run_id))
        assert result is not None
        assert (result.status, result.val_loss, result.steps) == ("diverged", None, 2)


@pytest.mark.parametrize(("arm", "fits"), [("A" * 200, True), ("A" * 201, False), ("a\nb", False)])
def test_the_name_of_an_arm_can_be_printed(
    arm: str, fits: bool, store: Store, tmp_path: Path
) -> None:
    written(tmp_path, {"1.txt": late_2024(3.28)})
    if fits:
        assert taken(store, tmp_path, "1.txt", arm=arm).n_added == 1
    else:
        with pytest.raises(UserError, match="must be printable and shorter: name it with --arm"):
            taken(store, tmp_path, "1.txt", arm=arm)


def test_a_baseline_of_which_no_log_could_be_taken_says_why(store: Store, tmp_path: Path) -> None:
    written(tmp_path, {"1.txt": late_2024(3.28)[:-2000]})
    with pytest.raises(UserError, match="'A': none of its logs could be taken: "):
        taken(store, tmp_path, "1.txt", arm="A", baseline="A")


def test_a_log_whose_code_holds_lines_like_measurements_is_counted(
    store: Store, tmp_path: Path
) -> None:
    written(tmp_path, {"1.txt": late_2024(3.28), "2.txt": late_2024(3.29)})
    imported = taken(store, tmp_path, "1.txt", "2.txt", arm="A")
    assert imported.n_with_code_lines == 2


def test_where_there_is_no_log_nothing_is_planned(store: Store, tmp_path: Path) -> None:
    written(tmp_path, {"1.txt": "no log"})
    imported = taken(store, tmp_path, "1.txt")
    assert (imported.plan, imported.n_added, len(imported.refused)) == (None, 0, 1)
    assert not (store.root / "experiments" / "x").exists()


def test_a_log_stays_in_its_arm_and_one_of_other_steps_joins_none(
    store: Store, tmp_path: Path
) -> None:
    longer = late_2024(3.30, steps=260)
    seeded = "seed: 5\nRunning pytorch"
    first, other = (late_2024(loss).replace("Running pytorch", seeded, 1) for loss in (3.28, 3.29))
    between = f"{LINE}\nRunning"  # an argument that its code does not hold
    longer = between.join((first.split(between)[0], longer.split(between)[1]))
    written(tmp_path, {"r/1.txt": first, "moved/1.txt": first, "later/r/2.txt": longer})
    taken(store, tmp_path, "r")
    again = plan_of(taken(store, tmp_path, "moved", "later/r"))
    assert [run.arm for run in again.runs] == ["r", "r (260 steps)"]
    written(tmp_path, {"more/r/3.txt": other})
    of_arm = taken(store, tmp_path, "moved", "more/r").seeds
    assert {arm: [*seeds] for arm, seeds in of_arm.items()} == {"r": [5]}


def test_a_plan_and_a_run_that_cannot_be_written_say_the_folder(
    store: Store, tmp_path: Path
) -> None:
    written(tmp_path, {"1.txt": late_2024(3.28), "2.txt": late_2024(3.29)})
    (run,) = plan_of(taken(store, tmp_path, "1.txt", arm="A")).runs
    (store.root / "experiments" / "y").write_text("in the way")
    with pytest.raises(ResultsError, match=re.escape(str(store.root))):
        import_logs([tmp_path / "2.txt"], store=store, experiment="y", arm="A")
    (store.directory(run.run_id) / "result.json").unlink()
    with pytest.raises(ResultsError, match=re.escape(str(store.root))):
        taken(store, tmp_path, "1.txt", arm="A")
