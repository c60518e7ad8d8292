"""What the doctor finds on a machine with everything, and what it advises on one with nothing."""

import subprocess
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

from harness.bench import doctor
from harness.bench.doctor import examine

PRINTED = {"g++": "g++ 13.2\nno warranty\n", "sinfo": "slurm 23.11\n"}


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[int, str]]:
    """Program -> how it exits and what it prints; what is not named is not there."""
    there: dict[str, tuple[int, str]] = {}

    def run(command: tuple[str, ...], **how: object) -> SimpleNamespace:
        assert command[1:] == ("--version",)
        assert how == {"capture_output": True, "text": True, "timeout": 20, "check": False}
        code, out = there[command[0]]
        if code < 0:
            raise subprocess.TimeoutExpired(command, 20)
        return SimpleNamespace(returncode=code, stdout=out)

    monkeypatch.setattr(doctor.shutil, "which", lambda name: name if name in there else None)
    monkeypatch.setattr(doctor.subprocess, "run", run)
    monkeypatch.setattr(doctor, "query_gpus", lambda *fields: [])
    monkeypatch.setattr(doctor, "list_corpora", lambda: [])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    return there


def found() -> dict[str, str]:
    return {row.what: row.found for row in examine() if row.ok}


def advice() -> dict[str, str | None]:
    return {row.what: row.advice for row in examine() if not row.ok}


def test_a_machine_with_everything_lacks_nothing(
    programs: dict[str, tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    programs |= {name: (0, out) for name, out in PRINTED.items()}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda i: f"Card {i}")
    monkeypatch.setattr(torch.cuda, "nccl", SimpleNamespace(version=lambda: (2, 27, 3)))
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 91002)
    monkeypatch.setattr(doctor, "query_gpus", lambda *fields: [["575.57"], ["575.57"]])
    monkeypatch.setattr(doctor.platform, "python_version", lambda: "3.14.1")
    monkeypatch.setattr(doctor.os, "sched_getaffinity", lambda pid: {0, 3, 5}, raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    corpora = [
        SimpleNamespace(name="stdlib", place="/data/stdlib", missing=None),
        SimpleNamespace(name="mine", place="/data/mine", missing="prepare it"),
    ]
    monkeypatch.setattr(doctor, "list_corpora", lambda: corpora)
    assert found() == {
        "python": "3.14.1",
        "torch": torch.__version__,
        "cpu": "3 processors, 2 threads",
        "gpus": "8 x Card 0",
        "driver": "575.57",
        "cudnn attention": "cuDNN 91002",
        "flex attention": "available",
        "compiler": "g++ 13.2",
        "nccl": "2.27.3",
        "slurm": "slurm 23.11",
        "corpus stdlib": "/data/stdlib",
    }
    assert advice() == {"corpus mine": "prepare it"}
    rows = {row.what: row for row in examine()}
    assert rows["corpus mine"].found == "none" and rows["gpus"].advice is None


def test_a_machine_without_gpus_or_tools_says_what_to_install(
    programs: dict[str, tuple[int, str]],
    monkeypatch: pytest.MonkeyPatch,
    kept_line: Callable[[str], None],
) -> None:
    monkeypatch.setattr(doctor.sys, "version_info", (3, 10))
    monkeypatch.setattr(torch.version, "cuda", None)
    told = advice()
    assert [*told] == [
        *("python", "gpus", "driver", "cudnn attention", "flex attention"),
        *("compiler", "nccl", "slurm"),
    ]
    assert "3.11" in str(told["python"]) and "built without CUDA" in str(told["gpus"])
    kept_line("\n".join(f"{what}: {words}" for what, words in told.items()))
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(doctor.sys, "version_info", (3, 11))
    told = advice()
    assert "python" not in told and "built without CUDA" not in str(told["gpus"])


@pytest.mark.parametrize("ended", [(1, "g++ 13.2"), (0, " \n"), (-1, "")])
def test_a_program_that_fails_says_nothing_or_hangs_is_not_there(
    programs: dict[str, tuple[int, str]], ended: tuple[int, str]
) -> None:
    programs["g++"] = ended
    assert "compiler" in advice()
    programs["clang++"] = (0, "\nclang 19\n")
    assert found()["compiler"] == "clang 19"
