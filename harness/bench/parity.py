"""Check the core against recorded trajectories, and its rules against recorded units."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harness.bench.recording import BATCHES, CURE, Recording, read, read_arrays
from harness.bench.replay import build, trajectory
from harness.bench.unit import deviation
from harness.bench.units import unit_of
from harness.errors import UserError
from harness.optim.orthogonalize import orthogonalize
from harness.training.core import Core

BOUNDS = {"losses": 1e-5, "schedules": 0.0, "masks": 0.0, "norms": 1e-4}
SCALAR_BOUND = 1e-3  # relative bound for mixing scalars
FLOOR = 1e-7  # absolute floor of the norms
COLUMN = {  # of a figure by its name's first part; else norms
    "loss": "losses",
    "schedule": "schedules",
    "mask": "masks",
}
VALUES = "values"  # column of a unit
ORTHOGONAL_BOUND = 1e-5
Arguments = dict[str, Any]  # of orthogonalize, by name
ORTHOGONAL_CASES: dict[str, Arguments] = {  # figure in orthogonalize.npz -> arguments
    "r04_steps5": {"form": "products", "norm": "fp32", "steps": 5},
    "r04_steps10": {"form": "products", "norm": "fp32", "steps": 10},
    "r11_steps5": {"form": "polynomial", "norm": "bf16", "steps": 5},
    "r18_steps5": {"form": "polynomial", "norm": "bf16_transposed", "steps": 5},
    "svd_uvt": {"backend": "svd"},
}
ORTHOGONAL_DEFAULTS = {
    "backend": "newton_schulz",
    "steps": 5,
    "form": "products",
    "norm": "fp32",
}
NOT_COMPARED = {("6", case) for case in ORTHOGONAL_CASES} | {("7", "svd_uvt")}


@dataclass(frozen=True, kw_only=True)
class Parity:
    """One recording's largest deviations.

    Absolute for losses, schedules and masks (share of pairs), in bounds for norms; a unit has the
    column VALUES alone, as unit.py measures it, or none where nothing is known of it here.
    """

    record: str
    deviations: Mapping[str, float]
    passed: bool


# ---------------------------------------------------------------- comparing


def compare(recording: Recording, core: Core, ours: Mapping[str, np.ndarray]) -> dict[str, float]:
    """The largest deviation of every column of BOUNDS.

    A figure that is not a number deviates by it.
    """
    tolerance = norm_tolerance(core, recording.meta["parameter_order"])
    gaps: dict[str, list[float]] = {column: [0.0] for column in BOUNDS}
    for name, theirs in recording.arrays.items():
        column = COLUMN.get(name.partition("/")[0], "norms")
        if name not in ours:
            # nothing to say of it, unless it is a figure: then it is wrong here, or not recorded
            if column != "norms" and not np.all(np.isnan(theirs)):
                gaps[column].append(np.inf)
            continue
        mine = ours[name].astype(theirs.dtype)
        if mine.shape != theirs.shape:
            raise recording.refuse(
                ".npz",
                f"{name} has shape {theirs.shape}, but the sizes in the JSON make {mine.shape}",
            )
        if column == "masks":
            gap = np.mean(mine != theirs)
        else:
            gap = np.abs(mine.astype(np.float64) - theirs)
        if column == "norms":
            gap = tolerance.in_bounds(gap, theirs)
        gaps[column].append(float(np.max(gap)))
    return {column: float(np.max(values)) for column, values in gaps.items()}


@dataclass(frozen=True, kw_only=True)
class NormTolerance:
    """How far norms may be off, an entry for each parameter."""

    relative: np.ndarray
    compared: np.ndarray  # whether it is compared at all

    def in_bounds(self, gap: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        """Relative gaps in units of the matrices' bound: mixing scalars have a wider one."""
        bound = self.relative * np.abs(theirs) + FLOOR
        return np.where(self.compared, gap / bound, 0.0) * BOUNDS["norms"]


