"""Check a report.

Recompute every number and verdict that it prints from the raw rows inside it, by a second path.

Five checks, each of which returns sentences that say what does not agree: 1. rows against the plan
and the curves: every planned run has its row, its loss is its curve's last point, its status fits;
2. means, deviations and counts of the verdict table, by plain sums over the rows (no pandas, none
of the page's code); 3. effects, intervals, p values and verdict words, by formulas that share no
code with the statistics (verify_effects.py); 4. every word, number, row and figure, by running the
comparison again on the rows rebuilt from the page, numbers compared as numbers
(reports/page_numbers.py knows how far two machines may differ); 5. with a results directory, every
row and curve against the run's files, and the files against their recorded digests.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from reports.inputs.published_experiments import published_experiment
from reports.inputs.step_times import DIGITS, LEVELS
from reports.page.embed import (
    LOSS_DIGITS,
    TIME_DIGITS,
    embed_experiment,
    plain,
    short_digest,
    table_rows,
)
from reports.page.write import Judged, draw_page, judged
from reports.stats.digits import moved, same_number
from reports.verify.effects import check_effects, check_word, is_anytime
from reports.verify.page import (
    Page,
    Printed,
    numbers_of,
    read_page,
    same_data,
    same_drawn,
    same_text,
    shortened,
)

ROUNDING = 0.51
PARTS = {
    "sentences": "the sentence",
    "rows": "the row",
    "carried": "the value carried by",
    "sorted_by": "the value carried by the row",
    "drawings": "the figure",
    "sections": "the text of the section",
}
MEANS = {
    "val_loss": "loss",
    "heldout_loss": "loss",
    "bits_per_byte": "loss",
    "step_ms": "timing",
    "steps": "loss",
}  # metric of the printed table -> the role it is taken from


def verify(report_path: Path, results: Path | None = None) -> list[str]:
    """Every disagreement found, in words; an empty list means that the page says what its data say.

    Raises ValueError where the file is no report."""
    page = read_page(report_path)
    found: list[str] = []
    for index, data in enumerate(page.data["experiments"]):
        name = data["plan"]["name"]
        rows = table_rows(data["runs"])
        checks = [check_rows(data, rows), check_aggregates(page, index, data, rows)]
        if data["plan"].get("evidence"):
            checks.append(check_published(data))
        else:
            checks.append(check_statistics(page, index, data, rows))
        if results is not None and not data["plan"].get("evidence"):
            checks.append(check_results(data, rows, results))
        found += [f"{name}: {sentence}" for check in checks for sentence in check]
    return found + list(check_rendered(page))


def check_rows(data: Mapping[str, Any], rows: list[dict[str, Any]]) -> Iterator[str]:
    """Rows against plan and curves, all of them from the page's data."""
    planned = set()
    there = {(r["arm"], r["run_id"]) for r in rows}
    for run in data["plan"]["runs"]:
        named = {(run["arm"], run_id) for run_id in (run["run_id"], *(run.get("older") or []))}
        planned |= named
        if not named & there:
            yield (
                f"run {run['run_id']} of arm {run['arm']!r}, seed {run['seed']}, is planned but has"
                " no row"
            )
    for row in rows:
        run_id = row["run_id"]
        if (row["arm"], run_id) not in planned:
            yield f"run {run_id} has a row but is not planned for arm {row['arm']!r}"
        if row["status"] in ("finished", "diverged") and run_id not in data["results"]:
            yield f"run {run_id} is {row['status']} but has no result"
        curve = data["curves"].get(run_id)
        if row["status"] != "finished" or not curve or not curve["val_loss"]:
            continue
        for column, digits in (("val_loss", LOSS_DIGITS), ("train_time_s", TIME_DIGITS)):
            last = curve[column][-1]
            if not row[column] and not last:
                continue  # a log without times
            if (
                row[column] is None
                or last is None
                or abs(row[column] - last) > ROUNDING * 10.0**-digits
            ):
                yield (
                    f"run {run_id}: {column} {row[column]} is not the last point of its curve,"
                    f" {last}"
                )


