"""What the plug-ins that are on in a configuration change, and the checks of what they give back.

The one place where a plug-in's functions are called, but for lr_factor, which needs no torch
(harness/config/schedule.py); harness/config/plugins.py has their names and arguments. Without a
plug-in that is on a configuration has no hook anywhere: nothing of it runs.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from harness.config import plugins
from harness.config.run import RunConfig
from harness.data.documents import Documents, OrderedStream
from harness.data.loader import TokenStream
from harness.model.gpt import GPT
from harness.optim.build import Rules
from harness.optim.muon import Group

FORWARD = GPT.forward
HANDED = ("params", "names", "role", "lr")  # of a group of parameters, to a plug-in's optimizers


def named(value: Any) -> str:
    """What a hook gave, for a message of one line."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return plugins.named(value)


class OwnLoss(nn.Module):
    """The network with a training loss of a plug-in's: ids and targets (B, T) to a scalar.

    Validation never calls it.
    """

    def __init__(self, model: GPT, loss: Callable[..., Tensor], toggles: Any) -> None:
        super().__init__()
        self.model, self.loss, self.toggles = model, loss, toggles

    def forward(self, ids_BT: Tensor, targets_BT: Tensor, window: Tensor | None = None) -> Tensor:
        logits_NV = self.model.logits(ids_BT, window).flatten(0, 1)
        return self.loss(logits_NV, targets_BT.flatten(), self.toggles)


class Hooks:
    """Those of one configuration."""

    def __init__(self, config: RunConfig) -> None:
        self.on = plugins.switched_on(config.plugin)

    def build(self, model: GPT) -> None:
        """Let every plug-in change the new network.

        Raises UserError where one changes what the network computes of targets: validation is
        plain cross-entropy, whatever an arm trains on.
        """
        for plug in self.on:
            build = plug.hook("build")
            if build is None:
                continue
            build(model, plug.toggles)
            changed = "forward" in vars(model) or type(model).forward is not FORWARD
            if changed or model._forward_hooks or model._forward_pre_hooks:
                raise plug.fail(
                    "build",
                    "changes forward of the whole network, which validation is measured by: "
                    "change a block or model.logits, and what is trained on in "
                    "loss(logits, targets, toggles)",
                )

    def training(self, model: GPT) -> nn.Module:
        """What training passes batches through: the network itself where no plug-in has a loss."""
        plug = self._that_has("loss")
        return model if plug is None else OwnLoss(model, plug.module.loss, plug.toggles)

    def check_loss(self, loss: Any) -> None:
        """Raises UserError where a plug-in's loss is none that can be trained on."""
        plug = self._that_has("loss")
        if plug is None:
            return
        if not isinstance(loss, Tensor) or loss.ndim != 0:
            raise plug.fail(
                "loss",
                f"gives {named(loss)}, but must give one number as a 0-d tensor: take the mean",
            )
        if not loss.requires_grad:
            raise plug.fail(
                "loss", "gives a tensor without gradient: compute it from logits, without detaching"
            )

    def rules(self) -> Rules | None:
        """From groups of parameters to those that a plug-in moves, and those that it leaves."""
        plug = self._that_has("optimizers")
        if plug is None:
            return None
        own = plug

        def rules(groups: list[Group]) -> tuple[list[torch.optim.Optimizer], list[Group]]:
            handed = [{key: group[key] for key in HANDED} for group in groups]
            given = own.module.optimizers(handed, own.toggles)
            return check_optimizers(own, groups, given)

        return rules

    def stream(self, shards: Sequence[Path], separator: int, seed: int) -> TokenStream | None:
        """The training tokens in a plug-in's order of their documents, None where none has one.

        shards: their files. separator: what opens a document. seed: the run's.
        """
        plug = self._that_has("order")
        if plug is None:
            return None
        documents = Documents(shards, separator)
        given = plug.module.order(documents, seed, plug.toggles)
        return OrderedStream(documents, check_order(plug, len(documents), given))

    def _that_has(self, name: str) -> plugins.PlugIn | None:
        return next((plug for plug in self.on if plug.hook(name) is not None), None)


