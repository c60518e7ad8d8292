"""`ablate track` and --log-to: what is refused before anything starts, and that no run fails by a tracker."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from harness.cli import track
from harness.cli.track import track_beside
from harness.errors import UserError
from harness.track.follow import Follower
from tests.fake_matrix import DEADLINE_S, ROOT, Matrix, wait_for
from tests.foreign_bench import TRAINERS, ablate
from tests.report_arms import LADDER
from tests.report_fixtures import write_experiment

CLIENT = """
import json, os
from pathlib import Path
def login(**options): return True
class Settings:
    def __init__(self, **options): ...
class Run:
    def __init__(self, name): self.name, self.summary = name, {}
    def define_metric(self, *names, **options): ...
    def log(self, row): self.note(row)
    def finish(self, exit_code=None): self.note({"exit_code": exit_code, **self.summary})
    def note(self, row):
        with Path(os.environ["HEARD"]).open("a") as file:
            file.write(json.dumps([self.name, row]) + "\\n")
def init(*, id, **options):
    if "BROKEN" in os.environ:
        raise RuntimeError("no network\\nat all")
    return Run(id)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    there = {"tensorboard": "somewhere"}
    monkeypatch.setattr("harness.track.trackers.find_spec", there.get)
    return tmp_path


def said(words: list[object], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of a command that is refused."""
    assert ablate(*words) == 2
    [line] = capsys.readouterr().err.splitlines()
    return line


def test_a_tracker_that_is_none_or_missing_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "no tracker 'wanb'; did you mean 'wandb'?" in said(
        ["track", "split", "--to", "wanb"], capsys
    )
    line = said(["run", "minute", "--log-to", "wandb"], capsys)
    assert "wandb: the library wandb is not installed: pip install 'speedrun-" in line
    assert line.endswith("in a checkout pip install -e '.[trackers]'")
    assert not Path("results").exists()


def test_an_experiment_that_is_not_there_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_experiment(folder / "results", arms=LADDER[:2], n_seeds=1, n_points=3)
    line = said(["track", "spit", "--to", "tensorboard"], capsys)
    assert "no experiment 'spit' here; did you mean 'split'?" in line


def test_an_experiment_that_is_not_there_is_not_followed_either(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_experiment(folder / "results", arms=LADDER[:2], n_seeds=1, n_points=3)
    line = said(["track", "spit", "--to", "tensorboard", "--follow"], capsys)
    assert "no experiment 'spit' here" in line
    assert not Path("results/experiments/spit").exists()


def test_who_follows_looks_once_more_when_its_caller_is_gone_even_before_it_began(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = {(LADDER[1].name, 0): "failed"}
    write_experiment(folder / "results", arms=LADDER[:2], n_seeds=1, n_points=3, outcome=outcome)
    tracker = SimpleNamespace(where="here", close=lambda: None)
    row = SimpleNamespace(make=lambda *_: tracker)
    monkeypatch.setattr("harness.track.trackers.tracker_row", lambda _: row)
    looks = []
    monkeypatch.setattr(Follower, "look", lambda _: looks.append(1))
    monkeypatch.setattr(track.time, "sleep", lambda _: pytest.fail("its caller is gone"))
    nobody = os.getppid() + 1
    assert ablate("track", "split", "--to", "mlflow", "--follow", "--caller", nobody) == 0
    assert len(looks) == 2


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (RuntimeError("no \x1b network"), 1, "mlflow: no \\x1b network: the same command goes on later"),
        (UserError("mlflow: name a server"), 2, "ablate: mlflow: name a server"),
        (OSError(28, "No space left", "told"), 2, "ablate: told: No space left: make it writable"),
    ],
)  # fmt: skip
def test_a_tracker_that_fails_is_told_and_what_is_mended_here_is_a_refusal(
    error: Exception,
    code: int,
    said: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fails(*_: object) -> None:
        raise error

    write_experiment(folder / "results", arms=LADDER[:2], n_seeds=1, n_points=3)
    row = SimpleNamespace(make=fails)
    monkeypatch.setattr("harness.track.trackers.tracker_row", lambda _: row)
    assert ablate("track", "split", "--to", "mlflow") == code
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(said)


def test_who_follows_by_hand_looks_until_every_run_has_ended(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_experiment(folder / "results", arms=LADDER[:2], n_seeds=1, n_points=3)
    tracker = SimpleNamespace(where="here", close=lambda: None)
    row = SimpleNamespace(make=lambda *_: tracker)
    monkeypatch.setattr("harness.track.trackers.tracker_row", lambda _: row)
    complete, slept = [True, False, False], []
    monkeypatch.setattr(Follower, "look", lambda _: complete.pop())
    monkeypatch.setattr(track.time, "sleep", slept.append)
    assert ablate("track", "split", "--to", "mlflow", "--follow") == 0
    assert (complete, slept) == ([], [5.0] * 2)
    assert capsys.readouterr().out == "mlflow: 0 rows told: here\n"
    complete[:] = [False]
    assert ablate("track", "split", "--to", "mlflow") == 0, "one look without --follow"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("log_too: [wandb]", "ablate.yaml:1: unknown key 'log_too'; did you mean 'log_to'?"),
        ("\nlog_to: mlflow", "mlflow: the library mlflow is not installed"),
        ("log_to: [3]", "no tracker '3'"),
        ("log_to", "ablate.yaml: must be a mapping"),
    ],
)
def test_a_wrong_ablate_yaml_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, expected: str
) -> None:
    Path("ablate.yaml").write_text(text)
    assert expected in said(["run", "minute"], capsys)


def matrix(folder: Path, **environment: str) -> Matrix:
    """A matrix with a client of the test's own in the place of wandb."""
    (folder / "wandb").mkdir()
    (folder / "wandb" / "__init__.py").write_text(CLIENT)
    made = Matrix(folder, n_seeds=1, HEARD=str(folder / "heard"), **environment)
    made.environment["PYTHONPATH"] += f"{os.pathsep}{folder}"
    return made


@pytest.mark.usefixtures("said_at_once")
def test_a_tracker_is_started_before_there_is_a_results_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: started.append(command))
    track_beside(["wandb", "mlflow"], "new", tmp_path / "results")
    folder = tmp_path / "results" / "experiments" / "new"
    assert sorted(path.name for path in folder.iterdir()) == [
        "tracked-mlflow.log",
        "tracked-wandb.log",
    ]
    assert [command[command.index("--to") + 1] for command in started] == ["wandb", "mlflow"]
    assert capsys.readouterr().out.count("is told what the runs measure") == 2


