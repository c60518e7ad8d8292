"""A host that stands still: its runs go to others, it overwrites nothing when it wakes, and a time that stood still is marked."""

import math
import os
import re
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.node.stalls import Stall, Stalls
from harness.run.files import write_new
from harness.run.results import read_result
from harness.store.attempt import TakenOverError
from harness.store.store import Store
from reports.analysis.cautions import Caution
from reports.inputs.load import load
from tests.fake_matrix import DEADLINE_S, Matrix, ablate
from tests.one_run import DONE, claimed, finish

LIMIT_S = 3  # an owner is taken for dead after this silence


def processes_below(pid: int) -> list[int]:
    """A runner and everything that came of it, workers with sessions of their own too."""
    return [pid, *(p.pid for p in psutil.Process(pid).children(recursive=True))]


def send(number: int, pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, number)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param((), id="warm"),
        pytest.param(("--worker", "fresh"), id="fresh", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    "wakes", [pytest.param("to finish", marks=pytest.mark.slow), "in training"]
)
def test_a_paused_host_overwrites_nothing(
    tmp_path: Path, wakes: str, options: tuple[str, ...]
) -> None:
    limit = {"ABLATE_DEAD_AFTER_S": str(LIMIT_S)}
    paused = Matrix(tmp_path, n_seeds=1, FAKE={"0": "hold once"}, FAKE_NODE="elsewhere", **limit)
    process = paused.start("--max-parallel", "1", *options)
    paused.at("hold", 1)
    stopped = processes_below(process.pid)
    send(signal.SIGSTOP, stopped)
    other = Matrix(tmp_path, n_seeds=1, FAKE={"0": "hold once"}, **limit)
    code, out, _ = other.run()
    assert code == 0, out
    kept = {path: path.read_bytes() for path in other.results.glob("runs/*/*") if path.is_file()}
    if wakes == "to finish":
        (tmp_path / "go").touch()
    send(signal.SIGCONT, stopped)
    out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, err) == (0, "")
    assert "everything is finished: 2 runs" in out
    assert {path: path.read_bytes() for path in kept} == kept
    assert sorted(other.ends(0)) == [["finished"], ["interrupted", "finished"]]
    for run_id in other.statuses():
        assert Store(other.results).repair(run_id)[1] is None
    assert other.trailing() == []


def has_disturbance(run: Path) -> bool:
    result = read_result(run)
    return result is not None and bool(result.disturbed)


@pytest.mark.slow
def test_a_time_that_stood_still_is_marked_and_left_out(tmp_path: Path) -> None:
    """Nobody takes the run over here: it finishes, with a clock that ran while it did not."""
    matrix = Matrix(tmp_path, n_seeds=2, FAKE={"0": "hold once"}, FAKE_STILL_S="4")
    process = matrix.start("--max-parallel", "1")
    matrix.at("hold", 1)
    stopped = processes_below(process.pid)
    send(signal.SIGSTOP, stopped)
    time.sleep(5)  # the fault itself: a second more than what marks a run
    (tmp_path / "go").touch()
    send(signal.SIGCONT, stopped)
    out, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, out
    marked = [run for run in matrix.runs()[0] if has_disturbance(run)]
    assert len(marked) == 1
    (told,) = set(re.findall(r"its time is disturbed: it stood still for \d+ s", out))
    words, seconds = told, int(told.split()[-2])
    assert seconds >= 5
    of_run = next(r for r in ablate(matrix, "status", "--json").json if r["run"] == marked[0].name)
    assert of_run["reason"] == words
    report = ablate(matrix, "report", "fake", "-o", str(tmp_path / "page.html"))
    assert report.code == 0, report.err
    page = (tmp_path / "page.html").read_text()
    assert words in page
    assert Caution.DISTURBED.text in page
    assert ablate(matrix, "verify", str(tmp_path / "page.html")).code == 0
    assert Caution.DISTURBED.text in ablate(matrix, "compare", "fake").out
    runs = load("fake", results=str(matrix.results)).runs.set_index("run_id")
    of_run = runs.loc[marked[0].name]
    assert math.isnan(of_run["train_time_s"])
    assert math.isfinite(of_run["val_loss"])
    assert runs["train_time_s"].notna().sum() == 3


def test_a_stall_counts_where_the_clock_ran() -> None:
    stalls = Stalls()
    stalls.found = [Stall(began=10, ended=16, seconds=7), Stall(began=20, ended=26, seconds=6)]
    assert stalls.seconds(None) == 13
    assert stalls.seconds([(0, 11), (26, 30)]) == 7
    assert stalls.seconds([(17, 19)]) == 0


def test_a_result_is_never_replaced_with_or_without_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_new(tmp_path / "result.json", "first")
    with pytest.raises(FileExistsError):
        write_new(tmp_path / "result.json", "second")

    def refused(*_: Any) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", refused)
    with pytest.raises(FileExistsError):
        write_new(tmp_path / "result.json", "third")
    assert (tmp_path / "result.json").read_text() == "first"
    write_new(tmp_path / "other.json", "fourth")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["other.json", "result.json"]


def test_an_attempt_whose_number_was_given_again_is_not_its_first_owners(tmp_path: Path) -> None:
    """A damaged run is set aside, numbers begin anew: the paused owner of the first 1 is not the second's."""
    store = Store.create(tmp_path / "results")
    paused = claimed(store)
    shutil.move(paused.run, tmp_path / "elsewhere")
    second = claimed(store)
    assert second.attempt == paused.attempt == 1
    assert not paused.finish(DONE)
    assert second.still_mine()
    with pytest.raises(TakenOverError):
        paused.describe({"host": "paused"})
    finish(second)
    assert store.repair(second.spec.run_id)[1] is None
