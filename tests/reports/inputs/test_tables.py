"""The table of runs says what the files of the runs say, value by value, and what a script of somebody else's measures."""

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from harness.provenance.source import zipped
from harness.run.attempts import AttemptRow, note_attempt
from harness.run.code import code_digest
from harness.run.plan import Plan, PlanArm, PlanCorpus, PlanRun, Target
from harness.run.results import Result
from harness.store.errors import ResultsError
from reports.inputs.columns import Column, flat_row, json_row, terminal_names
from reports.inputs.experiment import Experiment
from reports.inputs.files import names_below, write_page
from reports.inputs.growth import chance_of_growth, words_of_growth
from reports.inputs.load import (
    load,
    name_stale_files,
    plugin_sources,
    source_files,
    unsound_words,
)
from reports.inputs.memory_words import (
    at_seeds,
    changed_words,
    named_in,
    other_words,
    stale_words,
)
from reports.inputs.own_columns import own_columns
from reports.inputs.recorded import (
    RecordedRun,
    existing_run,
    first_crossing,
    last_attempt,
    session_of,
)
from reports.inputs.run_columns import RUN_KEYS
from reports.inputs.step_times import LEVELS, StepTimes, of_steps, percentiles, shares_below
from reports.page.tables import run_columns
from tests.report_arms import LADDER
from tests.report_fixtures import N_STEPS, write_experiment

OUTCOME = {
    ("r07", 1): "diverged",
    ("untied_head", 0): "failed",
    ("untied_head", 1): "pending",
    ("untied_head", 2): "oom",
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tables")
    how: dict[str, Any] = {"n_seeds": 3, "n_points": 5, "n_nodes": 2, "target": 2.0}
    return write_experiment(root, arms=LADDER[:3], outcome=OUTCOME, stale=[("r07", 2)], **how)


@pytest.fixture(scope="module")
def made(results: Path) -> Experiment:
    return load("split", results=results)


def files_of(run: Path) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]], Any, Any]:
    """(result, environment, curve, config, last attempt) of a run's folder, as they lie there."""

    def read(name: str) -> dict[str, Any]:
        path = run / name
        return json.loads(path.read_text()) if path.is_file() else {}

    lines = (run / "metrics.jsonl").read_text().splitlines() if run.is_dir() else []
    config = yaml.safe_load((run / "config.yaml").read_text()) if run.is_dir() else {}
    attempts = (run / "attempts.jsonl").read_text().splitlines() if run.is_dir() else ["{}"]
    points = [json.loads(line) for line in lines]
    return read("result.json"), read("environment.json"), points, config, json.loads(attempts[-1])


def same(cell: Any, value: Any) -> bool:
    is_none = value is None or (isinstance(value, float) and math.isnan(value))
    return bool(pd.isna(cell)) if is_none else cell == value


SAME_AS_IN_RESULT = (
    *("val_loss", "train_time_s", "step_ms", "step_ms_median", "step_ms_p95", "steps", "tokens"),
    *("tokens_per_s", "mfu", "peak_allocated_mib", "peak_reserved_mib"),
)


def test_every_cell_is_what_the_files_of_its_run_say(made: Experiment, results: Path) -> None:
    plan = json.loads((results / "experiments" / "split" / "experiment.json").read_text())
    planned = {run["run_id"]: run for run in plan["runs"]}
    for run in plan["runs"]:
        planned |= dict.fromkeys(run["older"], run)
    assert len(made.runs) == len(plan["runs"]) == 9
    for row in made.runs.to_dict("records"):
        run = planned[row["run_id"]]
        result, environment, points, config, attempt = files_of(results / "runs" / row["run_id"])
        for key in ("arm", "seed", "replicate", "budget", "role", "block"):
            assert same(row[key], run[key]), key
        for key in SAME_AS_IN_RESULT:
            assert same(row[key], result.get(key)), (row["run_id"], key)
        assert row["status"] == (result.get("status") or attempt.get("status") or "pending")
        assert same(row["reason"], result.get("reason") or attempt.get("reason"))
        assert row["stale"] == (row["run_id"] != run["run_id"])
        assert row["stale_files"] == ("optim/muon.py" if row["stale"] else "")
        assert same(row["node"], environment.get("host"))
        assert same(row["gpu"], environment.get("cpu"))
        assert same(row["torch"], environment.get("torch"))
        assert same(row["device"], config.get("device"))
        assert same(row["fingerprint"], config.get("data", {}).get("fingerprint"))
        assert same(row["metrics_digest"], result.get("digests", {}).get("metrics.jsonl"))
        assert same(row["first_crossing_s"], crossing(points, 2.0) if result else None)
        assert row["censored"] == (bool(result) and crossing(points, 2.0) is None)
        own = made.curves[made.curves["run_id"] == row["run_id"]]
        assert own["step"].tolist() == [point["step"] for point in points]
        for key in ("val_loss", "train_time_s"):
            assert all(same(a, b[key]) for a, b in zip(own[key], points, strict=True))
        assert set(own["arm"]) <= {run["arm"]} and set(own["budget"]) <= {run["budget"]}
        times = [t for point in points for t in point.get("step_times_ms", ())]
        if result:
            kept = made.step_times[row["run_id"]]
            assert (kept.n, kept.single) == (len(times), True) == (N_STEPS, True)
            expected = np.percentile(times, LEVELS)
            assert kept.quantiles == pytest.approx(expected.tolist(), abs=6e-4)
        else:
            assert row["run_id"] not in made.step_times
    assert set(made.results) == {p.parent.name for p in results.glob("runs/*/result.json")}


