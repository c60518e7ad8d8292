"""The sides of `ablate ab`: arguments and variables of their own, patches, three scripts and more, any launcher."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.cli.ab_sides import Side, names_of
from harness.errors import UserError
from harness.foreign.commits import patched
from harness.foreign.plan import UNKNOWN_CORPUS
from harness.provenance.code import Code
from reports.inputs.load import load
from tests.foreign_bench import CPU, ablate, bench

SEEDED = (*CPU, "-n", 1, "--env", "SEED={seed}")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return bench(tmp_path, monkeypatch)


def names(*texts: str) -> list[str]:
    return names_of([Side.of(text) for text in texts])


def test_each_side_has_its_arguments_and_variables_and_there_may_be_several(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    diff = subprocess.run(["diff", "-u", "old.py", "new.py"], capture_output=True, text=True)
    Path("idea.diff").write_text(diff.stdout)  # with the names of two scripts in its head
    sides = ("old.py", "old.py --better=0.01", "BETTER=0.03 old.py", "idea.diff --better=0.04")
    assert ablate("ab", *sides, *SEEDED, "--experiment", "four", "--json") == 0
    verdict = json.loads(capsys.readouterr().out)
    runs = load("four").runs.set_index("arm")["val_loss"]
    gains = {arm: round(float(runs["old"] - loss), 3) for arm, loss in runs.items()}
    assert gains == {
        **{"old": 0, "old --better=0.01": 0.01},
        **{"BETTER=0.03 old": 0.03, "idea --better=0.04": 0.06},
    }
    assert {c["arm"] for c in verdict["comparisons"]} == set(gains) - {"old"}
    assert [rule["arm"] for rule in verdict["rules"]] == [
        a for a in gains_in(verdict) for _ in "123"
    ]
    plan = load("four").plan
    assert plan.question.startswith("Which of old --better=0.01, BETTER=0.03 old, idea")
    assert [arm.changes for arm in plan.arms][:2] == [(), ("old --better=0.01",)]
    assert plan.corpus == UNKNOWN_CORPUS
    assert plan.target.val_loss == 3.28
    assert ablate("ab", *sides, *SEEDED, "--experiment", "four", "--until", "decided") == 2
    assert "judges one NEW, not 3" in capsys.readouterr().err


def gains_in(verdict: dict) -> list[str]:
    """The new arms in the order of the table."""
    return [arm["arm"] for arm in verdict["arms"][1:]]


def test_a_patch_of_nothing_and_a_side_without_a_script_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], kept_line: Callable[[str], None]
) -> None:
    Path("idea.patch").write_text("--- old.py\n+++ new.py\n@@ -1 +1 @@\n-nothing\n+more\n")
    told = []
    for sides, said in (
        (("idea.patch", "old.py"), "OLD idea.patch: is a patch: name the script that it is for"),
        (("old.py", "idea.patch"), "does not apply to old.py"),
        (("old.py", "LR=1"), "'LR=1': names no script"),
        (("old.py", "old.py 'x"), "has a quote that is not closed"),
        (("old.py", "older.py --x"), "no such script"),
    ):
        assert ablate("ab", *sides, *SEEDED) == 2
        told.append(capsys.readouterr().err)
        assert said in told[-1]
    kept_line("".join(line for line in told if "does not apply" not in line))  # as git says


def test_names_tell_the_sides_apart(folder: Path) -> None:
    Path("a").mkdir()
    Path("a/old.py").write_text("")
    assert names("old.py", "new.py") == ["old", "new"]
    assert names("old.py", "a/old.py") == ["old.py", "a/old.py"]
    assert names("old.py", "old.py", "old.py") == ["old.py", "old.py again", "old.py again again"]
    assert names("main", "main:b.py") == ["main", "main:b.py"]
    Path("two words.py").write_text("")
    assert Side.of("two words.py").place == "two words.py"
    with pytest.raises(UserError, match="names no script"):
        Side.of(" ")


@pytest.mark.slow
@pytest.mark.parametrize("command", [None, "torchrun --standalone --nproc-per-node 2 {script}"])
def test_torchrun_starts_a_script_with_one_process_or_several(
    folder: Path, command: str | None
) -> None:
    """On a CPU here: a run of 8 GPUs is --gpus-per-run 8, one of 1 GPU accumulates what the script then does."""
    ranked = "import os\nassert os.environ['LOCAL_RANK'] and os.environ['MASTER_PORT']\n"
    ranked += "rank, world = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])\n"
    ranked += "if rank == 0: print(f'step:1/1 val_loss:{3 + 8 // world} train_time:1ms')\n"
    Path("old.py").write_text(ranked)
    options = ["--gpus-per-run", 0, "--no-report", "-n", 1, "--experiment", "ranks"]
    if command is not None:
        options += ["--command", command]
    assert ablate("ab", "old.py", "WORLDS=1 old.py", *options) == 0
    assert set(load("ranks").runs["val_loss"]) == {7 if command else 11}


@pytest.mark.parametrize("above", ["", "sub/", "2026/sub/", "work/2026/sub/", "all/work/2026/sub/"])
def test_a_patch_by_git_applies_however_deep_the_script_lies_in_its_repository(
    above: str, tmp_path: Path
) -> None:
    name = f"{above}old.py"
    patch = tmp_path / "idea.patch"
    patch.write_text(
        f"diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-x = 1\n+x = 2\n"
    )
    code = Code(script="old.py", files={"old.py": b"x = 1\n"})
    assert patched(code, [patch]).files == {"old.py": b"x = 2\n"}


def test_a_patch_of_other_names_is_for_the_files_that_have_one_of_them(tmp_path: Path) -> None:
    """The second of its files git finds by itself, were it not for the first."""
    patch = tmp_path / "idea.patch"
    change = "@@ -1 +1 @@\n-x = 1\n+x = 2\n"
    patch.write_text(f"--- part.py\n+++ becomes.py\n{change}--- was.py\n+++ old.py\n{change}")
    code = Code(script="old.py", files={"old.py": b"x = 1\n", "part.py": b"x = 1\n"})
    assert patched(code, [patch]).files == {"old.py": b"x = 2\n", "part.py": b"x = 2\n"}


TWO = Code(script="old.py", files={"old.py": b"x = 1\n", "part.py": b"y = 1\n"})
CHANGE = "@@ -1 +1 @@\n-x = 1\n+x = 2\n"
UNFIT = {  # patch -> what is said of it
    "diff --git a/old.py b/old.py\nold mode 100644\nnew mode 100755\n": (
        "idea.patch: does not apply to old.py: it changes none of the files: make it with `diff -u`"
    ),
    "diff --git a/old.py b/old.py\ndeleted file mode 100644\n--- a/old.py\n+++ /dev/null\n"
    "@@ -1 +0,0 @@\n-x = 1\n": "old.py: a patch removed it: there is nothing to run",
    f"--- was.py\n+++ is.py\n{CHANGE}--- part.py\n+++ part.py\n{CHANGE.replace('x', 'y')}": (
        "idea.patch: does not apply to old.py: "
    ),
    f"diff --git a/was.py b/was.py\n--- a/was.py\n+++ b/was.py\n{CHANGE}": (
        "idea.patch: does not apply to old.py: "
    ),
}


@pytest.mark.parametrize("patch", UNFIT)
def test_a_patch_of_nothing_of_everything_and_of_files_that_are_not_there_is_refused(
    patch: str, tmp_path: Path
) -> None:
    (tmp_path / "idea.patch").write_text(patch)
    with pytest.raises(UserError, match=re.escape(UNFIT[patch])) as refused:
        patched(TWO, [tmp_path / "idea.patch"])
    cure = ": make it with `diff -u` or `git diff` from the script"
    assert str(refused.value).endswith(cure) == ("does not apply" in UNFIT[patch])


def test_a_patch_of_one_file_of_any_name_is_for_the_script(tmp_path: Path) -> None:
    (tmp_path / "idea.patch").write_text(f"--- was.py\n+++ is.py\n{CHANGE}")
    assert patched(TWO, [tmp_path / "idea.patch"]).files == {**TWO.files, "old.py": b"x = 2\n"}


def test_a_patch_leaves_the_files_in_folders_of_the_script_where_they_are(tmp_path: Path) -> None:
    deep = {"lib/net/one.py": b"y = 1\n", "lib/net/two.py": b"z = 1\n"}
    code = Code(script="old.py", files={"old.py": b"x = 1\n", **deep})
    (tmp_path / "idea.patch").write_text(
        f"--- a/old.py\n+++ b/old.py\n{CHANGE}"
        f"--- a/lib/net/two.py\n+++ b/lib/net/two.py\n{CHANGE.replace('x', 'z')}"
    )
    changed = {"old.py": b"x = 2\n", "lib/net/two.py": b"z = 2\n"}
    assert patched(code, [tmp_path / "idea.patch"]).files == {**code.files, **changed}
