"""Bringing runs in: what is sound comes whole, what is not stays where it was and is told, nothing here is lost."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import UserError
from harness.run.plan import Lock, Plan, PlanArm, PlanRun
from harness.run.spec import RunSpec
from harness.store.attempt import claim
from harness.store.merge import (
    Merged,
    check_source,
    files_of_run,
    is_damaged,
    merge,
    merge_plans,
    what_is_wrong,
)
from harness.store.plans import folder, read_plan, save_plan
from harness.store.store import Store
from tests.one_run import SPEC, finish

ARMS = (PlanArm(name="base", of="base"),)
FILES = {"attempts.jsonl", "config.yaml", "environment.json", "log.txt", "metrics.jsonl"}


def seed(n: int) -> RunSpec:
    return replace(SPEC, seed=n)


def made(root: Path, *seeds: int) -> Store:
    store = Store.create(root)
    for n in seeds:
        out = claim(store, seed(n))
        assert out is not None
        finish(out)
    return store


def later(run: Path) -> None:
    path = run / "result.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 99}))


def damaged(run: Path) -> None:
    (run / "metrics.jsonl").write_text("")


def begun(store: Store, n: int) -> Callable[[], None]:
    out = claim(store, seed(n))
    assert out is not None
    return out.release


def test_a_run_behind_a_link_of_the_results_folder_comes_whole(tmp_path: Path) -> None:
    theirs = made(tmp_path / "disk", 0)
    [run] = (theirs.root / "runs").iterdir()
    (run / "attempts" / "1").mkdir(parents=True)
    (run / "attempts" / "1" / "log.txt").write_text("the first try\n")
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    here = Store.create(tmp_path / "here")
    done = merge(tmp_path / "link", here)
    assert (done.copied, done.problems) == ([run.name], [])
    came = files_of_run(here.directory(run.name))[0]
    assert sorted(came) == sorted(files_of_run(run)[0]) and "attempts/1/log.txt" in came


def test_a_sound_run_comes_whole_and_once(tmp_path: Path) -> None:
    there, here = made(tmp_path / "there", 0, 1), made(tmp_path / "here", 1)
    run = there.directory(seed(0).run_id)
    for name in ("owner.json", "progress.json", "gone.json", ".hidden"):
        (run / name).touch()
    (run / "notes").mkdir()
    (run / "attempts" / "1").mkdir(parents=True)
    (run / "attempts" / "1" / "log.txt").write_text("earlier")
    (run / "attempts" / "1" / "gone.json").touch()
    (run / "attempts" / "1" / "deeper").mkdir()
    done = merge(there.root, here)
    assert (done.copied, done.here) == ([seed(0).run_id], [seed(1).run_id])
    assert done.problems == [f"{run / 'notes'}: is a folder: left out"]
    copy = here.directory(seed(0).run_id)
    assert {p.name for p in copy.iterdir()} == FILES | {"attempts", "result.json"}
    assert [p.name for p in (copy / "attempts" / "1").iterdir()] == ["log.txt"]
    assert what_is_wrong(copy) is None and not [*here.runs.glob(".merged-*")]
    again = merge(there.root, here)
    assert (again.copied, again.here) == ([], sorted([seed(0).run_id, seed(1).run_id]))
    names, left_out = files_of_run(run)
    assert set(names) == FILES | {"result.json", "attempts/1/log.txt"} and len(left_out) == 1


def test_a_link_among_a_runs_files_is_left_out_and_named(tmp_path: Path) -> None:
    there, here = made(tmp_path / "there", 0), made(tmp_path / "here")
    run = there.directory(SPEC.run_id if SPEC.seed == 0 else seed(0).run_id)
    os.symlink("/etc/hostname", run / "secret.txt")
    done = merge(there.root, here)
    assert done.copied == [seed(0).run_id]
    assert not (here.directory(seed(0).run_id) / "secret.txt").exists()
    assert len(done.problems) == 1 and done.problems[0].endswith(": left out")
    assert "secret.txt" in done.problems[0]


@pytest.mark.parametrize(("harm", "is_harmed"), [(damaged, True), (later, False)])
def test_a_run_that_is_not_sound_stays_where_it_was(
    tmp_path: Path, harm: Callable[[Path], None], is_harmed: bool
) -> None:
    there, here = made(tmp_path / "there", 0), made(tmp_path / "here")
    run = there.directory(seed(0).run_id)
    assert not is_damaged(run)
    harm(run)
    assert is_damaged(run) == is_harmed and what_is_wrong(run) is not None
    done = merge(there.root, here)
    assert done.problems == [what_is_wrong(run)] and done.copied == done.unfinished == []
    assert not here.directory(seed(0).run_id).exists()


def test_a_sound_run_takes_the_place_of_a_damaged_or_unfinished_one_but_not_of_one_at_work(
    tmp_path: Path,
) -> None:
    there, here = made(tmp_path / "there", 0, 1, 2), made(tmp_path / "here", 0)
    damaged(here.directory(seed(0).run_id))
    give_back = begun(here, 1)
    begun(here, 2)()
    done = merge(there.root, here)
    at_work = f"run {seed(1).run_id} is running in {here.root}: bring it in when that has ended"
    assert done.problems == [at_work]
    assert sorted(done.copied) == sorted([seed(0).run_id, seed(2).run_id])
    assert len([*(here.root / "aside").iterdir()]) == 2
    give_back()
    assert merge(there.root, here).copied == [seed(1).run_id]


def test_a_run_without_a_result_is_not_brought_in(tmp_path: Path) -> None:
    there, here = made(tmp_path / "there"), made(tmp_path / "here")
    begun(there, 0)()
    done = merge(there.root, here)
    assert done.unfinished == [seed(0).run_id] and done.copied == done.problems == []


def test_only_another_results_folder_is_brought_in(tmp_path: Path) -> None:
    here = made(tmp_path / "here")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no results folder"):
        check_source(tmp_path / "empty", here.root)
    (tmp_path / "link").symlink_to(here.root)
    with pytest.raises(UserError, match="the results folder itself"):
        check_source(tmp_path / "link", here.root)
    check_source(made(tmp_path / "there").root, here.root)


def plan_of(*seeds: int, **facts: object) -> Plan:
    runs = []
    for block, n in enumerate(seeds):
        values = {"arm": "base", "seed": n, "replicate": 0, "budget": 10, "role": "loss"}
        ids = {"run_id": seed(n).run_id, "intent_id": seed(n).intent_id}
        runs.append(PlanRun(**{**values, **ids, "block": block, "place": 0}))  # type: ignore[arg-type]
    return Plan(name="mine", baseline="base", arms=ARMS, seeds=seeds, runs=tuple(runs), **facts)  # type: ignore[arg-type]


def test_two_parts_of_an_experiment_are_one_in_the_order_of_their_seeds(tmp_path: Path) -> None:
    there, here = made(tmp_path / "there", 1, 3), made(tmp_path / "here", 2)
    locks = [Lock(locked=f"2026-01-0{n}", digest=str(n), plan={}) for n in (1, 2)]
    save_plan(there.root, plan_of(1, 3, looks=2, looked_at=5, locks=(locks[0],)))
    save_plan(here.root, plan_of(2, looks=3, looked_at=4, locks=(locks[1],)))
    done = merge(there.root, here)
    assert done.experiments == ["mine"]
    joined = read_plan(here.root, "mine")
    assert joined is not None and joined.seeds == (1, 2, 3)
    assert [(run.seed, run.block) for run in joined.runs] == [(1, 0), (2, 1), (3, 2)]
    assert (joined.looks, joined.looked_at) == (3, 5)
    assert [lock.digest for lock in joined.locks] == ["1", "2"]


def test_of_one_run_in_two_environments_the_one_with_a_result_counts(tmp_path: Path) -> None:
    there, here = made(tmp_path / "there"), made(tmp_path / "here")
    elsewhere = replace(seed(0), environment_digest="e" * 16)
    out = claim(there, elsewhere)
    assert out is not None
    finish(out)
    theirs = plan_of(0)
    (run,) = theirs.runs
    save_plan(there.root, replace(theirs, runs=(replace(run, run_id=elsewhere.run_id),)))
    save_plan(here.root, plan_of(0))
    merge(there.root, here)
    joined = read_plan(here.root, "mine")
    assert joined is not None
    assert [(r.run_id, r.older) for r in joined.runs] == [(elsewhere.run_id, (seed(0).run_id,))]
    out = claim(here, seed(0))
    assert out is not None
    finish(out)
    save_plan(here.root, plan_of(0))
    merge(there.root, here)
    joined = read_plan(here.root, "mine")
    assert joined is not None
    assert [(r.run_id, r.older) for r in joined.runs] == [(seed(0).run_id, (elsewhere.run_id,))]


def test_plans_are_brought_in_alone_and_what_cannot_be_is_told(tmp_path: Path) -> None:
    there, here = made(tmp_path / "there", 0), made(tmp_path / "here")
    save_plan(there.root, plan_of(0))
    save_plan(there.root, replace(plan_of(0), name="other", margin=0.5))
    save_plan(here.root, replace(plan_of(0), name="other", margin=0.1))
    (folder(there.root, "broken")).mkdir()
    (folder(there.root, "broken") / "experiment.json").write_text("{")
    done = Merged()
    merge_plans(there.root, here, done)
    assert done.experiments == ["mine"] and done.copied == []
    broken, other = done.problems
    assert "broken" in broken and "another margin" in other
    assert not here.directory(seed(0).run_id).exists()
    assert read_plan(here.root, "mine") == plan_of(0)


def test_what_a_run_names_comes_along_where_it_is_what_its_name_says(tmp_path: Path) -> None:
    there, here = made(tmp_path / "there", 0), made(tmp_path / "here")
    place = there.root / "environments" / f"{SPEC.environment_digest}.json"
    place.write_text("{}")
    done = merge(there.root, here)
    assert done.problems == [f"{place} is not what its name says"]
    assert not (here.root / "environments" / place.name).exists()
