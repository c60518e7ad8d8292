"""How an attempt's end is noted: once, without a secret, by whoever could; and who is no owner any more."""

import errno
import os
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UserError
from harness.run import guarded
from harness.run.measured import Measured
from harness.run.metrics import TrainingLoss, Validation
from harness.run.read import read_json, read_lines
from harness.run.results import examine, read_result
from harness.run.spec import Outcome
from harness.store import shown
from harness.store.attempt import RunWriter, claim
from harness.store.claims import DEAD_AFTER_S, owner_of, process_start
from harness.store.errors import ResultsError
from harness.store.state import Progress
from harness.store.store import Store
from tests.fake_matrix import DEADLINE_S, wait_for
from tests.one_run import DONE, SPEC, finish
from tests.planted_secrets import PLANTED, leaks

SECRETS = "it broke: " + " ".join(PLANTED.values())


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.create(tmp_path / "results")


WRITERS: list[RunWriter] = []


@pytest.fixture(autouse=True)
def released() -> Iterator[None]:
    """Files of attempts that a test leaves open are closed."""
    yield
    while WRITERS:
        WRITERS.pop().release()


def claimed(store: Store, token: str = "") -> RunWriter:
    out = claim(store, SPEC, token=token)
    assert out is not None
    WRITERS.append(out)
    return out


def rows_of(store: Store) -> list[dict[str, Any]]:
    return read_lines(store.directory(SPEC.run_id) / "attempts.jsonl")


def ends_of(store: Store) -> list[tuple[int | None, str]]:
    return [(r["attempt"], r["status"]) for r in rows_of(store) if "ended" in r]


def step_of(store: Store) -> int:
    progress = store.progress(SPEC.run_id)
    assert progress is not None
    return progress.step


def everything_in(store: Store) -> str:
    files = [p for p in store.root.rglob("*") if p.is_file()]
    return "\n".join(p.read_text(errors="replace") for p in files)


# ---------------------------------------------------------------- no end holds a secret


@pytest.mark.parametrize("status", ["failed", "diverged"])
def test_a_run_that_ends_itself_notes_no_secret(store: Store, status: Any) -> None:
    out = claimed(store)
    out.describe({"host": "here"})
    out.log_file.write(SECRETS + "\n")  # as a process prints that was not asked
    out.finish(Outcome(status=status, reason=SECRETS))
    said = everything_in(store)
    assert leaks(said) == []
    assert rows_of(store)[-1]["reason"].startswith("it broke: ")
    assert (read_result(out.run) is None) == (status == "failed")
    assert "it broke: " in (out.run / "log.txt").read_text()


def test_an_end_that_the_runner_notes_holds_no_secret_nor_does_the_log(store: Store) -> None:
    out = claimed(store, token="t")
    (out.run / "log.txt").write_text(SECRETS)
    store.note_end(SPEC.run_id, token="t", status="timeout", reason=SECRETS)
    assert leaks(everything_in(store)) == []
    assert rows_of(store)[-1]["reason"].startswith("it broke: ")


def test_an_end_before_any_attempt_holds_no_secret(store: Store) -> None:
    store.note_lost(SPEC.run_id, status="failed", reason=SECRETS)
    assert leaks(everything_in(store)) == []
    assert ends_of(store) == [(None, "failed")]
    assert store.state(SPEC.run_id).status == "failed"


# ---------------------------------------------------------------- one end for an attempt


def test_an_attempt_has_one_end_whoever_notes_it_again(store: Store) -> None:
    out = claimed(store, token="t")
    out.finish(Outcome(status="failed", reason="it broke"))
    store.note_end(SPEC.run_id, token="t", status="timeout", reason="too late")
    store.note_end(SPEC.run_id, token="t", status="timeout", reason="later still")
    assert ends_of(store) == [(1, "failed")]


def test_the_end_of_one_attempt_is_not_that_of_another(store: Store) -> None:
    first = claimed(store, token="first")
    first.finish(Outcome(status="failed"))
    claimed(store, token="second")
    store.note_end(SPEC.run_id, token="second", status="timeout", reason="no step")
    assert ends_of(store) == [(1, "failed"), (2, "timeout")]
    assert store.state(SPEC.run_id).status == "timeout"


