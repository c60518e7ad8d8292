"""The simulation study: its batch code is the production code, and every row meets its bar."""

import inspect
import math
import re
from dataclasses import replace
from functools import partial
from types import FunctionType

import numpy as np
import pandas as pd
import pytest

from harness.run.plan import Plan
from reports.analysis.arm_columns import ARM_COLUMNS
from reports.analysis.judges import contrast_of
from reports.analysis.published import judge
from reports.analysis.worth import Worth, worth_judges
from reports.page.published import EVIDENCE_HEADINGS
from reports.stats.contrasts import Sample, analyse
from reports.stats.intervals import Estimate
from reports.stats.moderated import Prior
from reports.stats.simultaneous import max_t_quantile
from tests.proof import surface
from tests.proof.__main__ import DOCS, table, written_rows
from tests.proof.batch import contrast_half, declared_analysis, unblocked_interval
from tests.proof.decisions import rules, tables, until_decided
from tests.proof.missing import PATTERNS, errors_of, missing_analysis, with_holes
from tests.proof.moderated import public_groups
from tests.proof.optimum import CURVATURES, FLAT, KIND
from tests.proof.patterns import STEPS
from tests.proof.repetitions import FALSE, verdicts
from tests.proof.row import Row, falls
from tests.proof.shares import FAMILIES
from tests.proof.sizes import needed, sizes_table
from tests.proof.study import PARTS, published_deltas, ratios
from tests.proof.winners import FRESH
from tests.proof.worths import KINDS as WORTHS
from tests.proof.worths import LOST, NOISES, converted, draw


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


@pytest.mark.parametrize(("n", "m"), [(3, 1), (3, 3), (7, 2)])
def test_the_batch_with_a_prior_is_the_production_analysis(n, m):
    y, prior = np.random.default_rng(n).normal(size=(5, n, m + 1)), Prior(sd=0.8, df=3)
    batch = declared_analysis(y, prior=prior)
    for r in range(5):
        samples = [Sample(values=y[r, :, j], blocks=tuple(range(n))) for j in range(m + 1)]
        arms = {f"a{j}": samples[j] for j in range(1, m + 1)}
        for j, e in enumerate(analyse(arms, samples[0], prior=prior).values()):
            assert (e.low, e.high) == pytest.approx((batch.low[r, j], batch.high[r, j]))


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize(("n", "m"), [(3, 3), (4, 2)])
def test_the_batch_of_missing_runs_is_the_production_analysis(name, n, m):
    has = with_holes(n, m, PATTERNS[name])
    y = np.random.default_rng(n).normal(size=(4, n, m + 1)) * [2, *(1 for _ in range(m))]
    batch = missing_analysis(y, has)
    for r in range(4):
        samples = [
            Sample(values=y[r, has[:, j], j], blocks=tuple(np.flatnonzero(has[:, j]).tolist()))
            for j in range(m + 1)
        ]
        effects = analyse({f"a{j}": samples[j] for j in range(1, m + 1)}, samples[0])
        for j, e in enumerate(effects.values()):
            assert (e.delta, e.low, e.high) == pytest.approx(
                (batch.delta[r, j], batch.low[r, j], batch.high[r, j])
            )


@pytest.mark.parametrize(("n", "wider"), [(3, 1.8), (5, 1.05)])
def test_df_of_ones_own_beat_the_least_of_all_arms(n, wider):
    """Of the arms that have all their runs, beside one that lacks one: median widths, and errors of the family."""
    has = with_holes(n, 3, PATTERNS["a run missing"])
    y = np.random.default_rng(1).normal(size=(4000, n, 4))
    _, corr, errors = errors_of(y, has)
    least = np.maximum(*(max_t_quantile(0.95, corr, float(e.df.min())) * e.se for e in errors))
    own, whole = missing_analysis(y, has), missing_analysis(y, np.ones_like(has))
    half, of_whole = (np.median((b.high - b.low)[:, 0]) / 2 for b in (own, whole))
    assert np.median(least[:, 0]) > wider * half and half < 1.08 * of_whole
    assert ((own.low > 0) | (own.high < 0)).any(1).mean() < 0.05


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


