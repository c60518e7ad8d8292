"""The headline of published evidence: which rows are told apart, to which side, and at what price in time."""

import math
import re
from typing import Any, cast

import pytest

from reports.inputs.columns import Between
from reports.inputs.published import published_record
from reports.page.published import EvidenceRow, Logged
from reports.page.published_answer import (
    NoisyDifference,
    against_the_first,
    losses_at_equal_steps,
    noisy_differences,
    parts_on_top,
    times_to_target,
    whole_record,
)
from reports.page.published_answer import in_loss as differences

NOISE = 0.001 / math.sqrt(2)  # of a difference of two rows: 0.001
HALF = 1.96 * 0.001


def rows(
    *said: tuple[str, float, float], above: bool = False, tuned: bool = False
) -> list[EvidenceRow]:
    """(arm, loss, seconds) of each, after 2000 steps, against the first row or the one above it."""
    made: list[EvidenceRow] = []
    for arm, loss, time_s in said:
        mean = {"val_loss": loss, "train_time_s": time_s, "step_ms": time_s / 2, "steps": 2000.0}
        logs = Logged(mean=mean, noise=NOISE, n_logs=5, n_rows=1)
        other = made[-1 if above else 0].logs if made else None
        outcome = cast(Any, None)
        made.append(
            EvidenceRow(
                arm=arm, outcome=outcome, logs=logs, other=other, z=1.96, is_tuned=tuned, note=""
            )
        )
    return made


@pytest.mark.parametrize(
    ("time_s", "price"), [(110.0, "10.0 % more"), (90.0, "10.0 % less"), (100.0, "0.0 % more")]
)
def test_rows_below_and_above_the_first_are_told_with_the_price_of_the_lowest(
    time_s: float, price: str
) -> None:
    said = against_the_first(
        rows(
            *(("base", 3.3, 100.0), ("a", 3.28, time_s), ("b", 3.27, time_s)),
            *(("worse", 3.31, 95.0), ("same", 3.3 - HALF / 2, 95.0)),
        )
    )
    assert said == (
        "In loss (nats per token) after 2000 steps, against base: "
        "b (−0.0300 [−0.0320, −0.0280]) and a (−0.0200 [−0.0220, −0.0180]) end lower; "
        "worse (+0.0100 [+0.0080, +0.0120]) ends higher; "
        "the interval of same (−0.0010 [−0.0029, +0.0010]) holds zero. "
        f"b, the lowest by 0.0300, took {price} training time."
    )


def test_the_first_row_has_no_price_where_none_is_lower() -> None:
    said = against_the_first(rows(("base", 3.3, 100.0), ("worse", 3.31, 90.0)))
    assert said == (
        "In loss (nats per token) after 2000 steps, against base: "
        "worse (+0.0100 [+0.0080, +0.0120]) ends higher."
    )


def test_parts_are_told_on_top_of_one_another() -> None:
    ladder = rows(
        *(("base", 3.3, 100.0), ("+ a", 3.28, 110.0), ("+ b", 3.281, 110.0), ("+ c", 3.27, 120.0)),
        above=True,
    )
    assert losses_at_equal_steps(ladder) == (
        "After 2000 steps all parts together change the loss (nats per token) by −0.0300 "
        "[−0.0320, −0.0280], at 20 % more time a step. Each on top of those above it, "
        "a (−0.0200 [−0.0220, −0.0180]) and c (−0.0110 [−0.0130, −0.0090]) lower it; "
        "the interval of b (+0.0010 [−0.0010, +0.0030]) holds zero."
    )


def test_where_noise_explains_every_part_that_is_said() -> None:
    ladder = rows(("base", 3.3, 100.0), ("+ a", 3.2995, 1.0), ("+ b", 3.2993, 1.0), above=True)
    assert parts_on_top(differences(ladder)) == (
        "No single part, each on top of those above it, can be told from the noise of single "
        "runs by 95 % intervals that hold for all rows at once, wider than that of all together: "
        "the intervals of a (−0.0005 [−0.0025, +0.0015]) and "
        "b (−0.0002 [−0.0022, +0.0018]) hold zero"
    )


