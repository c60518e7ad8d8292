"""What `ablate ab` prints of a verdict, and what a call of it has spent, in words."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import typer

from harness.cli import ab, ab_stream
from harness.cli.ab_name import NameTakenError
from harness.cli.ab_options import AbOptions, check_options
from harness.cli.ab_table import AbVerdict, HintRow, RuleRow, print_verdict
from harness.cli.ab_until import EXIT, Decision, Spent, print_decision, words_of
from harness.errors import UserError
from harness.run.stream import StreamPlace

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


PLACE = StreamPlace(stream="daily", number=3, parts=12, n_kept=1)
SPENT = Spent(runs=8, wall_hours=0.5, hours=0.5, price=None)
REST = Spent(runs=4, wall_hours=None, hours=None, price=None)


@pytest.mark.parametrize(
    ("outcome", "stream", "rest", "more"),
    [
        ("better", None, None, []),
        ("better", PLACE, None, ["candidate 3 of the stream daily: kept"]),
        ("worse", PLACE, None, ["candidate 3 of the stream daily: not kept"]),
        ("undecided", None, REST, ["decided in 8 of 10 cases after 4 runs more"]),
    ],
)
def test_a_decision_is_told_with_what_it_took_and_what_the_rest_would_take(
    outcome: str,
    stream: StreamPlace | None,
    rest: Spent | None,
    more: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    of = {"outcome": outcome, "stream": stream, "why": "a reason", "blocks": 1, "rest": rest}
    print_decision(Decision(**of, spent=SPENT))
    said = [f"{outcome}: a reason", "this call: 8 runs, 0.50 h; 1 block in all"]
    assert sorted(capsys.readouterr().out.splitlines()) == sorted([*said, *more])


def test_a_decision_is_printed_after_the_verdict_and_exits_as_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where another call took the experiment's name meanwhile, the next one is asked for."""
    begun: list[str] = []
    of = {"stream": None, "why": "a reason", "blocks": 7, "spent": SPENT, "rest": None}
    decision = Decision(outcome="worse", **of)

    def run() -> tuple[None, None, None, None]:
        begun.append("x")
        if len(begun) == 1:
            raise NameTakenError("x")
        return None, None, None, None

    until = SimpleNamespace(run=run, decision=lambda *_: decision)
    for name, made in {
        "ab_experiment": lambda options: None,
        "Until": SimpleNamespace(of=lambda options, e: until),
        "judge_scripts": lambda *_, **__: (VERDICT, None),
        "tell_failed": lambda *_, **__: 0,
    }.items():
        monkeypatch.setattr(ab, name, made)
    asked = AbOptions(old="old.py", new=["new.py"], until="decided", results=tmp_path)
    for json_too in (False, True):
        with pytest.raises(typer.Exit) as ended:
            ab.judge_until(replace(asked, json=json_too))
        assert ended.value.exit_code == EXIT["worse"] == 3
        told = capsys.readouterr().out
        if json_too:
            assert json.loads(told)["decision"]["outcome"] == "worse"
        else:
            lines = told.splitlines()
            assert lines.index("new minus old:") < lines.index("worse: a reason")
    assert len(begun) == 3


def test_another_candidate_that_takes_the_place_in_a_stream_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ab_stream, "candidate_of", lambda e: "claim")
    places: list[StreamPlace | None] = [PLACE, None]
    monkeypatch.setattr("harness.run.ledger.give_place", lambda *_: places.pop())
    e: Any = VERDICT
    with pytest.raises(
        UserError, match=r"^--stream daily: another candidate has taken the next pl"
    ):
        ab_stream.in_stream(e, tmp_path, "daily")
    monkeypatch.setattr(ab_stream, "replace", lambda e, stream: (e, stream))
    assert cast("Any", ab_stream.in_stream(e, tmp_path, "daily")) == (e, PLACE)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"until": "decided", "fail_on": "worse"}, "--fail-on: --until decided has exit codes of"),
        ({"pool": True, "fresh": True}, "--pool and --fresh: name one of them; --fresh borrows no"),
        ({"stream": "daily"}, "--stream: needs --until decided"),
        ({"pool": True, "executor": "ray"}, "--pool: borrows from runs on nodes like this one"),
        ({"budget": "3h"}, "--budget 3h: is for --until decided"),
        ({"python": "p", "container": "c"}, "--python and --container: name one of them"),
        ({"n": 0}, "-n 0: must be at least 1"),
        ({"gpus_per_run": -1}, "--gpus-per-run -1: must be at least 0"),
        ({"retries": -1}, "--retries -1: must be at least 0"),
        ({"max_parallel": 0}, "--max-parallel 0: must be at least 1"),
        ({"wall_limit": 0.0}, "--wall-limit 0"),
        ({"silence_limit": 0.0}, "--silence-limit 0"),
        ({"output_limit": 0.0}, "--output-limit 0"),
    ],
)
def test_options_of_ab_that_exclude_each_other_are_refused(
    given: dict[str, Any], said: str
) -> None:
    asked = AbOptions(old="old.py", new=["new.py"])
    check_options(replace(asked, n=1, gpus_per_run=0, retries=0, max_parallel=1, wall_limit=0.1))
    check_options(replace(asked, until="decided", stream="daily", pool=True))
    with pytest.raises(UserError) as refused:
        check_options(replace(asked, **given))
    assert str(refused.value).startswith(said)
