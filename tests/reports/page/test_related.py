"""A page knows who asked its question again, and why its two changes of a step time are not one."""

import re
from dataclasses import replace

import pytest

from reports.analysis.compare import compare_all
from reports.inputs.load import load
from reports.page.asking import asked_steps
from reports.page.by_design import ByDesign
from reports.page.next_run import next_of_verdicts
from reports.page.ratios import ratio_notes
from reports.page.related import CONFIRMED, CONFIRMS, related, with_pages
from reports.page.write import write_report
from reports.verify.page import read_page
from reports.verify.ratios import check_ratios
from reports.verify.verify import verify
from tests.report_arms import LADDER
from tests.report_fixtures import write_experiment

OTHER = LADDER[2].name


@pytest.fixture
def made(tmp_path):
    write_experiment(tmp_path, arms=LADDER[:3], n_seeds=3, design="add-one")
    return load("split", tmp_path)


def remembering(made, **names):
    return replace(made, memory=replace(made.memory, **names))


@pytest.mark.parametrize(("key", "words"), [("confirmed_by", CONFIRMED), ("confirms", CONFIRMS)])
def test_a_page_names_who_asked_the_same_and_links_the_page_that_is_there(
    made, tmp_path, key, words
):
    asked = remembering(made, **{key: ("other", "third")})
    (tmp_path / "experiments" / "other").mkdir()
    (tmp_path / "experiments" / "other" / "report.html").write_text("a page")
    out = tmp_path / "experiments" / "split" / "report.html"
    text = write_report([asked], out, results=tmp_path).read_text()
    assert f'{words} <a href="../other/report.html">other</a>, third.</p>' in text
    assert verify(out) == []
    (tmp_path / "third.html").write_text("a page")
    beside = write_report([asked], tmp_path / "page.html", results=tmp_path)
    linked = '<a href="experiments/other/report.html">other</a>, <a href="third.html">third</a>.'
    assert linked in beside.read_text()
    beside.write_text(beside.read_text().replace(f"{words} ", "Nobody asked "))
    assert any("related" in sentence for sentence in verify(beside))


def test_a_page_without_another_says_nothing_of_one(made, tmp_path):
    assert related(made) == []
    page = write_report([made], tmp_path / "page.html")
    assert 'data-key="related"' not in page.read_text()


@pytest.mark.parametrize("address", ["javascript:alert(1)//.html", "//evil/x.html", "/etc/x.html"])
def test_no_link_leads_away_from_the_folder(made, tmp_path, address):
    forged = replace(remembering(made, confirmed_by=("other",)), pages={"other": address})
    [told] = related(forged)
    assert told.pages == {"other": ""}
    assert with_pages(forged, tmp_path / "page.html", tmp_path).pages == {}


def test_what_was_asked_again_is_not_asked_a_third_time(made):
    outcome = compare_all(made)
    by_design = ByDesign.of(made, outcome)
    assert "ablate confirm" in next_of_verdicts(made, outcome, by_design)
    again = next_of_verdicts(remembering(made, confirmed_by=("other",)), outcome, by_design)
    assert "What to run next: nothing before what other says, which asked again" in again
    assert [*asked_steps(outcome)] == [*asked_steps(compare_all(made))]


def test_means_that_are_apart_from_the_ratio_within_blocks_are_explained(made, tmp_path):
    assert [*ratio_notes(compare_all(made))] == []
    arms, blocks = made.runs["arm"], made.runs["block"]
    is_slow = ((arms == "untied_head") & (blocks == 0)) | ((arms == OTHER) & (blocks == 1))
    slow = made.runs["step_ms"].where(~is_slow, made.runs["step_ms"] * 3)
    shared = replace(made, runs=made.runs.assign(step_ms=slow))
    [note] = ratio_notes(compare_all(shared))
    base = made.plan.baseline
    lead, _, rest = note.partition(f"Off {base}'s step time by the means in ms and by Δ: ")
    assert lead == "" and "it is Δ that" in rest
    said = re.findall(r"(?:^|; )(.+?) (\S+) % and (\S+) %", rest)
    assert {arm for arm, *_ in said} == {"untied_head", OTHER}
    page = write_report([shared], tmp_path / "page.html")
    text = page.read_text()
    assert [*check_ratios(read_page(page), 0, read_page(page).data["experiments"][0]["plan"])] == []
    for arm, *printed in said:
        for place, one in enumerate(printed):
            lies = [*printed]
            lies[place] = f"{float(one) + 1:+.1f}"
            told, lie = (f"{arm} {a} % and {b} %" for a, b in (printed, lies))
            page.write_text(text.replace(told, lie))
            read = read_page(page)
            found = [*check_ratios(read, 0, read.data["experiments"][0]["plan"])]
            assert len(found) == 1 and lies[place] in found[0] and arm in found[0], (told, found)
