"""The curves of an arm's runs brought together: values by hand."""

import numpy as np
import pandas as pd
import pytest

from reports.figures.base import AxisScale
from reports.figures.bundles import (
    MAX_POINTS,
    Course,
    band,
    bundle,
    bundles,
    column_means,
    finished_at,
    is_late,
    thin,
)
from reports.figures.curves import BY_STEP, in_tokens

NAN = float("nan")


def course(steps: list[float], times: list[float], losses: list[float]) -> Course:
    return Course(steps=np.array(steps), times=np.array(times), losses=np.array(losses))


def table(*rows: tuple[str, str, int, str]) -> pd.DataFrame:
    """Runs named by their place: arm, status, budget, role."""
    columns = ["arm", "status", "budget", "role"]
    return pd.DataFrame(rows, columns=columns).assign(run_id=[f"r{i}" for i in range(len(rows))])


def counted(runs: pd.DataFrame, budget: int | None) -> list[str]:
    return finished_at(runs, budget)["run_id"].tolist()


def test_the_runs_that_count_are_finished_for_losses_and_of_the_budget() -> None:
    runs = table(
        ("a", "finished", 100, "loss"),
        ("a", "finished", 200, "loss"),
        ("a", "failed", 300, "loss"),
        ("b", "finished", 100, "loss"),
        ("b", "finished", 400, "timing"),
    )
    assert counted(runs, None) == ["r1", "r3"]  # each arm's longest
    assert counted(runs, 100) == ["r0", "r3"]
    assert counted(runs, 300) == []
    timing = runs[runs["role"] == "timing"]
    assert counted(timing, None) == ["r4"]  # where none is for losses
    assert counted(runs[runs["status"] == "failed"], None) == []


def test_runs_are_brought_together_on_all_their_steps_with_holes_where_one_knows_nothing() -> None:
    one = course([0, 10, 20], [0.0, 1.0, 2.0], [5.0, 4.0, 2.0])
    two = course([0, 15, 20, 30], [0.0, 1.5, 4.0, 6.0], [7.0, 3.0, 4.0, NAN])
    found = bundle("a", {"x": one, "y": two})
    assert found.steps.tolist() == [0, 10, 15, 20]  # at 30 nobody has a loss
    assert found.time_s.tolist() == [0, 1, 1.5, 3]
    assert found.mean.tolist() == [6, 4, 3, 3]
    assert found.low.tolist() == [5, 4, 3, 2]
    assert found.high.tolist() == [7, 4, 3, 4]
    assert [*found.runs] == ["x", "y"]


def test_the_rows_behind_a_figure_are_the_means_to_their_digits_and_how_many_runs() -> None:
    one, two = course([3], [1.23456], [2.123456789]), course([3], [2.0], [3.0])
    assert [*bundle("a", {"x": one, "y": two}).rows] == [
        ("a", 3, 1.6173, 2.561728, 2.123457, 3.0, 2)
    ]


def test_curves_of_runs_that_do_not_count_and_of_arms_not_asked_for_are_left_out() -> None:
    runs = table(
        ("a", "finished", 100, "loss"), ("a", "failed", 100, "loss"), ("b", "finished", 100, "loss")
    )
    curves = pd.DataFrame(
        {
            "run_id": ["r0", "r2", "r0", "r1"],
            "arm": ["a", "b", "a", "a"],
            "step": [0, 0, 10, 0],
            "train_time_s": [0.0, 0.0, 1.0, 0.0],
            "val_loss": [5.0, 8.0, 4.0, 9.0],
        }
    )
    both = bundles(curves, runs, ["b", "a", "c"])
    assert [*both] == ["b", "a"]
    assert both["a"].steps.tolist() == [0, 10] and both["a"].mean.tolist() == [5, 4]
    assert [*both["a"].runs] == ["r0"]
    assert [*bundles(curves, runs, ["a"])] == ["a"]
    assert bundles(curves, runs, ["a"], 50) == {}


def test_where_a_step_is_no_unit_points_have_the_tokens_that_were_read() -> None:
    """As recorded where batches grow, else the steps times those of one."""
    runs = table(("grows", "finished", 20, "loss"), ("half", "finished", 20, "loss"))
    curves = pd.DataFrame(
        {
            "run_id": ["r0"] * 3 + ["r1"] * 3,
            "arm": ["grows"] * 3 + ["half"] * 3,
            "step": [0, 10, 20] * 2,
            "train_time_s": [0.0, 1.0, 2.0] * 2,
            "val_loss": [5.0, 4.0, 3.0] * 2,
        }
    )
    of_step = {"grows": 400.0, "half": 100.0}
    recorded = curves.assign(tokens=[0, 2000, 8000, NAN, NAN, NAN])
    both = bundles(recorded, runs, ["grows", "half"], step_tokens=of_step)
    assert [(b.tokens.tolist() if b.tokens is not None else None) for b in both.values()] == [
        [0, 2000, 8000],
        [0, 1000, 2000],
    ]
    assert both["grows"].rows[1] == ("grows", 10, 1.0, 4.0, 4.0, 4.0, 1, 2000)
    across = in_tokens(BY_STEP)
    assert across.across(both["grows"]).tolist() == [0, 2000, 8000]
    assert across.across_run(both["half"].runs["r1"]).tolist() == [0, 1000, 2000]
    assert (across.key, across.title, across.x_label) == (
        *("loss_by_step", "Loss by tokens"),
        "tokens",
    )
    alike = bundles(recorded, runs, ["grows", "half"])
    assert alike["grows"].tokens is None and len(alike["grows"].rows[1]) == 7
    for view, lines in ((across, alike["grows"]), (BY_STEP, both["grows"])):  # in steps both
        assert view.across(lines).tolist() == [0, 10, 20]
        assert view.across_run(lines.runs["r0"]).tolist() == [0, 10, 20]


def test_means_are_over_what_is_known() -> None:
    means = column_means(np.array([[1.0, NAN, NAN, 0.0], [4.0, 6.0, NAN, np.inf]]))
    assert means[:2].tolist() == [2.5, 6.0] and np.isnan(means[2]) and means[3] == 0.0


@pytest.mark.parametrize("n", [0, 1, 2, 3, MAX_POINTS - 1, MAX_POINTS, MAX_POINTS + 1, 1000])
def test_a_line_keeps_its_ends_and_at_most_so_many_points_evenly(n: int) -> None:
    kept = thin(n)
    assert len(kept) == min(n, MAX_POINTS)
    if n:
        assert (kept[0], kept[-1]) == (0, n - 1)
    steps = np.diff(kept)
    assert n < 3 or steps.max() - steps.min() <= 1


def test_what_comes_after_the_first_quarter_is_late() -> None:
    assert is_late(np.array([0.0, 24.0, 25.0, 26.0, 100.0])).tolist() == [0, 0, 1, 1, 1]


def test_a_band_goes_along_the_upper_line_and_back_along_the_lower_one() -> None:
    scales = (
        AxisScale(low=0, high=1, start=0, end=10),
        AxisScale(low=0, high=1, start=100, end=99),
    )
    low, high = np.array([1.0, NAN, 3.0, 4.0]), np.array([11.0, 12.0, NAN, 14.0])
    found = band(np.arange(4.0), low, high, *scales)
    path = found.split(' d="')[1].split('"')[0]
    numbers = path.replace("M", " ").replace("L", " ").replace("Z", " ").replace(",", " ").split()
    assert [float(n) for n in numbers] == [0, 89, 30, 86, 30, 96, 0, 99]
    assert path.endswith("Z")
    assert band(np.arange(4.0), low, np.full(4, NAN), *scales) == ""