def log_of(made: Matrix) -> str:
    path = made.results / "experiments" / "fake" / "tracked-wandb.log"
    return path.read_text() if path.exists() else ""


def following(made: Matrix) -> list[int]:
    """The processes that tell a tracker of the matrix."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "--follow" in words and str(made.results) in words:
            found.append(process.pid)
    return found


@pytest.mark.slow
def test_a_tracker_is_told_what_the_runs_measure(tmp_path: Path) -> None:
    made = matrix(tmp_path)
    code, out, err = made.run("--log-to", "wandb")
    assert code == 0, err
    assert "wandb is told what the runs measure" in out
    wait_for(lambda: "rows told" in log_of(made), seen=lambda: log_of(made))
    heard = [json.loads(line) for line in (tmp_path / "heard").read_text().splitlines()]
    for run_id in made.statuses():
        told = [row for name, row in heard if name == run_id]
        metrics = (made.results / "runs" / run_id / "metrics.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in metrics]
        steps = [row["step"] for row in rows if row["kind"] != "gpu"]
        assert [row["step"] for row in told[:-1]] == steps
        assert (told[-1]["status"], told[-1]["exit_code"]) == ("finished", 0)


@pytest.mark.slow
def test_a_tracker_that_fails_fails_no_run(tmp_path: Path) -> None:
    made = matrix(tmp_path, BROKEN="1")
    code, _, err = made.run("--log-to", "wandb")
    assert code == 0, err
    wait_for(lambda: "wandb: no network" in log_of(made), seen=lambda: log_of(made))
    assert "the same command goes on later" in log_of(made)
    assert "Traceback" not in log_of(made)


@pytest.mark.slow
def test_a_killed_runner_leaves_nobody_who_follows(tmp_path: Path) -> None:
    made = matrix(tmp_path, FAKE=json.dumps({"0": "wait"}))
    runner = made.start("--log-to", "wandb")
    made.at("wait", 1)
    assert len(following(made)) == 1
    os.kill(runner.pid, signal.SIGKILL)
    runner.communicate()
    wait_for(lambda: "rows told" in log_of(made), seen=lambda: log_of(made))
    wait_for(lambda: not following(made), seen=lambda: following(made))
    assert "Traceback" not in log_of(made)


@pytest.mark.slow
@pytest.mark.parametrize("broken", [False, True], ids=["told", "broken"])
def test_scripts_against_each_other_are_told_as_well(tmp_path: Path, broken: bool) -> None:
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "__init__.py").write_text(CLIENT)
    for name in ("old.py", "new.py"):
        (tmp_path / name).write_bytes((TRAINERS / "fast.py").read_bytes() + f"# {name}\n".encode())
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}",
        "HEARD": str(tmp_path / "heard"),
    }
    if broken:
        environment["BROKEN"] = "1"
    words = [
        "ab",
        "old.py",
        "new.py",
        "-n",
        "1",
        "--gpus-per-run",
        "0",
        "--command",
        "python {script}",
    ]
    words += ["--experiment", "both", "--log-to", "wandb", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "harness", *words],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=DEADLINE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["experiment"] == "both"
    assert "wandb is told what the runs measure" in done.stderr
    log = tmp_path / "results" / "experiments" / "both" / "tracked-wandb.log"
    wait_for(
        lambda: ("no network" if broken else "rows told") in log.read_text(), seen=log.read_text
    )
    if not broken:
        heard = [json.loads(line) for line in (tmp_path / "heard").read_text().splitlines()]
        losses = [row for _, row in heard if "val_loss" in row and "exit_code" not in row]
        endings = [row for _, row in heard if "exit_code" in row]
        assert len({name for name, _ in heard}) == 2
        assert len(losses) == 2 * 5
        assert [row["status"] for row in endings] == ["finished"] * 2


def test_ab_refuses_a_tracker_that_is_none_before_anything_runs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("old.py", "new.py"):
        shutil.copy(TRAINERS / "fast.py", name)
    assert "no tracker 'wanb'" in said(["ab", "old.py", "new.py", "--log-to", "wanb"], capsys)
    assert not Path("results").exists()
