"""Contributions in steps and seconds: what the first path prints of them is what the second one expects, a lie is named."""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from statistics import fmean
from typing import Any

import pandas as pd
import pytest

from harness.run.plan import Plan
from reports.analysis.worth import Worth, worth_judges
from reports.page.study import share_cell
from reports.verify.contributions import check_contributions
from reports.verify.page import Page
from reports.verify.table import ALPHA

# arm -> its changes; b needs a, d was tried with c alone, n makes the run shorter
ARMS = {"base": "", "a": "a", "ab": "ab", "cd": "cd", "all": "abcd", "short": "n", "short a": "an"}
SAME = [*ARMS][:5]
LOSSES = dict(zip(ARMS, (3.0, 2.98, 2.975, 3.01, 2.96, 3.0223, 3.0021), strict=True))
WOBBLE = (0.3, -0.2, 0.5, -0.6)  # of a mean of zero, another arm's at another place
PARTS = {"a": ("a", "base"), "b": ("ab", "a"), "c": ("cd", "base"), "d": ("cd", "base")}
TOGETHER = ("all", "base")
WHO = [*PARTS, "all together"]
PLAN = {
    "foreign": True,
    "remarks": ["taken apart"],
    "design": "add-one",
    "baseline": "base",
    "arms": [
        *({"name": name, "changes": list(changes)} for name, changes in ARMS.items()),
        {"name": "a at x2", "of": "a", "changes": ["a"]},  # beside the design: a point of an axis
    ],
}


def runs_of(arms: Sequence[str] = tuple(ARMS), *, noise: float = 1e-3) -> list[dict[str, Any]]:
    """Four blocks of these arms, the last without the short one of two changes."""
    rows = []
    for place, arm in enumerate(arms):
        for block in range(3 if arm == "short a" else 4):
            wobble = noise * WOBBLE[(block + place) % 4]
            row = {
                "arm": arm,
                "block": block,
                "status": "finished",
                "val_loss": LOSSES[arm] + wobble,
            }
            budget = 16 if "short" in arm else 20
            rows.append(row | {"budget": budget, "train_time_s": 2.0 + 9 * wobble})
    loose = [{**row, "block": None, "val_loss": 9.0} for row in (rows[0], rows[-1])]
    loose[0]["train_time_s"] = 2.4  # it counts for how long the baseline takes
    return [*rows, *loose, {**rows[0], "status": "failed", "val_loss": 9.0}]


@cache
def printed() -> Mapping[Any, str]:
    """What the first path prints in steps and seconds, by the table and the place in it."""
    runs = pd.DataFrame(runs_of())
    plan = Plan(name="x", foreign=True, baseline="base")
    worth = Worth.of(runs, plan, {frozenset(changes): arm for arm, changes in ARMS.items()})
    assert worth is not None
    carried = {}
    for judged in worth_judges(worth, runs, SAME, anytime=False):
        assert judged.judge is not None
        told = {}
        for pair in {*PARTS.values(), TOGETHER}:
            alpha = ALPHA if pair == TOGETHER else ALPHA / len(PARTS)
            share = judged.judge({pair[0]: 1.0, pair[1]: -1.0}, alpha)
            told[pair] = share_cell(share, "s_delta").v or ""
        for place, pair in enumerate((*PARTS.values(), TOGETHER)):
            carried[0, f"attribution-{judged.metric}", place] = told[pair]
    return carried


def said(carried: Mapping[Any, str], rows: Any, plan: Any = PLAN, **how: Any) -> list[str]:
    told = {"raised": 1.0, "anytime": False} | how
    return [*check_contributions(Page(carried=dict(carried)), 0, plan, rows, **told)]


def with_lies(carried: Mapping[Any, str], place: int) -> dict[Any, str]:
    """The same with the value, or one of the ends, a thousandth larger everywhere."""
    lies = {}
    for key, text in carried.items():
        values = text.split(",")
        values[place] = repr(float(values[place]) * 1.001)
        lies[key] = ",".join(values)
    return lies


