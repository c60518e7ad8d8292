"""The second path alone: it names every number of a page that is a little off. That it confirms pages of every kind test_kept_pages.py asks.

Nothing is drawn again here: what a page carries is changed, and `check_data` must say where.
"""

import copy
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reports.page.embed import table_rows
from reports.page.write import render
from reports.verify.contributions import check_contributions
from reports.verify.effects import fitting_words, turned
from reports.verify.files import check_results
from reports.verify.optimum import check_optima
from reports.verify.page import Page, Printed, numbers, read_page
from reports.verify.rows import check_rows, compared_rows, outcomes_of
from reports.verify.verify import check_data
from tests.report_kinds import KINDS

IN_TABLE = (
    "budgets",
    "tokens",
    "rungs",
    "loose",
    "noisy",
    "watched",
    "confirmed",
    "one_run",
    "left_out",
    "ladder",
)
# what the second path leaves to drawing the page again
UNSEEN = {
    "budgets": {
        *("target.interval", "target.seconds", "time_to_target.effect"),
        *("time_to_target.interval", "time_to_target.p"),
    },
    "tokens": {
        *("target.interval", "target.seconds", "target.tokens_interval"),
        *("time_to_target.effect", "time_to_target.interval", "time_to_target.p"),
    },
    "watched": {"n.to_come"},
    "ladder": {  # some of its runs diverged and failed: a trimmed mean, ragged blocks
        *("n.failed", "n.stale", "own_val_loss.effect", "own_val_loss.interval"),
        *("own_val_loss.p", "step_ms.interval", "step_ms.p", "val_loss.effect"),
        *("val_loss.interval", "val_loss.p"),
    },
}
FOLDERS: dict[str, Path] = {}
PAGES: dict[str, Page] = {}


