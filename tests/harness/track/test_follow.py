"""What a tracker is told: every row once, in order, whatever was told before and however a run ends."""

import fcntl
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import UserError
from harness.run.attempts import AttemptRow, note_attempt
from harness.track.follow import Ending, Follower, Numbers, TrackedRun, telling_alone
from tests.report_arms import LADDER
from tests.report_fixtures import write_experiment


class Heard:
    """A tracker that remembers."""

    where = "here"

    def __init__(self, *, deaf_after: int = 10**9, keeps: bool = True) -> None:
        self.begun: list[str] = []
        self.rows: list[tuple[str, int, Numbers]] = []
        self.ends: dict[str, Ending] = {}
        self.runs: dict[str, TrackedRun] = {}
        self.deaf_after = deaf_after
        self.keeps = keeps

    def begin(self, run: TrackedRun) -> None:
        self.begun.append(run.key)
        self.runs[run.key] = run

    def log(self, run: TrackedRun, step: int, numbers: Numbers) -> None:
        assert run.key in self.begun
        assert run.key not in self.ends
        if len(self.rows) == self.deaf_after:
            raise ConnectionError("nobody listens")
        self.rows.append((run.key, step, numbers))

    def end(self, run: TrackedRun, outcome: Ending) -> None:
        assert run.key in self.begun
        assert run.key not in self.ends
        self.ends[run.key] = outcome

    def flush(self) -> None:
        if not self.keeps:
            raise ConnectionError("nobody listens")

    def close(self) -> None: ...


@pytest.fixture
def results(tmp_path: Path) -> Path:
    outcome = {(LADDER[1].name, 1): "failed", (LADDER[1].name, 0): "diverged"}
    return write_experiment(
        tmp_path / "results", arms=LADDER[:2], n_seeds=2, n_points=5, outcome=outcome
    )


def follow(results: Path, heard: Heard) -> Follower:
    return Follower(results, "split", heard, "heard")


def measured(results: Path) -> dict[str, list[tuple[int, float | None]]]:
    """Of each run: step and validation loss of its rows."""
    of_runs = {}
    for path in sorted(results.glob("runs/*/metrics.jsonl")):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        of_runs[path.parent.name] = [(row["step"], row["val_loss"]) for row in rows]
    return of_runs


def test_every_row_is_told_once_and_every_outcome(results: Path) -> None:
    heard = Heard()
    assert follow(results, heard).look() is False  # one has failed
    told: dict[str, list[tuple[int, float | None]]] = {}
    for key, step, numbers in heard.rows:
        told.setdefault(key, []).append((step, numbers.get("val_loss")))
    assert told == measured(results)
    statuses = sorted(outcome.status for outcome in heard.ends.values())
    assert statuses == ["diverged", "failed", "finished", "finished"]
    failed = next(outcome for outcome in heard.ends.values() if outcome.status == "failed")
    assert failed.reason
    assert not failed.counts
    for run_id, outcome in heard.ends.items():
        path = results / "runs" / run_id / "result.json"
        if path.exists() and outcome.status == "finished":
            assert outcome.numbers["val_loss"] == json.loads(path.read_text())["val_loss"]
    again = Heard()
    follow(results, again).look()
    assert (again.begun, again.rows, again.ends) == ([], [], {})


def test_an_experiment_is_complete_once_every_run_has_its_result(tmp_path: Path) -> None:
    results = write_experiment(tmp_path, arms=LADDER[:2], n_seeds=1, n_points=3)
    assert follow(results, Heard()).look() is True
    assert follow(results, Heard()).look() is True  # with nothing new
    first, _ = sorted((results / "runs").iterdir())
    (first / "result.json").unlink()
    assert follow(results, Heard()).look() is False


def test_a_run_bears_its_arm_its_seed_and_its_configuration(
    results: Path, kept_line: Callable[[str], None]
) -> None:
    heard = Heard()
    follow(results, heard).look()
    labels = {run.label for run in heard.runs.values()}
    assert labels == {
        f"{arm.name}, seed {seed}, 300 steps" for arm in LADDER[:2] for seed in (0, 1)
    }
    for run in heard.runs.values():
        assert run.config["config.model.n_layer"] == 2
        assert run.facts["run_id"] == run.key
        assert run.facts["experiment"] == "split"
    kept_line("\n".join(map(str, heard.runs.values())))


def test_a_run_without_a_seed_bears_its_number(results: Path) -> None:
    path = results / "experiments" / "split" / "experiment.json"
    plan = json.loads(path.read_text())
    runs = [{**run, "seed": None, "replicate": 7} for run in plan["runs"]]
    path.write_text(json.dumps({**plan, "runs": runs}))
    heard = Heard()
    follow(results, heard).look()
    assert {run.label for run in heard.runs.values()} == {
        f"{arm.name}, run 7, 300 steps" for arm in LADDER[:2]
    }


