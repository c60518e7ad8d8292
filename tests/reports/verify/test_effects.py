"""The second path of `verify` finds mistakes that the statistics themselves would repeat, and none where there are none."""

import json

import numpy as np
import pytest
from scipy import stats

import reports.stats.contrasts
import reports.stats.sequential
import reports.stats.verdicts
from reports.inputs.load import load
from reports.page.embed import table_rows
from reports.page.write import render
from reports.verify.blocks import beyond
from reports.verify.effects import backfitted
from reports.verify.page import read_page
from reports.verify.table import Table
from reports.verify.verify import check_statistics
from tests.report_arms import LADDER
from tests.report_fixtures import write_experiment

SMALL = {"arms": LADDER[:3], "n_seeds": 4}
PAIRED = {"arms": LADDER[:4], "n_seeds": 7, "design": "add-one"}
WATCHED = {"arms": LADDER[:2], "n_seeds": 8, "outcome": {("untied_head", 7): "pending"}}
NOISY = PAIRED | {"noisy": (1, 2)}
HOLES = {
    "arms": LADDER[:4],
    "n_seeds": 5,
    "outcome": {("untied_head", 1): "failed", ("r07", 3): "oom"},
}
ONE_LEFT = SMALL | {"outcome": {("untied_head", seed): "failed" for seed in (1, 2, 3)}}
APART = {  # as many runs of each arm, in other blocks
    "arms": LADDER[:2],
    "n_seeds": 4,
    "outcome": {("r07", 0): "failed", ("untied_head", 3): "failed"},
}


def found(tmp_path, *, blocked: bool = True, noisy: tuple[int, ...] = (), **how) -> list[str]:
    """What the second path alone says of the page of such an experiment; noisy: arms declared to alter the noise."""
    write_experiment(tmp_path, **how)
    if noisy:
        path = tmp_path / "experiments" / "split" / "experiment.json"
        plan = json.loads(path.read_text())
        arms = [{**arm, "alters_noise": i in noisy} for i, arm in enumerate(plan["arms"])]
        path.write_text(json.dumps({**plan, "arms": arms}))
    if not blocked:
        path = tmp_path / "experiments" / "split" / "experiment.json"
        plan = json.loads(path.read_text())
        path.write_text(json.dumps({**plan, "runs": [{**r, "block": None} for r in plan["runs"]]}))
    page = read_page(render([load("split", results=tmp_path)]))
    data = page.data["experiments"][0]
    return list(check_statistics(page, 0, data, table_rows(data["runs"])))


@pytest.mark.parametrize(
    "how",
    [
        SMALL,
        PAIRED,
        NOISY,
        WATCHED,
        HOLES,
        {"arms": LADDER, "n_seeds": 2},
        {"arms": LADDER[:2], "n_seeds": 1},
        ONE_LEFT | {"blocked": False},
        APART,
    ],
)
def test_what_the_statistics_say_is_confirmed(tmp_path, how):
    assert found(tmp_path, **how) == []


def test_intervals_of_small_blocks_that_are_too_narrow_are_found(tmp_path, monkeypatch):
    real = reports.stats.contrasts.max_t_quantile
    monkeypatch.setattr(reports.stats.contrasts, "max_t_quantile", lambda *a: 0.97 * real(*a))
    said = found(tmp_path, **SMALL)
    assert any("val_loss.interval has the error rate" in s for s in said)
    assert any("step_ms.interval has the error rate" in s for s in said)


@pytest.mark.slow
def test_p_values_of_small_blocks_that_are_too_small_are_found(tmp_path, monkeypatch):
    real = reports.stats.contrasts.max_t_p
    monkeypatch.setattr(reports.stats.contrasts, "max_t_p", lambda *a: 0.8 * real(*a))
    assert any(".p is printed as" in s for s in found(tmp_path, **SMALL, sd=0.02))


@pytest.mark.slow
def test_p_values_without_their_adjustment_are_found(tmp_path, monkeypatch):
    assert found(tmp_path / "right", **NOISY, sd=0.02) == []
    monkeypatch.setattr(reports.stats.contrasts, "holm", lambda p: p)
    assert any(".p is printed as" in s for s in found(tmp_path / "wrong", **NOISY, sd=0.02))


@pytest.mark.slow
def test_a_wrong_paired_error_is_found(tmp_path, monkeypatch):
    real = reports.stats.contrasts.paired_t

    def smaller(arm, baseline):
        delta, se, df, n = real(arm, baseline)
        return delta, 0.95 * se, df, n

    monkeypatch.setattr(reports.stats.contrasts, "paired_t", smaller)
    assert any("val_loss.interval is printed as" in s for s in found(tmp_path, **NOISY))


def test_a_wrong_error_of_unblocked_runs_is_found(tmp_path, monkeypatch):
    assert found(tmp_path / "right", blocked=False, **SMALL) == []
    monkeypatch.setattr(reports.stats.contrasts, "widening", lambda *a: 1.0)
    assert any(
        "val_loss.interval is printed as" in s
        for s in found(tmp_path / "wrong", blocked=False, **SMALL)
    )


def test_a_sequence_that_is_too_narrow_is_found(tmp_path, monkeypatch):
    real = reports.stats.sequential.critical_t
    monkeypatch.setattr(reports.stats.sequential, "critical_t", lambda *a: 0.95 * real(*a))
    assert any("is not where the sequence ends" in s for s in found(tmp_path, **WATCHED))


@pytest.mark.slow
def test_estimates_that_drop_a_run_are_found(tmp_path, monkeypatch):
    real = reports.stats.contrasts.two_way

    def without_the_last(values, arm, block, contrasts=None):
        return real(values[:-1], arm[:-1], block[:-1], contrasts)

    monkeypatch.setattr(reports.stats.contrasts, "two_way", without_the_last)
    assert any("but backfitting gives" in s for s in found(tmp_path, **HOLES))


def test_verdict_words_that_do_not_follow_are_found(tmp_path, monkeypatch):
    monkeypatch.setitem(reports.stats.verdicts.WORDS, "val_loss", ("worse", "better"))
    assert any("does not follow from the interval" in s for s in found(tmp_path, **SMALL))


def test_backfitting_is_least_squares():
    rng = np.random.default_rng(3)
    cells = [
        (a, b) for a in range(4) for b in range(5) if (a, b) not in ((0, 1), (2, 3), (3, 0), (3, 4))
    ]
    y = rng.normal(size=len(cells))
    rows = [
        {"arm": str(a), "block": b, "status": "finished", "val_loss": float(v)}
        for (a, b), v in zip(cells, y, strict=True)
    ]
    x = np.array(
        [[a == i for i in range(1, 4)] + [b == j for j in range(5)] for a, b in cells], float
    )
    beta = np.linalg.lstsq(x, y, rcond=None)[0]
    table = Table.of("val_loss", "0", rows)
    assert [backfitted(table, str(i)) for i in (1, 2, 3)] == pytest.approx(list(beta[:3]), abs=1e-9)


@pytest.mark.parametrize("df", [3.0, 8.0, 40.0])
def test_the_tail_of_one_contrast_is_students(df):
    assert beyond(2.5, 1, df) == pytest.approx(2 * stats.t.sf(2.5, df), abs=2e-4)


def test_the_tail_of_several_is_dunnetts():
    # Dunnett (1964), two-sided 5 %: 4 treatments and a control, 20 df: 2.65
    assert beyond(2.65, 4, 20.0) == pytest.approx(0.05, abs=1e-3)
    assert beyond(2.65, 4, 1e6) < 0.05