def test_an_experiment_says_in_a_line_what_it_holds(made: Experiment) -> None:
    counts = f"3 arms, 9 runs, 5 finished, {len(made.curves)} validation points"
    assert repr(made) == f"<Experiment 'split': {counts}>"
    one = replace(made, runs=made.runs[:1], plan=replace(made.plan, arms=made.plan.arms[:1]))
    assert repr(one).startswith("<Experiment 'split': 1 arm, 1 run, 1 finished, ")


def test_a_run_that_does_not_count_is_told_with_what_is_wrong_of_its_folder() -> None:
    left_out = "a, seed 0: run r is left out: "
    torn = run_with(reason="results/runs/r/result.json is torn: run again")
    assert unsound_words(torn) == f"{left_out}result.json is torn: run again"
    assert unsound_words(run_with(reason="no room")) == f"{left_out}no room"


def crossing(points: list[dict[str, Any]], target: float) -> float | None:
    """By hand: on the straight line through the last point above the target and the first below."""
    before = None
    for point in points:
        if point["val_loss"] is not None and point["val_loss"] <= target:
            if before is None:
                return float(point["train_time_s"])
            share = (before["val_loss"] - target) / (before["val_loss"] - point["val_loss"])
            begun, seconds = before["train_time_s"], point["train_time_s"]
            return float(begun + (seconds - begun) * share)
        before = point
    return None


@pytest.mark.parametrize(
    ("losses", "seconds"),
    [
        ([3.0, 2.5, 2.2], None),
        ([1.0, 0.5, 0.2], 0.0),
        ([3.0, 1.0, 0.5], 5.0),
        ([3.0, 2.0, 1.0], 10.0),
        ([math.nan, 2.0, 1.0], 10.0),
        ([3.0, math.nan, 1.0], 20.0),
        ([4.0, 3.0, 1.0], 15.0),
    ],
)
def test_the_first_crossing_is_on_the_line_between_two_points(
    losses: list[float], seconds: float | None
) -> None:
    assert first_crossing([0.0, 10.0, 20.0], losses, 2.0) == seconds


# ---------------------------------------------------------------- single facts of a run


def run_with(**facts: Any) -> RecordedRun:
    planned = PlanRun(
        arm="a", seed=0, replicate=0, budget=10, role="loss", block=0, run_id="r",
        **facts.pop("planned", {}),
    )  # fmt: skip
    usual: dict[str, Any] = {
        **{"plan": Plan(name="x"), "planned": planned, "run_id": "r", "stale": False},
        **{"status": "finished", "reason": None, "result": Result(status="finished")},
        **{"config": {}, "environment": {}, "validations": ()},
    }
    return RecordedRun(**{**usual, **facts})


def test_a_run_knows_its_cards_where_its_environment_names_them() -> None:
    card = {"name": "H100", "memory_mib": 81559, "driver_version": 575.5}
    one = run_with(
        environment={"gpus": [card, "another"], "cuda": "12.4", "lock": {"torch": "2.9"}}
    )
    assert (one.gpu, one.gpu_memory_gb, one.driver) == ("H100", 86, "575.5")
    assert (one.cuda, one.torch, one.n_gpus) == ("12.4", "2.9", None)
    named = run_with(environment={"gpus": ["A100"], "cpu": "a processor"})
    assert (named.gpu, named.gpu_memory_gb, named.driver) == ("A100", None, None)
    none = run_with(environment={"gpus": [], "cpu": "a processor"})
    assert (none.gpu, none.driver, none.cuda, none.torch) == ("a processor", None, None, None)
    on_cuda = run_with(config={"device": "cuda", "world_size": 4, "data": {"fingerprint": "f"}})
    assert (on_cuda.n_gpus, on_cuda.device, on_cuda.fingerprint) == (4, "cuda", "f")
    assert run_with(config={"device": "cpu", "world_size": 4}).n_gpus is None
    of_log = run_with(planned={"imported": True}, environment={"gpus": ["H100"] * 8})
    assert (of_log.n_gpus, of_log.imported, of_log.self_reported) == (8, True, False)
    assert run_with(planned={"imported": True}).n_gpus is None
    assert run_with(result=Result(status="finished", self_reported=True)).self_reported


