"""Rates: which one is best for an arm, and where an effect's sign depends on it."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reports.analysis.adaptive import best, best_rates
from reports.analysis.compare import compare_all
from reports.analysis.sensitivity import sensitivities
from reports.inputs.experiment import Experiment
from reports.inputs.load import load
from reports.inputs.memory import Memory
from reports.page.by_design import ByDesign
from reports.page.studies import studies
from reports.page.write import render
from tests.report_arms import Arm
from tests.report_fixtures import write_experiment

FACTORS = ("x0.5", "x1", "x2")


def crossed(
    folder: Path, effects: dict[str, tuple[float, float, float]], **facts: object
) -> Experiment:
    """Arms at three rates; effects are their losses above a common level at x0.5, x1 and x2."""
    named = [
        (of, f, of if f == "x1" else f"{of} @ muon_lr {f}", e)
        for of, es in effects.items()
        for f, e in zip(FACTORS, es)
    ]
    arms = [
        Arm(
            name=n,
            loss_effect=e,
            changes=() if of == "baseline" else (of,),
            fields=(("plugin.arm", n),),
        )
        for of, _, n, e in named
    ]
    first = next(i for i, (_, _, name, _) in enumerate(named) if name == "baseline")
    arms.insert(0, arms.pop(first))
    write_experiment(folder, arms=arms, n_seeds=4, sd=5e-4, target=None, **facts)  # type: ignore[arg-type]
    made = load("split", folder)
    place: dict[str, Any] = {
        name: {"of": of, "point": {"optim.muon_lr": f}} for of, f, name, _ in named
    }
    placed = tuple(
        replace(a, of=place[a.name]["of"], point=place[a.name]["point"]) for a in made.plan.arms
    )
    return replace(
        made, plan=replace(made.plan, axes={"optim.muon_lr": list(FACTORS)}, arms=placed)
    )


def test_the_page_says_where_a_sign_depends_on_the_rate(tmp_path: Path) -> None:
    flips = {
        "baseline": (0.0, 0.0, 0.05),
        "a": (0.02, 0.0, 0.02),
        "b": (-0.02, -0.02, 0.03),
        "c": (0.0, 0.0, 0.05),
    }
    found = {s.arm: s for s in sensitivities(crossed(tmp_path, flips))}
    assert found["a"].words == "better at 1, worse at 1 of 3"
    assert found["b"].words == "better at 3 of 3"
    assert found["c"].words == "not told apart at any of 3"
    assert [e.delta for e in found["a"].effects] == pytest.approx(
        [0.02, 0.0, -0.03], abs=2e-3
    )  # like against like
    again = crossed(tmp_path / "again", flips)
    page = render(
        [
            replace(
                again,
                plan=replace(again.plan, left_out=("cudnn: needs CUDA, which this machine lacks",)),
            )
        ]
    )
    assert "Left out: cudnn: needs CUDA, which this machine lacks." in page
    assert "Does the sign hold?" in page
    assert 'data-label="sign"><span>better at 1, worse at 1 of 3</span>' in page


def test_the_longer_list_of_arms_and_points_goes_down_the_page(tmp_path: Path) -> None:
    made = crossed(tmp_path, {"baseline": (0.0, 0.0, 0.05), "a": (0.02, 0.0, 0.02)})
    by_design = ByDesign.of(made, compare_all(made))
    (table,) = [
        study for study in studies(made, by_design, compare_all(made)) if study.key == "sensitivity"
    ]
    assert (table.first, table.heads) == ("point", ["a"])
    names = [name for name, _ in table.rows]
    assert names == [*(f"optim.muon_lr {factor}" for factor in FACTORS), "sign"]
    assert table.rows[-1][1][0].text == "better at 1, worse at 1 of 3"
    assert table.is_number(0)


def test_effects_along_axes_hold_for_the_family_that_the_memory_knows(tmp_path: Path) -> None:
    """Of 50 changes asked about this baseline five are these: a tenth of the error rate."""
    alone = crossed(tmp_path, {"baseline": (0.0, 0.0, 0.05), "a": (0.02, 0.0, 0.02)})
    remembered = replace(alone, memory=Memory(family=50))
    assert sensitivities(remembered) == sensitivities(alone, level=0.995)
    assert sensitivities(remembered) != sensitivities(alone)


def test_without_axes_there_is_no_such_table(tmp_path: Path) -> None:
    write_experiment(tmp_path)
    assert sensitivities(load("split", tmp_path)) == []


def test_the_best_rate_is_the_lowest_point_of_the_quadratic() -> None:
    losses = {f: [2.0 + (math.log(f) - math.log(0.8)) ** 2] for f in (0.5, 1.0, 2.0)}
    found = best(losses)
    assert found.factor == pytest.approx(0.8)
    assert (found.at_edge, found.how) == (False, "quadratic in log rate")
    two = best({0.5: [2.0, 4.0], 1.0: [2.5, 2.6]})  # by their means
    how = "best point of the grid, which shows no minimum"
    assert (two.factor, two.at_edge, two.how) == (1.0, True, how)
    hill = best({0.5: [3.0], 1.0: [1.0], 2.0: [3.1], 4.0: [2.0], 8.0: [1.5]})
    assert (hill.factor, hill.at_edge, hill.how) == (1.0, False, how)


@pytest.mark.parametrize(
    ("losses", "factor"), [((3.0, 2.0, 1.5), 2.0), ((1.0, 2.0, 2.9), 0.5), ((1.0, 2.0, 1.1), 0.5)]
)
def test_a_best_rate_beyond_the_grid_or_without_a_minimum_is_an_end_of_it(
    losses: tuple[float, ...], factor: float
) -> None:
    found = best({f: [x] for f, x in zip((0.5, 1.0, 2.0), losses)})
    assert found.factor == pytest.approx(factor)
    assert found.at_edge


def test_every_arm_gets_its_own_rate_and_a_point_that_diverged_is_none(tmp_path: Path) -> None:
    effects = {"baseline": (0.05, 0.0, 0.05), "a": (0.0, 0.05, 0.2)}
    grid = crossed(tmp_path, effects, outcome={("baseline @ muon_lr x2", 1): "diverged"})
    rates = best_rates(grid)
    assert rates["baseline"].factor == 1.0  # of the two points that are left
    assert rates["a"].factor < 0.8


def test_an_arm_that_diverges_everywhere_has_no_best_rate(tmp_path: Path) -> None:
    names = ("a @ muon_lr x0.5", "a", "a @ muon_lr x2")
    grid = crossed(
        tmp_path,
        {"baseline": (0.0, 0.0, 0.0), "a": (0.0, 0.0, 0.0)},
        outcome={(n, 0): "diverged" for n in names},
    )
    with pytest.raises(ValueError, match="arm 'a' has no rate at which all its runs finished"):
        best_rates(grid)


def test_drawn_points_are_judged_each_against_the_baseline_there(tmp_path: Path) -> None:
    effects = {"baseline": (0.0, 0.0, 0.05), "a": (0.02, 0.0, 0.02)}
    grid = crossed(tmp_path, effects)
    drawn = replace(
        grid, plan=replace(grid.plan, axes={"optim.muon_lr": ["x0.5", "x2"]}, draw={"random": 3})
    )
    (of_grid,), (of_drawn,) = sensitivities(grid), sensitivities(drawn)
    assert len(of_drawn.effects) == 3
    assert {e.point: e for e in of_drawn.effects} == {e.point: e for e in of_grid.effects}
