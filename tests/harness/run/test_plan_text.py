"""A plan as its file holds it: everything that it says comes back, what other kinds alone have is left out, nonsense is refused."""

import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.run.foreign import ClockHint, TrainerLimits, TrainerSpec
from harness.run.halving import Halving
from harness.run.plan import (
    Lock,
    Plan,
    PlanArm,
    PlanCorpus,
    PlanRun,
    PriorNoise,
    SeedsRule,
    Target,
    plan_of,
)
from harness.run.remembered import Remembered, examine_known
from harness.run.results import examine, read_result, stats_of
from harness.run.stream import StreamPlace
from harness.store.store import Store
from tests.one_run import claimed, finish

HINTS = (
    ClockHint(line=7, text="the clock stops early", doubt=True),
    ClockHint(line=9, text="other", compared=True),
)
SIDE = TrainerSpec(
    file=Path("/x/new.py"),
    script="new.py",
    command="python {script}",
    env={"A": "1"},
    data={"data": "/data"},
    environment={},
    gpus=8,
)
BASE = PlanArm(name="base", of="base")
ARM = PlanArm(
    name="new, lr 0.1",
    changes=("new", "b"),
    fields={"optim.lr": 0.1},
    of="new",
    point={"optim.lr": "0.1"},
    substituted=("compile: off here",),
    alters_noise=True,
    hints=HINTS,
    side=SIDE,
    code="abc",
    source={"new.py": "abc"},
    noise_sd=0.002,
    note="a note",
)
RUN = PlanRun(
    arm="base",
    seed=1,
    replicate=0,
    budget=100,
    role="loss",
    block=0,
    place=1,
    run_id="r1",
    intent_id="i1",
    older=("r0",),
    trunk="t1",
    borrowed=True,
)
PLAN = Plan(
    name="mine",
    question="which?",
    baseline="base",
    arms=(BASE, ARM),
    runs=(RUN, replace(RUN, run_id="r2", trunk=None, borrowed=False)),
    seeds=(1, 2),
    budgets=(100, 200),
    target=Target(val_loss=3.28, reason="of the benchmark"),
    margin=0.01,
    prior_noise=PriorNoise(sd=0.003, df=20, source="before"),
    corpus=PlanCorpus(name="stdlib", fingerprint="f", unit="nats per byte", bytes_per_token=1.0),
    plugins=("a.py",),
    remarks=("odd",),
    foreign=True,
)


def test_everything_that_a_plan_says_comes_back() -> None:
    back = plan_of(PLAN.to_mapping(), "mine")
    for name in vars(PLAN):
        assert getattr(back, name) == getattr(PLAN, name), name
    assert back.by_arm["new, lr 0.1"].hints == HINTS
    bare = Plan(name="bare")
    assert plan_of(bare.to_mapping(), "bare") == bare


RARE: dict[str, tuple[Any, Any]] = {  # what only some plans say -> as their file holds it
    "seeds_rule": (
        SeedsRule(least=2, most=9, stop={"decide": 0.05}),
        {"min": 2, "max": 9, "stop": {"decide": 0.05}},
    ),
    "target": (
        Target(val_loss=None, from_baseline=True),
        {"val_loss": None, "from_baseline": True},
    ),
    "prior_noise": (
        PriorNoise(sd=0.5, df=7.0, source="x"),
        {"sd": 0.5, "df": 7.0, "source": "x"},
    ),
    "stream": (
        StreamPlace(stream="s", number=2, parts=8, n_kept=0),
        {"stream": "s", "number": 2, "parts": 8, "n_kept": 0},
    ),
    "limits": (
        TrainerLimits(wall_s=9.0, retries=2),
        {"wall_s": 9.0, "silence_s": 3600.0, "retries": 2, "output_mib": 1024.0},
    ),
    "halving": (
        Halving(one_in=2, budgets=[5, 9], n_points=4, rung=1),
        {"one_in": 2, "budgets": [5, 9], "n_points": 4, "rung": 1},
    ),
    "locks": (
        (Lock(locked="2026", digest="d", plan={"seeds": [0]}),),
        [{"locked": "2026", "digest": "d", "plan": {"seeds": [0]}}],
    ),
    "parents": ({"new, lr 0.1": "base"}, {"new, lr 0.1": "base"}),
    "draw": ({"sobol": 4, "seed": 0}, {"sobol": 4, "seed": 0}),
    "branch_at": (5, 5),
    "scale_rates": ("by factors", "by factors"),
    "evidence": ("published", "published"),
    "device": ("cuda", "cuda"),
    "imported": (True, True),
    "source": ({"a.py": "d"}, {"a.py": "d"}),
    "left_out": ((["a", "b"],), [["a", "b"]]),
}


@pytest.mark.parametrize("name", RARE)
def test_what_some_plans_say_alone_comes_back_and_the_others_have_none_of_it(name: str) -> None:
    value, held = RARE[name]
    plan = replace(PLAN, **{name: value})
    content = json.loads(json.dumps(plan.to_mapping()))
    assert content[name] == held
    assert plan_of(content, "mine") == plan
    others = Plan(name="x").to_mapping()
    assert not others.get(name) and (name in others) == (name in UNSAID)


