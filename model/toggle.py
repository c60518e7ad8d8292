"""How a toggle is declared: a configuration field with its facts.

The record that introduced it, its meaning in one line, which of its values belong to which record
(`choices`), and what a value needs (`requires`) or cannot stand beside (`conflicts`) in other
sections. Listing, documentation, validation and the JSON Schema derive from that. `affects` says
what a value other than the default changes, in words of AFFECTS; the law tests hold every toggle to
it, and to changing nothing else.
"""

from dataclasses import field
from typing import Any

ON = "not null"  # in `requires`: any value that switches the other toggle on

AFFECTS = {
    "loss": "the losses, within the first updates",
    "rounding": "the losses by rounding alone: the same mathematics",
    "parameters": "names, shapes, dtypes and roles of the parameters",
    "initial": "initial values of parameters that are there either way",
    "buffers": "the network's buffers",
    "precision": "dtypes inside the network while it trains",
    "kernel": "the attention kernel and what it is handed as its mask",
    "mask": "which key a query sees",
    "groups": "optimizer objects, their groups and settings",
    "schedule": "rates, momentum, window or weights of losses by step",
    "data": "tokens, their order and how they reach the device",
    "validation": "when, on what and how the loss is validated",
    "comm": "what several processes exchange, and when",
    "runtime": "compiler, allocator and files",
    "clock": "which steps are timed",
    "placement": "what may run beside it",
}


def toggle(default: Any, **facts: Any) -> Any:
    """A configuration field with its facts.

    Record, doc, affects, example, choices, requires, conflicts, rounds, ge, gt, le, unit.

    example: a value that shows the effect, where the type and `choices` list none.
    rounds: it says where to round, so that under precision.mode fp32 it does nothing at all.
    """
    return field(default=default, metadata={"affects": ("loss",), **facts})