def check_aggregates(
    page: Page, index: int, data: Mapping[str, Any], rows: list[dict[str, Any]]
) -> Iterator[str]:
    """Means, deviations and counts of the printed table, by plain sums over the page's rows."""
    arms = [a["name"] for a in data["plan"]["arms"]]
    outcomes = outcomes_of(data, rows)
    for place, arm in enumerate(arms):
        printed = page.verdicts.get((index, place), {})
        if not printed:
            yield f"arm {arm!r} is missing in the verdict table"
        compared = {
            metric: [r for r in compared_rows(outcomes, arms, role) if r["arm"] == arm]
            for metric, role in MEANS.items()
        }
        for metric in MEANS:
            values = [
                r[metric]
                for r in compared[metric]
                if r["status"] == "finished" and r[metric] is not None
            ]
            mean = math.fsum(values) / len(values) if values else None
            yield from agree(printed, f"{metric}.mean", (mean,), arm)
            if len(values) > 1 and mean is not None:
                yield from agree(
                    printed,
                    f"{metric}.sd",
                    (math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1)),),
                    arm,
                )
        n_of = {
            status: float(sum(r["status"] == status for r in compared["val_loss"]))
            for status in ("finished", "diverged")
        }
        for status, n in n_of.items():
            if f"n.{status}" in printed or n:
                carried = printed[f"n.{status}"].values[0] if f"n.{status}" in printed else None
                if carried != n:
                    yield (
                        f"arm {arm!r}: n.{status} is printed as {carried} but the rows give {n:.0f}"
                    )


def check_statistics(
    page: Page, index: int, data: Mapping[str, Any], rows: list[dict[str, Any]]
) -> Iterator[str]:
    """Effects, intervals, p values and verdict words of the printed table, by the second path."""
    plan = data["plan"]
    arms = [a["name"] for a in plan["arms"]]
    printed = {arm: page.verdicts.get((index, place), {}) for place, arm in enumerate(arms)}
    for metric, role in (("val_loss", "loss"), ("step_ms", "timing")):
        compared = compared_rows(outcomes_of(data, rows), arms, role)
        yield from check_effects(metric, compared, printed, plan, anytime=is_anytime(plan, rows))
    for arm in arms:
        if arm != plan["baseline"]:
            yield from check_word(printed[arm], plan, arm)


def check_published(data: Mapping[str, Any]) -> Iterator[str]:
    """A page of published evidence against the published tables, read again."""
    own = plain(
        embed_experiment(published_experiment(data["plan"]["name"].removeprefix("published/")))
    )
    for key, value in own.items():
        if not same_data(data[key], [value]):
            yield f"its {key} is not that of results/published"


