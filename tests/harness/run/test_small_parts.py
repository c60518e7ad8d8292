"""The small parts of what is read and written: the order of a configuration, versions, halvings, where time went, in words."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.run.attempts import AttemptRow, note_attempt, read_attempts
from harness.run.disturbed import Disturbance, disturbances_of, disturbed_words, stood_still
from harness.run.foreign import ClockHint, TrainerLimits
from harness.run.halving import Halving, is_part
from harness.run.measured import ForeignMarks, ImportMarks, OwnMarks
from harness.run.metrics import HeldoutLoss, OwnValue, TrainingLoss, Validation
from harness.run.plural import plural
from harness.run.readings import OwnMetric, Readings
from harness.run.results import finite, where_time_went
from harness.run.spec import Branch, PlannedRun, RunSpec, is_exclusive, trunks_of
from harness.run.stream import parts_of
from harness.run.versions import NewerError, check_version, version_of
from tests.one_run import SPEC


def test_a_configuration_begins_with_what_is_asked_and_ends_in_words() -> None:
    lines = SPEC.to_yaml().splitlines()
    keys = [line.partition(":")[0] for line in lines if line[0] not in " -"]
    assert keys == [*SPEC.to_mapping()]
    assert keys[:4] == ["schema", "config", "seed", "replicate"] and keys[-1] == "substituted"


def test_what_is_asked_of_a_run_names_only_what_it_has() -> None:
    asked = {
        **{"config": {"model": {"n_layer": 2}}, "seed": 3, "replicate": 0, "budget": 10},
        **{"role": "loss", "world_size": 1, "device": "cpu"},
        "data": {"name": "stdlib", "fingerprint": "f" * 64, "heldout": None},
    }
    assert SPEC.asked() == asked
    branch = Branch(at=4, config={"a": 1})
    late = replace(SPEC, branch=branch, runs_in={"python": "/a"}, heldout_fingerprint="e")
    data = {**asked["data"], "heldout": "e"}
    more = {"runs_in": {"python": "/a"}, "branch": {"at": 4, "config": {"a": 1}}}
    assert late.asked() == {**asked, "data": data, **more}
    assert replace(SPEC, until=4).asked() == {**asked, "until": 4}
    for spec in (SPEC, late, replace(SPEC, until=4, role="timing", replicate=2)):
        assert RunSpec.from_mapping(spec.to_mapping()) == spec
        assert spec.at_seed(7) == replace(spec, seed=7)
        assert spec.at_seed(7).run_id == replace(spec, seed=7).run_id


def test_trunks_are_named_once_in_the_order_of_their_runs() -> None:
    config = {"schedule": {"steps": 12}}
    runs = []
    for seed, at in ((2, 4), (1, 4), (2, 4), (1, None)):
        branch = Branch(at=at, config=config) if at else None
        spec = replace(SPEC, seed=seed, branch=branch)
        runs.append(PlannedRun(arm="a", block=seed, place=0, spec=spec))
    assert [(t.arm, t.block, t.spec) for t in trunks_of(runs)] == [
        ("trunk", 2, runs[0].spec.trunk),
        ("trunk", 1, runs[1].spec.trunk),
    ]


def test_a_script_of_which_nothing_is_said_has_an_hour_of_silence_and_no_second_try() -> None:
    limits = {"wall_s": None, "silence_s": 3600.0, "retries": 0, "output_mib": 1024.0}
    assert vars(TrainerLimits()) == vars(TrainerLimits.from_mapping({})) == limits
    hint = ClockHint.from_mapping({"line": 3, "text": "x"})
    assert (hint.doubt, hint.compared) == (False, False)
    assert Readings() == Readings.from_mapping({}) and not Readings().replaces_lines


@pytest.mark.parametrize(
    ("metrics", "patterns", "replaces", "own"),
    [
        (("bpb",), {}, False, ["bpb"]),
        (("bpb", "val_loss"), {}, True, ["bpb"]),
        ((), {"step_pattern": "a"}, True, []),
        ((), {"time_pattern": "a"}, True, []),
        ((), {"stop_step": 3}, False, []),
    ],
)
def test_patterns_of_the_loss_or_the_clock_stand_for_the_benchmarks_lines(
    metrics: Any, patterns: Any, replaces: bool, own: list[str]
) -> None:
    named = tuple(OwnMetric(name=name) for name in metrics)
    readings = Readings(metrics=named, **patterns)
    assert readings.replaces_lines is replaces
    assert [metric.name for metric in readings.own] == own
    assert Readings.from_mapping(readings.to_mapping()) == readings
    assert not OwnMetric(name="a").is_higher_better
    assert OwnMetric(name="a", better="higher").is_higher_better


def test_a_result_says_besides_only_what_its_kind_of_run_has() -> None:
    foreign = {"budget": 3, "environment_effect": None, "self_reported": True}
    assert ForeignMarks(budget=3).to_json() == foreign
    stopped = ForeignMarks(budget=3, own={"bpb": 0.5}, stopped_at=2).to_json()
    assert stopped == {**foreign, "own": {"bpb": 0.5}, "stopped_at": 2}
    digests = {"code": None, "program": "p", "recipe": "r", "seed_of_log": 7}
    imported = ImportMarks(budget=3, log="a.txt", **digests).to_json()
    log = {"budget": 3, "log": "a.txt", **digests}
    assert imported == {**log, "imported": True, "self_reported": True}
    assert OwnMarks(gpu=None).to_json() == {"gpu": None, "environment_effect": None}


def test_a_row_of_a_curve_says_what_is_known() -> None:
    bare = Validation(step=3, val_loss=4.5, train_time_s=1.5)
    row = {"kind": "val", "step": 3, "val_loss": 4.5, "train_time_s": 1.5}
    for known in ({}, {"tokens": 0}, {"step_times_ms": []}, {"tokens": 7, "step_times_ms": [2.5]}):
        point = replace(bare, **known)
        assert point.to_json() == {**row, **known}
        assert Validation.from_json(point.to_json()) == point
    own = {"step": None, "name": "bpb", "value": 0.5, "elapsed_s": 2.0}
    rows = {
        TrainingLoss(step=3, train_loss=4.5): {"kind": "train", "step": 3, "train_loss": 4.5},
        HeldoutLoss(step=3, heldout_loss=4.5): {"kind": "heldout", "step": 3, "heldout_loss": 4.5},
        OwnValue(**own): {"kind": "own", **own},
    }
    assert [row.to_json() for row in rows] == [*rows.values()]


def test_an_attempt_is_a_row_where_it_begins_and_a_row_where_it_ends(tmp_path: Path) -> None:
    begun = {"attempt": 1, "started": "1", "host": "a", "node": "n", "pid": 7, "token": "x"}
    ended = {"attempt": 1, "ended": "2", "status": "oom", "reason": None}
    peaks = {"peak_allocated_mib": 1.5, "peak_rss_mib": 2.5}
    elsewhere = {**begun, "node": None}  # a cluster alone calls it anything
    shown = [begun, {k: v for k, v in begun.items() if k != "node"}, ended, {**ended, **peaks}]
    rows = [AttemptRow(**row) for row in (begun, elsewhere, ended, {**ended, **peaks})]
    assert [row.to_json() for row in rows] == shown
    assert [row.is_end for row in rows] == [False, False, True, True]
    (tmp_path / "runs/r").mkdir(parents=True)
    for row in rows:
        note_attempt(tmp_path / "runs/r", row)
    with (tmp_path / "runs/r/attempts.jsonl").open("a") as file:
        file.write('{"attempt": "one"}\n["attempt"]\n{"attempt": 2')
    assert read_attempts(tmp_path / "runs/r") == rows
    assert AttemptRow.from_json({}) == AttemptRow(attempt=None)


def test_a_run_that_goes_on_from_a_trunk_makes_the_rest_of_its_steps() -> None:
    config = {"schedule": {"steps": 12}}
    late = replace(SPEC, branch=Branch(at=4, config=config))
    trunk = late.trunk
    assert (SPEC.own_steps, SPEC.trunk, late.own_steps) == (10, None, 6)
    assert trunk is not None and (trunk.own_steps, trunk.trunk) == (4, None)
    assert (trunk.config, trunk.budget, trunk.until) == (config, 12, 4)
    assert trunk.toggles == ("a trunk: the baseline before update 4",)


@pytest.mark.parametrize(
    ("role", "timing", "alone"),
    [("timing", {}, True), ("loss", {"exclusive_node": True}, True), ("loss", {}, False)],
)
def test_a_run_is_alone_that_times_or_asks_for_it(role: Any, timing: Any, alone: bool) -> None:
    assert is_exclusive(replace(SPEC, role=role, config={"timing": timing})) is alone
    assert is_exclusive(replace(SPEC, role=role)) is (role == "timing")


@pytest.mark.parametrize("schema", [True, 0, -1, "1", 1.0, None])
def test_a_version_is_a_whole_number_from_one_on(schema: Any) -> None:
    with pytest.raises(ValueError, match=f"^schema {schema!r} is no version$"):
        version_of({"schema": schema})
    assert [version_of(content) for content in ({}, [], {"schema": 1}, {"schema": 7})] == [
        *(1, 1, 1, 7)
    ]


def test_what_a_later_release_wrote_is_refused_by_its_name() -> None:
    assert check_version({"schema": 2}, 2, "x.json") == 2
    with pytest.raises(NewerError) as refused:
        check_version({"schema": 3}, 2, "x.json")
    assert str(refused.value) == (
        "x.json: format 3 of a later release, this one reads up to 2: read it with that release"
    )


def test_a_halving_chooses_as_many_as_go_on_and_one_in_the_end() -> None:
    first = Halving(one_in=3, budgets=(10, 20, 40), n_points=20)
    rungs = [replace(first, rung=rung) for rung in range(3)]
    assert [first.n_at(rung) for rung in range(4)] == [20, 6, 2, 1]
    assert [rung.n_chosen for rung in rungs] == [6, 2, 1]
    assert [rung.words for rung in rungs] == ["rung 1 of 3", "rung 2 of 3", "rung 3 of 3"]
    assert [first.name_at("x", rung) for rung in range(3)] == ["x.rung1", "x.rung2", "x"]
    assert [is_part("x", rung) for rung in rungs] == [True, True, False]
    assert is_part("x.grid", None) and not is_part("x", None)
    assert [Halving.from_mapping(rung.to_mapping()).rung for rung in rungs] == [0, 1, 2]


def test_a_candidate_is_judged_at_its_part_of_the_error_rate() -> None:
    places = [(1, 0), (2, 0), (10, 0), (10, 1), (10, 3)]
    assert [parts_of(*place) for place in places] == [3, 8, 134, 67, 34]


def test_time_that_no_phase_accounts_for_is_the_rest_and_waits_count_beside_it() -> None:
    walls = [
        {"total_s": 10.0, "train_s": 4.0, "validate_s": 1.0, "compile_s": 2.0, "idle_s": 5.0},
        {"total_s": 5.0, "train_s": 3.0, "import_s": 0.5},
    ]
    seconds, useful = where_time_went(walls)
    assert seconds == {
        **{"import": 0.5, "data": 0.0, "build": 0.0, "compile": 2.0, "warm-up": 0.0},
        **{"training": 7.0, "validation": 1.0, "rest": 4.5, "idle": 5.0},
    }
    assert useful == 8.0 / 20.0
    assert where_time_went([])[1] == 0.0
    assert where_time_went([{"total_s": 1.0, "train_s": 2.0}])[0]["rest"] == 0.0


def test_what_is_no_number_of_json_is_none_however_deep_it_stands() -> None:
    value = {"a": [1, float("nan"), ("x", float("inf"))], "b": {"c": -float("inf"), "d": 1.5}}
    assert finite(value) == {"a": [1, None, ["x", None]], "b": {"c": None, "d": 1.5}}


def test_what_disturbed_a_time_is_said_in_a_line() -> None:
    still, load = stood_still(12.4), Disturbance(kind="load", words="process 7 beside it")
    assert still == Disturbance(kind="still", words="it stood still for 12 s")
    said = "its time is disturbed: it stood still for 12 s; process 7 beside it"
    assert disturbed_words((still, load)) == said and disturbed_words(()) is None
    rows = [vars(still), {"kind": "loud", "words": "x"}, "no row", vars(load), {"kind": "load"}]
    assert disturbances_of(rows) == (still, load) and disturbances_of({}) == ()


def test_one_thing_is_said_otherwise_than_several() -> None:
    assert [plural(n, "run") for n in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]
