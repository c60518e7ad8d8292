"""Two scripts taken apart: exact at both ends, what has its needs stands in between, and is measured as it is."""

import ast
import itertools
import random
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from harness.errors import UserError
from harness.split.arms import alone, atoms_on, measured, mended, without
from harness.split.check import Checker
from harness.split.folder import read_folder
from harness.split.groups import Parts, reach, take_apart
from harness.split.labels import class_of
from harness.split.numbers import broken_assertions
from harness.split.search import smallest
from harness.split.source import decoded, reads_itself
from reports.inputs.load import load
from tests.foreign_bench import TRAINERS, ablate

ROOT = Path(__file__).resolve().parents[3]
PAIRS = {
    "parts": (TRAINERS / "parts_old.py", TRAINERS / "parts_new.py"),
    "records": (ROOT / "benchmarks/r08_plain.py", ROOT / "benchmarks/r18_plain.py"),
    "strangers": (TRAINERS / "fast.py", TRAINERS / "own.py"),
}


def texts(*paths: Path) -> tuple[str, str]:
    old, new = (decoded(path.read_bytes(), str(path)) for path in paths)
    return old, new


@cache
def parts_of(pair: str, turn: int = 1) -> Parts:
    """A pair taken apart, one way round or the other."""
    return take_apart(*texts(*PAIRS[pair][::turn]))


def apart(old: str, new: str) -> Parts:
    """Two snippets taken apart."""
    return take_apart(decoded(old.encode(), "OLD"), decoded(new.encode(), "NEW"))


def together(parts: Parts) -> list[set[str]]:
    """What the atoms of each measured group say."""
    return [{parts.atoms[n].what for n in group.atoms} for group in measured(parts.groups)]


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("turn", [1, -1])
def test_all_on_is_new_and_all_off_is_old_and_what_has_its_needs_between_is_python(
    pair: str, turn: int
) -> None:
    old, new = texts(*PAIRS[pair][::turn])
    parts = parts_of(pair, turn)
    whole = parts.difference
    assert whole.text(range(whole.n_atoms)) == new
    assert whole.text(()) == old
    judged = [group.name for group in measured(parts.groups)]
    assert whole.text(atoms_on(parts.groups, judged)) == new
    draw = random.Random(pair)
    needed = reach(whole.n_atoms, parts.edges)
    for _ in range(20):
        some = {atom for atom in range(whole.n_atoms) if draw.random() < 0.5}
        ast.parse(whole.text(set().union(*(needed[atom] for atom in some))))


@pytest.mark.parametrize(
    "pair", ["parts", pytest.param("records", marks=pytest.mark.slow), "strangers"]
)
def test_random_choices_of_groups_give_every_name_and_fit_every_call(pair: str) -> None:
    old, new = texts(*PAIRS[pair])
    checker = Checker(old, new)
    parts = mended(parts_of(pair), checker)
    judged = [group.name for group in measured(parts.groups)]
    assert judged
    draw = random.Random(pair)
    choices = [alone(parts.groups, name) for name in judged]
    choices += [without(parts.groups, name) for name in judged]
    for _ in range(10):
        some = [name for name in judged if draw.random() < 0.5]
        choices.append(sorted({n for name in some for n in alone(parts.groups, name)}))
    for chosen in choices:
        text = parts.difference.text(atoms_on(parts.groups, chosen))
        assert checker.problems(text) == [], chosen


# ---------------------------------------------------------------- what needs what


def test_a_definition_goes_with_its_only_use_and_two_features_with_one_loop_variable_stay_two() -> (
    None
):
    parts = apart(
        "def run(xs):\n    return sum(xs)\n",
        "def half(x):\n    return x / 2\n\n"
        "def run(xs):\n"
        "    for i in range(2):\n        xs[i] = half(xs[i])\n"
        "    for i in range(3):\n        xs.append(i)\n"
        "    return sum(xs)\n",
    )
    assert sorted(len(atoms) for atoms in together(parts)) == [1, 2]
    assert {"added: def half", "added: for i in range(2):"} in together(parts)
    assert all(group.needs == () for group in parts.groups)


