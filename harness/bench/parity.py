"""Check the core against recorded trajectories.

DIR holds NAME.json (sizes, names) and NAME.npz (batches and figures).

A recording names its preset; sizes, schedule lengths, separator and windows come from its
`config`, the rest from the preset. Initial weights follow the formula of the recordings: numpy's
PCG64 seeded by crc32 of the parameter's name.
"""

import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from harness.config.device import for_device
from harness.config.presets import Values, preset_values, to_config
from harness.config.run import BLOCK
from harness.config.validate import check_config
from harness.errors import UserError
from harness.model.gpt import Tokens
from harness.model.mask import dense_mask, document_ids
from harness.optim.orthogonalize import orthogonalize
from harness.training.core import Core

BOUNDS = {"losses": 1e-5, "schedules": 0.0, "masks": 0.0, "norms": 1e-4}
SCALAR_BOUND, FLOOR = 1e-3, 1e-7  # relative bound for mixing scalars; absolute floor of the norms
COLUMN = {
    "loss": "losses",
    "schedule": "schedules",
    "mask": "masks",
}  # of a figure by its name's first part; else norms
COMPARED = (
    "loss/train_micro",
    "loss/val_micro",
    "schedule/lr",
    "grad0_norm",
    "first_update_norm",
    "movement_norm",
)  # at least
BATCHES = ("train/inputs", "train/targets", "val/inputs", "val/targets")
MASK_STEPS = (0, 5, 11)  # updates whose mask is recorded
META = ("record", "config", "parameter_order", "shapes", "optimizer_groups")
SIZES = (
    *(
        "vocab_embed",
        "layers",
        "model_dim",
        "head_dim",
        "mlp_hidden",
        "sequence_length",
        "rows_per_micro_batch",
        "micro_steps",
    ),
    *(
        "num_iterations",
        "decay_iterations",
        "cooldown_frac",
        "separator_token",
        "window_fixed_tokens",
        "window_end_tokens",
    ),
)
ORTHOGONAL_BOUND = 1e-5
ORTHOGONAL_CASES: dict[str, dict[str, Any]] = {  # figure in orthogonalize.npz -> arguments
    "r04_steps5": {"form": "products", "norm": "fp32", "steps": 5},
    "r04_steps10": {"form": "products", "norm": "fp32", "steps": 10},
    "r11_steps5": {"form": "polynomial", "norm": "bf16", "steps": 5},
    "r18_steps5": {"form": "polynomial", "norm": "bf16_transposed", "steps": 5},
    "svd_uvt": {"backend": "svd"},
}
NOT_COMPARED = {("6", case) for case in ORTHOGONAL_CASES} | {("7", "svd_uvt")}


@dataclass(frozen=True, kw_only=True)
class Parity:
    """One recording's largest deviations.

    Absolute for losses, schedules and masks (share of pairs), in bounds for norms.
    """

    record: str
    deviations: Mapping[str, float]
    passed: bool


def formula(name: str, shape: tuple[int, ...], tied: bool) -> np.ndarray:
    """Initial float32 values of a parameter by the recordings' formula."""
    z = np.random.Generator(np.random.PCG64(zlib.crc32(name.encode()))).standard_normal(shape)
    kind = name.rpartition(".")[2] if not name.startswith("value_embeds") else "value_embeds"
    table = {
        "residual_mix": lambda: np.array([1.0, 0.0]) + 0.02 * z,
        "value_mix": lambda: 0.5 + 0.02 * z,
        "skip_weights": lambda: 1 + 0.02 * z,
        "value_embeds": lambda: 0.5 * z,
    }
    if name == "embed.weight":
        return np.asarray((0.05 if tied else 0.5) * z, dtype=np.float32)
    return np.asarray(table[kind]() if kind in table else 0.05 * z, dtype=np.float32)


