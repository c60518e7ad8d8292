"""A trunk's end, and what goes on from it: as if one process had made both.

trunk.pt holds the weights, every process's optimizers, gradients that wait for Adam, random state
and losses that no validation has told yet, the clock, and the curve so far. The data's position
follows from the update.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from harness.errors import UserError
from harness.run.document import Document
from harness.run.metrics import TRAINING, MetricRow, TrainingLoss, Validation
from harness.run.spec import TRUNK_FILE
from harness.training.clock import Clock, Counted
from harness.training.core import Core
from harness.training.output import RunOutput


class ForkedRun(Protocol):
    """A run in progress on this process (harness/training/train.py)."""

    core: Core
    clock: Clock
    out: RunOutput
    stream: Any  # of training steps
    rank: int
    first: int
    losses: list[Tensor]
    rows: list[Document]
    first_val: float
    last_val: float
    trunk_s: float


def each_tensor(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The value with every tensor in it changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {key: each_tensor(part, change) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([each_tensor(part, change) for part in value])
    return value


def on_host(value: Any) -> Any:
    return each_tensor(value, lambda tensor: tensor.detach().cpu())


def copied(value: Any) -> Any:
    """A mapped file is no memory to write to."""
    return each_tensor(value, torch.clone)


def save_trunk(training: ForkedRun, step: int) -> None:
    """Everything that goes on at update `step`, on the first process; called on all of them."""
    ranks = _gathered(training.core, _state_of_rank(training))
    if training.rank == 0:
        state = {
            "step": step,
            "model": on_host(training.core.model.state_dict()),
            "ranks": ranks,
            "clock": asdict(training.clock.counted()),
            "rows": training.rows,
            "first_val": training.first_val,
            "last_val": training.last_val,
        }
        training.out.save(TRUNK_FILE, lambda file: torch.save(state, file))


def _state_of_rank(training: ForkedRun) -> dict[str, Any]:
    core = training.core
    random = {"cpu": torch.get_rng_state()}
    if core.device.type == "cuda":
        random["cuda"] = torch.cuda.get_rng_state()
    return {
        "optimizers": on_host([optimizer.state_dict() for optimizer in core.optimizers]),
        "random": random,
        "losses": on_host(training.losses),
        "waiting": on_host(
            {n: p.grad for n, p in core.model.named_parameters() if p.grad is not None}
        ),
    }


def _gathered(core: Core, state: dict[str, Any]) -> list[Any]:
    """Every process's state, by rank, on the first one."""
    if core.world == 1:
        return [state]
    states = [None] * core.world if dist.get_rank() == 0 else None
    dist.gather_object(state, states)
    return states or []


def go_on_from(training: ForkedRun, path: Path) -> None:
    """Put a trunk's end in place of this run's beginning. path: of its file.

    Raises UserError where that cannot be read, or is another update's.
    """
    try:
        state = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    except Exception as error:
        first_line = f"{type(error).__name__}: {error}".splitlines()[0]
        raise UserError(
            f"{path}, from which this run goes on, cannot be read ({first_line}): remove the "
            "trunk's folder, and run the experiment again"
        ) from None
    if state["step"] != training.first:
        raise UserError(f"{path} is the state at update {state['step']}, not {training.first}")
    core = training.core
    core.model.load_state_dict(state["model"])
    mine = copied(state["ranks"][training.rank])
    for optimizer, saved in zip(core.optimizers, mine["optimizers"], strict=True):
        optimizer.load_state_dict(saved)
    for name, grad in mine["waiting"].items():
        core.model.get_parameter(name).grad = grad.to(core.device)
    torch.set_rng_state(mine["random"]["cpu"])
    if core.device.type == "cuda":
        torch.cuda.set_rng_state(mine["random"]["cuda"])
    training.losses = [loss.to(core.device) for loss in mine["losses"]]
    training.stream.skip(training.first)
    training.clock.go_on(Counted(**state["clock"]))
    training.trunk_s = training.clock.elapsed_s
    training.first_val, training.last_val = state["first_val"], state["last_val"]
    for row in state["rows"]:
        training.out.metric(row_of(row))


def row_of(row: Document) -> MetricRow:
    if row["kind"] == TRAINING:
        return TrainingLoss(step=row["step"], train_loss=row["train_loss"])
    return Validation.from_json(row)