@pytest.mark.parametrize("noise", NOISES)
def test_the_batch_of_losses_in_steps_and_seconds_is_the_production_analysis(noise):
    names, sets = ["base", "a", "b", "both", "long", "all"], ("", "a", "b", "ab", "n", "abn")
    y, time = draw(np.random.default_rng(1), 3, 5, NOISES[noise])
    plan = Plan(name="worth", foreign=True, baseline="base")
    arms = {frozenset(s): name for s, name in zip(sets, names, strict=True)}
    for r in range(3):
        places = [(arm, block) for arm in range(6) for block in range(5)]
        runs = pd.DataFrame(
            {
                "arm": [names[arm] for arm, _ in places],
                "block": [block for _, block in places],
                "status": "finished",
                "budget": [1000 if arm < 4 else 800 for arm, _ in places],
                "val_loss": [y[r, block, arm] for arm, block in places],
                "train_time_s": [time[r, block, min(arm, 3)] for arm, block in places],
            }
        )
        worth = replace(Worth.of(runs, plan, arms), steps=1.0)
        for in_seconds, judged in enumerate(worth_judges(worth, runs, names[:4], anytime=False)):
            for c in LOST:
                low, high = (
                    end[r] for end in converted(y, time, c, 0.02, in_seconds=bool(in_seconds))
                )
                share = judged.judge(dict(zip(names, c, strict=False)), 0.02)
                if share.low is None:
                    assert math.isinf(low)
                else:
                    assert (share.low, share.high) == pytest.approx((low, high))


@pytest.mark.parametrize(("n", "n0"), [(3, 3), (5, 11)])
def test_the_batch_of_unblocked_runs_is_the_production_analysis(n, n0):
    rng = np.random.default_rng(n)
    a, b = rng.normal(0, 3, (5, n)), rng.normal(size=(5, n0))
    delta, half = unblocked_interval(a, b)
    for r in range(5):
        arm, base = (Sample(values=x, blocks=(None,) * len(x)) for x in (a[r], b[r]))
        e = analyse({"a": arm}, base)["a"]
        assert (e.low, e.high) == pytest.approx((delta[r] - half[r], delta[r] + half[r]), rel=1e-5)


