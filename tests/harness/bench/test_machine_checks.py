"""The checks of a GPU machine: what each asks for, and what it makes of the answers. Nothing is trained here."""

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.bench import kernel_check, machine_checks, runner_check
from harness.bench.breakdown import StepPart
from harness.bench.gather_check import GatherFigures
from harness.bench.kernel_check import loss_bound, networks, row, small
from harness.bench.machine_checks import (
    CHECKS,
    Check,
    Place,
    check_attention,
    check_backends,
    check_gather,
    check_network,
    check_real,
    check_runner,
    check_synthetic,
    check_training,
)
from harness.bench.runner_check import RunnerFigures, kill_a_rank, pids, runner, start, wait
from harness.bench.steps import Text, TimeRatio, resolve
from harness.errors import UserError
from harness.experiment.budgets import at_budget
from harness.run.attempts import AttemptRow, note_attempt
from tests.fake_matrix import DEADLINE_S

TEXT = Text(name="stdlib", shards=[], vocab_size=257, separator=256)


@dataclass(frozen=True)
class Answer:
    """Stands for a record of figures."""

    seconds: float = 1.5


@pytest.fixture
def dry(tmp_path: Path) -> Place:
    return Place(device="cpu", dry=True, folder=tmp_path)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What was asked of candidates and measures, which do nothing."""
    told: list[tuple[Any, ...]] = []

    def candidate(place: Place, preset: str, text: Text, **more: Any) -> str:
        told.append(("candidate", preset, text.vocab_size, more))
        return f"candidate {len(told)}"

    def measure(one: str, *, steps: int, warmup: int) -> Answer:
        told.append(("measure", one, steps, warmup))
        return Answer()

    monkeypatch.setattr(Place, "candidate", candidate)
    monkeypatch.setattr(Place, "real", lambda place: TEXT)
    monkeypatch.setattr(machine_checks, "measure", measure)
    return told


def test_a_dry_place_is_tiny_and_a_real_one_as_the_records_are(tmp_path: Path) -> None:
    dry = Place(device="cpu", dry=True, folder=tmp_path)
    real = Place(device="cuda", dry=False, folder=tmp_path)
    assert (dry.scale, dry.steps, real.scale, real.steps) == ("tiny", 2, "gpt2", 5)
    assert real.settings(data__ranks=1) == {
        "system.coordinate_descent": False,
        "timing.protocol": "warmup-restore",
        "data.ranks": 1,
    }
    assert dry.settings() == real.settings() | {
        "data.ranks": 2,
        "data.batch_tokens": 512,
        "data.seq_len": 128,
        "data.micro_tokens": 128,
    }
    assert dry.settings(model__n_layer=4)["model.n_layer"] == 4
    config = dry.config("r08", optim__muon_lr=0.5)
    assert (config.data.seq_len, config.optim.muon_lr) == (128, 0.5)
    assert config.system.coordinate_descent is False


def test_real_text_is_in_a_vocabulary_of_the_records_size_but_where_all_is_tiny(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = SimpleNamespace(train=["shard"], vocab_size=4096, separator=7)
    folders: list[Path] = []
    monkeypatch.setattr(
        machine_checks, "prepare", lambda name, folder: folders.append(folder) or corpus
    )
    for dry, vocabulary in ((True, 4096), (False, 50257)):
        text = Place(device="cpu", dry=dry, folder=tmp_path).real()
        assert (text.name, text.shards, text.vocab_size, text.separator) == (
            *("stdlib", ["shard"], vocabulary),
            7,
        )
    assert folders == [tmp_path, tmp_path]


def test_the_first_start_is_on_random_tokens_and_the_second_on_real_ones(
    dry: Place, asked: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths: list[tuple[int, tuple[int, int]]] = []

    class Synthetic:
        def __init__(self, n_tokens: int, vocabulary: tuple[int, int]) -> None:
            lengths.append((n_tokens, vocabulary))

        def __enter__(self) -> Text:
            return Text(name="synthetic", shards=[], vocab_size=99, separator=98)

        def __exit__(self, *_: object) -> None:
            pass

    parts = [StepPart(part="gaps", ms=1.0, share=0.5)]
    monkeypatch.setattr(machine_checks, "synthetic", Synthetic)
    monkeypatch.setattr(machine_checks, "breakdown", lambda one, *, steps: parts * steps)
    assert check_synthetic(dry, "r08") == {
        "tokens": "synthetic",
        "expandable_segments": False,
        "seconds": 1.5,
        "breakdown": [{"part": "gaps", "ms": 1.0, "share": 0.5}],
    }
    assert check_real(dry, "r08") == {
        "tokens": "stdlib",
        "expandable_segments": True,
        "seconds": 1.5,
    }
    check_synthetic(Place(device="cuda", dry=False, folder=dry.folder), "r08")
    assert lengths == [(50_000, (257, 256)), (4_194_304, (257, 256))]
    fixed, expandable = ({"system__expandable_segments": on} for on in (False, True))
    assert asked == [
        ("candidate", "r08", 99, fixed),
        ("measure", "candidate 1", 2, 1),
        ("candidate", "r08", 257, expandable),
        ("measure", "candidate 3", 2, 1),
        ("candidate", "r08", 99, fixed),
        ("measure", "candidate 5", 5, 1),
    ]


@pytest.mark.parametrize(
    ("device", "is_dry", "kernels", "rounds"),
    [("cuda", False, ("cudnn", "flash"), 8), ("cpu", True, ("sdpa", "math"), 3)],
)
def test_two_backends_are_timed_in_turn(
    device: str,
    is_dry: bool,
    kernels: tuple[str, str],
    rounds: int,
    tmp_path: Path,
    asked: list[tuple[Any, ...]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def compare(a: str, b: str, *, steps: int, warmup: int) -> TimeRatio:
        assert (a, b, steps, warmup) == ("candidate 1", "candidate 2", rounds, 1)
        return TimeRatio(rounds=steps, a_ms=1.0, b_ms=2.0, ratio=2.0, low=None, high=None)

    monkeypatch.setattr(machine_checks, "compare", compare)
    found = check_backends(Place(device=device, dry=is_dry, folder=tmp_path), "r08")
    assert (found["a"], found["b"], found["ratio"], found["rounds"]) == (*kernels, 2.0, rounds)
    assert [more for *_, more in asked] == [{"model__attn_kernel": k} for k in kernels]


@pytest.mark.parametrize(
    ("device", "n_gpus", "world"), [("cuda", 8, 8), ("cuda", 1, None), ("cpu", 0, 2)]
)
def test_the_gather_needs_more_than_one_gpu(
    device: str, n_gpus: int, world: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gather(config: str, **how: Any) -> GatherFigures:
        assert (config, how["device"]) == ("config", device)
        assert how["rounds"] == (6 if device == "cpu" else 30)
        times = {"async_ms": 1.0, "sync_ms": 2.0, "sync_over_async": 2.0}
        return GatherFigures(world=how["world"], low=None, high=None, **times)

    monkeypatch.setattr(torch.cuda, "device_count", lambda: n_gpus)
    monkeypatch.setattr(machine_checks, "gather", gather)
    monkeypatch.setattr(Place, "config", lambda place, preset: "config")
    found = check_gather(Place(device=device, dry=device == "cpu", folder=tmp_path), "r08")
    assert found.get("world") == world
    assert ("skipped" in found) == (world is None)


@pytest.mark.parametrize("preset", ["r08", "r18", "r58"])
@pytest.mark.parametrize(("n_gpus", "world"), [(1, 1), (3, 2), (7, 4), (8, 8), (16, 8)])
def test_the_runner_takes_as_many_gpus_as_share_eight_ranks(
    n_gpus: int, world: int, preset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[Any, ...]] = []

    def run(preset: str, fields: dict[str, Any], **how: Any) -> RunnerFigures:
        told.append((preset, fields, how))
        ends = ["finished"]
        return RunnerFigures(
            world=how["world"], runs_s=1.0, killed_s=1.0, groups=1, ends=ends, passed=True
        )

    monkeypatch.setattr(torch.cuda, "device_count", lambda: n_gpus)
    monkeypatch.setattr(machine_checks, "runner", run)
    monkeypatch.setattr(machine_checks, "prepare", lambda *_: None)
    place = Place(device="cuda", dry=False, folder=tmp_path)
    config, _ = resolve(preset, scale="gpt2", device="cpu", settings={})
    monkeypatch.setattr(Place, "config", lambda place, preset: config)
    assert check_runner(place, preset)["world"] == world
    ((of, fields, how),) = told
    assert (of, how["scale"], how["device"], how["folder"]) == (preset, "gpt2", "cuda", tmp_path)
    # what the standard library of a Python without its tests has to validate on
    assert fields["data.val_tokens"] == fields["data.batch_tokens"] <= 434_179
    of_runs, _ = resolve(preset, scale="gpt2", device="cuda", settings=fields)
    assert of_runs.data.ranks == 8
    assert at_budget(of_runs, runner_check.STEPS).schedule.steps == 4
    assert check_runner(Place(device="cpu", dry=True, folder=tmp_path), preset)["world"] == 2


def test_the_runner_names_the_package_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = machine_checks.importlib.util.find_spec
    monkeypatch.setattr(
        machine_checks.importlib.util, "find_spec", lambda n: None if n == "pydantic" else found(n)
    )
    skipped = check_runner(Place(device="cuda", dry=False, folder=tmp_path), "r08")["skipped"]
    assert skipped == "the runner needs pydantic: make install"


def test_a_check_of_kernels_passes_where_all_its_rows_do(
    dry: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, wrong = torch.ones(2), torch.full((2,), 1.2)
    good, bad = row("good", one, one, 0.1), row("bad", wrong, one, 0.1)
    for rows, passed in (([good, good], True), ([good, bad], False)):
        monkeypatch.setattr(machine_checks, "attention", lambda device, rows=rows: iter(rows))
        monkeypatch.setattr(
            machine_checks, "networks", lambda device, preset, rows=rows: iter(rows)
        )
        for found in (check_attention(dry, "r08"), check_network(dry, "r08")):
            assert found["passed"] == passed
            assert found["rows"][0] == {"what": "good", "error": 0.0, "bound": 0.1, "passed": True}
    assert bad.error == pytest.approx(0.2)
    reference = torch.tensor([2.0, -4.0])
    assert row("of the largest", torch.tensor([2.2, -4.0]), reference, 0.051).passed
    assert not row("both signs", torch.tensor([1.7, -4.0]), reference, 0.05).passed


@pytest.mark.parametrize(
    ("preset", "batch_tokens", "micro_tokens"),
    [
        ("r08", 65_536, 65_536),
        ("r18", 65_536, 65_536),
        ("r28", 49_152, 49_152),
        ("r39", 65_536, 32_768),
        ("r58", 65_536, 16_384),
    ],
)
def test_a_short_training_has_the_proportions_of_its_preset(
    preset: str,
    batch_tokens: int,
    micro_tokens: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[dict[str, Any]] = []

    def candidate(place: Place, preset: str, text: Any, **more: Any) -> Any:
        told.append(more)
        update = SimpleNamespace(update=lambda step, batches: torch.tensor([1.0 / (1 + step)]))
        return SimpleNamespace(core=update, batches=lambda: [])

    monkeypatch.setattr(Place, "candidate", candidate)
    monkeypatch.setattr(Place, "real", lambda *_: None)
    place = Place(device="cuda", dry=False, folder=tmp_path)
    found = check_training(place, preset)
    config, _ = resolve(preset, scale="gpt2", device="cpu", settings={})
    steps, (fields,) = 200, told
    assert found["steps"] == fields["schedule.steps"] == steps
    assert fields["data.batch_tokens"] == batch_tokens
    assert fields["data.micro_tokens"] == micro_tokens
    assert (fields["data.ranks"], fields["schedule.warmup_steps"]) == (1, 0)
    shares = {
        "schedule.cooldown_steps": config.schedule.cooldown_steps,
        "schedule.extension_steps": config.schedule.extension_steps,
        "optim.muon_momentum_warmup_steps": config.optim.muon_momentum_warmup_steps,
        "optim.scalar_freeze_steps": config.optim.scalar_freeze_steps,
    }
    for field, of_preset in shares.items():
        share = steps * of_preset / config.schedule.steps if of_preset else None
        assert (field in fields) == (share is not None)
        assert share is None or abs(fields[field] - share) <= 0.5
    place.config(preset, **fields)  # whose schedules fit into so many steps
    tiny = check_training(Place(device="cpu", dry=True, folder=tmp_path), preset)
    assert tiny["losses"] == pytest.approx([1.0 / (1 + step) for step in range(30)])
    assert "data.batch_tokens" not in told[1] and told[1]["schedule.steps"] == 30


def test_a_training_has_its_time_for_every_size_of_batch_as_each_is_compiled() -> None:
    one_size = CHECKS["training"].limit_s
    assert [CHECKS["training"].limit_of(p) for p in ("r08", "r58")] == [one_size, 3 * one_size]
    assert CHECKS["real"].limit_of("r58") == CHECKS["real"].limit_s


def test_backends_are_not_compared_where_attention_has_a_mask(
    dry: Place, asked: list[tuple[Any, ...]]
) -> None:
    assert "mask" in check_backends(dry, "r18")["skipped"] and asked == []


def test_a_check_is_run_for_the_presets_that_it_names() -> None:
    three = ["r08", "r12", "r18"]
    for which, presets in (("first", ["r08"]), ("last", ["r18"]), ("all", three)):
        assert Check(run=check_real, limit_s=1, which=which).presets(three) == presets
    assert {name: (check.limit_s, check.which) for name, check in CHECKS.items()} == {
        "attention": (120, "first"),
        "networks": (120, "all"),
        "synthetic": (150, "all"),
        "real": (60, "all"),
        "training": (120, "all"),
        "runner": (150, "all"),
        "backends": (90, "first"),
        "gather": (60, "last"),
    }
    assert [*CHECKS][:2] == ["attention", "networks"] and [*CHECKS][-1] == "gather"
    assert [name for name, check in CHECKS.items() if check.beside] == ["attention", "networks"]


# ---------------------------------------------------------------- networks


def test_a_small_network_is_of_one_sequence_an_update() -> None:
    config = small("r08", "cpu", **{"system.compile": "off"})
    data = config.data
    assert {data.batch_tokens, data.seq_len, data.micro_tokens, data.val_tokens} == {256}
    assert (data.ranks, config.model.n_layer, config.system.compile) == (1, 8, "off")
    on_gpu, _ = resolve("r08", scale="small", device="cuda", settings={})
    there = small("r08", "cuda")
    sizes = there.data
    assert {sizes.batch_tokens, sizes.seq_len, sizes.micro_tokens, sizes.val_tokens} == {1024}
    assert (sizes.ranks, there.model) == (1, on_gpu.model) and there.model != config.model


def test_the_bound_of_losses_is_five_times_that_of_roundings_and_the_widest_where_none_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernel_check.yaml, "safe_load", lambda text: {"r08": 0.001, "r18": 0.004})
    assert loss_bound("r08") == pytest.approx(0.005)
    assert loss_bound("r99") == pytest.approx(0.020)


def test_low_precision_is_held_against_fp32_and_tracing_against_eager(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[tuple[str, str, Any]] = []

    def losses(config: Any, device: str, compiled: Any = None, seed: int = 0) -> torch.Tensor:
        mode = config.precision.mode
        told.append((mode, config.system.compile, compiled))
        return torch.tensor([4.0, 2.0 if compiled is None else 1.0]) + (mode == "record") * 0.5

    monkeypatch.setattr(kernel_check, "losses", losses)
    record, traced = networks("cpu", "r08")
    assert [(m, c, k) for m, c, k in told] == [
        ("record", "off", None),
        ("fp32", "off", None),
        ("fp32", "off", "aot_eager"),
    ]
    assert (record.error, record.bound) == (0.5 / 4, loss_bound("r08"))
    assert (traced.error, traced.bound, traced.passed) == (1 / 4, 1e-5, False)


def test_losses_of_one_batch_fall_and_are_its_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = {"model.n_layer": 2, "model.d_model": 32, "model.head_dim": 16}
    sizes = dict.fromkeys(("batch_tokens", "seq_len", "micro_tokens", "val_tokens"), 64)
    sized = {f"data.{name}": n for name, n in sizes.items()} | {"data.ranks": 1}
    config, _ = resolve("r08", scale="tiny", device="cpu", settings=tiny | sized)
    found = kernel_check.losses(config, "cpu")
    assert found.shape == (6,) and found[-1] < found[0]  # of five updates, and after them
    assert torch.equal(found, kernel_check.losses(config, "cpu"))
    other = kernel_check.losses(config, "cpu", seed=1)
    assert not torch.equal(found, other)
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(torch, "compile", lambda model, **how: told.append(how) or model)
    assert torch.equal(found, kernel_check.losses(config, "cpu", compiled="aot_eager"))
    assert told == [{"dynamic": False, "backend": "aot_eager"}]


def test_where_training_is_on_more_than_the_next_token_that_is_what_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = dict.fromkeys(("batch_tokens", "seq_len", "micro_tokens", "val_tokens"), 256)
    sized = {f"data.{name}": n for name, n in sizes.items()} | {"data.ranks": 1}
    config, _ = resolve("r58", scale="tiny", device="cpu", settings=sized)
    compiled: list[str] = []
    monkeypatch.setattr(
        torch, "compile", lambda model, **how: compiled.append(type(model).__name__) or model
    )
    found = kernel_check.losses(config, "cpu", compiled="aot_eager")
    assert compiled == ["GPT", "Objective"] and found[-1] < found[0]


# ---------------------------------------------------------------- the runner


def begun(results: Path, run: str, attempt: int, pid: int) -> Path:
    folder = results / "runs" / run
    folder.mkdir(parents=True, exist_ok=True)
    note_attempt(folder, AttemptRow(attempt=attempt, started="2026-01-01T00:00:00", pid=pid))
    return folder


def ended(folder: Path, attempt: int, status: str) -> None:
    note_attempt(folder, AttemptRow(attempt=attempt, ended="2026-01-01T00:01:00", status=status))


@pytest.mark.parametrize(
    ("first", "second", "pid", "passed", "groups"),
    [
        (["finished"], ["failed", "finished"], 5, True, 1),
        (["finished"], ["failed", "finished"], 6, False, 2),  # two runs in a row, two groups
        (["failed", "finished"], ["finished"], 5, True, 1),  # as many attempts, whichever failed
        (["finished"], ["finished"], 5, False, 1),  # none was killed
        (["finished"], ["failed", "failed"], 5, False, 1),
    ],
)
def test_the_runner_passes_with_one_warm_group_and_one_attempt_more_for_the_killed_rank(
    first: list[str],
    second: list[str],
    pid: int,
    passed: bool,
    groups: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files: list[dict[str, Any]] = []
    killed: list[set[str]] = []

    def start(file: Path, results: Path, folder: Path, *, device: str, world: int) -> str:
        assert (folder, device, world) == (tmp_path, "cpu", 2)
        files.append(json.loads(file.read_text()))
        if len(files) == 1:
            for run, process in (("a", 5), ("b", pid)):
                ended(begun(results, run, 1, process), 1, "finished")
        return "process"

    def kill(process: str, results: Path, *, earlier: set[str]) -> None:
        killed.append(earlier)
        for run, ends in (("c", first), ("d", second)):
            for n, status in enumerate(ends, start=1):
                ended(begun(results, run, n, 70 + n), n, status)

    waited: list[str] = []
    monkeypatch.setattr(runner_check, "start", start)
    monkeypatch.setattr(runner_check, "kill_a_rank", kill)
    monkeypatch.setattr(runner_check, "wait", waited.append)
    times = iter([10.0, 12.5, 20.0, 24.0])
    monkeypatch.setattr(runner_check, "time", SimpleNamespace(perf_counter=lambda: next(times)))
    fields = {"data.seq_len": 128}
    found = runner("r08", fields, scale="tiny", device="cpu", world=2, folder=tmp_path)
    assert (found.runs_s, found.killed_s) == (2.5, 4.0)
    assert (found.passed, found.groups, found.world) == (passed, groups, 2)
    assert sorted(found.ends) == sorted(["finished"] * 2 + [" ".join(first), " ".join(second)])
    assert killed == [{"a", "b"}] and waited == ["process"] * 2
    short, long = files
    assert [f["budgets"] for f in files] == [[4], [12]]
    assert short["name"] != long["name"]
    for file in files:
        assert file["base"] == "r08" and file["scale"] == "tiny" and file["seeds"] == 1
        assert file["set"]["data.seq_len"] == 128 and file["set"]["data.corpus"] == "stdlib"
        assert file["set"]["data.val_every"] >= 12 and file["set"]["schedule.warmup_steps"] == 0
        assert len(file["changes"]) == 1


def test_a_rank_is_killed_once_a_new_run_has_begun(tmp_path: Path) -> None:
    sleepers = [subprocess.Popen(["sleep", str(DEADLINE_S)]) for _ in range(3)]
    command, old, new = sleepers
    begun(tmp_path, "old", 1, old.pid)
    begun(tmp_path, "new", 1, new.pid)
    kill_a_rank(command, tmp_path, earlier={"old"})  # type: ignore[arg-type]
    assert new.wait() == -signal.SIGKILL
    assert old.poll() is None and command.poll() is None
    for process in (old, command):
        process.kill()
        process.wait()
    kill_a_rank(command, tmp_path, earlier={"old", "new"})  # type: ignore[arg-type]


def test_the_first_rank_of_every_attempt_is_known_by_its_beginning(tmp_path: Path) -> None:
    folder = begun(tmp_path, "a", 1, 11)
    ended(folder, 1, "failed")
    begun(tmp_path, "a", 2, 12)
    rows = runner_check.attempts(tmp_path)["a"]
    assert pids(rows) == [11, 12]
    assert runner_check.statuses(rows) == ["failed"]


def test_the_command_is_run_on_one_device_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[Any, ...]] = []
    monkeypatch.setattr(
        runner_check.subprocess, "Popen", lambda command, **how: told.append((command, how))
    )
    start(tmp_path / "x.yaml", tmp_path, tmp_path / "data", device="cuda", world=4)
    ((command, how),) = told
    assert command[:5] == [sys.executable, "-m", "harness", "run", str(tmp_path / "x.yaml")]
    options = dict(pairwise(command))
    assert options["--results"] == str(tmp_path) and options["--max-parallel"] == "1"
    assert options["--gpus-per-run"] == "4" and options["--set"] == "device=cuda"
    assert "--no-report" in command
    assert how["env"]["ABLATE_DATA"] == str(tmp_path / "data")
    assert (Path(how["cwd"]) / "harness" / "__main__.py").is_file()


@pytest.mark.parametrize(
    ("said", "words"), [("first\nlast words\n", "last words"), ("", "no word")]
)
def test_a_command_that_fails_is_told_by_its_last_line(said: str, words: str) -> None:
    def process(code: int) -> Any:
        return SimpleNamespace(communicate=lambda: (said, None), returncode=code)

    wait(process(0))
    with pytest.raises(UserError, match=f"exit 3: {words}$"):
        wait(process(3))
