"""The driver's own tool: what it prints, and what it is when it is missing, fails or does not answer."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UserError
from harness.node import nvidia
from harness.node.nvidia import ask_driver, list_gpus, query_gpus

Answer = Callable[..., Any]


@pytest.fixture
def devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a container sees the GPUs of its host: none."""
    monkeypatch.setattr(nvidia, "DEVICES", tmp_path)
    return tmp_path


def tool(monkeypatch: pytest.MonkeyPatch, out: str = "", code: int = 0) -> list[list[str]]:
    """An nvidia-smi that prints this; what it was asked."""
    asked: list[list[str]] = []

    def run(command: list[str], **_: Any) -> Any:
        asked.append(command)
        return subprocess.CompletedProcess(command, code, stdout=out)

    monkeypatch.setattr(subprocess, "run", run)
    return asked


def without(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def run(command: list[str], **_: Any) -> Any:
        raise error

    monkeypatch.setattr(subprocess, "run", run)


def test_what_the_tool_prints_is_read_line_by_line(
    devices: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(monkeypatch, "\nGPU 0: H100 (UUID: a)\n  MIG 1g (UUID: b)\nGPU 1: H100\n")
    assert list_gpus() == ["GPU 0: H100 (UUID: a)", "GPU 1: H100"]
    assert ask_driver("-L")[1] == "  MIG 1g (UUID: b)"
    asked = tool(monkeypatch, "NVIDIA H100, 81559\nNVIDIA H200 , 143771\n")
    assert query_gpus("name", "memory.total") == [
        ["NVIDIA H100", "81559"],
        ["NVIDIA H200", "143771"],
    ]
    assert asked == [
        ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    ]


@pytest.mark.parametrize("error", [FileNotFoundError(), UnicodeDecodeError("utf-8", b"", 0, 1, "")])
def test_a_tool_that_is_missing_tells_nothing(
    error: Exception, devices: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, error)
    assert (ask_driver("-L"), list_gpus(), query_gpus("name")) == ([], [], [])
    (devices / "nvidia0").touch()
    with pytest.raises(UserError, match="nvidia-smi fails on a node with GPUs: restart the driver"):
        list_gpus()


def test_a_tool_that_fails_tells_nothing_but_on_a_node_with_gpus(
    devices: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(monkeypatch, "GPU 0: H100\n", code=9)
    assert (ask_driver("-L"), list_gpus()) == ([], [])
    (devices / "nvidiactl").touch()
    assert list_gpus() == [], "no GPU of the host is shown"
    (devices / "nvidia3").touch()
    with pytest.raises(UserError, match="nvidia-smi fails on a node with GPUs"):
        list_gpus()


def test_a_tool_that_does_not_answer_is_said_where_the_gpus_must_be_known(
    devices: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, subprocess.TimeoutExpired("nvidia-smi", 20))
    assert ask_driver("-L") == []
    with pytest.raises(UserError) as error:
        list_gpus()
    assert str(error.value) == (
        "nvidia-smi does not answer within 20 s, so nobody knows this node's GPUs: restart the "
        "driver or the node, or hide the GPUs with CUDA_VISIBLE_DEVICES="
    )
