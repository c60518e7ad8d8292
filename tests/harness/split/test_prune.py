"""What of NEW may go: which scripts are tried, and what is refused before there are runs."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.cli import split_prune
from harness.cli.split_prune import Pruned, confirmed
from harness.split.arms import measured
from harness.split.folder import read_folder
from harness.split.groups import ChangeGroup
from harness.split.prune import kept_without, smaller_scripts
from harness.split.shown import direct_needs
from tests.foreign_bench import TRAINERS, ablate


def group(name: str, lines: int, *needs: str, kind: str = "learning") -> ChangeGroup:
    return ChangeGroup(name=name, about="", kind=kind, atoms=(), needs=needs, lines=lines)


def split_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two scripts taken apart into parts/ of the folder, which is gone to; the groups' names."""
    monkeypatch.chdir(folder)
    sides = [TRAINERS / "worked" / f"hurts_{side}.py" for side in ("old", "new")]
    assert ablate("split", *sides, "-o", "parts") == 0
    return [group.name for group in measured(read_folder(Path("parts")).groups)]


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
    assert smaller_scripts(GROUPS, {"a": 0.5, "c": 0.001}, 0.001) == [("a", "b", "d")]
    of_equal = smaller_scripts(GROUPS, {"d": 0.0, "c": 0.0}, 0.001)
    assert of_equal == [("a", "b"), ("a", "b", "d")], "the first by its name goes first"


def test_what_may_go_is_told_by_the_most_that_leaving_it_out_may_cost(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kept_line: Callable[[str], None],
) -> None:
    """An interval from -0.0004 says that leaving out costs at most that; where there is none, nothing is known."""
    names = split_in(tmp_path, monkeypatch)
    place = Path("results/experiments/parts/experiment.json")
    place.parent.mkdir(parents=True)
    place.touch()
    lows: list[float | None] = [-0.0004, *[-0.5] * (len(names) - 1)]

    def attributions(explored: object) -> list[SimpleNamespace]:
        shares = {n: {"left_out": SimpleNamespace(low=low)} for n, low in zip(names, lows)}
        return [
            SimpleNamespace(metric="steps", shares={}),
            SimpleNamespace(metric="val_loss", shares=shares | {"other": {}}),
        ]

    arms = [SimpleNamespace(changes=(name,)) for name in names]
    explored = SimpleNamespace(name="parts", plan=SimpleNamespace(seeds=(0, 1, 2), arms=arms))
    monkeypatch.setattr("reports.inputs.load.load", lambda *_: explored)
    monkeypatch.setattr("reports.analysis.attribution.attributions", attributions)
    capsys.readouterr()
    assert ablate("split", "--prune", "parts", "--margin", "0.001", "--json") == 0
    told = json.loads(capsys.readouterr().out)["prune"]
    costs = {group["group"]: group["at_most"] for group in told["groups"]}
    assert costs == dict(zip(names, (-low for low in lows if low is not None), strict=True))
    lows[:2] = [-0.001, 0.25]
    assert ablate("split", "--prune", "parts", "--margin", "0.001") == 0
    said = capsys.readouterr().out.replace(str(tmp_path), "FOLDER")
    kept_line(f"{said}\n{Path('parts/prune.yaml').read_text()}")
    explored.plan.arms.append(SimpleNamespace(changes=("merged",)))
    capsys.readouterr()
    assert ablate("split", "--prune", "parts", "--margin", "0.001") == 2
    assert "parts: ran with 'merged', which is no group" in capsys.readouterr().err
    explored.plan.arms.pop()
    lows[:] = [-0.5] * len(names)
    assert ablate("split", "--prune", "parts", "--margin", "0.001") == 2
    said = capsys.readouterr().err
    assert "parts: nothing can go: leaving out each group may cost more than 0.001; more" in said
    lows[:] = [None] * len(names)
    assert ablate("split", "--prune", "parts", "--margin", "0.001") == 2
    said = capsys.readouterr().err
    assert "its runs say nothing of what is lost" in said and "gets its seed by {seed}" in said
    tried = Path("results/experiments/parts-prune/experiment.json")
    tried.parent.mkdir()
    tried.touch()
    confirming = Pruned(folder=read_folder(Path("parts")), margin=0.5)
    monkeypatch.setattr(split_prune, "confirmed", lambda *_: confirming)
    assert ablate("split", "--prune", "parts", "--margin", "0.001", "--json") == 0
    assert json.loads(capsys.readouterr().out)["prune"]["margin"] == 0.5
    explored.plan.arms.append(SimpleNamespace(changes=("merged",)))
    assert ablate("split", "--prune", "parts", "--margin", "0.001") == 2
    assert "parts: ran with 'merged', which is no group" in capsys.readouterr().err


