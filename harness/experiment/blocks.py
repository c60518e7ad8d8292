"""Randomised complete blocks: every cell once in each, in a random order that anyone can redo."""

import hashlib

import numpy as np


def order_in_block(name: str, seed: int, n_cells: int) -> list[int]:
    """The cells of one block in an order that the experiment's name and the block's seed fix."""
    digest = hashlib.sha256(f"{name}/{seed}".encode()).digest()
    rng = np.random.default_rng(int.from_bytes(digest[:8]))
    order: list[int] = rng.permutation(n_cells).tolist()
    return order
