"""The table of successive records before and after: what held, what is another difference now, and why."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from reports.analysis.chain import ChainRow, ChainVerdict, Gain, Settling
from reports.inputs.history import ArmFigures, Earlier, Link, PrintedLosses
from reports.page.history import cells
from reports.page.history_pairs import pairs_text


def figures(name: str, *losses: float, printed: float | None = None) -> ArmFigures:
    n = len(losses)
    return ArmFigures(
        name=name,
        track="short",
        date="2024-10-10",
        steps=100,
        losses=np.array(losses),
        log_times=np.log(np.full(n, 60.0)),
        log_step_ms=np.log(np.full(n, 600.0)),
        printed=None
        if printed is None
        else PrintedLosses(n=3, n_in_logs=3, mean=printed, sd=0.001),
    )


OLD, NEW = figures("old", 3.28, 3.29, 3.30), figures("new", 3.27, 3.28)


def row(
    *,
    before: Earlier | None,
    time: Gain | None = None,
    delta: float | None = -5.0,
    beside: bool = False,
    **more: Any,
) -> ChainRow:
    link = Link(
        track="short",
        record="7",
        date="2024-10-10",
        published=60.0,
        published_delta=delta,
        arm="new",
        parent="old",
        beside=beside,
        earlier=before,
    )
    usual: dict[str, Any] = {"arm": NEW, "parent": OLD, "why": "few runs; the node is unknown"}
    return ChainRow(link=link, time_s=time, **{**usual, **more})


def before(
    seconds: float | None, low: float | None = None, high: float | None = None, word: str = "faster"
) -> Earlier:
    return Earlier(seconds=seconds, low=low, high=high, verdict=word)


def table(*rows: ChainRow) -> list[list[str]]:
    lines = pairs_text(rows, command="ablate atlas").splitlines()
    body = [line for line in lines if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in body]


def counts(*rows: ChainRow) -> list[str]:
    text = pairs_text(rows, command="ablate atlas")
    return [
        line for line in text.splitlines() if "pairs. Before" in line or "pages of both" in line
    ]


def test_only_pairs_that_were_compared_before_have_a_line() -> None:
    compared, other = row(before=before(-5.0)), row(before=None)
    assert len(table(compared, other, compared)) == 2
    text = pairs_text([compared], command="ablate atlas X")
    assert text.startswith("# The pairs") and "`ablate atlas X`" in text
    assert text.endswith("|\n") and "−" not in text


@pytest.mark.parametrize(
    ("earlier", "shown"),
    [
        (before(-5.04, -7.0, -3.0), "-5.0 [-7.0, -3.0] faster"),
        (before(2.0, word="slower"), "+2.0 slower"),
        (before(None, word="unknown"), "unknown"),
    ],
)
def test_what_was_said_before_stands_with_its_interval(earlier: Earlier, shown: str) -> None:
    [line] = table(row(before=earlier, time=Gain(value=-5.0)))
    assert line[2] == shown


NOW = Gain(value=-5.0, low=-9.0, high=-1.0)
NEW_INTERVAL = "an interval where there was none (half width 4.0 s, two unknown nodes in it)"
WIDER = "two unknown nodes: half width 4.0 s instead of 2.0"


@pytest.mark.parametrize(
    ("earlier", "time", "beside", "why"),
    [
        (before(-5.0, -7.0, -3.0), None, False, "few runs; the node is unknown"),
        (before(-5.0, -7.0, -3.0), Gain(value=-5.0), False, "few runs; the node is unknown"),
        (before(-5.0, -7.0, -3.0), NOW, False, f"{WIDER}; few runs"),
        (before(-5.5, -7.5, -3.5), NOW, False, f"{WIDER}; few runs"),
        (
            before(-5.6, -7.6, -3.6),
            NOW,
            False,
            f"other runs: arms of one program and machine; {WIDER}; few runs",
        ),
        (
            before(-4.0, -6.0, -2.0),
            NOW,
            True,
            f"other runs: the baseline beside it; {WIDER}; few runs",
        ),
        (before(-5.0), NOW, False, f"{NEW_INTERVAL}; few runs"),
        (
            before(None),
            NOW,
            False,
            f"other runs: arms of one program and machine; {NEW_INTERVAL}; few runs",
        ),
    ],
)
def test_why_a_verdict_changed_is_told_by_its_runs_and_its_interval(
    earlier: Earlier, time: Gain | None, beside: bool, why: str
) -> None:
    [line] = table(row(before=earlier, time=time, beside=beside))
    assert line[6] == why


def test_how_many_published_differences_lay_in_their_intervals_and_lie_there_now() -> None:
    inside, at_end, outside = (before(-5, *ends) for ends in ((-7, -3), (-5, -3), (-4, -3)))
    rows = [
        row(before=inside, time=NOW),
        row(before=at_end, time=Gain(value=-5, low=-5.0, high=-4.0)),
        row(before=outside, time=Gain(value=-3, low=-4.0, high=-2.0)),
        row(before=before(1.0, word="slower"), time=Gain(value=-3)),
        row(before=inside, time=NOW, delta=None),
    ]
    assert counts(*rows)[0] == (
        "5 pairs. Before: 4 faster, 1 slower; the published difference lies in 2 of 4 intervals of "
        "time. After: 2 of 4."
    )


def test_losses_that_both_pages_print_are_held_against_the_interval_of_the_loss() -> None:
    arm, parent = figures("new", 3.27, printed=3.278), figures("old", 3.28, printed=3.28)
    gain = Gain(value=-0.002, low=-0.003, high=-0.001)
    far = Gain(value=-0.01, low=-0.02, high=-0.005)
    rows = [
        row(before=before(-5.0), arm=arm, parent=parent, loss=gain),
        row(before=before(-5.0), arm=arm, parent=parent, loss=far),
        row(before=before(-5.0), arm=arm, parent=OLD, loss=gain),
        row(before=before(-5.0), arm=None, loss=None),
    ]
    assert counts(*rows)[1] == (
        "The pages of both records print their losses in 2 pairs: 1 of those differences lie in "
        "the interval of the loss."
    )
    assert [line[-1] for line in table(*rows)] == ["-0.0020", "-0.0020", "", ""]


def test_a_record_is_told_with_its_differences_in_seconds_and_in_percent() -> None:
    gains = {
        "loss": Gain(value=-0.00123, low=-0.00256, high=0.00014),
        "learning": Gain(value=-0.1, low=-0.2, high=0.05),
        "systems": Gain(value=0.02),
        "total": Gain(value=-0.08, low=None, high=0.1),
    }
    longer = replace(NEW, steps=90)
    told = cells(row(before=None, time=NOW, arm=longer, **gains, environment="torch 2.4 to 2.5"))
    assert told == {
        "anchor": "short-7",
        "subject": "",
        "record": "7",
        "date": "2024-10-10",
        "arm": "new",
        "parent": "old",
        "beside": "before it",
        "n": "2 against 3",
        "mean": "3.2750",
        "sd": "0.0071",
        "loss": "−0.0012 [−0.0026, +0.0001]",
        "time": "−5.0 [−9.0, −1.0]",
        "learning": "−9.5 [−18.1, +5.1]",
        "systems": "+2.0",
        "total": "−7.7",
        "published": "60 s",
        "published_delta": "−5.0",
        "verdict": "not comparable",
        "why": "few runs; the node is unknown",
        "changed": "steps 100 to 90; torch 2.4 to 2.5",
        "settling": "",
        "printed": "",
    }


def test_what_a_record_does_not_have_is_left_empty_and_steps_are_no_seconds() -> None:
    bare = row(before=None, delta=None, arm=None, parent=None, beside=True)
    link = replace(bare.link, arm="", parent="", published=None)
    told = cells(replace(bare, link=link))
    assert (told["arm"], told["parent"], told["beside"]) == ("no log", "none", "beside it")
    empty = ("n", "mean", "loss", "time", "total", "published", "published_delta", "changed")
    assert {told[name] for name in empty} == {""}
    assert cells(replace(bare, link=replace(link, published=3.5, by_steps=True)))["published"] == (
        "3.5 steps"
    )
    assert cells(row(before=None, delta=float("nan")))["published_delta"] == ""
    assert cells(row(before=None, arm=replace(NEW, steps=100)))["changed"] == ""
    assert cells(row(before=None, arm=None, environment="torch"))["changed"] == ""
    none = replace(NEW, losses=np.array([]))
    assert (cells(row(before=None, arm=none))["mean"], cells(row(before=None, arm=none))["n"]) == (
        *("", "0 against 3"),
    )


def test_the_cells_of_a_row_have_a_mean_of_one_run_and_an_sd_of_two() -> None:
    one = cells(row(before=None, arm=figures("new", 3.27)))
    assert (one["n"], one["mean"], one["sd"]) == ("1 against 3", "3.2700", "")
    two = cells(row(before=None))
    assert (two["n"], two["mean"], two["sd"]) == ("2 against 3", "3.2750", "0.0071")
    none = cells(row(before=None, arm=None))
    assert (none["n"], none["mean"], none["sd"]) == ("", "", "")
    alone = cells(row(before=None, parent=None))
    assert (alone["n"], alone["verdict"]) == ("2", str(ChainVerdict.NOT_COMPARABLE))


def test_the_losses_of_a_records_own_page_are_told_beside_those_of_its_parents() -> None:
    arm, parent = figures("new", 3.27, printed=3.278), figures("old", 3.28, printed=3.28)
    said = "its page prints 3, mean 3.2780"
    assert cells(row(before=None, arm=arm, parent=OLD))["printed"] == said
    told = cells(row(before=None, arm=arm, parent=parent))["printed"]
    assert told == f"{said}, −0.0020 to its parent's"
    assert arm.printed is not None
    partly = replace(arm, printed=replace(arm.printed, n_in_logs=2))
    told = cells(row(before=None, arm=partly, parent=OLD))["printed"]
    assert told == f"{said} (2 of them in the logs)"
    assert cells(row(before=None))["printed"] == ""


def test_what_settles_a_row_is_priced_where_the_logs_have_times() -> None:
    runs = Settling(runs=6, gpu_hours=12.34, compiling=0.56, price=7.8)
    many = Settling(runs=6, gpu_hours=100.0, compiling=0.56, price=7.8)
    one = Settling(runs=1, gpu_hours=99.94, compiling=0.56, price=7.8)
    unpriced = Settling(runs=6, gpu_hours=np.nan, compiling=np.nan, price=np.nan)
    start = "6 runs, both arms in turn on one node"
    rest = "GPU-hours of training and 0.6 of compilation, $8"
    for settling, said in (
        (runs, f"{start}: 12.3 {rest}"),
        (many, f"{start}: 100 {rest}"),
        (one, f"1 run{start.removeprefix('6 runs')}: 99.9 {rest}"),
        (unpriced, f"{start}; no times in the logs, so no price"),
    ):
        assert cells(row(before=None, settling=settling))["settling"] == said
    assert cells(row(before=None))["settling"] == ""
