"""Parity with recorded trajectories: those of the public scripts pass, one of another size does, and one wrong number fails."""

import ast
import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import numpy as np
import pytest
import torch

import harness.bench.parity
from harness.__main__ import main
from harness.bench.parity import (
    BOUNDS,
    ORTHOGONAL_BOUND,
    Parity,
    check_directory,
    check_orthogonalize,
    check_record,
    compare,
    norm_tolerance,
)
from harness.bench.recording import BATCHES, Recording
from harness.bench.replay import build, formula, sized, trajectory
from harness.bench.units import UNITS
from harness.config.device import for_device
from harness.config.presets import names, preset_values, to_config
from harness.errors import UserError
from harness.model.tokens import Tokens
from harness.training.core import Core

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "data" / "golden"
ORTHOGONALIZE = ROOT / "tests" / "data" / "orthogonalize.npz"
ORTHOGONAL = [name for name in np.load(ORTHOGONALIZE) if not name.endswith("/input")]
UNITS_FOLDER = ROOT / "tests" / "data" / "units"
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
def test_a_recorded_script_is_reproduced(stem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every figure that it told."""
    figures: set[str] = set()

    def noted(core: Core, recording: Recording) -> Arrays:
        ours = trajectory(core, recording)
        figures.update(ours)
        return ours

    monkeypatch.setattr(harness.bench.parity, "trajectory", noted)
    result = check_record(GOLDEN / stem)
    assert figures == {*np.load(GOLDEN / f"{stem}.npz")} - {*BATCHES}
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


SIZES = {
    "layers": 8,
    "model_dim": 48,
    "head_dim": 16,
    "mlp_hidden": 144,
    "sequence_length": 32,
    "rows_per_micro_batch": 2,
    "micro_steps": 3,
    "num_iterations": 6,
    "decay_iterations": 4,
    "cooldown_frac": None,
}
OF_SIZES = {
    "precision.mode": "fp32",
    "model.n_layer": 8,
    "model.d_model": 48,
    "model.head_dim": 16,
    "model.mlp_ratio": 3,
    "data.seq_len": 32,
    "data.micro_tokens": 64,
    "data.ranks": 1,
    "data.batch_tokens": 192,
    "data.val_tokens": 64,
    "data.val_seq_len": None,
    "schedule.steps": 6,
    "schedule.cooldown_steps": 4,
    "schedule.cooldown_frac": None,
}


@pytest.mark.parametrize(
    ("told", "fields"),
    [
        ({}, {}),
        ({"window_fixed_tokens": 128, "window_end_tokens": None}, {"schedule.window_tokens": 128}),
        ({"window_end_tokens": 192}, {"schedule.window_tokens": 192}),
        ({"window_fixed_tokens": 1, "window_end_tokens": 2}, {"schedule.window_tokens": 2}),
        ({"warmup_iterations": 0}, {"schedule.warmup_steps": 0}),
        ({"momentum_warmup_steps": 5}, {"optim.muon_momentum_warmup_steps": 5}),
        ({"momentum_warmup_steps": None}, {}),
    ],
)
def test_what_a_recording_says_of_sizes_and_lengths_takes_the_place_of_the_presets(
    told: dict[str, Any], fields: dict[str, Any]
) -> None:
    preset = {"model.n_layer": 99, "schedule.window_tokens": 77, "optim.adam_lr": 0.5}
    found = sized(preset, {**SIZES, **told})
    assert found == {**preset, **OF_SIZES, **fields}
    assert isinstance(found["model.mlp_ratio"], int)


def test_initial_values_follow_the_formula_of_their_names() -> None:
    """Standard normal numbers by the name's checksum, as wide and about the centre that it says."""
    cases: dict[str, tuple[float, Any]] = {
        "value_embeds.0.weight": (0.5, 0.0),
        "blocks.0.residual_mix": (0.02, [1.0, 0.0]),
        "blocks.0.attn.value_mix": (0.02, 0.5),
        "skip_weights": (0.02, 1.0),
        "blocks.0.attn.q.weight": (0.05, 0.0),
        **{f"blocks.0.{kind}": (0.05, 0.0) for kind in ("bias", "scale", "turn", "weight", "zero")},
    }
    for name, (spread, centre) in cases.items():
        seeded = np.random.Generator(np.random.PCG64(crc32(name.encode())))
        z = seeded.standard_normal((3, 2))
        assert formula(name, (3, 2), False) == pytest.approx(centre + spread * z, rel=1e-6)
        assert formula(name, (3, 2), True).dtype == np.float32
    apart, tied = (formula("embed.weight", (3, 2), is_tied) for is_tied in (False, True))
    assert apart == pytest.approx(10 * tied, rel=1e-6)


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


@pytest.mark.parametrize("case", sorted(ORTHOGONAL))
def test_every_orthogonalisation_is_held_against_its_own(case: str, tmp_path: Path) -> None:
    """But those of a matrix of zeros, of which any may come."""
    arrays = dict(np.load(ORTHOGONALIZE))
    arrays[case] = arrays[case] + np.float32(2 * ORTHOGONAL_BOUND)
    np.savez(tmp_path / "orthogonalize.npz", **arrays)
    found = check_orthogonalize(tmp_path / "orthogonalize.npz")
    assert found.passed == case.startswith("7/")
    assert (found.deviations["losses"] > 1.5 * ORTHOGONAL_BOUND) == (not found.passed)


def facts(**arrays: Any) -> Recording:
    """A recording of one parameter and these figures."""
    return Recording(
        stem=Path("r08_mine"),
        meta={"parameter_order": ["head.weight"]},
        arrays={name.replace("__", "/"): np.array(array) for name, array in arrays.items()},
    )


def test_the_largest_deviation_of_each_kind_is_told() -> None:
    parameters = {"head.weight": SimpleNamespace(role="head")}
    model = SimpleNamespace(named_parameters=parameters.items)
    core: Any = SimpleNamespace(config=to_config(preset_values("r08")[0]), model=model)
    theirs = facts(
        loss__val=[4.0, 5.0],
        loss__train=[1.0],
        schedule__lr=[[0.5, 0.25]],
        mask__packed=np.array([1, 2, 3, 4], dtype=np.uint8),
        init_norm=[2.0],
        train__inputs=[3.0],
        loss__other=[np.nan, np.nan],
    )
    ours = {name: array.copy() for name, array in theirs.arrays.items() if "other" not in name}
    assert compare(theirs, core, ours) == dict.fromkeys(BOUNDS, 0.0)
    ours |= {
        "loss/val": np.array([4.5, 4.25]),
        "loss/train": np.array([1.125]),
        "schedule/lr": np.array([[0.5, 0.375]]),
        "mask/packed": np.array([1, 2, 7, 4]),
        "init_norm": np.array([2.0 + 3 * (2e-4 + 1e-7)]),
    }
    found = compare(theirs, core, ours)
    assert found == {
        "losses": 0.75,
        "schedules": 0.125,
        "masks": 0.25,
        "norms": pytest.approx(3e-4),
    }
    for name, column in (("loss/val", "losses"), ("schedule/lr", "schedules")):
        missing = {key: array for key, array in ours.items() if key != name}
        assert compare(theirs, core, missing)[column] == np.inf
    assert compare(facts(init_norm=[2.0], loss__some=[np.nan, 1.0]), core, {}) == {
        **dict.fromkeys(BOUNDS, 0.0),
        "losses": np.inf,
    }
    with pytest.raises(UserError) as refused:
        compare(theirs, core, ours | {"loss/val": np.zeros(3)})
    assert str(refused.value).startswith(
        "r08_mine.npz: loss/val has shape (2,), but the sizes in the JSON make (3,); "
    )


def test_a_wrong_orthogonalisation_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kept_line: Callable[[str], None]
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
    kept_line(error)


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


def none_held_out(stem: Path) -> None:
    arrays = dict(np.load(stem.with_suffix(".npz")))
    none = {name: arrays[name][:0] for name in ("val/inputs", "val/targets")}
    np.savez(stem.with_suffix(".npz"), **{**arrays, **none})


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
    "none held out": (none_held_out, "val/inputs holds 0 tokens"),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_recording_is_refused_in_one_line(
    broken: str,
    recorded: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    kept_line: Callable[[str], None],
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
    kept_line(err)


@pytest.mark.parametrize("folder", ["empty", "missing"])
def test_a_folder_without_recordings_is_refused(
    folder: str, tmp_path: Path, kept_line: Callable[[str], None]
) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no recorded trajectories") as refused:
        check_directory(tmp_path / folder)
    kept_line(str(refused.value))


def test_a_folder_of_folders_names_them(tmp_path: Path, kept_line: Callable[[str], None]) -> None:
    for place in ("second/r08", "first/r08", "first/r18", "."):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        shutil.copy(ORTHOGONALIZE, tmp_path / f"{place.removeprefix('.') or 'orthogonalize'}.npz")
    with pytest.raises(UserError, match=r"name one of first, second$") as refused:
        check_directory(tmp_path)
    kept_line(str(refused.value))


def test_a_folder_is_checked_in_the_order_of_its_records_then_units_then_orthogonalisations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Parity(record="r18", deviations={}, passed=True)
    monkeypatch.setattr(
        harness.bench.parity, "check_record", lambda stem: replace(found, record=stem.name)
    )
    for stem in ("r18", "r08"):
        (tmp_path / f"{stem}.json").touch()
        np.savez(tmp_path / f"{stem}.npz")
    np.savez(tmp_path / "r04.npz", **{BATCHES[0]: np.zeros(1)})  # its JSON is missing
    for name in ("yarn", "adam_records"):
        shutil.copy(UNITS_FOLDER / f"{name}.npz", tmp_path)
    shutil.copy(ORTHOGONALIZE, tmp_path)
    checked = [parity.record for parity in check_directory(tmp_path)]
    assert checked == ["r04", "r08", "r18", "adam_records", "yarn", "orthogonalize"]


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
