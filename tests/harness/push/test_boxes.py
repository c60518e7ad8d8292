"""Boxes that vanish: what had arrived is never lost, never made again, and the next box ends with the same table."""

import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from harness.run.plural import plural
from harness.run.results import read_result
from harness.store.merge import what_is_wrong
from tests.assassin import trains
from tests.fake_matrix import Matrix, Started, ablate, wait_for
from tests.sshd import address, free_port, skip_without_ssh, ssh_server

SEED = 20261125
N_KILLS, N_SEEDS, N_AT_ONCE = 20, 4, 2
AT_ONCE = ("--max-parallel", str(N_AT_ONCE))
SLOW, SLOWER = {"FAKE_STEP_S": "0.04"}, {"FAKE_STEP_S": "0.2"}  # a run of a second, of four
SPAN_S = 8.0  # within which a box vanishes, of its start or of its first run's


def finished(results: Path) -> set[str]:
    """The runs of a folder that have a result, each of them sound."""
    names = {path.parent.name for path in results.glob("runs/[!.]*/result.json")}
    assert [wrong for name in names if (wrong := what_is_wrong(results / "runs" / name))] == []
    return names


def results_of(results: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in results.glob("runs/[!.]*/result.json")}


def begun(results: Path) -> set[str]:
    """The runs that were begun in a folder, or came to it."""
    return {path.name for path in results.glob("runs/[!.]*")}


def vanish(process: Started) -> None:
    """All at once: a call, its workers, and what sends their runs."""
    stopped: set[psutil.Process] = set()
    while True:
        with suppress(psutil.NoSuchProcess):
            caller = psutil.Process(process.pid)
            new = {caller, *caller.children(recursive=True)} - stopped
            for one in new:
                with suppress(psutil.NoSuchProcess):
                    one.suspend()
            stopped |= new
            if new:
                continue
        break
    for one in stopped:
        with suppress(psutil.NoSuchProcess):
            one.send_signal(signal.SIGKILL)
    process.wait()


def vanishes(box: Matrix, process: Started, rng: random.Random) -> bool:
    """End a call at a moment that is drawn; False where it ended before."""
    if rng.random() < 0.75:
        wait_for(lambda: trains(box) or process.poll() is not None, seen=box.seen)
    with suppress(subprocess.TimeoutExpired):
        process.wait(rng.uniform(0, SPAN_S))
        return False
    vanish(process)
    return True


