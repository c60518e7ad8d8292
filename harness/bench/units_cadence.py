"""Units of what moves when: Adam that waits, scalars that rest, a table that parts from the head.

Legend: S updates.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch.nn import Parameter

from harness.bench.unit import Arrays, Pairs, Unit, tensor
from harness.bench.units_optim import MODERN
from harness.optim.build import Named, build_optimizers, set_schedule
from harness.optim.cadence import act
from harness.optim.config import OptimConfig
from harness.optim.schedule import adam_acts, changed_within
from harness.optim.tying import Tie

EVERY = 2  # the records' Adam


def _optimizers(params: Mapping[str, Named], config: OptimConfig) -> list[torch.optim.Optimizer]:
    return build_optimizers(params, config, dtype=torch.float64, device_type="cpu")


def _stacked(after: Sequence[torch.Tensor]) -> np.ndarray:
    return torch.stack([p.detach() for p in after]).numpy()


def _config(arrays: Arrays, prefix: str = "") -> OptimConfig:
    """Adam as a unit has it, beside Muon as the records of that time have it."""
    beta1, beta2 = map(float, arrays[f"{prefix}betas"])
    return replace(
        MODERN,
        adam_eps_form="uncorrected",
        adam_every=EVERY,
        adam_beta1=beta1,
        adam_beta2=beta2,
        adam_eps=float(arrays[f"{prefix}eps"]),
    )


def adam_every_second(arrays: Arrays) -> Pairs:
    """A parameter of Adam's and a matrix, after each of S updates."""
    table, matrix = (Parameter(tensor(arrays[f"{rule}_init"])) for rule in ("adam", "muon"))
    config = replace(
        _config(arrays, "adam_"),
        adam_lr=float(arrays["adam_lr"] * arrays["adam_lr_mul"]),
        muon_lr=float(arrays["muon_lr"]),
    )
    optimizers = _optimizers({"embed": [("table", table)], "hidden": [("matrix", matrix)]}, config)
    tables, matrices = [], []
    factors, momenta = arrays["lr_factor"], arrays["muon_momentum"]
    for step, (factor, momentum) in enumerate(zip(factors, momenta, strict=True)):
        gradient = tensor(arrays["adam_grad"][step])
        table.grad = gradient if table.grad is None else table.grad + gradient
        matrix.grad = tensor(arrays["muon_grad"][step])
        set_schedule(optimizers, float(factor), float(momentum))
        act(optimizers, adam=adam_acts(step, every=EVERY))
        tables.append(table.detach().clone())
        matrices.append(matrix.detach().clone())
    yield arrays["adam_param"], _stacked(tables)
    yield arrays["muon_param"], _stacked(matrices)


def scalar_freeze(arrays: Arrays) -> Pairs:
    """Scalars after each of S updates, of which some change the stage."""
    scalars = Parameter(tensor(arrays["init"]))
    config = replace(_config(arrays), adam_lr=float(arrays["lr"] * arrays["lr_mul"]))
    optimizers = _optimizers({"scalar": [("scalars", scalars)]}, config)
    freeze, changes = int(arrays["freeze_steps"]), arrays["transition"]
    after = []
    for step, gradient in enumerate(map(tensor, arrays["grad"])):
        scalars.grad = gradient if scalars.grad is None else scalars.grad + gradient
        act(
            optimizers,
            adam=adam_acts(step, every=EVERY),
            scalars_rest=changed_within(step, updates=freeze, changes=lambda at: bool(changes[at])),
        )
        after.append(scalars.detach().clone())
    yield arrays["param"], _stacked(after)


def retie_untie(arrays: Arrays) -> Pairs:
    """Head and token table after each of S updates, one until the split and two from then on."""
    head = Parameter(tensor(arrays["init"]).T.contiguous())
    table = Parameter(head.detach().clone())
    config = replace(
        _config(arrays),
        adam_lr=1.0,
        weight_decay=float(arrays["weight_decay"] * arrays["wd_mul"]),
        weight_decay_form="cautious_strict",
    )
    optimizers = _optimizers({"embed": [("table", table)], "head": [("head", head)]}, config)
    heads, tables = [], []
    for step, lr in enumerate(arrays["lr"]):
        set_schedule(optimizers, float(lr), config.muon_momentum)
        for p, gradient in (
            (head, tensor(arrays["grad_head"][step]).T),
            (table, tensor(arrays["grad_embed"][step])),
        ):
            p.grad = gradient if p.grad is None else p.grad + gradient
        act(
            optimizers,
            adam=adam_acts(step, every=EVERY),
            tie=Tie(head, table),
            tied=step <= int(arrays["split_step"]),
        )
        heads.append(head.detach().T.clone())
        tables.append(table.detach().clone())
    yield arrays["head"], _stacked(heads)
    yield arrays["embed"], _stacked(tables)


CADENCE_UNITS: Mapping[str, Unit] = {
    "adam_every_second": Unit(pairs=adam_every_second, bound=5e-6),
    "scalar_freeze": Unit(pairs=scalar_freeze, bound=1e-6),
    "retie_untie": Unit(pairs=retie_untie, bound=1e-6),
}
