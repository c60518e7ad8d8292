"""Parity with recorded trajectories: those of the public scripts pass, one of another size does, and one wrong number fails."""

import ast
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import harness.bench.parity
from harness.__main__ import main
from harness.bench.parity import (
    BOUNDS,
    ORTHOGONAL_BOUND,
    check_directory,
    check_orthogonalize,
    check_record,
    norm_tolerance,
)
from harness.bench.recording import BATCHES, Recording
from harness.bench.replay import build, sized, trajectory
from harness.bench.units import UNITS
from harness.config.device import for_device
from harness.config.presets import names, preset_values, to_config
from harness.errors import UserError
from harness.model.tokens import Tokens
from harness.training.core import Core

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "data" / "golden"
ORTHOGONALIZE = ROOT / "tests" / "data" / "orthogonalize.npz"
STEMS = sorted(p.stem for p in GOLDEN.glob("*.json"))
QUICK = ["r04", "r15"]  # the tied and the newest kinds; the others are slow tests
Arrays = dict[str, np.ndarray]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Matrices this small are slower on several threads, and far slower on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["parity", *arguments])
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out, captured.err


# ---------------------------------------------------------------- the public scripts' own trajectories


@pytest.mark.parametrize(
    "stem", [s if s in QUICK else pytest.param(s, marks=pytest.mark.slow) for s in STEMS]
)
def test_a_recorded_script_is_reproduced(stem: str) -> None:
    result = check_record(GOLDEN / stem)
    assert result.passed
    assert result.deviations["losses"] <= 1e-5
    assert result.deviations["schedules"] == result.deviations["masks"] == 0
    assert result.deviations["norms"] <= 1e-4


def test_the_orthogonalisations_are_reproduced() -> None:
    assert check_orthogonalize(ORTHOGONALIZE).passed


@pytest.mark.slow
def test_the_command_passes_on_all_recordings(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, str(GOLDEN), "--json")
    answer = json.loads(out)
    assert code == 0
    assert [r["record"] for r in answer["records"]] == STEMS
    assert len(STEMS) == 11
    assert all(
        r["passed"] and r[column] <= bound
        for r in answer["records"]
        for column, bound in BOUNDS.items()
    )
    of_units = {name: unit.bound for name, unit in UNITS.items()}
    assert answer["bounds"] == {**BOUNDS, "orthogonalize": ORTHOGONAL_BOUND, "units": of_units}


# ---------------------------------------------------------------- other sizes

SMALL = {  # preset: sizes that no public recording has
    "r08": {
        "layers": 8,
        "model_dim": 48,
        "heads": 3,
        "sequence_length": 32,
        "rows_per_micro_batch": 2,
        "momentum_warmup_steps": None,
    },
    "r18": {
        "layers": 8,
        "model_dim": 24,
        "heads": 3,
        "sequence_length": 256,
        "rows_per_micro_batch": 1,
        "momentum_warmup_steps": 4,
    },
}


def record(stem: Path, preset: str, **sizes: Any) -> Recording:
    """A recording of the core itself, in the format of the public scripts' ones."""
    c = {
        "head_dim": sizes["model_dim"] // sizes["heads"],
        "mlp_hidden": 4 * sizes["model_dim"],
        "micro_steps": 2,
        "num_iterations": 6,
        "decay_iterations": None if preset == "r18" else 3,
        "cooldown_frac": 0.4 if preset == "r18" else None,
        "separator_token": 5,  # not the last id
        "vocab_embed": 128,  # 61 ids, padded
        "window_fixed_tokens": None,
        "window_end_tokens": 192 if preset == "r18" else None,
        **sizes,
    }
    random = np.random.default_rng(7)
    shape = {"train": (c["num_iterations"], c["micro_steps"]), "val": (2,)}
    arrays = {}
    for kind, outer in shape.items():
        tokens = random.integers(
            0, 61, (*outer, c["rows_per_micro_batch"], c["sequence_length"] + 1)
        ).astype(np.int16)
        arrays |= {f"{kind}/inputs": tokens[..., :-1], f"{kind}/targets": tokens[..., 1:]}
    meta = {"record": preset, "config": c, **described(preset, c)}
    recording = Recording(stem=stem, meta=meta, arrays=arrays)
    arrays |= trajectory(build(recording), recording)
    stem.with_suffix(".json").write_text(json.dumps(meta))
    np.savez(stem.with_suffix(".npz"), **arrays)
    return recording


