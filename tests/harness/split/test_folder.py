"""The folder of `split`: nothing is written or read through its links, and its numbers mean what they meant."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from harness.split.check import Checker
from harness.split.folder import read_folder
from harness.split.groups import ChangeGroup
from tests.foreign_bench import TRAINERS, ablate

LATIN = "# -*- coding: latin-1 -*-\nNAME = 'é'\n".encode("latin-1")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two scripts that import a module, and the folder of both, taken apart."""
    root = tmp_path_factory.mktemp("written")
    for side in ("old", "new"):
        (root / side).mkdir()
        script = (TRAINERS / f"parts_{side}.py").read_text()
        (root / side / "train.py").write_text(f"import helper\n{script}\n")
        (root / side / "helper.py").write_bytes(LATIN)
    command = ("--command", "python {script}", "--gpus-per-run", 0)
    scripts = [root / side / "train.py" for side in ("old", "new")]
    assert ablate("split", *scripts, "-o", root / "parts", *command) == 0
    return root


@pytest.fixture
def folder(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the folder to edit, beside the scripts."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    return tmp_path / "parts"


def line(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The one line of a command that is refused."""
    capsys.readouterr()
    assert ablate(*words) == 2
    [said] = capsys.readouterr().err.splitlines()
    return said


def test_arms_have_the_modules_byte_for_byte_and_nothing_that_python_left(folder: Path) -> None:
    (folder / "old" / "__pycache__").mkdir()
    (folder / "old" / "__pycache__" / "helper.pyc").write_bytes(b"\xff\xfe")
    assert ablate("plan", folder / "experiment.yaml") == 0
    for arm in (folder / "arms").iterdir():
        assert {path.name for path in arm.iterdir()} == {"train.py", "helper.py"}
        assert (arm / "helper.py").read_bytes() == LATIN


@pytest.mark.parametrize("place", ["arms", "arms/all", "arms/all/train.py"])
def test_no_arm_is_written_through_a_link(
    place: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = folder.parent / "mine"
    (other / "all").mkdir(parents=True)
    for path in (other / "train.py", other / "all" / "train.py"):
        path.write_text("mine = 1\n")
    (folder / place).parent.mkdir(parents=True, exist_ok=True)
    (folder / place).symlink_to(other / "train.py" if place.endswith(".py") else other)
    assert "links" in line(capsys, "plan", folder / "experiment.yaml")
    for path in (other / "train.py", other / "all" / "train.py"):
        assert path.read_text() == "mine = 1\n"


def test_no_patch_is_written_and_no_module_read_through_a_link(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder.parent / "secret").write_text("KEY = 1\n")
    (folder / "old" / "key.py").symlink_to(folder.parent / "secret")
    assert "key.py: links" in line(capsys, "plan", folder / "experiment.yaml")
    assert "key.py: links" in line(capsys, "split", "--check", folder)
    (folder / "old" / "key.py").unlink()
    patch = folder / "patches" / "rate.patch"
    patch.unlink()
    (folder / "patches").rename(folder.parent / "others")
    (folder / "patches").symlink_to(folder.parent / "others")
    assert "links" in line(capsys, "split", "--check", folder)
    assert not (folder.parent / "others" / "rate.patch").exists()


def test_numbers_that_mean_other_atoms_by_now_are_noticed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = folder / "changes.yaml"
    written = changes.read_text()
    content = yaml.safe_load(written)
    number = content["groups"]["rate"]["atoms"][0]
    content["atoms"][number] = "something else"
    changes.write_text(yaml.safe_dump(content))
    said = line(capsys, "split", "--check", folder)
    assert f"atom {number} was 'something else'" in said
    changes.write_text(written)
    script = folder / "new" / "train.py"
    script.write_text(script.read_text() + "another = 1\n")
    assert "take the scripts apart again" in line(capsys, "plan", folder / "experiment.yaml")


def test_arms_of_many_groups_have_folders_of_their_own(folder: Path) -> None:
    read = read_folder(folder)
    groups = []
    for n in range(9):
        groups.append(ChangeGroup(name=f"{n}{'x' * 40}", about="", kind="learning", atoms=()))
    many = replace(read, parts=replace(read.parts, groups=tuple(groups)))
    names = [group.name for group in groups]
    arms = {many.arm(chosen) for chosen in (names[:3], [*names[:2], names[3]], names[:4])}
    assert len(arms) == 3


def test_the_name_of_an_arms_folder_has_at_most_a_hundred_characters_and_a_digest(
    folder: Path,
) -> None:
    read = read_folder(folder)
    for length, folder_name in ((100, "y" * 100), (101, "y" * 100 + "-")):
        one = ChangeGroup(name="y" * length, about="", kind="learning", atoms=())
        others = [replace(one, name=name) for name in ("a", "b")]
        arm = replace(read, parts=replace(read.parts, groups=(one, *others))).arm([one.name])
        assert arm.parent.name.startswith(folder_name)
        assert (len(arm.parent.name) == length) == (length == 100)


def test_the_folder_of_an_arm_is_called_by_what_it_has_or_by_the_less_that_it_lacks(
    folder: Path,
) -> None:
    read = read_folder(folder)
    groups = [ChangeGroup(name=name, about="", kind="learning", atoms=()) for name in "abcd"]
    four = replace(read, parts=replace(read.parts, groups=tuple(groups)))
    names = [four.arm(chosen).parent.name for chosen in ("", "ca", "cab", "dcab")]
    assert names == ["none", "a+c", "all-d", "all"]


@pytest.mark.parametrize("given", [None, 3, "sub/train.py", ""])
def test_both_scripts_have_one_file_name_without_a_folder(
    given: object, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = folder / "changes.yaml"
    content = yaml.safe_load(changes.read_text())
    content["script"] = given
    changes.write_text(yaml.safe_dump(content))
    said = line(capsys, "split", "--check", folder)
    assert said.endswith(": script must be the file name of both scripts")


def test_a_group_that_says_nothing_of_itself_says_its_largest_atom(folder: Path) -> None:
    changes = folder / "changes.yaml"
    content = yaml.safe_load(changes.read_text())
    said = content["groups"]["rate"].pop("about")
    content["groups"]["gate"]["about"] = "of my own"
    changes.write_text(yaml.safe_dump(content))
    about = {group.name: group.about for group in read_folder(folder).groups}
    assert (about["rate"], about["gate"]) == (said, "of my own")


@pytest.mark.parametrize("place", ["changes.yaml", "new", "new/train.py"])
def test_neither_the_groups_nor_a_script_are_read_through_a_link(
    place: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = folder.parent / "moved"
    (folder / place).rename(moved)
    (folder / place).symlink_to(moved)
    assert "links" in line(capsys, "split", "--check", folder)


@pytest.mark.parametrize("what", ["A", "~", None])
def test_an_atom_that_is_another_is_noticed_whatever_it_was(
    what: str | None, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = folder / "changes.yaml"
    content = yaml.safe_load(changes.read_text())
    number = content["groups"]["rate"]["atoms"][0]
    content["atoms"][number] = what
    changes.write_text(yaml.safe_dump(content))
    assert f"atom {number} was '{what}'" in line(capsys, "split", "--check", folder)
    del content["atoms"]
    changes.write_text(yaml.safe_dump(content))
    assert "has no `atoms`" in line(capsys, "split", "--check", folder)


@pytest.mark.parametrize("side", ["old", "new"])
def test_a_script_that_is_gone_is_told(
    side: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / side / "train.py").unlink()
    said = line(capsys, "split", "--check", folder)
    assert f"{side}/train.py: is not there: `ablate split` writes the folder anew" in said


def test_arms_that_lack_a_name_are_counted_and_one_of_them_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    read = read_folder(folder)
    alone = {read.text((name,)): name for name in ("rate", "gate")}
    lacking: list[str] = []
    monkeypatch.setattr(
        Checker,
        "problems",
        lambda self, text: ["x has no value"] if alone.get(text) in lacking else [],
    )
    for name, more in (("rate", ""), ("gate", " (and 1 more)")):
        lacking.append(name)
        said = line(capsys, "split", "--check", folder)
        assert " alone: x has no value" in said
        assert said.endswith(f"x has no value{more}: let it need the group that gives it")
    assert {path: path.read_bytes() for path in before} == before
