"""Curves of a size that a page can carry: their ends, the highest and lowest of every stretch."""

import numpy as np
import pandas as pd

MOST = 2000  # points of a run on a page; an export has them all


def thinned(curves: pd.DataFrame) -> pd.DataFrame:
    """The curves with at most MOST points a run; those that have no more stay as they are."""
    if not len(curves) or curves["run_id"].value_counts().max() <= MOST:
        return curves
    parts = []
    for _, rows in curves.groupby("run_id", sort=False):
        if len(rows) > MOST:
            rows = rows.iloc[kept_of(rows["val_loss"].to_numpy(float))]
        parts.append(rows)
    return pd.concat(parts, ignore_index=True)


def kept_of(losses: np.ndarray) -> list[int]:
    """The places of the points that stay, in order."""
    last = len(losses) - 1
    kept = {0, last}
    for stretch in np.array_split(np.arange(1, last), MOST // 2 - 1):
        values = losses[stretch]
        high = np.where(np.isnan(values), np.inf, values)
        low = np.where(np.isnan(values), -np.inf, values)
        kept.add(int(stretch[high.argmin()]))
        kept.add(int(stretch[low.argmax()]))
    return sorted(kept)