def outcomes_of(data: Mapping[str, Any], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that count.

    Those with an outcome, once each, the stale ones where they were admitted.
    """
    return originals(
        [
            r
            for r in rows
            if r["status"] in ("finished", "diverged") and (data["accept_stale"] or not r["stale"])
        ]
    )


def originals(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows without copies.

    A run that comes again under its id, its metrics file, or its very loss and time counts once.
    """
    seen: set[tuple[Any, ...]] = set()
    kept = []
    for r in rows:
        where = (r["arm"], r["budget"], r["role"])
        marks: set[tuple[Any, ...]] = {("id", *where, r["run_id"])}
        marks |= {("digest", *where, r["metrics_digest"])} if r.get("metrics_digest") else set()
        marks |= (
            {("values", *where, r["val_loss"], r["train_time_s"])}
            if None not in (r["val_loss"], r["train_time_s"])
            else set()
        )
        if not marks & seen:
            kept.append(r)
        seen |= marks
    return kept


def compared_rows(rows: list[dict[str, Any]], arms: list[str], role: str) -> list[dict[str, Any]]:
    """The rows of a role at the longest budget that every arm with rows has.

    At its own where there is none; all rows where there is no such phase.
    """
    mine = [r for r in rows if r["role"] == role] or rows
    budgets = [b for arm in arms if (b := {r["budget"] for r in mine if r["arm"] == arm})]
    shared = set.intersection(*budgets) if budgets else set()
    longest = {
        arm: max((r["budget"] for r in mine if r["arm"] == arm), default=None) for arm in arms
    }
    return [r for r in mine if r["budget"] == (max(shared) if shared else longest[r["arm"]])]


def agree(
    printed: Mapping[str, Printed], key: str, values: tuple[float | None, ...], arm: str
) -> Iterator[str]:
    """Whether the page prints these values under this key.

    What is not printed at all is left to the rendering check.
    """
    if key in printed and not all(
        same_number(a, b) for a, b in zip(printed[key].values, values, strict=True)
    ):
        yield (
            f"arm {arm!r}: {key} is printed as {printed[key].text} ({printed[key].values}) but the"
            f" rows give {values}"
        )


def check_rendered(page: Page) -> Iterator[str]:
    """The page against the page that its own data give.

    Words, numbers, rows and figures must be the same.
    """
    experiments = [judged(data) for data in page.data["experiments"]]
    made = remade(experiments, (0,))
    for sides in (
        (-1, 1),
        (None,),
    ):  # a number may lie in the middle between two written ones: then either is right
        if any(compared(page, made)):
            made += remade(experiments, sides)
    yield from compared(page, made)


def remade(experiments: Sequence[Judged], sides: Sequence[int | None]) -> list[Page]:
    """The pages of these experiments, every computed number moved to each side."""
    pages = []
    for side in sides:
        with moved(side):
            pages.append(read_page(draw_page(experiments)))
    return pages


def compared(page: Page, made: Sequence[Page]) -> Iterator[str]:
    """What of the page is in none of the pages that may follow from its data.

    The first of these is the one to be told.
    """
    again = made[0]
    for (index, place), expected in again.verdicts.items():
        plan = page.data["experiments"][index]["plan"]
        where = f"{plan['name']}: arm {plan['arms'][place]['name']!r}"
        printed = page.verdicts.get((index, place), {})
        for key in dict.fromkeys([*expected, *printed]):
            want, got = expected.get(key), printed.get(key)
            if want is None or got is None:
                yield (
                    f"{where}: {key} is"
                    f" {'printed but does not follow from the rows' if got else 'missing'}"
                )
                continue
            options = [
                found for m in made if (found := m.verdicts.get((index, place), {}).get(key))
            ]
            if not same_text(got.text, [o.text for o in options]):
                yield f"{where}: {key} is printed as '{got.text}' but the rows give '{want.text}'"
            elif not same_data(list(got.values), [list(o.values) for o in options]):
                yield f"{where}: {key} carries {got.values} but the rows give {want.values}"
    for index, own in enumerate(page.data["experiments"]):
        figures = [m.data["experiments"][index]["figures"] for m in made]
        for key in dict.fromkeys([*own["figures"], *figures[0]]):
            if not same_data(own["figures"].get(key), [f.get(key) for f in figures]):
                yield f"the data of the figure {key}-{index} does not follow from the rows"
    for part, words in PARTS.items():
        expected_parts, printed_parts = getattr(again, part), getattr(page, part)
        for key in dict.fromkeys([*expected_parts, *printed_parts]):
            where = f"{words} {' '.join(map(str, key))}"
            if key not in printed_parts or key not in expected_parts:
                yield f"{where} {'is missing' if key in expected_parts else 'is not in the data'}"
                continue
            options = [getattr(m, part)[key] for m in made if key in getattr(m, part)]
            yield from differing(part, where, printed_parts[key], options)


def differing(part: str, where: str, printed: Any, options: Sequence[Any]) -> Iterator[str]:
    """A sentence where a printed part is none of the options."""
    if printed in options:
        return
    if part == "drawings":
        of_one_shape = [
            o for o in options if [name for name, _ in o] == [name for name, _ in printed]
        ]
        if not of_one_shape:
            yield f"{where} differs: it has other elements than the rows give"
        for i, (name, text) in enumerate(printed if of_one_shape else ()):
            if not same_drawn(name, text, [o[i][1] for o in of_one_shape]):
                yield (
                    f"{where} differs: its {name} is '{shortened(text)}', expected"
                    f" '{shortened(of_one_shape[0][i][1])}'"
                )
                return
    elif part == "carried":
        if not same_data(numbers_of(printed), [numbers_of(o) for o in options]):
            yield f"{where} differs: it is {printed}, expected {options[0]}"
    elif not same_text(printed, options):
        yield f"{where} differs" + (
            f": printed '{printed}', expected '{options[0]}'" if part != "sections" else ""
        )


def check_results(
    data: Mapping[str, Any], rows: list[dict[str, Any]], results: Path
) -> Iterator[str]:
    """The page's rows and curves against the files of the runs.

    These are held against the digests in result.json.
    """
    by_id = {r["run_id"]: r for r in rows}
    for planned in data["plan"]["runs"]:
        ids = [planned["run_id"], *(planned.get("older") or [])]
        there = [i for i in ids if (results / "runs" / i / "result.json").is_file()]
        if there and not any(i in data["results"] for i in there):
            yield f"run {there[0]} has a result in {results} that the page does not show"
    for run_id in data["results"]:
        folder = results / "runs" / run_id
        if not (folder / "result.json").is_file():
            yield f"run {run_id}: {folder / 'result.json'} is missing"
            continue
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        if short_digest(result) != data["result_digests"].get(run_id):
            yield f"run {run_id}: result.json is not the one this page was made from"
        for name, recorded in (result.get("digests") or {}).items():
            if (
                not (folder / name).is_file()
                or hashlib.sha256((folder / name).read_bytes()).hexdigest() != recorded
            ):
                yield f"run {run_id}: {name} does not have the digest that result.json recorded"
        row = by_id.get(run_id, {})
        for key in (
            "status",
            "val_loss",
            "heldout_loss",
            "train_time_s",
            "step_ms",
            "steps",
            "tokens",
            "peak_allocated_mib",
        ):
            if row.get(key) != result.get(key):
                yield (
                    f"run {run_id}: {key} is {row.get(key)} on the page and {result.get(key)} in"
                    " result.json"
                )
        yield from check_curve(
            run_id, curve_of(data, run_id), data["step_times"].get(run_id), folder / "metrics.jsonl"
        )


def rounded(a: float | None, b: float | None, digits: int) -> bool:
    """Whether a is b rounded, either way where b lies half between."""
    return a is b or (a is not None and b is not None and abs(a - b) <= ROUNDING * 10.0**-digits)


def curve_of(data: Mapping[str, Any], run_id: str) -> dict[str, Any]:
    curve = data["curves"].get(run_id) or {}
    return {**curve, "step": data["steps"][curve["step"]]} if curve else {}


def check_curve(
    run_id: str, curve: Mapping[str, Any], steps: list[float] | None, path: Path
) -> Iterator[str]:
    """A run's curve and the quantiles of its single steps against its metrics.jsonl."""
    try:
        points = [
            p
            for line in path.read_text(encoding="utf-8").splitlines()
            if (p := json.loads(line)).get("kind") == "val"
        ]
    except (OSError, ValueError) as error:
        yield f"run {run_id}: {path.name} cannot be read: {error}"
        return
    for column, digits in (("step", 0), ("val_loss", LOSS_DIGITS), ("train_time_s", TIME_DIGITS)):
        here, theirs = curve.get(column, []), [p[column] for p in points]
        if len(here) != len(theirs) or not all(rounded(a, b, digits) for a, b in zip(here, theirs)):
            yield f"run {run_id}: the curve's {column} on the page is not that of {path.name}"
            return
    times = sorted(ms for p in points for ms in p.get("step_times_ms") or () if ms)
    expected = [quantile(times, level / 100) for level in LEVELS] if times else []
    n, *here = steps or [0]
    if n != len(times) or not all(
        rounded(a, b, DIGITS) for a, b in zip(here, expected, strict=True)
    ):
        yield f"run {run_id}: the step times on the page are not those of {path.name}"


def quantile(ordered: list[float], part: float) -> float:
    """Between the two neighbours of a place in an ordered list, linear."""
    place = part * (len(ordered) - 1)
    below = math.floor(place)
    return ordered[below] + (place - below) * (
        ordered[min(below + 1, len(ordered) - 1)] - ordered[below]
    )
