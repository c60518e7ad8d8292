"""On what runs were made, as far as it is known: machines, environments, nodes."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

MACHINE = ("device", "gpu", "n_gpus", "gpu_memory_gb")  # never compared in time where they differ
ENVIRONMENT = ("driver", "cuda", "torch")  # a difference is part of the effect, and told
NOT_KNOWN = ("", "None", "nan", "unknown", "<NA>")


def columns_of(runs: pd.DataFrame, arm: str, *columns: str) -> list[NDArray[np.object_]]:
    """The columns of an arm's rows.

    Arrays, of which forty arms are cut in no time, as they are not from a table."""
    rows = np.flatnonzero(runs["arm"].to_numpy() == arm)
    return [runs[column].to_numpy()[rows] for column in columns]


def known_values(runs: pd.DataFrame, arm: str, column: str) -> tuple[str, ...]:
    """What is known of an arm's runs, each value once."""
    if column not in runs:
        return ()
    (values,) = columns_of(runs, arm, column)
    texts = dict.fromkeys(map(str, values))
    return tuple(text for text in texts if text not in NOT_KNOWN)


def same_machine(runs: pd.DataFrame, arms: Sequence[str]) -> bool:
    """Whether nothing known of the runs' machines differs: the GPUs, how many, their memory.

    What a run does not know differs from nothing."""
    for column in MACHINE:
        values: set[str] = set()
        for arm in arms:
            values.update(known_values(runs, arm, column))
        if len(values) > 1:
            return False
    return True


def environment_change(runs: pd.DataFrame, arm: str, baseline: str) -> str | None:
    """How an arm's driver, CUDA or torch differ from the baseline's, None where nothing known does.

    In words: 'torch 2.9.0 instead of 2.8.0'."""
    parts = []
    for column in ENVIRONMENT:
        here, there = known_values(runs, baseline, column), known_values(runs, arm, column)
        if here and there and set(here) != set(there):
            word = "CUDA" if column == "cuda" else column
            parts.append(f"{word} {'/'.join(there)} instead of {'/'.join(here)}")
    return ", ".join(parts) or None


def nodes_unknown(runs: pd.DataFrame, *arms: str) -> bool:
    """Whether the nodes of some arm's runs are unknown."""
    return any(not known_values(runs, arm, "node") for arm in arms)
