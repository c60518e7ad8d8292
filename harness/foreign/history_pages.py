"""The losses that the public records' own pages print, beside those of their logs."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev

from harness.foreign.history_rows import HistoryRun, PrintedRow
from harness.foreign.printed import printed_losses

TARGET = 3.28  # of the short track, and of the optimization track
MOST = 0.5  # of a list's losses that an arm's logs have, for the list to be of that arm
PRINTED_DIGITS = 4


def printed_rows(logs: Path, runs: Sequence[HistoryRun]) -> list[PrintedRow]:
    """A row for each list of losses that a page prints, with the arm whose logs hold them.

    logs: a track's folder of records. runs: its rows of runs. The arm of a list that no logs hold
    is ''."""
    of_arm: dict[str, Counter[float]] = defaultdict(Counter)
    track = ""
    for run in runs:
        track = run.track
        of_arm[run.arm][round(float(run.val_loss), PRINTED_DIGITS)] += 1
    rows = []
    for folder in sorted(path for path in logs.iterdir() if path.is_dir()):
        arms = {}
        for arm, losses in of_arm.items():
            if arm.partition("/")[0].partition(" (")[0] == folder.name:
                arms[arm] = losses
        lists = {tuple(values) for _, values in printed_losses(folder, TARGET)}
        for values in sorted(lists):
            rows.append(_printed_row(track, folder.name, values, arms))
    return rows


def _printed_row(
    track: str, folder: str, values: Sequence[float], arms: Mapping[str, Counter[float]]
) -> PrintedRow:
    """A list in figures, with the arm that has most of its losses."""
    wanted = Counter(round(value, PRINTED_DIGITS) for value in values)
    arm, n_found = "", 0
    for name, losses in arms.items():
        n_common = (wanted & losses).total()
        if n_common > max(n_found, MOST * len(values)):
            arm, n_found = name, n_common
    return PrintedRow(
        track=track,
        folder=folder,
        arm=arm,
        n=len(values),
        n_in_logs=n_found,
        mean=round(fmean(values), PRINTED_DIGITS + 2),
        sd=round(stdev(values), PRINTED_DIGITS + 2),
    )