def check_boxes(folder: Path, there: Path, name: str, **environment: str) -> None:
    """N_KILLS boxes vanish with their disks, each at a moment that is drawn; the last one ends the matrix.

    there: where the place called `name` lies.
    """
    rng = random.Random(SEED)
    (folder / "calm").mkdir()
    calm = Matrix(folder / "calm", n_seeds=N_SEEDS)
    assert calm.run(*AT_ONCE)[0] == 0
    arrived: dict[str, bytes] = {}
    n_kills, lost, log = 0, [], []
    while True:
        home = folder / f"box{len(log)}"
        home.mkdir()
        box = Matrix(home, n_seeds=N_SEEDS, **SLOWER, **environment)
        process = box.start("--push", name, "--pull", *AT_ONCE)
        vanished = n_kills < N_KILLS and vanishes(box, process, rng)
        process.wait(240)
        n_kills += vanished
        now = results_of(there)
        finished(there)  # whole, every one of them
        assert arrived.items() <= now.items()  # what had arrived is there, and the same
        of_box = {run for run, result in results_of(box.results).items() if now.get(run) != result}
        ages = [
            time.time() - (box.results / "runs" / run / "result.json").stat().st_mtime
            for run in of_box
        ]
        lost.append(len(of_box))
        log.append(f"{'vanished' if vanished else 'ended'}: {len(now)} there, {ages} s lost")
        made = begun(box.results) & arrived.keys()
        assert all(arrived[run] == results_of(box.results).get(run) for run in made), log
        arrived = now
        if not vanished:
            assert process.returncode == 0, process.communicate()
            assert box.table() == calm.table(), log
            if n_kills >= N_KILLS:
                break
            shutil.rmtree(there)
            arrived = {}
        shutil.rmtree(home)
    print("\n".join([*log, f"finished and lost with a box: {lost}"]))
    # what is on its way when a box vanishes counts as running: it is no more than what goes on at a time
    assert max(lost) <= N_AT_ONCE, log


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The name of folder/there behind a server, and the variables with which it is reached."""
    skip_without_ssh()
    port = free_port()
    with ssh_server(folder / "sshd", port) as shell:
        yield address(port, folder / "there"), {"RSYNC_RSH": shell}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1200)
def test_twenty_boxes_that_vanish_lose_nothing_that_was_in_a_folder(tmp_path: Path) -> None:
    check_boxes(tmp_path, tmp_path / "there", str(tmp_path / "there"))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1200)
def test_twenty_boxes_that_vanish_lose_nothing_that_was_behind_ssh(tmp_path: Path) -> None:
    with served(tmp_path) as (name, variables):
        check_boxes(tmp_path, tmp_path / "there", name, **variables)


@pytest.mark.slow
def test_a_box_goes_on_behind_ssh_where_another_stopped(tmp_path: Path) -> None:
    with served(tmp_path) as (name, variables):
        for home in ("first", "second", "third"):
            (tmp_path / home).mkdir()
        few = Matrix(tmp_path / "first", n_seeds=1, **variables)
        code, out, err = few.run("--push", name)
        assert (code, "every finished run is there, 2 of them sent now" in out) == (0, True), out
        more = Matrix(tmp_path / "second", n_seeds=2, **variables)
        code, out, err = more.run("--push", name, "--pull")
        assert (code, err) == (0, ""), out
        assert "2 runs brought in" in out
        assert "2 of 4 runs to do" in out
        assert "every finished run is there, 2 of them sent now" in out
        assert finished(tmp_path / "there") == finished(more.results)
        third = Matrix(tmp_path / "third", n_seeds=2, **variables)
        ran = ablate(third, "merge", name, "--json")
        assert (ran.code, len(ran.json[0]["copied"])) == (0, 4), ran.err
        assert third.table() == more.table()
        assert list((tmp_path / "there" / "runs").glob(".*")) == []
        spoilt = min(finished(more.results))
        with (tmp_path / "there" / "runs" / spoilt / "metrics.jsonl").open("a") as file:
            file.write("{}\n")
        (tmp_path / "fourth").mkdir()
        fourth = Matrix(tmp_path / "fourth", n_seeds=2, **variables)
        code, out, err = fourth.run("--push", name, "--pull")
        assert (code, "3 runs brought in" in out, "1 of 4 runs to do" in out) == (0, True, True), (
            out
        )
        assert finished(tmp_path / "there") == finished(more.results)


@pytest.mark.slow
def test_a_server_that_goes_and_comes_back_changes_no_run(tmp_path: Path) -> None:
    skip_without_ssh()
    port, there = free_port(), tmp_path / "there"
    name = address(port, there)
    with ssh_server(tmp_path / "sshd", port) as shell:
        matrix = Matrix(tmp_path, n_seeds=2, **SLOW, RSYNC_RSH=shell)
        process = matrix.start("--push", name, "--max-parallel", "1")
        wait_for(lambda: results_of(there), seen=matrix.seen)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert "fake: everything is finished: 4 runs" in out
    assert f"finished runs are not in {name}: " in out
    assert f"`ablate push {name} --results {matrix.results}` sends the rest" in out
    assert [line for line in err.splitlines() if "runs go on, sending is tried again" in line]
    assert ablate(matrix, "push", name).code == 2  # nobody is there
    with ssh_server(tmp_path / "sshd", port):
        ran = ablate(matrix, "push", name)
        assert (ran.code, "every finished run is there" in ran.out) == (0, True), ran.err
        assert finished(there) == finished(matrix.results)


@pytest.mark.slow
def test_a_second_box_goes_on_where_one_vanished(tmp_path: Path) -> None:
    there = tmp_path / "there"
    homes = [tmp_path / "first", tmp_path / "second"]
    for home in homes:
        home.mkdir()
    first = Matrix(homes[0], n_seeds=3, **SLOW)
    process = first.start("--push", str(there), "--max-parallel", "1")
    wait_for(lambda: finished(there), seen=first.seen)
    vanish(process)
    had = results_of(there)
    assert 0 < len(had) < 6
    shutil.rmtree(homes[0])
    second = Matrix(homes[1], n_seeds=3)
    code, out, err = second.run("--push", str(there), "--pull")
    assert (code, err) == (0, ""), out
    assert f"{there}: {plural(len(had), 'run')} brought in" in out
    assert f"{6 - len(had)} of 6 runs to do" in out
    assert had.items() <= results_of(second.results).items()
    assert results_of(there) == results_of(second.results)


def test_two_boxes_that_work_at_once_lose_nothing_and_at_worst_do_work_twice(
    tmp_path: Path,
) -> None:
    """Both go on from what a first one sent; of the second seed each makes a run while the other does."""
    there, marks = tmp_path / "there", tmp_path / "marks"
    homes = [tmp_path / name for name in ("first", "left", "right")]
    for path in (marks, *homes):
        path.mkdir()
    first = Matrix(homes[0], n_seeds=1)
    assert first.run("--push", str(there))[0] == 0
    had = results_of(there)
    how = {"FAKE": {"1": "meet"}, "FAKE_MARKS": str(marks)}
    boxes = [Matrix(home, n_seeds=4, **how) for home in homes[1:]]
    calls = [box.start("--push", str(there), "--pull", "--max-parallel", "1") for box in boxes]
    for call in calls:
        out, err = call.communicate(timeout=240)
        assert (call.returncode, err) == (0, ""), out
        assert f"{there}: 2 runs brought in" in out
        assert f"{there}: every finished run is there" in out
    arrived = results_of(there)
    assert had.items() <= arrived.items()
    made = [results_of(box.results).keys() - had.keys() for box in boxes]
    assert finished(there) == had.keys() | made[0] | made[1]
    assert len(finished(there)) == 8
    assert made[0] & made[1]  # work that was done twice
    assert boxes[0].table() == boxes[1].table()
    third = tmp_path / "third"
    third.mkdir()
    code, out, err = Matrix(third, n_seeds=4).run("--push", str(there), "--pull")
    assert (code, err, "fake: everything is finished: 8 runs" in out) == (0, "", True)


def test_what_sends_outlives_a_runner_that_is_killed_until_its_runs_are_there(
    tmp_path: Path,
) -> None:
    there = tmp_path / "there"
    matrix = Matrix(tmp_path, n_seeds=2, **SLOW)
    process = matrix.start("--push", str(there), "--max-parallel", "1")
    wait_for(lambda: results_of(matrix.results), seen=matrix.seen)
    process.kill()
    process.wait()
    wait_for(lambda: results_of(there) == results_of(matrix.results), seen=matrix.seen)
    assert finished(there)


def test_a_place_that_fails_meanwhile_changes_no_run_and_no_exit_code(tmp_path: Path) -> None:
    there = tmp_path / "there"
    matrix = Matrix(tmp_path, n_seeds=3, FAKE={"1": "hold", "2": "hold"})
    process = matrix.start("--push", str(there), "--max-parallel", "1")
    wait_for(lambda: results_of(there), seen=matrix.seen)
    (there / "runs").rename(tmp_path / "elsewhere")
    (there / "runs").touch()
    (tmp_path / "go").touch()
    out, err = process.communicate(timeout=240)
    assert (process.returncode, "fake: everything is finished" in out) == (0, True), err
    last = out.splitlines()[-1]
    assert f"finished runs are not in {there}: " in last
    assert last.endswith(f"`ablate push {there} --results {matrix.results}` sends the rest")
    assert err.count("runs go on, sending is tried again") == 1
    (there / "runs").unlink()
    (tmp_path / "elsewhere").rename(there / "runs")
    code, out, _ = matrix.run("--push", str(there))
    assert (code, f"{there}: every finished run is there" in out) == (0, True)
    assert results_of(there) == results_of(matrix.results)
    assert all(read_result(there / "runs" / name) for name in finished(there))


@pytest.mark.parametrize(
    "options",
    [
        ("--pull",),
        ("--push", ""),
        ("--push", "nosuch://bucket"),
        ("--push", "host:a;b"),
        ("--push", "fake.yaml", "--pull"),
        ("--push", "results"),
    ],
    ids=" ".join,
)
def test_a_bad_place_is_one_line_before_anything_runs(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    matrix = Matrix(tmp_path, n_seeds=1)
    words = [str(tmp_path / word) if word in ("fake.yaml", "results") else word for word in options]
    code, out, err = matrix.run(*words)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert not list(matrix.results.glob("runs/*"))