def described(preset: str, c: dict[str, Any]) -> dict[str, Any]:
    """What a recording says of its parameters and optimizers."""
    config, _ = for_device(to_config(sized(preset_values(preset)[0], c)), "cpu", frozenset())
    core = Core(config, Tokens(vocab_size=61, separator=5, seq_len=c["sequence_length"]), seed=0)
    shapes = {n: list(p.shape) for n, p in core.model.named_parameters()}
    groups = [
        {"params": g["names"], "base_lr": g["base_lr"]}
        for o in core.optimizers
        for g in o.param_groups
    ]
    return {"parameter_order": list(shapes), "shapes": shapes, "optimizer_groups": groups}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    for preset, sizes in SMALL.items():
        record(folder / f"{preset}_small", preset, **sizes)
    return folder


def test_another_width_depth_head_count_and_data_pass(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(ORTHOGONALIZE, recorded)
    code, out, _ = run(capsys, str(recorded), "--json")
    assert code == 0
    assert {r["record"]: r["passed"] for r in json.loads(out)["records"]} == {
        "r08_small": True,
        "r18_small": True,
        "orthogonalize": True,
    }


def nudge(name: str, by: float) -> Callable[[Arrays], None]:
    def change(arrays: Arrays) -> None:
        arrays[name] = arrays[name].copy()
        arrays[name].flat[arrays[name].size // 2] += by

    return change


def flip_a_bit(arrays: Arrays) -> None:
    arrays["mask/packed"] = arrays["mask/packed"].copy()
    arrays["mask/packed"][1, 100, 3] ^= 1


def not_a_number(arrays: Arrays) -> None:
    arrays["loss/val_micro"] = arrays["loss/val_micro"] * np.nan


WRONG: dict[str, tuple[str, Callable[[Arrays], None]]] = {
    "one loss": ("losses", nudge("loss/train_micro", 2e-5)),
    "one held-out loss": ("losses", nudge("loss/val", -2e-5)),
    "no number": ("losses", not_a_number),
    "one rate": ("schedules", nudge("schedule/lr", 1e-6)),
    "one momentum": ("schedules", nudge("schedule/muon_momentum", 1e-6)),
    "one window": ("schedules", nudge("schedule/window", 1)),
    "one mask bit": ("masks", flip_a_bit),
    "one gradient": ("norms", nudge("grad0_norm", 1e-3)),
    "one weight": ("norms", nudge("trace/param_norm", 0.1)),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_one_wrong_number_fails_and_is_named(
    wrong: str,
    recorded: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    column, change = WRONG[wrong]
    stem = recorded / "r18_small"
    ours = dict(np.load(stem.with_suffix(".npz")))  # what the core computes: another test runs it
    monkeypatch.setattr(
        harness.bench.parity,
        "trajectory",
        lambda core, recording: {k: ours[k] for k in ours if k not in BATCHES},
    )
    arrays = dict(ours)
    change(arrays)
    shutil.copy(stem.with_suffix(".json"), tmp_path)
    np.savez(tmp_path / "r18_small.npz", **arrays)
    code, out, _ = run(capsys, str(tmp_path), "--json")
    (result,) = json.loads(out)["records"]
    assert code == 1
    assert not result["passed"]
    assert {
        c for c, bound in BOUNDS.items() if not (result[c] is not None and result[c] <= bound)
    } == {column}


def test_norms_are_held_against_bounds_of_their_kind_and_a_silent_scalars_against_none() -> None:
    roles = {
        "blocks.0.attn.value_mix": "scalar",
        "blocks.1.attn.value_mix": "scalar",
        "head.weight": "head",
    }
    parameters = {name: SimpleNamespace(role=role) for name, role in roles.items()}
    model = SimpleNamespace(named_parameters=parameters.items)
    config = SimpleNamespace(model=SimpleNamespace(value_residual="first"))
    core: Any = SimpleNamespace(config=config, model=model)
    order = [*reversed(roles)]
    told = norm_tolerance(core, order)
    assert told.relative.tolist() == [1e-4, 1e-3, 1e-3]
    assert told.compared.tolist() == [True, True, False]
    at_the_bound = 1e-7 + told.relative * 2.0
    found = told.in_bounds(at_the_bound, np.array([2.0, -2.0, 2.0]))
    assert found == pytest.approx([1e-4, 1e-4, 0.0])
    config.model.value_residual = None
    assert norm_tolerance(core, order).compared.all()


def test_a_wrong_orthogonalisation_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays = dict(np.load(ORTHOGONALIZE))
    nudge("0/r11_steps5", 1e-4)(arrays)
    np.savez(tmp_path / "orthogonalize.npz", **arrays)
    code, out, _ = run(capsys, str(tmp_path))
    assert code == 1
    assert "FAIL" in out
    unknown = {name: array for name, array in arrays.items() if name.endswith("/input")}
    np.savez(tmp_path / "orthogonalize.npz", **unknown)
    code, _, error = run(capsys, str(tmp_path))
    assert code == 2 and "holds no case that is known here, CASE/input with CASE/" in error


# ---------------------------------------------------------------- broken files


def edited(key: str | None, change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def edit(stem: Path) -> None:
        path = stem.with_suffix(".json")
        meta = json.loads(path.read_text())
        change(meta if key is None else meta[key])
        path.write_text(json.dumps(meta))

    return edit


def without(name: str) -> Callable[[Path], None]:
    def edit(stem: Path) -> None:
        path = stem.with_suffix(".npz")
        arrays = dict(np.load(path))
        del arrays[name]
        np.savez(path, **arrays)

    return edit


def shorter(stem: Path) -> None:
    arrays = dict(np.load(stem.with_suffix(".npz")))
    np.savez(stem.with_suffix(".npz"), **{**arrays, "train/inputs": arrays["train/inputs"][:-1]})


BROKEN: dict[str, tuple[Callable[[Path], None], str]] = {
    "no config": (edited(None, lambda m: m.pop("config")), "config"),
    "config is a list": (edited(None, lambda m: m.update(config=[])), "config"),
    "a size missing": (edited("config", lambda c: c.pop("model_dim")), "config.model_dim"),
    "unknown preset": (edited(None, lambda m: m.update(record="r99")), "unknown record 'r99'"),
    "another preset": (edited(None, lambda m: m.update(record="r09")), "not those of preset r09"),
    "wrong names": (edited("parameter_order", lambda o: o.__setitem__(0, "nowhere")), "nowhere"),
    "wrong group": (
        edited("optimizer_groups", lambda g: g[0].update(params=["nowhere"])),
        "nowhere",
    ),
    "impossible size": (edited("config", lambda c: c.update(head_dim=7)), "model.head_dim"),
    "other blocks": (
        edited("config", lambda c: c.update(block_size=64)),
        "config.block_size is 64",
    ),
    "a broken ratio": (
        edited("config", lambda c: c.update(mlp_hidden=100)),
        "config.mlp_hidden=100",
    ),
    "not JSON": (lambda stem: stem.with_suffix(".json").write_text("{"), "not JSON"),  # type: ignore[dict-item,return-value]
    "no npz": (lambda stem: stem.with_suffix(".npz").unlink(), "no such file"),
    "no JSON": (lambda stem: stem.with_suffix(".json").unlink(), "no such file"),
    "not an npz": (lambda stem: stem.with_suffix(".npz").write_bytes(b"no"), "npz"),  # type: ignore[dict-item,return-value]
    "a column missing": (without("loss/train_micro"), "loss/train_micro is missing"),
    "fewer batches": (shorter, "train/inputs"),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_recording_is_refused_in_one_line(
    broken: str, recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    breaks, words = BROKEN[broken]
    for suffix in (".json", ".npz"):
        shutil.copy(recorded / f"r08_small{suffix}", tmp_path)
    breaks(tmp_path / "r08_small")
    code, out, err = run(capsys, str(tmp_path))
    assert code == 2
    assert not out
    assert len(err.splitlines()) == 1
    assert words in err


@pytest.mark.parametrize("folder", ["empty", "missing"])
def test_a_folder_without_recordings_is_refused(folder: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no recorded trajectories"):
        check_directory(tmp_path / folder)


def test_a_folder_of_folders_names_them(recorded: Path) -> None:
    shutil.copy(ORTHOGONALIZE, recorded.parent / "orthogonalize.npz")
    with pytest.raises(UserError, match=f"name one of .*{recorded.name}"):
        check_directory(recorded.parent)


# ---------------------------------------------------------------- no shortcuts

DECLARED_BY = ("toggle", "RoleRow", "RoleSetting")
DECLARATIONS = {
    "record",
    "choices",
    "affects",
    "doc",
}  # keyword arguments of `toggle`: metadata, read by the documentation


def record_names_outside_declarations(source: str) -> list[int]:
    """Lines of string constants that are a record's name, but those in a declaration's metadata."""
    tree = ast.parse(source)
    declared = {
        id(leaf)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") in DECLARED_BY
        for keyword in call.keywords
        if keyword.arg in DECLARATIONS
        for leaf in ast.walk(keyword.value)
    }
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"r\d\d(pre)?", node.value)
        and id(node) not in declared
    ]


def test_no_code_knows_a_record_by_name() -> None:
    assert record_names_outside_declarations(
        'toggle(0, record="r08", choices={1: "r09"})\nif x == "r08": pass'
    ) == [2]
    found = {
        f"{path.relative_to(ROOT)}:{line}"
        for package in ("model", "optim", "harness")
        for path in (ROOT / package).rglob("*.py")
        for line in record_names_outside_declarations(path.read_text())
    }
    listed = {
        f for f in found if re.match(r"harness/presets\.py:", f)
    }  # the sort key of `ablate records`
    assert found == listed
    assert len(listed) <= 1
    assert names("records")[:3] == ["r02", "r03", "r03pre"]
