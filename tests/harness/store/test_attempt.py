"""What an attempt writes as it goes, and what it leaves alone because it is another's."""

import json
import math
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.run.metrics import Validation
from harness.run.read import read_lines
from harness.run.spec import Outcome
from harness.store import attempt
from harness.store.attempt import claim
from harness.store.claims import DEAD_AFTER_S, LONGEST_LIMIT_S, owner_of
from harness.store.store import Store
from tests.one_run import DONE, SPEC, claimed, finish
from tests.planted_secrets import PLANTED, leaks


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.create(tmp_path / "results")


def of_another(owner: Path, **changes: object) -> None:
    owner.write_text(json.dumps({**json.loads(owner.read_text()), **changes}))


@pytest.mark.parametrize(
    ("trainer", "printed"),
    [
        (
            None,
            [
                "step:0/10 val_loss:5.0000 train_time:0ms",
                "step:10/10 val_loss:1.5000 train_time:2500ms",
            ],
        ),
        ({"command": "python train.py"}, []),
    ],
)
def test_a_validation_is_a_line_of_the_log_unless_a_script_has_printed_it(
    store: Store, trainer: dict[str, str] | None, printed: list[str]
) -> None:
    config = SPEC.config if trainer is None else {**SPEC.config, "trainer": trainer}
    out = claim(store, replace(SPEC, config=config))
    assert out is not None
    out.describe({"host": "here"})
    out.metric(Validation(step=0, val_loss=5.0, train_time_s=None))
    out.metric(Validation(step=10, val_loss=1.5, train_time_s=2.5))
    assert out.finish(DONE)
    lines = (out.run / "log.txt").read_text().splitlines()
    assert [line for line in lines if line.startswith("step:")] == printed


def test_the_log_of_a_dead_attempt_is_kept_without_secrets(store: Store) -> None:
    """A process that is killed has no time to look through what it wrote."""
    first = claimed(store)
    first.log_file.write(f"{PLANTED['hf']}\nstep one\n")
    first.log_file.flush()
    of_another(first.folder / "owner.json", process_start="1")
    second = claimed(store)
    kept = (second.run / "attempts" / "1" / "log.txt").read_text()
    assert kept.endswith("step one\n") and leaks(kept) == []
    ends = [row for row in read_lines(second.run / "attempts.jsonl") if "ended" in row]
    assert [(row["attempt"], row["status"]) for row in ends] == [(1, "interrupted")]
    second.release()


def test_signs_of_life_come_several_times_in_the_silence_that_is_allowed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    class Heard(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or math.inf)
            return super().wait(timeout)

    heard = SimpleNamespace(Event=Heard, Lock=threading.Lock, Thread=threading.Thread)
    monkeypatch.setattr(attempt, "threading", heard)
    out = claimed(store)
    while not waits:
        time.sleep(0.001)
    out.release()
    assert 0 < max(waits) < DEAD_AFTER_S / 3


def test_only_its_own_claim_is_given_back(store: Store) -> None:
    out = claimed(store)
    owner = out.folder / "owner.json"
    of_another(owner, mark="another's")
    out.release()
    assert json.loads(owner.read_text())["mark"] == "another's"
    mine = claim(store, replace(SPEC, seed=SPEC.seed + 1))
    assert mine is not None
    mine.release()
    assert not (mine.folder / "owner.json").exists()


def test_no_result_is_made_beside_the_curve_of_another(store: Store) -> None:
    out = claimed(store)
    out.describe({"host": "here"})
    out.metric(Validation(step=10, val_loss=1.5, train_time_s=1.0))
    beside = out.run / "beside"
    beside.write_bytes((out.run / "metrics.jsonl").read_bytes())
    os.replace(beside, out.run / "metrics.jsonl")
    assert not out.finish(DONE)
    assert not (out.run / "result.json").exists()


@pytest.mark.parametrize(
    ("said", "silence_s"),
    [
        (None, DEAD_AFTER_S),
        (0, DEAD_AFTER_S),
        (7.5, 7.5),
        (LONGEST_LIMIT_S, LONGEST_LIMIT_S),
        (LONGEST_LIMIT_S + 1, DEAD_AFTER_S),
    ],
)
def test_an_owner_may_be_silent_as_long_as_it_says_within_a_day(
    store: Store, said: float | None, silence_s: float
) -> None:
    out = claimed(store)
    owner = out.folder / "owner.json"
    of_another(owner, machine="elsewhere", dead_after_s=said)
    last_sign = owner.stat().st_mtime
    assert owner_of(out.folder, last_sign + silence_s - 0.1) is not None
    assert owner_of(out.folder, last_sign + silence_s + 0.1) is None
    assert (DEAD_AFTER_S, LONGEST_LIMIT_S) == (120.0, 86400.0)


def test_a_result_that_another_wrote_first_stands_and_a_lost_curve_gives_none(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def first(*_: object, **__: object) -> None:
        raise FileExistsError

    out = claimed(store)
    out.describe({"host": "here"})
    out.metric(Validation(step=10, val_loss=1.5, train_time_s=1.0))
    monkeypatch.setattr(attempt, "write_new", first)
    assert not out.finish(DONE)
    assert [row for row in read_lines(out.run / "attempts.jsonl") if "status" in row] == []
    monkeypatch.undo()
    again = claimed(store)
    again.describe({"host": "here"})
    os.unlink(again.run / "metrics.jsonl")
    assert not again.finish(DONE)


def test_what_an_attempt_began_goes_and_of_several_the_last_one_stays_known(store: Store) -> None:
    claimed(store).finish(Outcome(status="failed"))
    out = claimed(store)
    (out.folder / "of a rank").mkdir()
    (out.folder / "rank1.json").write_text("{}")
    (out.run / ".half").write_text("cut by a kill")
    out.release()
    again = claimed(store)
    assert not (again.run / ".half").exists()
    (again.folder / "of a rank").mkdir()
    (again.folder / "rank1.json").write_text("{}")
    finish(again)
    assert os.listdir(again.folder) == []
    assert again.folder.name == "3"


@pytest.mark.parametrize("moved", ["set aside", "taken over"])
def test_a_run_that_goes_to_another_while_it_is_claimed_is_not_ours(
    store: Store, monkeypatch: pytest.MonkeyPatch, moved: str
) -> None:
    take = attempt.take

    def late(run: Path, **how: Any) -> int | None:
        if moved == "set aside":
            raise FileNotFoundError(run)
        n = take(run, **how)
        of_another(run / "attempts" / str(n) / "owner.json", mark="another's")
        return n

    monkeypatch.setattr(attempt, "take", late)
    assert claim(store, SPEC) is None
    assert not (store.directory(SPEC.run_id) / "config.yaml").exists()