@pytest.fixture
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The page of a kind, with the folder of its results kept."""
    kind = request.param
    if kind not in PAGES:
        FOLDERS[kind] = tmp_path_factory.mktemp(kind)
        PAGES[kind] = read_page(render([KINDS[kind](FOLDERS[kind])]))
    return copy.deepcopy(PAGES[kind])


of = pytest.mark.parametrize  # the page of these kinds


def lie(value: float, printed: Printed, key: str) -> float:
    """By how much a number is changed: little more than what a page leaves off, or a share of its interval."""
    if key.endswith(".interval"):
        low, high = printed.values
        return 0.05 * (high - low) if low is not None and high is not None else 0.01
    if key.endswith(".effect"):
        return 4e-6
    if key.endswith(".p"):
        return 5e-3
    return 1.0 if key.startswith("n.") else 1e-3 * abs(value) or 1e-3


def lies(page: Page, rows: int) -> Iterator[tuple[str, str, bool]]:
    """(key, arm, whether it was named) of every number in the first rows, made larger and smaller."""
    names = [arm["name"] for arm in page.data["experiments"][0]["plan"]["arms"]]
    for (_, place), row in [*page.verdicts.items()][:rows]:
        for key, printed in [*row.items()]:
            for i, value in enumerate(printed.values):
                for sign in (1, -1) if value is not None else ():
                    values = [*printed.values]
                    values[i] = value + sign * lie(value, printed, key)
                    row[key] = replace(printed, values=tuple(values))
                    said = check_data(page, None)
                    named = [s for s in said if key in s and repr(names[place]) in s]
                    yield key, names[place], bool(named)
            row[key] = printed


@of("page", IN_TABLE, indirect=True)
def test_every_number_of_the_table_that_is_a_little_off_is_named(page: Page) -> None:
    kind = next(kind for kind in IN_TABLE if kind in PAGES and PAGES[kind].text == page.text)
    told = [*lies(page, rows=2)]
    missed = {key for key, _, named in told if not named and not key.startswith("n.")}
    missed |= {key for key, _, named in told if not named and key in UNSEEN.get(kind, ())}
    assert missed == UNSEEN.get(kind, set()) & {key for key, *_ in told}
    seen = {key for key, _, named in told if named}
    assert {"val_loss.mean", "step_ms.mean", "n.finished", "steps.mean"} <= seen


@of(
    ("page", "table", "n_seen"),
    [
        ("left_out", "attribution-val_loss", 12),  # value and both ends
        ("factorial", "attribution-val_loss", 17),
        ("grid", "optimum", 0),
        ("points", "optimum", 0),
    ],
    indirect=["page"],
)
def test_a_place_or_a_share_that_is_a_little_off_is_named(
    page: Page, table: str, n_seen: int
) -> None:
    (data,) = page.data["experiments"]
    arms = [arm["name"] for arm in data["plan"]["arms"]]
    compared = compared_rows(outcomes_of(data, table_rows(data["runs"])), arms, "loss")
    check = check_optima if table == "optimum" else check_contributions

    def found() -> list[str]:
        return [*check(page, 0, data["plan"], compared, raised=1.0, anytime=False)]

    carried = {key: text for key, text in page.carried.items() if key[1] == table}
    assert carried and found() == []
    n_named = n = 0
    for key, text in carried.items():
        numbers = text.split(",")
        for i, number in enumerate(numbers):
            if not number:
                continue
            told, value = [], float(numbers[0])
            for sign in (1, -1):
                other = float(number) + sign * max(1e-3, 0.02 * abs(float(number)))
                if table == "optimum" and i in (1, 2):  # an end is told where it is too close
                    other = (float(number) + value) / 2
                page.carried[key] = ",".join([*numbers[:i], repr(other), *numbers[i + 1 :]])
                told.append(bool(found()))
            page.carried[key] = text
            n += 1
            n_named += all(told)
            if i == 0:
                assert all(told), (key, number)
            elif table == "optimum" and i < 3:
                assert any(told), (key, number)
    assert n_named >= n_seen and n >= len(carried)
    for key in [*carried][:1]:
        del page.carried[key]
    assert found()


@of("page", ["grid"], indirect=True)
def test_where_sequences_are_shown_every_lowest_place_is_held_to_the_rows(page: Page) -> None:
    """Whose ends are the sequences' and are not."""
    (data,) = page.data["experiments"]
    arms = [arm["name"] for arm in data["plan"]["arms"]]
    compared = compared_rows(outcomes_of(data, table_rows(data["runs"])), arms, "loss")

    def found() -> list[str]:
        return [*check_optima(page, 0, data["plan"], compared, raised=1.0, anytime=True)]

    places = [key for key in page.carried if key[1] == "optimum"]
    assert len(places) > 1 and found() == []
    for key in places:
        honest = page.carried[key]
        value, *ends = honest.split(",")
        if not value:
            continue
        page.carried[key] = ",".join([repr(1.05 * float(value)), *ends])
        assert len(found()) == 1
        page.carried[key] = ",".join([value, value, value])
        assert found() == []
        page.carried[key] = honest


@of(
    ("page", "key", "metric"),
    [
        ("rungs", "own_val_loss.effect", "own_val_loss"),
        ("loose", "val_loss.interval", "val_loss"),
        ("noisy", "val_loss.interval", "val_loss"),
        ("left_out", "val_loss.interval", "val_loss"),
    ],
    indirect=["page"],
)
def test_what_is_not_printed_of_one_arm_hides_no_lie_about_another(
    page: Page, key: str, metric: str
) -> None:
    names = [arm["name"] for arm in page.data["experiments"][0]["plan"]["arms"]]
    first, *others = [place for place, row in page.verdicts.items() if key in row]
    del page.verdicts[first][key]
    for place in others:
        row = page.verdicts[place]
        interval = row[f"{metric}.interval"]
        row[f"{metric}.interval"] = replace(interval, values=longer(interval.values))
    said = check_data(page, None)
    for _, place in others:
        of_arm = f"split: arm {names[place]!r}: {metric}.interval "
        assert any(sentence.startswith(of_arm) for sentence in said), of_arm


WORDS = ("better", "worse", "faster", "slower", "undecided", "no difference larger than 0.01")