def test_an_unknown_token_ends_nothing(store: Store) -> None:
    claimed(store, token="mine")
    store.note_end(SPEC.run_id, token="yours", status="timeout", reason="no step")
    assert ends_of(store) == []
    assert store.state(SPEC.run_id).status == "running"


def test_a_noted_end_gives_the_run_back(store: Store) -> None:
    claimed(store, token="mine")
    store.note_end(SPEC.run_id, token="mine", status="timeout", reason="no step")
    assert claimed(store).attempt == 2


def test_what_a_killed_process_half_wrote_goes_with_its_claim(store: Store) -> None:
    out = claimed(store, token="mine")
    (out.folder / ".progress.json").write_text('{"step": 1, "st')  # killed as it wrote
    store.note_end(SPEC.run_id, token="mine", status="timeout", reason="no step")
    assert [path.name for path in out.folder.iterdir()] == ["gone.json"]


@pytest.mark.parametrize(
    ("status", "noted"),
    [("oom", {"peak_allocated_mib": 7.5, "peak_rss_mib": 31.0}), ("failed", {}), ("timeout", {})],
)
def test_how_much_memory_a_run_took_is_noted_where_it_ran_out(
    store: Store, status: Any, noted: dict[str, float]
) -> None:
    final = Measured(peak_allocated_mib=7.5, steps=4)
    claimed(store).finish(Outcome(status=status, final=final, peak_rss_mib=31.0))
    assert {k: v for k, v in rows_of(store)[-1].items() if k.startswith("peak") and v} == noted


def test_a_result_says_when_it_began_and_ended_and_which_attempt_it_was(store: Store) -> None:
    claimed(store).finish(Outcome(status="failed"))
    out = claimed(store)
    finish(out, DONE)
    result, rows = read_result(out.run), rows_of(store)
    assert result is not None
    assert result.attempt == 2
    assert (result.started, result.ended) == (rows[-2]["started"], rows[-1]["ended"])
    assert result.started is not None and result.ended is not None
    assert result.started <= result.ended


# ---------------------------------------------------------------- owners


def test_a_zombie_owns_no_run(store: Store) -> None:
    """A process that has ended and was not waited for still has its number and its start."""
    pid = os.fork()
    if pid == 0:
        os._exit(0 if claim(store, SPEC) is not None else 1)
    try:
        stat_file = Path(f"/proc/{pid}/stat")
        wait_for(lambda: stat_file.read_text().rpartition(")")[2].split()[0] == "Z")
        owner = store.directory(SPEC.run_id) / "attempts" / "1" / "owner.json"
        assert read_json(owner)["pid"] == pid
        assert process_start(pid) is None
        assert claimed(store).attempt == 2
    finally:
        assert os.waitpid(pid, 0)[1] == 0


def test_this_process_has_a_start_and_one_that_never_was_has_none() -> None:
    assert process_start(os.getpid()) == process_start(os.getpid()) is not None
    assert process_start(2**22 + 1) is None  # beyond the largest number that Linux gives


@pytest.mark.parametrize(
    ("shift_s", "alive"),
    [
        (DEAD_AFTER_S - 0.01, True),
        (DEAD_AFTER_S + 0.01, False),
        (-DEAD_AFTER_S + 0.01, True),  # dated in the future: clocks of two file servers
        (-DEAD_AFTER_S - 0.01, False),  # too far in it to be believed
        (-1e6, False),
    ],
)
def test_a_claim_from_elsewhere_is_believed_near_its_date_alone(
    store: Store, shift_s: float, alive: bool
) -> None:
    out = claimed(store)
    owner = out.folder / "owner.json"
    owner.write_text('{"machine": "elsewhere", "pid": 1, "process_start": "1"}')
    assert (owner_of(out.folder, owner.stat().st_mtime + shift_s) is not None) == alive


