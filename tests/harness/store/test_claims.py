"""A run has one owner at a time: alive owners keep it, dead ones lose it, whatever clocks and file systems do."""

import errno
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UserError
from harness.run.attempts import read_attempts
from harness.run.digests import short_digest
from harness.run.metrics import Validation
from harness.run.read import read_config, read_lines
from harness.run.results import read_result
from harness.run.spec import Outcome, RunSpec
from harness.store import claims
from harness.store.attempt import claim
from harness.store.claims import (
    DEAD_AFTER_S,
    LONGEST_LIMIT_S,
    attempt_with,
    dead_after_s,
    owner_of,
    told_by_ranks,
)
from harness.store.clean import KINDS
from harness.store.errors import ResultsError
from harness.store.store import Store
from tests.fake_matrix import DEADLINE_S
from tests.one_run import DONE, SPEC, claimed, finish


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.create(tmp_path / "results")


def may_go(name: str, store: Store) -> list[Path]:
    """What `ablate clean` would remove of a kind."""
    (kind,) = (kind for kind in KINDS if kind.name == name)
    return list(kind.find(store))


def rewrite_owner(store: Store, **changes: Any) -> Path:
    owner = store.directory(SPEC.run_id) / "attempts" / "1" / "owner.json"
    owner.write_text(json.dumps({**json.loads(owner.read_text()), **changes}))
    return owner


