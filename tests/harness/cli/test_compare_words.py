"""What `ablate compare` says beside its table: doubts with their arms, hours of a run, words that fail a script."""

from types import SimpleNamespace
from typing import Any

import pytest

from harness.cli.compare import check_format, check_word, doubts, hours_per_run, is_said
from harness.errors import UserError
from reports.analysis.cautions import Caution

ONE, TWO, THREE = Caution.ONE_NODE, Caution.STALE, Caution.UNFINISHED


def comparison(arm: str, *warnings: Caution, metric: str = "val_loss", verdict: str = "") -> Any:
    return SimpleNamespace(arm=arm, warnings=warnings, metric=metric, verdict=verdict)


def test_a_doubt_names_its_arms_once_unless_it_is_the_whole_experiments() -> None:
    outcome: Any = SimpleNamespace(
        warnings=(TWO,),
        times={"base": SimpleNamespace(warnings=(THREE,)), "a": SimpleNamespace(warnings=())},
        comparisons={
            0: comparison("a", ONE, TWO),
            1: comparison("a", ONE, metric="step_ms"),
            2: comparison("b", ONE, THREE),
        },
    )
    assert doubts(outcome) == [TWO.text, f"base, b: {THREE.text}", f"a, b: {ONE.text}"]


def test_hours_of_a_run_are_the_mean_of_finished_ones_that_know_them() -> None:
    def hours(*runs: tuple[str, Any]) -> float | None:
        results = {i: SimpleNamespace(status=s, wall=wall) for i, (s, wall) in enumerate(runs)}
        experiment: Any = SimpleNamespace(results=results)
        return hours_per_run(experiment)

    one, two = ("finished", {"total_s": 3600}), ("finished", {"total_s": 10800.0})
    assert hours(one, two) == 2.0
    assert hours(one, ("diverged", {"total_s": 9}), ("finished", None), ("finished", {})) == 1.0
    assert hours(("finished", {"total_s": 0})) is hours() is None


@pytest.mark.parametrize(
    ("word", "primary", "said"),
    [
        ("worse", "val_loss", False),
        ("better", "val_loss", True),
        ("undecided", "val_loss", False),  # a time is: the primary could say it, and does not
        ("undecided", "step_ms", True),
        ("slower", "val_loss", True),  # no loss can be
        ("faster", "val_loss", False),
        ("slow", "val_loss", False),  # no metric's word
        ("bett", "val_loss", True),
    ],
)
def test_a_word_is_looked_for_where_it_can_be_said(word: str, primary: str, said: bool) -> None:
    outcome: Any = SimpleNamespace(
        primary=primary,
        own={},
        comparisons={
            0: comparison("a", verdict="better"),
            1: comparison("a", metric="step_ms", verdict="undecided: at most 3 ms"),
            2: comparison("a", metric="train_time_s", verdict="slower"),
        },
    )
    assert is_said(word, outcome) == said


def test_words_and_formats_that_there_are_not_are_refused_with_those_that_there_are() -> None:
    for word in (None, "slower", "slow", "no difference", "not judged"):
        check_word(word)
    with pytest.raises(UserError, match="--fail-on slwer: no verdict begins so; there is: better"):
        check_word("slwer")
    for written, json in ((None, True), ("latex", False), ("csv", False)):
        check_format(written, json=json)
    with pytest.raises(UserError, match="--json and --format are different outputs"):
        check_format("latex", json=True)
    with pytest.raises(UserError, match=r"--format latx: there is .*did you mean 'latex'"):
        check_format("latx", json=False)
