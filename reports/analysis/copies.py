"""Rows of a table of runs that are the same run once more."""

import numpy as np
import pandas as pd


def duplicated(runs: pd.DataFrame) -> "pd.Series[bool]":
    """Copies: rows that repeat an earlier one of the arm.

    With the same run_id, the same metrics file, or the same loss and time to the last digit."""
    copy = _repeats(runs, "run_id")
    if "metrics_digest" in runs:
        copy |= _repeats(runs, "metrics_digest")
    return copy | _repeats(runs, "val_loss", "train_time_s")


def _repeats(runs: pd.DataFrame, *columns: str) -> "pd.Series[bool]":
    """Rows that repeat an earlier one's arm, budget, role and known values of these columns.

    Arm, budget and role are known of every run."""
    is_known = np.logical_and.reduce([runs[column].notna() for column in columns])
    values = [runs[column].tolist() for column in ("arm", "budget", "role", *columns)]
    seen: set[tuple[object, ...]] = set()
    repeats = []
    for *row, all_known in zip(*values, is_known, strict=True):
        repeats.append(all_known and tuple(row) in seen)
        seen.add(tuple(row))
    return pd.Series(repeats, index=runs.index, dtype=bool)