def test_the_owner_shows_that_it_lives_while_nothing_else_moves(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABLATE_DEAD_AFTER_S", "0.12")  # a sign of life at a twelfth of it
    out = claimed(store)
    owner = out.folder / "owner.json"
    os.utime(owner, (0, 0))
    assert wait_for(lambda: owner.stat().st_mtime > time.time() - 3600)


def test_others_may_read_what_a_claim_makes(store: Store) -> None:
    """A results folder is shared: a group's members look at each other's runs."""
    before = os.umask(0o022)
    try:
        out = claimed(store)
        out.describe({"host": "here"})
        paths = [p for p in out.run.rglob("*")]
        modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in paths}
    finally:
        os.umask(before)
    assert modes["1"] == modes["attempts"] == 0o755
    files = {name for name in modes if "." in name}
    assert "owner.json" in files
    assert {modes[name] for name in files} == {0o644}


# ---------------------------------------------------------------- where a run is


def test_progress_is_told_at_once_and_then_at_most_once_a_second(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a thread of its own: the one that trains waits for no disk."""
    written = threading.Semaphore(0)
    waited: list[float | None] = []
    second, wait = threading.Event(), threading.Event.wait

    def paused(event: threading.Event, timeout: float | None = None) -> bool:
        if timeout != shown.PROGRESS_S:
            return wait(event, timeout)
        waited.append(timeout)
        written.release()
        wait(second, DEADLINE_S)
        second.clear()
        return event.is_set()

    monkeypatch.setattr(threading.Event, "wait", paused)
    disk = threading.Lock()
    replace_file = os.replace

    def slow(*paths: Any, **folders: Any) -> None:
        assert disk.acquire(timeout=DEADLINE_S / 4), "the thread that trains waits"
        replace_file(*paths, **folders)
        disk.release()

    monkeypatch.setattr(shown.os, "replace", slow)
    out = claimed(store)
    assert store.progress(SPEC.run_id) is None
    told = []
    with disk:
        out.heartbeat(0, 10)  # does not wait for it
    for step in (1, 4, 5):
        assert written.acquire(timeout=DEADLINE_S)
        told.append(step_of(store))
        for moved in range(told[-1] + 1, step + 1):
            out.heartbeat(moved, 10)
        assert step_of(store) == told[-1]
        second.set()
    assert written.acquire(timeout=DEADLINE_S)
    assert [*told, step_of(store)] == [0, 1, 4, 5]
    assert waited == [shown.PROGRESS_S] * 4
    second.set()
    out.release()
    assert store.progress(SPEC.run_id) is None


def test_a_disk_that_takes_no_progress_is_told_by_the_next_step(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*paths: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    out = claimed(store)
    monkeypatch.setattr(shown.os, "replace", full)
    out.heartbeat(0, 10)
    wait_for(lambda: out.shown.error is not None, DEADLINE_S)
    with pytest.raises(ResultsError, match="No space left"):
        out.heartbeat(1, 10)
    out.release()


def test_progress_tells_the_latest_validation(store: Store) -> None:
    out = claimed(store)
    for step, loss in ((0, 5.0), (5, 4.0)):
        out.metric(Validation(step=step, val_loss=loss, train_time_s=1.0))
    out.metric(TrainingLoss(step=6, train_loss=3.0))
    out.heartbeat(6, 10)
    wait_for(lambda: store.progress(SPEC.run_id) is not None, DEADLINE_S)
    assert store.progress(SPEC.run_id) == Progress(step=6, steps=10, val_loss=4.0)


def test_a_curve_beyond_what_is_read_again_fails_its_run_alone(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(guarded.MOST, "metrics.jsonl", 200)
    out = claimed(store)
    out.metric(Validation(step=1, val_loss=1.5, train_time_s=1.0))
    long = Validation(step=2, val_loss=1.5, train_time_s=1.0, step_times_ms=[1.25] * 50)
    with pytest.raises(UserError, match="let it print or validate less often"):
        out.metric(long)
    assert (out.run / "metrics.jsonl").stat().st_size <= 200
    out.describe({"host": "here"})
    assert out.finish(DONE)
    assert examine(out.run, SPEC.run_id)[1] is None
