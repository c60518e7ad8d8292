"""Check the core against recorded trajectories: DIR holds NAME.json (sizes, names) and NAME.npz (batches and figures).

A recording names its preset; sizes, schedule lengths, separator and windows come from its `config`, the rest from the
preset. Initial weights follow the formula of the recordings: numpy's PCG64 seeded by crc32 of the parameter's name.
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harness.core import Core
from harness.errors import UserError
from harness.presets import Values, preset_values, to_config
from harness.validate import check_config, for_device
from model.gpt import Tokens
from model.mask import dense_mask, document_ids
from optim.orthogonalize import orthogonalize

BOUNDS = {"losses": 1e-5, "schedules": 0.0, "masks": 0.0, "norms": 1e-4}
SCALAR_BOUND, FLOOR = 1e-3, 1e-7  # relative bound for mixing scalars; absolute floor of the norms
ORTHOGONAL_BOUND = 1e-5
ORTHOGONAL_CASES = {  # figure in orthogonalize.npz -> arguments
    "r04_steps5": {"form": "products", "norm": "fp32", "steps": 5},
    "r04_steps10": {"form": "products", "norm": "fp32", "steps": 10},
    "r11_steps5": {"form": "polynomial", "norm": "bf16", "steps": 5},
    "r18_steps5": {"form": "polynomial", "norm": "bf16_transposed", "steps": 5},
    "svd_uvt": {"backend": "svd"},
}
NOT_COMPARED = {
    ("7", "svd_uvt"),
    ("6", "r04_steps5"),
    ("6", "r04_steps10"),
    ("6", "r11_steps5"),
    ("6", "r18_steps5"),
    ("6", "svd_uvt"),
}


@dataclass(frozen=True, kw_only=True)
class Parity:
    """One recording's largest deviations: absolute for losses, schedules and masks (share of pairs), in bounds for norms."""

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
    if c.get("momentum_warmup_steps") is not None:
        out["optim.muon_momentum_warmup_steps"] = c["momentum_warmup_steps"]
    window = c.get("window_end_tokens") or c.get("window_fixed_tokens")
    if window:
        out["schedule.window_tokens"] = window
    return out


def relative(ours: np.ndarray, theirs: np.ndarray, scalar: np.ndarray, compared: np.ndarray) -> float:
    """Largest relative deviation of norms in units of the matrices' bound (mixing scalars have a wider one)."""
    bound = np.where(scalar, SCALAR_BOUND, BOUNDS["norms"]) * np.abs(theirs) + FLOOR
    return float(np.max(np.where(compared, np.abs(ours - theirs) / bound, 0.0))) * BOUNDS["norms"]


