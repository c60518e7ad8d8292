"""The simulation study: its batch code is the production code, and every row meets its bar."""

import inspect
import re
from functools import partial
from types import FunctionType

import numpy as np
import pytest

from reports.analysis.arm_columns import ARM_COLUMNS
from reports.analysis.attribution import contrast_of
from reports.page.published import EVIDENCE_HEADINGS
from reports.stats.contrasts import Sample, analyse
from tests.proof.__main__ import DOCS, table, written_rows
from tests.proof.batch import contrast_half, declared_analysis, unblocked_interval
from tests.proof.row import Row, falls
from tests.proof.shares import FAMILIES
from tests.proof.study import PARTS, published_deltas, ratios


@pytest.mark.parametrize("n", [2, 4, 6, 9])
@pytest.mark.parametrize("noisy", [frozenset(), frozenset({1}), frozenset({0, 1, 2})])
def test_the_batch_is_the_production_analysis(n, noisy):
    rng = np.random.default_rng(n)
    y = rng.normal(size=(8, n, 4)) + np.array([0, 0, 1.5, 0.5])
    batch = declared_analysis(y, noisy=noisy)
    for r in range(8):
        samples = [Sample(values=y[r, :, j], blocks=tuple(range(n))) for j in range(4)]
        effects = analyse(
            {f"a{j}": samples[j + 1] for j in range(3)},
            samples[0],
            alters_noise=frozenset(f"a{j}" for j in noisy),
        )
        for j in range(3):
            e = effects[f"a{j}"]
            assert (e.delta, e.low, e.high) == pytest.approx(
                (batch.delta[r, j], batch.low[r, j], batch.high[r, j])
            )


@pytest.mark.parametrize("n", [2, 4, 7])
@pytest.mark.parametrize("kind", FAMILIES)
def test_the_batch_of_shares_is_the_production_analysis(n, kind):
    y = np.random.default_rng(n).normal(size=(3, n, 8)) * [1, 1, 2, 1, 1, 1, 1, 3]
    for c in FAMILIES[kind]:
        halves = contrast_half(y, c, 0.02)
        for r in range(3):
            share = contrast_of(y[r], c, 0.02)
            assert (share.low, share.high) == pytest.approx(
                (share.value - halves[r], share.value + halves[r])
            )


@pytest.mark.parametrize(("n", "n0"), [(3, 3), (5, 11)])
def test_the_batch_of_unblocked_runs_is_the_production_analysis(n, n0):
    rng = np.random.default_rng(n)
    a, b = rng.normal(0, 3, (5, n)), rng.normal(size=(5, n0))
    delta, half = unblocked_interval(a, b)
    for r in range(5):
        arm, base = (Sample(values=x, blocks=(None,) * len(x)) for x in (a[r], b[r]))
        e = analyse({"a": arm}, base)["a"]
        assert (e.low, e.high) == pytest.approx((delta[r] - half[r], delta[r] + half[r]), rel=1e-5)


def test_a_bar_is_held_by_the_number_as_printed():
    row = Row(
        kind="x",
        n="3",
        noise="equal",
        replications=1,
        coverage=0.9296,
        family_error=0.0506,
        power=0.7994,
        width=1.5,
    )
    assert row.misses() == ["family error 0.051", "power 0.799"]


