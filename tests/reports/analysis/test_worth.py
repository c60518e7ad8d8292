"""A loss in steps and seconds by the slope of arms of another length: how far that is measured."""

import pandas as pd
import pytest

from harness.run.plan import Plan
from reports.analysis.worth import Worth, worth_judges
from reports.page.study import share_cell

NAMES = ["base", "a", "b", "both"]
ARMS = {frozenset(): "base", frozenset("a"): "a", frozenset("b"): "b", frozenset("ab"): "both"}


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