def test_a_shared_definition_is_needed_by_both_and_is_no_arm() -> None:
    parts = apart(
        "def run(x, y):\n    f(x)\n    g(y)\n",
        "def half(x):\n    return x / 2\n\ndef run(x, y):\n    a(half(x))\n    f(x)\n    g(y)\n    b(half(y))\n",
    )
    kinds = {group.kind for group in parts.groups}
    assert kinds == {"support", "learning"}
    assert [len(group.needs) for group in measured(parts.groups)] == [1, 1]


def test_an_assertion_goes_with_its_own_definition_and_not_with_one_whose_name_goes_on() -> None:
    old = "def f(x):\n    return x\n\ndef fast(x):\n    return x\n\nprint(f(2) + fast(3))\n"
    new = old.replace("def f(x):\n", "def f(x):\n    assert x > 1\n")
    new = new.replace("fast(x):\n    return x", "fast(x):\n    return x + 1")
    assert len(apart(old, new).groups) == 2
    assert len(apart(old, new.replace("    return x\n", "    return 2 * x\n")).groups) == 2


def test_a_parameter_that_must_be_given_goes_with_its_argument() -> None:
    parts = apart(
        "def f(x):\n    return x\n\nprint(f(1))\ny = f(2)\n",
        "def f(x, k):\n    return x\n\nprint(f(1))\ny = f(2, 3)\nz = 4\n",
    )
    assert {"added: k", "added: 3"} in together(parts)


def test_places_in_a_packed_array_move_together() -> None:
    parts = apart(
        "def f(n, x):\n    w = cat([ones(n), zeros(n)])\n    return x * w[n + 1]\n",
        "def f(n, x):\n    w = cat([ones(n), half(n), zeros(n)])\n    return x * w[2 * n + 1]\n",
    )
    assert len(together(parts)) == 1
    assert len(together(parts)[0]) == 2


def test_a_label_ties_what_gives_it_and_what_asks_for_it() -> None:
    parts = apart(
        "groups = [dict(name='a')]\nfor g in groups:\n    step(g)\n",
        "groups = [dict(name='a'), dict(name='gate')]\n"
        "for g in groups:\n    if g['name'] == 'gate':\n        slow(g)\n    step(g)\n",
    )
    assert len(together(parts)) == 1


def test_renames_prints_imports_and_moved_definitions_are_always_on() -> None:
    parts = apart(
        "import a\n\ndef f(x):\n    return a.b(x)\n\ndef g(x):\n    return x + 1\n\nn_old = g(f(1))\ng(n_old)\n",
        "import a\nimport c\n\ndef g(x):\n    return x + 1\n\ndef f(x):\n    return a.b(x)\n\nn_new = g(f(1))\ng(n_new)\nprint('now')\n",
    )
    assert measured(parts.groups) == []
    assert [group.always for group in parts.groups] == [True]
    said = {atom.what for atom in parts.atoms}
    assert "n_old is called n_new" in said and said & {"moved: def f", "moved: def g"}


@pytest.mark.parametrize(
    ("line", "tells"),
    [
        ("print(x)", True),
        ("print0(x, 1)", True),
        ("master_print(x)", True),
        ("logger.info(x)", True),
        ("wandb.log(x)", True),
        ("self.out.write(x)", True),
        ("log.to(2).step(x)", False),
        ("info.step(x)", True),
        ("x.step(1)", False),
        ("dialog.show(x)", False),
        ("x.rewrite(1)", False),
        ("f(print)", False),
        ("y = print(x)[0]", False),
    ],
)
def test_what_a_line_calls_says_whether_it_only_tells(line: str, tells: bool) -> None:
    parts = apart("run(1)\n", f"run(1)\n{line}\nrun(y)\n")
    [atom] = [atom for atom in parts.atoms if atom.what == f"added: {line}"]
    assert atom.is_neutral == tells


