"""Arms whose steps read different numbers of tokens: steps, tokens and gains by hand."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from reports.analysis.arm_values import ArmRow, gain_part, has_resolved
from reports.analysis.attribution import time_judges
from reports.analysis.compare import compare_all
from reports.analysis.step_tokens import ALIKE, is_alike, step_tokens, token_notes
from reports.analysis.tables import tokens_rows
from reports.analysis.time_estimates import decompositions, time_estimates
from reports.analysis.time_model import TimeModel
from reports.inputs.load import load
from reports.stats.contrasts import Sample
from reports.stats.loss_model import fit
from tests.report_fixtures import write_experiment
from tests.report_kinds import BATCHES, KINDS

ARMS = ("base", "arm")
TARGET, SLOPE = 3.28, -0.19
NOISE = (0.0006, -0.0004, -0.0005, 0.0003)


def ran(tokens: Mapping[str, Mapping[int, float | None]]) -> pd.DataFrame:
    """Finished runs; tokens: arm -> steps -> tokens of a run."""
    rows = []
    for arm, of_arm in tokens.items():
        for steps, read in of_arm.items():
            rows.append(
                {"arm": arm, "budget": steps, "steps": steps, "tokens": read, "status": "finished"}
            )
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("base", "arm", "expected"),
    [
        ({10: 40_000}, {10: 20_000}, (4000, 2000)),
        ({10: 40_000}, {10: 40_000}, ()),
        ({10: 40_000}, {20: 80_000}, ()),  # longer, at the same batch
        ({1000: 2_004_000}, {990: 1_980_000}, ()),  # stages begin at whole steps
        ({10: 40_000, 20: 84_000}, {10: 20_000}, (4000, 2000)),  # at the steps that they share
        ({10: 40_000, 20: 84_000}, {30: 60_000}, (4100, 2000)),
        ({10: 40_000}, {10: None}, ()),
    ],
)
def test_tokens_of_a_step_are_told_where_they_differ(
    base: dict[int, float], arm: dict[int, float | None], expected: tuple[float, ...]
) -> None:
    told = step_tokens(ran({"base": base, "arm": arm}), ARMS)
    assert told == dict(zip(ARMS, expected, strict=False))


def test_runs_that_did_not_finish_and_other_arms_tell_nothing() -> None:
    runs = ran({"base": {10: 40_000}, "arm": {10: 20_000}})
    assert step_tokens(runs.assign(status=["finished", "diverged"]), ARMS) == {}
    assert step_tokens(runs, ("base",)) == {}
    assert step_tokens(runs.drop(columns="tokens"), ARMS) == {}


def model_of(
    n_stars: Sequence[float], step_ms: Sequence[float], tokens: Sequence[float], n: int = 4
) -> TimeModel:
    """Losses that meet the target at these steps, but for noise that sums to nothing."""
    rows = []
    for arm, n_star in zip(ARMS, n_stars, strict=True):
        for budget in (2700, 3300):
            for seed in range(n):
                loss = TARGET + SLOPE * math.log(budget / n_star) + NOISE[seed % 4]
                rows.append({"arm": arm, "budget": budget, "val_loss": loss, "block": None})
    runs = pd.DataFrame(rows)
    fitted = fit(
        arm=np.array([ARMS.index(arm) for arm in runs["arm"]]),
        budget=runs["budget"].to_numpy(float),
        loss=runs["val_loss"].to_numpy(float),
        block=list(runs["block"]),
        target=TARGET,
    )
    step = {}
    for arm, ms in zip(ARMS, step_ms, strict=True):
        logs = np.log([ms * 0.99, ms, ms / 0.99])
        step[arm] = Sample(values=logs, blocks=(None,) * 3)
    return TimeModel(
        arms=ARMS,
        target=TARGET,
        model=fitted,
        runs=runs,
        step=step,
        comparable=frozenset(ARMS),
        why_not="",
        warnings=(),
        step_tokens=dict(zip(ARMS, tokens, strict=True)),
    )


def timed_at(*steps: int) -> pd.DataFrame:
    return pd.DataFrame([{"arm": arm, "steps": n} for arm, n in zip(ARMS, steps, strict=True)])


def test_tokens_to_the_target_are_its_steps_times_theirs() -> None:
    """3000 and 3150 steps, of 4096 and 2048 tokens; the interval's ends alike."""
    estimates = time_estimates(model_of((3000, 3150), (100, 50), (4096, 2048)))
    for arm, steps, of_step in zip(ARMS, (3000, 3150), (4096, 2048), strict=True):
        e = estimates[arm]
        assert (e.n_star, e.tokens) == pytest.approx((steps, steps * of_step), rel=1e-6)
        assert None not in (e.n_low, e.n_high)
        assert (e.tokens_low, e.tokens_high) == pytest.approx(
            (of_step * (e.n_low or 0), of_step * (e.n_high or 0))
        )


