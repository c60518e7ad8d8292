"""Points drawn between the ends of axes."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from harness.errors import UserError
from harness.experiment.experiment import Experiment, load_experiment
from harness.experiment.record import locked_plan

HEAD = "name: exp\nbase: r07\nscale: tiny\n"
AXES = "axes: {optim.muon_lr: [x0.25, x4], model.n_layer: [2, 9]}\n"


def load(folder: Path, text: str) -> Experiment:
    path = folder / "exp.yaml"
    path.write_text(HEAD + text)
    return load_experiment(str(path), device="cpu")


def places(e: Experiment) -> list[tuple[str, str]]:
    found = []
    for arm in e.arms[1:]:
        assert arm.of == "baseline"
        found.append((arm.point["optim.muon_lr"], arm.point["model.n_layer"]))
    return found


def test_a_file_draws_the_same_points_everywhere_and_another_seed_others(tmp_path: Path) -> None:
    first = places(load(tmp_path, AXES + "draw: {sobol: 4}\n"))
    assert first == places(load(tmp_path, AXES + "draw: {sobol: 4, seed: 0}\n"))
    assert first != places(load(tmp_path, AXES + "draw: {sobol: 4, seed: 1}\n"))
    assert first != places(load(tmp_path, AXES + "draw: {random: 4}\n"))
    six = places(load(tmp_path, AXES + "draw: {sobol: 6}\n"))
    assert six[:4] == first


def test_sobol_points_fill_the_ranges_evenly_in_the_logarithm(tmp_path: Path) -> None:
    e = load(tmp_path, AXES + "draw: {sobol: 16}\n")
    own = e.baseline.config
    octaves = [np.log2(a.config.optim.muon_lr / own.optim.muon_lr) for a in e.arms[1:]]
    halves, _ = np.histogram(octaves, bins=[-2, -1, 0, 1, 2])
    assert [*halves] == [4, 4, 4, 4]
    layers = [arm.config.model.n_layer for arm in e.arms[1:]]
    assert all(isinstance(n, int) and 2 <= n <= 9 for n in layers)
    assert len(set(layers)) > 4
    assert locked_plan(e)["draw"] == {"sobol": 16, "seed": 0}
    assert locked_plan(e)["axes"]["optim.muon_lr"] == ["x0.25", "x4"]


def test_points_that_rounding_makes_equal_are_one_arm(tmp_path: Path) -> None:
    e = load(tmp_path, "axes: {model.n_layer: [2, 4]}\ndraw: {random: 50}\n")
    assert sorted(arm.config.model.n_layer for arm in e.arms[1:]) == [2, 3, 4]


def test_drawn_numbers_are_told_to_three_digits(tmp_path: Path) -> None:
    e = load(
        tmp_path,
        "axes: {optim.muon_lr: [0.01, 0.04], schedule.lr_floor: [0.0, 0.5]}\ndraw: {sobol: 8}\n",
    )
    words = [[*arm.point.values()] for arm in e.arms[1:]]
    for rate, floor in words:
        assert rate == f"{float(rate):.3g}" and 0.01 <= float(rate) <= 0.04
        assert floor == f"{float(floor):.3g}" and 0.0 <= float(floor) <= 0.5
    assert sum(float(rate) < 0.02 for rate, _ in words) == 4  # evenly in the logarithm
    assert sum(float(floor) < 0.25 for _, floor in words) == 4  # and, from zero on, as it is
    assert len({rate for rate, _ in words}) == 8


def test_changes_cross_the_drawn_points(tmp_path: Path) -> None:
    e = load(tmp_path, "changes: {a: r08.untied_head}\n" + AXES + "draw: {random: 3}\n")
    assert len(e.arms) == 1 + 2 * 3
    assert [arm.point for arm in e.arms if arm.of == "a"] == [
        arm.point for arm in e.arms[1:] if arm.of == "baseline"
    ]


def test_two_points_are_a_draw_and_the_largest_seed_is_one(tmp_path: Path) -> None:
    assert len(places(load(tmp_path, AXES + "draw: {random: 2, seed: 2147483647}\n"))) == 2


@pytest.mark.parametrize(
    ("draw", "said"),
    [
        ("{sobol: 4, random: 4}", "draw is"),
        ("{sobol: 1}", "2 to 1000 points"),
        ("{random: 1001}", "2 to 1000 points"),
        ("{random: 4, seed: -1}", "draw is"),
        ("{random: 4, seed: 2147483648}", "draw is"),
        ("{random: 4, seeds: 1}", "draw is"),
        ("8", "draw is 8"),
    ],
)
def test_what_is_no_draw_is_one_line(
    tmp_path: Path, draw: str, said: str, kept_line: Callable[[str], None]
) -> None:
    with pytest.raises(UserError, match=said) as refused:
        load(tmp_path, AXES + f"draw: {draw}\n")
    kept_line(str(refused.value))


@pytest.mark.parametrize("points", ["[9, 2]", "[2, 2.0]", "[2]", "[2, 4, 9]"])
def test_points_are_drawn_between_two_ends(
    tmp_path: Path, points: str, kept_line: Callable[[str], None]
) -> None:
    with pytest.raises(UserError, match="must be its two ends") as refused:
        load(tmp_path, AXES.replace("[2, 9]", points) + "draw: {sobol: 4}\n")
    kept_line(str(refused.value))


def test_where_there_are_no_axes_nothing_is_drawn(
    tmp_path: Path, kept_line: Callable[[str], None]
) -> None:
    with pytest.raises(UserError, match="give some") as refused:
        load(tmp_path, "changes: {a: r08.untied_head}\ndraw: {sobol: 4}\n")
    kept_line(str(refused.value))


def test_a_point_that_cannot_stand_is_named_with_its_place(
    tmp_path: Path, kept_line: Callable[[str], None]
) -> None:
    with pytest.raises(
        UserError, match=r"exp\.yaml:4: arm 'baseline @ head_dim 24': model.head_dim"
    ) as refused:
        load(tmp_path, "axes: {model.head_dim: [16, 24]}\n")
    kept_line(str(refused.value))