def test_a_rename_is_neutral_though_the_line_that_logs_it_says_something_else() -> None:
    parts = apart(
        "n_old = f(1)\ng(n_old)\nprint(f'now {n_old:.4f}')\nx = 1\n",
        "n_new = f(1)\ng(n_new)\nprint(f'after {n_new:.6f} of all')\nx = 2\n",
    )
    assert [group.name for group in measured(parts.groups)] == ["x"]
    assert "n_old is called n_new" in {atom.what for atom in parts.atoms}


def test_a_moved_definition_is_neutral_though_its_annotations_and_docstring_changed() -> None:
    one, other = "def f(x):\n    return g(x)\n\n", "def h(x):\n    return x + 1\n\n"
    annotated = 'def f(x: Tensor) -> Tensor:\n    """Of x."""\n    return g(x)\n\n'
    parts = apart(f"{one}{other}h(f(1))\nx = 1\n", f"{other}{annotated}h(f(1))\nx = 2\n")
    assert [group.name for group in measured(parts.groups)] == ["x"]
    changed = annotated.replace("g(x)", "g(x) + 1")
    parts = apart(f"{one}{other}h(f(1))\n", f"{other}{changed}h(f(1))\n")
    assert measured(parts.groups) != []


def test_kinds_are_told_by_what_is_touched() -> None:
    parts = apart(
        "class Args:\n    num_iterations = 100\n    lr = 0.1\n\nloader = make(1)\n",
        "class Args:\n    num_iterations = 90\n    lr = 0.2\n\nloader = make(2)\n",
    )
    assert {g.name: g.kind for g in parts.groups} == {
        "num_iterations": "budget",
        "lr": "learning",
        "loader": "data",
    }


@pytest.mark.parametrize("wanted", [set(), {3}, {0, 7}, {1, 2, 6}, set(range(8))], ids=str)
def test_the_search_finds_what_is_missing(wanted: set[int]) -> None:
    assert set(smallest(range(8), lambda some: wanted <= set(some))) == wanted


def test_the_static_check_sees_what_a_variant_lacks() -> None:
    old, new = "a = 1\n", "class C:\n    k = 1\n\ndef f(x):\n    return x\n\nb = f(C().k)\n"
    checker = Checker(old, new)
    assert checker.problems(new) == []
    for text, said in (
        ("b = f(1)\n", "the name 'f' is given nowhere"),
        ("class C:\n    pass\n\nb = C().k\n", "the attribute 'k' is given nowhere"),
        ("def f(x):\n    return x\n\nb = f()\n", "a call of 'f' with 0 arguments"),
        ("def f(x):\n    return x\n\nb = f(1, 2)\n", "a call of 'f' with 2 arguments"),
        ("def f(x):\n    return x\n\nb = f(y=1)\n", "a call of 'f' with 0 arguments and [y]"),
        ("b = (\n", "was never closed"),
    ):
        assert said in " ".join(checker.problems(text))
    for fits in ("f(*[1])", "f(**{'x': 1})", "f(1)", "f(x=1)"):
        assert checker.problems(f"def f(x):\n    return x\n\nb = {fits}\n") == []
    assert "a call of 'f'" in " ".join(
        checker.problems("def f(x):\n    return x\n\nb = f(*[1], y=2)\n")
    )


