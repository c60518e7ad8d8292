"""Which script NEW was made from: the nearest candidate, of a folder or of refs, the others named with their distance."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.split.parents import changed_lines, parents_of
from harness.split.source import normal
from tests.foreign_bench import ablate, commit

LINES = [f"value_{n} = {n}" for n in range(8)]


def script(**changed: int) -> str:
    return "\n".join([*LINES, *(f"{name} = {value}" for name, value in changed.items())]) + "\n"


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """NEW was made from near.py; a candidate is broken, one is NEW itself."""
    monkeypatch.chdir(tmp_path)
    Path("new.py").write_text(script(a=1, b=2, c=3))
    Path("old").mkdir()
    for name, text in {
        "far": script(x=1),
        "near": script(a=1, b=2),
        "broken": "for x in\n",
        "itself": f"# a comment\n{script(a=1, b=2, c=3)}",
    }.items():
        Path("old", f"{name}.py").write_text(text)
    return tmp_path


def test_distances_are_changed_lines_and_atoms() -> None:
    new = normal("a = 1\nb = 2\nc = f(3, x=4)\n", where="NEW")
    found = parents_of(new, {"one": b"a = 1\nb = 2\nc = f(3, x=5)\n", "two": b"b = 2\nd = 4\n"})
    assert [(d.candidate, d.lines, d.atoms) for d in found.distances] == [
        ("one", 2, 1),
        ("two", 3, 3),
    ]


def test_a_candidate_that_is_nested_too_deeply_is_skipped_and_said() -> None:
    chain = "if a == 0:\n    f(0)\n" + "".join(f"elif a == {n}:\n    f({n})\n" for n in range(280))
    new = normal(chain + "g()\nh()\n", where="NEW")
    found = parents_of(new, {"deep": chain.encode(), "broken": b"for x in\n"})
    assert found.nearest is None
    assert found.skipped["deep"] == "deep: is nested too deeply"
    assert found.skipped["broken"].startswith("broken, line 1: is not Python")


def test_the_nearest_of_a_folder_is_old(scripts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ablate("split", "new.py", "--parents", "old", "-o", "parts") == 0
    said = capsys.readouterr().out
    assert said.index("old/near.py") < said.index("old/far.py")
    assert "skipped old/broken.py, line 1: is not Python" in said
    assert "skipped old/itself.py: is the same program as NEW" in said
    assert "OLD is old/near.py, the nearest: 1 changed line\n" in said
    assert (scripts / "parts/old/new.py").read_text() == script(a=1, b=2)


def test_a_nearer_one_than_old_is_offered_and_json_has_them(
    scripts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ("split", "old/far.py", "new.py", "--parents", "old", "-o")
    assert ablate(*call, "parts") == 0
    assert "old/near.py is nearer than old/far.py" in capsys.readouterr().out
    assert (scripts / "parts/old/new.py").read_text() == script(x=1)
    assert ablate(*call, "other", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["parents"]["chosen"] == "old/far.py"
    assert told["parents"]["distances"][0] == {"candidate": "old/near.py", "lines": 1, "atoms": 1}
    assert set(told["parents"]["skipped"]) == {"old/broken.py", "old/itself.py"}
    assert [group["lines"] for group in told["groups"]]


def test_candidates_are_refs_and_ranges(scripts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("far", "near"):
        Path("train_gpt.py").write_text(Path("old", f"{name}.py").read_text())
        commit(name, "train_gpt.py")
    for given in ("far,near,nowhere", "far..near"):
        out = f"parts-{given}"
        assert ablate("split", "new.py", "--parents", given, "-o", out) == 0
        said = capsys.readouterr().out
        assert Path(out, "old/new.py").read_text() == script(a=1, b=2)
        assert ("skipped nowhere: no such script" in said) == ("," in given)
    assert ablate("split", "near", "far", "--script", "train.py") == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith(
        "OLD near: that commit has no train.py: name its script, as near:PATH or by --script"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("new.py", "--parents", "empty"), "--parents empty: holds no Python script"),
        (("new.py", "--parents", "old/broken.py"), "no candidate can be OLD: old/broken.py, line"),
        (("new.py", "--parents", "a..b"), "--parents a..b: no commit of"),
        (("new.py",), "name OLD and NEW, or NEW and --parents"),
        (("--parents", "old"), "--parents: name NEW"),
        (("--check", "parts", "--parents", "old"), "--check: reads a folder alone"),
    ],
)
def test_what_names_no_parent_gets_a_line(
    words: tuple[str, ...],
    said: str,
    scripts: Path,
    capsys: pytest.CaptureFixture[str],
    kept_line: Callable[[str], None],
) -> None:
    (scripts / "empty").mkdir()
    assert ablate("split", *words) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert said in line
    if "can be OLD" not in said:  # which ends in words of Python itself
        kept_line(line)


LOG = """{line}
import os
TEXT = '''
{line}
'''
rate = {rate}
print(f"step:{{os.getpid()}} val_loss:{{rate}}")
{line}
Running pytorch 2.9
{line}
step:0/10 val_loss:{loss} train_time:0ms step_avg:nanms
"""


def write_log(path: str, *, rate: int, loss: float = 3.5) -> None:
    Path(path).parent.mkdir(exist_ok=True)
    Path(path).write_text(LOG.format(line="=" * 100, rate=rate, loss=loss))


def test_a_log_and_the_folder_of_a_record_are_the_script_at_their_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_log("old/a.txt", rate=1)
    write_log("old/b.log", rate=1, loss=3.4)
    Path("old/README.md").write_text("A record.\n")
    write_log("new/c.txt", rate=2)
    assert ablate("split", "old", "new/c.txt", "-o", "parts") == 0
    assert "rate: 1 → 2" in capsys.readouterr().out
    assert "TEXT = " in Path("parts/new/train_gpt.py").read_text()
    assert "step:0" not in Path("parts/old/train_gpt.py").read_text()


def test_a_folder_whose_logs_are_of_several_scripts_or_of_none_gets_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_log("old/a.txt", rate=1)
    write_log("old/b.txt", rate=3)
    Path("none").mkdir()
    Path("none/notes.txt").write_text("nothing\n")
    for old, said in (
        ("old", "its logs are of several scripts (old/a.txt, old/b.txt): name one"),
        ("none", "holds no script, and no log that opens with one"),
        ("none/notes.txt", "holds no script, and no log that opens with one"),
    ):
        assert ablate("split", old, "old/a.txt", "-o", "parts") == 2
        [line] = capsys.readouterr().err.splitlines()
        assert said in line


def test_lines_that_are_there_many_times_are_no_changes() -> None:
    many = ["tick()"] * 250
    assert changed_lines(many, ["first()", *many]) == changed_lines(["first()", *many], many) == 1
    assert changed_lines(["a", "b", "c"], ["a", "d", "c", "e"]) == 3