INTERVALS = {  # where a page prints an interval -> the kinds of rows that prove it
    "{metric}.interval": (
        "difference, simultaneous over 4 arms", "difference, one arm", "difference, not blocked",
        "difference, not blocked, 4 arms", "ratio of step times", "time to target, ratio", "worst-rank trimmed mean",
        "anytime-valid, 4 arms, peeking to 50 blocks", "anytime-valid interval after an adaptive stop",
        "anytime-valid, not blocked, peeking to 50 runs", "time to target, ratio, anytime-valid",
    ),
    "target.interval": ("steps to target N*", "time to target", "time to target, anytime-valid"),
    "n.diverged": ("rate of diverged runs", "rate of diverged runs, anytime-valid"),
    "published.ours_interval": ("time to target, ratio",),
    "published.interval": ("published delta", "'reproduced' at the margin"),
    "evidence.loss_interval": ("published delta",),
    "evidence.time_interval": ("published delta",),
}  # fmt: skip
ELSEWHERE = (  # tables of contributions, interactions and axes, outcomes, facts
    *FAMILIES, *(f"{kind}, anytime-valid" for kind in FAMILIES), "Shapley share of steps", "Shapley share of seconds",
    "difference, 4 arms, noise far from equal", "difference, 15 arms, noise far from equal",
    "difference, 2 arms at 3 points of an axis", "noise floor",
    "two phases 'verified' at the margin", "difference, simultaneous over 3 arms",
)  # fmt: skip
METHODS = {  # every analysis that gives an interval -> a kind that proves it
    "two-way model, max-t": "difference, simultaneous over 4 arms",
    "two-way model, Bonferroni": "rung against the one before, of 4",
    "paired t, Holm": "difference, simultaneous over 4 arms",  # of arms declared to alter the noise
    "Welch t, Holm": "difference, not blocked",
    "permuted worst-rank trimmed mean, Holm": "worst-rank trimmed mean",
    "anytime-valid t-mixture": "anytime-valid, 4 arms, peeking to 50 blocks",
    "local slope, delta method, Bonferroni": "time to target, ratio",
    "anytime-valid t-mixture over the slope's sequence": "time to target, ratio, anytime-valid",
}


def test_every_row_of_the_docs_meets_its_bar():
    assert [
        (row.kind, row.n, row.noise, row.misses()) for row in written_rows() if row.misses()
    ] == []


def test_power_rises_with_every_block():
    rows = written_rows()
    assert falls(rows) == []
    assert sum(row.kind == "power, 15 arms, effect 2.5 sd" for row in rows) == 10
    a, b = (
        Row(kind="power, x", n=n, noise="equal", replications=9, power=p)
        for n, p in (("5", 0.65), ("6", 0.38))
    )
    assert falls([a, b]) == ["power, x: 0.650 at 5, 0.380 at 6"]


def test_the_tables_rows_are_those_of_the_study():
    """A cheap part run again gives the very rows that the docs have."""
    again = table([*ratios(10_000), *published_deltas(10_000)]).splitlines()[2:]
    assert set(again) <= set(table(written_rows()).splitlines())


def declared_intervals() -> set[str]:
    """Keys of the Columns that print an interval; those of every metric's comparison as one."""
    evidence = [column for heading in EVIDENCE_HEADINGS for column in heading.columns]
    keys = set()
    for column in (*ARM_COLUMNS, *evidence):
        function, key = column.value, column.key
        if isinstance(function, partial) and "column" in function.keywords:
            function = function.keywords["column"].value
            key = "{metric}.interval"
        if isinstance(function, FunctionType):
            returned = inspect.signature(function).return_annotation
            if "Between" in str(returned):
                keys.add(key)
    return keys


def test_every_printed_interval_has_its_rows():
    kinds = {row.kind for row in written_rows()}
    pages = "".join(
        p.read_text(encoding="utf-8")
        for p in sorted((DOCS.parents[1] / "reports" / "page").glob("*.py"))
    )
    written = set(re.findall(r'number\(\s*f?"([\w.{}]*interval)"', pages))
    assert written | declared_intervals() == set(INTERVALS)
    assert {k for named in INTERVALS.values() for k in named} | set(ELSEWHERE) | set(
        METHODS.values()
    ) <= kinds


def test_every_analysis_has_its_row():
    """The names of analyses in the source are those that the table above knows."""
    source = "".join(
        (DOCS.parents[1] / "reports" / f"{n}.py").read_text()
        for n in ("stats/contrasts", "analysis/compare", "analysis/time_estimates")
    )
    named = set(
        re.findall(
            r'"([^"]*(?:max-t|Holm|t-mixture|Bonferroni)[^"]*)"',
            re.sub(r'"""(?s:.*?)"""', "", source),
        )
    )
    named = {
        n.replace("{'paired' if n else 'Welch'}", word)
        for n in named
        for word in ("paired", "Welch")
    }
    assert named == set(METHODS)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_every_printed_interval_meets_its_bar(part):
    missed = [
        f"{row.kind}, n {row.n}, {row.noise}: {why}" for row in part(10_000) for why in row.misses()
    ]
    assert missed == []
