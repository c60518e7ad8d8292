"""`ablate run` where it only tells: the plan of --dry-run, the scripts of --print-script, what would cost too much."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.cli.executors import EXECUTORS
from harness.run.spec import PlannedRun
from harness.store.store import Store
from tests.fake_matrix import EXPERIMENT, ROOT
from tests.foreign_bench import bench, write


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an experiment of our own trainer, and one of two scripts."""
    monkeypatch.setenv("ABLATE_DATA", str(ROOT / "data"))
    bench(tmp_path, monkeypatch)
    Path("own.yaml").write_text(f"{EXPERIMENT}seeds: 2\n")
    write(tmp_path, changes={"new": {"file": "new.py"}}, seeds=2)
    for name in ("track_beside", "sending"):
        monkeypatch.setattr(f"harness.cli.run.{name}", lambda *_: pytest.fail("nothing starts"))
    return tmp_path


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Path, str]]:
    """A queue that would be sent a script for every run; what it was asked, run by run."""
    asked: list[tuple[str, Path, str]] = []

    def scripts(runs: Sequence[PlannedRun], results: Path, options: Any) -> list[str]:
        asked.extend((run.spec.run_id, results, options.experiment) for run in runs)
        return [f"script of {run.arm}" for run in runs]

    row = replace(EXECUTORS["slurm"], scripts=scripts, device=lambda options: "cpu")
    monkeypatch.setitem(EXECUTORS, "slurm", row)
    Path("site.yaml").write_text("device: cpu\n")
    return asked


FILES = ("own.yaml", "foreign.yaml")
SLURM = ("--executor", "slurm", "--cluster", "site.yaml", "--print-script")


@pytest.mark.parametrize("file", FILES)
def test_a_dry_run_prints_the_plan_and_starts_nothing(file: str, folder: Path, ablate: Any) -> None:
    said = ablate("run", file, "--dry-run")
    assert said.code == 0, said.err
    assert said.out.count("4 runs of 2 arms") == 1 and "0 done" in said.out
    assert " at a time" not in said.out and not Path("results").exists()


def test_a_dry_run_of_what_costs_too_much_says_so_after_its_plan(folder: Path, ablate: Any) -> None:
    said = ablate("run", "own.yaml", "--dry-run", "--max-gpu-hours", "1e-9")
    assert (said.code, "4 runs of 2 arms" in said.out) == (2, True)
    assert "--max-gpu-hours" in said.err and "4 runs need about" in said.err
    assert ablate("run", "own.yaml", "--dry-run", "--max-gpu-hours", "9").code == 0


@pytest.mark.parametrize(("file", "name"), [("own.yaml", "fake"), ("foreign.yaml", "foreign")])
def test_scripts_are_printed_of_the_runs_that_have_no_result_and_nothing_is_sent(
    file: str,
    name: str,
    folder: Path,
    queue: list[tuple[str, Path, str]],
    ablate: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = ablate("run", file, *SLURM)
    assert said.code == 0, said.err
    lines = said.out.splitlines()
    assert len(lines) == 4 and lines.count("script of baseline") == 2
    assert [asked[1:] for asked in queue] == [(Path("results"), name)] * 4
    done, other = queue[0][0], queue[1][0]
    queue.clear()
    monkeypatch.setattr(Store, "is_done", lambda self, run_id: run_id == done)
    monkeypatch.setattr("harness.run.results.read_result", lambda at: at.name == done or None)
    assert len(ablate("run", file, *SLURM).out.splitlines()) == 3
    names = [asked[0] for asked in queue]
    assert done not in names and other in names
    assert not Path("results").exists()


@pytest.mark.parametrize(("file", "name"), [("own.yaml", "fake"), ("foreign.yaml", "foreign")])
def test_runs_begin_once_trackers_are_told_of_them_and_what_sends_them_goes(
    file: str, name: str, folder: Path, ablate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[Any] = []

    @contextmanager
    def sending(place: str, results: Path) -> Iterator[None]:
        happened.append(("sent to", place, results))
        yield
        happened.append("sent")

    monkeypatch.setattr("harness.cli.run.asked_trackers", lambda named: [*named, "another"])
    monkeypatch.setattr("harness.cli.run.track_beside", lambda *told: happened.append(told))
    monkeypatch.setattr("harness.cli.run.sending", sending)
    for made in ("run_parts", "run_foreign_experiment"):
        monkeypatch.setattr(f"harness.cli.run.{made}", lambda *_: happened.append("runs"))
    assert ablate("run", file, "--log-to", "mlflow", "--push", "there").code == 0
    assert happened == [
        (["mlflow", "another"], name, Path("results")),
        *(("sent to", "there", Path("results")), "runs", "sent"),
    ]
    assert (folder / "there" / "runs").is_dir(), "a place that can be written"
