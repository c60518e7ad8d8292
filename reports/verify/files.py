"""A page's rows and curves against the files of the runs, and these against their digests."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.run.guarded import is_file, is_name, read_bytes, read_text
from harness.run.identity import wrong_identity
from harness.run.parse import parse_json
from harness.run.plan_file import read_plan_file
from harness.run.results import UNSEALED, examine
from reports.inputs.load import load
from reports.inputs.memory import Memory
from reports.inputs.step_times import DIGITS, LEVELS
from reports.page.embed import LOSS_DIGITS, TIME_DIGITS, page_digest
from reports.verify.page import Embedded, Row
from reports.verify.rows import ROUNDING, ids_of
from reports.verify.table import own_metrics

# columns of a row that stand in result.json
RECORDED = (
    "status",
    "val_loss",
    "heldout_loss",
    "train_time_s",
    "step_ms",
    "steps",
    "tokens",
    "peak_allocated_mib",
)
WHOLE_UP_TO = 2000  # points: of a longer curve the page shows a part, at least half as many
TIMES = ("train_time_s", "step_ms")  # no times where the machine stood still


def check_results(
    data: Embedded, rows: Sequence[Row], results: Path, *, with_curves: bool = True
) -> Iterator[str]:
    """The page's rows and curves against the files of the runs.

    These are held against the digests in result.json. with_curves: the page has them.
    """
    for planned in data["plan"]["runs"]:
        ids = ids_of(planned)
        there = [i for i in ids if is_name(i) and is_file(results / "runs" / i / "result.json")]
        if there and not any(i in data["results"] for i in there):
            yield f"run {there[0]} has a result in {results} that the page does not show"
    path = results / "experiments" / data["plan"]["name"] / "experiment.json"
    if is_file(path):
        try:
            read_plan_file(path)
        except (OSError, ValueError) as error:
            yield f"{path}: {error}"
    by_id = {row["run_id"]: row for row in rows}
    for run_id in data["results"]:
        folder = results / "runs" / run_id
        if not is_name(run_id) or not is_file(folder / "result.json"):
            yield f"run {run_id}: {folder / 'result.json'} is missing"
            continue
        recorded, wrong = examine(folder, run_id)
        if recorded is not None and recorded.schema > UNSEALED and not recorded.imported:
            wrong = wrong or wrong_identity(folder, recorded)
        if recorded is None or wrong:
            yield f"run {run_id}: {wrong}"
            continue
        result = parse_json(read_bytes(folder / "result.json"))
        yield from check_result(data, run_id, by_id.get(run_id, {}), folder, result)
        yield from check_own(data, run_id, by_id.get(run_id, {}), folder, result)
        if not with_curves:
            continue
        steps = data["step_times"].get(run_id)
        curve = curve_of(data, run_id)
        yield from check_curve(
            run_id, curve, steps, folder / "metrics.jsonl", timed=not stood_still(result)
        )


def check_memory(data: Embedded, results: Path) -> Iterator[str]:
    """Where the folder remembers more of the page's question than the page."""
    try:
        now = load(data["plan"]["name"], results).memory
    except ValueError:
        return  # the experiment is gone; what is wrong with its runs is said by run
    then = Memory.from_mapping(data.get("memory") or {})
    if (now.changed, dict(now.lost), now.family) != (then.changed, dict(then.lost), then.family):
        yield (
            "the ledger remembers of its question what the page does not say: "
            f"{' '.join(now.notes) or 'nothing'} Write the page again"
        )


def stood_still(result: Embedded) -> bool:
    """Whether the run's clock ran while its machine stood still."""
    return any(disturbance["kind"] == "still" for disturbance in result.get("disturbed") or ())


def check_result(
    data: Embedded, run_id: str, row: Row, folder: Path, result: Embedded
) -> Iterator[str]:
    """A run's result.json against the page, and its files against their recorded digests.

    run_id, row: of the page's table. folder: of the run's files.
    """
    if page_digest(result) != data["result_digests"].get(run_id):
        yield f"run {run_id}: result.json is not the one this page was made from"
    untimed = TIMES if stood_still(result) else ()
    for key in RECORDED:
        if key in untimed and row.get(key) is None:
            continue
        if row.get(key) != result.get(key):
            yield (
                f"run {run_id}: {key} is {row.get(key)} on the page and {result.get(key)} in"
                " result.json"
            )