@of("page", ["loose", "noisy", "confirmed"], indirect=True)
def test_no_other_verdict_follows_from_an_interval(page: Page) -> None:
    n = 0
    for row in page.verdicts.values():
        if "verdict" not in row or row["verdict"].text == "baseline":
            continue
        honest = row["verdict"]
        for word in WORDS:
            row["verdict"] = replace(honest, text=word)
            said = [s for s in check_data(page, None) if "does not follow from the interval" in s]
            assert bool(said) != honest.text.startswith(word.split(" 0.")[0]), (honest.text, word)
            n += 1
        row["verdict"] = honest
    assert n >= len(WORDS)


@pytest.mark.parametrize(
    ("metric", "effect", "ends", "margin", "words"),
    [
        ("val_loss", -0.1, (-0.2, -0.01), None, ("better",)),
        ("val_loss", 0.1, (0.01, 0.2), None, ("worse",)),
        ("step_ms", -0.1, (-0.2, -0.01), None, ("faster",)),
        ("step_ms", 0.1, (0.01, 0.2), 1.0, ("slower",)),
        ("val_loss", -0.1, (-0.2, 0.0), None, ("better",)),  # cut at zero, where its sign is decided
        ("val_loss", 0.1, (0.0, 0.2), None, ("worse",)),
        ("val_loss", 0.0, (-0.2, 0.3), None, ("undecided", "too few runs")),
        ("val_loss", 0.0, (-0.2, None), None, ("undecided", "too few runs")),
        ("val_loss", 0.0, (-0.2, 0.3), 0.1, ("undecided", "too few runs")),
        ("val_loss", 0.0, (-0.2, 0.3), 0.5, ("no difference larger than",)),
        ("val_loss", 0.0, (-0.3, 0.2), 0.5, ("no difference larger than",)),
        ("step_ms", 0.0, (-0.2, 0.3), 0.1, ("no difference larger than", "undecided", "too few runs")),
    ],
)  # fmt: skip
def test_the_words_that_fit_an_interval(
    metric: str,
    effect: float,
    ends: tuple[float | None, float | None],
    margin: float | None,
    words: tuple[str, ...],
) -> None:
    printed = Printed(text="", values=(effect,))
    assert fitting_words(metric, printed, Printed(text="", values=ends), margin) == words
    without = fitting_words(metric, printed, None, margin)
    assert without == ("too few runs", "no error estimate", "undecided", "not judged")
    back = turned(Printed(text="x", values=(1.0, None, -2.0)))
    assert (back.text, back.values) == ("x", (2.0, None, -1.0))


# ---------------------------------------------------------------- lies everywhere, word for word


BESIDE = (
    *("ladder", "factorial", "left_out", "grid", "points", "noisy"),
    *("evidence", "records"),
)
BY = 1.03  # a lie is so many times the truth
DECIMAL = re.compile(r"\d+\.(\d+)")
LONG = re.compile(r"\d+\.\d{6,}(e[-+]\d+)?")  # of which processors share the first digits
TURNED = {"better": "worse", "worse": "better", "faster": "slower", "slower": "faster"}
SETTING = re.compile(r"(differs|sets|recipe)\b")


def all_said(page: Page) -> str:
    said = check_data(page, None)
    return "\n".join(LONG.sub(lambda number: f"{float(number[0]):.5g}", line) for line in said)


def longer(values: tuple[float | None, ...]) -> tuple[float | None, ...]:
    return tuple(None if value is None else BY * value for value in values)


def retold(key: str, sentence: str) -> str:
    """The sentence with other decimals; of a setting another value."""
    if SETTING.match(key):
        return f"{sentence}0"
    return DECIMAL.sub(lambda n: f"{BY * float(n[0]):.{len(n[1])}f}", sentence)


@of("page", IN_TABLE, indirect=True)
def test_a_table_of_other_numbers_and_words_is_told_cell_by_cell(
    page: Page, kept_line: Callable[[str], None]
) -> None:
    for row in page.verdicts.values():
        for key, printed in row.items():
            text = TURNED.get(printed.text, printed.text)
            row[key] = replace(printed, text=text, values=longer(printed.values))
    kept_line(all_said(page))


