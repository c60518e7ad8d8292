"""What people do to a folder of `split`: edits of its groups, and the page that shows them."""

import html
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from harness.errors import UserError
from harness.split.arms import measured
from harness.split.folder import Folder, read_folder
from harness.split.groups import take_apart
from harness.split.shown import shown
from tests.foreign_bench import TRAINERS, ablate

OLD, NEW = TRAINERS / "parts_old.py", TRAINERS / "parts_new.py"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pair whose effects are known, taken apart."""
    path = tmp_path_factory.mktemp("written") / "parts"
    command = ("--command", "python {script}", "--gpus-per-run", 0)
    assert ablate("split", OLD, NEW, "-o", path, *command) == 0
    return path


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """A copy to edit."""
    return Path(shutil.copytree(written, tmp_path / "parts"))


def merge(groups: dict) -> None:
    groups["gate"]["atoms"] += groups.pop("scale")["atoms"]


def part(groups: dict) -> None:
    _, last = groups["dropped"]["atoms"]
    groups["dropped"]["atoms"].remove(last)
    groups["lost"] = {"kind": "learning", "atoms": [last], "needs": ["dropped"]}


def rename(groups: dict) -> None:
    groups["muon"] = groups.pop("rate")


def move(groups: dict) -> None:
    groups["depth"]["atoms"].append(groups["gate"]["atoms"].pop())
    groups["gate"]["atoms"].append(groups["scale"]["atoms"].pop())
    del groups["scale"]


def always(groups: dict) -> None:
    groups["depth"]["always"] = True


EDITS = {
    merge: {"rate", "gate", "depth", "dropped"},
    part: {"rate", "gate", "scale", "depth", "dropped", "lost"},
    rename: {"muon", "gate", "scale", "depth", "dropped"},
    move: {"rate", "gate", "depth", "dropped"},
    always: {"rate", "gate", "scale", "dropped"},
}


def edited(folder: Path, edit: object) -> Folder:
    path = folder / "changes.yaml"
    content = yaml.safe_load(path.read_text())
    edit(content["groups"])  # type: ignore[operator]
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    assert ablate("split", "--check", folder) == 0
    return read_folder(folder)


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.__name__)
def test_an_edit_keeps_both_ends_and_rewrites_patches_and_page(edit: object, folder: Path) -> None:
    read = edited(folder, edit)
    judged = {group.name for group in measured(read.groups)}
    assert judged == EDITS[edit]  # type: ignore[index]
    assert read.text(judged) == read.new == (folder / "new" / NEW.name).read_text()
    assert read.parts.difference.text(()) == read.old
    assert {path.stem for path in (folder / "patches").iterdir()} == {g.name for g in read.groups}
    page = (folder / "split.html").read_text()
    assert set(re.findall(r'<tr id="g-(\w+)"', page)) == {g.name for g in read.groups}
    assert sum(g.lines for g in read.groups) == sum(atom.n_lines for atom in read.parts.atoms)


def test_a_group_that_is_always_on_is_in_the_baseline_too(folder: Path) -> None:
    read = edited(folder, always)
    assert "depth = 11" in read.text(())
    assert "depth = 12" in read.old


def test_the_page_gives_every_changed_line_its_group_and_loads_nothing(folder: Path) -> None:
    page = (folder / "split.html").read_text()
    assert not re.search(r'(src|href)="(?!#)', page)
    assert "<script" not in page
    lines = re.findall(r"<span>([+-])</span><code>(.*)</code><span>(.*?)</span></div>", page)
    assert len(lines) == 21
    assert ("+", "    gate = 1", "gate") in [
        (sign, text, re.sub("<[^>]+>", "", tags)) for sign, text, tags in lines
    ]
    assert 'class="none"' not in page
    assert page.count('<details class="hunk" open>') == 5


def test_a_line_that_calls_a_name_otherwise_has_the_group_of_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("old.py").write_text("x = f()\ng(x)\nrate = 1\n")
    Path("new.py").write_text("loss = f()\ng(loss)\nrate = 2\n")
    assert ablate("split", "old.py", "new.py", "-o", "parts") == 0
    [hunk] = shown(read_folder(Path("parts")))["hunks"]
    owners = {line["text"]: line["groups"] for line in hunk["lines"]}
    assert {owners.pop(text)[0] for text in ("rate = 1", "rate = 2")} == {"rate"}
    assert owners.keys() == {"x = f()", "g(x)", "loss = f()", "g(loss)"}
    assert all(groups == ["neutral"] for groups in owners.values())


def test_the_page_says_what_no_arm_tells_apart_and_why(folder: Path) -> None:
    edited(folder, part)
    read = edited(folder, merge)
    page = (folder / "split.html").read_text()
    said = re.findall("<li>([^<]*)</li>", page.split('class="together"')[1].split("</ul>")[0])
    assert [html.unescape(line) for line in said] == list(read.inseparable)
    assert "gate: 2 atoms are one, by being nothing alone, or an edit of changes.yaml" in said
    assert "lost is never without dropped: what is lost without one of those holds it too" in said
    assert any(line.startswith("neutral: ") and "in every arm" in line for line in said)
    assert any(line.startswith("rate: ") and "a name that one gives" in line for line in said)


def test_the_page_has_no_pruned_script_before_there_is_one(folder: Path) -> None:
    assert "pruned" not in (folder / "split.html").read_text()
    (folder / "pruned").mkdir()
    (folder / "pruned" / NEW.name).write_text("x = 1\n")
    assert ablate("split", "--check", folder) == 0
    page = (folder / "split.html").read_text()
    assert 'download="pruned_parts_new.py" href="data:text/x-python;base64,eCA9IDEK"' in page


@pytest.mark.parametrize("place", ["pruned", f"pruned/{NEW.name}"])
def test_no_pruned_script_is_shown_through_a_link(place: str, folder: Path) -> None:
    other = folder.parent / "other"
    (other / "pruned").mkdir(parents=True)
    (other / "pruned" / NEW.name).write_text("KEY = 1\n")
    (folder / place).parent.mkdir(exist_ok=True)
    (folder / place).symlink_to(other / place)
    with pytest.raises(UserError, match="links"):
        shown(read_folder(folder))


def test_groups_that_need_others_are_joined_by_arcs(folder: Path) -> None:
    assert 'class="graph"' not in (folder / "split.html").read_text()
    edited(folder, part)
    page = (folder / "split.html").read_text()
    assert page.count('class="needs"') == 1
    assert '<a href="#g-lost">' in page


def test_a_long_difference_is_folded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reports.page.parts.MOST_OPEN", 20)
    assert ablate("split", "--check", folder) == 0
    page = (folder / "split.html").read_text()
    assert page.count('<details class="hunk">') == 5
    assert "<code>train</code>: 12 changed" in page


def test_what_a_group_is_follows_its_atoms_and_a_word_of_ones_own_stays(folder: Path) -> None:
    def edit(groups: dict) -> None:
        move(groups)
        groups["rate"]["about"] = "the rule and its rate"

    edited(folder, edit)
    groups = yaml.safe_load((folder / "changes.yaml").read_text())["groups"]
    assert groups["gate"]["about"] == "train.scale: 1 → 2"
    as_it_was = yaml.safe_load((folder / "changes.yaml.1").read_text())["groups"]
    assert as_it_was["gate"]["about"] == "train.gate: 0 → 1"
    assert groups["depth"]["about"].endswith("(and 1 more)") and groups["depth"]["lines"] == 4
    assert groups["rate"]["about"] == "the rule and its rate"
    before = sorted(path.name for path in folder.iterdir())
    assert ablate("split", "--check", folder) == 0
    assert sorted(path.name for path in folder.iterdir()) == before


def test_a_page_shows_each_group_with_its_atoms_and_each_line_with_its_groups() -> None:
    old = "lr = 1\n\ndef f(x):\n    return x\n"
    new = (
        "k = make(2)\nlr = 3\n\ndef f(x):\n    one(k)\n    two(k, 1)\n    print(x)\n    return x\n"
    )
    parts = take_apart(old, new)
    groups = [replace(g, conflicts=("lr",) if g.name == "two" else ()) for g in parts.groups]
    parts = replace(parts, groups=tuple(groups))
    folder = Folder(path=Path("nowhere/mine"), script="x.py", old=old, new=new, parts=parts)
    plain: dict[str, list[str]] = {"needs": [], "direct": [], "conflicts": []}
    asking = {**plain, "needs": ["k"], "direct": ["k"]}
    given = {"about": "added: k = make(2)", "kind": "support", "lines": 1}
    assert shown(folder) == {
        "name": "mine",
        "script": "x.py",
        "n_lines": 6,
        "groups": [
            {
                "name": "neutral",
                "about": "f: added: print(x)",
                "kind": "always on",
                "lines": 1,
                "atoms": [[4, "f: added: print(x)"]],
                **plain,
            },
            {"name": "k", **given, "atoms": [[0, "added: k = make(2)"]], **plain},
            {
                "name": "lr",
                "about": "lr: 1 → 3",
                "kind": "learning",
                "lines": 2,
                "atoms": [[1, "lr: 1 → 3"]],
                **plain,
            },
            {
                "name": "one",
                "about": "f: added: one(k)",
                "kind": "learning",
                "lines": 1,
                "atoms": [[2, "f: added: one(k)"]],
                **asking,
            },
            {
                "name": "two",
                "about": "f: added: two(k, 1)",
                "kind": "learning",
                "lines": 1,
                "atoms": [[3, "f: added: two(k, 1)"]],
                **asking,
                "conflicts": ["lr"],
            },
        ],
        "hunks": [
            {
                "place": "",
                "line": 1,
                "lines": [
                    {"sign": "-", "text": "lr = 1", "groups": ["lr"]},
                    {"sign": "+", "text": "k = make(2)", "groups": ["k"]},
                    {"sign": "+", "text": "lr = 3", "groups": ["lr"]},
                    {"sign": " ", "text": "", "groups": []},
                    {"sign": " ", "text": "def f(x):", "groups": []},
                ],
                "n_changed": 3,
                "groups": ["lr", "k"],
            },
            {
                "place": "f",
                "line": 5,
                "lines": [
                    {"sign": "+", "text": "    one(k)", "groups": ["one"]},
                    {"sign": "+", "text": "    two(k, 1)", "groups": ["two"]},
                    {"sign": "+", "text": "    print(x)", "groups": ["neutral"]},
                    {"sign": " ", "text": "    return x", "groups": []},
                ],
                "n_changed": 3,
                "groups": ["one", "two", "neutral"],
            },
        ],
        "inseparable": (
            "neutral: 1 atom in every arm, the baseline too: what they do is in no difference",
            "k: is with what needs it: one, two",
            "two is never with lr: how they work together is not told",
        ),
        "pruned": None,
    }


def test_lines_that_a_long_script_repeats_are_shown_as_changed_where_they_are() -> None:
    old = "tick()\n" * 202
    new = f"first(1)\n{old}"
    parts = take_apart(old, new)
    folder = Folder(path=Path("nowhere"), script="x.py", old=old, new=new, parts=parts)
    [hunk] = shown(folder)["hunks"]
    assert [(line["sign"], line["text"]) for line in hunk["lines"]] == [
        ("+", "first(1)"),
        (" ", "tick()"),
        (" ", "tick()"),
    ]
