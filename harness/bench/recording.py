"""Recorded trajectories: NAME.json (sizes, names) with NAME.npz (batches and figures)."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from harness.config.run import BLOCK
from harness.errors import UserError

BATCHES = ("train/inputs", "train/targets", "val/inputs", "val/targets")
COMPARED = (  # figures that every recording holds
    "loss/train_micro",
    "loss/val_micro",
    "schedule/lr",
    "grad0_norm",
    "first_update_norm",
    "movement_norm",
)
META = ("record", "config", "parameter_order", "shapes", "optimizer_groups")
SIZES = (  # of META's config
    "vocab_embed",
    "layers",
    "model_dim",
    "head_dim",
    "mlp_hidden",
    "sequence_length",
    "rows_per_micro_batch",
    "micro_steps",
    "num_iterations",
    "decay_iterations",
    "cooldown_frac",
    "separator_token",
    "window_fixed_tokens",
    "window_end_tokens",
)
CURE = "record it again, or take it out of the folder"


# of NAME.json, or of its `config`; what is read of it is checked first
RecordedFacts = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Recording:
    """A recorded trajectory: `meta` as in NAME.json, `arrays` as in NAME.npz."""

    stem: Path
    meta: RecordedFacts
    arrays: Mapping[str, np.ndarray]

    def refuse(self, suffix: str, reason: str) -> UserError:
        """The error that refuses the recording for what its file with this suffix holds."""
        return UserError(f"{self.stem}{suffix}: {reason}; {CURE}")

    def batch(self, kind: str, index: int) -> tuple[Tensor, Tensor]:
        """Token ids and targets, both (micro_steps, rows, seq_len).

        Update `index` ("train") or held-out batch ("val").
        """
        return self._tokens(f"{kind}/inputs", index), self._tokens(f"{kind}/targets", index)

    def _tokens(self, name: str, index: int) -> Tensor:
        config = self.meta["config"]
        tokens = torch.from_numpy(self.arrays[name][index].astype(np.int64))
        return tokens.reshape(-1, config["rows_per_micro_batch"], config["sequence_length"])

    def held_out(self) -> list[tuple[Tensor, Tensor]]:
        """Every held-out batch: token ids and targets, both (rows, seq_len)."""
        batches = []
        for index in range(len(self.arrays["val/inputs"])):
            ids, targets = self.batch("val", index)
            batches.append((ids[0], targets[0]))
        return batches


def read(stem: Path) -> Recording:
    """The recording NAME.json with NAME.npz; raises UserError for one that is not whole."""
    meta = read_file(stem.with_suffix(".json"), _json_of, "JSON")
    recording = Recording(stem=stem, meta=meta, arrays=read_arrays(stem.with_suffix(".npz")))
    _check_meta(recording)
    _check_arrays(recording)
    _check_sizes(recording)
    _check_batches(recording)
    return recording


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Arrays by name; raises UserError for a file that holds none."""
    return read_file(path, _arrays_of, "arrays by name (.npz)")


def read_file(path: Path, parse: Callable[[Path], Any], what: str) -> Any:
    """What `parse` makes of a file; raises UserError where it is not there, or not `what`."""
    try:
        return parse(path)
    except FileNotFoundError:
        reason = "no such file"
    except (OSError, ValueError, AttributeError, EOFError, BadZipFile):
        # what json and numpy raise for a file of another kind
        reason = f"not {what}"
    raise UserError(f"{path}: {reason}; {CURE}")


def _json_of(path: Path) -> Any:
    return json.loads(path.read_text())


def _arrays_of(path: Path) -> dict[str, np.ndarray]:
    return {**np.load(path)}


def _check_meta(recording: Recording) -> None:
    """Refuse a JSON file that is none of a trajectory, or not a whole one."""
    meta = recording.meta
    if not isinstance(meta, dict) or not isinstance(meta.get("config", {}), dict):
        raise recording.refuse(
            ".json", "not a recorded trajectory: it must be a mapping with a mapping `config`"
        )
    for key in META:
        if key not in meta:
            raise recording.refuse(".json", f"not a recorded trajectory: {key} is missing")
    for key in SIZES:
        if key not in meta["config"]:
            raise recording.refuse(".json", f"not a recorded trajectory: config.{key} is missing")
    for name in meta["parameter_order"]:
        if name not in meta["shapes"]:
            raise recording.refuse(".json", f"shapes does not say that of {name}")


def _check_arrays(recording: Recording) -> None:
    for name in (*BATCHES, *COMPARED):
        if name not in recording.arrays:
            raise recording.refuse(".npz", f"{name} is missing")


def _check_sizes(recording: Recording) -> None:
    """Refuse sizes that no preset of this harness can take."""
    config = recording.meta["config"]
    if config.get("block_size") not in (None, BLOCK):
        raise recording.refuse(
            ".json",
            f"config.block_size is {config['block_size']}, but blocks hold {BLOCK} tokens here",
        )
    if config["mlp_hidden"] % config["model_dim"]:
        raise recording.refuse(
            ".json",
            f"config.mlp_hidden={config['mlp_hidden']} is no multiple of"
            f" model_dim={config['model_dim']}",
        )


def _check_batches(recording: Recording) -> None:
    """Refuse batches of another number of tokens than the sizes say."""
    config = recording.meta["config"]
    micro_tokens = config["sequence_length"] * config["rows_per_micro_batch"]
    for name in BATCHES:
        array = recording.arrays[name]
        if name.startswith("train"):
            n_tokens = config["num_iterations"] * config["micro_steps"] * micro_tokens
        else:
            n_tokens = len(array) * micro_tokens
        if array.size != n_tokens or not array.size:
            raise recording.refuse(
                ".npz",
                f"{name} holds {array.size} tokens, which do not fit the sizes in"
                f" {recording.stem.name}.json",
            )
