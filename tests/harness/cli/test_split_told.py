"""What `ablate split` is told: options that go together, scripts by file, folder and log, candidates for OLD and what is said of them."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.cli.split_options import SplitOptions
from harness.cli.split_parents import Sides, sides_of, tell_parents
from harness.cli.split_sides import MOST_CANDIDATES, candidates_of, code_of, data_line, short_name
from harness.cli.split_smoke import Smoked
from harness.errors import UserError
from harness.split.parents import parents_of
from harness.split.smoke import FoundNeed, Smoke, SmokedArm, TwoSteps, in_words
from tests.foreign_logs import late_2024

NEW = "a = 1\nb = 2\nc = 3\nprint(a + b + c)\n"
NEAR = NEW.replace("b = 2", "b = 7")
FAR = "x = 9\nfor i in range(x):\n    print(i)\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "new.py").write_text(NEW)
    folder = tmp_path / "older"
    folder.mkdir()
    (folder / "near.py").write_text(NEAR)
    (folder / "far.py").write_text(FAR)
    return tmp_path


DIR = Path("parts")
OF_SMOKE = "--smoke-command, --smoke-env, --smoke-limit, --smoke-memory"
REFUSED: dict[str, dict[str, Any]] = {
    "--check and --prune: one after the other": {"check": DIR, "prune": DIR},
    "--smoke: checks the folder first: leave --check out": {"check": DIR, "smoke": DIR},
    "--smoke: checks the folder first: leave --prune out": {"prune": DIR, "smoke": DIR},
    f"{OF_SMOKE}: go with --smoke DIR: name its folder": {"smoke_command": "x"},
    f"{OF_SMOKE}: go with --smoke": {"smoke_env": ["A=1"], "check": DIR},
    f"{OF_SMOKE}: go with": {"smoke_limit": 600.0},
    f"{OF_SMOKE}: go": {"smoke_memory": 2.0, "check": DIR},
    "--check: reads a folder alone: leave OLD, NEW, --parents, --command and -o out": {
        "check": DIR,
        "old": "a",
    },
    "--margin: goes with --prune DIR: name its folder": {"check": DIR, "margin": 0.1},
    "--check: reads a folder alone: leave OLD": {"check": DIR, "command": "python {script}"},
    "--prune: reads a folder alone": {"prune": DIR, "out": DIR},
    "--smoke: reads a folder alone": {"smoke": DIR, "parents": ["a"]},
}


@pytest.mark.parametrize("message", REFUSED)
def test_options_that_do_not_go_together_are_refused(
    message: str, kept_line: Callable[[str], None]
) -> None:
    with pytest.raises(UserError) as error:
        SplitOptions(**REFUSED[message]).check_alone()
    assert str(error.value).startswith(message)
    kept_line(str(error.value))


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"old": "a", "new": "b", "out": DIR, "parents": ["c"]},
        {"check": DIR},
        {"prune": DIR, "margin": 0.1},
        {"smoke": DIR, "smoke_command": "x", "smoke_env": ["A=1"]},
    ],
)
def test_options_that_go_together_are_taken(asked: dict[str, Any]) -> None:
    SplitOptions(**asked).check_alone()


def test_a_side_is_a_script_or_a_folder_with_one(here: Path) -> None:
    def read(name: str) -> tuple[str, str]:
        code = code_of(name, "OLD", SplitOptions())
        return code.script, code.files[code.script].decode()

    assert read("new.py") == ("new.py", NEW)
    (here / "bare").write_text(NEAR)
    assert read("bare") == ("bare", NEAR)
    one = here / "one"
    one.mkdir()
    (one / "train.py").write_text(FAR)
    (one / "notes.md").write_text("no script")
    assert read("one") == ("train.py", FAR)
    (here / "data.bin").write_text("x")
    for name, message in (
        ("older", "OLD older: holds several scripts (far.py, near.py): name one"),
        ("data.bin", "OLD data.bin: is no Python script"),
        ("gone.py", "OLD gone.py: no such script, folder or commit of"),
        ("no-ref", "OLD no-ref: no such script, folder or commit of"),
    ):
        with pytest.raises(UserError) as error:
            read(name)
        assert str(error.value).startswith(message)


def test_a_side_may_be_a_log_or_a_folder_of_logs_of_one_script(here: Path) -> None:
    logs = here / "record"
    logs.mkdir()
    for n in range(2):
        (logs / f"{n}.txt").write_text(late_2024(3.28 + n / 100))
    options = SplitOptions(script="sub/train_gpt.py")
    whole = code_of("record", "NEW", options)
    assert [*whole.files] == [whole.script] == ["train_gpt.py"]
    assert b"class Muon" in whole.files["train_gpt.py"]
    assert code_of("record/1.txt", "NEW", options) == whole
    (logs / "2.log").write_text(late_2024(3.28).replace("class Muon(", "class Adam("))
    with pytest.raises(UserError, match=r"its logs are of several scripts \(record/0"):
        code_of("record", "NEW", options)
    empty = here / "empty"
    empty.mkdir()
    (empty / "a.txt").write_text("nothing")
    with pytest.raises(UserError, match="NEW empty: holds no script, and no log that opens with"):
        code_of("empty", "NEW", options)


def test_candidates_are_scripts_of_folders_and_files_and_what_cannot_be_read_is_told(
    here: Path,
) -> None:
    deep = here / "deep/er"
    deep.mkdir(parents=True)
    (deep / "inner.py").write_text(FAR)
    options = SplitOptions(parents=["older", "deep", "new.py,no-ref", "older/near.py"])
    candidates, skipped = candidates_of(options)
    assert [*candidates] == ["older/far.py", "older/near.py", "deep/er/inner.py", "new.py"]
    assert candidates["older/near.py"] == NEAR.encode()
    assert [*skipped] == ["no-ref"]
    assert skipped["no-ref"].startswith("no-ref: no such script, folder or commit")
    assert candidates_of(SplitOptions()) == ({}, {})
    (here / "none").mkdir()
    with pytest.raises(UserError, match="--parents none: holds no Python script: name another"):
        candidates_of(SplitOptions(parents=["none"]))
    many = ",".join(f"r{n}" for n in range(MOST_CANDIDATES + 1))
    with pytest.raises(UserError, match=f"names 501 candidates: at most {MOST_CANDIDATES}"):
        candidates_of(SplitOptions(parents=[many]))
    as_many_as_may_be = ["new.py"] * MOST_CANDIDATES
    assert [*candidates_of(SplitOptions(parents=as_many_as_may_be))[0]] == ["new.py"]


def test_the_nearest_candidate_is_old_where_nothing_else_is_named(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = sides_of(SplitOptions(old="new.py", parents=["older"]))
    assert (sides.old, sides.new) == ("older/near.py", "new.py")
    told = sides.parents_mapping()
    assert told is not None and told["chosen"] == "older/near.py"
    assert [one["candidate"] for one in told["distances"]] == ["older/near.py", "older/far.py"]
    tell_parents(sides)
    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == ["candidate", "lines", "atoms"]
    nearest = told["distances"][0]["lines"]
    assert out[-1] == f"OLD is older/near.py, the nearest: {nearest} changed lines"


def test_a_candidate_that_is_nearer_than_old_is_told(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = sides_of(SplitOptions(old="older/far.py", new="new.py", parents=["older/near.py"]))
    assert sides.old == "older/far.py"
    tell_parents(sides)
    assert "older/near.py is nearer than older/far.py, with " in capsys.readouterr().out
    nearest = sides_of(SplitOptions(old="older/near.py", new="new.py", parents=["older/far.py"]))
    tell_parents(nearest)
    assert "OLD is older/near.py, the nearest" in capsys.readouterr().out


def test_few_of_the_skipped_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    parents = parents_of(NEW, {"near": NEAR.encode()})
    for n, last in ((1, "skipped line 0"), (5, "skipped line 4"), (6, "skipped 1 more")):
        skipped = {str(i): f"line {i}" for i in range(n)}
        measured = type(parents)(distances=parents.distances, skipped=skipped)
        tell_parents(Sides(old="near", new="new", parents=measured))
        lines = capsys.readouterr().out.splitlines()
        assert [line for line in lines if line.startswith("skipped")][-1] == last
    tell_parents(Sides(old="a", new="b"))
    assert capsys.readouterr().out == ""
    assert Sides(old="a", new="b").parents_mapping() is None


def test_without_two_sides_or_candidates_nothing_is_taken_apart(here: Path) -> None:
    assert sides_of(SplitOptions(old="a", new="b")) == Sides(old="a", new="b")
    for asked in ({}, {"old": "a"}, {"new": "b"}):
        with pytest.raises(UserError, match="split: name OLD and NEW, or NEW and --parents"):
            sides_of(SplitOptions(**asked))
    with pytest.raises(UserError, match="--parents: name NEW, whose parent is looked for"):
        sides_of(SplitOptions(parents=["older"]))
    (here / "bad.py").write_text("no python (")
    with pytest.raises(UserError, match="--parents: no candidate can be OLD: "):
        sides_of(SplitOptions(new="new.py", parents=["bad.py"]))


def test_names_and_data_of_sides(here: Path) -> None:
    assert [short_name(text) for text in ("new.py", "v1:a/b.py", "older", "..")] == [
        *("new", "v1-a-b.py", "older", "script")
    ]
    assert data_line("older/near.py", "new.py") == ""
    (here / "data").mkdir()
    assert data_line("older/near.py") == f"\n  data: '{here / 'data'}'", "of this folder"
    (here / "older/data").mkdir()
    assert data_line("new.py", "older/near.py") == "\n  data: '" + str(here / "data") + "'"
    assert data_line("older/near.py", "new.py") == f"\n  data: '{here / 'older/data'}'"


def test_what_a_smoke_found_is_told_with_what_it_was_before(
    capsys: pytest.CaptureFixture[str],
) -> None:
    passed = TwoSteps(reason=None, steps=2, losses=(3.0, 2.0), seconds=1.26)
    failed = TwoSteps(reason="NameError: x", steps=0)

    def arm(name: str, outcome: TwoSteps, same_as: str | None = None) -> SmokedArm:
        return SmokedArm(arm=name, group=name, outcome=outcome, same_as=same_as)

    arms = (arm("a", passed), arm("b", passed, "OLD"), arm("c", failed))
    need = FoundNeed(group="a", needs=("b",), atoms=(1,), reason="NameError: x")
    whole: Any = {"parts": None, "old": passed, "new": passed, "arms": arms}
    folder: Any = SimpleNamespace(path=Path("parts"))
    found = Smoke(**whole, repeats=False, first=(arm("a", failed), *arms[1:]), found=(need,))
    told = Smoked(folder=folder, smoke=found, kept=Path("before.yaml"))
    assert told.code == 1
    told.tell(SplitOptions())
    _, *rows = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows[:5]] == ["OLD", "NEW", "a", "b", "c"]
    assert rows[3].endswith("no effect: as OLD") and rows[4].endswith("NameError: x")
    assert rows[5:] == [
        "OLD did something else when it ran again: what has no effect cannot be told",
        f"found: {in_words(need)}",
        "parts: changes.yaml has what was found; as it was: before.yaml",
        "2 of 3 arms took two steps; 1 of 3 before anything was found",
    ]
    nothing = Smoke(**whole, repeats=True, first=arms, found=())
    Smoked(folder=folder, smoke=nothing, kept=None).tell(SplitOptions())
    assert capsys.readouterr().out.splitlines()[6:] == ["2 of 3 arms took two steps"]
    told.tell(SplitOptions(json=True))
    assert capsys.readouterr().out == ""
