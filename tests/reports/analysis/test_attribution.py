"""Shapley shares: exact, uniform over the possible orders, with intervals that hold; the table beside add-one and the rest."""

from dataclasses import replace
from fractions import Fraction
from itertools import combinations, permutations
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from scipy import stats

from reports.analysis.attribution import attributions, contrasts_of
from reports.analysis.compare import compare_all
from reports.analysis.interactions import interplay
from reports.analysis.judges import contrast_of
from reports.analysis.set_contrasts import (
    Subset,
    added_contrasts,
    alone_contrasts,
    left_out_contrasts,
    rung_contrasts,
    shapley_contrasts,
)
from reports.figures.interactions import interaction_figure
from reports.inputs.load import load
from reports.inputs.memory import Memory
from reports.page.by_design import ByDesign
from reports.page.draw import draw_all
from reports.page.write import render
from reports.verify.page import read_page
from reports.verify.verify import check_data
from tests.report_arms import Arm
from tests.report_fixtures import write_experiment

NAMES = "abcde"
GRAPHS = st.sets(
    st.sampled_from([(x, y) for x in NAMES for y in NAMES if x > y]), max_size=5
)  # x requires y
EXAMPLES = settings(max_examples=40, deadline=None, derandomize=True)


def standing(requires: set[tuple[str, str]], n: int = 5) -> list[Subset]:
    """The sets of the first n changes in which every member has what it requires."""
    sets = [frozenset(s) for k in range(n + 1) for s in combinations(NAMES[:n], k)]
    return [s for s in sets if all(y in s for x, y in requires if x in s)]


@EXAMPLES
@given(GRAPHS, st.integers(0, 2**32))
def test_the_shares_sum_to_the_total_exactly(requires: set[tuple[str, str]], seed: int) -> None:
    sets = standing(requires)
    value = dict(
        zip(
            sets,
            map(int, np.random.default_rng(seed).integers(-(10**9), 10**9, len(sets))),
            strict=True,
        )
    )
    shares = {
        c: sum(w * value[s] for s, w in contrast.items())
        for c, contrast in shapley_contrasts(sets, NAMES).items()
    }
    assert sum(shares.values()) == value[frozenset(NAMES)] - value[frozenset()]


@settings(max_examples=25, deadline=None, derandomize=True)
@given(GRAPHS)
def test_every_possible_order_weighs_the_same(requires: set[tuple[str, str]]) -> None:
    orders = [o for o in permutations(NAMES) if all(o.index(y) < o.index(x) for x, y in requires)]
    expected: dict[str, dict[Subset, Fraction]] = {c: {} for c in NAMES}
    for order in orders:
        for i, c in enumerate(order):
            for place, sign in ((frozenset(order[: i + 1]), 1), (frozenset(order[:i]), -1)):
                expected[c][place] = expected[c].get(place, Fraction()) + Fraction(
                    sign, len(orders)
                )
    assert shapley_contrasts(standing(requires), NAMES) == expected


def test_what_needs_each_other_has_no_shares() -> None:
    assert shapley_contrasts([frozenset(), frozenset("ab")], "ab") == {}


def test_leaving_out_takes_what_needs_it_along_only_where_the_design_ran_that() -> None:
    sets = standing({("b", "a")}, 3)
    everything = frozenset("abc")
    assert left_out_contrasts(sets, "abc", with_what_needs_it=True)["a"] == {
        everything: 1,
        frozenset("c"): -1,
    }
    assert "a" not in left_out_contrasts(sets, "abc", with_what_needs_it=False)
    assert set(alone_contrasts(sets, "abc")) == {"a", "c"}


def test_a_table_has_the_columns_that_its_design_can_fill() -> None:
    arms = {frozenset(s): s or "base" for s in ("", "a", "b", "ab")}
    both, three = ["alone", "left_out"], ["alone", "shapley", "left_out"]
    for design, of_bundle, of_changes in (
        ("add-one", ["alone"], both),
        ("explicit", both, both),
        ("factorial", three, three),
        ("ladder", ["in_order"], both),
        ("leave-one-out", both, both),
        ("shapley", three, three),
    ):
        assert [*contrasts_of(design, arms, is_bundle=True)] == of_bundle, design
        assert [*contrasts_of(design, arms)] == of_changes, design
    one = {frozenset(s): s or "base" for s in ("", "a")}
    assert contrasts_of("factorial", one) == {}
    assert [*contrasts_of("factorial", one, is_bundle=True)] == three


def test_of_equally_large_sets_the_first_by_name_stands_for_what_is_left_out() -> None:
    changes = "hgfedcba"
    sets = {frozenset(changes), *(frozenset(change) for change in changes)}
    contrasts = left_out_contrasts(sets, changes, with_what_needs_it=True)
    for change in changes:
        first = min(set(changes) - {change})
        assert contrasts[change][frozenset(first)] == -1, change