# ---------------------------------------------------------------- the folder


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pair whose effects are known, taken apart."""
    path = tmp_path_factory.mktemp("written") / "parts"
    old, new = PAIRS["parts"]
    command = ("--command", "python {script}", "--gpus-per-run", 0)
    assert ablate("split", old, new, "-o", path, *command) == 0
    return path


@pytest.fixture
def folder(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it to edit."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(written, tmp_path / "parts"))


def edit(folder: Path, change: object) -> None:
    path = folder / "changes.yaml"
    content = yaml.safe_load(path.read_text())
    change(content["groups"])  # type: ignore[operator]
    path.write_text(yaml.safe_dump(content, sort_keys=False))


def test_a_folder_has_a_patch_per_group_and_its_merged_groups_are_checked(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    groups = yaml.safe_load((folder / "changes.yaml").read_text())["groups"]
    assert set(groups) == {"neutral", "rate", "gate", "scale", "depth", "dropped"}
    assert {p.stem for p in (folder / "patches").iterdir()} == set(groups)
    assert "+    gate = 1" in (folder / "patches/gate.patch").read_text()

    def merge(given: dict) -> None:
        given["gate"]["atoms"] += given.pop("scale")["atoms"]

    edit(folder, merge)
    assert ablate("split", "--check", folder) == 0
    patch = (folder / "patches/gate.patch").read_text()
    assert "+    gate = 1" in patch and "+    scale = 2" in patch


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda g: g["gate"]["atoms"].clear(), "stands in no group: put it into one"),
        (
            lambda g: g["scale"]["atoms"].append(g["gate"]["atoms"].pop()),
            "group 'gate' has no atom: move one into it, or take it out",
        ),
        (lambda g: g["gate"].update(atoms=g["rate"]["atoms"]), "stands in 'rate' and in 'gate'"),
        (lambda g: g["gate"].update(needs=["scal"]), "did you mean 'scale'?"),
        (lambda g: g["gate"].update(kind="magic"), "kind 'magic'"),
        (lambda g: g.update(gate=[1]), "group 'gate' must be a mapping with "),
        (lambda g: g["gate"].update(needs=["gate"]), "group 'gate' needs itself"),
        (lambda g: g["gate"].update(always="yes"), "always must be true or false"),
        (lambda g: g["gate"].update(atom=[1]), "unknown key 'atom'; did you mean 'atoms'?"),
        (
            lambda g: g["gate"]["atoms"].append(99),
            "there is no atom 99: those that there are stand at the end",
        ),
        (
            lambda g: g["rate"].update(needs=["gate"], always=True),
            "'rate' is in every arm and needs gate: set `always: true` there too",
        ),
        (lambda g: g["neutral"].update(needs=["rate"]), "'neutral' and 'rate' need each other"),
        (
            lambda g: (g["gate"].update(needs=["scale"]), g["scale"].update(needs=["gate"])),
            "'gate' and 'scale' need each other: merge them",
        ),
        (lambda g: g["gate"].update(kind="support"), "do not make NEW"),
        (lambda g: g.clear(), "groups must be a mapping"),
        (lambda g: g.update({3: g.pop("scale")}), "group 3 is a number or a word of YAML"),
        (lambda g: g.update(Gate=g.pop("scale")), "'gate' and 'Gate' are one name on some disks"),
        (lambda g: g.update({"a\nb": g.pop("scale")}), "group 'a\\nb': letters, digits"),
        (lambda g: g.update(baseline=g.pop("scale")), "group 'baseline': an arm of every design"),
        (lambda g: g.update(All=g.pop("scale")), "group 'All': an arm of every design"),
        (
            lambda g: g["gate"].update(conflicts=["gate"]),
            "'gate' conflicts with 'gate', and one is never",
        ),
        (lambda g: g["rate"].update(conflicts=["neutral"]), "'rate' conflicts with 'neutral', and"),
        (
            lambda g: (g["gate"].update(conflicts=["scale"]), g["scale"].update(always=True)),
            "'gate' conflicts with 'scale', and one is never without the other: take it out",
        ),
        (
            lambda g: g["scale"].update(conflicts=["gate"], always=True),
            "'scale' conflicts with 'gate', and one is never without",
        ),
    ],
)
def test_a_wrong_edit_gets_a_line(
    change: object,
    said: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    kept_line: Callable[[str], None],
) -> None:
    edit(folder, change)
    capsys.readouterr()
    assert ablate("split", "--check", folder) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "changes.yaml:" in error
    assert error.count("\n") == 1
    kept_line(error)


def test_what_is_in_every_arm_is_needed_without_a_word(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(folder, lambda given: given["rate"].update(needs=[]))
    assert ablate("split", "--check", folder) == 0
    groups = {group.name: group for group in read_folder(folder).groups}
    assert groups["rate"].needs == ("neutral",)
    assert f"then: ablate run {folder / 'experiment.yaml'}" in capsys.readouterr().out
    (folder / "experiment.yaml").unlink()
    assert ablate("split", "--check", folder) == 0
    assert "then:" not in capsys.readouterr().out


def test_an_empty_list_of_groups_is_sent_to_its_own_page(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "changes.yaml").write_text("")
    assert ablate("split", "--check", folder) == 2
    assert "the file is empty; see docs/split.md" in capsys.readouterr().err


def test_what_is_in_every_arm_may_need_what_is_no_arm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("old.py").write_text("a = 1\nb = 2\nuse(a, b)\n")
    Path("new.py").write_text(
        "def half(x):\n    return x / 2\na = half(1)\nb = half(2)\nuse(a, b)\n"
    )
    assert ablate("split", "old.py", "new.py", "-o", "parts") == 0
    groups = {group.name: group for group in read_folder(Path("parts")).groups}
    [helper] = [name for name in groups if groups[name].kind == "support"]
    first = next(name for name in groups if helper in groups[name].needs)
    edit(Path("parts"), lambda given: given[first].update(always=True))
    assert ablate("split", "--check", "parts") == 0


def test_where_no_group_is_an_arm_nothing_is_said_to_run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(folder, lambda given: [group.update(always=True) for group in given.values()])
    assert ablate("split", "--check", folder) == 0
    said = capsys.readouterr().out
    assert "no group is an arm: all are in every arm" in said and "ablate run" not in said


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("/usr/bin/python3 {script}", "the command starts /usr/bin/python3, whose versions"),
        ("python {foo}", "{foo} stands for nothing"),
        ("", "the command is empty"),
        ("python other.py", "does not start the script, so that all arms would be one"),
        ("python renew.py {{script}}", "does not start the script"),
        ("python {script} | tee log", "'|' in the command needs a shell"),
    ],
)
def test_a_command_that_starts_no_arm_is_refused_before_anything_is_written(
    command: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("old.py").write_text(OLD)
    Path("new.py").write_text(OLD.replace("0.1", "0.2"))
    assert ablate("split", "old.py", "new.py", "-o", "parts", "--command", command) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("ablate: --command: ") and said in line
    assert not Path("parts").exists()


@pytest.mark.parametrize("command", ["python new.py", "python -m new", "bash -c 'python ./new.py'"])
def test_a_command_may_name_the_script_itself(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("old.py").write_text(OLD)
    Path("new.py").write_text(OLD.replace("0.1", "0.2"))
    assert ablate("split", "old.py", "new.py", "-o", "parts", "--command", command) == 0


def test_a_line_about_a_name_of_an_arm_makes_no_group_of_that_name() -> None:
    old = "all = f(1)\nprint(all)\nbaseline = 2\nprint(baseline)\n"
    groups = take_apart(old, old.replace("f(1)", "f(3)").replace("= 2", "= 4")).groups
    names = {group.name for group in groups}
    assert len(names) == 2 and not names & {"all", "baseline"}


def test_an_unknown_key_at_the_top_gets_a_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "changes.yaml"
    path.write_text(path.read_text() + "group: {}\n")
    assert ablate("split", "--check", folder) == 2
    [said] = capsys.readouterr().err.splitlines()
    assert "unknown key 'group'; did you mean 'groups'?" in said


def test_a_script_that_opens_its_own_file_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for side, opened in (("old", "__file__"), ("new", "sys.argv[0]")):
        Path(f"{side}.py").write_text(
            f"import sys\nwith open({opened}) as f:\n    code = f.read()\n"
        )
    assert ablate("split", "old.py", "new.py", "-o", "parts") == 0
    assert "opens its own file" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "is_opened"),
    [
        ("open(__file__)", True),
        ("io.open(sys.argv[0], 'rb')", True),
        ("text = Path(__file__).read_text()", True),
        ("f(pathlib.Path(sys.argv[0]))", True),
        ("open('tokens.bin')", False),
        ("print(__file__)", False),
        ("f(open('x'), __file__)", False),
        ("name = sys.argv[0]", False),
        ("open(sys.argv[1])", False),
    ],
)
def test_a_script_that_opens_its_own_file_is_known(line: str, is_opened: bool) -> None:
    assert reads_itself(f"x = 1\n{line}\n") == is_opened


def test_an_atom_of_a_definition_moved_away_from_its_use_is_noticed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def move(given: dict) -> None:
        first = given["rate"]["atoms"].pop(0)
        given["gate"]["atoms"].append(first)

    edit(folder, move)
    assert ablate("split", "--check", folder) == 2
    assert "too: write them into its needs, or merge the groups" in capsys.readouterr().err


OLD = "import os\nlr = 0.1\nfor step in range(3):\n    print(step, lr)\n"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (OLD, "for x in\n", "line 1: is not Python"),
        (OLD, "int main() { return 0; }\n", "is not Python"),
        (OLD, OLD, "the same program"),
        (OLD, "# nothing yet\n", "NEW: has no statement: name a script"),
        (OLD, f"# a comment\n\n{OLD.replace(' = ', '=')}", "but for formatting and comments"),
        (OLD, "lr = 1\n" * 20_000, "has 20001 lines: at most"),
        (OLD, OLD + OLD, "line 5: holds the same text twice"),
        (OLD, "lr = 1\nrun(lr)\n" * 2, "line 3: holds the same text twice"),
        (OLD, "x = b'\0'\n", "cannot contain null bytes"),
        (OLD, None, "no such script"),
    ],
    ids=[
        "broken",
        "other language",
        "equal",
        "empty",
        "formatting",
        "long",
        "twice",
        "short twice",
        "zero",
        "missing",
    ],
)
def test_scripts_that_cannot_be_taken_apart_get_a_line(
    old: str,
    new: str | None,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kept_line: Callable[[str], None],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("old.py").write_text(old)
    if new is not None:
        Path("new.py").write_text(new)
    assert ablate("split", "old.py", "new.py", "-o", "parts") == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    if "Python" not in said and "null bytes" not in said:  # which are words of Python itself
        kept_line(error)
    assert not Path("parts").exists()


def test_modules_of_the_scripts_own_go_along_and_may_not_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for side, rate in (("old", 1), ("new", 2)):
        Path(side).mkdir()
        Path(side, "helper.py").write_text("def h():\n    return 1\n")
        Path(side, "train.py").write_text(f"import helper\nrate = {rate}\nhelper.h()\n")
    assert ablate("split", "old/train.py", "new/train.py", "-o", "parts") == 0
    assert Path("parts/old/helper.py").read_text() == Path("old/helper.py").read_text()
    assert ablate("split", "old/train.py", "new/train.py", "-o", "parts") == 2
    assert "is there already" in capsys.readouterr().err
    Path("new/helper.py").write_text("def h():\n    return 2\n")
    assert ablate("split", "old/train.py", "new/train.py", "-o", "other") == 2
    assert "helper.py differs too between OLD and NEW" in capsys.readouterr().err


def test_nothing_of_a_script_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("old", "new"):
        Path(f"{name}.py").write_text(
            f"open('executed', 'w')\nrate = '{name}'\nraise SystemExit(rate)\n"
        )
    assert ablate("split", "old.py", "new.py", "-o", "parts") == 0
    assert ablate("split", "--check", "parts") == 0
    assert not Path("executed").exists()


# ---------------------------------------------------------------- the experiment


@pytest.mark.slow
def test_the_known_effect_of_each_part_is_recovered(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Left out: rate costs 0.03, gate or scale (which help together alone) 0.02 each, dropped helps by 0.01, depth does nothing."""
    experiment = folder / "experiment.yaml"
    text = experiment.read_text().replace("  gpus: 0", "  gpus: 0\n  env: {SEED: '{seed}'}")
    experiment.write_text(text.replace("seeds: 10", "seeds: 3"))
    assert ablate("run", experiment, "--no-report") == 0
    losses = load("parts").runs.groupby("arm")["val_loss"].mean()
    costs = {arm: round(float(loss - losses["all"]), 3) for arm, loss in losses.items()}
    assert costs == {
        "baseline": 0.04,
        "all": 0,
        "all but rate": 0.03,
        "all but gate": 0.02,
        "all but scale": 0.02,
        "all but depth": 0,
        "all but dropped": -0.01,
    }


