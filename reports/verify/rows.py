"""A page's rows against its plan and curves, and the sums of its table over them.

Plain sums: no pandas, none of the page's code.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reports.page.embed import LOSS_DIGITS, TIME_DIGITS
from reports.stats.digits import same_number
from reports.verify.page import Embedded, Page, Printed, Row
from reports.verify.table import own_metrics

ROUNDING = 0.51  # of the last digit: how far a rounded value may be off
ENDED = ("finished", "diverged")
# Metric of the printed table -> the role it is taken from.
MEANS = {
    "val_loss": "loss",
    "heldout_loss": "loss",
    "bits_per_byte": "loss",
    "step_ms": "timing",
    "steps": "loss",
}


def check_rows(data: Embedded, rows: Sequence[Row]) -> Iterator[str]:
    """Rows against plan and curves, all of them from the page's data."""
    planned: set[tuple[str, str]] = set()
    there = {(row["arm"], row["run_id"]) for row in rows}
    for run in data["plan"]["runs"]:
        of_run = {(run["arm"], run_id) for run_id in ids_of(run)}
        planned |= of_run
        if not of_run & there:
            yield (
                f"run {run['run_id']} of arm {run['arm']!r}, seed {run['seed']}, is planned but has"
                " no row"
            )
    for row in rows:
        run_id = row["run_id"]
        if (row["arm"], run_id) not in planned:
            yield f"run {run_id} has a row but is not planned for arm {row['arm']!r}"
        if row["status"] in ENDED and run_id not in data["results"]:
            yield f"run {run_id} is {row['status']} but has no result"
        curve = data["curves"].get(run_id)
        if row["status"] == "finished" and curve and curve["val_loss"]:
            yield from check_last_point(row, curve)


def ids_of(run: Embedded) -> list[str]:
    """The id of a planned run, and those that it had before."""
    return [run["run_id"], *(run.get("older") or [])]


def check_last_point(row: Row, curve: Embedded) -> Iterator[str]:
    """A finished run's loss and time against where its curve ends."""
    for column, digits in (("val_loss", LOSS_DIGITS), ("train_time_s", TIME_DIGITS)):
        value, last = row[column], curve[column][-1]
        if not value and not last:
            continue  # a log without times
        if value is None or last is None or abs(value - last) > ROUNDING * 10.0**-digits:
            yield (
                f"run {row['run_id']}: {column} {value} is not the last point of its curve, {last}"
            )


def check_aggregates(page: Page, index: int, data: Embedded, rows: Sequence[Row]) -> Iterator[str]:
    """Means, deviations and counts of the printed table, by plain sums over the page's rows.

    index: of the experiment among those of the page.
    """
    arms = [arm["name"] for arm in data["plan"]["arms"]]
    outcomes = outcomes_of(data, rows)
    means = MEANS | dict.fromkeys(own_metrics(data["plan"]), "loss")
    compared = {metric: compared_rows(outcomes, arms, role) for metric, role in means.items()}
    for place, arm in enumerate(arms):
        printed = page.verdicts.get((index, place), {})
        if not printed:
            yield f"arm {arm!r} is missing in the verdict table"
        for metric in means:
            of_arm = [row for row in compared[metric] if row["arm"] == arm]
            yield from check_mean(printed, metric, of_arm, arm)
        yield from check_counts(printed, [r for r in compared["val_loss"] if r["arm"] == arm], arm)


def check_mean(
    printed: Mapping[str, Printed], metric: str, rows: Sequence[Row], arm: str
) -> Iterator[str]:
    """An arm's printed mean and deviation against those of its rows."""
    values = []
    for row in rows:
        if row["status"] == "finished" and row[metric] is not None:
            values.append(row[metric])
    if not values:
        yield from agree(printed, f"{metric}.mean", None, arm)
        return
    mean = math.fsum(values) / len(values)
    yield from agree(printed, f"{metric}.mean", mean, arm)
    if len(values) > 1:
        squares = math.fsum((value - mean) ** 2 for value in values)
        yield from agree(printed, f"{metric}.sd", math.sqrt(squares / (len(values) - 1)), arm)


def check_counts(printed: Mapping[str, Printed], rows: Sequence[Row], arm: str) -> Iterator[str]:
    """How many of an arm's runs finished and diverged, as printed, against its rows."""
    for status in ENDED:
        n = float(sum(row["status"] == status for row in rows))
        part = printed.get(f"n.{status}")
        carried = None
        if part is not None:
            carried = part.values[0]
        elif not n:
            continue
        if carried != n:
            yield f"arm {arm!r}: n.{status} is printed as {carried} but the rows give {n:.0f}"


def agree(printed: Mapping[str, Printed], key: str, value: float | None, arm: str) -> Iterator[str]:
    """A sentence where the page prints another value under this key.

    What is not printed at all is left to the rendering check.
    """
    if key not in printed:
        return
    carried, expected = printed[key].values, (value,)
    if not all(same_number(a, b) for a, b in zip(carried, expected, strict=True)):
        yield (
            f"arm {arm!r}: {key} is printed as {printed[key].text} ({carried}) but the"
            f" rows give {expected}"
        )


def outcomes_of(data: Embedded, rows: Sequence[Row]) -> list[Row]:
    """The rows that count.

    Those with an outcome, once each, the stale ones where they were admitted.
    """
    outcomes = []
    for row in rows:
        if row["status"] in ENDED and (data["accept_stale"] or not row["stale"]):
            outcomes.append(row)
    return originals(outcomes)


def originals(rows: Sequence[Row]) -> list[Row]:
    """The rows without copies.

    A run that comes again under its id, its metrics file, or its very loss and time counts once.
    """
    seen: set[tuple[Any, ...]] = set()
    first = []
    for row in rows:
        marks = marks_of(row)
        if not marks & seen:
            first.append(row)
        seen |= marks
    return first


def marks_of(row: Row) -> set[tuple[Any, ...]]:
    """What a copy of this row would share with it."""
    where = (row["arm"], row["budget"], row["role"])
    loss, seconds = row["val_loss"], row["train_time_s"]
    marks: set[tuple[Any, ...]] = {("id", *where, row["run_id"])}
    if row.get("metrics_digest"):
        marks.add(("digest", *where, row["metrics_digest"]))
    if loss is not None and seconds is not None:
        marks.add(("values", *where, loss, seconds))
    return marks


def compared_rows(rows: Sequence[Row], arms: Sequence[str], role: str) -> list[Row]:
    """The rows of a role at the longest budget that every arm with rows has.

    At its own where there is none; all rows where there is no such phase.
    """
    phase = [row for row in rows if row["role"] == role] or rows
    budgets: dict[str, set[Any]] = {}
    for row in phase:
        if row["arm"] in arms:
            budgets.setdefault(row["arm"], set()).add(row["budget"])
    shared: set[Any] = set()
    if budgets:
        shared = set.intersection(*budgets.values())
    if shared:
        longest = max(shared)
        return [row for row in phase if row["budget"] == longest]
    return [row for row in phase if row["budget"] == max(budgets[row["arm"]])]
