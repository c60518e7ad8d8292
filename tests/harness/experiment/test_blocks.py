"""Blocks: an order that was drawn stays, whatever the experiment is called by then."""

from dataclasses import replace

from harness.experiment.blocks import in_order_of, order_in_block
from harness.run.plan import PlanRun
from harness.run.spec import PlannedRun
from tests.one_run import SPEC


def drawn(arms: str, *, seed: int, block: int) -> list[PlannedRun]:
    """A block whose runs stand in this order."""
    runs = []
    for place, arm in enumerate(arms):
        spec = replace(SPEC, config={"arm": arm}, seed=seed)
        runs.append(PlannedRun(arm=arm, block=block, place=place, spec=spec))
    return runs


def planned(runs: list[PlannedRun]) -> list[PlanRun]:
    """As the plan keeps them."""
    rows = []
    for run in runs:
        spec = run.spec
        row = PlanRun(
            arm=run.arm,
            seed=spec.seed,
            replicate=0,
            budget=spec.budget,
            role=spec.role,
            block=run.block,
            place=run.place,
            run_id=spec.run_id,
            intent_id=spec.intent_id,
        )
        rows.append(row)
    return rows


def test_a_block_that_was_planned_keeps_its_order_and_a_new_or_larger_one_has_the_drawn_one() -> (
    None
):
    before = planned([*drawn("cab", seed=0, block=0), *drawn("ab", seed=1, block=1)])
    new = [
        *drawn("abc", seed=0, block=0),
        *drawn("cba", seed=1, block=1),  # it has an arm more
        *drawn("bca", seed=2, block=2),
    ]
    ordered = in_order_of(before, new)
    assert "".join(run.arm for run in ordered) == "cab" + "cba" + "bca"
    assert [run.place for run in ordered] == [0, 1, 2] * 3
    assert in_order_of((), new) == new


def test_an_order_is_drawn_by_the_name_and_the_seed_and_is_the_same_for_everybody() -> None:
    drawn_orders = {
        ("quickstart", 0): [1, 2, 0, 4, 5, 3],
        ("quickstart", 1): [0, 5, 4, 2, 3, 1],
        ("x", 0): [2, 5, 4, 1, 0, 3],
    }
    for (name, seed), order in drawn_orders.items():
        assert order_in_block(name, seed, 6) == order
    assert order_in_block("x", 0, 1) == [0]


def test_a_row_without_a_place_or_of_another_role_gives_no_order() -> None:
    before = planned(drawn("cab", seed=0, block=0))
    new = drawn("abc", seed=0, block=0)
    assert [run.arm for run in in_order_of(before, new)] == ["c", "a", "b"]
    unplaced = [replace(row, place=None) for row in before]
    assert in_order_of(unplaced, new) == new
    twice = [replace(row, place=0) for row in before]  # two runs in one place are no order
    assert in_order_of(twice, new) == new
