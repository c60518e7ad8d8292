"""`ablate split`: what OLD and NEW may name."""

import subprocess
from pathlib import Path

import pytest

from tests.foreign_bench import TRAINERS, ablate


def script(side: str) -> str:
    return (TRAINERS / f"parts_{side}.py").read_text()


def git(*words: str) -> None:
    who = ("-c", "user.name=n", "-c", "user.email=e@e")
    subprocess.run(["git", *who, *words], check=True, capture_output=True)


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose script was `old`, tagged v1, and is `new`; another is in a folder of it."""
    monkeypatch.chdir(tmp_path)
    git("init", "-q", "repo")
    monkeypatch.chdir(tmp_path / "repo")
    for side, tag in (("old", "v1"), ("new", "v2")):
        Path("train_gpt.py").write_text(script(side))
        Path("medium").mkdir(exist_ok=True)
        Path("medium", "train.py").write_text("size = 2\n" + script(side))
        git("add", "-A")
        git("commit", "-qm", tag)
        git("tag", tag)
    Path("train_gpt.py").write_text("not = what was committed\n")
    return tmp_path / "repo"


def changed(folder: str, name: str) -> tuple[str, str]:
    """The scripts of a folder that was written."""
    return tuple(Path(folder, side, name).read_text() for side in ("old", "new"))  # type: ignore[return-value]


def test_git_refs_name_the_script_as_it_was_committed(repo: Path) -> None:
    assert ablate("split", "v1", "v2", "--command", "python {script}") == 0
    old, new = changed("split-v1-v2", "train_gpt.py")
    assert "gate = 0" in old and "gate = 1" in new
    assert Path("split-v1-v2/patches/gate.patch").is_file()
    assert ablate("split", "v1:medium/train.py", "v2:medium/train.py", "-o", "medium-parts") == 0
    assert all(text.startswith("size = 2\n") for text in changed("medium-parts", "train.py"))
    options = ("--repo", repo, "--script", "medium/train.py", "-o", "named")
    assert ablate("split", "v1", "v2", *options) == 0
    assert changed("named", "train.py") == changed("medium-parts", "train.py")


def test_a_ref_and_a_script_of_this_folder_may_be_mixed(repo: Path) -> None:
    Path("mine.py").write_text(script("new"))
    assert ablate("split", "v1", "mine.py", "-o", "parts") == 0
    git("checkout", "-q", "train_gpt.py")
    assert ablate("split", "v1", "v2", "-o", "both") == 0
    assert changed("parts", "mine.py")[1] == changed("both", "train_gpt.py")[1]


def test_a_folder_names_its_one_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for side in ("old", "new"):
        Path(side).mkdir()
        Path(side, "train.py").write_text(script(side))
    assert ablate("split", "old", "new") == 0
    assert Path("split-old-new/changes.yaml").is_file()
    Path("new", "other.py").write_text("x = 1\n")
    capsys.readouterr()
    assert ablate("split", "old", "new", "-o", "again") == 2
    said = capsys.readouterr().err
    assert "NEW new: holds several scripts (other.py, train.py): name one" in said


@pytest.mark.parametrize(
    ("old", "said"),
    [
        ("v9", "OLD v9: no such script, folder or commit"),
        ("v1:nowhere.py", "that commit has no nowhere.py: name its script"),
        ("nowhere.py", "OLD nowhere.py: no such script"),
    ],
)
def test_what_is_not_there_gets_a_line(
    old: str, said: str, repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ablate("split", old, "v2", "-o", "parts") == 2
    [line] = capsys.readouterr().err.splitlines()
    assert said in line
    assert not Path("parts").exists()
