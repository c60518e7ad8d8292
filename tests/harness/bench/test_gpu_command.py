"""The acceptance's command: what it is told, how each check is started and ends, and with which code it leaves."""

import json
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.bench import gpu_check
from harness.bench.gpu_check import Session, environment, planned_s, run_check
from harness.bench.gpu_page import CheckRow, GpuCheck
from harness.bench.machine_checks import Check, Place, check_attention


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the machine is asked for; its verdict is what `passed` says last."""
    told: list[tuple[Any, ...]] = []

    def check_machine(presets: list[str], place: Place, total_s: float | None) -> GpuCheck:
        told.append((presets, place.device, place.dry, place.folder.is_dir(), total_s))
        return GpuCheck(
            dry_run=place.dry, passed=presets != ["r18"], excepted=[], wall_s=12.4,
            environment={}, presets=presets, checks=[],
        )  # fmt: skip

    monkeypatch.setattr(gpu_check, "check_machine", check_machine)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    return told


@pytest.mark.parametrize(
    ("arguments", "expected", "code"),
    [
        ([], (["r08", "r18"], "cuda", False, True, None), 0),
        (["--presets", "r18", "--total", "90"], (["r18"], "cuda", False, True, 90.0), 1),
        (["--dry-run", "--presets", "r08"], (["r08"], "cpu", True, True, None), 0),
    ],
)
def test_what_is_typed_is_asked_and_its_verdict_is_the_exit_code(
    arguments: list[str],
    expected: tuple[Any, ...],
    code: int,
    asked: list[tuple[Any, ...]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for options, folder in (([], "results/gpu-check"), (["-o", "mine"], "mine")):
        with pytest.raises(SystemExit) as ended:
            gpu_check.main([*arguments, *options])
        said = capsys.readouterr().out
        verdict = "FAILED" if code else "accepted"
        assert (ended.value.code, said) == (code, f"{verdict} in 12 s: {folder}/gpu-check.html\n")
        assert {p.name for p in Path(folder).iterdir()} == {"gpu-check.html", "gpu-check.json"}
    assert asked == [expected, expected]


def test_the_file_is_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", "--dry-run", "--presets", "r88"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(gpu_check.__file__, run_name="__main__")
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("gpu-check: unknown record 'r88'")


def test_one_check_prints_its_figures_as_json(
    asked: list[tuple[Any, ...]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(place: Place, preset: str) -> dict[str, Any]:
        return {"device": place.device, "dry": place.dry, "folder": str(place.folder), "of": preset}

    monkeypatch.setattr(gpu_check, "CHECKS", {"x": Check(run=run, limit_s=1, which="all")})
    gpu_check.main(["--dry-run", "--one", "x", "r12", "--folder", str(tmp_path)])
    figures = json.loads(capsys.readouterr().out)
    assert figures == {"device": "cpu", "dry": True, "folder": str(tmp_path), "of": "r12"}
    assert asked == []


def test_a_check_is_a_process_with_a_limit_and_kernels_of_its_preset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[Any, ...]] = []

    def run(command: list[str], **how: Any) -> SimpleNamespace:
        told.append((command, how))
        out = 'noise\nand more\n{"a": 1, "passed": true}\n'
        return SimpleNamespace(returncode=0, stdout=out, stderr="")

    times = iter([100.0, 107.5] * 4)
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(gpu_check.time, "perf_counter", lambda: next(times))
    for dry in (False, True):
        place = Place(device="cpu" if dry else "cuda", dry=dry, folder=tmp_path)
        row = run_check("training", "r08", place, limit_s=99, left_s=60 + 40 * dry)
        assert row == CheckRow(
            check="training", preset="r08", status="passed", seconds=7.5,
            figures={"a": 1, "passed": True},
        )  # fmt: skip
    (command, how), (dry_command, dry_how) = told
    module = [sys.executable, "-m", "harness.bench.gpu_check"]
    assert command == [*module, "--one", "training", "r08", "--folder", str(tmp_path)]
    assert dry_command == [*command, "--dry-run"]
    assert (how["timeout"], dry_how["timeout"]) == (60, 99)
    assert how["capture_output"] and how["text"]
    assert how["env"]["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "kernels" / "r08")
    assert (Path(how["cwd"]) / "harness" / "bench" / "gpu_check.py").is_file()


def test_how_long_a_check_took_is_told_however_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*_: object, timeout: float, **__: object) -> None:
        raise subprocess.TimeoutExpired("x", timeout)

    place = Place(device="cpu", dry=True, folder=tmp_path)
    monkeypatch.setattr(gpu_check.time, "perf_counter", iter([10.0, 12.5] * 3).__next__)
    monkeypatch.setattr(subprocess, "run", late)
    assert run_check("x", "r08", place, limit_s=99).seconds == 2.5
    assert run_check("x", "r08", place, limit_s=99, left_s=98).seconds == 2.5
    failed = SimpleNamespace(returncode=1, stdout="", stderr="")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    row = run_check("x", "r08", place, limit_s=99)
    assert (row.seconds, row.status, row.reason) == (2.5, "error", "no word")
    failed.stderr = "x" * 600
    monkeypatch.setattr(gpu_check.time, "perf_counter", lambda: 0.0)
    assert run_check("x", "r08", place, limit_s=99).reason == "x" * 500
    assert run_check("x", "r08", place, limit_s=99, left_s=9.9).status == "not run"
    assert run_check("x", "r08", place, limit_s=99, left_s=10.0).status == "error"


def test_the_machine_is_described_by_its_versions_and_cards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = environment("cpu")
    assert here["torch"] == torch.__version__ and here["python"] == sys.version.split()[0]
    assert (here["gpus"], here["cudnn"], here["memory_gib"]) == ([], None, None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda i: f"Card {i}")
    gib = [80, 40]
    monkeypatch.setattr(
        torch.cuda,
        "get_device_properties",
        lambda i: SimpleNamespace(total_memory=gib[i] * 2**30),
    )
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 9)
    there = environment("cuda")
    assert (there["gpus"], there["cudnn"], there["memory_gib"]) == (["Card 0", "Card 1"], 9, 80.0)


def test_the_time_of_all_is_the_sum_of_the_limits_those_side_by_side_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check(limit_s: float, which: str, *, beside: bool = False) -> Check:
        return Check(run=check_attention, limit_s=limit_s, which=which, beside=beside)

    checks = {
        "a": check(100, "all", beside=True),
        "b": check(70, "first", beside=True),
        "c": check(10, "all"),
        "d": check(5, "first"),
        "e": check(1, "last"),
    }
    monkeypatch.setattr(gpu_check, "CHECKS", checks)
    three = ["r08", "r12", "r18"]
    assert planned_s(three, dry=False) == 100 + 30 + 5 + 1
    assert planned_s(three, dry=True) == 3 * 136
    assert planned_s(["r08", "r18"], dry=False) == sum(c.limit_s for c in checks.values()) - 60
    monkeypatch.setattr(gpu_check, "CHECKS", {"d": checks["d"]})
    assert planned_s(three, dry=False) == 5


def test_each_check_has_its_own_limit_three_times_as_long_in_a_dry_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[tuple[str, str, float, float]] = []

    def run(name: str, preset: str, place: Place, *, limit_s: float, left_s: float) -> CheckRow:
        told.append((name, preset, limit_s, left_s))
        return CheckRow(check=name, preset=preset, status="failed", seconds=3.25, reason="why")

    check = Check(run=check_attention, limit_s=40, which="all")
    monkeypatch.setattr(gpu_check, "CHECKS", {"x": check})
    monkeypatch.setattr(gpu_check, "run_check", run)
    monkeypatch.setattr(gpu_check.time, "perf_counter", iter([5.0, 7.0, 9.0, 15.0]).__next__)
    result = gpu_check.check_machine(
        ["r08", "r18"], Place(device="cpu", dry=True, folder=tmp_path), total_s=100
    )
    assert told == [("x", "r08", 120, 98.0), ("x", "r18", 120, 96.0)]
    assert (result.passed, result.wall_s, result.verdict) == (False, 10.0, "FAILED")
    first, second = capsys.readouterr().out.splitlines()
    assert first == "x          r08  failed      3.2 s  why"
    assert second.split()[1] == "r18"
    monkeypatch.setattr(gpu_check.time, "perf_counter", lambda: 0.0)
    place = Place(device="cpu", dry=False, folder=tmp_path)
    Session(place=place, began_s=0.0, total_s=50.0).run("x", "r08")
    assert told[-1] == ("x", "r08", 40, 50.0)
