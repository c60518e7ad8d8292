"""A loss in steps and seconds by the slope of arms of another length: how far that is measured."""

import math
from collections.abc import Callable
from dataclasses import replace

import pandas as pd
import pytest

from harness.run.plan import Plan
from reports.analysis.worth import Worth, worth_judges
from reports.page.study import share_cell

NAMES = ["base", "a", "b", "both"]
ARMS = {frozenset(): "base", frozenset("a"): "a", frozenset("b"): "b", frozenset("ab"): "both"}


def runs_of(**losses: float) -> pd.DataFrame:
    """Four blocks of these arms; those called short have another length."""
    rows = []
    for arm, loss in losses.items():
        for block in range(4):
            budget = 16 if "short" in arm else 20
            rows.append((arm, block, "finished", budget, loss + 1e-5 * block * len(arm), 2.0))
    columns = ["arm", "block", "status", "budget", "val_loss", "train_time_s"]
    return pd.DataFrame(rows, columns=columns)


FOREIGN = Plan(name="worth", foreign=True, baseline="base")
SHORT = {**ARMS, frozenset("nz"): "short z", frozenset("n"): "short"}


def test_a_slope_needs_an_arm_that_differs_from_another_in_length_alone_in_two_blocks(
    kept_line: Callable[[str], None],
) -> None:
    runs = runs_of(base=3.0, a=2.9, short=3.02, **{"short z": 9.9})
    worth = Worth.of(runs, FOREIGN, SHORT)  # of z alone there is no arm
    assert worth is not None
    assert worth.slope.value == pytest.approx(0.02 / 0.22314, rel=0.01)
    assert (worth.steps, worth.seconds, worth.slope.df) == (20.0, 2.0, 3.0)
    (of_steps, of_seconds) = worth_judges(worth, runs, ["base", "a"], anytime=False)
    assert of_steps.note == of_seconds.note
    kept_line(of_steps.note)
    assert Worth.of(runs, replace(FOREIGN, foreign=False), SHORT) is None
    assert Worth.of(runs, FOREIGN, ARMS) is None
    assert Worth.of(runs[runs["arm"] != "base"], FOREIGN, SHORT) is None
    longer = runs.assign(budget=runs["budget"].where(runs["block"] > 0, runs["budget"] + 1))
    assert Worth.of(longer, FOREIGN, SHORT) is None  # no arm has a length
    is_short = runs["arm"].str.contains("short")
    for n_blocks, is_there in ((1, False), (2, True)):
        few = runs[~is_short | (runs["block"] < n_blocks)]
        assert (Worth.of(few, FOREIGN, SHORT) is not None) is is_there
    unknown = runs.assign(val_loss=runs["val_loss"].mask(is_short))
    assert Worth.of(unknown, FOREIGN, SHORT) is None


def test_nothing_is_converted_by_a_slope_below_zero_or_beside_a_run_that_diverged() -> None:
    names = ["base", "a"]
    runs = runs_of(base=3.0, a=2.9, short=3.02)
    worth = Worth.of(runs, FOREIGN, SHORT)
    assert worth is not None

    def judged(w: Worth, of_runs: pd.DataFrame) -> dict[str, bool]:
        told = worth_judges(w, of_runs, names, anytime=False)
        return {one.metric: one.judge is not None for one in told}

    assert judged(worth, runs) == {"steps": True, "seconds": True}
    for value in (0.0, -0.1):
        turned = replace(worth, slope=replace(worth.slope, value=value))
        assert judged(turned, runs) == {"steps": False, "seconds": False}
    of_a = runs["arm"] == "a"
    diverged = runs.assign(status=runs["status"].mask(of_a, "diverged"))
    assert judged(worth, diverged) == {"steps": False, "seconds": False}
    untimed = runs.assign(train_time_s=runs["train_time_s"].mask(of_a))
    assert judged(worth, untimed) == {"steps": True, "seconds": False}
    assert judged(replace(worth, seconds=math.nan), runs) == {"steps": True}
    apart = runs.assign(block=runs["block"] + 9 * of_a)
    assert judged(worth, apart) == {"steps": False, "seconds": False}  # no common block


@pytest.mark.parametrize(("gain", "is_far"), [(0.021, False), (0.023, True), (-0.023, True)])
def test_what_is_worth_more_steps_than_the_lengths_lie_apart_is_called_extrapolated(
    gain: float, is_far: bool
) -> None:
    """From 20 to 16 steps, 0.1 nats per log step: 0.0223 lie between."""
    losses = {"base": 3.0, "a": 3.0 - gain, "b": 3.0, "both": 3.0 - gain, "short": 3.0223144}
    rows = []
    for arm, loss in losses.items():
        for block in range(4):
            budget = 16 if arm == "short" else 20
            wobble = 1e-5 * (block % 2) * len(arm)
            rows.append((arm, block, "finished", budget, loss + wobble, 2.0 + wobble))
    columns = ["arm", "block", "status", "budget", "val_loss", "train_time_s"]
    runs = pd.DataFrame(rows, columns=columns)
    plan = Plan(name="worth", foreign=True, baseline="base")
    worth = Worth.of(runs, plan, {**ARMS, frozenset("n"): "short"})
    assert worth is not None
    for judged, per_loss in zip(
        worth_judges(worth, runs, NAMES, anytime=False), (200.0, 20.0), strict=True
    ):
        assert judged.judge is not None and "extrapolated" in judged.note
        share = judged.judge({"a": 1.0, "base": -1.0}, 0.05)
        assert share.value == pytest.approx(-gain * per_loss, rel=0.01)
        assert share.is_extrapolated == is_far
        assert share_cell(share, "s_delta").text.endswith(" extrapolated") == is_far