def test_bits_are_of_the_bytes_that_the_corpus_knows_and_a_run_without_a_result_has_none() -> None:
    plan = Plan(name="x", corpus=PlanCorpus(bytes_per_token=4.0), target=Target(val_loss=3.0))
    run = run_with(plan=plan, result=Result(status="finished", val_loss=2 * math.log(2)))
    assert run.bits_per_byte == pytest.approx(0.5)
    assert math.isnan(run_with(result=Result(status="finished", val_loss=1.0)).bits_per_byte)
    nothing = run_with(plan=plan, result=None)
    assert (nothing.censored, nothing.crossing, nothing.imported) == (False, None, False)
    assert math.isnan(nothing.first_crossing_s)
    assert run.censored and not run_with().censored


def test_the_session_of_a_script_is_the_call_that_made_the_attempt_of_its_result(
    tmp_path: Path,
) -> None:
    for n, token in ((1, "first"), (2, ""), (3, "third")):
        begun = AttemptRow(attempt=n, started="2026-01-01", host="h", pid=7, token=token)
        note_attempt(tmp_path, begun)
        note_attempt(tmp_path, AttemptRow(attempt=n, ended="2026-01-01", status="failed"))
    foreign = run_with(planned={"self_reported": True}).planned

    def session(attempt: int, planned: PlanRun = foreign) -> str | None:
        return session_of(tmp_path, planned, Result(status="finished", attempt=attempt))

    assert [session(n) for n in (1, 2, 3, 4)] == ["first", "h 7", "third", None]
    assert session(1, run_with().planned) is None
    assert session(1, replace(foreign, imported=True)) is None
    assert session_of(tmp_path, foreign, None) is None
    assert last_attempt(tmp_path) == ("failed", None)
    note_attempt(tmp_path, AttemptRow(attempt=4, started="2026-01-01"))
    assert last_attempt(tmp_path) == ("running", None)
    assert last_attempt(tmp_path / "nowhere") == ("pending", None)


def test_the_run_that_stands_for_a_planned_one_is_its_own_else_the_newest_older_one(
    tmp_path: Path,
) -> None:
    planned = replace(run_with().planned, run_id="now", older=("old", "older", "gone"))
    assert existing_run(tmp_path, planned) == ("now", False)
    for name in ("older", "old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").touch()
    os.utime(tmp_path / "older" / "result.json", (2e9, 2e9))
    assert existing_run(tmp_path, planned) == ("older", True)
    (tmp_path / "now").mkdir()
    (tmp_path / "now" / "attempts.jsonl").touch()
    assert existing_run(tmp_path, planned) == ("now", False)


# ---------------------------------------------------------------- code that a run names


def test_the_source_of_a_plug_in_is_its_kept_code_where_that_is_what_was_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, other = "x = 1\n", "y = 2\n"
    files = {"plugin/a.py": text.encode(), "plugin/b.py": other.encode()}
    (tmp_path / "d1.zip").write_bytes(zipped(files))
    (tmp_path / "broken.zip").write_bytes(b"no archive")
    a, b = code_digest(text), code_digest(other)

    def config(digest: str, **named: str) -> dict[str, Any]:
        return {
            "source": {"digest": digest, "files": {f"plugin/{k}.py": v for k, v in named.items()}}
        }

    found = plugin_sources([config("d1", a=a, b="0" * 16)], tmp_path)
    assert found == {f"plugin/a.py {a}": text}
    assert plugin_sources([config("d1", a=a), config("d1", b=b)], tmp_path) == {
        f"plugin/a.py {a}": text,
        f"plugin/b.py {b}": other,
    }
    missing = [
        config("gone", a=a),
        config("broken", a=a),
        config("../d1", a=a),
        config("d1", c=a),
        {},
    ]
    assert plugin_sources(missing, tmp_path) == {}
    (tmp_path / "d3.zip").write_bytes(zipped(files))
    behind = plugin_sources([*missing, config("d3", a=a)], tmp_path)
    assert behind == {f"plugin/a.py {a}": text}
    ours = {"source": {"digest": "d1", "files": {"model/gpt.py": a}}}
    assert plugin_sources([ours], tmp_path) == {}
    both, n = config("d1", a=a, b=b), len(text) + len(other)
    for limit, n_kept in ((n, 2), (n - 1, 0)):  # what is longer is not parsed
        monkeypatch.setattr("reports.inputs.load.CODE_LIMIT", limit)
        assert len(plugin_sources([both, ours], tmp_path)) == n_kept
    monkeypatch.setattr("reports.inputs.load.CODE_LIMIT", len(other))
    (tmp_path / "d2.zip").write_bytes(zipped({"plugin/b.py": other.encode()}))
    assert len(plugin_sources([both, config("d2", b=b)], tmp_path)) == 1, "the next one is"


