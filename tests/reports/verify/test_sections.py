"""One printed digit or word changed in any section of a page is found, and the section is named."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reports.inputs.load import load
from reports.inputs.published_experiments import published_experiment
from reports.page.embed import page_digest
from reports.page.write import write_report
from reports.verify import optimum
from reports.verify.files import RECORDED, TIMES, check_result
from reports.verify.headline import check_counted_arms
from reports.verify.rendered import differing_drawing
from reports.verify.verify import verify
from tests.report_fixtures import write_experiment

# key of a sentence or a number -> what is changed in it, and into what
OF_RUNS = {
    "answer": (r"\d(?=[^\d]*$)", "digit"),
    "scope": ("does not follow", "follows"),
    "next_run": ("What to run next", "What was run next"),
    "recipe.steps": (r"\d$", "digit"),
    "recipe.commit": (r"\d(?=\D*$)", "digit"),
    "recipe.unknown": ("width", "depth"),
    "differences.lead": ("300", "301"),
    "differs model.zero_head 0": ("off", "on"),
    "val_loss.mean": (r"\d$", "digit"),
    "citation": ("version", "edition"),
}
OF_EVIDENCE = {
    "answer": (r"\d(?= of| hold)|(?<=\[−\d\d\.)\d", "digit"),
    "scope": ("in another", "in each other"),
    "next_run": (r"\d(?= GPU-hours)", "digit"),
    "recipe.device": (r"\d", "digit"),
    "differences.lead": ("unknown", "known"),
}


def forged(text: str, key: str, pattern: str, into: str) -> str:
    """The page with one digit or word of the first piece with this key changed."""
    start = text.index(f'data-key="{key}"')
    start = text.index(">", start) + 1
    ends = r"</p>" if key == "answer" else r"</(?:p|dd|td|span|strong|code></pre)>"
    end = re.compile(rf"{ends}|<strong>.*?</strong>").search(text, start).end()
    piece = text[start:end]
    inner = re.sub(r"<[^>]*>", lambda m: "\0" * len(m[0]), piece)  # markup is left as it is
    spot = re.search(pattern.replace("$", r"(?=\0*$)"), inner)
    assert spot is not None, (key, piece)
    other = str((int(spot[0]) + 1) % 10) if into == "digit" else into
    return text[: start + spot.start()] + other + text[start + spot.end() :]


def found_of(page: Path, lies: dict[str, tuple[str, str]]) -> list[str]:
    """What verification says of a page with all of these lies."""
    text = page.read_text(encoding="utf-8")
    for key, (pattern, into) in lies.items():
        text = forged(text, key, pattern, into)
    lie = page.with_name("lie.html")
    lie.write_text(text, encoding="utf-8")
    return verify(lie)


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    folder = tmp_path_factory.mktemp("sections")
    write_experiment(folder, n_seeds=3)
    runs = write_report([load("split", folder)], folder / "runs.html")
    evidence = write_report([published_experiment("ladder")], folder / "evidence.html")
    assert verify(runs) == [] and verify(evidence) == []
    return {"runs": found_of(runs, OF_RUNS), "evidence": found_of(evidence, OF_EVIDENCE)}


@pytest.mark.parametrize(
    ("page", "key"),
    [*(("runs", key) for key in OF_RUNS), *(("evidence", key) for key in OF_EVIDENCE)],
)
def test_a_changed_digit_or_word_of_a_section_is_found(said, page, key):
    assert any(key in sentence for sentence in said[page]), said[page]


def test_a_drawing_with_fewer_elements_than_the_rows_give_differs() -> None:
    printed = [("text", "1")]
    for options in ([[*printed, ("text", "2")]], [[("line", "1")]]):
        (said,) = differing_drawing("a figure", printed, options)
        assert said == "a figure differs: it has other elements than the rows give"
    assert [*differing_drawing("a figure", printed, [printed])] == []


def test_a_run_whose_machine_stood_still_has_no_times_and_is_judged_by_all_else() -> None:
    """Its times are not on the page; the first that is missing does not end the comparison."""
    result = {key: 1 for key in RECORDED} | {"disturbed": [{"kind": "still"}]}
    row = result | dict.fromkeys(TIMES)
    kept = [key for key in RECORDED if key not in TIMES]
    assert any(RECORDED.index(time) < RECORDED.index(key) for time in TIMES for key in kept)
    data: dict[str, Any] = {"result_digests": {"r": page_digest(result)}}
    for key in kept:
        changed = check_result(data, "r", {**row, key: 2}, Path("nowhere"), result)
        assert next(iter(changed)) == f"run r: {key} is 2 on the page and 1 in result.json"


def test_counts_of_a_headline_are_held_against_the_table() -> None:
    verdicts = ["better", "worse", "worse", "undecided"]
    sound = "2 of 4 arms are worse than the baseline, 1 is better than it; 1 is undecided."
    assert [*check_counted_arms(sound, verdicts)] == []
    said = [*check_counted_arms("3 of 4 arms are worse than the baseline.", verdicts)]
    assert said == ["the headline counts 3 arms that are worse, the table 2"]
    assert [*check_counted_arms("None of 4 arms are better than it.", verdicts)] == [
        "the headline counts 0 arms that are better, the table 1"
    ]


def test_signs_at_points_are_checked_of_arms_before_the_baseline_in_the_alphabet_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(optimum, "point_effects", lambda *_: [-0.5, -0.25])
    plan = {
        "baseline": "baseline",
        "arms": [{"name": "baseline", "of": "baseline"}, {"name": "adamw", "of": "adamw"}],
    }
    words = (
        "adamw against baseline at the same point: better at every one of 2, least by −0.1000 [x]."
    )
    page: Any = SimpleNamespace(sentences={(0, "answer"): words})
    said = [*optimum.check_signs(page, 0, plan, [])]
    assert said[0].startswith("adamw: the headline says −0.1000 at a point")


def test_a_digest_of_a_page_does_not_ask_in_which_order_things_were_named() -> None:
    assert page_digest({"a": 1, "b": {"c": 2, "d": 3}}) == page_digest(
        {"b": {"d": 3, "c": 2}, "a": 1}
    )
    assert page_digest({"a": 1}) != page_digest({"a": 2})
