"""What of a results folder may go: nothing that a report counts, nothing that somebody works on."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.run.plan import Plan, PlanArm, PlanRun
from harness.run.spec import TRUNK_FILE, Outcome, RunSpec
from harness.store import clean
from harness.store.attempt import claim
from harness.store.clean import KINDS, weight
from harness.store.plans import folder, save_plan
from harness.store.store import Store
from tests.one_run import SPEC, finish

ALIVE, DONE, FAILED, OLD = (replace(SPEC, seed=seed) for seed in range(4))


def run_of(spec: RunSpec, **facts: object) -> PlanRun:
    values = {"arm": "base", "seed": spec.seed, "replicate": 0, "budget": 10, "role": "loss"}
    return PlanRun(**{**values, "block": spec.seed, "run_id": spec.run_id, **facts})  # type: ignore[arg-type]


def plan_of(*runs: PlanRun) -> Plan:
    arms = (PlanArm(name="base", of="base"),)
    return Plan(name="mine", baseline="base", arms=arms, runs=runs, imported=True)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A run at work, one that finished, one that failed, and one of older code that finished."""
    made = Store.create(tmp_path / "results")
    for spec in (DONE, OLD):
        out = claim(made, spec)
        assert out is not None
        finish(out)
    out = claim(made, FAILED)
    assert out is not None
    out.finish(Outcome(status="failed", reason="it broke"))
    return made


@pytest.fixture
def at_work(store: Store) -> Callable[[], None]:
    """Somebody works on a run from now on."""
    writers = []

    def begin() -> None:
        out = claim(store, ALIVE)
        assert out is not None
        writers.append(out)

    yield begin  # type: ignore[misc]
    for out in writers:
        out.release()


def may_go(kind: str, store: Store) -> set[str]:
    (of,) = (k for k in KINDS if k.name == kind)
    return {str(path.relative_to(store.root)) for path in of.find(store)}


def test_a_run_of_older_code_may_go_once_a_planned_one_has_its_place(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert may_go("stale", store) == set()
    newer = run_of(DONE, older=(OLD.run_id, "0" * 16))
    save_plan(store.root, plan_of(newer))
    assert may_go("stale", store) == {f"runs/{OLD.run_id}"}
    save_plan(store.root, plan_of(newer, run_of(OLD)))  # which another arm plans as it is
    assert may_go("stale", store) == set()
    save_plan(store.root, plan_of(newer))
    renamed = plan_of(newer.renamed("1" * 16))
    monkeypatch.setattr(clean, "up_to_date", lambda root, plan: renamed)
    assert may_go("stale", store) == {f"runs/{OLD.run_id}", f"runs/{DONE.run_id}"}
    (folder(store.root, "broken")).mkdir(parents=True)
    (folder(store.root, "broken") / "experiment.json").write_text("{")
    assert may_go("stale", store) == set()  # it may name any run


def test_a_run_of_older_code_at_which_somebody_works_stays(
    store: Store, at_work: Callable[[], None]
) -> None:
    at_work()
    save_plan(store.root, plan_of(run_of(DONE, older=(ALIVE.run_id, FAILED.run_id))))
    assert may_go("stale", store) == {f"runs/{FAILED.run_id}"}


def test_a_trunk_may_go_once_every_run_has_gone_on_from_it(
    store: Store, at_work: Callable[[], None]
) -> None:
    at_work()
    for spec in (DONE, OLD, ALIVE):
        (store.directory(spec.run_id) / TRUNK_FILE).write_bytes(b"weights")
    trunks = {f"runs/{spec.run_id}" for spec in (DONE, OLD)}
    assert may_go("trunks", store) == trunks
    needs = run_of(FAILED, trunk=DONE.run_id)
    save_plan(store.root, plan_of(needs, run_of(OLD, trunk=OLD.run_id)))
    assert may_go("trunks", store) == {f"runs/{OLD.run_id}"}
    (folder(store.root, "mine") / "experiment.json").write_text("{")
    assert may_go("trunks", store) == set()


def test_what_attempts_and_killed_processes_left_may_go_where_nobody_works(
    store: Store, at_work: Callable[[], None]
) -> None:
    failed = f"runs/{FAILED.run_id}"
    runs, done = store.runs, store.directory(DONE.run_id)
    for path in (
        runs / ".removed-x",
        runs / ".other",
        done / ".result.json-half",
        store.root / "code" / ".half",
        store.root / "environments" / ".half",
        store.root / "experiments" / "mine" / ".half",
        store.root / "experiments" / "mine" / "experiment.json-not",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    of_runs = {f"{failed}/attempts/1", "runs/.removed-x", f"runs/{DONE.run_id}/.result.json-half"}
    of_all = {"code/.half", "environments/.half", "experiments/mine/.half"}
    assert may_go("attempts", store) == of_runs | of_all
    at_work()
    for name in ("0", "notes"):
        (store.directory(ALIVE.run_id) / "attempts" / name).mkdir()
    over = f"runs/{ALIVE.run_id}/attempts/0"
    assert may_go("attempts", store) == of_runs | {
        over
    }  # its own folder stays, and what has no number


def test_what_was_set_aside_may_go_and_caches_where_nobody_works(
    store: Store, at_work: Callable[[], None]
) -> None:
    for path in ("aside/one", "cache/looked", "cache/kernels"):
        (store.root / path).mkdir(parents=True)
    assert may_go("aside", store) == {"aside/one"}
    assert may_go("caches", store) == {"cache/looked", "cache/kernels"}
    at_work()
    assert may_go("aside", store) == {"aside/one"}
    assert may_go("caches", store) == set()


def test_nothing_that_a_link_leads_to_may_go(store: Store, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "mine").mkdir(parents=True)
    (store.root / "aside").symlink_to(elsewhere)
    assert may_go("aside", store) == set()


def test_a_weight_is_that_of_every_file_and_of_no_link(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "one").write_bytes(b"x" * 100)
    (tmp_path / "a" / "b" / "two").write_bytes(b"x" * 23)
    assert weight(tmp_path / "a") == 123
    assert weight(tmp_path / "a" / "one") == 100
    os.symlink(tmp_path / "a", tmp_path / "link")
    assert weight(tmp_path / "link") == len(str(tmp_path / "a"))
    assert [kind.name for kind in KINDS] == [
        *("stale", "trunks", "attempts", "aside", "reruns", "caches"),
    ]