def test_a_line_is_told_when_it_is_whole(results: Path) -> None:
    run = next(path for path in results.glob("runs/*") if not (path / "result.json").exists())
    (run / "attempts.jsonl").unlink()
    note_attempt(run, AttemptRow(attempt=1, started="2026-01-05T08:00:00"))
    metrics = run / "metrics.jsonl"
    metrics.write_text(
        '{"kind": "train", "step": 0, "train_loss": 5.5, "warm": true}\n{"kind": "val", "st'
    )
    heard = Heard()
    follower = follow(results, heard)
    follower.look()
    assert [row for row in heard.rows if row[0] == run.name] == [(run.name, 0, {"train_loss": 5.5})]
    with metrics.open("a") as file:
        file.write(
            'ep": 5, "val_loss": 4.0, "train_time_s": 1.5, "step_times_ms": [10, null, 20]}\n'
        )
        file.write('{"kind": "own", "step": null, "name": "accuracy", "value": 0.5}\n')
        file.write('{"kind": "gpu", "gpu": "0", "power_w": 400.0}\nno row\n')
        file.write('{"kind": "val", "step": 10, "val_loss": null, "train_time_s": 3.0}\n')
    follower.look()
    assert [row[1:] for row in heard.rows if row[0] == run.name][1:] == [
        (5, {"val_loss": 4.0, "train_time_s": 1.5, "step_ms": 15.0}),
        (5, {"accuracy": 0.5}),
        (10, {"train_time_s": 3.0}),
    ]
    assert run.name not in heard.ends


def test_another_attempt_is_another_run_of_the_tracker(results: Path) -> None:
    run = next(path for path in results.glob("runs/*") if not (path / "result.json").exists())
    (run / "attempts.jsonl").unlink()
    note_attempt(run, AttemptRow(attempt=1, started="2026-01-05T08:00:00"))
    (run / "metrics.jsonl").write_text('{"kind": "train", "step": 0, "train_loss": 5.5}\n')
    heard = Heard()
    follow(results, heard).look()
    note_attempt(run, AttemptRow(attempt=2, started="2026-01-05T09:00:00"))  # killed meanwhile
    (run / "metrics.jsonl").write_text('{"kind": "train", "step": 0, "train_loss": 5.4}\n')
    later = Heard()
    follow(results, later).look()
    assert later.ends[run.name].status == "interrupted"
    assert later.rows == [(f"{run.name}-2", 0, {"train_loss": 5.4})]
    assert later.runs[f"{run.name}-2"].label.endswith(", attempt 2")


@pytest.mark.parametrize("n", [0, 7])
def test_what_a_tracker_did_not_hear_is_told_the_next_time(results: Path, n: int) -> None:
    first, second = Heard(deaf_after=n), Heard()
    with pytest.raises(ConnectionError):
        follow(results, first).look()
    follow(results, second).look()
    whole = Heard()
    (results / "experiments" / "split" / "tracked-heard.json").unlink()
    follow(results, whole).look()
    assert first.rows + second.rows == whole.rows
    assert first.ends | second.ends == whole.ends


def test_what_a_tracker_could_not_send_is_told_again_and_not_lost(results: Path) -> None:
    with pytest.raises(ConnectionError):
        follow(results, Heard(keeps=False)).look()
    again = Heard()
    follow(results, again).look()
    assert len(again.rows) == sum(map(len, measured(results).values()))


def test_one_process_at_a_time_tells_a_tracker(results: Path) -> None:
    folder = results / "experiments" / "split"
    log = folder / "tracked-heard.log"
    with telling_alone(folder, "heard"), log.open() as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with log.open() as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_an_experiment_that_is_not_planned_yet_is_waited_for(tmp_path: Path) -> None:
    assert follow(tmp_path, Heard()).look() is False


def test_a_memory_that_cannot_be_read_is_none(results: Path) -> None:
    memory = results / "experiments" / "split" / "tracked-heard.json"
    memory.write_text('{"a": 3, "b": {"attempt": "x"}, "c": {"unknown": 1}}')
    heard = Heard()
    follow(results, heard).look()
    assert sum(map(len, measured(results).values())) == len(heard.rows)


def test_a_plan_that_cannot_be_read_says_what_to_do(results: Path) -> None:
    folder = results / "experiments" / "split"
    (folder / "experiment.json").write_text("{")
    with pytest.raises(UserError) as refused:
        follow(results, Heard()).look()
    said = str(refused.value)
    assert said.startswith(f"{folder}: ") and said.endswith(": run the experiment again")


def test_a_run_that_has_not_begun_or_lost_its_rows_is_passed_over(results: Path) -> None:
    first, second, *others = sorted((results / "runs").iterdir())
    (first / "attempts.jsonl").unlink()
    (second / "metrics.jsonl").unlink()
    heard = Heard()
    assert follow(results, heard).look() is False
    whole = measured(results)
    assert {run.facts["run_id"] for run in heard.runs.values()} == {
        p.name for p in (second, *others)
    }
    assert len(heard.rows) == sum(len(whole[path.name]) for path in others)
