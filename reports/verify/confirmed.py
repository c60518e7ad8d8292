"""The second path for what a page says of those that asked its question again.

How many seeds, whether they are fresh, and each effect in the sentence as a plain mean over the
rows that the page carries of them; words and intervals are left to the rerun in rendered.py.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from harness.run.plural import plural
from reports.page.embed import table_rows
from reports.verify.effects import UNFINISHED, estimate
from reports.verify.files import check_results
from reports.verify.increments import planned_pairs
from reports.verify.page import Embedded, Page
from reports.verify.rows import compared_rows, ids_of, outcomes_of
from reports.verify.table import LOG_SCALE, Table

SEEDS = re.compile(r"again on (\d+) fresh seeds?")
OF_PRINTED = 0.5000001e-4  # nats: half of the last digit
LOSSES = ("val_loss", "heldout_loss")


def check_confirmed(page: Page, index: int, data: Embedded, results: Path | None) -> Iterator[str]:
    """Sentences on what others are said to have found otherwise than their rows tell.

    index: of the experiment on the page; results: the folder that the rows are held against."""
    own_seeds = {*data["plan"]["seeds"]}
    for place, other in enumerate(data.get("confirmations") or ()):
        plan, rows = other["plan"], table_rows(other["runs"])
        said = page.sentences.get((index, f"asked_again {place}"), "")
        name = plan["name"]
        if not plan.get("confirm") or own_seeds & {*plan["seeds"]}:
            yield f"{name} is said to have asked again, and its seeds are not fresh"
        told = SEEDS.search(said)
        if told is None or int(told[1]) != len(plan["seeds"]):
            yield f"{name} was planned with {len(plan['seeds'])} seeds, the page says '{said[:60]}'"
        there = {row["run_id"] for row in rows}
        if any(not there & {*ids_of(planned)} for planned in plan["runs"]):
            yield f"{name}: a planned run has no row"
        n_to_come = sum(row["status"] in UNFINISHED for row in rows)
        if n_to_come:
            to_come = plural(n_to_come, "run")
            if re.search(rf"\b{to_come}\b", said) is None:
                yield f"{name} has {to_come} to come, which the page does not say"
        else:
            yield from check_effects_said(said, other)
        if results is not None:
            yield from check_results(other, rows, results, with_curves=False)


def check_effects_said(said: str, other: Embedded) -> Iterator[str]:
    """Each arm's effect in the sentence on the loss."""
    plan, metric = other["plan"], other["plan"].get("primary") or "val_loss"
    if metric in LOG_SCALE or metric not in LOSSES:
        return
    arms = [arm["name"] for arm in plan["arms"]]
    rows = compared_rows(outcomes_of(other, table_rows(other["runs"])), arms, "loss")
    before: Mapping[str, str] = {above: below for below, above in planned_pairs(plan)}
    changes = {arm["name"]: " + ".join(arm["changes"]) for arm in plan["arms"]}
    for arm in arms:  # by its name, or where that is a part's by all of its changes
        name = "|".join(re.escape(name) for name in (arm, changes[arm]) if name)
        match = re.search(rf"(?:^|: |, |; |and )(?:{name}) \(([+−]?[\d.]+)", said)
        if match is None:
            continue
        table = Table.of(metric, before.get(arm, plan["baseline"]), rows)
        value = estimate(table, arm, anytime=False)
        if value is not None and abs(float(match[1].replace("−", "-")) - value) > OF_PRINTED:
            yield f"{plan['name']}: {arm} is said to be {match[1]}, its rows give {value:+.5f}"
