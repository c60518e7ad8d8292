"""What `ablate ab` prints of a verdict, and what a call of it has spent, in words."""

from dataclasses import replace

import pytest

from harness.cli.ab_table import AbVerdict, HintRow, RuleRow, print_verdict
from harness.cli.ab_until import Spent, words_of

ARMS = ({"arm": "old", "runs": 3, "val_loss": 3.5}, {"arm": "new", "runs": 3, "val_loss": 3.25})
VERDICT = AbVerdict(
    experiment="x",
    arms=ARMS,
    comparisons=(),
    judged=("val_loss",),
    rules=(
        RuleRow(arm="new", rule="track1", n=3, mean=3.25, p=0.001, significant=True),
        RuleRow(arm="new", rule="track3", why_not="rule track3 needs 8 runs"),
    ),
    looks=1,
    notes=("a note",),
    hints=(
        HintRow(arm="new", line=7, text="the clock stops later", doubt=True),
        HintRow(arm="new", line=9, text="it compiles", doubt=False),
    ),
    report="page.html",
)


def test_a_rule_that_cannot_be_applied_says_why_and_a_hint_is_told_where_it_is_a_doubt(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_verdict(VERDICT)
    lines = capsys.readouterr().out.splitlines()
    assert lines.count("rule track3 needs 8 runs") == 1 and "None" not in lines
    assert "new minus old:" in lines and "a note" in lines
    assert "1 look at the results; times are the scripts' own (self-reported)" in lines
    assert "new:7: the clock stops later" in lines
    assert not any("it compiles" in line for line in lines)
    assert lines[-1] == "report: page.html"


def test_what_there_is_not_is_not_spoken_of(capsys: pytest.CaptureFixture[str]) -> None:
    print_verdict(replace(VERDICT, rules=(), hints=(), report=None, looks=2, notes=()))
    out = capsys.readouterr().out
    assert "rules" not in out and "report:" not in out
    assert out.splitlines()[-1].startswith("2 looks at the results")


@pytest.mark.parametrize(
    ("spent", "words"),
    [
        (Spent(runs=1, wall_hours=None, hours=None, price=None), "1 run"),
        (Spent(runs=8, wall_hours=0.4, hours=3.2, price=8.0), "8 runs, 0.40 h, 3.20 hours of devices, price 8.00"),
        (Spent(runs=8, wall_hours=0.4, hours=0.4, price=None), "8 runs, 0.40 h"),
        (Spent(runs=2, wall_hours=None, hours=1.5, price=None), "2 runs, 1.50 hours of devices"),
    ],
)  # fmt: skip
def test_what_was_spent_is_told_as_far_as_it_is_known(spent: Spent, words: str) -> None:
    assert words_of(spent) == words
