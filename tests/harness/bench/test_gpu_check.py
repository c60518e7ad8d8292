"""The acceptance of a GPU machine, in its dry form: it runs on a bare Python, tells every way a check ends, and draws a page."""

import json
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import asdict, replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.bench import gpu_check, kernel_check, machine_checks
from harness.bench.breakdown import kernel_time
from harness.bench.gather_check import gather
from harness.bench.gpu_check import CheckRow, run_check, start, write
from harness.bench.kernel_check import attention, loss_bound, losses, row, small, with_gradients
from harness.bench.machine_checks import Check, Place, check_runner, check_training
from harness.bench.steps import resolve
from harness.config.run import with_fields
from tests.fake_matrix import DEADLINE_S

ROOT = Path(__file__).resolve().parents[3]
BARE = "import sys; sys.modules.update(dict.fromkeys({absent!r}))\n"  # None there: neither found nor importable
ABSENT = {
    "pydantic",
    "pydantic_core",
    "pandas",
    "rich",
    "typer",
    "scipy",
    "matplotlib",
    "jinja2",
    "psutil",
    "submitit",
}


def bare(code: str, folder: Path) -> str:
    """Run Python where only torch, numpy, PyYAML and the standard library can be imported."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", BARE.replace("{absent!r}", repr(ABSENT)) + code]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_it_trains_where_only_torch_numpy_and_yaml_are_installed(tmp_path: Path) -> None:
    arguments = ["--dry-run", "--one", "training", "r18", "--folder", str(tmp_path)]
    figures = json.loads(
        bare(
            f"from harness.bench.gpu_check import main\nmain({arguments!r})", tmp_path
        ).splitlines()[-1]
    )
    assert figures["passed"] and figures["last_loss"] < figures["bound"] < figures["first_loss"]
    bare(
        "import harness.config.presets, harness.training.core, harness.training.train, harness.corpora.index, harness.bench.parity",
        tmp_path,
    )


def test_without_a_gpu_it_says_so_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for arguments, words in (
        ([], "no CUDA device here"),
        (["--dry-run", "--presets", "r88"], "unknown record 'r88'"),
    ):
        with pytest.raises(SystemExit) as end:
            gpu_check.main(arguments)
        out, err = capsys.readouterr()
        assert end.value.code == 2 and words in err and err.count("\n") == 1 and not out


@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_attention_kernels_agree_and_a_wrong_one_would_be_told() -> None:
    rows = list(attention("cpu"))
    assert all(r.passed for r in rows)
    names = ("output", "gradient of q", "gradient of k", "gradient of v")
    assert [r.what for r in rows] == [
        *(
            f"flex against dense, window {window}, output"
            for window in (None, "token", "clipped", "block")
        ),
        *(f"sdpa against math, {name}" for name in names),
    ]
    x = torch.ones(3)
    assert not row("wrong", x * 1.1, x, 0.03).passed


def test_each_mask_is_made_of_documents_and_a_window_for_both_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    masks: list[tuple[str, str | None, str, int]] = []
    used: list[tuple[str, Any]] = []

    def make_mask(
        kernel: str, docs: torch.Tensor, window: torch.Tensor, kind: str | None, builder: str
    ) -> str:
        assert docs.bincount().tolist() == [85, 85, 85, 1]
        masks.append((kernel, kind, builder, int(window)))
        return f"{kernel}, {kind}"

    def kernel(name: str) -> Any:
        def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Any) -> torch.Tensor:
            assert {t.shape for t in (q, k, v)} == {(1, 2, 256, 128)}
            assert not torch.equal(q, k) and not torch.equal(k, v)
            used.append((name, mask))
            return q + 2 * k + (1.02 if name in ("flex", "sdpa") else 1) * 3 * v

        return run

    monkeypatch.setattr(kernel_check, "make_mask", make_mask)
    kernels = {name: kernel(name) for name in ("dense", "flex", "math", "sdpa")}
    monkeypatch.setattr(kernel_check, "KERNELS", kernels)
    rows = list(attention("cpu"))
    kinds = [(None, "traced", 192), ("token", "traced", 192)]
    kinds += [("clipped", "partial", 192), ("block", "partial_and_full", 2)]
    expected = [(n, kind, *how) for kind, *how in kinds for n in ("flex", "dense")]
    assert masks == expected
    of_masks = [(n, f"{n}, {kind}") for kind, *_ in kinds for n in ("dense", "flex")]
    assert used == [*of_masks, ("math", None), ("sdpa", None)]
    assert {row.bound for row in rows} == {0.03} and all(row.passed for row in rows)
    found = [row.error for row in rows]
    assert found[5:7] == [0.0, 0.0] and found[7] == pytest.approx(0.02, rel=1e-3)
    assert all(0.005 < error < 0.03 for error in found[:5])


def test_gradients_are_of_the_product_with_fixed_numbers() -> None:
    tensors = [torch.full((2, 500), float(n)) for n in (1, 2, 3)]

    def kernel(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: int) -> torch.Tensor:
        return mask * (2 * q + 3 * k * k + 5 * v)

    y, of_q, of_k, of_v = with_gradients(kernel, tensors, 7)
    assert torch.equal(y, torch.full((2, 500), 7.0 * (2 + 12 + 15))) and not y.requires_grad
    weights = of_q / 14
    assert torch.allclose(of_k, 7 * 12 * weights) and torch.allclose(of_v, 35 * weights)
    assert 0.9 < weights.std() < 1.1 and not torch.equal(weights[0], weights[1])
    again = with_gradients(kernel, tensors, 7)
    assert all(map(torch.equal, again, (y, of_q, of_k, of_v)))
    assert not any(t.requires_grad for t in tensors)


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["r08", "r18"])
def test_roundings_stay_within_half_of_the_bound_at_other_seeds_too(preset: str) -> None:
    config, bound = with_fields(small(preset, "cpu"), {"system.compile": "off"}), loss_bound(preset)
    for seed in (1, 2):
        plain = losses(with_fields(config, {"precision.mode": "fp32"}), "cpu", seed=seed)
        record = losses(with_fields(config, {"precision.mode": "record"}), "cpu", seed=seed)
        assert row("record", record, plain, bound / 2).passed
        if preset == "r08":
            other = losses(with_fields(config, {"model.activation": "gelu"}), "cpu", seed=seed)
            assert not row("another network", other, plain, bound).passed


@pytest.mark.slow
def test_a_training_that_learns_nothing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(device="cpu", dry=True, folder=tmp_path)
    still = place.settings(optim__embed_lr=1e-9, optim__head_lr=1e-9, optim__muon_lr=1e-9)
    monkeypatch.setattr(machine_checks, "TINY", still | machine_checks.TINY)
    assert not check_training(place, "r08")["passed"]


def test_every_way_a_check_ends_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Place(device="cpu", dry=True, folder=tmp_path)
    assert run_check("training", "r08", place, limit_s=99, left_s=5).status == "not run"

    def process(code: int, out: str, err: str) -> None:
        monkeypatch.setattr(
            subprocess,
            "run",
            lambda *a, **k: SimpleNamespace(returncode=code, stdout=out, stderr=err),
        )

    process(1, "", "Traceback\nRuntimeError: no kernel")
    assert run_check("training", "r08", place, limit_s=99).reason == "RuntimeError: no kernel"
    assert capsys.readouterr() == ("", "Traceback\nRuntimeError: no kernel\n")
    for figures, status in (
        ({"passed": False}, "failed"),
        ({"a": 1}, "passed"),
        ({"skipped": "one GPU"}, "not run"),
    ):
        process(0, "something printed\n" + json.dumps(figures), "")
        assert run_check("training", "r08", place, limit_s=99).status == status

    def late(*a: object, timeout: float, **k: object) -> None:
        raise subprocess.TimeoutExpired("x", timeout)

    monkeypatch.setattr(subprocess, "run", late)
    assert run_check("training", "r08", place, limit_s=99).reason == "took more than 99 s"
    cut = run_check("training", "r08", place, limit_s=99, left_s=50)  # by the end of all time
    assert (cut.status, cut.reason) == ("not run", "no time left")


def test_one_check_that_fails_fails_the_machine_and_the_page_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = iter(["passed", "error"])
    figures = {"rows": [{"what": "x", "error": 0.5}], "none": None}

    def run_check(name: str, preset: str, *_: object, **__: object) -> CheckRow:
        return CheckRow(
            check=name, preset=preset, status=next(ends), seconds=1.0, reason="<b>", figures=figures
        )

    monkeypatch.setattr(gpu_check, "run_check", run_check)
    monkeypatch.setattr(
        gpu_check, "CHECKS", {"one": Check(run=check_training, limit_s=9, which="all")}
    )
    result = gpu_check.check_machine(["r08", "r18"], Place(device="cpu", dry=True, folder=tmp_path))
    assert not result.passed and len(result.checks) == 2
    for _ in range(2):  # into the same folder, however deep
        write(result, tmp_path / "deep" / "out")
    shutil.move(tmp_path / "deep" / "out", tmp_path)
    assert json.loads((tmp_path / "out" / "gpu-check.json").read_text()) == asdict(result)
    page = (tmp_path / "out" / "gpu-check.html").read_text()
    HTMLParser().feed(page)
    assert "&lt;b&gt;" in page and "dry run" in page and "http" not in page and "0.5" in page


def test_what_there_was_no_time_for_is_an_exception_and_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = {"quick": "passed", "gather": "not run"}
    figures: dict[str, object] = {"skipped": "needs more than one GPU"}

    def run_check(name: str, preset: str, *_: object, left_s: float, **__: object) -> CheckRow:
        if left_s < gpu_check.LEAST_S:
            return CheckRow(check=name, preset=preset, status="not run", reason="no time left")
        found = figures if name == "gather" else {}
        return CheckRow(check=name, preset=preset, status=ends[name], figures=found)

    monkeypatch.setattr(gpu_check, "run_check", run_check)
    check = Check(run=check_training, limit_s=9, which="first")
    monkeypatch.setattr(gpu_check, "CHECKS", {"quick": check, "gather": check})
    place = Place(device="cpu", dry=True, folder=tmp_path)
    whole = gpu_check.check_machine(["r08"], place)
    assert (whole.passed, whole.verdict) == (True, "accepted")
    cut = gpu_check.check_machine(["r08"], place, total_s=5)
    said = "accepted, except: quick r08 (no time left), gather r08 (no time left)"
    assert (cut.passed, cut.verdict) == (True, said)
    write(cut, tmp_path / "out")
    assert said in (tmp_path / "out" / "gpu-check.html").read_text()
    ends["quick"] = "failed"
    assert gpu_check.check_machine(["r08"], place).verdict == "FAILED"


def test_every_check_has_the_time_that_its_limit_says() -> None:
    """Each may take all of its own, and none is left out for it."""
    presets = ["r08", "r18", "r58"]
    total, spent = gpu_check.planned_s(presets, dry=False), 0.0
    limits = [c.limit_s for c in gpu_check.CHECKS.values() if c.beside]
    spent += max(limits)
    for check in gpu_check.CHECKS.values():
        for preset in [] if check.beside else check.presets(presets):
            assert total - spent >= check.limit_of(preset)
            spent += check.limit_of(preset)
    assert spent == total


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["r08", "r18", "r58"])
def test_the_runner_trains_twice_in_one_group_and_again_after_a_killed_rank(
    tmp_path: Path, preset: str
) -> None:
    figures = check_runner(Place(device="cpu", dry=True, folder=tmp_path), preset)
    assert figures["passed"] and figures["world"] == 2 and figures["groups"] == 1
    assert sorted(figures["ends"]) == ["failed finished", "finished", "finished", "finished"]


def test_a_second_start_is_held_against_the_first() -> None:
    """Without the step that ends it: 22 s in which a step takes 11 are a start of 11."""
    first, second, slower = (
        CheckRow(
            check=check,
            preset="r08",
            status="passed",
            figures={"warmup_s": warmup_s, "step_ms_median": step_ms},
        )
        for check, warmup_s, step_ms in (
            ("synthetic", 51.0, 11_000.0),
            ("real", 20.0, 11_000.0),
            ("real", 12.0, 1_000.0),
        )
    )
    assert start([first, second], "r08", dry=False).status == "passed"  # type: ignore[union-attr]
    assert start([first, slower], "r08", dry=False).status == "failed"  # type: ignore[union-attr]
    share = start([first, second], "r08", dry=False).figures["share"]  # type: ignore[union-attr]
    assert share == pytest.approx(9 / 40)
    assert start([first], "r08", dry=False) is None
    assert start([first, second], "r08", dry=True) is None
    others = [replace(row, preset=preset) for row in (first, slower) for preset in ("r04", "r18")]
    among_others = start([first, second, *others], "r08", dry=False)
    assert among_others is not None and among_others.figures["share"] == share
    assert start(others, "r08", dry=False) is None
    less_than_a_step = {"warmup_s": 5.0, "step_ms_median": 11_000.0}
    at_once = start([first, replace(second, figures=less_than_a_step)], "r08", dry=False)
    assert at_once is not None and (at_once.figures["second_s"], at_once.status) == (0.0, "passed")
    assert start([replace(first, figures=less_than_a_step), second], "r08", dry=False) is None
    quarter = replace(second, figures={"warmup_s": 10.0, "step_ms_median": 0.0})
    at_the_bound = start([first, quarter], "r08", dry=False)
    assert at_the_bound is not None and at_the_bound.status == "failed"
    assert at_the_bound.figures == {"first_s": 40.0, "second_s": 10.0, "share": 0.25, "bound": 0.25}
    assert (at_the_bound.check, at_the_bound.preset) == ("warm start", "r08")


@pytest.mark.parametrize("dry", [False, True])
def test_every_preset_whose_starts_were_timed_has_a_row_of_its_second(
    dry: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_check(name: str, preset: str, *_: object, **__: object) -> CheckRow:
        warmup_s = {"synthetic": 40.0, "real": 10.0 if preset == "r18" else 8.0}[name]
        figures = {"warmup_s": warmup_s, "step_ms_median": 0.0}
        return CheckRow(check=name, preset=preset, status="passed", figures=figures)

    monkeypatch.setattr(gpu_check, "run_check", run_check)
    check = Check(run=check_training, limit_s=9, which="all")
    monkeypatch.setattr(gpu_check, "CHECKS", {"synthetic": check, "real": check})
    monkeypatch.setattr(gpu_check, "environment", lambda device: {"device": device})
    presets, device = ["r08", "r18"], "cpu" if dry else "cuda"
    result = gpu_check.check_machine(presets, Place(device=device, dry=dry, folder=tmp_path))
    starts = [(name, preset, "passed") for name in ("synthetic", "real") for preset in presets]
    second = [("warm start", "r08", "passed"), ("warm start", "r18", "failed")]
    ends = [(row.check, row.preset, row.status) for row in result.checks]
    assert ends == starts + ([] if dry else second)
    assert (result.passed, result.dry_run) == (dry, dry)
    assert (result.presets, result.environment) == (presets, {"device": device})


def test_checks_that_time_nothing_run_side_by_side_and_alone_if_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together, at_work, told = threading.Barrier(2), [], []

    def run_check(name: str, preset: str, *_: object, **__: object) -> CheckRow:
        at_work.append(name)
        first = (name, preset) not in told
        if name == "beside" and first:
            together.wait(timeout=DEADLINE_S)  # for the other one
        else:
            assert len(at_work) == 1
        told.append((name, preset))
        at_work.remove(name)
        status = "error" if (name, preset) == ("beside", "r18") and first else "passed"
        return CheckRow(check=name, preset=preset, status=status, seconds=1.0)

    monkeypatch.setattr(gpu_check, "run_check", run_check)
    check = Check(run=check_training, limit_s=9, which="all")
    monkeypatch.setattr(
        gpu_check, "CHECKS", {"beside": replace(check, beside=True), "timed": check}
    )
    result = gpu_check.check_machine(["r08", "r18"], Place(device="cpu", dry=True, folder=tmp_path))
    assert result.passed
    assert sorted(told[:2]) == [("beside", "r08"), ("beside", "r18")]
    assert told[2:] == [("beside", "r18"), ("timed", "r08"), ("timed", "r18")]
    assert [(r.check, r.preset) for r in result.checks] == [*sorted(told[:2]), *told[3:]]


def launch(
    name: str, within: SimpleNamespace | None, kernel: str, duration: int, *, range_: bool = False
) -> SimpleNamespace:
    kernels = [SimpleNamespace(name=kernel, duration=duration)]
    return SimpleNamespace(name=name, cpu_parent=within, kernels=kernels, is_user_annotation=range_)


def test_kernels_belong_to_the_part_that_launched_them() -> None:
    gradients = launch("bench::gradients", None, "bench::gradients", 99, range_=True)
    library = launch("aten::mm", gradients, "gemm", 5)
    compiled = launch("triton_fused_norm", gradients, "triton_fused_norm", 7)
    stray = launch("aten::add", None, "add", 1)
    muon = launch("Optimizer.step#Muon.step", None, "mul", 3, range_=True)
    # seen on a GPU: what the profiler waited for has the number of a backward pass's product
    waited = launch("Command Buffer Full", gradients, "gemm", 5)
    found = list(kernel_time([gradients, library, waited, compiled, stray, muon]))
    assert found == [("forward", 5), ("forward", 7), ("other", 1), ("optimizer Muon", 3)]


@pytest.mark.slow
def test_the_gather_is_timed_on_two_processes() -> None:
    config, _ = resolve("r18", scale="tiny", device="cpu", settings={"model.n_layer": 6})
    found = gather(config, world=2, device="cpu", rounds=6)
    assert found.world == 2 and 0 < found.low <= found.sync_over_async <= found.high


@pytest.mark.parametrize(("last", "passed"), [(0.5, True), (0.7, False), (float("nan"), False)])
def test_a_training_passes_where_its_loss_falls_and_shows_its_way(
    last: float, passed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_checks, "TRAINED_STEPS", 200)

    def update(step: int, batches: object) -> torch.Tensor:
        return torch.tensor([1.0 + step / 1000 if step < 190 else last])

    candidate = SimpleNamespace(core=SimpleNamespace(update=update), batches=lambda: [])
    monkeypatch.setattr(Place, "candidate", lambda *_, **__: candidate)
    monkeypatch.setattr(Place, "real", lambda *_: None)
    times = iter([1000.0, 1030.5])
    monkeypatch.setattr(machine_checks, "time", SimpleNamespace(perf_counter=lambda: next(times)))
    figures = check_training(Place(device="cpu", dry=False, folder=tmp_path), "r08")
    assert figures["seconds_training"] == 30.5
    assert (figures["passed"], figures["first_loss"], figures["bound"]) == (passed, 1.0, 0.6)
    assert figures["last_loss"] == pytest.approx(last, nan_ok=True)  # the mean of the last ten
    shown = [1.0 + step / 1000 for step in range(0, 190, 10)]
    assert figures["losses"] == pytest.approx([*shown, last], nan_ok=True)