def test_a_stale_run_names_the_files_that_are_otherwise_now() -> None:
    made_by = {"source": {"files": {"a": "1", "b": "2"}}}
    now = {"source": {"files": {"a": "1", "b": "3", "c": "4"}}}
    configs = {"old": made_by, "new": now}

    def rows(arm: str = "x") -> list[dict[str, Any]]:
        old = {"run_id": "old", "stale": True, "arm": arm, "stale_files": ""}
        return [old, {"run_id": "new", "stale": False, "arm": arm, "stale_files": ""}]

    plan = Plan(name="x", arms=(PlanArm(name="y", source={"a": "9", "b": "2"}),))
    for of, arm, names in (
        (plan, "x", "b, c"),  # by the code of the runs that are not stale
        (replace(plan, source={"a": "1"}), "x", "b"),
        (replace(plan, source={"a": "1"}), "y", "a"),  # the arm's own
    ):
        table = rows(arm)
        name_stale_files(table, configs, of)
        assert [row["stale_files"] for row in table] == [names, ""]
    table = rows()[:1]
    name_stale_files(table, configs, plan)
    assert table[0]["stale_files"] == ""  # nothing is known of the code as it is
    assert source_files(None) == source_files({"source": None}) == {}


# ---------------------------------------------------------------- columns


def test_a_row_of_columns_is_named_as_json_has_it_and_flat_where_a_table_holds_it() -> None:
    columns: tuple[Column[Any], ...] = (
        Column(key="a", meaning="", json_name="A", in_terminal=True),
        Column(key="b", meaning="", json_name="B", value=lambda row: row.b * 2),
        Column(key="c", meaning="", json_name="C", is_nested=True),
        Column(key="d", meaning=""),
    )
    row = SimpleNamespace(a=["x", "y"], b=3, c={"n": 1}, d=4)
    assert json_row(columns, row) == {"A": ["x", "y"], "B": 6, "C": {"n": 1}}
    assert flat_row(columns, row) == {"A": "x y", "B": 6}
    assert terminal_names(columns) == ["A"]


def test_the_table_of_runs_begins_with_what_a_phone_shows() -> None:
    runs = pd.DataFrame({key: [1.0, 2.0] for key in RUN_KEYS}).assign(stale=True, device="cuda")
    assert [column.head for column in run_columns(runs, Plan(name="x"))] == [
        *("seed", "replicate", "budget", "role", "loss", "bits/byte", "held-out loss"),
        *("status", "steps", "step time, ms", "training time, s", "first at the target, s"),
        *("memory, MiB", "MFU", "node", "GPU", "disturbed", "stale", "run"),
    ]


def test_metrics_of_a_script_and_the_step_where_it_is_stopped_are_columns_of_its_runs() -> None:
    metric = SimpleNamespace(name="accuracy", better="higher")
    for stopped in (True, False):
        plan: Any = SimpleNamespace(own_metrics={"accuracy": metric}, is_stopped=stopped)
        columns = own_columns(plan)
        measured = Result(status="finished", own={"accuracy": 0.75}, stopped_at=50)
        values = json_row(columns, run_with(result=measured))
        assert values == {"accuracy": 0.75} | ({"stopped_at": 50} if stopped else {})
        assert math.isnan(json_row(columns, run_with(result=None))["accuracy"])
        assert "of which higher is better" in columns[0].meaning
        assert all(column.is_always_shown and column.head for column in columns)


# ---------------------------------------------------------------- step times, words, files