def check_own(
    data: Embedded, run_id: str, row: Row, folder: Path, result: Embedded
) -> Iterator[str]:
    """A run's metrics of its script's own against result.json, and that against their readings.

    run_id, row: of the page's table. folder: of the run's files.
    """
    names = own_metrics(data["plan"])
    if not names:
        return
    last: dict[str, float] = {}
    for line in read_text(folder / "metrics.jsonl").splitlines():
        if '"own"' in line:
            record = parse_json(line)
            last[record["name"]] = record["value"]
    recorded = result.get("own") or {}
    for name in names:
        if row.get(name) != recorded.get(name):
            yield (
                f"run {run_id}: {name} is {row.get(name)} on the page and {recorded.get(name)} in"
                " result.json"
            )
        if recorded.get(name) != last.get(name):
            yield (
                f"run {run_id}: {name} is {recorded.get(name)} in result.json but its last reading"
                f" was {last.get(name)}"
            )
    if row.get("stopped_at") != result.get("stopped_at"):
        yield (
            f"run {run_id}: stopped_at is {row.get('stopped_at')} on the page and"
            f" {result.get('stopped_at')} in result.json"
        )


def curve_of(data: Embedded, run_id: str) -> Embedded:
    """A run's curve with its steps in full; empty where the page has none."""
    curve = data["curves"].get(run_id)
    if not curve:
        return {}
    return {**curve, "step": data["steps"][curve["step"]]}


def check_curve(
    run_id: str,
    curve: Embedded,
    steps: list[float] | None,
    path: Path,
    *,
    timed: bool = True,
) -> Iterator[str]:
    """A run's curve and the quantiles of its single steps against its metrics.jsonl.

    steps: how many steps were timed, then their quantiles at LEVELS, in ms. timed: False where
    the page has no times of the run.
    curve: the page's, of run_id. path: of metrics.jsonl.
    """
    try:
        points = validations(path)
    except (OSError, ValueError) as error:
        yield f"run {run_id}: {path.name} cannot be read: {error}"
        return
    if not timed:
        points = [{**point, "train_time_s": None, "step_times_ms": None} for point in points]
    steps_shown = curve.get("step", [])
    if len(points) > WHOLE_UP_TO:
        shown = set(steps_shown)
        thin = [point for point in points if point["step"] in shown]
        if len(thin) < WHOLE_UP_TO // 2 or thin[0] is not points[0] or thin[-1] is not points[-1]:
            yield f"run {run_id}: the curve on the page is too small a part of {path.name}"
            return
    else:
        thin = points
    for column, digits in (("step", 0), ("val_loss", LOSS_DIGITS), ("train_time_s", TIME_DIGITS)):
        if not all_rounded(curve.get(column, []), [point[column] for point in thin], digits):
            yield f"run {run_id}: the curve's {column} on the page is not that of {path.name}"
            return
    if curve.get("tokens", [None] * len(thin)) != [point.get("tokens") for point in thin]:
        yield f"run {run_id}: the curve's tokens on the page are not those of {path.name}"
    times: list[float] = []
    for point in points:
        times += filter(None, point.get("step_times_ms") or ())
    times.sort()
    expected = []
    if times:
        expected = [quantile(times, level / 100) for level in LEVELS]
    n, *quantiles = steps or [0]
    if n != len(times) or not all_rounded(quantiles, expected, DIGITS):
        yield f"run {run_id}: the step times on the page are not those of {path.name}"


def validations(path: Path) -> list[Embedded]:
    """The records of a metrics file that are points of its curve."""
    points = []
    for line in read_text(path).splitlines():
        record = parse_json(line)
        if record.get("kind") == "val":
            points.append(record)
    return points


def all_rounded(page: Sequence[float | None], exact: Sequence[float | None], digits: int) -> bool:
    """Whether each value of the page is that of the file, rounded."""
    if len(page) != len(exact):
        return False
    return all(rounded(a, b, digits) for a, b in zip(page, exact, strict=True))


def rounded(a: float | None, b: float | None, digits: int) -> bool:
    """Whether a is b rounded, either way where b lies half between."""
    if a is None or b is None:
        return a is b
    return abs(a - b) <= ROUNDING * 10.0**-digits


def quantile(ordered: list[float], part: float) -> float:
    """Between the two neighbours of a place in an ordered list, linear."""
    place = part * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
