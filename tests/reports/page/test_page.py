"""The page: what it says, that nothing foreign gets out of its text, and that its tables and figures follow the runs."""

import itertools
import json
import re
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from reports.analysis.recipe import Recipe
from reports.format import interval, show, significant, visible
from reports.inputs.load import load
from reports.inputs.published_experiments import published_experiment
from reports.page.citation import citation
from reports.page.embed import (
    embed_table,
    plain,
    restore_experiment,
    restore_table,
    script_json,
)
from reports.page.version import VERSION
from reports.page.write import render, write_report
from reports.verify.page import Page, read_page
from reports.verify.verify import verify
from tests.report_arms import HOSTILE, LADDER, many_arms
from tests.report_fixtures import write_experiment

R09 = ["value_residual", "learned_value_residual", "embed_shortcut", "momentum_warmup", "softcap"]
SMALL = {"arms": LADDER[:2], "n_seeds": 3, "design": "add-one"}
TROUBLE = {
    "arms": LADDER,
    "n_seeds": 4,
    "n_nodes": 2,
    "outcome": {
        ("r07", 3): "diverged",
        ("untied_head", 2): "failed",
        ("r08", 3): "oom",
        ("r08", 2): "pending",
    },
    "stale": [("r08", 0)],
}


MADE: dict[str, str] = {}  # the same experiment gives the same page: each is drawn once


def page_text(tmp_path: Path, **how) -> str:
    key = repr(sorted(how.items()))
    if key not in MADE:
        write_experiment(tmp_path, **how)
        MADE[key] = render([load(how.get("name", "split"), results=tmp_path)])
    return MADE[key]


def page_of(tmp_path: Path, **how) -> Page:
    return read_page(page_text(tmp_path, **how))


def test_every_arm_has_a_verdict_in_words_and_its_measured_loss(tmp_path):
    page = page_of(tmp_path)
    assert page.verdicts[0, 0]["verdict"].text == "baseline"
    for place in range(1, len(LADDER)):
        row = page.verdicts[0, place]
        assert row["verdict"].text
        assert (
            row["val_loss.interval"].values[0]
            <= row["val_loss.effect"].values[0]
            <= row["val_loss.interval"].values[1]
        )


def test_the_headline_names_the_arms_that_help(tmp_path):
    answer = page_of(tmp_path, design="add-one").sentences[0, "answer"]
    assert answer.startswith("Exploratory: ")
    assert "better than r07" in answer


def test_the_headline_says_in_what_an_arm_is_no_different(tmp_path):
    arms = [LADDER[0], replace(LADDER[1], name="quick", loss_effect=0.0, step_factor=0.5)]
    page = page_of(tmp_path, arms=arms, n_seeds=8, design="add-one", sd=1e-4)
    answer = page.sentences[0, "answer"]
    said = r"quick \(\S+ \[\S+, \S+\]\) shows no difference that matters in validation loss"
    assert re.search(rf"{said} \(nats per byte\)\.$", answer), answer


@pytest.mark.slow
def test_what_weakens_a_verdict_stands_beside_it(tmp_path):
    page = page_of(tmp_path, **TROUBLE)
    said = [words for (_, kind, *_), words in page.sentences.items() if kind == "facts"]
    assert "exploratory" in said
    assert any(s.startswith("1 stale run left out: optim/muon.py") for s in said)
    assert any(s.startswith("locked plan") for s in said)
    assert "2 nodes" in said
    assert any("anytime-valid" in s for s in said)
    confirmed = page_of(tmp_path / "other", confirm=True)
    assert "confirmed on fresh seeds" in [
        words for (_, kind, *_), words in confirmed.sentences.items() if kind == "facts"
    ]


def test_runs_that_did_not_finish_are_listed_with_their_status(tmp_path):
    page = page_of(tmp_path, **TROUBLE)
    unfinished = [words for (_, *kind), words in page.rows.items() if kind[0] == "unfinished"]
    assert len(unfinished) == 3
    for words, *said in zip(  # the outcome among them first, then in the order of the runs
        unfinished,
        ("r073diverged", "untied_head2failed", "r083oom"),
        ("val_loss is not finite at step 300", "RuntimeError: <boom>", "out of memory: tried"),
        strict=True,
    ):
        assert [part in words for part in said] == [True, True], words
    assert "1 diverged, rate 25 %" in page.verdicts[0, 0]["n.diverged"].text