def norm_tolerance(core: Core, order: Sequence[str]) -> NormTolerance:
    """What the norms of these parameters are held against."""
    by_name = dict(core.model.named_parameters())
    # the first layer's values are mixed with themselves under value residual: its scalar moves on
    # rounding noise alone
    silent = set()
    if core.config.model.value_residual is not None:
        silent.add("blocks.0.attn.value_mix")
    roles = np.array([by_name[name].role for name in order])  # type: ignore[attr-defined]
    return NormTolerance(
        relative=np.where(roles == "scalar", SCALAR_BOUND, BOUNDS["norms"]),
        compared=np.array([name not in silent for name in order]),
    )


# ---------------------------------------------------------------- recordings by their files


def check_record(stem: Path) -> Parity:
    """Run one recording's preset on its batches and compare every figure."""
    recording = read(stem)
    core = build(recording)
    deviations = compare(recording, core, trajectory(core, recording))
    passed = all(deviations[column] <= bound for column, bound in BOUNDS.items())
    return Parity(record=stem.name, deviations=deviations, passed=passed)


def check_orthogonalize(path: Path) -> Parity:
    """Compare the orthogonalisations with their recorded cases."""
    arrays = read_arrays(path)
    gaps = []
    for name, expected in arrays.items():
        case, _, kind = name.partition("/")
        given = arrays.get(f"{case}/input")
        if given is None or kind not in ORTHOGONAL_CASES or (case, kind) in NOT_COMPARED:
            continue
        if np.any(given):
            arguments: Arguments = ORTHOGONAL_DEFAULTS | ORTHOGONAL_CASES[kind]
            matrix = torch.from_numpy(given).float()
            ours = orthogonalize(matrix, dtype=torch.float32, **arguments)
            gaps.append(float(np.max(np.abs(ours.numpy() - expected))))
    if not gaps:
        raise UserError(
            f"{path}: holds no case that is known here, CASE/input with"
            f" CASE/{', CASE/'.join(ORTHOGONAL_CASES)}"
        )
    worst = float(np.max(gaps))
    return Parity(record=path.stem, deviations={"losses": worst}, passed=worst <= ORTHOGONAL_BOUND)


def check_unit(path: Path) -> Parity:
    """Compare the figures of a unit with what the rules here make of its inputs.

    One of which no rule is known here fails without a deviation.
    """
    unit, arrays = unit_of(path.stem), read_arrays(path)
    if unit is None:
        return Parity(record=path.stem, deviations={}, passed=False)
    try:
        worst = deviation(unit, arrays)
    except KeyError as error:
        raise UserError(f"{path}: {error.args[0]} is missing; {CURE}") from None
    except (IndexError, RuntimeError, ValueError) as error:  # numpy's and torch's of such shapes
        reason = str(error).partition("\n")[0]
        raise UserError(f"{path}: its arrays do not fit each other ({reason}); {CURE}") from None
    return Parity(record=path.stem, deviations={VALUES: worst}, passed=worst <= unit.bound)


def is_unit(path: Path) -> bool:
    """Whether NAME.npz has neither a NAME.json beside it nor the batches of a trajectory."""
    return not path.with_suffix(".json").is_file() and BATCHES[0] not in read_arrays(path)


def check_directory(folder: Path) -> list[Parity]:
    """Every recording of a folder, records in order, then units, the orthogonalisations last."""
    orthogonal = folder / "orthogonalize.npz"
    arrays = {*folder.glob("*.npz")} - {orthogonal}
    units = sorted(path for path in arrays if is_unit(path))
    files = {*folder.glob("*.json"), *arrays} - {*units}
    stems = sorted({path.with_suffix("") for path in files})
    below = sorted({path.parent.name for path in folder.glob("*/*.npz")})
    if not stems and not units and below:
        raise UserError(
            f"{folder}: its recorded trajectories lie in folders of it: name one of"
            f" {', '.join(below)}"
        )
    if not stems and not units and not orthogonal.is_file():
        raise UserError(
            f"{folder}: no recorded trajectories here: it must hold NAME.json with NAME.npz, or"
            " units, such as adam_records.npz"
        )
    results = [check_record(stem) for stem in stems]
    results += [check_unit(path) for path in units]
    if orthogonal.is_file():
        results.append(check_orthogonalize(orthogonal))
    return results