def test_where_steps_are_a_unit_no_tokens_are_told() -> None:
    time = replace(model_of((3000, 3150), (100, 50), (1, 1)), step_tokens={})
    assert time_estimates(time)["arm"].tokens is None
    part = decompositions(time, time_estimates(time), timed_at(3000, 3000), 3000)["arm"]
    assert (part.step_ratio, part.is_learning_told) == (1.0, None)
    assert part.learning_s == pytest.approx((0.1 + 0.05) / 2 * 150, rel=1e-6)
    assert token_notes({}, time_estimates(time), share_steps=True) == []


def test_two_numbers_are_alike_within_one_percent_either_way() -> None:
    ratios = (1.0, ALIKE, 1 / ALIKE, ALIKE + 1e-9, 1 / ALIKE - 1e-9)
    assert [is_alike(ratio) for ratio in ratios] == [True, True, True, False, False]


@pytest.mark.parametrize(("n_arms", "share_steps"), [(4, True), (5, False)])
def test_of_more_than_four_arms_the_rest_is_counted(
    n_arms: int, share_steps: bool, kept_line: Callable[[str], None]
) -> None:
    arms = [f"arm{i}" for i in range(n_arms)]
    estimates = time_estimates(model_of((3000, 3150), (100, 50), (4096, 2048)))
    times = dict.fromkeys(arms, estimates["arm"])
    times["far"] = replace(estimates["arm"], extrapolated=True)
    times["none"] = replace(estimates["arm"], tokens=None)
    of_step = {arm: 1024.0 * (i + 1) for i, arm in enumerate(arms)}
    (note,) = token_notes(of_step, times, share_steps=share_steps)
    kept_line(note)


def test_learning_is_fewer_tokens_and_systems_is_faster_ones() -> None:
    """Half the tokens a step in half its time, and 5 % more steps: 47.5 % fewer tokens at one pace.

    In steps it would be 5 % more to learn, and steps of half the time.
    """
    time = model_of((3000, 3150), (100, 50), (4096, 2048))
    part = decompositions(time, time_estimates(time), timed_at(3000, 3000), 3000)["arm"]
    assert part.step_ratio == 0.5
    assert part.learning_percent == pytest.approx(-47.5, abs=1e-3)
    assert part.systems_percent == pytest.approx(0, abs=1e-3)
    assert part.total_s == pytest.approx(3150 * 0.05 - 3000 * 0.1, rel=1e-6)
    assert part.is_learning_told


@pytest.mark.parametrize(("n_star", "is_told"), [(6000, False), (5400, True), (6600, True)])
def test_twice_the_steps_of_half_the_tokens_learn_no_more(n_star: float, is_told: bool) -> None:
    """Whatever the losses at equal steps are, which are far apart."""
    time = model_of((3000, n_star), (100, 50), (4096, 2048))
    part = decompositions(time, time_estimates(time), timed_at(3000, 3000), 3000)["arm"]
    assert part.learning_percent is None  # no budget brackets that many steps
    time = replace(time, runs=pd.concat([time.runs, beyond(time)]))
    part = decompositions(time, time_estimates(time), timed_at(3000, 3000), 3000)["arm"]
    assert part.learning_percent == pytest.approx(100 * (n_star / 6000 - 1), abs=1e-3)
    assert part.is_learning_told == is_told


def beyond(time: TimeModel) -> pd.DataFrame:
    """A run of the arm at more steps, below the target."""
    return time.runs[time.runs["arm"] == "arm"].tail(1).assign(budget=9000, val_loss=TARGET - 0.1)