def test_an_experiment_without_a_finished_run_gives_a_page_that_says_so(tmp_path):
    pending = {(a.name, s): "pending" for a in SMALL["arms"] for s in range(3)}
    text = page_text(tmp_path, **SMALL, outcome=pending)
    assert "No run has finished yet, so there is no answer." in text
    assert "There is nothing to draw yet" in text
    assert "6 of 6 planned runs were still to come" in text


def test_runs_that_are_stale_alone_are_not_called_unfinished(tmp_path):
    old = [(a.name, s) for a in SMALL["arms"] for s in range(3)]
    answer = read_page(page_text(tmp_path, **SMALL, stale=old)).sentences[0, "answer"]
    assert "No run has finished" not in answer
    assert "of an older source" in answer and "--accept-stale" in answer


@pytest.mark.parametrize("n_arms", [2, 3])  # without an interval, and with that of the others
def test_an_arm_that_is_the_baseline_in_every_bit_is_called_so(tmp_path, n_arms):
    write_experiment(tmp_path / "r", arms=LADDER[:n_arms], n_seeds=4, design="add-one")
    made = load("split", tmp_path / "r")
    runs = made.runs.sort_values(["arm", "seed"])
    same = runs["arm"] == "untied_head"
    runs.loc[same, "val_loss"] = runs.loc[runs["arm"] == "r07", "val_loss"].to_numpy()
    page = write_report([replace(made, runs=runs)], tmp_path / "page.html")
    answer = read_page(page).sentences[0, "answer"]
    assert "untied_head (0.0000, bit for bit equal) shows no difference" in answer
    assert "Equal bit for bit at every seed" in page.read_text()
    assert "equal to the last digit" not in page.read_text()
    assert [line for line in verify(page) if "of its curve" not in line] == []
    of_scripts = replace(made, runs=runs, plan=replace(made.plan, foreign=True))
    assert "bit for bit" not in render([of_scripts])  # their logs have few digits
    off = runs.index[same][0]
    runs.loc[off, "val_loss"] += 1e-15
    assert "bit for bit" not in render([replace(made, runs=runs)])


def test_no_line_of_the_answer_ends_between_a_number_and_its_percent():
    text = render([published_experiment("r09_ladder")])
    answer = re.sub("<[^>]*>", "", re.search(r'data-key="answer">(.*?)</p>', text)[1])
    assert "9\u00a0% more time" in answer and " %" not in answer
    assert "[−0.0274,\u00a0+0.0018]" in answer, "nor within an interval"


def test_a_word_is_explained_once(tmp_path):
    text = page_text(tmp_path)
    words = re.findall(r"<dt>(.*?)</dt>", text[text.index('id="words-0"') :])
    assert "loss" in words and len(set(words)) == len(words)


def test_hostile_names_are_text_everywhere(tmp_path):
    text = page_text(tmp_path, arms=HOSTILE, n_seeds=3, design="add-one")
    assert text.count("<script") == 2, "the data and the page's own script"
    assert text.count("</script") == 2
    assert "<b>bold" not in text
    assert "<i>x" not in text
    assert 'onload="alert' not in text
    assert "\u202e" not in text
    assert "\u2028" not in text
    assert "49" not in read_page(text).verdicts[0, 2]["verdict"].text
    data = read_page(text).data["experiments"][0]
    assert [a["name"] for a in data["plan"]["arms"]] == [a.name for a in HOSTILE], (
        "the data keep the names as they are"
    )


def test_a_page_asks_no_network_for_anything(tmp_path):
    text = page_text(tmp_path)
    assert not re.search(r"""(?:src|href|action)\s*=\s*["']?(?:https?:)?//""", text)
    assert not re.search(r"url\(\s*[\"']?(?!data:)", text)
    assert "@import" not in text
    assert "default-src 'none'" in text


def test_every_heading_below_the_first_has_a_link_to_itself(tmp_path):
    text = page_text(tmp_path, **SMALL)
    headings = re.findall(r"<(h[23])[^>]*>(.*?)</\1>", text, re.DOTALL)
    assert len(headings) > 10
    ids = set(re.findall(r' id="([^"]+)"', text))
    targets = [
        re.search(r'<a class="anchor" href="#([^"]+)" aria-label=', h)[1] for _, h in headings
    ]
    assert set(targets) <= ids
    assert len(set(targets)) == len(targets)