def test_what_only_some_plans_have_is_left_out_of_the_others() -> None:
    content = PLAN.to_mapping()
    full, bare = content["arms"][1], content["arms"][0]
    assert {"hints", "side", "code", "source", "noise_sd", "note"} <= full.keys()
    assert not {"hints", "side", "code", "source", "noise_sd", "note", "n_logs"} & bare.keys()
    first, second = content["runs"]
    assert (first["trunk"], first["borrowed"]) == ("t1", True)
    assert not {"trunk", "borrowed", "imported", "self_reported"} & second.keys()
    assert not {"parents", "foreign", "imported", "evidence"} & Plan(name="x").to_mapping().keys()


def test_an_arm_without_a_place_in_a_design_is_its_own() -> None:
    assert PlanArm.from_mapping({"name": "a"}).of == "a"
    assert PlanArm.from_mapping({"name": "a", "of": "b"}).of == "b"


UNSAID: dict[str, Any] = {  # of a plan that says its name alone
    **{"schema": 2, "name": "x", "question": "", "base": "", "scale": None, "baseline": ""},
    **{"design": "explicit", "arms": [], "baseline_config": {}, "departures": None},
    **{"primary": "val_loss", "seeds": [], "seeds_rule": None, "phases": {}, "budgets": []},
    **{"target": None, "margin": None, "estimand": "at-rate", "axes": {}, "grid": None},
    **{"rates": {}, "confirm": False, "published": None, "alters_noise": [], "slope": None},
    **{"protocol": "", "command": "", "plugins": [], "left_out": [], "locks": [], "looks": 0},
    **{"looked_at": 0, "runs": []},
    "corpus": {
        **{"name": "unknown", "fingerprint": "unknown", "unit": "nats", "bytes_per_token": None},
        **{"tokens": None, "heldout": None},
    },
}


def test_what_an_older_file_does_not_say_was_not_known_then() -> None:
    plan = plan_of({"name": "x"}, "x")
    assert plan.to_mapping() == UNSAID and plan == Plan(name="x")
    assert not (plan.is_bundle or plan.is_stopped or plan.foreign or plan.imported)
    assert replace(plan, foreign=True, remarks=("a",)).is_bundle
    row = {"arm": "a", "seed": 1, "replicate": 0, "budget": 5, "role": "loss", "block": None}
    run = PlanRun.from_mapping({**row, "run_id": "r"})
    marks = (run.trunk, run.self_reported, run.imported, run.borrowed)
    assert (marks, run.older, run.place) == ((None, False, False, False), (), None)
    arm = PlanArm.from_mapping({"name": "a"}).to_mapping()
    assert arm == {
        **{"name": "a", "of": "a", "changes": (), "fields": {}, "estimand": "at-rate"},
        **{"alters_noise": False, "point": {}, "substituted": (), "environment_effect": None},
    }


def test_a_run_under_another_name_keeps_those_that_it_had_the_newest_first() -> None:
    run = replace(RUN, run_id="r1", older=("r0", "r2"))
    assert run.renamed("r1") is run
    assert run.renamed("r3") == replace(run, run_id="r3", older=("r1", "r0", "r2"))
    assert run.renamed("r2") == replace(run, run_id="r2", older=("r1", "r0"))


def changed(**keys: Any) -> dict[str, Any]:
    return {**PLAN.to_mapping(), **keys}


def run_with(**keys: Any) -> dict[str, Any]:
    runs = PLAN.to_mapping()["runs"]
    return changed(runs=[{**runs[0], **keys}])


DAMAGED: dict[str, Any] = {
    "damaged: no mapping": [],
    "the plan of an experiment named 'other'": changed(name="other"),
    "with a run named '../r'": run_with(run_id="../r"),
    "with a run named 'r1'": run_with(trunk="a/b"),
    "with two arms of one name": changed(arms=[{"name": "base"}, {"name": "base"}]),
    "without the arm 'gone' that it speaks of": run_with(arm="gone"),
    "without the arm 'lost' that it speaks of": changed(baseline="lost"),
    f"without the arm '{'x' * 60}' that it speaks of": changed(parents={"x" * 61: "base"}),
    "without the arm 'adopted' that it speaks of": changed(parents={"base": "adopted"}),
    "with a run named 'r9'": run_with(run_id="r9", older=["-r"]),
    "damaged: KeyError ": changed(arms=[{}]),
    "damaged: TypeError ": changed(runs=7),  # and Python's words
}


@pytest.mark.parametrize("message", DAMAGED)
def test_a_plan_that_is_none_is_refused_with_what_is_wrong(message: str) -> None:
    with pytest.raises(ValueError) as error:
        plan_of(DAMAGED[message], "mine")
    said = str(error.value)
    assert said.startswith(message) if message.endswith(" ") else said == message
    with pytest.raises(ValueError):
        plan_of(changed(name="../mine"), "../mine")


