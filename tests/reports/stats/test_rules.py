"""The benchmark's rules against worked examples, scipy and the published runs."""

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from reports.stats.rules import lower, parse_numbers, parse_slope, track1, track3, track3_pair

RUNS = Path(__file__).resolve().parents[3] / "results" / "published" / "official_runs.csv"


def final_losses(record: str) -> list[float]:
    """Read here with csv alone, not through reports.inputs.published."""
    last = {}
    with RUNS.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["record"] == record:
                last[row["run"]] = row
    assert all(row["step"] == row["total_steps"] for row in last.values())
    return [float(row["val_loss"]) for row in last.values()]


@pytest.mark.parametrize(("record", "n"), [("r15", 75), ("r13", 7)])
def test_track1_is_scipys_one_sided_t_test_on_published_runs(record, n):
    losses = final_losses(record)
    result = track1(losses)
    expected = stats.ttest_1samp(losses, 3.28, alternative="less")
    assert result.n == n == len(losses)
    assert result.statistic == pytest.approx(expected.statistic, rel=1e-12)
    assert result.p == pytest.approx(expected.pvalue, rel=1e-9)
    assert result.significant == (expected.pvalue < 0.01)
    assert result.sd == pytest.approx(np.std(losses, ddof=1))


def test_record_15_has_the_published_mean_and_passes_and_record_13_does_not():
    r15, r13 = track1(final_losses("r15")), track1(final_losses("r13"))
    assert round(r15.mean, 5) == 3.27846 and round(r15.sd, 5) == 0.00214 and r15.significant
    assert round(r13.mean, 5) == 3.27697 and round(r13.sd, 5) == 0.00386 and not r13.significant


@pytest.mark.parametrize(
    ("old", "new", "statistic", "significant"),
    [
        (
            (3.2785, 16, 3225),
            (3.2785, 10, 3210),
            0.000675 / math.sqrt(1 / 16 + 1 / 10),
            False,
        ),  # 0.0016745
        (
            (3.2778, 10, 3250),
            (3.2785, 16, 3210),
            0.0011 / math.sqrt(1 / 10 + 1 / 16),
            False,
        ),  # 0.0027288
        ((3.2788, 20, 3375), (3.2790, 20, 3325), 0.00205 / math.sqrt(1 / 10), True),  # 0.0064827
    ],
)
def test_track3_pair_gives_the_worked_examples(old, new, statistic, significant):
    names = ("mean", "n", "steps")
    result = track3_pair(
        **{f"old_{k}": v for k, v in zip(names, old)}, **{f"new_{k}": v for k, v in zip(names, new)}
    )
    assert f"{result.statistic:.5g}" == f"{statistic:.5g}"
    assert result.significant is significant
    assert result.p == pytest.approx(stats.norm.sf(statistic / 0.0013))


def test_track3_is_the_z_test_with_the_declared_sigma():
    passing = track3([3.278, 3.278, 3.278, 3.278])
    assert passing.statistic == pytest.approx(0.004) and passing.p == pytest.approx(
        stats.norm.sf(0.004 / 0.0013)
    )
    assert track3([3.2759]).significant and track3([3.2759]).sd is None
    assert not track3([3.2761]).significant


def test_checking_track1_after_every_run_lets_nulls_pass_as_documented():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20_000, 20))
    n = np.arange(1, 21)
    mean = x.cumsum(1) / n
    sd = np.sqrt(((x**2).cumsum(1) - n * mean**2) / np.maximum(n - 1, 1))
    t = mean[:, 2:] / (sd[:, 2:] / np.sqrt(n[2:]))
    passed = (t < stats.t.ppf(0.01, n[2:] - 1)).any(1).mean()
    assert passed == pytest.approx(0.056, abs=0.006)


@pytest.mark.parametrize(
    "text",
    ["3.27 3.28 3.29", "3.27,3.28,3.29", "3.27\n3.28\n3.29\n", "[3.27, 3.28, 3.29]", "3.27; 3.28;\t3.29",
     "np.array([3.27, 3.28, 3.29])",     "[np.float64(3.27), np.float64(3.28), np.float64(3.29)]", "(3.27,\n 3.28,\r\n 3.29,)"],
)  # fmt: skip
def test_numbers_are_read_in_any_common_separation(text):
    assert parse_numbers(text) == [3.27, 3.28, 3.29]


def test_what_is_no_number_is_named():
    with pytest.raises(ValueError, match="'loss' is not a number"):
        parse_numbers("3.27 loss 3.28")