def sized(values: Values, c: Mapping[str, Any]) -> Values:
    """The preset's values at a recording's sizes, fp32."""
    micro = c["sequence_length"] * c["rows_per_micro_batch"]
    out = {
        **values,
        "precision.mode": "fp32",
        "model.n_layer": c["layers"],
        "model.d_model": c["model_dim"],
        "model.head_dim": c["head_dim"],
        "model.mlp_ratio": c["mlp_hidden"] // c["model_dim"],
        "data.seq_len": c["sequence_length"],
        "data.micro_tokens": micro,
        "data.ranks": 1,
        "data.batch_tokens": micro * c["micro_steps"],
        "data.val_tokens": micro,
        "schedule.steps": c["num_iterations"],
        "schedule.cooldown_steps": c["decay_iterations"],
        "schedule.cooldown_frac": c["cooldown_frac"],
    }
    for key, name in (
        ("warmup_iterations", "schedule.warmup_steps"),
        ("momentum_warmup_steps", "optim.muon_momentum_warmup_steps"),
    ):
        if c.get(key) is not None:
            out[name] = c[key]
    window = c.get("window_end_tokens") or c.get("window_fixed_tokens")
    if window:
        out["schedule.window_tokens"] = window
    return out


@dataclass(frozen=True, kw_only=True)
class Recording:
    """A recorded trajectory: `meta` as in NAME.json, `arrays` as in NAME.npz."""

    stem: Path
    meta: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]

    def refuse(self, suffix: str, reason: str) -> UserError:
        return UserError(
            f"{self.stem}{suffix}: {reason}; record it again, or take it out of the folder"
        )

    def batch(self, kind: str, index: int) -> tuple[Tensor, Tensor]:
        """Token ids and targets, both (micro_steps, rows, seq_len).

        Update `index` ("train") or held-out batch ("val").
        """
        rows = self.meta["config"]["rows_per_micro_batch"], self.meta["config"]["sequence_length"]
        x, y = (
            torch.from_numpy(self.arrays[f"{kind}/{part}"][index].astype(np.int64))
            for part in ("inputs", "targets")
        )
        return x.reshape(-1, *rows), y.reshape(-1, *rows)


def read_file(path: Path, parse: Callable[[Path], Any], what: str) -> Any:
    try:
        return parse(path)
    except FileNotFoundError:
        reason = "no such file"
    except (
        OSError,
        ValueError,
        AttributeError,
        EOFError,
        BadZipFile,
    ):  # what json and numpy raise for a file of another kind
        reason = f"not {what}"
    raise UserError(f"{path}: {reason}; record it again, or take it out of the folder")


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    return read_file(path, lambda p: {**np.load(p)}, "arrays by name (.npz)")


def read(stem: Path) -> Recording:
    """The recording NAME.json with NAME.npz; raises UserError for one that is not whole."""
    meta = read_file(stem.with_suffix(".json"), lambda p: json.loads(p.read_text()), "JSON")
    recording = Recording(stem=stem, meta=meta, arrays=read_arrays(stem.with_suffix(".npz")))
    if not isinstance(meta, dict) or not isinstance(meta.get("config", {}), dict):
        raise recording.refuse(
            ".json", "not a recorded trajectory: it must be a mapping with a mapping `config`"
        )
    if missing := [
        *(k for k in META if k not in meta),
        *(f"config.{k}" for k in SIZES if k not in meta.get("config", {})),
    ]:
        raise recording.refuse(".json", f"not a recorded trajectory: {missing[0]} is missing")
    if missing := [name for name in meta["parameter_order"] if name not in meta["shapes"]]:
        raise recording.refuse(".json", f"shapes does not say that of {missing[0]}")
    if missing := [name for name in (*BATCHES, *COMPARED) if name not in recording.arrays]:
        raise recording.refuse(".npz", f"{missing[0]} is missing")
    c = meta["config"]
    if c.get("block_size") not in (None, BLOCK):
        raise recording.refuse(
            ".json", f"config.block_size is {c['block_size']}, but blocks hold {BLOCK} tokens here"
        )
    if c["mlp_hidden"] % c["model_dim"]:
        raise recording.refuse(
            ".json",
            f"config.mlp_hidden={c['mlp_hidden']} is no multiple of model_dim={c['model_dim']}",
        )
    tokens = c["sequence_length"] * c["rows_per_micro_batch"]
    for name in BATCHES:
        array, n_micro = recording.arrays[name], c["micro_steps"] if name.startswith("train") else 1
        n_batches = c["num_iterations"] if name.startswith("train") else len(array)
        if array.size != n_batches * n_micro * tokens or not array.size:
            raise recording.refuse(
                ".npz",
                f"{name} holds {array.size} tokens, which do not fit the sizes in {stem.name}.json",
            )
    return recording