@of("page", BESIDE, indirect=True)
def test_other_numbers_beside_the_table_are_told_one_by_one(
    page: Page, kept_line: Callable[[str], None]
) -> None:
    for place, text in page.carried.items():
        if re.fullmatch(r"[-+.,e\d]+", text):
            lies = longer(numbers(text))
            page.carried[place] = ",".join("" if lie is None else repr(lie) for lie in lies)
    for where, sentence in page.sentences.items():
        page.sentences[where] = retold(str(where[1]), sentence)
    kept_line(all_said(page))


# ---------------------------------------------------------------- the headline


@of(
    ("page", "old", "new"),
    [
        ("noisy", "2 layers", "3 layers"),
        ("noisy", "300 steps", "301 steps"),
        ("noisy", "300 steps, ", ""),
        ("noisy", "300 steps", "300 steps, 9 layers"),
        ("noisy", "(−0.0", "(−0.1"),
        ("confirmed", " is worse than", " is better than"),
        ("noisy", " are better than", " are worse than"),
    ],
    indirect=["page"],
)
def test_a_headline_that_says_otherwise_than_table_and_settings_is_named(
    page: Page, old: str, new: str
) -> None:
    answer = page.sentences[0, "answer"]
    assert old in answer
    page.sentences[0, "answer"] = answer.replace(old, new, 1)
    assert any("the headline" in sentence for sentence in check_data(page, None))


@of("page", ["evidence"], indirect=True)
def test_every_interval_of_published_rows_and_every_number_of_their_headline_is_held_to_the_rows(
    page: Page,
) -> None:
    n = 0
    for row in page.verdicts.values():
        printed = row.get("evidence.loss_interval")
        for i in range(len(printed.values)) if printed else ():
            values = [*printed.values]
            values[i] += 3e-6
            row["evidence.loss_interval"] = replace(printed, values=tuple(values))
            assert any("loss interval" in sentence for sentence in check_data(page, None))
            row["evidence.loss_interval"] = printed
            n += 1
    assert n >= 4
    answer = page.sentences[0, "answer"]
    for number in re.finditer(r"\([+−]0\.\d{3}(\d) \[", answer):
        other = str((int(number[1]) + 2) % 10)
        page.sentences[0, "answer"] = f"{answer[: number.start(1)]}{other}{answer[number.end(1) :]}"
        assert any("the headline says" in sentence for sentence in check_data(page, None)), number
        n += 1
    assert n > 6


# ---------------------------------------------------------------- rows and files


