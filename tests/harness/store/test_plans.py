"""What a results folder keeps of an experiment, and what of it is stale, seen before, launched here, or found by its name."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UserError
from harness.provenance import launches as keys
from harness.run.foreign import TrainerSpec
from harness.run.ledger import Look, Seen, add_rows, claims_of, read_ledger
from harness.run.plan import Plan, PlanArm, PlanRun
from harness.run.spec import Outcome, RunSpec
from harness.store import launches
from harness.store.attempt import claim
from harness.store.errors import ResultsError
from harness.store.launches import (
    check_launched,
    command_words,
    commands_of,
    is_launched,
    launched_runs,
    note_launch,
)
from harness.store.looks import note_look, note_looks_at, seeds_with_results
from harness.store.plans import (
    begin_plan,
    cancel,
    cancel_mark,
    count_look,
    folder,
    read_plan,
    readable_plans,
    save_plan,
    stale_runs,
    up_to_date,
)
from harness.store.store import Store
from tests.one_run import DONE, SPEC, finish

ARMS = (PlanArm(name="base", of="base"), PlanArm(name="a", of="a", fields={"model.x": 1}))
TRAINER = TrainerSpec(
    file=Path("train.py"), script="train.py", command="python", args=("-u",), env={}, data={},
    environment={"python": "/opt/python"},
)  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.create(tmp_path / "results")


def spec_of(arm: str, seed: int, files: Mapping[str, str] | None = None) -> RunSpec:
    made = replace(SPEC, seed=seed, config={"model": {"x": arm}})
    return made if files is None else replace(made, source_files=files, source_digest="e" * 16)


def planned(arm: str, seed: int, block: int, **facts: Any) -> PlanRun:
    spec = spec_of(arm, seed)
    values: dict[str, Any] = {
        **{"arm": arm, "seed": seed, "replicate": 0, "budget": 10, "role": "loss"},
        **{"block": block, "run_id": spec.run_id, "intent_id": spec.intent_id},
    }
    return PlanRun(**{**values, **facts})


def plan_of(seeds: tuple[int, ...] = (0, 1), name: str = "mine", **facts: Any) -> Plan:
    runs = [planned(arm.name, seed, i) for i, seed in enumerate(seeds) for arm in ARMS]
    how = {"arms": ARMS, "seeds": seeds, "runs": tuple(runs), **facts}
    return Plan(name=name, baseline="base", **how)


def done(store: Store, *specs: RunSpec, outcome: Outcome = DONE) -> None:
    for spec in specs:
        out = claim(store, spec)
        assert out is not None
        finish(out, outcome)


# ---------------------------------------------------------------- plans


def test_of_two_calls_that_begin_an_experiment_one_does(store: Store) -> None:
    first, second = plan_of(question="first"), plan_of(question="second")
    assert begin_plan(store.root, first) and not begin_plan(store.root, second)
    kept = read_plan(store.root, "mine")
    assert kept is not None and kept.question == "first"
    assert read_plan(store.root, "another") is None and read_plan(store.root, "../mine") is None
    (folder(store.root, "broken")).mkdir()
    (folder(store.root, "broken") / "experiment.json").write_text("[]")
    (_, none, why), (name, plan, nothing) = readable_plans(store.root)
    assert none is None and "remove it and run the experiment again" in why
    assert (name, plan, nothing) == ("mine", kept, "")


def test_an_experiment_is_cancelled_by_a_mark_that_is_new_each_time(store: Store) -> None:
    save_plan(store.root, plan_of())
    assert cancel_mark(store.root, "mine") is None
    cancel(store.root, "mine")
    first = cancel_mark(store.root, "mine")
    cancel(store.root, "mine")
    assert first is not None and cancel_mark(store.root, "mine") not in (None, first)


def test_a_look_counts_where_results_came_in(store: Store) -> None:
    plan = plan_of()
    assert count_look(store.root, plan) == plan
    done(store, spec_of("base", 0), spec_of("a", 0))
    once = count_look(store.root, plan)
    assert (once.looks, once.looked_at) == (plan.looks + 1, 2)
    assert count_look(store.root, once) == once
    done(store, spec_of("base", 1))
    assert count_look(store.root, once).looked_at == 3


def test_a_run_is_stale_where_its_only_result_is_of_older_code(store: Store) -> None:
    then = {"a.py": "1" * 16, "b.py": "2" * 16, "c.py": "3" * 16, "d.py": "4" * 16}
    old = [spec_of("a", seed, then) for seed in (0, 1)]
    assert stale_runs(store.root, plan_of()) == (
        frozenset(),
        "stale: the environment changed since its result",
    )
    done(store, *old)
    runs = [planned("a", seed, seed, older=("0" * 16, old[seed].run_id)) for seed in (0, 1)]
    source = {**then, "b.py": "5" * 16, "new.py": "6" * 16}
    plan = plan_of(runs=tuple(runs), source=source)
    both = frozenset(run.run_id for run in runs)
    assert stale_runs(store.root, plan) == (both, "stale: b.py, new.py changed since its result")
    everything = replace(plan, source={})
    assert stale_runs(store.root, everything)[1] == (
        "stale: a.py, b.py, c.py and 1 more files changed since its result"
    )
    arms = (ARMS[0], replace(ARMS[1], source={**then, "d.py": "7" * 16}))
    assert stale_runs(store.root, replace(plan, arms=arms))[1].startswith("stale: d.py changed")
    three = {name: digest for name, digest in then.items() if name != "d.py"}
    assert stale_runs(store.root, replace(plan, source={**then, **dict.fromkeys(three, "8" * 16)}))[
        1
    ] == ("stale: a.py, b.py, c.py changed since its result")
    done(store, spec_of("a", 0))
    assert stale_runs(store.root, plan)[0] == {runs[1].run_id}


def test_of_two_older_results_the_first_one_tells_which_code_changed(store: Store) -> None:
    code = [{"a.py": "1" * 16}, {"b.py": "2" * 16}]
    old = [replace(spec_of("a", 0, files), source_digest=c * 16) for files, c in zip(code, "de")]
    done(store, *old)
    run = planned("a", 0, 0, older=(old[0].run_id, old[1].run_id))
    plan = plan_of(runs=(run,), source=code[1])
    assert stale_runs(store.root, plan)[1] == "stale: a.py, b.py changed since its result"
    assert stale_runs(store.root, replace(plan, source=code[0]))[1] == (
        "stale: the environment changed since its result"
    )


# ---------------------------------------------------------------- looks


def seen_in(store: Store) -> list[tuple[str, str, int | None, float | None]]:
    """(experiment, by, seed, loss) of everything that was noted."""
    rows = []
    for look in read_ledger(store.root).looks:
        rows += [(look.experiment, look.by, s.seed, s.val_loss) for s in look.results]
    return rows


def test_a_look_notes_what_none_showed_before(store: Store) -> None:
    plan = plan_of()
    done(store, spec_of("base", 0))
    done(store, spec_of("a", 0), outcome=replace(DONE, status="diverged"))
    note_look(store.root, plan, "compare")
    assert seen_in(store) == [("mine", "compare", 0, 1.5), ("mine", "compare", 0, None)]
    note_look(store.root, plan, "report")
    assert len(read_ledger(store.root).looks) == 1  # nothing new
    done(store, spec_of("a", 1))
    note_look(store.root, plan, "report")
    assert seen_in(store)[2:] == [("mine", "report", 1, 1.5)]
    note_look(store.root, plan_of((0, 1, 2)), "report")  # other seeds are planned
    last = read_ledger(store.root).looks[-1]
    assert (last.results, last.seeds) == ((), (0, 1, 2))
    assert [*last.arms.values()] == ["a"] and last.baseline == claims_of(plan)["base"]
    note_look(store.root, plan_of((5, 6)), "report")
    note_look(store.root, plan_of((0,), imported=True), "report")
    assert (
        len(read_ledger(store.root).looks) == 3
    )  # of other runs nothing is there; logs have no seeds


def test_what_another_experiment_of_the_same_arms_plans_is_no_other_plan_of_this_one(
    store: Store,
) -> None:
    plan, other = plan_of((0,)), plan_of((0, 7), name="other")
    done(store, spec_of("base", 0), spec_of("a", 0))
    for looked_at in (plan, other):
        note_look(store.root, looked_at, "compare")
    assert [look.experiment for look in read_ledger(store.root).looks] == ["mine", "other"]
    for looked_at in (plan, other):
        note_look(store.root, looked_at, "compare")
    assert len(read_ledger(store.root).looks) == 2


def test_the_result_of_older_code_is_seen_where_there_is_no_other(store: Store) -> None:
    old = spec_of("a", 0, {"a.py": "1" * 16})
    done(store, old)
    plan = plan_of(runs=(planned("a", 0, 0, older=(old.run_id,)), planned("base", 0, 0)))
    note_look(store.root, plan, "compare")
    (seen,) = read_ledger(store.root).looks[0].results
    assert (seen.run_id, seen.seed, seen.claim) == (old.run_id, 0, claims_of(plan)["a"])


def test_of_a_run_with_results_of_two_codes_the_present_one_alone_is_seen(store: Store) -> None:
    old = spec_of("a", 0, {"a.py": "1" * 16})
    done(store, old, spec_of("a", 0), spec_of("base", 0))
    plan = plan_of(runs=(planned("a", 0, 0, older=(old.run_id,)), planned("base", 0, 0)))
    for _ in range(2):
        note_look(store.root, plan, "compare")
        (look,) = read_ledger(store.root).looks
        seen = [(result.run_id, result.train_time_s) for result in look.results]
        assert seen == [(run.run_id, None) for run in plan.runs]


def test_runs_that_are_looked_at_are_looked_up_in_every_experiment(store: Store) -> None:
    done(store, spec_of("base", 0), spec_of("a", 0))
    save_plan(store.root, plan_of((0,)))
    ours = [spec_of("base", 0).run_id, spec_of("a", 0).run_id]
    note_looks_at(store.root, [], "status")
    assert seen_in(store) == []
    note_looks_at(store.root, ours, "status")
    assert [row[:2] for row in seen_in(store)] == [("mine", "status")] * 2
    note_looks_at(store.root, ours, "status")
    assert len(seen_in(store)) == 2


def test_a_seed_is_used_where_its_results_were_shown_or_are_there(store: Store) -> None:
    plan = plan_of((0, 1, 2, 3))
    claims, other_question = claims_of(plan), "0" * 16
    shown = [
        Seen(claim=claim, seed=seed, intent_id="i", run_id="0" * 16, val_loss=1.0, train_time_s=1.0)
        for claim, seed in ((claims["a"], 1), (other_question, 2), (claims["a"], None))
    ]
    look = Look(
        at="2026-01-01T00:00:00.000+00:00",
        by="compare",
        experiment="earlier",
        confirm=False,
        baseline=claims["base"],
        arms={claims["a"]: "a"},
        seeds=(1,),
        results=tuple(shown),
    )
    assert seeds_with_results(store.root, plan) == {}
    add_rows(store.root, [look.to_json()])
    done(store, spec_of("base", 0), spec_of("a", 1))
    save_plan(store.root, plan_of((0, 1), name="other"))
    logs = (PlanRun(arm="a", seed=None, replicate=0, budget=10, role="loss", block=None,
                    run_id="2" * 16),)  # fmt: skip
    save_plan(store.root, plan_of((3,), name="logs", runs=logs, imported=True))
    assert seeds_with_results(store.root, plan) == {1: "earlier", 0: "other"}


# ---------------------------------------------------------------- launches


def test_what_was_launched_here_goes_on_and_what_was_not_is_told_and_refused(store: Store) -> None:
    arms = (ARMS[0], replace(ARMS[1], side=TRAINER, code="c" * 16))
    plan = plan_of(arms=arms)
    said = "`python -u` with train.py of train.py"
    with pytest.raises(UserError) as refused:
        check_launched(store.root, plan, trust=False)
    assert f"it would execute {said}; the python `/opt/python`: look" in str(refused.value)
    assert "by you:" in str(refused.value)
    assert check_launched(store.root, plan, trust=True) == [said, "the python `/opt/python`"]
    save_plan(store.root, plan)
    note_launch(store.root, plan)
    assert check_launched(store.root, plan, trust=False) == []
    assert launched_runs(store.root, "mine") == {run.run_id for run in plan.runs}
    more = plan_of((0, 1, 2), arms=arms)
    note_launch(store.root, replace(more, runs=more.runs[-2:]))
    assert launched_runs(store.root, "mine") == {run.run_id for run in more.runs}
    for other in (
        replace(plan, plugins=("x.py",)),
        replace(plan, arms=(ARMS[0], replace(arms[1], code="d" * 16))),
        replace(plan, arms=(ARMS[0], replace(arms[1], side=replace(TRAINER, args=())))),
    ):
        assert not is_launched(store.root, other)
    path = folder(store.root, "mine") / launches.FILE
    path.write_text(path.read_text().replace(plan.runs[0].run_id, "1" * 16))
    assert not is_launched(store.root, plan) and launched_runs(store.root, "mine") == set()


def test_a_launch_without_a_key_says_why_it_is_not_known_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launches, "can_keep_key", lambda: False)
    with pytest.raises(UserError, match="no key can be kept in your home"):
        check_launched(store.root, plan_of(), trust=False)
    assert keys.is_mark_of(None, []) is False


def test_a_trainer_of_a_repository_is_named_by_its_commit_and_a_command_as_a_shell_has_it() -> None:
    of_repo = replace(TRAINER, file=None, repo=Path("/git/x"), environment={})
    assert commands_of(of_repo) == ["`python -u` with train.py of /git/x at HEAD"]
    assert commands_of(replace(of_repo, ref="main"))[0].endswith(" of /git/x at main")
    assert command_words({"A": "1"}, "python x.py", ["--lr", "2"]) == "A=1 python x.py --lr 2"


# ---------------------------------------------------------------- runs by their names


def test_a_run_is_found_by_the_beginning_of_its_name(store: Store) -> None:
    for name in ("abc0", "abd0", "f000", "abe0", "abf0"):
        (store.runs / name).mkdir()
    assert store.find("f") == "f000" and store.find("abc") == "abc0"
    with pytest.raises(UserError, match=r"'ab': 4 runs begin with it \(abc0, abd0, abe0, \.\.\.\)"):
        store.find("ab")
    for text in ("", "zz"):
        with pytest.raises(UserError, match="no such run"):
            store.find(text)


def test_what_is_kept_once_is_not_written_again(store: Store) -> None:
    store.keep_once("code", "d1", ".zip", lambda: b"first")
    store.keep_once("code", "d1", ".zip", lambda: b"second")
    assert (store.root / "code" / "d1.zip").read_bytes() == b"first"
    (store.root / "environments").rename(store.root / "elsewhere")
    (store.root / "environments").write_text("a file")
    with pytest.raises(ResultsError):
        store.keep_once("environments", "d2", ".json", lambda: b"{}")


def test_a_run_that_is_held_is_nobody_elses_and_is_as_it_was_when_let_go(store: Store) -> None:
    assert store.hold(SPEC.run_id) is None  # there is none
    done(store, SPEC)
    before = sorted(p.name for p in store.directory(SPEC.run_id).rglob("*"))
    n = store.hold(SPEC.run_id)
    assert n == 1 and store.hold(SPEC.run_id) is None
    store.let_go(SPEC.run_id, n)
    after = sorted(p.name for p in store.directory(SPEC.run_id).rglob("*"))
    assert [name for name in after if name != "attempts"] == before
    assert store.hold(SPEC.run_id) == 1
    aside = store.set_aside(SPEC.run_id)
    assert not store.directory(SPEC.run_id).exists() and aside.parent == store.root / "aside"
    assert (aside / "result.json").is_file() and [*(aside / "attempts").iterdir()] == []


def test_the_end_of_a_run_that_never_began_names_its_node(store: Store) -> None:
    store.note_lost(SPEC.run_id, status="failed", reason="no node", node="n7")
    text = (store.directory(SPEC.run_id) / "attempts.jsonl").read_text()
    assert '"node": "n7"' in text and store.state(SPEC.run_id).reason == "no node"


def test_a_plan_with_a_secret_of_the_users_own_is_not_kept(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_PASSWORD", "correct-horse-staple")
    plan = plan_of(question="Is correct-horse-staple better?")
    for keep in (save_plan, begin_plan):
        with pytest.raises(UserError, match=r"mine: its plan holds the value of \$MY_PASSWORD"):
            keep(store.root, plan)
    assert not (store.root / "experiments/mine").exists()


def test_where_a_plug_in_is_not_at_hand_nothing_is_stale(store: Store, tmp_path: Path) -> None:
    plugin = tmp_path / "idea.py"
    plan = plan_of(plugins=(str(plugin),))
    assert up_to_date(store.root, plan) == plan
    for kind in ("imported", "foreign"):
        assert up_to_date(store.root, replace(plan_of(), **{kind: True})).runs == plan.runs
    plugin.write_text("")
    now = up_to_date(store.root, plan)
    assert [run.older for run in now.runs] == [(run.run_id,) for run in plan.runs]


def test_of_a_run_that_recorded_no_source_every_file_has_changed(store: Store) -> None:
    old = spec_of("a", 0, {"a.py": "1" * 16})
    done(store, old)
    (store.directory(old.run_id) / "config.yaml").write_text("source: none\n")
    plan = plan_of(runs=(planned("a", 0, 0, older=(old.run_id,)),), source={"b.py": "2" * 16})
    assert stale_runs(store.root, plan)[1] == "stale: b.py changed since its result"
