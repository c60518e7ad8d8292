"""Designs over the groups of a bundle: every group is in an arm, or the design is refused."""

from pathlib import Path

import pytest
import yaml

from harness.foreign.parts import lengths_of
from harness.split.folder import read_folder
from tests.foreign_bench import TRAINERS, ablate


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The pair whose effects are known, taken apart."""
    monkeypatch.chdir(tmp_path)
    sides = [TRAINERS / f"parts_{side}.py" for side in ("old", "new")]
    command = ("--command", "python {script}", "--gpus-per-run", 0)
    assert ablate("split", *sides, "-o", "parts", *command) == 0
    return tmp_path / "parts"


def arms(folder: Path, design: str, capsys: pytest.CaptureFixture[str], **edits: dict) -> str:
    """What `plan` says of a design after an edit of the groups."""
    changes = folder / "changes.yaml"
    content = yaml.safe_load(changes.read_text())
    for name, edit in edits.items():
        content["groups"][name] |= edit
    changes.write_text(yaml.safe_dump(content, sort_keys=False))
    experiment = folder / "experiment.yaml"
    text = experiment.read_text().replace("design: leave-one-out", f"design: {design}")
    experiment.write_text(text)
    capsys.readouterr()
    code = ablate("plan", experiment)
    said = capsys.readouterr()
    assert (code == 2) == (said.err != "")
    return str(said.out or said.err)


@pytest.mark.parametrize("design", ["leave-one-out", "ladder"])
def test_a_design_that_a_conflict_empties_is_refused_with_the_pair(
    design: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = arms(folder, design, capsys, gate={"conflicts": ["scale"]})
    assert "gate and scale" in said and "choose add-one or factorial" in said
    assert "experiment.yaml:" in said and said.count("\n") == 1


def test_a_conflict_leaves_every_group_in_an_arm_of_add_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = arms(folder, "add-one", capsys, gate={"conflicts": ["scale"]})
    assert all(name in said for name in ("gate", "scale", "rate", "depth", "dropped"))


def test_a_group_that_needs_another_is_an_arm_of_add_one_with_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = arms(folder, "add-one", capsys, gate={"needs": ["scale"]})
    assert "gate (with scale, which it needs)" in said


@pytest.mark.parametrize("length", ["num_train_steps", "num_scheduled_iterations", "epochs"])
@pytest.mark.parametrize("other", ["warmup_iterations", "grad_accumulation_steps"])
def test_the_steps_of_a_warm_up_or_of_a_sum_are_no_length(
    length: str, other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for side, warm, steps, rate in (("old", 5, 20, 1), ("new", 7, 16, 2)):
        Path(f"{side}.py").write_text(f"{other} = {warm}\n{length} = {steps}\nrate = {rate}\n")
    assert ablate("split", "old.py", "new.py", "-o", "parts") == 0
    assert lengths_of(read_folder(Path("parts"))) == (length,)


def test_where_steps_are_all_that_changes_they_are_an_arm_as_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for side, steps in (("old", 20), ("new", 16)):
        Path(f"{side}.py").write_text(
            f"num_steps = {steps}\nfor step in range(num_steps):\n    f()\n"
        )
    assert ablate("split", "old.py", "new.py", "-o", "parts", "--gpus-per-run", 0) == 0
    said = arms(tmp_path / "parts", "add-one", capsys)
    assert "num_steps" in said