@pytest.mark.parametrize(
    ("low", "high", "is_apart"),
    [
        (0.0, 0.2, False),
        (-0.2, 0.0, False),
        (0.1, 0.2, True),
        (-0.2, -0.1, True),
        (-0.1, 0.1, False),
    ],
)
def test_an_interval_that_ends_at_zero_holds_it(low: float, high: float, is_apart: bool) -> None:
    part = NoisyDifference(arm="a", kind="loss_delta", value=(low + high) / 2, low=low, high=high)
    assert part.is_apart == is_apart


def test_the_ends_of_an_interval_are_told_as_they_are_zero_too() -> None:
    (row,) = rows(("+ a", 3.3, 100.0))
    for ends in (Between(-1.0, 0.0), Between(0.0, 1.0)):
        (part,) = noisy_differences([row], "percent", lambda _: -0.5, lambda _, ends=ends: ends)
        assert (part.arm, part.value, Between(part.low, part.high)) == ("a", -0.5, ends)
    assert noisy_differences([row], "percent", lambda _: None, lambda _: Between(0, 1)) == []
    assert noisy_differences([row], "percent", lambda _: 0.5, lambda _: None) == []


def test_a_whole_record_is_its_time_over_that_of_the_one_before_as_sure_as_both() -> None:
    said = whole_record("r09")
    now, before = published_record("r09"), published_record("r08")
    assert said.startswith(
        f"To the target of 3.28 r09 took {now.time_s:.1f} s ({now.steps} steps), "
        f"r08 {before.time_s:.1f} s ({before.steps} steps): "
    )
    printed = re.search(r": (\S+) \[(\S+), (\S+)\] %\.$", said)
    assert printed is not None
    ratio, half = now.time_s / before.time_s, 1.96 * math.hypot(now.log_time_se, before.log_time_se)
    for number, factor in zip(
        printed.groups(), (1.0, math.exp(-half), math.exp(half)), strict=True
    ):
        assert float(number.replace("−", "-")) == pytest.approx(
            100 * (ratio * factor - 1), abs=0.06
        )


def test_steps_of_a_ladder_are_named_by_size_and_the_open_ones_counted() -> None:
    times = [100.0, 60.0, 54.0, 27.0, 26.5, 26.4]
    ladder = rows(
        *((f"r{i}", 3.28, seconds) for i, seconds in enumerate(times)), above=True, tuned=True
    )
    assert times_to_target(ladder) == (
        "r5 reaches the target in 26 % [26, 27] of the training time of r0. Against the one before, "
        "the largest steps are r3 (−50.0 [−50.5, −49.5] %), r1 (−40.0 [−40.6, −39.4] %) and "
        "r2 (−10.0 [−10.9, −9.1] %); of all 5 the interval of r5 (−0.4 [−1.4, +0.7] %) holds zero."
    )
    clear = times_to_target(rows(("a", 3.28, 100.0), ("b", 3.28, 50.0), above=True, tuned=True))
    assert clear == (
        "b reaches the target in 50 % [49, 51] of the training time of a. Against the one before, "
        "the largest steps are b (−50.0 [−50.5, −49.5] %); no interval of the 1 holds zero."
    )


def test_what_all_parts_cost_a_step_is_in_hundredths_of_the_first_rows() -> None:
    said = losses_at_equal_steps(rows(("first", 3.3, 100.0), ("last", 3.28, 200.0), above=True))
    assert said == (
        "After 2000 steps all parts together change the loss (nats per token) by −0.0200 "
        "[−0.0220, −0.0180], at 100 % more time a step. Each on top of those above it, "
        "last (−0.0200 [−0.0220, −0.0180]) lowers it."
    )
