"""What the second path reads of a page and of its rows, by hand."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.run.versions import PAGE
from reports.verify.effects import backfitted, estimate, is_anytime, raised_by
from reports.verify.page import Printed, numbers, read_page
from reports.verify.rows import compared_rows, originals
from reports.verify.same import numbers_of, same_data, same_drawn, same_text, shortened
from reports.verify.table import (
    Table,
    arms_elsewhere,
    arms_nowhere,
    near,
    on_scale,
    own_metrics,
    reach,
    side_by_side,
)
from reports.verify.targets import check_target
from reports.verify.verify import verify

DATA = {"format": PAGE, "experiments": [{"x": "</", "y": 1.5}]}
PAGE_TEXT = """<!doctype html><html><head>
<meta http-equiv="refresh" content="12.5">
<meta charset="utf-8"></head><body><main><p data-key="lost">outside</p>
<article data-experiment="0">
<section aria-labelledby="one"><h2>One</h2><p data-key="answer">At  <b>2</b>
layers &amp; more</p>
<ul class="facts"><li>first</li><li>second</li></ul><ul class="other"><li>no fact</li></ul></section>
<table data-table="verdicts"><tr data-arm="3"><td data-key="val_loss.mean" data-v="1.5"><b>1.5000</b></td>
<td data-key="val_loss.interval" data-v=",-2.5">[−∞, −2.5]</td><td data-v="7">unkeyed</td></tr></table>
<table data-table="attribution"><tr><td data-v="1,2">+1</td><td data-v="3">+3</td></tr></table>
<table data-table="runs"><tr data-run="abc"><td data-v="1">a</td><td data-v="2">b</td></tr>
<tr data-run="def"><td data-v="4" data-key="k">d</td></tr><tr data-id="ghi"><td>g</td></tr></table>
<figure id="f-0"><div><svg class="wide"><line x1="1" y2/><g data-arm="x"><text x="2">hi</text></g></svg></div>
<figcaption>words<br>more</figcaption></figure><p data-key="none"/>behind
</article><article data-experiment="1"><p data-key="answer">Other</p></article>
<script type="application/json" id="data">{data}</script><footer>end</footer></main></body></html>
"""


def test_a_page_is_read_by_where_its_pieces_stand() -> None:
    text = PAGE_TEXT.replace("{data}", json.dumps(DATA).replace("</", "<\\/"))
    page = read_page(text)
    assert page.text == text and page.data == DATA and page.refresh_s == 12.5
    assert page.embedded == json.dumps(DATA).replace("</", "<\\/")
    assert page.markup == PAGE_TEXT.replace("{data}", "")
    assert page.verdicts == {
        (0, 3): {
            "val_loss.mean": Printed(text="1.5000", values=(1.5,)),
            "val_loss.interval": Printed(text="[−∞, −2.5]", values=(None, -2.5)),
        }
    }
    assert page.sentences == {
        (0, "answer"): "At 2 layers & more",
        (0, "facts", 1): "first",
        (0, "facts", 2): "second",
        (0, "none"): "",  # it ends where it begins
        (1, "answer"): "Other",
    }
    assert page.rows == {(0, "abc"): "ab", (0, "def"): "d", (0, "unfinished", "ghi"): "g"}
    assert page.carried == {
        (0, "verdicts", 1): "7",
        (0, "attribution", 1): "1,2",
        (0, "attribution", 2): "3",
    }
    assert page.sorted_by == {(0, "abc", 1): "1", (0, "abc", 2): "2", (0, "def", 1): "4"}
    assert page.drawings == {
        ("f-0",): [
            ("element", "svg"),
            ("svg class", "wide"),
            ("element", "line"),
            ("line x1", "1"),
            ("line y2", ""),
            ("element", "g"),
            ("g data-arm", "x"),
            ("element", "text"),
            ("text x", "2"),
            ("text", "hi"),
        ]
    }
    assert [*page.sections] == [("one",)] and page.sections["one",].startswith("OneAt 2 layers")
    assert numbers(None) == () and numbers("1,,2.5") == (1.0, None, 2.5)


@pytest.mark.parametrize("broken", ["{data", "[1]", "{}", json.dumps({"format": "x"})])
def test_what_holds_no_data_of_a_page_is_none(broken: str, tmp_path: Path) -> None:
    text = PAGE_TEXT.replace("{data}", broken)
    with pytest.raises(ValueError, match=r"the page: holds no data of an `ablate report` page"):
        read_page(text)
    older = PAGE_TEXT.replace("{data}", json.dumps({**DATA, "format": PAGE - 1}))
    with pytest.raises(ValueError, match="holds no data"):
        read_page(older)
    (tmp_path / "x.html").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ValueError, match=r"x\.html: is no text in UTF-8"):
        read_page(tmp_path / "x.html")


def test_data_that_no_page_has_are_refused_in_one_short_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_line: Callable[[str], None]
) -> None:
    page = tmp_path / "x.html"
    page.write_text(PAGE_TEXT.replace("{data}", json.dumps(DATA).replace("</", "<\\/")))
    with pytest.raises(ValueError, match="its data are not those of a page, KeyError") as refused:
        verify(page)

    def broken(*_: object) -> list[str]:
        raise TypeError(f"{'x' * 201}\nmore")

    monkeypatch.setattr("reports.verify.verify.check_data", broken)
    with pytest.raises(ValueError, match=f"TypeError: {'x' * 200}; write it again") as long:
        verify(page)
    kept_line(f"{refused.value}\n{long.value}")


# ---------------------------------------------------------------- rows


def row(arm: str, value: float | None = 1.0, **facts: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        **{"arm": arm, "status": "finished", "block": 0, "seed": 0, "role": "loss"},
        **{"budget": 100, "node": "n", "session": None, "imported": False, "stale": False},
        **{"run_id": f"{arm}{facts}", "metrics_digest": None},
        **{"val_loss": value, "step_ms": value, "train_time_s": value},
    }
    return usual | facts


def test_a_table_has_blocks_loose_values_and_divergences() -> None:
    rows = [
        row("base", 2.0),
        row("base", 4.0),  # again in its block
        row("base", 9.0, block=1),
        row("a", 1.0),
        row("a", 7.0, block=None),
        row("a", 5.0, block=2, seed=None),
        row("a", None, status="diverged", block=1),
        row("b", None),
        row("b", 1.0, status="failed"),
    ]
    table = Table.of("val_loss", "base", rows)
    assert table.blocks == {"base": {0: 3.0, 1: 9.0}, "a": {0: 1.0}}
    assert table.loose == {"base": [2.0, 4.0, 9.0], "a": [1.0, 7.0, 5.0]}
    assert table.diverged == {"a": 1}
    assert (table.n_blocks(), table.differences("a")) == (2, [-2.0])
    assert not table.no_divergence_beside("a") and table.no_divergence_beside("b")
    assert not table.complete() and not table.one_run_a_block()
    whole = [row(arm, n, block=b) for arm, n in (("base", 1.0), ("a", 2.0)) for b in (0, 1)]
    assert Table.of("val_loss", "base", whole).complete()
    for spoiled in (whole[:-1], [*whole, row("a", 3.0)], [*whole, row("a", status="diverged")]):
        assert not Table.of("val_loss", "base", spoiled).complete()
    assert Table.of("val_loss", "base", whole[:-1]).one_run_a_block()


def test_times_are_logarithms_side_by_side_on_one_node() -> None:
    rows = [
        row("base", 10.0, node="n"),
        row("base", 20.0, node="m"),
        row("a", 40.0, node="m"),
        row("a", 80.0, node="m", block=1),
        row("a", 5.0, status="diverged"),
    ]
    table = Table.of("step_ms", "base", rows)
    assert table.blocks == {
        "base": {(0, "n"): math.log(10), (0, "m"): math.log(20)},
        "a": {(0, "m"): math.log(40), 1: math.log(80)},
    }
    assert table.diverged == {}
    assert table.differences("a") == pytest.approx([math.log(2)])


def test_of_several_sessions_the_rows_with_a_partner_count() -> None:
    first = [row("base", session="s"), row("a", session="s")]
    alone = row("a", session="t", block=1)
    assert side_by_side([row("base"), row("a")]) == [row("base"), row("a")]
    cut = side_by_side([*first, alone, row("base", session="t", block=1, status="failed")])
    assert [(r["arm"], r["block"]) for r in cut] == [("base", (0, "s")), ("a", (0, "s"))]


def test_arms_are_known_to_be_elsewhere_or_nowhere_by_their_nodes() -> None:
    rows = [row("base", node="n"), row("a", node="n"), row("b", node="m"), row("c", node=None)]
    assert arms_elsewhere(rows, ["a", "b", "c"], "base") == ["b"]
    assert arms_nowhere(rows, ["a", "b", "c"], "base") == []
    logs = [*rows[:3], row("c", node=None, imported=True)]
    assert arms_nowhere(logs, ["a", "b", "c"], "base") == ["c"]
    assert arms_nowhere([row("base", node=None, imported=True), row("a")], ["a"], "base") == ["a"]


def test_an_estimate_is_a_mean_of_differences_or_one_of_means() -> None:
    rows = [row("base", 1.0), row("base", 5.0, block=1), row("a", 2.0), row("a", 8.0, block=1)]
    assert estimate(Table.of("val_loss", "base", rows), "a", anytime=False) == 2.0
    loose = [*rows, row("a", 11.0, block=None, seed=None)]
    assert estimate(Table.of("val_loss", "base", loose), "a", anytime=False) is None
    lost = [*rows, row("b", status="diverged")]
    assert estimate(Table.of("val_loss", "base", lost), "a", anytime=False) == 2.0
    diverged = [*rows, row("a", status="diverged", block=2)]
    assert estimate(Table.of("val_loss", "base", diverged), "a", anytime=False) is None
    one = [rows[0], rows[2]]
    assert estimate(Table.of("val_loss", "base", one), "a", anytime=True) == 1.0
    ragged = [*rows, row("b", 4.0), row("b", 4.0, block=2)]
    table = Table.of("val_loss", "base", ragged)
    assert estimate(table, "b", anytime=False) == pytest.approx(backfitted(table, "b"))
    assert backfitted(table, "b") == pytest.approx(3.5)
    assert estimate(table, "b", anytime=True) == 1.0
    in_one_block = Table.of("val_loss", "base", [*one, row("a", 8.0, block=2)])
    assert estimate(in_one_block, "a", anytime=False) == 4.0
    in_none = Table.of("val_loss", "base", [*rows[:2], row("a", 8.0, block=2)])
    assert estimate(in_none, "a", anytime=False) == 5.0
    in_two = [*rows, row("base", 3.0, block=2), row("a", 9.0, block=2)]
    table = Table.of("val_loss", "base", [*in_two, row("b", 4.0), row("b", 4.0, block=2)])
    assert estimate(table, "b", anytime=True) == 2.0
    assert estimate(table, "b", anytime=False) == pytest.approx(backfitted(table, "b"))
    assert backfitted(table, "b") == pytest.approx(2.0 - 1 / 12)


def test_copies_of_a_run_count_once_and_the_longest_shared_budget_is_compared() -> None:
    a = row("a", 1.5, run_id="1", metrics_digest="d", train_time_s=3.0)
    copies = [
        {**a, "val_loss": 9.0, "metrics_digest": "e"},  # its id
        {**a, "run_id": "2", "val_loss": 9.0},  # its metrics
        {**a, "run_id": "3", "metrics_digest": "f"},  # its loss and its time
    ]
    others = [{**a, "run_id": "4", "metrics_digest": "g", key: value} for key, value in
              (("arm", "b"), ("budget", 7), ("role", "timing"), ("val_loss", 1.6))]  # fmt: skip
    assert originals([a, *copies, *others]) == [a, *others]
    rows = [row("base", budget=n) for n in (100, 200)] + [row("a", budget=n) for n in (50, 100)]
    assert [r["budget"] for r in compared_rows(rows, ["base", "a"], "loss")] == [100, 100]
    apart = [row("base", budget=200), row("base", budget=100), row("a", budget=50)]
    assert [r["budget"] for r in compared_rows(apart, ["base", "a"], "loss")] == [200, 50]
    timed = [*rows, row("a", budget=300, role="timing"), row("base", budget=300, role="timing")]
    assert [r["budget"] for r in compared_rows(timed, ["base", "a"], "timing")] == [300, 300]
    assert len(compared_rows(rows, ["base", "a"], "timing")) == 2


# ---------------------------------------------------------------- plans


LOCK = {"plan": {"seeds": [0, 1], "prior_noise": None}}


@pytest.mark.parametrize(
    ("plan", "status", "memory", "anytime"),
    [
        ({"seeds": [0, 1], "locks": [LOCK]}, "finished", {}, False),
        ({"seeds": [0, 1], "locks": [LOCK], "seeds_rule": {"min": 2}}, "finished", {}, True),
        ({"seeds": [0, 1], "locks": [LOCK]}, "pending", {}, True),
        ({"seeds": [0, 1], "locks": [LOCK]}, "failed", {}, False),
        ({"seeds": [0, 1], "locks": [LOCK]}, "finished", {"changed": "x"}, True),
        ({"seeds": [0, 1, 2], "locks": [LOCK]}, "finished", {}, True),
        ({"seeds": [0], "locks": [LOCK]}, "finished", {}, False),
        ({"seeds": [0, 1, 2], "locks": [{"plan": {}}]}, "finished", {}, False),
        ({"seeds": [0, 1], "locks": [LOCK], "prior_noise": {"sd": 1}}, "finished", {}, True),
        ({"seeds": [0, 1], "locks": []}, "finished", {}, False),
        ({"seeds": [0, 1], "locks": [], "prior_noise": {"sd": 1}}, "finished", {}, True),
    ],
)
def test_sequences_are_shown_where_what_was_planned_is_not_what_is(
    plan: dict[str, Any], status: str, memory: dict[str, Any], anytime: bool
) -> None:
    assert is_anytime(plan, [row("a", status=status)], memory) is anytime


def test_a_family_that_is_remembered_larger_raises_what_each_arm_pays() -> None:
    assert [raised_by({"family": n}, 4) for n in (None, 2, 4, 8)] == [1.0, 1.0, 1.0, 2.0]
    assert raised_by({}, 0) == 1.0


def test_metrics_of_their_own_are_the_baselines() -> None:
    def arm(name: str, *metrics: str) -> dict[str, Any]:
        read = [{"name": metric, "better": "higher"} for metric in metrics]
        return {"name": name, "side": {"readings": {"metrics": read}}}

    plan = {"baseline": "base", "arms": [arm("a", "other"), arm("base", "accuracy", "val_loss")]}
    assert own_metrics(plan) == {"accuracy": "higher"}
    for side in ({}, None, {"readings": None}, {"readings": {"metrics": None}}):
        assert own_metrics({"baseline": "x", "arms": [{"name": "x", "side": side}]}) == {}


def test_a_target_of_the_first_block_is_midway_between_its_ends() -> None:
    plan = {"baseline": "base", "seeds": [4, 5], "target": {"from_baseline": True, "val_loss": 2.5}}
    rows = [
        *(row("base", 3.0, budget=100, seed=4), row("base", 9.0, budget=150, seed=4)),
        *(row("base", 1.5, budget=200, seed=4), row("base", 2.5, budget=200, seed=4)),
        *(row("base", 0.0, budget=200, seed=5), row("a", 0.0, budget=200, seed=4)),
        row("base", 0.0, budget=300, seed=4, role="timing"),
    ]

    def found(target: float | None = 2.5, more: Any = (), **facts: Any) -> int:
        asked = {**plan, "target": {"from_baseline": True, "val_loss": target}}
        return len([*check_target({"plan": asked, **facts}, [*rows, *more])])

    assert (found(), found(2.5005), found(2.5006), found(2.4994), found(None)) == (0, 0, 1, 1, 1)
    stale = [row("base", 2.0, budget=150, seed=4, stale=True)]
    assert (found(2.5, stale), found(None, stale), found(2.5, stale, accept_stale=True)) == (
        1,
        0,
        0,
    )
    assert found(None, [row("base", None, budget=150, seed=4)]) == 0
    assert found(None, [row("base", budget=150, seed=4, status="diverged")]) == 0
    given = {"plan": {**plan, "target": {"val_loss": 9.0}}}
    assert (
        [*check_target(given, rows)]
        == [*check_target({"plan": {**plan, "target": None}}, [])]
        == []
    )


def test_a_printed_value_stands_for_what_rounds_to_it() -> None:
    assert near(1.0, 1.0 + 9e-7, 1e-6) and not near(1.0, 1.0 + 3e-6, 1e-6)
    assert near(2000.0, 2000.001, 1e-6) and not near(1.0, None, 1.0) and near(math.inf, math.inf, 0)
    assert on_scale(0.25, "val_loss") == 0.25 and math.isnan(on_scale(None, "val_loss"))
    assert on_scale(0.25, "step_ms") == pytest.approx(math.log(1.25))
    assert on_scale(-1.0, "step_ms") == -math.inf
    low, high = reach(0.1234567, "val_loss")
    assert low < 0.1234567 < high and high - low < 1e-5


# ---------------------------------------------------------------- the same


def test_texts_are_the_same_but_for_the_last_digit_of_a_number_that_two_machines_may_print() -> (
    None
):
    assert same_text("a 1.5 b", ["x", "a 1.5 b"])
    assert not same_text("a 1.5 b", ["a 1.5 c"]) and not same_text("a 1.5 b", ["a 1.6 b"])
    assert not same_text("a 1.5", ["a 1.5 2.5"])
    assert same_data({"a": [1.0, None]}, [{"a": [1.0, None]}])
    assert not same_data({"a": [1.0]}, [{"a": [1.0, 2.0]}]) and not same_data([1.0], [[None]])
    assert (
        not same_data({"a": 1}, [{"b": 1}]) and same_data("x", ["x"]) and not same_data("x", ["y"])
    )
    assert same_drawn("path d", "M1.0 2.0", ["M1.0 2.0"])
    assert not same_drawn("path d", "M1.0 2.0", ["M1.0 2.5"])
    assert not same_drawn("path d", "M1.0 2.0", ["L1.0 2.0"])
    assert numbers_of("1,,2") == [1.0, None, 2.0] and numbers_of("x") == "x"
    assert shortened("x" * 60) == "x" * 60 and shortened("x" * 61) == "x" * 59 + "…"