def test_the_batch_of_repetitions_is_the_production_verdict():
    rng = np.random.default_rng(4)
    published, ours = rng.uniform(7.5, 15, 60), rng.uniform(2, 25, 60)
    se = rng.uniform(0.1, 2, 60)
    reproduced, apart = verdicts(ours, se, published, 5)
    assert 5 < reproduced.sum() < 40 and 5 < apart.sum() < 50
    for i in range(60):
        word, _ = judge(
            Estimate(value=-ours[i], se=se[i], df=5), Estimate(value=-published[i], se=1.0)
        )
        assert (word == "reproduced", word in ("smaller", "larger")) == (reproduced[i], apart[i])


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
    "target.tokens_interval": ("steps to target N*",),  # times the tokens of a step, which are no estimate
    "published.ours_interval": ("time to target, ratio",),
    "published.interval": ("published delta", "'reproduced', half again the published effect"),
    "evidence.loss_interval": ("published delta",),
    "evidence.time_interval": ("published delta",),
}  # fmt: skip
LOWEST = tuple(f"{KIND}, {k} points, {words}" for k in (3, 5) for words in CURVATURES)
DRAWN = (
    *(f"{surface.KIND}, {p} points, {words}" for p in (8, 16) for words in surface.CURVATURES),
    *(f"{surface.NONE}, {p} points" for p in (8, 16)), f"{surface.FIT}, 8 points",
)  # fmt: skip
ELSEWHERE = (  # tables of contributions, interactions and axes, outcomes, facts
    *FAMILIES, *(f"{kind}, anytime-valid" for kind in FAMILIES), "Shapley share of steps", "Shapley share of seconds", *WORTHS,
    "difference, 4 arms, noise far from equal", "difference, 15 arms, noise far from equal",
    "difference, 2 arms at 3 points of an axis", "noise floor", *LOWEST,
    f"{FLAT}, 3 points", f"{FLAT}, 5 points", *DRAWN,
    "two phases 'verified' at the margin", "difference, simultaneous over 3 arms",
    "difference, simultaneous over 15 arms", "difference, 1 arm, moderated variance",
    *FALSE, FRESH, "'reproduced', the published effect, of 12 of its standard errors",
)  # fmt: skip
METHODS = {  # every analysis that gives an interval -> a kind that proves it
    "two-way model, max-t": "difference, simultaneous over 4 arms",
    "two-way model, Bonferroni": "rung against the one before, of 4",
    "two-way model with moderated variance, max-t": "difference, 4 arms, moderated variance",
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


def test_what_right_decisions_take_is_as_the_docs_say():
    candidates, differences = [*rules()], [*until_decided()]
    assert tables(candidates, differences) in DOCS.read_text(encoding="utf-8")
    for row in candidates:
        if "--stream" in row.rule:
            assert row.false <= 0.05
    for row in differences:
        assert row.wrong <= 0.05
        if row.difference >= 1:
            assert row.better >= 0.8


def test_power_rises_with_every_block():
    rows = written_rows()
    assert falls(rows) == []
    assert sum(row.kind == "power, 15 arms, effect 2.5 sd" for row in rows) == len(STEPS)
    a, b = (
        Row(kind="power, x", n=n, noise="equal", replications=9, power=p)
        for n, p in (("5", 0.65), ("6", 0.38))
    )
    assert falls([a, b]) == ["power, x: 0.650 at 5, 0.380 at 6"]


def test_the_seeds_for_the_same_power_are_those_of_the_rows():
    assert sizes_table(written_rows()) in DOCS.read_text(encoding="utf-8")
    assert needed({5: 0.81, 6: 0.5, 7: 0.7996, 8: 0.9}) == "7" and needed({5: 0.5}) == ""


def test_groups_of_public_runs_and_their_prior_are_as_the_docs_say():
    """Errors, and half widths in a group's own sds, as its runs are dealt to arm and baseline."""
    rng = np.random.default_rng(5)
    for n, n_groups, wider, own in ((3, 114, 3.2, 2.0), (5, 72, 1.7, 1.4)):
        large = [(losses, prior) for losses, prior in public_groups() if len(losses) >= 2 * n]
        assert len(large) == n_groups
        wrong, halves = [], []
        for losses, prior in large:
            dealt = rng.permuted(np.tile(losses, (200, 1)), axis=1)[:, : 2 * n]
            y = dealt.reshape(-1, 2, n).swapaxes(1, 2)
            given, plain = declared_analysis(y, prior=prior), declared_analysis(y)
            wrong.append(((given.low > 0) | (given.high < 0)).mean())
            sd = 2 * losses.std(ddof=1)
            halves.append([(b.high - b.low).mean() / sd for b in (plain, given)])
        assert 0.03 < np.mean(wrong) < 0.052
        assert np.mean(halves, axis=0) == pytest.approx([wider, own], abs=0.06)


def test_what_is_beyond_a_condition_has_a_bar_too():
    rows = [row for row in written_rows() if "beyond the condition" in row.noise]
    assert len(rows) > 20 and all(row.misses() == [] for row in rows)
    of_differences = [row for row in rows if row.kind.startswith("difference")]
    worse = replace(of_differences[-1], family_error=0.101)
    assert worse.misses() == ["family error 0.101"]


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


# parts that fit every experiment by itself: the docs' table has 10,000 of them, the bars are the same
FITTED = (
    *("times", "time_shares", "diverged", "worths"),
    *("drawn_surfaces", "flat_surfaces", "lacks_of_fit"),
)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_every_printed_interval_meets_its_bar(part):
    rows = part(2_500 if part.__name__ in FITTED else 10_000)
    missed = [f"{row.kind}, n {row.n}, {row.noise}: {why}" for row in rows for why in row.misses()]
    assert missed == []