# ---------------------------------------------------------------- results that were seen before


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run."""
    store = Store.create(tmp_path / "results")
    out = claimed(store)
    finish(out)
    return out.run


def spoil(file: Path, *, at_ns: int | None = None) -> None:
    """Change a letter of a file, which keeps its size, and maybe set its time back."""
    text = file.read_bytes()
    file.write_bytes(text[:1] + b"x" + text[2:])
    if at_ns is not None:
        os.utime(file, ns=(at_ns, at_ns))


def test_a_file_of_the_same_size_and_an_older_time_is_taken_for_untouched_but_for_attempts(
    run: Path,
) -> None:
    sealed_ns = (run / "result.json").stat().st_mtime_ns

    def wrong(*, by_facts: bool) -> str | None:
        return examine(run, run.name, stats=stats_of(str(run)) if by_facts else None)[1]

    assert wrong(by_facts=True) is None is wrong(by_facts=False)
    spoil(run / "metrics.jsonl", at_ns=sealed_ns)
    assert wrong(by_facts=True) is None
    assert "metrics.jsonl is not the file that the run wrote" in (wrong(by_facts=False) or "")
    os.utime(run / "metrics.jsonl", ns=(sealed_ns + 1, sealed_ns + 1))
    assert "metrics.jsonl is not the file" in (wrong(by_facts=True) or "")


def test_the_rows_of_attempts_are_read_whatever_their_size_and_time_say(run: Path) -> None:
    """The end of an attempt is noted behind what the result vouches for: without it the size is the sealed one."""
    sealed_ns = (run / "result.json").stat().st_mtime_ns
    result = read_result(run)
    assert result is not None
    rows = run / "attempts.jsonl"
    rows.write_bytes(rows.read_bytes()[: result.bytes["attempts.jsonl"]])
    assert examine(run, run.name, stats=stats_of(str(run)))[1] is None
    spoil(rows, at_ns=sealed_ns - 10**9)
    _, wrong = examine(run, run.name, stats=stats_of(str(run)))
    assert "attempts.jsonl is not the file that the run wrote" in (wrong or "")


def test_only_a_result_of_which_every_file_was_read_is_taken_for_sound_as_a_whole(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.run.remembered.FRESH_NS", -(10**12))  # nothing is too fresh
    stats = stats_of(str(run))
    for whole in (False, True):
        memory = Remembered(tmp_path / "results")
        memory.learn(run.name, "finished", stats, whole=whole)
        memory.remembered = memory.learned
        assert memory.status(run.name, stats, whole=False) == "finished"
        assert memory.status(run.name, stats, whole=True) == ("finished" if whole else None)
        monkeypatch.setattr("harness.run.remembered.examine", lambda *a: (None, "looked at"))
        expected = None if whole else "looked at"
        assert examine_known(run, run.name, memory)[1] == expected
        monkeypatch.setattr("harness.run.remembered.examine", examine)
    spoil(run / "log.txt")
    assert memory.status(run.name, stats_of(str(run)), whole=False) is None


def test_what_was_found_sound_is_remembered_and_what_is_not_is_not(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.run.remembered.FRESH_NS", -(10**12))
    memory = Remembered(tmp_path / "results")
    result, wrong = examine_known(run, run.name, memory)
    assert (result, wrong) == (read_result(run), None)
    assert [*memory.learned] == [run.name]
    (run / "metrics.jsonl").unlink()
    other = Remembered(tmp_path / "results")
    assert "metrics.jsonl" in (examine_known(run, run.name, other)[1] or "")
    assert other.learned == {}
    monkeypatch.setattr("harness.run.remembered.WORTH_WRITING", 1)
    memory.save()
    assert Remembered(tmp_path / "results").remembered == memory.learned
    assert Remembered(tmp_path / "results", forget=True).remembered == {}


def test_a_hundred_results_are_worth_writing_down_and_what_is_just_written_is_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_800_000_000_000_000_000
    monkeypatch.setattr("harness.run.remembered.time.time_ns", lambda: now)
    file = Remembered(tmp_path).path
    memory = Remembered(tmp_path)
    for n in range(100):
        memory.save()
        assert not file.exists()
        for ago_ns in (0, 5 * 10**9, 5 * 10**9 + 1):  # of the last change of any of its files
            seen = {"st_size": 3, "st_mtime_ns": 1, "st_ino": 7}
            old, new = (SimpleNamespace(**seen, st_ctime_ns=now - at) for at in (10**12, ago_ns))
            memory.learn(f"r{n}", "finished", {"a": old, "b": new, "c": old}, whole=True)
            assert (f"r{n}" in memory.learned) is (ago_ns > 5 * 10**9)
    memory.save()
    assert json.loads(file.read_text()) == memory.learned
    file.write_text(json.dumps({"before": "finished 1", "r1": "diverged 2"}))
    later = Remembered(tmp_path)
    later.learned = memory.learned
    later.save()
    assert json.loads(file.read_text()) == {"before": "finished 1", **memory.learned}
