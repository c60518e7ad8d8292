"""Effects and interactions of the subsets that ran: contrasts by hand, intervals over all that is shown."""

import itertools

import numpy as np
import pandas as pd
import pytest

from harness.run.plan import Plan, PlanArm
from reports.analysis.interactions import contexts, interplay, subsets
from reports.analysis.judges import contrast_of

NAN = float("nan")


def plan_of(*sets: str, more: tuple[PlanArm, ...] = ()) -> Plan:
    """An arm for every set of one-letter changes."""
    arms = tuple(PlanArm(name=s or "base", of=s or "base", changes=tuple(s)) for s in sets)
    return Plan(name="x", baseline="base", arms=(*arms, *more))


def table(blocks: int = 4, **losses: float) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    return pd.DataFrame(
        [
            {"arm": arm, "block": block, "val_loss": loss + rng.normal(0, 0.01), "own": -loss}
            for arm, loss in losses.items()
            for block in range(blocks)
        ]
    )


def test_subsets_come_from_the_empty_one_up_and_contexts_in_the_order_of_what_ran() -> None:
    assert subsets(("a", "b")) == [frozenset(s) for s in ("", "a", "b", "ab")]
    ran = [frozenset(s) for s in ("abc", "c", "", "ac", "bc", "a", "b", "d")]
    assert contexts(("a", "b"), ran) == [frozenset("c")]
    assert contexts(("a", "b"), [*ran, frozenset("ab")]) == [frozenset("c"), frozenset()]
    assert contexts(("a",), ran) == [frozenset("c"), frozenset(), frozenset("bc")]


RUNS = table(base=3.0, a=2.9, b=2.8, ab=2.75)
FACTORIAL = plan_of("", "a", "b", "ab")
SIGNS = {("a",): (-1, 1, -1, 1), ("b",): (-1, -1, 1, 1), ("a", "b"): (1, -1, -1, 1)}


@pytest.mark.parametrize("level", [0.95, 0.8])
def test_of_a_factorial_three_effects_are_shown_each_at_a_third_of_the_error(level: float) -> None:
    losses = RUNS.pivot(index="block", columns="arm", values="val_loss")
    y = losses[["base", "a", "b", "ab"]].to_numpy()
    found = interplay(RUNS, FACTORIAL, level=level)
    assert [effect.changes for effect in found] == [*SIGNS]
    for effect in found:
        weights = np.array(SIGNS[effect.changes]) / (1 if len(effect.changes) == 2 else 2)
        expected = contrast_of(y, weights, (1 - level) / 3)
        assert effect.estimate == pytest.approx((y @ weights).mean())
        assert (effect.low, effect.high) == pytest.approx((expected.low, expected.high))
        assert (effect.n_blocks, effect.n_contexts) == (4, 3 - len(effect.changes))


def test_a_sequence_is_shown_where_one_may_look_again() -> None:
    runs = table(8, base=3.0, a=2.9, b=2.8, ab=2.75)
    planned, watched = (interplay(runs, FACTORIAL, anytime=anytime) for anytime in (False, True))
    for one, other in zip(planned, watched, strict=True):
        assert one.estimate == other.estimate
        assert other.high is not None and other.low is not None
        assert one.high is not None and one.low is not None
        assert other.high - other.low > one.high - one.low


def test_a_metric_of_ones_own_has_effects_of_its_own() -> None:
    own = {effect.changes: effect.estimate for effect in interplay(RUNS, FACTORIAL, "own")}
    assert own == pytest.approx({("a",): 0.075, ("b",): 0.175, ("a", "b"): -0.05})


def test_runs_without_a_block_or_a_value_or_on_an_axis_have_no_part() -> None:
    whole = interplay(RUNS, FACTORIAL)
    off = [
        {"arm": "a", "block": None, "val_loss": 9.0},
        {"arm": "a", "block": 0, "val_loss": NAN},
        {"arm": "a at x2", "block": 0, "val_loss": 9.0},
    ]
    point = PlanArm(name="a at x2", of="a", changes=("a",), point={"lr": "x2"})
    more = pd.concat([RUNS, pd.DataFrame(off)])
    assert interplay(more, plan_of("", "a", "b", "ab", more=(point,))) == whole


def test_effects_whose_arms_share_no_block_are_not_shown() -> None:
    """The pair needs an arm that no run has; then there is no interaction to tell, and nothing."""
    assert interplay(RUNS[RUNS["arm"] != "ab"], FACTORIAL) == []
    apart = RUNS.assign(block=RUNS["block"] + 10 * (RUNS["arm"] == "ab"))
    assert interplay(apart, FACTORIAL) == []
    plan = plan_of(*("".join(s) for n in range(4) for s in itertools.combinations("abc", n)))
    runs = table(base=3.0, a=2.9, b=2.8, ab=2.7, c=2.6, ac=2.5, bc=2.4)  # abc did not run
    assert interplay(runs, plan) == []
    less = plan_of("", "a", "b", "ab", "c", "ac", "bc")
    shown = [effect.changes for effect in interplay(runs, less)]
    assert shown == [("a",), ("b",), ("c",), ("a", "b"), ("a", "c"), ("b", "c")]
