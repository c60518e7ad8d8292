"""Randomised complete blocks: every cell once in each, in a random order that anyone can redo."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from harness.run.plan import PlanRun
from harness.run.spec import PlannedRun


def order_in_block(name: str, seed: int, n_cells: int) -> list[int]:
    """The cells of one block in an order that the experiment's name and the block's seed fix."""
    digest = hashlib.sha256(f"{name}/{seed}".encode()).digest()
    rng = np.random.default_rng(int.from_bytes(digest[:8]))
    order: list[int] = rng.permutation(n_cells).tolist()
    return order


def in_order_of(before: Sequence[PlanRun], runs: Sequence[PlannedRun]) -> list[PlannedRun]:
    """Blocks that were planned before in the order that they had, under whatever name it was drawn.

    A block with other runs than it had is in the order that is drawn now."""
    places = {row.intent_id: row.place for row in before if row.place is not None}
    ordered: list[PlannedRun] = []
    for _, group in groupby(runs, key=lambda run: (run.block, run.spec.role)):
        block = list(group)
        had = {places[r.spec.intent_id]: r for r in block if r.spec.intent_id in places}
        if had.keys() == {run.place for run in block}:
            block = [replace(had[place], place=place) for place in sorted(had)]
        ordered += block
    return ordered