def test_the_citation_names_version_date_code_and_data(tmp_path):
    cited = page_of(tmp_path, **SMALL).sentences[0, "citation"]
    for part in (
        "@misc{split, title = {Which part of record 8 made it faster?}",
        f"version = {{{VERSION}}}",
        "date = {2026-01-05}, year = {2026}",
        f"data digest {'f' * 64}",
        f"source digest {'c1' * 8}",
    ):
        assert part in cited, part
    assert cited.count("{") == cited.count("}")
    root = Path(__file__).resolve().parents[3]
    assert f'version = "{VERSION}"' in (root / "pyproject.toml").read_text()
    assert f"version: {VERSION}\n" in (root / "CITATION.cff").read_text()


def test_no_brace_of_a_question_ends_a_field_of_the_citation(tmp_path):
    """BibTeX counts them without heed of a backslash."""
    write_experiment(tmp_path, **SMALL)
    experiment = load("split", results=tmp_path)
    asked = replace(experiment.plan, question=r"Is {it} }, note = {x faster \} {{ 100 % _?")
    cited = citation(Recipe.of(replace(experiment, plan=asked), None)).splitlines()
    (title,) = [line for line in cited if line.startswith("  title = {")]
    text = title.removeprefix("  title = ").removesuffix(",")
    depths = [*itertools.accumulate({"{": 1, "}": -1}.get(one, 0) for one in text)]
    assert min(depths[:-1]) > 0 == depths[-1]


@pytest.mark.slow
def test_the_same_experiment_gives_the_same_bytes(tmp_path):
    write_experiment(tmp_path)
    experiment = load("split", results=tmp_path)
    assert render([experiment]) == render([experiment])


def test_a_page_can_be_made_again_from_its_own_data(tmp_path):
    text = page_text(tmp_path, **TROUBLE)
    assert render([restore_experiment(d) for d in read_page(text).data["experiments"]]) == text


def test_every_figure_has_a_text_alternative_and_its_data(tmp_path):
    text = page_text(tmp_path)
    page = read_page(text)
    figures = page.data["experiments"][0]["figures"]
    drawn = re.findall(r'<svg class="(?:wide|narrow)".*?aria-labelledby="(\S+) (\S+)">', text)
    assert len(drawn) == 2 * len(figures)
    for title, description in drawn:
        assert len(re.search(f'<title id="{title}">(.*?)</title>', text)[1]) > 5
        assert len(re.search(f'<desc id="{description}">(.*?)</desc>', text)[1]) > 20
    runs = page.data["experiments"][0]["runs"]
    for name, table in figures.items():
        table = figures[table.get("same_as", name)]
        if "runs" in table:
            assert set(table["columns"]) <= set(runs["columns"]), name
            assert {0 <= place < len(runs["rows"]) for place in table["runs"]} == {True}, name
        else:
            assert table["rows"], name
            assert {len(row) for row in table["rows"]} == {len(table["columns"])}, name


def test_figures_that_carry_the_answer_stand_first_and_the_rest_in_a_closed_appendix(tmp_path):
    text = page_text(tmp_path)
    first, rest = text.split('<details class="appendix">')
    keys = re.findall(r'<figure id="(\w+)-0">', first)
    assert keys == ["increments_val_loss", "forest_val_loss", "seeds", "loss_by_step", "scatter"]
    assert 'id="waterfall_train_time_s-0"' in rest and 'id="step_ms-0"' in rest


