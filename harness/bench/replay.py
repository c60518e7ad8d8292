"""Train the core on a recording's batches.

A recording (harness/bench/recording.py) names its preset; sizes, schedule lengths, separator and
windows come from its `config`, the rest from the preset. Initial weights follow the formula of the
recordings: numpy's PCG64 seeded by crc32 of the parameter's name.
"""

import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harness.bench.recording import RecordedFacts, Recording
from harness.config.device import for_device
from harness.config.presets import Values, preset_values, to_config
from harness.config.validate import check_config
from harness.errors import UserError
from harness.model.mask import dense_mask, document_ids
from harness.model.tokens import Tokens
from harness.optim.muon import Group
from harness.training.core import Core

MASK_STEPS = (0, 5, 11)  # updates whose mask is recorded
LENGTHS = {  # of a recording's config, where it says them -> field
    "warmup_iterations": "schedule.warmup_steps",
    "momentum_warmup_steps": "optim.muon_momentum_warmup_steps",
}


# ---------------------------------------------------------------- the core of a recording


def formula(name: str, shape: tuple[int, ...], tied: bool) -> np.ndarray:
    """Initial float32 values of a parameter by the recordings' formula."""
    return np.asarray(_scaled(name, drawn(name, shape), tied), dtype=np.float32)


