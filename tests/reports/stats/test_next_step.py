"""What a page says of an interval, and what it says to do next, against sums by hand."""

import math

import pytest
from scipy import stats

from reports.stats.planning import seeds_needed
from reports.stats.sequential import critical_t
from reports.stats.verdicts import Evidence, Family, Next, verdict

BOUND = "take the interval as the answer (to find the margin takes over 100 seeds)"
ONE_ARM = {"metric": "val_loss", "unit": " nats", "n_arms": 1}


def evidence(delta: float, *, se: float = 1.0, half: float = 3.0, n: int = 5) -> Evidence:
    return Evidence(
        delta=delta,
        se=se,
        df=n - 1,
        low=delta - half,
        high=delta + half,
        p_attainable=0.0,
        n=n,
        enough=2,
    )


@pytest.mark.parametrize("n_arms", [1, 4])
def test_a_finished_page_never_asks_for_more_of_its_own_seeds(n_arms):
    """They would be judged by sequences; it sends to a new experiment that finds what the effect exceeds in 19 of 20 cases."""
    family = Family(**ONE_ARM | {"n_arms": n_arms}, follows=Next.FRESH, margin=None)
    found = verdict(evidence(2.9), family)
    least = 2.9 - stats.norm.ppf(0.95) * 1.0
    sd = math.sqrt(5 / 2) * math.sqrt(
        4 / stats.chi2.ppf(0.2, 4)
    )  # of one run, its 80 % upper bound
    n = seeds_needed(least, sd=sd, n_arms=n_arms)
    runs = n * (n_arms + 1)
    assert found.text == "undecided: −0.1 to +5.9 nats" and found.more_seeds is None
    assert (
        found.next_action == f"ablate confirm --detect 1.3: {n} fresh seeds ({runs} runs)"
        and found.next_runs == runs
    )


def test_the_margin_is_what_a_new_experiment_must_find():
    found = verdict(evidence(0.1), Family(**ONE_ARM, follows=Next.FRESH, margin=2.0))
    assert found.kind == "undecided" and "--detect 2:" in found.next_action
    small = verdict(evidence(0.1, half=1.5), Family(**ONE_ARM, follows=Next.FRESH, margin=2.0))
    assert (small.text, small.kind) == ("no difference larger than 2 nats", "equal")


def test_a_difference_that_may_be_nothing_asks_for_no_seeds():
    found = verdict(evidence(0.5), Family(**ONE_ARM, follows=Next.FRESH, margin=None))
    assert found.next_runs is None and found.fresh_seeds is None
    assert (
        found.next_action
        == "take the interval as the answer, or look for half its reach: ablate confirm --detect 1.8"
    )


def test_half_of_a_bound_is_offered_only_where_a_hundred_seeds_find_it():
    far = Family(**ONE_ARM, follows=Next.FRESH, margin=0.01)
    found = verdict(evidence(0.0, half=3.0), far)
    assert found.next_action.endswith(": ablate confirm --detect 1.5") and not found.fresh_seeds
    for family, half in ((far, 0.1), (Family(**ONE_ARM, margin=0.01, has_command=False), 3.0)):
        assert verdict(evidence(0.0, half=half), family).next_action == BOUND


def test_an_unfinished_plan_is_to_be_finished():
    found = verdict(evidence(2.0), Family(**ONE_ARM, follows=Next.PLANNED, margin=None))
    assert (found.text, found.next_action) == (
        "undecided: −1.0 to +5.0 nats",
        "finish the planned runs",
    )


@pytest.mark.parametrize("n_arms", [1, 4])
def test_a_sequence_asks_for_as_many_blocks_as_its_own_critical_value_needs(n_arms):
    family = Family(**ONE_ARM | {"n_arms": n_arms}, follows=Next.SEQUENCE, margin=None)
    found = verdict(evidence(2.8, n=8), family)
    sd = math.sqrt(8) * math.sqrt(7 / stats.chi2.ppf(0.2, 7))

    def lack(k: int) -> float:
        mean_moves = stats.norm.ppf(0.8) * sd * math.sqrt(k / (8 * (8 + k)))
        return float(critical_t(8 + k, 0.05 / n_arms)) * sd / math.sqrt(8 + k) + mean_moves - 2.8

    k = found.more_seeds
    assert lack(k) <= 0 < lack(k - 1)
    assert (
        found.text == f"undecided: −0.2 to +5.8 nats, {k} more seeds needed"
        and found.next_runs == (n_arms + 1) * k
    )


@pytest.mark.parametrize("follows", [Next.FRESH, Next.SEQUENCE])
def test_a_decided_difference_asks_for_nothing(follows):
    found = verdict(evidence(-4.0), Family(**ONE_ARM, follows=follows, margin=None))
    assert (found.text, found.kind, found.next_action) == ("better", "helps", "")


def test_the_runs_of_several_budgets_are_told_as_a_product():
    family = Family(**ONE_ARM | {"n_arms": 4}, follows=Next.FRESH, margin=2.0, n_budgets=2)
    found = verdict(evidence(0.1), family)
    n = found.fresh_seeds
    assert found.next_runs == n * 5 * 2
    assert found.next_action.endswith(f"({n * 10} runs = {n} seeds x 5 arms x 2 budgets)")