def changed(page: Page, change: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    data = copy.deepcopy(dict(page.data["experiments"][0]))
    rows = [dict(row) for row in table_rows(data["runs"])]
    change(data, rows)
    return data, rows


def finished(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return next(row for row in rows if row["status"] == "finished" and not row["stale"])


def unplanned(data: Any, rows: Any) -> None:
    rows.append({**finished(rows), "run_id": "0" * 16})
    data["results"]["0" * 16] = {}


def no_loss(data: Any, rows: Any) -> None:
    finished(rows)["val_loss"] = None


def later(column: str, by: float) -> Any:
    def change(data: Any, rows: Any) -> None:
        finished(rows)[column] += by

    return change


ROWS = {  # what is done -> what is said
    "a row is gone": (lambda data, rows: rows.remove(finished(rows)), "planned but has no row"),
    "a row too many": (unplanned, "has a row but is not planned"),
    "no result": (
        lambda data, rows: data["results"].pop(finished(rows)["run_id"]),
        "is finished but has no result",
    ),
    "another arm": (
        lambda data, rows: finished(rows).update(arm="x"),
        "is not planned for arm 'x'",
    ),
    "another loss": (later("val_loss", 1.1e-6), "is not the last point of its curve"),
    "another time": (later("train_time_s", 1.1e-4), "is not the last point of its curve"),
    "no loss": (no_loss, "is not the last point of its curve"),
}


@pytest.mark.parametrize("what", ROWS)
@of("page", ["ladder"], indirect=True)
def test_a_row_that_is_not_its_plans_or_its_curves_is_named(page: Page, what: str) -> None:
    assert [*check_rows(*changed(page, lambda data, rows: None))] == []
    change, said = ROWS[what]
    found = [*check_rows(*changed(page, change))]
    assert any(said in sentence for sentence in found), found


def curve(column: str, place: int, by: float) -> Any:
    def change(data: Any, rows: Any) -> None:
        data["curves"][finished(rows)["run_id"]][column][place] += by

    return change


def steps_of(change_of: Any) -> Any:
    def change(data: Any, rows: Any) -> None:
        change_of(data["step_times"][finished(rows)["run_id"]])

    return change


def one_less(times: list[float]) -> None:
    times[0] -= 1


def slower(times: list[float]) -> None:
    times[-2] += 1.1e-3


FILES = {
    **{
        f"another {column}": (later(column, by), f"{column} is ")
        for column, by in (
            *(("val_loss", 1e-9), ("train_time_s", 1e-9), ("step_ms", 1e-9), ("steps", 1)),
            *(("tokens", 1), ("peak_allocated_mib", 1e-6)),
        )
    },
    "another status": (lambda d, rows: finished(rows).update(status="diverged"), "status is "),
    "a loss in the middle": (curve("val_loss", 1, 1.1e-6), "the curve's val_loss"),
    "a time in the middle": (curve("train_time_s", 1, -1.1e-4), "the curve's train_time_s"),
    "a point less": (
        lambda data, rows: data["steps"][data["curves"][finished(rows)["run_id"]]["step"]].pop(),
        "the curve's step",
    ),
    "a step less": (steps_of(one_less), "the step times on the page"),
    "a slower step": (steps_of(slower), "the step times on the page"),
    "no step times": (
        lambda data, rows: data["step_times"].pop(finished(rows)["run_id"]),
        "the step times on the page",
    ),
    "another digest": (
        lambda data, rows: data["result_digests"].update({finished(rows)["run_id"]: "0"}),
        "result.json is not the one",
    ),
}


@pytest.mark.parametrize("what", FILES)
@of("page", ["ladder"], indirect=True)
def test_what_the_files_of_a_run_do_not_say_is_named(page: Page, what: str) -> None:
    results = FOLDERS["ladder"]
    change, said = FILES[what]
    data, rows = changed(page, change)
    found = [*check_results(data, rows, results)]
    run = finished([dict(row) for row in table_rows(page.data["experiments"][0]["runs"])])
    assert any(said in s and run["run_id"] in s for s in found), found
    assert len(found) <= 2 or what == "a point less"  # which all runs of a length share


@of("page", ["ladder"], indirect=True)
def test_of_every_run_the_files_are_read(page: Page, tmp_path: Path) -> None:
    def longer_runs(data: Any, rows: Any) -> None:
        for row in rows:
            row["steps"] = 999

    data, rows = changed(page, longer_runs)
    for with_curves in (True, False):
        found = [*check_results(data, rows, FOLDERS["ladder"], with_curves=with_curves)]
        assert sorted(found) == sorted(
            f"run {run_id}: steps is 999 on the page and 300 in result.json"
            for run_id in data["results"]
        )
    other = shutil.copytree(FOLDERS["ladder"], tmp_path / "other")
    for metrics in other.glob("runs/*/metrics.jsonl"):
        metrics.write_text("{}")
    found = [*check_results(*changed(page, lambda data, rows: None), other)]
    wrong = [s for s in found if "metrics.jsonl is not the file that the run wrote" in s]
    assert len(wrong) == len(found) == len(data["results"]) > 10


@of("page", ["ladder"], indirect=True)
def test_the_files_say_what_the_page_says(page: Page) -> None:
    assert [*check_results(*changed(page, lambda data, rows: None), FOLDERS["ladder"])] == []
