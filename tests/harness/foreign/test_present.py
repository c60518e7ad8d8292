"""Runs of scripts under the names that they have now: an edited script's are older ones, numbers of steps come from results."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.foreign import present
from harness.foreign.present import UNKNOWN_STEPS, with_present_scripts, with_sources, with_steps
from harness.provenance.code import Code
from harness.run.digests import run_id_of
from harness.run.foreign import TrainerSpec
from harness.run.plan import Plan, PlanArm, PlanRun


def run(
    arm: str, run_id: str, *, budget: int = UNKNOWN_STEPS, older: tuple[str, ...] = ()
) -> PlanRun:
    return PlanRun(
        arm=arm,
        seed=0,
        replicate=0,
        budget=budget,
        role="loss",
        block=0,
        run_id=run_id,
        intent_id=f"intent-{run_id}",
        environment="env",
        older=older,
    )


def arm(name: str, file: Path | None, **more: Any) -> PlanArm:
    usual: dict[str, Any] = {"script": "", "command": "c", "env": {}, "data": {}, "environment": {}}
    side = TrainerSpec(file=file, **{**usual, **more})
    return PlanArm(name=name, of=name, side=side)


def test_an_edited_script_renames_its_arms_runs_alone(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / f"{name}.py").write_text(f"name = '{name}'")
    arms = (
        arm("old", tmp_path / "old.py"),
        arm("new", tmp_path / "new.py"),
        arm("gone", tmp_path / "gone.py"),
        arm("patched", tmp_path / "new.py", patches=(tmp_path / "p.diff",)),
        arm("ref", None, repo=tmp_path, ref="HEAD", script="new.py"),
        PlanArm(name="bare", of="bare"),
    )
    plan = Plan(name="x", arms=arms, runs=tuple(run(a.name, f"r-{a.name}") for a in arms))
    now = with_present_scripts(plan)
    source = Code(script="old.py", files={"old.py": b"name = 'old'"}).source
    named = run_id_of("intent-r-old", source_digest=source.digest, environment_digest="env")
    assert (now.runs[0].run_id, now.runs[0].older) == (named, ("r-old",))
    assert now.arms[0].source == source.files
    assert now.runs[1].older == ("r-new",) and now.runs[1].run_id not in ("r-new", named)
    assert [r.run_id for r in now.runs[2:]] == ["r-gone", "r-patched", "r-ref", "r-bare"]
    assert [a.source for a in now.arms[2:]] == [None] * 4
    again = with_present_scripts(now)
    assert again.runs == now.runs, "nothing was edited since"


def test_a_source_that_was_there_before_is_no_older_one() -> None:
    source = Code(script="a", files={"a": b"x"}).source
    named = run_id_of("intent-late", source_digest=source.digest, environment_digest="env")
    plan = Plan(
        name="x", arms=(PlanArm(name="a", of="a"),), runs=(run("a", "late", older=(named,)),)
    )
    [back] = with_sources(plan, {"a": source}).runs
    assert (back.run_id, back.older) == (named, ("late",))
    assert with_sources(plan, {}) == plan


def test_steps_that_the_script_alone_knows_are_those_of_its_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = {"done": SimpleNamespace(budget=250), "odd": SimpleNamespace(budget=None)}
    monkeypatch.setattr(present, "read_result", lambda folder: results.get(folder.name))
    runs = (run("a", "done"), run("a", "odd"), run("a", "none"), run("a", "told", budget=30))
    plan = with_steps(tmp_path, Plan(name="x", arms=(PlanArm(name="a", of="a"),), runs=runs))
    assert [r.budget for r in plan.runs] == [250, UNKNOWN_STEPS, UNKNOWN_STEPS, 30]
    assert [r.run_id for r in plan.runs] == ["done", "odd", "none", "told"]
