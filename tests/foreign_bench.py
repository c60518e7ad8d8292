"""What the tests of foreign trainers share: a folder with two fast scripts, calls of the command line, small repositories."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.__main__ import main
from harness.foreign import trainer as trainer_module
from reports.inputs.load import load
from tests.fake_matrix import clock_from

TRAINERS = Path(__file__).resolve().parent / "trainers"
CPU = ("--gpus-per-run", "0", "--command", "python {script}", "--no-report")


def ablate(*arguments: object) -> int:
    """The exit code of a command."""
    with pytest.raises(SystemExit) as ended:
        main([str(a) for a in arguments])
    return int(ended.value.code or 0)


def bench(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with two fast scripts: the new one is better by 0.02."""
    monkeypatch.chdir(folder)
    shutil.copy(TRAINERS / "fast.py", "old.py")
    Path("new.py").write_text(
        Path("old.py").read_text().replace('"BETTER", "0"', '"BETTER", "0.02"')
    )
    return folder


def write(folder: Path, **experiment: Any) -> Path:
    """An experiment file whose trainer is old.py."""
    path = folder / "foreign.yaml"
    trainer = {
        "command": "python {script}",
        "file": "old.py",
        "gpus": 0,
        **experiment.pop("trainer", {}),
    }
    trainer = {k: v for k, v in trainer.items() if v is not None}
    path.write_text(
        yaml.safe_dump(
            {"name": "foreign", "trainer": trainer, "seeds": 1, **experiment}, sort_keys=False
        )
    )
    return path


def statuses(name: str) -> dict[str, str]:
    """arm -> status of an experiment with one run each."""
    runs = load(name).runs
    return dict(zip(runs["arm"], runs["status"], strict=True))


def limits_from(monkeypatch: pytest.MonkeyPatch, *marks: Path) -> None:
    """The limits of runs in this process count from when all these files are there: what comes before cannot be too slow."""
    monkeypatch.setattr(
        trainer_module, "time", clock_from(lambda: all(mark.exists() for mark in marks))
    )


def commit(branch: str, *paths: str) -> None:
    """Commit what lies in the working directory on a branch; the first call makes the repository."""
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    started = Path(".git").is_dir() or subprocess.run(["git", "init", "-q"], check=True)
    assert started
    for arguments in (
        ["checkout", "-q", "-B", branch],
        ["add", *paths],
        ["commit", "-q", "-m", branch],
    ):
        subprocess.run(["git", *identity, *arguments], check=True, capture_output=True)