def drawn(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Standard normal numbers of a parameter."""
    generator = np.random.Generator(np.random.PCG64(zlib.crc32(name.encode())))
    return generator.standard_normal(shape)


def _scaled(name: str, z: np.ndarray, tied: bool) -> np.ndarray:
    """Standard normal numbers, brought to where a parameter of this name starts."""
    kind = name.rpartition(".")[2]
    if name.startswith("value_embeds") or (name == "embed.weight" and not tied):
        return 0.5 * z
    if kind == "residual_mix":
        return np.array([1.0, 0.0]) + 0.02 * z
    if kind == "value_mix":
        return 0.5 + 0.02 * z
    if kind == "skip_weights":
        return 1 + 0.02 * z
    return 0.05 * z


def sized(values: Values, sizes: RecordedFacts) -> Values:
    """The preset's values at the sizes of a recording's `config`, fp32."""
    micro_tokens = sizes["sequence_length"] * sizes["rows_per_micro_batch"]
    out = {
        **values,
        "precision.mode": "fp32",
        "model.n_layer": sizes["layers"],
        "model.d_model": sizes["model_dim"],
        "model.head_dim": sizes["head_dim"],
        "model.mlp_ratio": sizes["mlp_hidden"] // sizes["model_dim"],
        "data.seq_len": sizes["sequence_length"],
        "data.micro_tokens": micro_tokens,
        "data.ranks": 1,
        "data.batch_tokens": micro_tokens * sizes["micro_steps"],
        "data.val_tokens": micro_tokens,
        "data.val_seq_len": None,
        "schedule.steps": sizes["num_iterations"],
        "schedule.cooldown_steps": sizes["decay_iterations"],
        "schedule.cooldown_frac": sizes["cooldown_frac"],
    }
    for key, field in LENGTHS.items():
        if sizes.get(key) is not None:
            out[field] = sizes[key]
    window = sizes.get("window_end_tokens") or sizes.get("window_fixed_tokens")
    if window:
        out["schedule.window_tokens"] = window
    return out


def build(recording: Recording) -> Core:
    """The core of the preset that a recording names, with its sizes and initial weights."""
    sizes = recording.meta["config"]
    try:
        values, _ = preset_values(recording.meta["record"])
        config, _ = for_device(to_config(sized(values, sizes)), "cpu", frozenset())
        check_config(config)
    except UserError as error:
        raise recording.refuse(".json", str(error)) from None
    # the table's rows are the vocabulary, or already a multiple of what they are padded to
    tokens = Tokens(
        vocab_size=sizes["vocab_embed"],
        separator=sizes["separator_token"],
        seq_len=sizes["sequence_length"],
    )
    core = Core(config, tokens, seed=0)
    _check_parameters(core, recording)
    with torch.no_grad():
        for name, parameter in core.model.named_parameters():
            start = formula(name, tuple(parameter.shape), config.model.tied_head)
            parameter.copy_(torch.from_numpy(start))
    return core


def _check_parameters(core: Core, recording: Recording) -> None:
    """Refuse a recording of other parameters than those of its preset."""
    meta = recording.meta
    ours = {name: list(p.shape) for name, p in core.model.named_parameters()}
    theirs = {name: list(meta["shapes"][name]) for name in meta["parameter_order"]}
    wrong = sorted(n for n in ours.keys() | theirs.keys() if ours.get(n) != theirs.get(n))
    if wrong:
        raise recording.refuse(
            ".json",
            f"its parameters are not those of preset {meta['record']}: {', '.join(wrong[:3])}",
        )
    for group in meta["optimizer_groups"]:
        for name in group["params"]:
            if name not in ours:
                raise recording.refuse(
                    ".json", f"optimizer_groups names {name}, which is no parameter"
                )


# ---------------------------------------------------------------- its trajectory


class Figures:
    """Figures under their names in NAME.npz, what does not apply left out."""

    def __init__(self) -> None:
        self.values: dict[str, list[Any]] = {}

    def add(self, name: str, value: Any) -> None:
        """The next value of a figure that has one for every update, or for some."""
        self.values.setdefault(name, []).append(value)

    def set(self, name: str, values: Iterable[Any]) -> None:
        """All values of a figure that is taken once."""
        self.values[name] = list(values)

    def arrays(self) -> dict[str, np.ndarray]:
        return {name: np.array(values) for name, values in self.values.items()}


def norms(tensors: Iterable[Tensor]) -> np.ndarray:
    """The norm of each tensor, in float64."""
    return np.array([float(t.detach().double().norm()) for t in tensors])


def gradient_norms(parameters: Iterable[Tensor]) -> np.ndarray:
    """The norm of each parameter's gradient, 0 where it has none."""
    gradients = []
    for parameter in parameters:
        gradient = parameter.grad
        gradients.append(torch.zeros(1) if gradient is None else gradient)
    return norms(gradients)


def distances(parameters: Sequence[Tensor], start: Sequence[Tensor]) -> np.ndarray:
    """How far each parameter is from its start."""
    moves = []
    for parameter, before in zip(parameters, start, strict=True):
        moves.append(parameter.detach() - before)
    return norms(moves)


def packed_mask(core: Core, ids: Tensor, separator: int, window: Tensor | None) -> np.ndarray:
    """The mask of one sequence of token ids, eight pairs to a byte."""
    documents = document_ids(ids, separator)
    mask = dense_mask(0, len(documents), documents, window, core.config.model.attn_window)
    return np.packbits(mask.numpy(), axis=-1)


def trajectory(core: Core, recording: Recording) -> dict[str, np.ndarray]:
    """Train on the recorded batches.

    Every figure under its name in NAME.npz, what does not apply left out.
    """
    sizes = recording.meta["config"]
    by_name = dict(core.model.named_parameters())
    parameters = [by_name[name] for name in recording.meta["parameter_order"]]
    start = [p.detach().clone() for p in parameters]
    held_out = recording.held_out()
    figures = Figures()
    figures.add("loss/val_micro", core.evaluate(0, held_out).numpy())
    for step in range(sizes["num_iterations"]):
        ids, targets = recording.batch("train", step)
        window = core.set_step(step)
        if window is not None:
            figures.add("schedule/window", window.item())
        if core.config.model.attn_mask == "document" and step in MASK_STEPS:
            mask = packed_mask(core, ids[0, 0], sizes["separator_token"], window)
            figures.add("mask/packed", mask)
        figures.add("loss/train_micro", core.gradients([(ids, targets)], window).numpy())
        if step == 0:
            figures.set("grad0_norm", gradient_norms(parameters))
        _add_schedules(figures, core, recording)
        core.step()
        figures.add("trace/param_norm", norms(parameters))
        if step == 0:
            figures.set("first_update_norm", distances(parameters, start))
    figures.add("loss/val_micro", core.evaluate(sizes["num_iterations"], held_out).numpy())
    figures.set("init_norm", norms(start))
    figures.set("movement_norm", distances(parameters, start))
    for name in ("loss/train", "loss/val"):
        figures.set(name, map(np.mean, figures.values[f"{name}_micro"]))
    last_window = core.set_window(sizes["num_iterations"])
    if last_window is not None:
        first = figures.values["schedule/window"][0]
        figures.add("schedule/window", last_window.item())
        figures.set("schedule/window_val", [first, last_window.item()])
    return figures.arrays()


def _add_schedules(figures: Figures, core: Core, recording: Recording) -> None:
    """The rates of an update in the recording's order of groups, and Muon's momentum."""
    groups: list[Group] = []
    for optimizer in core.optimizers:
        groups.extend(optimizer.param_groups)
    rates = []
    for recorded in recording.meta["optimizer_groups"]:
        ours = next(g for g in groups if recorded["params"][0] in g["names"])
        rates.append(ours["lr"])
    figures.add("schedule/lr", rates)
    for group in groups:
        if "momentum" in group:
            figures.add("schedule/muon_momentum", group["momentum"])
            return
