"""Arms that are groups of a folder that `ablate split` wrote: a length is measured by itself, and on all the others."""

from pathlib import Path

import pytest
import yaml

from harness.foreign.experiment import load_foreign
from tests.foreign_bench import ablate


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two scripts taken apart that differ in three numbers, one of them how long they train."""
    monkeypatch.chdir(tmp_path)
    for side, warm, steps, rate in (("old", 5, 20, 1), ("new", 7, 16, 2)):
        text = f"warm = {warm}\nnum_steps = {steps}\nrate = {rate}\n"
        Path(f"{side}.py").write_text(text)
    command = ("--command", "python {script}", "--gpus-per-run", 0)
    assert ablate("split", "old.py", "new.py", "-o", "parts", *command) == 0
    return tmp_path / "parts"


def arms(folder: Path, **edits: object) -> dict[str, tuple[str, ...]]:
    """The arms of the folder's experiment but for the baseline, after an edit of it."""
    path = folder / "experiment.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **edits}))
    return {arm.name: tuple(arm.changes) for arm in load_foreign(path, {}).arms[1:]}


def test_a_length_is_in_no_arm_but_its_own_and_one_with_all(folder: Path) -> None:
    of_length = {
        "num_steps": ("num_steps",),
        "all + num_steps": ("warm", "rate", "num_steps"),
    }
    alone = {"warm": ("warm",), "rate": ("rate",)}
    assert arms(folder, design="add-one") == alone | of_length
    trainer = yaml.safe_load((folder / "experiment.yaml").read_text())["trainer"]
    assert arms(folder, trainer={**trainer, "parts": "changes.yaml"}) == alone | of_length


@pytest.mark.parametrize(("group", "other"), [("num_steps", "rate"), ("rate", "num_steps")])
def test_a_length_that_needs_another_or_that_another_needs_is_a_change_as_any(
    folder: Path, group: str, other: str
) -> None:
    changes = yaml.safe_load((folder / "changes.yaml").read_text())
    changes["groups"][group]["needs"] = [other]
    (folder / "changes.yaml").write_text(yaml.safe_dump(changes, sort_keys=False))
    made = arms(folder, design="add-one")
    assert made.keys() == {"warm", other, f"{group} (with {other}, which it needs)"}


def test_a_length_that_never_goes_with_another_is_in_no_arm_with_all(folder: Path) -> None:
    changes = yaml.safe_load((folder / "changes.yaml").read_text())
    changes["groups"]["num_steps"]["conflicts"] = ["rate"]
    (folder / "changes.yaml").write_text(yaml.safe_dump(changes, sort_keys=False))
    assert [*arms(folder, design="add-one")] == ["warm", "rate", "num_steps"]
