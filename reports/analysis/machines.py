"""On what runs were made, as far as it is known: machines, environments, nodes.

A block is to be one seed on one node. Where a cluster put its arms on several, times are compared
within seed and node: `cut_by_node` makes every node of such a block a block of its own. Runs of
foreign trainers that several calls made are compared in time within a call: `within_sessions`.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.run.environment import SHOWN_VERSIONS

MACHINE = ("device", "gpu", "n_gpus", "gpu_memory_gb")  # never compared in time where they differ
BY_NODE = "on"  # between a block and its node
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
    for column in [name for name in MACHINE if _varies(runs, name)]:
        rows = np.flatnonzero(runs["arm"].isin(arms))
        values = {str(value) for value in runs[column].to_numpy()[rows]}
        if len(values.difference(NOT_KNOWN)) > 1:
            return False
    return True


def _varies(runs: pd.DataFrame, column: str) -> bool:
    """Whether there is a column whose values are not all the same."""
    return column in runs and len(set(map(str, runs[column]))) > 1


def differs_in_a_block(runs: pd.DataFrame, arms: Sequence[str], column: str) -> bool:
    """Whether runs of a block have several known values in a column."""
    if not _varies(runs, column):
        return False
    values_of: dict[str, set[str]] = {}
    for arm in arms:
        for block, value in zip(*columns_of(runs, arm, "block", column), strict=True):
            if not pd.isna(block) and not pd.isna(value):
                values_of.setdefault(str(block), set()).add(str(value))
    return any(len(values) > 1 for values in values_of.values())


def environment_of(runs: pd.DataFrame, arm: str) -> dict[str, str]:
    """What is known of the driver, CUDA and torch of an arm's runs, by column."""
    versions = {}
    for column in SHOWN_VERSIONS:
        versions[column] = "/".join(sorted(known_values(runs, arm, column)))
    return versions


def environment_change(of_arm: Mapping[str, str], of_baseline: Mapping[str, str]) -> str | None:
    """How an arm's driver, CUDA or torch differ from the baseline's, None where nothing known does.

    In words: 'torch 2.9.0 instead of 2.8.0'. A column that is missing or '' is unknown."""
    parts = []
    for column, word in SHOWN_VERSIONS.items():
        here, there = of_baseline.get(column), of_arm.get(column)
        if here and there and here != there:
            parts.append(f"{word} {there} instead of {here}")
    return ", ".join(parts) or None


def nodes_unknown(runs: pd.DataFrame, *arms: str) -> bool:
    """Whether the nodes of some arm's runs are unknown."""
    return any(not known_values(runs, arm, "node") for arm in arms)


def cut_by_node(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs, a block that several known nodes made cut into one block for each of them."""
    return _cut(runs, "node", BY_NODE)


def within_sessions(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs whose times can be compared: of several sessions, those with a partner in theirs.

    A partner is a finished run of another arm, in the same block. A block that several sessions
    made is cut into one for each of them."""
    if "session" not in runs or runs["session"].nunique(dropna=False) < 2:
        return runs
    finished = runs[(runs["status"] == "finished") & runs["block"].notna()]
    arms_of = finished.groupby(["block", "session"])["arm"].transform("nunique")
    return _cut(finished[arms_of > 1], "session", "in")


def _cut(runs: pd.DataFrame, column: str, word: str) -> pd.DataFrame:
    """The runs, a block with several known values in a column cut into one for each of them."""
    blocks, places = runs["block"].tolist(), [*map(str, runs[column])]
    places_of: dict[object, set[str]] = {}
    for block, place in zip(blocks, places, strict=True):
        if not pd.isna(block) and place not in NOT_KNOWN:
            places_of.setdefault(block, set()).add(place)
    if not any(len(names) > 1 for names in places_of.values()):
        return runs
    cut = []
    for block, place in zip(blocks, places, strict=True):
        if len(places_of.get(block, ())) > 1:
            block = f"{block} {word} {place}"
        cut.append(block)
    return runs.assign(block=pd.Series(cut, index=runs.index, dtype=object))


def is_cut(runs: pd.DataFrame) -> bool:
    """Whether some block of runs was cut by node."""
    return any(f" {BY_NODE} " in str(block) for block in runs["block"])


def on_several_nodes(runs: pd.DataFrame, *arms: str) -> bool:
    """Whether the nodes of the arms' runs are known, and more than one."""
    names: set[str] = set()
    for arm in arms:
        names.update(known_values(runs, arm, "node"))
    return len(names) > 1


def is_sticky(runs: pd.DataFrame, *arms: str) -> bool:
    """Whether one of the arms has several runs, all on one node, and another arm is elsewhere."""
    if not on_several_nodes(runs, *arms):
        return False
    for arm in arms:
        (nodes,) = columns_of(runs, arm, "node")
        if len(nodes) > 1 and len(known_values(runs, arm, "node")) == 1:
            return True
    return False
