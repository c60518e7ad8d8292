"""Units of pairs of tokens at sizes, and by rules, of which no recording is among ours: made here by the formulas."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from harness.bench.parity import check_unit

T, WIDTH, NARROW, ROWS, SIGNS = 9, 20, 7, 53, 5


def rows_of(ids: np.ndarray, rows: int, knows_first: bool) -> np.ndarray:
    """In numpy's int32, which wraps."""
    told = ids.astype(np.int32)
    told[0] = told[0] if knows_first else rows - 1
    with np.errstate(over="ignore"):
        pairs = (np.int32(36313) * ids[1:].astype(np.int32)) ^ (np.int32(27191) * told[:-1])
    return np.array([rows - 1, *(int(pair) % (rows - 1) for pair in pairs)], dtype=np.int32)


def unit(knows_first: bool) -> dict[str, np.ndarray]:
    """What the recording holds, at these sizes."""
    random = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float32)

    ids = random.integers(0, 65536, 20)
    x, x0, cotangent = (normal(1, T, WIDTH) for _ in range(3))
    table, narrow = normal(ROWS, WIDTH), normal(ROWS, NARROW)
    scales = np.array([1.2, -0.3, 0.4], dtype=np.float32)
    rows = rows_of(ids, ROWS, knows_first)[:T]
    of_table, of_narrow = np.zeros_like(table), np.zeros_like(narrow)
    np.add.at(of_table, rows, scales[2] * cotangent[0])
    at = np.array([0, *((a ^ b) % SIGNS for a, b in pairwise(ids[:T]))])
    signs = random.choice([-1, 1], (SIGNS, NARROW)).astype(np.int8)
    np.add.at(of_narrow, rows, 0.7 * signs[at] * cotangent[0, :, :NARROW])
    signed = x.copy()
    signed[0, :, :NARROW] += 0.7 * signs[at] * narrow[rows]
    mixed = scales[0] * x + scales[1] * x0 + scales[2] * table[rows]
    parts = (x, x0, table[rows][None])
    return {
        "in/ids": ids.astype(np.int32),
        "in/x": x,
        "in/x0": x0,
        "in/cotangent": cotangent,
        "w/table": table,
        "w/table_partial": narrow,
        "w/lambdas_resid_x0_bigram": scales,
        "w/sign_lambda": np.array(0.7),
        "h/rows_big": np.array(100_003),
        "h/rows_small": np.array(ROWS),
        "hash/big": rows_of(ids, 100_003, knows_first),
        "hash/small": rows_of(ids, ROWS, knows_first),
        "add/out": mixed,
        "add/grad/x": scales[0] * cotangent,
        "add/grad/x0": scales[1] * cotangent,
        "add/grad/table": of_table,
        "add/grad/lambdas": np.array([(part * cotangent).sum() for part in parts]),
        "sign/index": at.astype(np.int32),
        "sign/table": signs,
        "sign/out": signed,
        "sign/grad/table": of_narrow,
    }


@pytest.mark.parametrize(
    ("name", "knows_first"),
    [
        ("bigram_wide", False),
        ("bigram_r62", False),
        ("bigram_r68", True),
        ("bigram_r69", False),
        ("bigram_r73_other", True),
        ("bigram_r83", False),
    ],
)
def test_a_record_hashes_the_first_token_or_does_not(
    name: str, knows_first: bool, tmp_path: Path
) -> None:
    for rule in (True, False):
        np.savez(tmp_path / f"{name}.npz", **unit(rule))
        assert check_unit(tmp_path / f"{name}.npz").passed == (rule == knows_first)
