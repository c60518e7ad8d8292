"""What two steps of an arm came to is kept, and what is told of a whole smoke."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.split.folder import Folder, write_folder
from harness.split.groups import take_apart
from harness.split.smoke import Smoke, TwoSteps, smoke
from harness.split.smoked import KeptSteps, smoke_mapping, with_found

TOOK = TwoSteps(reason=None, steps=2, losses=(3.0, 2.5), norms=(1.0,), seconds=0.5)
FAILED = TwoSteps(reason="no such file", steps=0)


def counted(outcome: TwoSteps, taken: list[str]) -> Callable[[str], TwoSteps]:
    """Takes no step, and notes of which script it was asked."""

    def take(text: str) -> TwoSteps:
        taken.append(text)
        return outcome

    return take


def test_steps_that_were_taken_are_not_taken_again_unless_what_decides_them_is_another(
    tmp_path: Path,
) -> None:
    taken: list[str] = []
    take = counted(TOOK, taken)
    first = KeptSteps(tmp_path, take, asked={"gpus": 1})
    assert first.steps("x = 1\n") == first.steps("x = 1\n") == TOOK
    assert KeptSteps(tmp_path, take, asked={"gpus": 1}).steps("x = 1\n") == TOOK
    assert taken == ["x = 1\n"]
    for text, asked in (("x = 2\n", {"gpus": 1}), ("x = 1\n", {"gpus": 2})):
        assert KeptSteps(tmp_path, take, asked=asked).steps(text) == TOOK
    assert taken == ["x = 1\n", "x = 2\n", "x = 1\n"]


def test_steps_that_failed_are_taken_again(tmp_path: Path) -> None:
    taken: list[str] = []
    kept = KeptSteps(tmp_path, counted(FAILED, taken), asked={})
    assert kept.steps("x = 1\n") == kept.steps("x = 1\n") == FAILED
    assert len(taken) == 2
    assert not (tmp_path / "smoke.json").exists()


@pytest.mark.parametrize("schema", [0, 2, "1", None])
def test_steps_that_another_version_kept_are_taken_again(schema: object, tmp_path: Path) -> None:
    KeptSteps(tmp_path, counted(TOOK, []), asked={}).steps("x = 1\n")
    file = tmp_path / "smoke.json"
    for text in (json.dumps(json.loads(file.read_text()) | {"schema": schema}), "{", "[]", "{}"):
        file.write_text(text)
        taken: list[str] = []
        assert KeptSteps(tmp_path, counted(TOOK, taken), asked={}).steps("x = 1\n") == TOOK
        assert len(taken) == 1


def test_the_file_has_what_was_told_last_and_an_entry_a_line(tmp_path: Path) -> None:
    kept = KeptSteps(tmp_path, counted(TOOK, []), asked={})
    kept.steps("x = 1\n")
    kept.last = {"passed": 2}
    kept.write()
    [digest] = kept.runs
    lines = [
        "{",
        ' "schema": 1,',
        ' "smoke": {',
        '  "passed": 2',
        " },",
        ' "runs": {',
        f'  "{digest}": {{',
        '   "reason": null,',
        '   "steps": 2,',
        '   "losses": [',
        "    3.0,",
        "    2.5",
        "   ],",
        '   "norms": [',
        "    1.0",
        "   ],",
        '   "seconds": 0.5',
        "  }",
        " }",
        "}",
    ]
    assert (tmp_path / "smoke.json").read_text() == "\n".join(lines) + "\n"


OLD = "rate = 1\nwidth = 1\nsize = 1\nuse(rate, width, size)\n"


def take(text: str) -> TwoSteps:
    """Fails where the width is not the size; the rate does nothing."""
    if ("width = 2" in text) != ("size = 2" in text):
        return TwoSteps(reason="sizes differ", steps=1, losses=(3.0,), seconds=0.25)
    loss = 2.0 if "width = 2" in text else 1.0
    return TwoSteps(reason=None, steps=2, losses=(3.0, loss), seconds=0.5)


def smoked() -> tuple[Folder, Smoke]:
    new = OLD.replace("= 1", "= 2")
    parts = take_apart(OLD, new)
    folder = Folder(path=Path("nowhere"), script="x.py", old=OLD, new=new, parts=parts)
    return folder, smoke(parts, OLD, new, take, lambda line: None)


def test_a_smoke_is_told_arm_by_arm() -> None:
    _, found = smoked()
    told = smoke_mapping(found)
    steps = {"reason": None, "steps": 2, "norms": (), "seconds": 0.5}
    old, new = ({**steps, "losses": (3.0, loss)} for loss in (1.0, 2.0))
    assert told == {
        "old": old,
        "new": new,
        "repeats": True,
        "passed": 4,
        "first": {"passed": 2, "arms": 6},
        "arms": [
            {"arm": "rate alone", "group": "rate", **old, "same_as": "OLD"},
            {"arm": "all but rate", "group": "rate", **new, "same_as": "NEW"},
            {"arm": "width alone", "group": "width", **new, "same_as": "NEW"},
            {"arm": "all but width", "group": "width", **old, "same_as": "OLD"},
        ],
        "found": [
            {
                "group": "width",
                "needs": ("size",),
                "atoms": (2,),
                "reason": "sizes differ",
                "merged": True,
            }
        ],
    }
    failed = [arm.to_mapping() for arm in found.first if arm.outcome.reason is not None]
    assert [(arm["arm"], arm["same_as"], arm["steps"]) for arm in failed] == [
        ("width alone", None, 1),
        ("all but width", None, 1),
        ("size alone", None, 1),
        ("all but size", None, 1),
    ]


def test_a_folder_in_which_nothing_was_found_stays_as_it_is() -> None:
    folder, found = smoked()
    whole = Folder(**{**vars(folder), "parts": found.parts})
    assert with_found(whole, found) == (whole, None)


def test_a_folder_has_the_groups_that_were_found_and_its_changes_as_they_were(
    tmp_path: Path,
) -> None:
    folder, found = smoked()
    scripts = {"old": folder.old, "new": folder.new, "script": "x.py"}
    before = write_folder(tmp_path / "parts", folder.parts, **scripts, modules={})
    changes = before.path / "changes.yaml"
    written = changes.read_text()
    for n in (1, 2):
        after, kept = with_found(before, found)
        assert (kept, changes.read_text() != written) == (before.path / f"changes.yaml.{n}", True)
        assert kept is not None and kept.read_text() == written
        assert after.groups == found.parts.groups
        patches = {path.stem: path.read_text() for path in (before.path / "patches").iterdir()}
        assert patches.keys() == {"rate", "width"}
        assert "+width = 2" in patches["width"] and "+size = 2" in patches["width"]
        changes.write_text(written)
