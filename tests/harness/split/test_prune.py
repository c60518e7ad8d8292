"""What of NEW may go: which scripts are tried, and what is refused before there are runs."""

from pathlib import Path

import pytest

from harness.split.groups import ChangeGroup
from harness.split.prune import kept_without, smaller_scripts
from tests.foreign_bench import TRAINERS, ablate


def group(name: str, lines: int, *needs: str, kind: str = "learning") -> ChangeGroup:
    return ChangeGroup(name=name, about="", kind=kind, atoms=(), needs=needs, lines=lines)


GROUPS = (
    group("base", 9, kind="neutral"),
    group("a", 10),
    group("b", 5, "a"),
    group("c", 3),
    group("d", 7),
)


def test_what_needs_a_part_goes_with_it() -> None:
    assert kept_without(GROUPS, {"a"}) == ("c", "d")
    assert kept_without(GROUPS, {"b", "d"}) == ("a", "c")


def test_the_smallest_script_is_tried_first_then_those_that_keep_more() -> None:
    costs = {"a": 0.0009, "b": 0.5, "c": 0.0001, "d": -0.01}
    assert smaller_scripts(GROUPS, costs, 0.001) == [(), ("a", "b"), ("a", "b", "c")]
    assert smaller_scripts(GROUPS, costs, 0.0005) == [("a", "b"), ("a", "b", "c")]
    assert smaller_scripts(GROUPS, costs, -0.02) == []


def test_pruning_asks_for_a_margin_and_for_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sides = [TRAINERS / "worked" / f"hurts_{side}.py" for side in ("old", "new")]
    assert ablate("split", *sides, "-o", "parts") == 0
    for words, message in (
        (("--prune", "parts"), "needs --margin"),
        (("--prune", "parts", "--margin", "-1"), "needs --margin"),
        (("--prune", "parts", "--margin", "0.1"), "has no runs in results: ablate run parts/"),
        (("--prune", "parts", "--margin", "0.1", "--check", "parts"), "one after the other"),
        (("old.py", "--prune", "parts", "--margin", "0.1"), "leave OLD, NEW"),
    ):
        capsys.readouterr()
        assert ablate("split", *words) == 2
        said = capsys.readouterr().err
        assert message in said and said.count("\n") == 1
    assert not Path("parts/prune.yaml").exists()
