"""How a toggle of the update rules is declared (metadata as in model/toggle.py)."""

from dataclasses import field
from typing import Any

MUON_ONLY = {"optim.matrix_optimizer": ("muon",)}
ORTHOGONAL = {"optim.matrix_optimizer": ("muon", "orthogonal_nesterov")}


def toggle(default: Any, **facts: Any) -> Any:
    """A configuration field with its facts.

    Record, doc, affects, example, choices, requires, conflicts, ge, gt, le, unit.
    """
    return field(default=default, metadata={"affects": ("loss",), **facts})