@pytest.mark.slow
@pytest.mark.parametrize(("n", "sds"), [(3, (1, 1, 1, 1)), (5, (1, 1, 1, 1)), (10, (2, 1, 1, 0.5))])
def test_a_shares_interval_covers_the_truth(n: int, sds: tuple[float, ...]) -> None:
    """Two changes, four subsets, shared blocks; 2000 replications, se of the coverage 0.5 %."""
    rng, truth = np.random.default_rng(7), np.array([3.0, 2.8, 2.9, 2.75])
    c = np.array([-0.5, 0.5, -0.5, 0.5])
    hits = 0
    for _ in range(2000):
        e = contrast_of(truth + rng.normal(0, 2, (n, 1)) + rng.normal(0, sds, (n, 4)), c, 0.05)
        hits += e.low <= truth @ c <= e.high
    assert hits / 2000 >= 0.93


@pytest.mark.parametrize("noisy", [(1, 1, 1, 1), (1, 4, 1, 1)])
def test_a_share_of_many_blocks_has_the_larger_of_two_errors(noisy: tuple[float, ...]) -> None:
    """One variance of all four arms, 18 df, or one arm's own beside the others': by hand, from the residuals."""
    y, c = np.random.default_rng(8).normal(size=(7, 4)) * noisy, np.array([-0.5, 0.5, -0.5, 0.5])
    left = y - y.mean(0) - y.mean(1, keepdims=True) + y.mean()
    squares = (left**2).sum(0)
    one = stats.t.isf(0.01, 18) * np.sqrt(squares.sum() / 18 / 7)
    # expected squares of one arm and of the three others: 6/16 of (9 v + 3 w), (3 v + 33 w)
    expected = 6 / 16 * np.array([[9, 3], [3, 33]])
    variances = [
        np.array([0.25, 0.75]) @ np.linalg.solve(expected, [arm, squares.sum() - arm])
        for arm in squares
    ]
    # df where one arm has twice the sd: residuals' squares with mean 5.25 and variance 2 x 12.5625
    df = 18 * 5.25**2 / 12.5625 / 3
    own = stats.t.isf(0.01, df) * np.sqrt(max(variances) / 7)
    found = contrast_of(y, c, 0.02)
    middle, half = (y @ c).mean(), max(one, own)
    assert (found.low, found.high) == pytest.approx((middle - half, middle + half))


def test_two_arms_of_many_blocks_are_scipys_one_sample_t() -> None:
    y, c = np.random.default_rng(8).normal(size=(7, 2)), np.array([-1.0, 1.0])
    ends = stats.ttest_1samp(y @ c, 0).confidence_interval(0.98)
    found = contrast_of(y, c, 0.02)
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high))


def test_before_the_planned_seeds_shares_are_sequences(tmp_path: Path) -> None:
    """Unbounded at four blocks, wider than the planned interval at eight; steps and seconds to target have none."""
    made = arms({"a": -0.04, "b": -0.02})
    tables = {}
    for name, n, missing in (("few", 5, 4), ("most", 9, 8), ("all", 8, None)):
        outcome = {} if missing is None else {("a", missing): "pending"}
        how = dict(
            arms=made,
            budgets=(200, 400),
            design="shapley",
            sd=1e-3,
            target=1.57,
            outcome=outcome,
            n_seeds=n,
        )
        write_experiment(tmp_path / name, **how)
        tables[name] = {
            t.metric: t.shares["a"]["shapley"] for t in attributions(load("split", tmp_path / name))
        }
    assert tables["few"]["val_loss"].low is None and tables["most"]["seconds"].low is None
    most, planned = tables["most"]["val_loss"], tables["all"]["val_loss"]
    assert most.low is not None and most.high - most.low > 1.2 * (planned.high - planned.low)


def arms(effects: dict[str, float], interaction: float = 0.0) -> list[Arm]:
    """A full factorial of two changes as the report's fixtures write it."""
    sets = [(), ("a",), ("b",), ("a", "b")]
    return [
        Arm(
            name=" + ".join(s) or "baseline",
            changes=s,
            fields=(("plugin.arm", " + ".join(s)),),
            loss_effect=sum(effects[c] for c in s) + interaction * (len(s) == 2),
            step_factor=1.0,
        )
        for s in sets
    ]


@pytest.mark.parametrize("n_seeds", [1, 4, 8])
def test_three_answers_stand_side_by_side_in_loss_steps_and_seconds(
    tmp_path: Path, n_seeds: int
) -> None:
    made = arms({"a": -0.04, "b": -0.02}, interaction=0.02)
    write_experiment(
        tmp_path,
        arms=made,
        n_seeds=n_seeds,
        budgets=(200, 400),
        design="shapley",
        sd=1e-4,
        target=1.57,
    )
    tables = {t.metric: t for t in attributions(load("split", tmp_path))}
    loss = tables["val_loss"]
    assert loss.total is not None
    assert loss.total.value == pytest.approx(-0.04, abs=2e-3)
    for change, (alone, shapley, left_out) in {
        "a": (-0.04, -0.03, -0.02),
        "b": (-0.02, -0.01, 0.0),
    }.items():
        found = loss.shares[change]
        assert [found[k].value for k in ("alone", "shapley", "left_out")] == pytest.approx(
            [alone, shapley, left_out], abs=2e-3
        )
        assert all((s.low is None) == (n_seeds == 1) for s in found.values())
        assert all(s.low is None or s.low < s.value < (s.high or 0) + 1 for s in found.values())
    for table in tables.values():
        assert sum(s["shapley"].value for s in table.shares.values()) == pytest.approx(
            table.total.value if table.total else 0
        )
    if n_seeds > 1:
        assert set(tables) == {"val_loss", "steps", "seconds"}
        assert tables["steps"].shares["a"]["shapley"].value < 0