def test_slopes_per_step_and_per_hundred():
    assert parse_slope("0.000045") == 4.5e-5 and parse_slope("0.0045/100") == pytest.approx(4.5e-5)
    with pytest.raises(ValueError, match="slope 'steep'"):
        parse_slope("steep")


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: track1([]), "got no losses"),
        (lambda: track1([3.27]), "needs at least 2 losses"),
        (lambda: track1([3.27, 3.27, 3.27]), "sd is 0"),
        (lambda: track1([3.27, math.nan]), r"not a number \(run 2 of 2\)"),
        (lambda: track3([math.inf]), "not a number"),
        (lambda: track1([3.27, 0.0]), "rule track1 got a loss of 0: a validation loss is above"),
        (
            lambda: track3([3.27, -1.5]),
            "rule track3 got a loss of -1.5: a validation loss is above",
        ),
        (
            lambda: track3_pair(
                old_mean=3.28, old_n=0, old_steps=10, new_mean=3.27, new_n=1, new_steps=9
            ),
            "old_n is 0",
        ),
        (
            lambda: track3_pair(
                old_mean=3.28, old_n=1, old_steps=10, new_mean=3.27, new_n=1, new_steps=9, slope=-1
            ),
            "slope is -1",
        ),
        (
            lambda: track3_pair(
                old_mean=math.nan, old_n=1, old_steps=10, new_mean=3.27, new_n=1, new_steps=9
            ),
            "must be numbers",
        ),
    ],
)
def test_bad_input_has_its_own_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


@pytest.mark.parametrize("text", ["3,277 3,279", "3,277", "[3,277]", "3.277,3 3.279", "3277,3279"])
def test_commas_that_may_be_decimal_points_are_refused_by_name(text):
    with pytest.raises(ValueError, match="is the comma a decimal point or between two numbers"):
        parse_numbers(text)


def test_equal_losses_are_known_through_the_rounding_of_their_mean():
    losses = [3.277] * 3
    assert np.std(losses, ddof=1) > 0  # 3.277 is no binary number
    with pytest.raises(ValueError, match="all 3 losses are equal"):
        track1(losses)


def test_the_very_threshold_passes_whatever_binary_rounding_makes_of_it():
    assert (3.28 - 3.278) * 2 < 0.004  # by 4e-16
    assert track3([3.276]).significant and track3([3.278] * 4).significant
    assert not track3([3.27601]).significant
    beyond = [track3([3.276 + short]).significant for short in (0.0, 5e-10, 2e-9)]
    assert beyond == [True, True, False]  # a mean with nine decimals is the threshold's
    pair = {"old_mean": 3.284, "old_n": 2, "old_steps": 3000, "new_n": 2, "new_steps": 3000}
    assert (
        track3_pair(**pair, new_mean=3.28).significant
        and not track3_pair(**pair, new_mean=3.28001).significant
    )


def test_a_lower_mean_is_welchs_one_sided_test():
    x, y = [3.27, 3.28, 3.275, 3.262], [3.29, 3.27, 3.31]
    var = [np.var(v, ddof=1) / len(v) for v in (x, y)]
    t = (np.mean(x) - np.mean(y)) / math.sqrt(sum(var))
    df = sum(var) ** 2 / sum(v**2 / (len(of) - 1) for v, of in zip(var, (x, y)))
    found, other = lower(x, [*y, math.nan], "losses"), lower(y, x, "losses")
    assert found.gap == pytest.approx(np.mean(x) - np.mean(y)) and found.n == (4, 3)
    assert found.p == pytest.approx(stats.t.cdf(t, df)) and other.p == pytest.approx(1 - found.p)
    with pytest.raises(ValueError, match="a t test of losses needs 2 runs of each, got 4 and 1"):
        lower(x, y[:1], "losses")
    with pytest.raises(ValueError, match="the losses of each are all equal"):
        lower([3.27] * 3, [3.28] * 3, "losses")


def test_values_in_other_units_are_refused():
    with pytest.raises(ValueError, match=r"0\.3279, more than 5 times away from the target"):
        track1([3.2788, 0.3279])
    with pytest.raises(ValueError, match=r"3278\.8, more than 5 times away from the target"):
        track1([3278.8, 3279.1])
    pair = {"old_mean": 3.2788, "old_n": 20, "old_steps": 3375, "new_n": 20, "new_steps": 3325}
    with pytest.raises(ValueError, match="new_mean is 3279, which is no validation loss"):
        track3_pair(**pair, new_mean=3279.0)
    with pytest.raises(ValueError, match=r"one per 100 steps is written 0\.0045/100"):
        track3_pair(**pair, new_mean=3.279, slope=0.0045)
