"""What the second path says of single pieces of a page, each by hand: notes, lengths, settings, curves, ends."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reports.verify.blocks import check_blocks, places
from reports.verify.effects import check_word
from reports.verify.evidence import Told, check_answer
from reports.verify.files import check_curve, check_memory, check_own, check_results
from reports.verify.lengths import agree_length, check_lengths, tokens_of_steps
from reports.verify.optimum import fitted
from reports.verify.page import Page, Printed, text_of
from reports.verify.ratios import check_noisy, check_ratios
from reports.verify.rows import check_mean
from reports.verify.same import pieces_in_place
from reports.verify.separate import check_separate, separate, unpaired, widened
from reports.verify.sequences import Martingale, ends_at
from reports.verify.settings import (
    check_changes,
    check_citation,
    check_differences,
    written_setting,
)
from reports.verify.table import Table, agree_scatter
from reports.verify.verify import check_statistics
from tests.report_kinds import KINDS

NOISY = "Too noisy for any time claim: runs of {} alone took from {} to {} ms a step."
RATIOS = "Off base's step time by the means in ms and by Δ: {}. Δ is the mean"
ARMS = {"arms": [{"name": "base"}, {"name": "a"}], "baseline": "base"}


def shown(*values: float | None, text: str = "") -> Printed:
    return Printed(text=text, values=values)


@pytest.mark.parametrize(
    ("note", "said"),
    [
        (NOISY.format("base", 80, 120), []),
        (NOISY.format("base", "80.0", "120.4"), []),
        (NOISY.format("base", 80, 121), ["a note says 121 ms a step of base, its rows 120.4"]),
        (NOISY.format("base", 81, 120), ["a note says 81 ms a step of base, its rows 80"]),
        (NOISY.format("b", 80, 120), ["a note names no runs whose times were compared: Too noisy"]),
        ("Too noisy for any time claim.", ["a note names no runs whose times were compared: "]),
        (RATIOS.format("a +50.0 % and +40.0 %"), []),
        (RATIOS.format("a +51.0 % and +40.0 %"), ["a note says +51.0 % of a, the table +50.0 %"]),
        (RATIOS.format("a +50.1 % and +39.9 %"), []),
        (RATIOS.format("a +50.2 % and +40.0 %"), ["a note says +50.2 % of a, the table +50.0 %"]),
        (RATIOS.format("a +50.0 % and +39.8 %"), ["a note says +39.8 % of a, the table +40.0 %"]),
        (RATIOS.format("a +50 % and +41 %"), ["a note says +41.0 % of a, the table +40.0 %"]),
        (
            RATIOS.format("a +50.0 % and +40.0 %; b +1 % and +1 %"),
            [*["a note says +1.0 % of b"] * 2],
        ),
        (RATIOS.format("nothing"), ["a note on step times names no arm: Off base's"]),
    ],
)
def test_a_note_on_times_names_arms_and_what_the_rows_say_of_them(
    note: str, said: list[str]
) -> None:
    verdicts = {
        (0, 0): {"step_ms.mean": shown(100.0)},
        (0, 1): {"step_ms.mean": shown(150.0), "step_ms.effect": shown(0.4)},
    }
    last = NOISY.format("base", 80, 122)
    sentences = {(0, "answer"): "x", (0, "notes", 0): note}
    sentences |= {(1, "notes", 0): "of another", (0, "notes", 1): last}
    page = Page(sentences=sentences, verdicts=verdicts)
    rows = [
        {"arm": "base", "status": status, "step_ms": ms}
        for status, ms in (
            *(("finished", 80.0), ("finished", 120.4), ("finished", None)),
            ("failed", 9.0),
        )
    ]
    found = [*check_noisy(page, 0, ARMS, rows), *check_ratios(page, 0, ARMS)]
    found.remove("a note says 122 ms a step of base, its rows 120.4")  # of the last one, each time
    assert len(found) == len(said)
    assert all(sentence.startswith(one) for one, sentence in zip(said, found, strict=True)), found
    assert [*check_noisy(page, 1, ARMS, rows), *check_ratios(page, 1, ARMS)] == []


@pytest.mark.parametrize(
    ("ends", "is_apart"),
    [((-0.2, -0.1), True), ((0.1, 0.2), True), ((-0.1, 0.1), False), ((0.0, 0.1), False),
     ((-0.1, 0.0), False), ((None, None), False), ((-0.2, None), False)],
)  # fmt: skip
def test_a_note_that_no_time_is_told_apart_holds_of_every_interval(
    ends: tuple[float | None, float | None], is_apart: bool
) -> None:
    verdicts = {(0, 1): {"step_ms.interval": shown(*ends)}}
    page = Page(sentences={(0, "notes", 0): NOISY.format("a", 9, 9)}, verdicts=verdicts)
    rows = [{"arm": "a", "status": "finished", "step_ms": 9.0}]
    told = ["a note says that no time is told apart, the table that a's is"]
    assert [*check_noisy(page, 0, ARMS, rows)] == (told if is_apart else [])


# ---------------------------------------------------------------- lengths


def test_tokens_to_the_target_are_printed_where_steps_read_otherwise_many() -> None:
    rows = [
        {"arm": arm, "status": "finished", "val_loss": 3.0, "budget": 10, "steps": 10,
         "tokens": tokens, "step_ms": 500.0, "block": 0, "seed": 0}
        for arm, tokens in (("base", 1000), ("a", 2000))
    ]  # fmt: skip
    seconds = {"target.seconds": shown(5.0)}  # ten steps

    def said(**tokens: float) -> list[str]:
        printed: dict[str, dict[str, Printed]] = {}
        for arm, n in tokens.items():
            printed[arm] = seconds | ({"target.tokens": shown(n, text="n")} if n else {})
        return [*check_lengths(rows, rows, printed, ARMS)]

    assert said(base=1000.0, a=2000.0) == []
    assert said(base=0, a=2000.0) == ["arm 'base': target.tokens is missing but the rows give 1000"]
    assert said(a=2001.0) == ["arm 'a': target.tokens is printed as n but the rows give 2000"]
    rows = [row | {"tokens": 1000} for row in rows]
    assert said(a=0) == []
    assert said(a=2000.0) == [
        "arm 'a': target.tokens is printed, but a step reads as many in all arms"
    ]


def test_tokens_of_a_step_are_told_where_they_differ_by_more_than_a_rounding_of_stages() -> None:
    def of(*tokens: int, budgets: tuple[int, ...] = (10, 10), **how: Any) -> dict[str, float]:
        facts = zip(("base", "a"), tokens, budgets, strict=True)
        usual = {"status": "finished", "val_loss": 3.0, "steps": 10} | how
        return tokens_of_steps([{"arm": a, "tokens": n, "budget": b} | usual for a, n, b in facts])

    assert of(1000, 1009) == {} and of(1000, 1010) == {}
    assert of(1000, 1012) == {"base": 100.0, "a": pytest.approx(101.2)}
    assert of(1000, 2000, budgets=(10, 20)) == {"base": 100.0, "a": 200.0}
    assert of(1000, 2000, val_loss=None) == of(1000, 2000, status="failed") == {}


@pytest.mark.parametrize("clock_alone", [True, False])
def test_tokens_to_the_target_are_of_the_runs_that_losses_come_from(clock_alone: bool) -> None:
    plan = {
        **{"name": "x", "baseline": "base", "design": "add-one", "seeds": [0]},
        "arms": [
            {"name": name, "of": name, "point": {}, "changes": changes}
            for name, changes in (("base", []), ("a", ["a"]))
        ],
    }
    roles = ("loss", "timing") if clock_alone else ("loss",)
    rows = [
        {"arm": arm, "run_id": f"{arm} {role}", "role": role, "status": "finished", "stale": False}
        | {"budget": 10, "steps": 10, "val_loss": 3.0, "step_ms": 500.0, "train_time_s": None}
        | {"tokens": tokens if role == "loss" else 1000, "block": 0, "seed": 0}
        for arm, tokens in (("base", 1000), ("a", 2000))
        for role in roles
    ]
    data = {"plan": plan, "accept_stale": False}

    def said(tokens: float) -> list[str]:
        of_arms = {"base": 1000.0, "a": tokens}
        verdicts = {
            (0, place): {"target.seconds": shown(5.0), "target.tokens": shown(n, text="n")}
            for place, n in enumerate(of_arms.values())
        }
        found = check_statistics(Page(verdicts=verdicts), 0, data, rows)
        return [sentence for sentence in found if "target.tokens" in sentence]

    assert said(2000.0) == []
    assert said(1000.0) == ["arm 'a': target.tokens is printed as n but the rows give 2000"]


def test_a_gain_is_of_the_mean_pace_and_the_mean_length_and_of_no_time_beyond_the_runs() -> None:
    timed = [
        {"arm": arm, "status": "finished", "step_ms": ms, "block": 0, "seed": 0}
        for arm, ms in (("base", 500.0), ("a", 400.0))
    ]

    def said(learning: float, **more: Printed) -> list[str]:
        gains = {"gain.seconds": shown(learning, -0.9, text="g")}
        of_a = {"target.seconds": shown(3.2), **gains, **more}  # 8 steps
        return [
            *check_lengths([], timed, {"base": {"target.seconds": shown(5.0)}, "a": of_a}, ARMS)
        ]

    assert said(-0.9) == []
    assert said(-0.8) == ["arm 'a': gain.seconds is printed as g but the rows give -0.9"]
    assert said(-0.8, **{"target.extrapolated": shown(text="beyond")}) == []
    percents = {"learning.percent": shown(-18.0), "systems.percent": shown(-18.0)}
    assert said(-0.9, **percents) == []
    assert said(-0.9, **percents | {"systems.percent": shown(-17.0, text="-17")}) == [
        "arm 'a': systems.percent is printed as -17 but the rows give -18"
    ]


def test_a_length_is_right_to_what_a_page_leaves_off() -> None:
    assert [*agree_length("a", "k", shown(2.0, -1.00001, text="t"), 2.00001, -1.0)] == []
    wrong = [*agree_length("a", "k", shown(2.0, 3.0, text="t"), 2.0001, 3.0)]
    assert wrong == ["arm 'a': k is printed as t but the rows give 2.0001"]


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("field", "settings", "written"),
    [
        ("optim.lr", {}, "unknown"),
        ("plugin", {}, "unknown"),
        ("plugin.mine.rate", {}, "off"),
        ("plugin.mine.rate", {"plugin.other.rate": ["1"]}, "off"),
        ("plugin.mine.rate", {"plugin.mine.more": ["1"]}, "as the plug-in has it"),
        ("optim.lr", {"optim.lr": ["1", "2", "3"]}, "1 or 2 or 3"),
        ("optim.lr", {"optim.lr": ["1", "2", "3", "4"]}, "4 values"),
        ("optim.lr", {"optim.lr": ["0.12345678"]}, "0.12345678"),
        ("optim.lr", {"optim.lr": ["0.123456789"]}, "0.1235"),
        ("x.y", {"x.y": ['"a  b"', "true", "null"]}, "a b or on or off"),
    ],
)
def test_settings_are_written_as_the_page_has_them(
    field: str, settings: dict[str, list[str]], written: str
) -> None:
    assert written_setting(field, settings) == written


def test_a_citation_names_the_data_of_the_runs() -> None:
    rows = [{"fingerprint": "f1"}, {"fingerprint": None}]
    assert [*check_citation({"citation": "with data digest f1."}, rows)] == []
    assert [*check_citation({"citation": "with data digest f2."}, rows)] == [
        "the citation does not name the data of the runs, f1"
    ]
    for cited, of_rows in (
        ({}, rows),
        ({"citation": "of a script"}, rows),
        ({"citation": "with data digest f2."}, [*rows, {"fingerprint": "f3"}]),
    ):
        assert [*check_citation(cited, of_rows)] == []


def test_what_a_change_sets_is_that_of_the_smallest_arm_with_it_and_without_it() -> None:
    arms = [
        *({"name": "base", "changes": []}, {"name": "ab", "changes": ["a", "b"]}),
        *({"name": "a", "changes": ["a"]}, {"name": "b", "changes": ["b"]}),
        {"name": "c", "changes": ["c", "d"]},
        {"name": "a at 2", "of": "a", "changes": ["a"]},
        *({"name": "gone", "changes": ["g"]}, {"name": "last", "changes": ["l"]}),
    ]
    of_arms = {
        "base": {"m.x": ["1"], "m.y": ["1"]},
        "a": {"m.x": ["2"], "m.y": ["1"]},
        "b": {"m.x": ["1"], "m.y": ["5"]},
        "ab": {"m.x": ["3"], "m.y": ["6"]},
        **{name: {"m.x": ["9"]} for name in ("c", "a at 2")},
        **{"gone": {}, "last": {"m.x": ["1"], "m.y": ["8"]}},
    }

    def said(printed: dict[str, str]) -> list[str]:
        return [*check_changes(printed, {"arms": arms}, of_arms)]

    whole = {"sets 0 m.x": "2", "sets 1 m.y": "5", "sets 5 m.y": "8"}
    assert said(whole) == said({}) == []
    assert said(whole | {"sets 0 m.y": "1"}) == [
        "change 'a': m.y is printed, which it does not set"
    ]
    assert said({"sets 0 m.x": "2"}) == [
        f"change '{change}': m.y is printed as nothing but its runs had {written}"
        for change, written in (("b", 5), ("l", 8))
    ]


def test_an_arm_without_a_compared_run_hides_no_other() -> None:
    of_arms = {"base": {"m.x": ["1"]}, "gone": {}, "a": {"m.x": ["2"], "m.y": ["5"]}}

    def said(**printed: str) -> list[str]:
        told = {f"differs m.{name} 2": text for name, text in printed.items()}
        return [*check_differences(told, [*of_arms], of_arms, "base")]

    assert said(x="2", y="5") == []
    assert said(x="2") == ["arm 'a': its runs differ in m.y, which is not printed"]
    assert said(x="3", y="5") == ["arm 'a': m.x is printed as 3 but its runs had 2"]


# ---------------------------------------------------------------- files


def curve_file(folder: Path, steps: list[int]) -> Path:
    lines = []
    for step in steps:
        point = {"kind": "val", "step": step, "val_loss": 3.0, "train_time_s": 1.0, "tokens": step}
        lines.append(json.dumps(point))
    path = folder / "metrics.jsonl"
    path.write_text("\n".join([*lines, '{"kind": "own"}']))
    return path


def part(steps: list[int]) -> dict[str, list[float]]:
    times, losses = [1.0] * len(steps), [3.0] * len(steps)
    return {"step": [*steps], "val_loss": losses, "train_time_s": times, "tokens": [*steps]}


LONG = [*range(2001)]
HALF = [*range(999), 2000]  # as few as a page may show


@pytest.mark.parametrize(
    ("steps", "page", "said"),
    [
        (LONG[:2000], LONG[:2000], ""),
        (LONG[:2000], HALF[:-1], "the curve's step on the page is not that of metrics.jsonl"),
        (LONG, LONG, ""),
        (LONG, HALF, ""),
        (LONG, HALF[1:], "the curve on the page is too small a part of metrics.jsonl"),
        (LONG, LONG[:-1], "the curve on the page is too small a part of metrics.jsonl"),
        (LONG, LONG[1:], "the curve on the page is too small a part of metrics.jsonl"),
    ],
)
def test_of_a_long_curve_a_page_shows_both_ends_and_half_as_many_points_as_it_may(
    tmp_path: Path, steps: list[int], page: list[int], said: str
) -> None:
    found = [*check_curve("r", part(page), None, curve_file(tmp_path, steps))]
    assert found == ([f"run r: {said}"] if said else [])


def test_tokens_of_another_curve_and_a_file_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    path = curve_file(tmp_path, [0, 1])
    other = part([0, 1]) | {"tokens": [0, 2]}
    said = "run r: the curve's tokens on the page are not those of metrics.jsonl"
    assert [*check_curve("r", other, None, path)] == [said]
    assert [*check_curve("r", part([0, 1]), [1, 2.0], path)] == [
        "run r: the step times on the page are not those of metrics.jsonl"
    ]
    untimed = part([0, 1]) | {"train_time_s": [None, None]}
    assert [*check_curve("r", untimed, None, path, timed=False)] == []
    for content in (b"no JSON", None):
        path.unlink() if content is None else path.write_bytes(content)
        (found,) = check_curve("r", part([0, 1]), None, path)
        assert found.startswith("run r: metrics.jsonl cannot be read: ")


def test_a_run_that_was_stopped_elsewhere_or_measured_otherwise_is_named(tmp_path: Path) -> None:
    side = {"readings": {"metrics": [{"name": "acc", "better": "higher"}]}}
    data = {"plan": {"arms": [{"name": "base", "side": side}], "baseline": "base"}}
    line = {"kind": "own", "own": True, "name": "acc"}
    lines = [json.dumps(line | {"value": value}) for value in (0.1, 0.5)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))

    def said(row: dict[str, Any], **result: Any) -> list[str]:
        return [*check_own(data, "r", row, tmp_path, {"own": {"acc": 0.5}} | result)]

    assert said({"acc": 0.5, "stopped_at": 7}, stopped_at=7) == []
    assert said({"acc": 0.5}, stopped_at=7) == [
        "run r: stopped_at is None on the page and 7 in result.json"
    ]
    assert said({"acc": 0.5}, own={}) == [
        "run r: acc is 0.5 on the page and None in result.json",
        "run r: acc is None in result.json but its last reading was 0.5",
    ]


def test_a_plan_that_cannot_be_read_is_named_and_one_that_is_gone_remembers_nothing(
    tmp_path: Path,
) -> None:
    data = {"plan": {"name": "gone", "runs": []}, "results": {}}
    assert [*check_results(data, [], tmp_path)] == [*check_memory(data, tmp_path)] == []
    plan = tmp_path / "experiments" / "gone" / "experiment.json"
    plan.parent.mkdir(parents=True)
    plan.write_text("{")
    (found,) = check_results(data, [], tmp_path)
    assert found.startswith(f"{plan}: ")
    plan.unlink()
    names = ("0" * 16, "../../other", "1" * 16)
    places = [tmp_path / "runs" / name / "result.json" for name in names]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "result.json").write_text("{}")
    assert [*check_results(data | {"results": dict.fromkeys(names)}, [], tmp_path)] == [
        f"run {name}: {place} is missing" for name, place in zip(names, places, strict=True)
    ]


def test_a_piece_stands_at_its_place_in_an_option_that_has_as_many() -> None:
    assert pieces_in_place("ab", ["xb", "ay"])
    assert not pieces_in_place("ab", ["xb", "yb"])
    assert not pieces_in_place("ab", ["abc", "a"])


def test_what_a_folder_remembers_beyond_a_page_is_said_in_its_words(tmp_path: Path) -> None:
    loaded = KINDS["one_run"](tmp_path)
    data: dict[str, Any] = {"plan": {"name": "split"}, "memory": loaded.memory.to_mapping()}
    assert [*check_memory(data, tmp_path)] == []
    said = "the ledger remembers of its question what the page does not say: "
    for changed in ({"changed": not loaded.memory.changed}, {"family": loaded.memory.family + 1}):
        other = {**data, "memory": {**data["memory"], **changed}}
        assert [*check_memory(other, tmp_path)] == [f"{said}nothing Write the page again"]


# ---------------------------------------------------------------- numbers


def test_a_page_larger_than_any_is_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.html"
    page.write_text("12345")
    monkeypatch.setattr("reports.verify.page.MOST_BYTES", 5)
    assert text_of(page) == "12345"
    monkeypatch.setattr("reports.verify.page.MOST_BYTES", 4)
    with pytest.raises(ValueError, match="5 bytes are no page of `ablate report`"):
        text_of(page)


def test_two_samples_without_spread_or_of_one_run_have_no_error() -> None:
    assert unpaired([1.0, 2.0], [3.0], 0.05) is unpaired([1.0], [2.0, 3.0], 0.05) is None
    assert unpaired([1.0, 1.0], [2.0, 2.0], 0.05) is None
    both = unpaired([1.0, 3.0], [2.0, 6.0, 4.0], 0.05)
    assert both is not None and both.mean == -2.0
    va, vb = 1.0, 4 / 3
    assert both.df == pytest.approx((va + vb) ** 2 / (va**2 + vb**2 / 2))
    assert both.se == pytest.approx(widened(2, 3, 0.05) * math.sqrt(va + vb))
    assert 1.0 < widened(4, 4, 0.05) < widened(2, 3, 0.05)


def test_differences_within_blocks_that_are_all_the_same_have_no_error() -> None:
    blocks = {"base": {0: 1.0, 1: 2.0, 2: 4.0}, "a": {0: 2.0, 1: 3.0, 2: 5.0}}
    loose = {arm: [*of_arm.values()] for arm, of_arm in blocks.items()}
    alike = Table(metric="val_loss", baseline="base", blocks=blocks, loose=loose, diverged={})
    assert separate(alike, "a", 0.05) is None
    blocks["a"][2] = 8.0
    told = separate(alike, "a", 0.05)
    assert told is not None and (told.mean, told.df) == (2.0, 2.0)
    assert told.se == pytest.approx(1.0)  # of 1, 1 and 4 over the root of 3
    assert [*check_blocks(alike, [], {}, 1.0)] == []


def test_an_interval_of_an_arm_judged_alone_is_told_with_both_ends_of_the_rows() -> None:
    blocks = {"base": {0: 1.0, 1: 2.0, 2: 4.0}, "a": {0: 2.0, 1: 3.0, 2: 8.0}}
    table = Table(metric="val_loss", baseline="base", blocks=blocks, loose={}, diverged={})
    half = 4.302653  # Student's t of two df at 0.975; the error is 1
    right = {"val_loss.interval": shown(2 - half, 2 + half), "val_loss.p": shown(0.1835)}
    assert [*check_separate(table, ["a"], {"a": right}, 1.0)] == []
    wrong = {"val_loss.interval": shown(2 - half, 6.0, text="-2.3 to 6.0")}
    assert [*check_separate(table, ["a"], {"a": wrong}, 1.0)] == [
        "arm 'a': val_loss.interval is printed as -2.3 to 6.0 but the rows give [-2.30265, 6.30265]"
    ]


def test_an_end_that_is_missing_stands_at_the_estimate() -> None:
    assert places(None, 0.25, "val_loss") == (0.25,)
    first, low, high = places(0.5, 0.25, "val_loss")
    assert low < first == 0.5 < high


def test_a_sequence_ends_where_its_martingale_is_one_over_alpha() -> None:
    differences = [*np.random.default_rng(0).normal(0.6, 1.0, 12)]
    table = Table(metric="step_ms", baseline="base", blocks={}, loose={}, diverged={})
    martingale = Martingale(differences=differences)
    assert ends_at(martingale, -2.0, table, 1.0) is False  # no time falls by 200 %
    losses = Table(metric="val_loss", baseline="base", blocks={}, loose={}, diverged={})
    assert ends_at(martingale, 9.0, losses, 1.0) is False


def test_a_scatter_is_that_of_two_blocks_or_more() -> None:
    printed = {"val_loss.sd_paired": shown(0.5, text="0.5")}
    told = "arm 'a': val_loss.sd_paired is printed of fewer than two blocks"
    assert [*agree_scatter(printed, "val_loss", [1.0], "a")] == [told]
    assert [*agree_scatter({}, "val_loss", [1.0], "a")] == []
    assert [*agree_scatter(printed, "val_loss", [1.0, 1.5], "a")] != []
    assert [*agree_scatter(printed, "val_loss", [1.0, 1.0 + math.sqrt(0.5)], "a")] == []


def test_a_margin_is_that_of_the_metric_that_decides() -> None:
    """A page without times is judged by its loss, beside which no margin is declared."""
    plan = ARMS | {"primary": "step_ms", "margin": 0.5, "design": "add-one"}
    of_loss = {
        "verdict": shown(text="no difference larger than 0.5"),
        "val_loss.effect": shown(0.1),
        "val_loss.interval": shown(-0.1, 0.3, text="[-0.1, 0.3]"),
    }
    assert len([*check_word(of_loss, plan, "a")]) == 1
    assert [*check_word(of_loss, plan | {"primary": "val_loss"}, "a")] == []
    undecided = of_loss | {"verdict": shown(text="undecided: -0.1 to 0.3")}
    assert [*check_word(undecided, plan, "a")] == []


def test_a_time_s_margin_in_seconds_leaves_both_words_open() -> None:
    plan = ARMS | {"primary": "step_ms", "margin": 0.5, "design": "add-one"}
    for verdict, is_right in (
        ("undecided", True),
        ("no difference larger than", True),
        ("x", False),
    ):
        printed = {
            "verdict": shown(text=verdict),
            "step_ms.effect": shown(0.1),
            "step_ms.interval": shown(-0.1, 0.3),
        }
        assert ([*check_word(printed, plan, "a")] == []) == is_right


def test_what_carries_more_or_fewer_values_than_it_prints_is_of_no_page() -> None:
    interval = {"val_loss.effect": shown(0.1), "val_loss.interval": shown(text="[-0.1, 0.3]")}
    undecided = interval | {"verdict": shown(text="undecided: −0.1 to 0.3")}
    with pytest.raises(ValueError, match="shorter"):
        [*check_word(undecided, ARMS | {"design": "add-one"}, "a")]
    mean = {"val_loss.mean": shown(3.0, 3.0)}
    rows = [{"status": "finished", "val_loss": 3.0}]
    with pytest.raises(ValueError, match="shorter"):
        [*check_mean(mean, "val_loss", rows, "a")]
    with pytest.raises(ValueError, match="longer"):
        [*agree_length("a", "k", shown(2.0, 3.0), 2.0)]


@pytest.mark.parametrize(
    ("answer", "n_wrong"),
    [
        ("a (−0.0100 [−0.0200, −0.0050])", 0),
        ("a (−0.0100 [−0.0200, −0.0060])", 1),
        ("a (−0.0100 [−0.0200, −0.0050]), which holds zero", 1),
        ("b (+0.0010 [−0.0010, +0.0030]), which holds zero", 0),
        ("b (+0.0010 [−0.0010, +0.0030])", 1),
        ("the largest is b (+0.0010 [−0.0010, +0.0030])", 0),
        ("another (+0.5000 [+0.4000, +0.6000]) is of no row", 0),
        ("another (+0.5000 [+0.4000, +0.6000]), a (−0.5000 [−0.6000, −0.4000])", 1),
        ("a (+1.0 % [+0.5, +1.5] %)", 0),
        ("a (+1.1 % [+0.5, +1.5] %)", 1),
        ("a (+1.0 % [+0.5, +1.6] %)", 1),
        ("a (−0.0101 [−0.0200, −0.0050])", 1),
    ],
)
def test_a_difference_in_a_headline_is_that_of_the_arm_it_names(answer: str, n_wrong: int) -> None:
    losses = {
        "a": Told(value=-0.01, low=-0.02, high=-0.005),
        "+ b": Told(value=0.001, low=-0.001, high=0.003),
    }
    times = {"a": Told(value=0.01, low=0.005, high=0.015)}
    assert len([*check_answer(answer, losses, times)]) == n_wrong


def test_points_of_two_drawn_axes_make_a_surface_and_those_below_zero_no_logarithm() -> None:
    arms, rows = [], []
    for place in (-1.0, 0.0, 1.0):
        arms.append({"name": f"p{place}", "of": "base", "point": {"x": str(place)}})
        for block in range(2):
            rows.append({"arm": f"p{place}", "status": "finished", "block": block,
                         "val_loss": place**2 + block})  # fmt: skip
    plan = {"arms": arms, "baseline": "p0.0", "axes": {"x": ["-1.0", "0.0", "1.0"]}}
    ((who, scale, y),) = fitted(plan, rows)
    assert who == "base, x" and scale == ["linear", -1.0, 0.0, 1.0]
    assert y.tolist() == [[1.0, 0.0, 1.0], [2.0, 1.0, 2.0]]
    for scale in (["linear", 0.0, 1.0, 2.0], ["log", 0.0, math.log(2), math.log(3)]):
        for arm in arms:
            arm["point"] = {"x": str(float(arm["point"]["x"]) + 1)}
        assert [fit[1] for fit in fitted(plan, rows)] == [scale]
    assert len([*fitted(plan | {"draw": 9}, rows)]) == 1
    assert [*fitted(plan | {"draw": 9, "axes": {"x": [], "y": []}}, rows)] == []