def claim_elsewhere(store: Store, *, then: str) -> "subprocess.Popen[bytes]":
    """Another process that claims the run, says so, and then does something."""
    code = (
        f"import sys, time; from pathlib import Path; from tests.one_run import *; "
        f"out = claim(Store(Path({str(store.root)!r})), SPEC); print(out is not None, flush=True); {then}"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stdin=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"True\n"
    return process


def test_the_name_of_a_run_digests_its_three_parts() -> None:
    parts = {
        "intent": SPEC.intent_id,
        "source": SPEC.source_digest,
        "environment": SPEC.environment_digest,
    }
    assert SPEC.run_id == short_digest(parts)


def test_a_specification_is_what_its_file_says_whatever_it_holds(tmp_path: Path) -> None:
    words = (
        "tab\t, line\u2028ends\x85, quote', \u00e9\U0001f600, {curly}: #no comment, " + "long " * 60
    )
    odd = replace(
        SPEC,
        config={"a": {"b": None, "c": [1, 2.5e-9, True, "1e3", "no", words]}},
        toggles=(words,),
    )
    (tmp_path / "config.yaml").write_text(odd.to_yaml(), encoding="utf-8")
    assert RunSpec.from_mapping(read_config(tmp_path)) == odd


def test_a_claimed_run_is_nobody_elses_until_it_is_given_back(store: Store) -> None:
    out = claimed(store)
    assert claim(store, SPEC) is None
    assert store.state(SPEC.run_id).status == "running"
    out.finish(Outcome(status="failed", reason="it broke"))
    assert store.state(SPEC.run_id).status == "failed"
    assert claimed(store).attempt == 2


def test_a_finished_run_is_never_claimed_again_and_leaves_no_claim(store: Store) -> None:
    finish(claimed(store))
    assert claim(store, SPEC) is None
    run = store.directory(SPEC.run_id)
    assert sorted(p.name for p in run.iterdir()) == [
        "attempts.jsonl",
        "config.yaml",
        "environment.json",
        "log.txt",
        "metrics.jsonl",
        "result.json",
    ]


def test_a_run_whose_result_is_gone_is_not_finished(store: Store) -> None:
    out = claim(store, SPEC)
    assert out is not None
    finish(out)
    assert store.state(SPEC.run_id).status == "finished"
    (out.run / "result.json").unlink()
    state = store.state(SPEC.run_id)
    assert (state.status, state.reason) == (
        "interrupted",
        "it had finished, and its result.json is gone or damaged",
    )


def test_a_run_that_was_finished_while_we_looked_is_left_alone(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, rename = claimed(store), os.rename
    out.release()  # as if its owner had died in our eyes

    def late(a: Any, b: Any) -> None:
        monkeypatch.setattr(os, "rename", rename)
        run = store.directory(SPEC.run_id)
        (run / "result.json").write_text("{}")
        rename(a, b)

    monkeypatch.setattr(os, "rename", late)
    assert claim(store, SPEC) is None
    assert (store.directory(SPEC.run_id) / "result.json").read_text() == "{}"
    assert (store.directory(SPEC.run_id) / "config.yaml").exists()


def test_an_alive_process_keeps_its_run_and_a_dead_one_loses_it(store: Store) -> None:
    owner = claim_elsewhere(store, then="sys.stdin.read()")
    assert claim(store, SPEC) is None
    owner.kill()
    owner.communicate()
    out = claimed(store)
    assert out.attempt == 2
    rows = read_lines(store.directory(SPEC.run_id) / "attempts.jsonl")
    assert [r.get("status") for r in rows] == [None, "interrupted", None]
    out.release()


def test_a_process_number_given_again_is_not_the_owner(store: Store) -> None:
    claimed(store)
    rewrite_owner(store, process_start="1")
    assert claimed(store).attempt == 2


def test_what_the_dead_left_is_kept_with_its_attempt(store: Store) -> None:
    out = claimed(store)
    out.metric(Validation(step=0, val_loss=5.0, train_time_s=0.0))
    rewrite_owner(store, process_start="1")
    second = claimed(store)
    run = store.directory(SPEC.run_id)
    assert read_lines(run / "attempts" / "1" / "metrics.jsonl")[0]["val_loss"] == 5.0
    assert (run / "metrics.jsonl").read_bytes() == b""
    second.release()


@pytest.mark.parametrize("shift_s", [0.0, DEAD_AFTER_S / 2])
def test_an_owner_on_another_machine_lives_while_it_shows_signs(
    store: Store, shift_s: float
) -> None:
    claimed(store)
    owner = rewrite_owner(store, machine="elsewhere", pid=1, process_start="1")
    os.utime(owner, (owner.stat().st_mtime - shift_s,) * 2)
    assert claim(store, SPEC) is None
    assert owner_of(owner.parent, owner.stat().st_mtime + DEAD_AFTER_S - 0.01) is not None


def test_an_owner_on_another_machine_is_dead_after_its_silence(store: Store) -> None:
    claimed(store)
    owner = rewrite_owner(store, machine="elsewhere")
    assert owner_of(owner.parent, owner.stat().st_mtime + DEAD_AFTER_S + 0.01) is None
    os.utime(owner, (owner.stat().st_mtime - DEAD_AFTER_S - 5,) * 2)
    assert claimed(store).attempt == 2


@pytest.mark.parametrize("jump_s", [-1e6, 1e6])
def test_a_clock_that_jumps_changes_no_owner(store: Store, jump_s: float) -> None:
    """A claim asks the file system's clock, never this machine's."""
    jumped = Store(store.root, clock=lambda: jump_s)
    claimed(store)
    rewrite_owner(store, machine="elsewhere")
    assert claim(jumped, SPEC) is None


def test_an_owner_thought_dead_does_not_overwrite_its_successor(store: Store) -> None:
    slow = claimed(store)
    slow.describe({"host": "slow"})
    owner = rewrite_owner(store, machine="elsewhere")
    os.utime(owner, (0, 0))
    successor = claimed(store)
    slow.finish(DONE)
    assert read_result(successor.run) is None
    finish(successor)
    result = read_result(successor.run)
    assert result is not None
    assert result.attempt == 2
    assert store.repair(SPEC.run_id)[1] is None


def test_claims_need_no_hard_links_and_no_locks(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise OSError(95, "Operation not supported")

    import fcntl

    for module, name in ((os, "link"), (os, "symlink"), (fcntl, "flock"), (fcntl, "lockf")):
        monkeypatch.setattr(module, name, refused)
    out = claimed(store)
    assert claim(store, SPEC) is None
    finish(out)
    assert read_result(out.run) is not None


def _race(root: str, barrier: Any, won: Any) -> None:
    barrier.wait()
    out = claim(Store(Path(root)), SPEC)
    if out is not None:
        won.put(os.getpid())
        barrier.wait()


def test_of_many_that_take_over_at_once_one_wins(store: Store) -> None:
    claimed(store)
    rewrite_owner(store, process_start="1")  # dead
    context, n = multiprocessing.get_context("spawn"), 6
    barrier, won = context.Barrier(n), context.Queue()
    racers = [
        context.Process(target=_race, args=(str(store.root), barrier, won), daemon=True)
        for _ in range(n)
    ]
    for p in racers:
        p.start()
    first = won.get(timeout=DEADLINE_S)
    for p in racers:  # the losers leave, the winner waits as a living owner
        if p.pid != first:
            p.join(DEADLINE_S)
            assert p.exitcode == 0
    assert won.empty()
    assert store.state(SPEC.run_id).attempt == 2
    for p in racers:
        p.kill()
        p.join()


def test_a_number_is_not_given_again_to_who_looked_before_it_was_taken(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed(store).finish(Outcome(status="failed"))
    real = claims.last_attempt

    def looked(run: Path) -> int:
        """Between this look and the rename another process takes the next number, and fails."""
        monkeypatch.setattr(claims, "last_attempt", real)
        n = real(run)
        claimed(store).finish(Outcome(status="failed"))
        return n

    monkeypatch.setattr(claims, "last_attempt", looked)
    assert claimed(store).attempt == 3
    told = [row.attempt for row in read_attempts(store.directory(SPEC.run_id)) if row.is_end]
    assert told == [1, 2]


def test_looking_for_an_attempt_bears_that_its_run_finishes_in_this_moment(store: Store) -> None:
    attempts = store.directory(SPEC.run_id) / "attempts"
    n_rounds, over = 300, threading.Event()

    def come_and_go() -> None:
        for _ in range(n_rounds):
            (attempts / "1").mkdir(parents=True)
            shutil.rmtree(attempts)
        over.set()

    other = threading.Thread(target=come_and_go)
    other.start()
    while not over.is_set():
        assert attempt_with("mine", attempts.parent) is None
        assert told_by_ranks(attempts / "1") == []
    other.join()


def test_where_no_number_is_left_for_an_attempt_nobody_waits(store: Store) -> None:
    """Who filled the folder may have used the last one; what is no number is not counted."""
    attempts = store.directory(SPEC.run_id) / "attempts"
    (attempts / "²").mkdir(parents=True)
    finish(claimed(store))
    other = replace(SPEC, seed=SPEC.seed + 1)
    (store.directory(other.run_id) / "attempts" / "999999999").mkdir(parents=True)
    with pytest.raises(ResultsError, match="no attempt can come after"):
        claim(store, other)


def test_an_attempt_is_found_by_the_token_of_its_order(store: Store) -> None:
    writer = claim(store, SPEC, token="mine")
    assert writer is not None
    run = store.directory(SPEC.run_id)
    assert attempt_with("mine", run) == run / "attempts" / "1"
    assert attempt_with("another's", run) is None
    (run / "attempts" / "1" / "rank1.json").write_text("{}")
    assert [path.name for path in told_by_ranks(run / "attempts" / "1")] == ["rank1.json"]


def test_what_ranks_left_is_not_read_through_a_link(store: Store, tmp_path: Path) -> None:
    (tmp_path / "others" / "1").mkdir(parents=True)
    (tmp_path / "others" / "1" / "rank1.json").write_text("{}")
    run = store.directory(SPEC.run_id)
    run.mkdir()
    (run / "attempts").symlink_to(tmp_path / "others")
    with pytest.raises(OSError):
        told_by_ranks(run / "attempts" / "1")


def test_whose_run_was_begun_anew_has_lost_it(store: Store) -> None:
    """Another machine took its silence for death; its own claim is as it was."""
    writer = claimed(store)
    attempts = store.directory(SPEC.run_id) / "attempts"
    assert writer.still_mine()
    (attempts / "notes").mkdir()  # no attempt
    assert writer.still_mine()
    (attempts / "2").mkdir()
    assert not writer.still_mine()
    assert not writer.finish(DONE)
    assert read_result(store.directory(SPEC.run_id)) is None


@pytest.mark.parametrize("status", ["failed", "oom", "timeout"])
def test_what_an_attempt_left_may_go_once_it_is_over(store: Store, status: str) -> None:
    out = claimed(store)
    assert may_go("attempts", store) == []
    out.finish(Outcome(status=status, reason="it broke"))
    assert may_go("attempts", store) == [store.directory(SPEC.run_id) / "attempts" / "1"]


def test_runs_that_were_done_again_may_go_once_they_are_over(store: Store) -> None:
    assert may_go("reruns", store) == []
    again = Store.create(store.root / "reruns")
    out = claimed(again)
    assert may_go("reruns", store) == []
    finish(out)
    assert may_go("reruns", store) == [again.directory(SPEC.run_id)]


@pytest.mark.parametrize("text", ["x", "0", "-1", "nan", f"{LONGEST_LIMIT_S + 1}"])
def test_the_silence_of_an_environment_is_above_zero_and_at_most_a_day(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for said, limit in (("", DEAD_AFTER_S), ("7.5", 7.5), (f"{LONGEST_LIMIT_S}", LONGEST_LIMIT_S)):
        monkeypatch.setenv("ABLATE_DEAD_AFTER_S", said)
        assert dead_after_s() == limit
    monkeypatch.setenv("ABLATE_DEAD_AFTER_S", text)
    with pytest.raises(UserError, match=f"ABLATE_DEAD_AFTER_S={text}: must be a number of seconds"):
        dead_after_s()


def test_on_a_system_without_proc_a_process_is_known_by_what_ps_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = {"7": " Mon Jan  5 08:00:00 2026 \n", "8": ""}

    def run(command: list[str], **how: Any) -> Any:
        assert command[:-1] == ["ps", "-o", "lstart=", "-p"]
        assert how == {"capture_output": True, "text": True, "check": False}
        return subprocess.CompletedProcess(command, 0, said[command[-1]], "")

    def no_link(path: str) -> str:
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "exists", lambda self: False)
    monkeypatch.setattr(subprocess, "run", run)
    assert claims.process_start(7) == "Mon Jan  5 08:00:00 2026"
    assert claims.process_start(8) is None
    here = claims.machine()
    monkeypatch.setattr(os, "readlink", no_link)
    claims.machine.cache_clear()
    bare = claims.machine()
    monkeypatch.undo()
    claims.machine.cache_clear()
    assert claims.machine() == here != bare and here.startswith(f"{bare} pid:")


def test_attempts_behind_a_link_are_none_of_the_runs(tmp_path: Path) -> None:
    (tmp_path / "there/4").mkdir(parents=True)
    (tmp_path / "run").mkdir()
    (tmp_path / "other").mkdir()
    os.symlink(tmp_path / "there", tmp_path / "run/attempts")
    os.rename(tmp_path / "there", tmp_path / "other/attempts")
    os.symlink(tmp_path / "other/attempts", tmp_path / "there")
    assert claims.last_attempt(tmp_path / "run") == 0
    assert claims.last_attempt(tmp_path / "other") == 4


@pytest.mark.parametrize("content", ["[]", "{", '{"pid": -1}', '{"pid": "x"}'])
def test_an_owner_that_is_none_is_not_read(content: str, tmp_path: Path) -> None:
    path = tmp_path / "owner.json"
    path.write_text('{"pid": 0, "token": "x"}')
    owner = claims.read_owner(path)
    assert owner is not None and owner.token == "x"
    path.write_text(content)
    assert claims.read_owner(path) is None


def test_an_owner_elsewhere_whose_file_is_gone_meanwhile_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = claims.Owner.from_json({"machine": "elsewhere", "pid": 1})
    monkeypatch.setattr(claims, "read_owner", lambda path: elsewhere)
    assert owner_of(tmp_path, 0.0) is None


def test_nothing_is_taken_of_what_is_done_or_where_a_folder_cannot_be_written(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = store.directory(SPEC.run_id)
    assert claims.take(run, token="", gone=lambda: True) is None

    def full(a: Any, b: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(ResultsError, match="No space left on device"):
        claim(store, SPEC)
    assert os.listdir(run / "attempts") == [], "no half of a claim stays"
