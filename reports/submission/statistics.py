"""The house table of a record: runs, steps, time and loss of the arm and of its baseline."""

import csv
import io
import math
from collections.abc import Mapping, Sequence

import pandas as pd

from reports.inputs.export import as_text
from reports.stats.rules import track1
from reports.submission.case import Case

StatisticsRow = Mapping[str, str | int | None]  # column -> what is printed


def baseline_beside(case: Case) -> pd.DataFrame:
    """The baseline's runs on nodes where the arm ran, or all of them where none is shared."""
    same = case.baseline[case.baseline["node"].isin(set(case.runs["node"].dropna()))]
    if len(same):
        return same
    return case.baseline


def statistics(case: Case) -> list[StatisticsRow]:
    """The arm and the baseline: means with deviations, p of the one-sided t test at the target."""
    baseline = f"{case.experiment.plan.baseline} (baseline)"
    return [
        statistics_row(case.arm, case.runs, case.target),
        statistics_row(baseline, baseline_beside(case), case.target),
    ]


def statistics_row(name: str, runs: pd.DataFrame, target: float) -> StatisticsRow:
    losses, times = runs["val_loss"].dropna(), runs["train_time_s"].dropna()
    steps = None
    if len(runs):
        steps = int(runs["steps"].iloc[0])
    return {
        "arm": name,
        "runs": len(runs),
        "steps": steps,
        "time mean, s": decimals(times.mean(), 3),
        "time sd, s": decimals(times.std(ddof=1), 3),
        "loss mean": decimals(losses.mean(), 5),
        "loss sd": decimals(losses.std(ddof=1), 5),
        "loss buffer": decimals(target - losses.mean(), 5),
        f"p (mean < {target:g})": p_of(losses.tolist(), target),
    }


def p_of(losses: Sequence[float], target: float) -> str | None:
    """p of the benchmark's rule; None where it refuses the losses."""
    try:
        p = track1(losses, target).p
    except ValueError:
        return None
    if p is None:
        return None
    return f"{p:.2g}"


def decimals(value: float, digits: int) -> str | None:
    if not math.isfinite(value):
        return None
    return f"{value:.{digits}f}"


def as_csv(rows: Sequence[StatisticsRow]) -> str:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: as_text(value) for name, value in row.items()})
    return buffer.getvalue()


def as_markdown(rows: Sequence[StatisticsRow]) -> str:
    head = list(rows[0])
    lines = [markdown_line(head), markdown_line(["---"] * len(head))]
    for row in rows:
        lines.append(markdown_line([row[name] for name in head]))
    return "\n".join(lines)


def markdown_line(cells: Sequence[str | int | None]) -> str:
    texts = []
    for cell in cells:
        text = "–"
        if cell is not None:
            text = str(cell).replace("|", "\\|").replace("\n", " ")
        texts.append(text)
    return f"| {' | '.join(texts)} |"