def norms(tensors: Iterable[Tensor]) -> np.ndarray:
    return np.array([float(t.double().norm()) for t in tensors])


def build(recording: Recording) -> Core:
    """The core of the preset that a recording names, with its sizes and initial weights."""
    meta, c = recording.meta, recording.meta["config"]
    values, _ = preset_values(meta["record"])
    config, _ = for_device(to_config(sized(values, c)), "cpu", frozenset())
    check_config(config)
    # the table's rows are the vocabulary, or already a multiple of what they are padded to
    tokens = Tokens(
        vocab_size=c["vocab_embed"], separator=c["separator_token"], seq_len=c["sequence_length"]
    )
    core = Core(config, tokens, seed=0)
    ours = {n: list(p.shape) for n, p in core.model.named_parameters()}
    theirs = {n: list(meta["shapes"][n]) for n in meta["parameter_order"]}
    if wrong := sorted(n for n in ours.keys() | theirs.keys() if ours.get(n) != theirs.get(n)):
        raise recording.refuse(
            ".json",
            f"its parameters are not those of preset {meta['record']}: {', '.join(wrong[:3])}",
        )
    if strangers := [n for g in meta["optimizer_groups"] for n in g["params"] if n not in ours]:
        raise recording.refuse(
            ".json", f"optimizer_groups names {strangers[0]}, which is no parameter"
        )
    with torch.no_grad():
        for n, p in core.model.named_parameters():
            p.copy_(torch.from_numpy(formula(n, tuple(p.shape), config.model.tied_head)))
    return core


def trajectory(core: Core, recording: Recording) -> dict[str, np.ndarray]:
    """Train on the recorded batches.

    Every figure under its name in NAME.npz, what does not apply left out.
    """
    meta, c, config = recording.meta, recording.meta["config"], core.config
    named = dict(core.model.named_parameters())
    params = [named[n] for n in meta["parameter_order"]]
    start = [p.detach().clone() for p in params]
    groups = [g for o in core.optimizers for g in o.param_groups]
    columns = [
        next(g for g in groups if recorded["params"][0] in g["names"])
        for recorded in meta["optimizer_groups"]
    ]
    momenta = [g for g in groups if "momentum" in g]
    held_out = [
        (x[0], y[0])
        for x, y in (recording.batch("val", i) for i in range(len(recording.arrays["val/inputs"])))
    ]
    out: dict[str, list[Any]] = {"loss/val_micro": [core.evaluate(0, held_out).numpy()]}
    put = lambda name, value: out.setdefault(name, []).append(value)  # noqa: E731
    for step in range(c["num_iterations"]):
        x, y = recording.batch("train", step)
        window = core.set_step(step)
        if window is not None:
            put("schedule/window", window.item())
        if config.model.attn_mask == "document" and step in MASK_STEPS:
            docs = document_ids(x[0, 0], c["separator_token"])
            put(
                "mask/packed",
                np.packbits(
                    dense_mask(0, len(docs), docs, window, config.model.attn_window).numpy(),
                    axis=-1,
                ),
            )
        put("loss/train_micro", core.gradients([(x, y)], window).numpy())
        if step == 0:
            out["grad0_norm"] = list(
                norms(torch.zeros(1) if p.grad is None else p.grad for p in params)
            )
        put("schedule/lr", [g["lr"] for g in columns])
        if momenta:
            put("schedule/muon_momentum", momenta[0]["momentum"])
        core.step()
        put("trace/param_norm", norms(p.detach() for p in params))
        if step == 0:
            out["first_update_norm"] = list(
                norms(p.detach() - s for p, s in zip(params, start, strict=True))
            )
    put("loss/val_micro", core.evaluate(c["num_iterations"], held_out).numpy())
    out["init_norm"] = list(norms(start))
    out["movement_norm"] = list(norms(p.detach() - s for p, s in zip(params, start, strict=True)))
    out["loss/train"] = [np.mean(losses) for losses in out["loss/train_micro"]]
    out["loss/val"] = [np.mean(losses) for losses in out["loss/val_micro"]]
    if "schedule/window" in out:
        first, last = out["schedule/window"][0], core.set_window(c["num_iterations"]).item()  # type: ignore[union-attr]
        put("schedule/window", last)
        out["schedule/window_val"] = [first, last]
    return {name: np.array(values) for name, values in out.items()}