def test_what_is_printed_of_a_bundle_in_steps_and_seconds_is_confirmed_and_every_lie_named() -> (
    None
):
    rows = runs_of()
    carried = printed()
    slope = (0.0223 + 0.0221) / 2 / math.log(20 / 16)  # nats that a log step gains
    steps = float(carried[0, "attribution-steps", 0].split(",")[0])
    assert steps == pytest.approx(20 * -0.02 / slope, rel=0.05)
    assert said(carried, rows) == []
    for place in range(3):
        lie = with_lies(carried, place)
        found = said(lie, rows)
        assert len(found) == len(carried)
        for key, sentence in zip(carried, found, strict=True):
            number = float(lie[key].split(",")[place])
            assert sentence.startswith(f"{key[1]}, {WHO[key[2]]}: {number} is printed, the rows")
        assert len(said(lie, rows, anytime=True)) == (len(carried) if place == 0 else 0)


def test_of_a_slope_that_may_be_zero_only_the_values_are_held_to_the_rows() -> None:
    rows = runs_of(noise=0.06)
    at = {
        (row["arm"], row["block"]): row["val_loss"] for row in rows if row["status"] == "finished"
    }
    pairs = [("base", "short"), ("a", "short a")]
    gained = [fmean(at[one, b] - at[other, b] for one, other in pairs) for b in range(3)]
    slope = fmean(gained) / math.log(16 / 20)
    carried = {}
    for place, (there, without) in enumerate((*PARTS.values(), TOGETHER)):
        worth = (LOSSES[there] - LOSSES[without]) / slope
        for metric, whole in (("steps", 20), ("seconds", (4 * 2 + 2.4) / 5)):
            carried[0, f"attribution-{metric}", place] = f"{whole * worth!r},-9,9"
    assert said(carried, rows) == []
    assert len(said(with_lies(carried, 0), rows)) == len(carried)


def test_of_losses_that_differ_by_their_rounding_alone_no_ends_are_told_in_many_steps() -> None:
    rows, noisy = runs_of(noise=0.0), runs_of(noise=1e-6)
    for row in (*rows, *noisy):
        row["budget"] *= 100_000_000
        row["val_loss"] += 0.1 * (row["block"] or 0)
    slope = (0.0223 + 0.0221) / 2 / math.log(20 / 16)
    carried = {}
    for place, (there, without) in enumerate((*PARTS.values(), TOGETHER)):
        worth = 2_000_000_000 * (LOSSES[there] - LOSSES[without]) / slope
        carried[0, "attribution-steps", place] = f"{worth!r},-9,9"
    assert said(carried, rows) == []
    assert len(said(with_lies(carried, 0), rows)) == len(carried)
    ends = [line for line in said(carried, noisy) if "9.0 is printed" in line]
    assert len(ends) == 2 * len(carried)


@pytest.mark.parametrize(
    "rows",
    [
        runs_of(SAME),  # no arm of another length
        runs_of(tuple(ARMS)[1:]),  # no baseline
        [row for row in runs_of() if row["arm"] in SAME or row["block"] == 0],  # in one block
        [row for row in runs_of() if row["arm"] != "base" or row["status"] == "failed"],
    ],
)
def test_without_a_slope_steps_and_seconds_are_left_to_the_rerun(rows: Any) -> None:
    carried = {key: "1,2,3" for key in printed()}
    assert said(carried, rows) == []


def test_a_table_of_too_few_numbers_is_named_and_one_without_a_common_block() -> None:
    rows = runs_of()
    carried = printed()
    *_, last = [key for key in carried if key[1] == "attribution-steps"]
    fewer = {key: text for key, text in carried.items() if key != last}
    assert said(fewer, rows) == ["attribution-steps: 4 numbers are printed, the arms give 5"]
    apart = [{**row, "block": 9} if row["arm"] == "cd" else row for row in rows]
    found = said(carried, apart)
    assert len(found) == len(carried) and all(s.endswith("the rows give nan") for s in found)


def test_the_family_of_the_folder_widens_what_is_expected() -> None:
    rows = runs_of()
    carried = printed()
    assert len(said(carried, rows, raised=2.0)) == 2 * 2 * len(WHO)  # every end
    assert said({(1, *key[1:]): text for key, text in carried.items()}, rows, raised=2.0) == []


def test_a_loss_stays_a_loss_where_its_worth_in_steps_is_known() -> None:
    pairs = [*PARTS.values(), TOGETHER]
    carried = {
        (0, "attribution-val_loss", place): repr(LOSSES[there] - LOSSES[without])
        for place, (there, without) in enumerate(pairs)
    }
    assert said(carried, runs_of()) == []
    carried[0, "attribution-val_loss", 0] = "-0.021"
    assert said(carried, runs_of()) == [
        "attribution-val_loss, a: -0.021 is printed, the rows give -0.02"
    ]


