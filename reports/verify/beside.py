"""The second path for changes that do not add up: what one adds with another and without it.

From the page's rows by plain means over the blocks that hold every arm of a pair. The interval of
two arms alone by the formulas of blocks.py; that of an average over several sets of other changes
is left to the rerun in rendered.py.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
from scipy import stats

from reports.verify.blocks import errors_of, variances_of_arms
from reports.verify.contributions import OF_CARRIED
from reports.verify.page import Embedded, Page, Row, numbers
from reports.verify.table import ALPHA, Table, near

BESIDE_TABLE = "beside"
LAST_DIGIT = 1e-4  # the last printed digit of a loss
LOSS_AND_INTERVAL = r"([+−]?\d\.\d+)(?: \[[^\]]*\])?"  # and its interval
WITHOUT_OTHER = ("only without", "alone and to hurt with", "alone and to help with")
SIGN_OF = {"hurt": 1, "help": -1}
ValueAndEnds = tuple[float, float | None, float | None]  # value, low, high; None: no formula here


@dataclass(frozen=True, kw_only=True)
class Beside:
    """What a change adds with another and without it, and the difference of the two."""

    with_other: ValueAndEnds
    without: ValueAndEnds
    beyond: float


def check_beside(
    page: Page, index: int, plan: Embedded, rows: Sequence[Row], *, raised: float, anytime: bool
) -> Iterator[str]:
    """Sentences on effects beside another change that are printed otherwise than the rows give.

    rows: compared ones of the loss; index: of the experiment on the page; raised: by how much the
    family of the results folder is larger than the experiment; anytime: it shows sequences."""
    effects = effects_beside(plan, rows, ALPHA / raised)
    carried = [
        numbers(v) for place, v in page.carried.items() if place[:2] == (index, BESIDE_TABLE)
    ]
    for printed in zip(carried[::3], carried[1::3], carried[2::3], strict=True):
        if not any(agrees(printed, one, anytime=anytime) for one in effects.values()):
            yield f"{BESIDE_TABLE}: no pair gives {printed[0][0]} and {printed[1][0]}"
    yield from check_words(page.sentences.get((index, "answer"), ""), effects)


def check_words(answer: str, effects: Mapping[tuple[str, str], Beside]) -> Iterator[str]:
    """The sentence of the headline on a pair of changes."""
    for (change, other), one in effects.items():
        shown = rf"is shown to (\w+) ([a-z ]*) {re.escape(other)}: "
        numbers_of_it = rf"{LOSS_AND_INTERVAL} with it, {LOSS_AND_INTERVAL} without"
        both = (f"{change} and {other} are shown", f"{other} and {change} are shown")
        by_pair = "?" if any(pair in answer for pair in both) else ""
        said = re.search(rf"(?:^| ){re.escape(change)} (?:{shown}){by_pair}{numbers_of_it}", answer)
        if said is None:
            continue
        for text, (value, _, _) in zip(said.groups()[2:], (one.with_other, one.without)):
            if abs(float(text.replace("−", "-")) - value) > LAST_DIGIT:
                yield f"the headline says {change} {text} beside {other}, the rows give {value:.6g}"
        shown_by = one.without[0] if said[2] in WITHOUT_OTHER else one.with_other[0]
        if said[1] and SIGN_OF[said[1]] * shown_by < 0:
            yield f"the headline says that {change} is shown to {said[1]}, the rows say otherwise"
    together = re.search(r"The two together add (\S+)", answer)
    if together is not None:
        beyond = float(together[1].replace("−", "-"))
        if not any(abs(beyond - one.beyond) <= LAST_DIGIT for one in effects.values()):
            yield f"the headline says {together[1]} beyond the sum, which no pair gives"


def agrees(printed: Sequence[Sequence[float | None]], one: Beside, *, anytime: bool) -> bool:
    """Whether the three numbers of a row, with the intervals that have a formula, are a pair's."""
    beyond: ValueAndEnds = (one.beyond, None, None)
    for told, expected in zip(printed, (one.with_other, one.without, beyond), strict=True):
        for place, at in enumerate(expected):
            if at is None or place >= len(told) or (place and anytime):
                continue
            end = told[place]
            if end is None or not near(end, at, OF_CARRIED):
                return False
    return True


def effects_beside(
    plan: Embedded, rows: Sequence[Row], alpha: float
) -> dict[tuple[str, str], Beside]:
    """(change, other) -> what it adds, of every pair that some sets of the others were run with."""
    sets = {}
    for arm in plan["arms"]:
        if (arm.get("of") or arm["name"]) == arm["name"]:
            sets[frozenset(arm["changes"])] = arm["name"]
    losses = Table.of("val_loss", plan["baseline"], rows).blocks
    changes = dict.fromkeys(change for s in sets for change in s)
    measured = {}
    for change, other in permutations(changes, 2):
        parts = [frozenset[str](), frozenset({change}), frozenset({other}), {change, other}]
        others = [s for s in sets if not s & parts[-1] and all(s | p in sets for p in parts)]
        arms = [[losses.get(sets[s | p], {}) for p in parts] for s in others]
        blocks = (
            set.intersection(*(set(of_arm) for four in arms for of_arm in four)) if arms else ()
        )
        if blocks:
            means = [[[arm[b] for b in blocks] for arm in four] for four in arms]
            measured[change, other] = np.array(means)  # sets of others x 4 parts x blocks
    alpha /= max(1, 2 * len(measured))
    return {pair: beside(y, alpha) for pair, y in measured.items()}


def beside(y: np.ndarray[Any, Any], alpha: float) -> Beside:
    """y: losses of (no change, the change, the other, both) by sets of other changes and blocks."""
    neither, alone, other, both = y.mean((0, 2))
    ends: list[tuple[float | None, float | None]] = [(None, None), (None, None)]
    if len(y) == 1 and y.shape[2] > 1:
        four = y[0]
        residuals = four - four.mean(0) - four.mean(1, keepdims=True) + four.mean()
        variances = variances_of_arms(residuals)
        for place, (first, second) in enumerate(((3, 2), (1, 0))):
            errors = errors_of(residuals, max(variances[first], variances[second]))
            half = max(float(stats.t.isf(alpha / 2, e.df)) * e.se for e in errors)
            value = float(four[first].mean() - four[second].mean())
            ends[place] = (value - half, value + half)
    return Beside(
        with_other=(float(both - other), *ends[0]),
        without=(float(alone - neither), *ends[1]),
        beyond=float(both - other - alone + neither),
    )