def test_pruning_asks_for_a_margin_and_for_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    split_in(tmp_path, monkeypatch)
    for words, message in (
        (("--prune", "parts"), "needs --margin"),
        (("--prune", "parts", "--margin", "-1"), "needs --margin, a number above 0"),
        (("--prune", "parts", "--margin", "0"), "needs --margin, a number above 0"),
        (("--prune", "parts", "--margin", "nan"), "needs --margin, a number above 0"),
        (("--prune", "parts", "--margin", "inf"), "needs --margin, a number above 0"),
        (("--check", "parts", "--margin", "0.1"), "--margin: goes with --prune DIR"),
        (("--prune", "parts", "--margin", "0.1"), "has no runs in results: ablate run parts/"),
        (("--prune", "parts", "--margin", "0.1", "--check", "parts"), "one after the other"),
        (("old.py", "--prune", "parts", "--margin", "0.1"), "leave OLD, NEW"),
    ):
        capsys.readouterr()
        assert ablate("split", *words) == 2
        said = capsys.readouterr().err
        assert message in said and said.count("\n") == 1
    assert not Path("parts/prune.yaml").exists()


def test_every_smaller_script_is_told_with_its_bound_and_the_first_that_passes_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Against NEW, never against what is NEW itself; one without an interval says why."""
    names = split_in(tmp_path, monkeypatch)
    arms = [
        SimpleNamespace(name=name, changes=tuple(names[:n]))
        for n, name in enumerate(("smallest", "smaller", "small"))
    ]
    highs = {"smallest": 0.02, "smaller": None, "small": 0.0004}
    outcome = SimpleNamespace(
        baseline="old",
        increments={
            (arm, "val_loss"): SimpleNamespace(baseline="NEW", high=high)
            for arm, high in highs.items()
        },
    )
    monkeypatch.setattr("reports.analysis.compare.compare_all", lambda tried: outcome)
    folder = read_folder(Path("parts"))
    told: list[str] = []
    pruned = Pruned(folder=folder, margin=0.001)
    tried: Any = SimpleNamespace(plan=SimpleNamespace(margin=0.001, arms=arms))
    done = confirmed(pruned, tried, told.append)
    assert told[:3] == [
        "smallest: at most +0.02 of loss against NEW, margin 0.001",
        "smaller: its runs are too few for an interval of loss against NEW, margin 0.001",
        "small: at most +0.0004 of loss against NEW, margin 0.001",
    ]
    assert [script.passes for script in done.scripts] == [False, False, True]
    assert done.written is not None and Path(done.written).is_file()
    outcome.increments["small", "val_loss"].high = 0.02
    outcome.increments["NEW", "val_loss"] = SimpleNamespace(baseline="old", high=0.0)
    tried.plan.arms.insert(0, SimpleNamespace(name="NEW", changes=tuple(names)))
    tried.plan.margin = 0.01
    told.clear()
    left = confirmed(Pruned(folder=folder, margin=0.001), tried, told.append)
    assert (left.written, [script.arm for script in left.scripts]) == (None, [*highs])
    assert told[0] == "prune.yaml was written for a margin of 0.01: what else may go, it left"
    assert told[-1] == "no script is confirmed: NEW stays as it is, or more seeds"


def test_what_a_group_needs_by_way_of_another_is_not_drawn_twice() -> None:
    base, always = group("base", 1), replace(group("always", 1), always=True)
    middle, other = group("middle", 1, "base", "always"), group("other", 1)
    top = group("top", 1, "base", "middle", "other", "always")
    groups = [base, always, middle, other, top]
    assert direct_needs(top, groups) == ["middle", "other"]
    assert direct_needs(middle, groups) == ["base"]