@pytest.mark.parametrize(
    ("steps", "learning"), [((1000, 2000), None), ((1000, 1000), -50.0), ((1000, 3000), 50.0)]
)
def test_schedules_of_an_arm_s_own_length_are_compared_by_their_tokens(
    steps: tuple[int, int], learning: float | None
) -> None:
    """Half the tokens a step at one pace; no target. Twice the steps are as long a schedule."""
    time = replace(model_of((3000, 3150), (100, 50), (4096, 2048)), target=None)
    part = decompositions(time, {}, timed_at(*steps), None)["arm"]
    expected = None if learning is None else pytest.approx(learning, abs=1e-6)
    assert part.learning_percent == expected
    at_equal_steps = decompositions(time, {}, timed_at(1000, 1000), 1000)["arm"]
    assert at_equal_steps.learning_percent is None


def test_contributions_are_told_in_tokens() -> None:
    time = model_of((3000, 3150), (100, 50), (4096, 2048))
    table = pd.DataFrame({"arm": ARMS, "block": 0, "train_time_s": 270.0, "status": "finished"})
    of_tokens, of_seconds = time_judges(time, table, list(ARMS), anytime=False)
    assert (of_tokens.metric, of_tokens.unit, of_tokens.title) == (
        *("tokens", "tokens"),
        "tokens to target",
    )
    contrast = {"arm": 1.0, "base": -1.0}
    assert of_tokens.judge is not None and of_seconds.judge is not None
    share = of_tokens.judge(contrast, 0.05)
    assert share.value == pytest.approx(3150 * 2048 - 3000 * 4096, rel=1e-6)
    assert share.low is not None and share.low < share.value
    seconds = of_seconds.judge(contrast, 0.05).value
    assert seconds == pytest.approx(3150 * 0.05 - 3000 * 0.1, rel=1e-6)


def test_a_whole_experiment_says_that_a_step_is_no_unit(tmp_path: Path) -> None:
    outcome = compare_all(KINDS["tokens"](tmp_path))
    assert outcome.step_tokens == {"r07": 4096, "half": 2048, "grows": 5120}
    (note,) = [note for note in outcome.notes if "no common unit" in note]
    assert "r07 4096, half 2048, grows 5120 tokens. " in note
    assert "Losses are compared at equal steps, not at equal tokens" in note
    times = outcome.times
    for arm in outcome.step_tokens:
        tokens = times[arm].tokens
        assert tokens == pytest.approx((times[arm].n_star or 0) * outcome.step_tokens[arm])
    rows = {row["arm"]: row for row in tokens_rows(outcome)}
    assert rows["half"]["step_tokens"] == 2048
    assert rows["half"]["tokens_to_target"] == times["half"].tokens
    low, high = (rows["half"][f"tokens_to_target_{end}"] for end in ("low", "high"))
    assert low < rows["half"]["tokens_to_target"] < high


def test_a_step_of_half_the_tokens_in_half_the_time_is_no_systems_gain(tmp_path: Path) -> None:
    """Its time a token is 6 % longer; in steps it would be 47 % faster."""
    outcome = compare_all(KINDS["tokens"](tmp_path))
    row = ArmRow(arm="half", outcome=outcome)
    assert (gain_part(row, part="systems_percent") or 0) > 0
    steps = outcome.of("half", "step_ms")
    assert steps is not None and steps.kind == "helps"
    assert steps.ratio_low is not None and steps.ratio_high is not None
    for moved, is_told in ((0.5, True), (steps.ratio or 0, False)):
        gain = replace(outcome.decompositions["half"], step_ratio=moved)
        told = replace(outcome, decompositions={"half": gain})
        assert has_resolved(told, "half", "systems") == is_told


def test_an_experiment_of_one_batch_says_nothing_of_tokens(tmp_path: Path) -> None:
    alike = [replace(arm, token_factor=1.0) for arm in BATCHES]
    write_experiment(tmp_path, arms=alike, n_seeds=3, budgets=(200, 300, 400), target=1.57)
    outcome = compare_all(load("split", tmp_path))
    assert outcome.step_tokens == {} and tokens_rows(outcome) == []
    assert not any("token" in note for note in outcome.notes)
    assert all(time.tokens is None for time in outcome.times.values())
    assert all(gain.step_ratio == 1 for gain in outcome.decompositions.values())