def test_every_forged_number_of_the_shares_is_found_by_the_second_path(tmp_path: Path) -> None:
    made = arms({"a": -0.04, "b": -0.02})
    write_experiment(tmp_path, arms=made, n_seeds=3, design="shapley", sd=1e-3, target=None)
    page = read_page(render([load("split", tmp_path)]))
    assert check_data(page, None) == []
    shares = [key for key in page.carried if key[1] == "attribution-val_loss"]
    # alone, shapley and left out of each change, and all together; an interval of more than two
    # arms has no formula there, and is left to the page drawn again
    recomputed = [3, 1, 3, 3, 1, 3, 3]
    lies = {}
    for key, n in zip(shares, recomputed, strict=True):
        numbers = [float(number) for number in page.carried[key].split(",")]
        assert len(numbers) == 3
        moved = [number + 0.001 * (place < n) for place, number in enumerate(numbers)]
        lies[key] = ",".join(map(str, moved))
    found = check_data(replace(page, carried=page.carried | lies), None)
    assert sum(" is printed, the rows give " in line for line in found) == sum(recomputed)


def test_a_design_with_one_answer_has_no_table(tmp_path: Path) -> None:
    write_experiment(tmp_path, arms=arms({"a": -0.04, "b": -0.02})[:3], design="add-one")
    assert attributions(load("split", tmp_path)) == []


@pytest.mark.parametrize("design", ["shapley", "leave-one-out"])
def test_a_bundle_of_one_part_has_a_table_that_the_second_path_makes_again(
    design: str, tmp_path: Path
) -> None:
    write_experiment(
        tmp_path, arms=arms({"a": -0.04, "b": 0.0})[:2], n_seeds=3, design=design, target=None
    )
    made = load("split", tmp_path)
    assert attributions(made) == []
    bundle = replace(made, plan=replace(made.plan, foreign=True, remarks=("taken apart",)))
    assert [list(table.shares) for table in attributions(bundle)][:1] == [["a"]]
    text = render([bundle])
    assert '<h2 class="section" id="inseparable-0">What could not be separated' in text
    assert '<th scope="row">taken apart</th>' in text
    page = read_page(text)
    assert any(key[1] == "attribution-val_loss" for key in page.carried)
    assert check_data(page, None) == []


def test_with_a_diverged_run_there_is_no_share_of_the_loss(tmp_path: Path) -> None:
    write_experiment(
        tmp_path,
        arms=arms({"a": -0.04, "b": -0.02}),
        design="shapley",
        outcome={("a", 1): "diverged"},
    )
    assert "val_loss" not in {t.metric for t in attributions(load("split", tmp_path))}


def test_shares_hold_for_the_family_that_the_memory_knows(tmp_path: Path) -> None:
    """Of 30 changes asked about this baseline three are these: a tenth of the error rate."""
    made = arms({"a": -0.04, "b": -0.02})
    write_experiment(tmp_path, arms=made, n_seeds=4, design="shapley", sd=1e-3, target=None)
    alone = load("split", tmp_path)
    remembered = replace(alone, memory=Memory(family=30))
    tenth = {t.metric: t for t in attributions(alone, level=0.995)}
    for table in attributions(remembered):
        assert table.shares == tenth[table.metric].shares
        assert table.total == tenth[table.metric].total
    outcome = compare_all(alone)
    figures = draw_all(remembered, outcome, ByDesign.of(remembered, outcome))
    (found,) = (f for f in figures if f.title == "Do the changes add up?")
    at_a_tenth = interplay(alone.runs, alone.plan, level=0.995)
    assert found.rows == interaction_figure(at_a_tenth, alone.plan.corpus.unit).rows


def sets_of(*words: str) -> list[Subset]:
    return [frozenset(word) for word in words]


def test_what_a_change_adds_is_against_what_it_needs_where_that_was_run() -> None:
    found = added_contrasts(sets_of("", "a", "ab", "c", "acd"), "abcd")
    ends = {change: {"".join(sorted(s)) for s in contrast} for change, contrast in found.items()}
    assert ends == {"a": {"a", ""}, "b": {"ab", "a"}, "c": {"c", ""}, "d": {"acd", ""}}
    for contrast in found.values():
        assert sum(contrast.values()) == 0


def test_a_rung_is_against_the_one_before_it_and_all_of_them_sum_to_the_whole() -> None:
    found = rung_contrasts(sets_of("", "a", "abc", "abcd"))
    assert [*found] == ["a", "b and c", "d"]
    whole: dict[Subset, Fraction] = {}
    for contrast in found.values():
        for s, weight in contrast.items():
            whole[s] = whole.get(s, Fraction()) + weight
    assert {s: w for s, w in whole.items() if w} == {frozenset("abcd"): 1, frozenset(): -1}