# ---------------------------------------------------------------- which numbers a table has

SETS = {
    "base": 3.0,
    **{"a": 2.98, "b": 2.97, "c": 3.03, "ab": 2.94, "ac": 2.99, "bc": 2.985, "abc": 2.9},
}
Numbers = list[tuple[str, dict[str, float]]]  # of a table: the change, the arms that are weighted


def pair(who: str, there: str, without: str = "base") -> tuple[str, dict[str, float]]:
    return who, {there: 1.0, without: -1.0}


@pytest.mark.parametrize(
    ("design", "arms", "numbers"),
    [
        (
            "add-one",
            ("base", "a", "b", "ab"),
            [
                *(pair("a", "a"), pair("a", "ab", "b"), pair("b", "b"), pair("b", "ab", "a")),
                pair("all together", "ab"),
            ],
        ),
        ("add-one", ("base", "a", "b"), []),
        ("ladder", ("base", "a", "ab"), []),
        (
            "leave-one-out",
            ("base", "ab", "ac", "bc", "abc"),
            [
                *(pair("a", "abc", "bc"), pair("b", "abc", "ac"), pair("c", "abc", "ab")),
                pair("all together", "abc"),
            ],
        ),
        ("leave-one-out", ("base", "a"), []),
        ("factorial", ("base", "a"), []),
        (
            "factorial",
            ("base", "a", "b", "ab", "abc"),  # c was tried with both others alone
            [
                *(pair("a", "a"), ("a", {"a": 0.5, "base": -0.5, "ab": 0.5, "b": -0.5})),
                *(pair("a", "abc", "b"), pair("b", "b")),
                *(("b", {"b": 0.5, "base": -0.5, "ab": 0.5, "a": -0.5}), pair("b", "abc", "a")),
                *(pair("c", "abc", "ab"), pair("c", "abc", "ab"), pair("all together", "abc")),
            ],
        ),
        (
            "bundle ladder",
            ("base", "a", "b", "abc"),  # b is no rung above a
            [pair("a", "a"), pair("b and c", "abc", "a"), pair("all together", "abc")],
        ),
        ("bundle ladder", ("base", "a"), [pair("a", "a"), pair("all together", "a")]),
        (
            "bundle add-one",
            ("base", "a", "bc"),
            [pair("a", "a"), pair("b", "bc"), pair("c", "bc")],
        ),
        ("bundle leave-one-out", ("base", "a"), [pair("a", "a")] * 2 + [pair("all together", "a")]),
        ("bundle factorial", ("base", "a"), [pair("a", "a")] * 3 + [pair("all together", "a")]),
    ],
)
def test_a_table_has_the_numbers_that_its_arms_give_and_no_other(
    design: str, arms: tuple[str, ...], numbers: Numbers
) -> None:
    plan: dict[str, Any] = {"baseline": "base", "design": design.removeprefix("bundle ")}
    plan["arms"] = [{"name": arm, "changes": [*arm.removeprefix("base")]} for arm in arms]
    if design.startswith("bundle"):
        plan |= {"foreign": True, "remarks": ["taken apart"]}
    rows = [
        {"arm": arm, "block": 0, "status": "finished", "val_loss": SETS[arm], "budget": 9}
        | {"train_time_s": None}
        for arm in arms
    ]
    carried = {}
    for place, (_, weights) in enumerate(numbers):
        value = sum(weight * SETS[arm] for arm, weight in weights.items())
        carried[0, "attribution-val_loss", place] = repr(value)
    assert said(carried, rows, plan) == []
    lies = {key: repr(float(text) + 0.1) for key, text in carried.items()}
    told = [sentence.partition(":")[0] for sentence in said(lies, rows, plan)]
    assert told == [f"attribution-val_loss, {who}" for who, _ in numbers]
    more = carried | {(0, "attribution-val_loss", len(numbers)): "0.0"}
    n = len(numbers)
    assert said(more, rows, plan) == [
        f"attribution-val_loss: {n + 1} numbers are printed, the arms give {n}"
    ]
