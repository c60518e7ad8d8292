"""A recorded unit: numbers of a script's own function, held against the rule here.

A unit is NAME.npz: inputs, and what the script made of them. Its name says which script and
function; sizes come from its arrays.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch

Arrays = Mapping[str, np.ndarray]
# what a script computed, and what the rule makes of the same inputs, one after another
Pairs = Iterator[tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True, kw_only=True)
class Unit:
    """How a unit is checked.

    pairs: all its figures. bound: of their largest difference. relative: to the largest value of
    its figure, else absolute.
    """

    pairs: Callable[[Arrays], Pairs]
    bound: float
    relative: bool = False


def tensor(array: np.ndarray) -> torch.Tensor:
    """A copy, in float64: cautious decay goes by the sign of updates that may be all but zero."""
    return torch.tensor(array, dtype=torch.float64)


def deviation(unit: Unit, arrays: Arrays) -> float:
    """The largest difference; a figure that is not a number deviates by it.

    Raises KeyError for an array that is not there, ValueError for a figure of another shape.
    """
    gaps = []
    for theirs, ours in unit.pairs(arrays):
        if theirs.shape != ours.shape:
            raise ValueError(f"figures of shape {theirs.shape}, here {ours.shape}")
        size = np.max(np.abs(theirs)) if unit.relative else 0.0
        gaps.append(np.max(np.abs(theirs - ours)) / (size or 1.0))
    return float(np.max(gaps))
