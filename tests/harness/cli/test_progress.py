"""The time left that a running matrix tells: by lanes, without what only first runs pay."""

import pytest

from harness.cli.progress import Pace

START_S, RUN_S = 12.0, 10.0


def told(lanes: int, n_runs: int) -> list[tuple[float, float]]:
    """(seconds told, seconds it then took) at the end of every run but the last, of equal runs."""
    pace, ends = Pace(lanes), []
    for i in range(n_runs):
        ends.append(START_S + RUN_S * (1 + i // lanes) + 0.1 * (i % lanes))
    pairs = []
    for i, end in enumerate(ends[:-1]):
        pace.end(end, 100)
        left = pace.left([100.0] * (n_runs - 1 - i), end)
        assert left is not None
        pairs.append((left, ends[-1] - end))
    return pairs


@pytest.mark.parametrize("lanes", [1, 2, 3, 8])
def test_the_time_left_is_right_once_a_lane_has_ended_its_second_run(lanes: int) -> None:
    for left, took in told(lanes, 4 * lanes)[lanes:]:
        assert abs(left - took) < 0.7 * RUN_S, (left, took)


@pytest.mark.parametrize("lanes", [1, 2, 3, 8])
def test_until_then_it_is_at_most_what_the_first_runs_make_of_it(lanes: int) -> None:
    for left, took in told(lanes, 4 * lanes)[:lanes]:
        assert took - 0.1 * lanes <= left <= took * (START_S + RUN_S) / RUN_S + RUN_S


def test_nothing_is_told_before_a_run_ended_and_a_longer_run_takes_longer() -> None:
    pace = Pace(1)
    assert pace.left([100.0], 5.0) is None
    pace.end(30.0, 100)
    pace.end(40.0, 100)
    assert (pace.left([400.0, 100.0], 40.0), pace.left([], 40.0)) == (50.0, None)