def test_groups_that_cannot_stand_alone_are_no_arms_and_errors_name_the_folder(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(folder, lambda g: g["gate"].update(needs=["scale"]))
    experiment = folder / "experiment.yaml"
    assert ablate("plan", experiment) == 0
    said = capsys.readouterr().out
    assert "all but scale (and gate, which needs it)" in said
    written = {p.name for p in (folder / "arms").iterdir()}
    assert written == {
        "all",
        "none",
        *(f"all-{n}" for n in ("rate", "gate", "depth", "dropped")),
    } | {"all-gate-scale"}
    text = experiment.read_text()
    experiment.write_text(text.replace("leave-one-out", "explicit\narms: {x: [gate]}"))
    assert ablate("plan", experiment) == 2
    assert "cannot stand together without what they need" in capsys.readouterr().err
    for wrong, message in (
        (text.replace("parts: .", "parts: nowhere"), "`ablate split` writes such a folder"),
        (text + "changes: {x: {args: [a]}}\n", "are the changes: leave them out"),
        (text.replace("parts: .", "parts: .\n  file: x.py"), "trainer needs either"),
    ):
        experiment.write_text(wrong)
        assert ablate("plan", experiment) == 2
        assert message in capsys.readouterr().err


def test_every_pair_of_groups_makes_the_script_that_both_patches_make(folder: Path) -> None:
    from harness.split.folder import read_folder

    read = read_folder(folder)
    judged = [group.name for group in measured(read.groups)]
    texts_of = {pair: read.text(pair) for pair in itertools.combinations(judged, 2)}
    assert len(set(texts_of.values())) == len(texts_of)


def test_a_script_that_settles_in_no_normal_form_is_refused(
    monkeypatch: pytest.MonkeyPatch, kept_line: Callable[[str], None]
) -> None:
    with pytest.raises(UserError, match="is not UTF-8") as error:
        decoded(b"\xff\xfe", "OLD x.py")
    kept_line(str(error.value))
    with pytest.raises(UserError, match=r"OLD x\.py: is larger than 4 MiB: name one script$"):
        decoded(b"#" * (2**22 + 1), "OLD x.py")
    with pytest.raises(
        UserError, match=r"OLD x\.py: has 20001 lines: at most 20000 are taken apart$"
    ):
        decoded(b"#" * (2**22 - 20_000) + b"\n" * 20_000, "OLD x.py")
    assert decoded(b"x = 1\n" + b"\n" * 19_998, "OLD x.py") == "x = 1\n"
    with pytest.raises(
        UserError, match=r"OLD x\.py: cannot be read as Python: .*: mend the script"
    ):
        decoded(b"x = " + b"-" * 100_000 + b"1\n", "OLD x.py")
    assert decoded(b"x=1", "OLD x.py") == "x = 1\n"
    monkeypatch.setattr("harness.split.source.SETTLES_IN", 1)
    assert decoded(b"x = 1\n", "OLD x.py") == "x = 1\n"
    with pytest.raises(
        UserError, match=r"^OLD x\.py: its normal form does not settle: simplify its quoted texts$"
    ):
        decoded(b"x=1", "OLD x.py")


def chain(n: int) -> str:
    """An assertion on a name that stands for another one, and so on, the last for 7."""
    names = "".join(f"a{i} = a{i + 1}\n" for i in range(1, n))
    return f"{names}a{n} = 7\nassert a1 % 2 == 0\n"


@pytest.mark.parametrize(
    ("lines", "others", "kind"), [(5, 4, "data"), (5, 5, "learning"), (1, 0, "data")]
)
def test_a_group_is_of_the_kind_of_more_than_half_of_its_lines(
    lines: int, others: int, kind: str
) -> None:
    of_kind: Any = SimpleNamespace(place="f", what="added: loader(1)", n_lines=lines)
    of_none: Any = SimpleNamespace(place="f", what="added: x", n_lines=others)
    assert class_of([of_kind, of_none]) == class_of([of_none, of_kind]) == kind


@pytest.mark.parametrize(
    ("text", "is_broken"),
    [
        ("a = 7\nassert a % 2 == 0\n", True),
        ("a = 8\nassert a % 2 == 0\n", False),
        *((chain(7), True), (chain(8), False)),  # of so many names what they come to is not told
        ("a = 9223372036854775808\nassert a % 2 == 1\n", True),
        ("a = 9223372036854775810\nassert a % 2 == 1\n", False),  # that times 2 is too large
        ("class C:\n    a: int = 7\n    b = 2\nassert args.a % C.b == 0\n", True),
        ("a, b = 7, 2\nassert a % (b * world) == 0\n", True),
        ("a, *b = 7, 2, 3\nassert a % 2 == 0\n", True),
        ("a = 7\na = 7\nassert a % 2 == 0\n", False),  # given twice: which one is not told
        ("a = f()\nassert a % 2 == 0\n", False),  # may be even
        ("a = 7\nassert a % 2 == rest\n", False),
        ("a = 7\nassert a % f() == 0\n", False),  # may be 7
        ("a = 7.0\nassert a % 2 == 0\n", False),  # no whole number
        ("a = 7\nassert a % 0 == 0\n", False),
        ("a = 7\nassert a % (2 / b) == 0\n", False),  # a division is not told
        ("a = 2 ** 9\nassert a % 2 == 1\n", False),
        ("a = 7\nassert (a * 4294967296 * 4294967296) % 2 == 1\n", False),  # too large
        ("a = 7\nassert a + 2 == 0\n", False),  # no rest
        ("a = 7\nassert 0 < a % 2 < 1\n", False),
        ("a = 7\nassert a % 2 != 1\n", True),
        ("a = 7\nassert a % 2 in (0,)\n", False),
        ("a = b\nb = a\nassert a % 2 == 0\n", False),  # in a circle
        # of products in products, as of names, what they come to is told up to a depth
        *((f"assert 7 % ({'1 * (' * 7}2{')' * 7}) == 0\n", True),),
        *((f"assert 7 % ({'1 * (' * 8}2{')' * 8}) == 0\n", False),),
        *((f"assert 7 % ({'(' * 7}2{' * 1)' * 7}) == 0\n", True),),
        *((f"assert 7 % ({'(' * 8}2{' * 1)' * 8}) == 0\n", False),),
    ],
)
def test_an_assertion_that_a_scripts_own_numbers_break_is_found(text: str, is_broken: bool) -> None:
    assert bool([*broken_assertions(ast.parse(text))]) == is_broken
    assert [*broken_assertions(ast.parse("1", mode="eval"))] == []


def test_what_an_annotation_names_comes_with_it() -> None:
    parts = apart("x = f(1)\n", "from t import Foo\nx: Foo = f(1)\n")
    assert len(parts.groups) == 1 and len(parts.atoms) == len(parts.edges) + 1 == 2


def test_an_atoms_place_is_where_it_stands_and_the_name_next_to_it() -> None:
    parts = apart(
        "class A:\n    def run(self):\n        x, y = 1, 2\n        z = f(rate=3)\n",
        "class A:\n    def run(self):\n        x, y = 4, 2\n        z = f(rate=5)\n",
    )
    assert [atom.place for atom in parts.atoms] == ["A.run.x", "A.run.rate"]


def test_the_same_exchange_within_a_function_is_one_decision_and_in_another_one_of_its_own() -> (
    None
):
    old = (
        "def run(x):\n    y = F.relu(x) + 1\n    z = F.relu(x) * 2\n    return z\n\n"
        "def other(x):\n    return F.relu(x) + 3\n"
    )
    parts = apart(old, old.replace("F.relu", "G.gelu"))
    assert sorted(len(group.atoms) for group in measured(parts.groups)) == [1, 2]


def test_what_is_changed_in_place_is_never_given_without_its_change() -> None:
    parts = apart(
        "def run(xs):\n    return sum(xs)\n",
        "def run(xs):\n    keep = first(xs)\n    keep.append(1)\n    train(keep)\n    return sum(xs)\n",
    )
    kept, used = sorted(measured(parts.groups), key=lambda group: len(group.needs))
    assert {parts.atoms[n].what for n in kept.atoms} == {
        "added: keep = first(xs)",
        "added: keep.append(1)",
    }
    assert used.needs == (kept.name,)