def check_record(stem: Path) -> Parity:
    """Run one recording's preset on its batches and compare every figure."""
    try:
        meta = json.loads(stem.with_suffix(".json").read_text())
        arrays = dict(np.load(stem.with_suffix(".npz")))
        c, order = meta["config"], meta["parameter_order"]
        shapes = meta["shapes"]
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{stem}.json: not a recorded trajectory: {error}") from None
    values, _ = preset_values(meta["record"])
    config, _ = for_device(to_config(sized(values, c)), "cpu", frozenset())
    check_config(config)
    vocab = c["separator_token"] + 1
    core = Core(config, Tokens(vocab_size=vocab, separator=c["separator_token"], seq_len=c["sequence_length"]), seed=0)
    named = dict(core.model.named_parameters())
    if {n: list(p.shape) for n, p in named.items()} != {n: list(shapes[n]) for n in order}:
        wrong = sorted(set(named) ^ set(order)) or [n for n in order if list(named[n].shape) != list(shapes[n])]
        raise UserError(f"{stem}.json: its parameters are not those of preset {meta['record']}: {', '.join(wrong[:3])}")
    with torch.no_grad():
        for n, p in named.items():
            p.copy_(torch.from_numpy(formula(n, tuple(p.shape), config.model.tied_head)))
    norms = lambda tensors: np.array([float(t.double().norm()) for t in tensors])  # noqa: E731
    params = [named[n] for n in order]
    start = [p.detach().clone() for p in params]
    figures: dict[str, Any] = {"init_norm": norms(start)}

    def batch(kind: str, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        rows = (c["rows_per_micro_batch"], c["sequence_length"])
        x, y = (torch.from_numpy(arrays[f"{kind}/{part}"][index].astype(np.int64)) for part in ("inputs", "targets"))
        return x.reshape(-1, *rows), y.reshape(-1, *rows)

    n_val = arrays["val/inputs"].shape[0]
    held_out = [(x[0], y[0]) for x, y in (batch("val", i) for i in range(n_val))]
    groups = [g for o in core.optimizers for g in o.param_groups]
    columns = [next(g for g in groups if g0["params"][0] in g["names"]) for g0 in meta["optimizer_groups"]]
    momenta = [g for g in groups if "momentum" in g]
    micro, lrs, mus, windows, trace, masks = [], [], [], [], [], []
    val = [core.evaluate(0, held_out).numpy()]
    for step in range(c["num_iterations"]):
        x, y = batch("train", step)
        window = core.set_step(step)
        windows.append(window.item() if window is not None else None)
        if config.model.attn_mask == "document" and step in (0, 5, 11):
            docs = document_ids(x[0, 0], c["separator_token"])
            masks.append(dense_mask(0, len(docs), docs, window, config.model.attn_window).numpy())
        micro.append(core.gradients([(x, y)], window).numpy())
        if step == 0:
            figures["grad0_norm"] = norms(p.grad if p.grad is not None else torch.zeros(1) for p in params)
        lrs.append([g["lr"] for g in columns])
        mus.append(momenta[0]["momentum"] if momenta else None)
        core.step()
        if step == 0:
            figures["first_update_norm"] = norms(p.detach() - s for p, s in zip(params, start, strict=True))
        trace.append(norms(p.detach() for p in params))
    val.append(core.evaluate(c["num_iterations"], held_out).numpy())
    final_window = core.set_window(c["num_iterations"])
    windows.append(final_window.item() if final_window is not None else None)
    figures["trace/param_norm"], figures["movement_norm"] = (
        np.array(trace),
        norms(p.detach() - s for p, s in zip(params, start, strict=True)),
    )

    def gap(name: str, ours: Any) -> float:
        return float(np.max(np.abs(np.asarray(ours, dtype=arrays[name].dtype) - arrays[name]))) if name in arrays else 0.0

    deviations = {
        "losses": max(
            gap("loss/train_micro", np.array(micro).reshape(arrays["loss/train_micro"].shape)), gap("loss/val_micro", val)
        ),
        "schedules": max(
            gap("schedule/lr", lrs),
            gap("schedule/muon_momentum", mus),
            gap("schedule/window", windows),
            gap("schedule/window_val", [windows[0], windows[-1]]),
        ),
        "masks": float(np.mean(np.packbits(np.array(masks), axis=-1) != arrays["mask/packed"])) if masks else 0.0,
    }
    # the first layer's values are mixed with themselves under value residual: its scalar moves on rounding noise alone
    silent = config.model.value_residual is not None
    compared = np.array([not (silent and n == "blocks.0.attn.value_mix") for n in order])
    scalar = np.array([named[n].role == "scalar" for n in order])  # type: ignore[attr-defined]
    deviations["norms"] = max(relative(ours, arrays[name], scalar, compared) for name, ours in figures.items())
    return Parity(record=stem.name, deviations=deviations, passed=all(deviations[k] <= BOUNDS[k] for k in BOUNDS))


def check_orthogonalize(path: Path) -> Parity:
    """Compare the orthogonalisations with their recorded cases."""
    arrays = dict(np.load(path))
    worst = 0.0
    for name, expected in arrays.items():
        case, _, kind = name.partition("/")
        if kind in ORTHOGONAL_CASES and (case, kind) not in NOT_COMPARED and np.any(arrays[f"{case}/input"]):
            arguments = {"backend": "newton_schulz", "steps": 5, "form": "products", "norm": "fp32", **ORTHOGONAL_CASES[kind]}
            ours = orthogonalize(torch.from_numpy(arrays[f"{case}/input"]).float(), dtype=torch.float32, **arguments)
            worst = max(worst, float(np.max(np.abs(ours.numpy() - expected))))
    return Parity(record=path.stem, deviations={"losses": worst}, passed=worst <= ORTHOGONAL_BOUND)


def check_directory(folder: Path) -> list[Parity]:
    """Every recording of a folder, records in order, the orthogonalisation cases last."""
    stems = sorted(p.with_suffix("") for p in folder.glob("*.json") if p.with_suffix(".npz").is_file()) if folder.is_dir() else []
    orthogonal = folder / "orthogonalize.npz"
    if not stems and not orthogonal.is_file():
        raise UserError(f"{folder}: no recorded trajectories here: it must hold NAME.json with NAME.npz")
    return [check_record(s) for s in stems] + ([check_orthogonalize(orthogonal)] if orthogonal.is_file() else [])