def test_percentiles_of_many_runs_are_those_of_all_their_steps_together() -> None:
    a, b = np.arange(1.0, 102.0), np.arange(201.0, 302.0)
    both = [of_steps(a.tolist()), of_steps([*b.tolist(), *b.tolist()])]
    assert percentiles(both, (10, 50, 90)) == pytest.approx(  # type: ignore[arg-type]
        np.percentile([*a, *b, *b], (10, 50, 90)).tolist(), abs=2
    )
    below = shares_below(both, np.array([0.5, 51.0, 150.0, 251.0, 400.0]))  # type: ignore[arg-type]
    assert below.tolist() == pytest.approx([0, 1 / 6, 1 / 3, 2 / 3, 1])
    only = of_steps([math.nan, -1.0, 0.0, 4.0, math.inf])
    assert only == StepTimes(n=1, quantiles=(4.0,) * len(LEVELS))
    assert of_steps([math.nan, 0.0]) is None


def test_seeds_and_experiments_are_named_up_to_four() -> None:
    looks: list[Any] = [SimpleNamespace(experiment=name) for name in "bdacbe"]
    assert at_seeds([3]) == "seed 3" and at_seeds([3, 1]) == "seeds 1, 3"
    assert at_seeds([5, 4, 3, 2]) == "seeds 2, 3, 4, 5"
    assert at_seeds(range(6)) == "seeds 0, 1, 2, 3 and 2 more"
    assert named_in(looks[:4]) == "a, b, c, d"
    assert named_in(looks) == "a, b, c, d and 1 more"
    assert stale_words({}) == ""
    stale = stale_words(dict(enumerate("bdacbe")))
    assert stale == (
        "Nothing is confirmed here: results at seeds 0, 1, 2, 3 and 2 more were seen before this "
        "plan was locked (in a, b, c, d)."
    )
    other = "Beside the runs here, {} seen under other code: not counted."
    assert other_words(1) == other.format("1 result of these arms was")
    assert other_words(2) == other.format("2 results of these arms were")


def test_what_was_seen_at_other_seeds_is_told_from_the_first_look_on() -> None:
    def look(name: str, at: str, n_seeds: int) -> Any:
        return SimpleNamespace(experiment=name, at=at, seeds=range(n_seeds))

    looks = [look("b", "2026-02-03T04:05:06", 1), look("a", "2026-01-02T03:04:05", 3)]
    more: list[Any] = [SimpleNamespace(seed=seed) for seed in (7, None, 7)]
    assert changed_words([], []) == ""
    begins = "These changes were seen before at other seeds than are planned now"
    ends = ": intervals are anytime-valid."
    seen = " (a, b; 3 seeds from 2026-01-02T03:04 on)"
    counts = "; what was seen at seeds 0, 7 counts"
    assert changed_words(looks, []) == f"{begins}{seen}{ends}"
    assert changed_words([], more) == f"{begins}{counts}{ends}"
    assert changed_words(looks, more) == f"{begins}{seen}{counts}{ends}"


@pytest.mark.parametrize(
    ("asked", "chance"),
    [
        ([], 0.0),
        (["ab"], 0.05),
        (["ab", "ba", "a"], 0.05),  # nothing was added
        (["a", "ab"], 0.075),
        (["ab", "abcd", "e"], 0.05 * (1 + 1 / 2 + 1 / 5)),
        (["", "ab"], 0.05),
    ],
)
def test_each_page_of_a_family_that_grows_may_mislead_by_what_it_added(
    asked: list[str], chance: float
) -> None:
    assert chance_of_growth(asked) == pytest.approx(chance)
    said = (
        " Of their pages as each was first shown, when fewer had been asked, one or more mislead "
        f"with a chance of up to {chance:.0%}: confirm what pleased."
    )
    assert words_of_growth(asked) == (said if chance > 0.06 else "")


def test_a_page_is_written_beside_other_things_and_through_no_link_of_the_results_folder(
    tmp_path: Path,
) -> None:
    results = tmp_path / "results"
    results.mkdir()
    out = results / "reports" / "deep" / "page.html"
    assert write_page(out, "é", results=results) == out and out.read_bytes() == "é".encode()
    assert [p.name for p in out.parent.iterdir()] == ["page.html"]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (results / "linked").symlink_to(elsewhere)
    with pytest.raises((OSError, ValueError, ResultsError)):
        write_page(results / "linked" / "page.html", "x", results=results)
    with pytest.raises((OSError, ValueError, ResultsError)):
        write_page(results / "linked" / "deep" / "page.html", "x", results=results)
    assert [*elsewhere.iterdir()] == []
    (tmp_path / "to results").symlink_to(results)
    write_page(tmp_path / "to results" / "page.html", "x", results=results)
    write_page(results / "linked" / "page.html", "x")  # a place of the user's own
    assert (elsewhere / "page.html").read_text() == "x"
    assert names_below(out, results) == 3 and names_below(results / "x", results) == 1
    assert names_below(tmp_path / "x", results) == names_below(out, None) == 1