@pytest.mark.slow
def test_many_arms_have_the_colour_of_their_verdict_and_a_label_of_their_own(tmp_path):
    long = (
        "a_name_that_is_far_too_long_for_the_margin_of_a_figure_and_differs_in_its_{}th_part_alone"
    )
    arms = [replace(arm, name=long.format(i)) if i else arm for i, arm in enumerate(many_arms(14))]
    text = page_text(tmp_path, arms=arms, n_seeds=3, design="add-one")
    forest = re.search(r'<figure id="forest_val_loss-0">.*?</figure>', text, re.S)[0]
    assert set(re.findall(r'class="series (\S+)"', forest)) <= {
        "v-good",
        "v-bad",
        "v-even",
        "v-open",
    }
    labels = re.findall(
        r'class="label">([^<]+)<', re.search('<svg class="wide.*?</svg>', forest, re.S)[0]
    )
    assert len(labels) == 13 and len(set(labels)) == 13
    rows = read_page(text).verdicts
    order = [int(n) for n in re.findall(r'<tr(?: class="baseline")? data-arm="(\d+)"', text)][1:]
    effects = [rows[0, place]["val_loss.effect"].values[0] for place in order]
    assert effects == sorted(effects), "those that help most come first"
    better, worse = read_page(text).sentences[0, "answer"].split("; ")[:2]
    for clause, counted in ((better, "5 of 13 arms are better"), (worse, "5 are worse")):
        named = [abs(number(words)) for words in re.findall(r"\(([−+]\S+) \[", clause)]
        assert named == sorted(named, reverse=True) and len(named) == 2, "the largest are named"
        assert f"{counted} than base" in clause


def number(printed: str) -> float:
    return float(printed.replace("−", "-"))


def test_a_term_has_its_meaning_beside_it_and_every_section_its_link(tmp_path):
    text = page_text(tmp_path)
    assert re.search(
        r'<dfn tabindex="0" data-tip="How far the baseline[^"]+">noise floor</dfn>', text
    )
    for anchor in re.findall(r'<li><a href="#([^"]+)">', text):
        assert f'id="{anchor}"' in text


def test_two_runs_make_no_noise_floor(tmp_path):
    said = page_of(tmp_path, n_seeds=2).sentences.values()
    assert any(words.endswith("too few for a noise floor") for words in said)


def test_a_ladder_shows_the_waterfall_and_other_designs_do_not(tmp_path):
    assert ("waterfall_train_time_s-0",) in page_of(tmp_path).drawings
    assert ("waterfall_train_time_s-0",) not in page_of(tmp_path / "small", **SMALL).drawings


def test_one_of_a_thing_is_not_spoken_of_as_several(tmp_path):
    text = re.sub("</?dfn.*?>", "", page_text(tmp_path, **SMALL))
    assert re.search(r"\b1 node\b", text)
    assert re.search(r"\b1 look\b", text)
    several = r"\b1 (?:more |fresh )?(?:seeds|runs|arms|blocks|nodes|looks)\b"
    assert re.findall(several, text) == []


def test_many_arms_are_rows_of_what_differs_and_few_are_columns(tmp_path):
    few, many = ladder_differences(tmp_path / "few", 8), ladder_differences(tmp_path / "many", 9)
    assert few.count('<th scope="col">change_') == 7
    assert many.count('<th scope="col">change_') == 0
    assert re.search(
        r"<code>model\.field_03</code> <strong data-key=\"[^\"]*\">on</strong> <span class=\"other\">\(off\)</span>",
        many,
    )


def test_a_ladder_s_settings_stand_in_the_order_of_its_rungs(tmp_path):
    own = page_text(tmp_path)
    published = render([published_experiment("r09_ladder")])
    in_order = ["untied_head", "embed_norm", "zero_head", "split"]
    for text, fields in ((own, in_order), (published, R09)):
        section = re.search(r'id="differences-0".*?</section>', text, re.S)[0]
        assert re.findall(r"<code>\w+\.(\w+)</code>", section) == fields
    on = re.findall(r'data-key="differs r09\.\w+ (\d)"><strong>on</strong>', section)
    assert on == [str(arm) for rung in range(1, 6) for arm in range(rung, 6)]


def ladder_differences(root: Path, n_arms: int) -> str:
    """The section on what differed, of a page of so many arms."""
    return re.search(
        r'id="differences-0".*?</section>', page_text(root, arms=many_arms(n_arms), n_seeds=1), re.S
    )[0]


def test_an_arm_has_one_colour_everywhere(tmp_path):
    text = page_text(tmp_path)
    for place, css in enumerate(("c0", "c1", "c2", "c3", "c4")):
        groups = re.findall(rf'<g class="series (c\d)" data-arm-group="{place}">', text)
        assert groups
        assert set(groups) == {css}