def compare(recording: Recording, core: Core, ours: Mapping[str, np.ndarray]) -> dict[str, float]:
    """The largest deviation of every column of BOUNDS.

    A figure that is not a number deviates by it.
    """
    named, order = dict(core.model.named_parameters()), recording.meta["parameter_order"]
    scalar = np.array([named[n].role == "scalar" for n in order])  # type: ignore[attr-defined]
    # the first layer's values are mixed with themselves under value residual: its scalar moves on
    # rounding noise alone
    silent = core.config.model.value_residual is not None
    compared = np.array([not (silent and n == "blocks.0.attn.value_mix") for n in order])
    gaps: dict[str, list[float]] = {column: [0.0] for column in BOUNDS}
    for name, theirs in recording.arrays.items():
        column = COLUMN.get(name.partition("/")[0], "norms")
        if name not in ours:
            # nothing to say of it, unless it is a figure: then it is wrong here, or not recorded
            gaps[column].append(
                np.inf if column != "norms" and not np.all(np.isnan(theirs)) else 0.0
            )
            continue
        mine = ours[name].astype(theirs.dtype)
        if mine.shape != theirs.shape:
            raise recording.refuse(
                ".npz",
                f"{name} has shape {theirs.shape}, but the sizes in the JSON make {mine.shape}",
            )
        gap = np.abs(mine.astype(np.float64) - theirs)
        if column == "masks":
            gap = np.mean(mine != theirs)
        if (
            column == "norms"
        ):  # relative, in units of the matrices' bound: mixing scalars have a wider one
            bound = np.where(scalar, SCALAR_BOUND, BOUNDS["norms"]) * np.abs(theirs) + FLOOR
            gap = np.where(compared, gap / bound, 0.0) * BOUNDS["norms"]
        gaps[column].append(float(np.max(gap)))
    return {column: float(np.max(values)) for column, values in gaps.items()}


def check_record(stem: Path) -> Parity:
    """Run one recording's preset on its batches and compare every figure."""
    recording = read(stem)
    core = build(recording)
    deviations = compare(recording, core, trajectory(core, recording))
    return Parity(
        record=stem.name,
        deviations=deviations,
        passed=all(deviations[k] <= BOUNDS[k] for k in BOUNDS),
    )


def check_orthogonalize(path: Path) -> Parity:
    """Compare the orthogonalisations with their recorded cases."""
    arrays = read_arrays(path)
    gaps = []
    for name, expected in arrays.items():
        case, _, kind = name.partition("/")
        given = arrays.get(f"{case}/input")
        if (
            given is not None
            and kind in ORTHOGONAL_CASES
            and (case, kind) not in NOT_COMPARED
            and np.any(given)
        ):
            arguments: dict[str, Any] = {
                "backend": "newton_schulz",
                "steps": 5,
                "form": "products",
                "norm": "fp32",
                **ORTHOGONAL_CASES[kind],
            }
            ours = orthogonalize(torch.from_numpy(given).float(), dtype=torch.float32, **arguments)
            gaps.append(float(np.max(np.abs(ours.numpy() - expected))))
    if not gaps:
        raise UserError(
            f"{path}: holds no case that is known here, CASE/input with"
            f" CASE/{', CASE/'.join(ORTHOGONAL_CASES)}"
        )
    worst = float(np.max(gaps))
    return Parity(record=path.stem, deviations={"losses": worst}, passed=worst <= ORTHOGONAL_BOUND)


def check_directory(folder: Path) -> list[Parity]:
    """Every recording of a folder, records in order, the orthogonalisation cases last."""
    orthogonal = folder / "orthogonalize.npz"
    stems = sorted(
        {
            p.with_suffix("")
            for kind in ("*.json", "*.npz")
            for p in folder.glob(kind)
            if p != orthogonal
        }
    )
    below = sorted({p.parent.name for p in folder.glob("*/*.npz")})
    if not stems and below:
        raise UserError(
            f"{folder}: its recorded trajectories lie in folders of it: name one of"
            f" {', '.join(below)}"
        )
    if not stems and not orthogonal.is_file():
        raise UserError(
            f"{folder}: no recorded trajectories here: it must hold NAME.json with NAME.npz"
        )
    return [check_record(s) for s in stems] + (
        [check_orthogonalize(orthogonal)] if orthogonal.is_file() else []
    )