def check_order(plug: plugins.PlugIn, n: int, given: Any) -> NDArray[np.int64]:
    """A plug-in's order of n documents; raises UserError where it is no permutation."""
    try:
        order = np.asarray(given)
    except ValueError:  # lists of several lengths
        order = np.zeros((0, 0))
    if order.ndim != 1 or order.dtype.kind not in "iu":
        raise plug.fail(
            "order", f"gives {named(given)}, but must give an array of whole numbers: their indices"
        )
    wrong = ""
    outside = order[(order < 0) | (order >= n)]
    if len(outside):
        wrong = f"{outside[0]}"
    elif len(np.unique(order)) < len(order):
        wrong = f"{np.argmax(np.bincount(order))} more than once"
    elif len(order) < n:
        wrong = f"{len(order)} of them"
    if wrong:
        raise plug.fail(
            "order", f"of {n} documents gives {wrong}: give every number from 0 to {n - 1} once"
        )
    return order.astype(np.int64)


def check_optimizers(
    plug: plugins.PlugIn, groups: list[Group], given: Any
) -> tuple[list[torch.optim.Optimizer], list[Group]]:
    """A plug-in's optimizers, and the groups that it gave back for the preset's own.

    groups: all of them. Raises UserError unless every parameter stands in one of them once.
    """
    by_names = {tuple(group["names"]): group for group in groups}
    optimizers, left = [], []
    for part in given if isinstance(given, list | tuple) else [None]:
        if isinstance(part, torch.optim.Optimizer):
            optimizers.append(part)
        elif isinstance(part, dict) and tuple(part.get("names", ())) in by_names:
            group = by_names[tuple(part["names"])]
            if part.get("lr") != group["lr"]:
                raise plug.fail(
                    "optimizers",
                    f"gives the group of {group['names'][0]} with another lr: give groups as they "
                    "came, or an optimizer of yours that moves it at that rate",
                )
            left.append(group)
        else:
            raise plug.fail(
                "optimizers",
                f"gives {named(given if part is None else part)}, but must give a list of "
                "torch.optim.Optimizer, and of groups as they came for the preset's own rules",
            )
    moved = [group for optimizer in optimizers for group in optimizer.param_groups]
    names = {id(p): name for g in groups for p, name in zip(g["params"], g["names"], strict=True)}
    for group in moved:
        group["base_lr"] = own_rate(plug, group, names)
    times = Counter(id(p) for group in [*moved, *left] for p in group["params"])
    for what, wrong, mend in (
        ("leaves out", [n for p, n in names.items() if not times[p]], "its group, or move it"),
        ("repeats", [n for p, n in names.items() if times[p] > 1], "it once"),
        (
            "moves",
            ["what is no parameter of the network"] * any(p not in names for p in times),
            "those of groups alone",
        ),
    ):
        if wrong:
            more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
            raise plug.fail("optimizers", f"{what} {wrong[0]}{more}: give {mend}")
    return optimizers, left


def own_rate(plug: plugins.PlugIn, group: Group, names: Mapping[int, str]) -> float:
    """The rate of a group of a plug-in's optimizer; raises UserError where it has none.

    names: of parameters, by their identity.
    """
    if "lr" not in group:
        raise plug.fail("optimizers", "gives a group without 'lr': the schedule scales it")
    lr = group["lr"]
    is_number = isinstance(lr, Real) or (isinstance(lr, Tensor) and lr.numel() == 1)
    if is_number and math.isfinite(lr):
        return float(lr)
    held = [names[id(p)] for p in group["params"] if id(p) in names]
    more = f" and {len(held) - 1} more" if len(held) > 1 else ""
    raise plug.fail(
        "optimizers",
        f"gives the group of {held[0] if held else 'no parameter'}{more} the lr {named(lr)}, but "
        "must give a finite number: set the toggle that it comes from, or keep the group's own lr",
    )