def test_several_experiments_share_a_page_without_sharing_an_id(tmp_path):
    for name in ("one", "two"):
        write_experiment(tmp_path, name=name, **SMALL)
    text = render([load(n, results=tmp_path) for n in ("one", "two")])
    ids = re.findall(r'\sid="([^"]+)"', text.split('<script type="application/json"')[0])
    assert len(ids) == len(set(ids))
    assert text.count("<h1>") == 1
    assert set(read_page(text).verdicts) == {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_headings_step_down_one_level_at_a_time(tmp_path):
    levels = [int(n) for n in re.findall(r"<h([1-6])[ >]", page_text(tmp_path))]
    assert levels[0] == 1
    assert all(b <= a + 1 for a, b in itertools.pairwise(levels))


def test_a_page_is_written_whole_and_leaves_nothing_beside_it(tmp_path):
    write_experiment(tmp_path, **SMALL)
    out = write_report([load("split", results=tmp_path)], tmp_path / "new" / "report.html")
    assert out.read_text(encoding="utf-8").endswith("</html>")
    assert [p.name for p in out.parent.iterdir()] == ["report.html"]
    with pytest.raises(ValueError, match="no experiment was given"):
        write_report([], tmp_path / "none.html")
    assert not (tmp_path / "none.html").exists()


@pytest.mark.slow
@pytest.mark.long
def test_two_thousand_runs_of_a_hundred_points_stay_under_ten_megabytes(tmp_path):
    write_experiment(
        tmp_path, arms=many_arms(40), n_seeds=50, n_points=100, design="add-one", n_nodes=4
    )
    begun = time.process_time()
    out = write_report([load("split", results=tmp_path)], tmp_path / "report.html")
    elements = len(
        re.findall(
            r"<[a-z]", out.read_text(encoding="utf-8").split('<script type="application/json"')[0]
        )
    )
    megabytes = out.stat().st_size / 1e6
    print(
        f"2000 runs of 100 points: {time.process_time() - begun:.1f} s of processor, {megabytes:.1f} MB, {elements} elements"
    )
    assert megabytes < 10
    assert elements < 45_000, "the page would scroll in jerks"
    assert len(read_page(out).rows) == 2000


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (-0.01234, "loss_delta", "−0.0123"),
        (0.0123, "loss_delta", "+0.0123"),
        (-0.00001, "loss_delta", "−0.000010"),
        (0.103, "percent", "+10.3 %"),
        (18.123456, "ms", "18.12"),
        (0.00123, "sd", "0.0012"),
        (0.00004, "p", "< 0.0001"),
        (float("nan"), "loss", "–"),
        (None, "s", "–"),
        (float("inf"), "s", "–"),
    ],
)
def test_numbers_are_written_with_a_minus_sign_and_the_digits_that_matter(value, kind, text):
    assert show(value, kind) == text


def test_an_unbounded_interval_says_so():
    assert interval(float("-inf"), 0.01, "loss_delta") == "[−∞, +0.0100]"
    assert interval(-0.1, 0.05, "percent") == "[−10.0, +5.0] %"
    assert interval(None, None, "s") == ""
    assert significant(123456.0, 3) == "123456"


def test_text_that_turns_its_neighbours_around_is_made_visible():
    assert visible("a\u202eb\x00c\tok") == "a\ufffdb\ufffdc\tok"


def test_embedded_json_cannot_end_its_element():
    nasty = {"</script>": "<!--\u2028&", "n": float("nan")}
    assert "<" not in script_json(plain(nasty))
    assert json.loads(script_json(plain(nasty))) == {"</script>": "<!--\u2028&", "n": None}


def test_a_word_that_a_page_explained_is_not_explained_again_on_paper(tmp_path: Path) -> None:
    write_experiment(tmp_path, n_seeds=2)
    made = load("split", tmp_path)
    first, second = render([made, made]).split('class="terms"')[1:]
    assert 'class="again"' not in first.partition("</dl>")[0]
    words = second.partition("</dl>")[0]
    assert words.count("<dt") == words.count('<dt class="again">') > 5


def test_a_column_of_one_value_stands_in_a_page_once():
    table = pd.DataFrame({"a": [1, 1], "b": [1, 2]})
    kept = embed_table(table)
    assert (kept["same"], kept["rows"]) == ({"a": 1}, [[1], [2]])
    assert embed_table(table[:1])["rows"] == [[1, 1]]
    for part in (table, table[:1]):
        pd.testing.assert_frame_equal(restore_table(embed_table(part)), part)
