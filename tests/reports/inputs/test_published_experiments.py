"""The benchmark's own evidence: the tables agree with the logs, and its pages say what they hold."""

import copy
import csv
import json
import math
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from scipy.stats import norm

from harness.__main__ import main
from reports.inputs import published
from reports.inputs.noise import PUBLISHED
from reports.inputs.published import final_rows, published_record, read_table
from reports.inputs.published_experiments import EVIDENCE, published_experiment
from reports.page.embed import embed_experiment, plain, table_rows
from reports.page.write import render, write_report
from reports.verify.evidence import check_evidence
from reports.verify.page import Page, read_page
from reports.verify.verify import check_published, verify


def table(name: str) -> list[dict[str, str]]:
    with (PUBLISHED / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def pages() -> dict[str, Page]:
    return {name: read_page(render([published_experiment(name)])) for name in EVIDENCE}


def test_a_table_that_has_changed_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    for at_s, value in enumerate("12"):
        path.write_text(f"a\n{value}\n")
        os.utime(path, (at_s, at_s))
        assert list(read_table(path)) == [{"a": value}]


def test_the_table_of_records_agrees_with_the_logs():
    for r in table("records"):
        if r["record"] in ("r02", "r03", "r03pre"):
            continue  # no log with times
        known = published_record(r["record"])
        spread = (
            0.0012 if r["record"] == "r13" else 6e-5
        )  # its one official log beside the mean of seven
        assert float(r["val_loss"]) == pytest.approx(known.loss, abs=spread)
        assert float(r["train_time_s"]) == pytest.approx(known.time_s, rel=2e-3)
        assert int(r["steps"]) == known.steps
        assert int(r["tokens"]) == known.steps * 524_288


@pytest.mark.parametrize(
    ("name", "record"), [("r09_ladder", "r09"), ("optimizers_on_r07", "optimizers-on-r07")]
)
def test_the_ablations_agree_with_their_logs(name, record):
    final = {arm: r for (rec, arm, _), r in final_rows().items() if rec in (record, "r07")}
    for row in table(name):
        assert float(row["val_loss"]) == float(final[row["log_arm"]]["val_loss"])
        assert float(row["step_ms"]) == pytest.approx(
            float(final[row["log_arm"]]["step_avg_ms"]), abs=0.005
        )


def test_the_published_curves_are_those_of_the_logs():
    logs: dict[tuple[str, str], set[str]] = {}
    for r in table("official_runs"):
        if r["arm"] == r["record"] or r["arm"].endswith("(= r09)"):
            logs.setdefault((r["record"], r["step"]), set()).add(r["val_loss"])
    compared = [r for r in table("validation_curves") if (r["record"], r["step"]) in logs]
    assert len(compared) > 150
    assert [r for r in compared if r["val_loss"] not in logs[r["record"], r["step"]]] == []


@pytest.mark.parametrize("name", EVIDENCE)
def test_a_published_run_is_the_last_line_of_its_log(name: str) -> None:
    made, lines = published_experiment(name), table("official_runs")
    logs: dict[str, list[dict[str, str]]] = {}
    for line in lines:
        logs.setdefault(f"{line['record']}-{line['run']}", []).append(line)
    assert set(made.curves["run_id"]) <= logs.keys()
    for row in made.runs.to_dict("records"):
        of_run = logs.get(row["run_id"], [])
        if not of_run:  # known as a mean alone
            (mean,) = (r for r in table("records") if r["record"] == row["arm"])
            told = [mean[key] for key in ("steps", "val_loss", "train_time_s", "step_ms")]
            memory = mean["peak_allocated_mib"]
            assert row["run_id"] == f"{row['arm']}-mean-of-{mean['n_runs']}"
        else:
            line = of_run[-1]
            seconds = float(line["train_time_ms"]) / 1000
            told = [line["step"], line["val_loss"], seconds, line["step_avg_ms"]]
            memory = line["peak_memory_mib"]
        steps, loss, seconds, step_ms = map(float, told)
        assert (row["steps"], row["budget"], row["tokens"]) == (steps, steps, steps * 2**19)
        assert (row["val_loss"], row["train_time_s"], row["step_ms"]) == (loss, seconds, step_ms)
        assert row["peak_allocated_mib"] == pytest.approx(float(memory or "nan"), nan_ok=True)
        assert (row["replicate"], row["role"], row["status"]) == (0, "loss", "finished")
        assert (row["stale"], row["imported"], row["self_reported"]) == (False, True, True)
        assert row["censored"] == (loss > 3.28) and math.isnan(row["step_ms_median"])
        points = made.curves[made.curves["run_id"] == row["run_id"]]
        assert points["val_loss"].tolist() == [float(r["val_loss"]) for r in of_run]
        times = [float(r["train_time_ms"]) / 1000 for r in of_run]
        assert points["train_time_s"].tolist() == times
        assert points["step"].tolist() == [float(r["step"]) for r in of_run]
        assert points["budget"].tolist() == [int(r["total_steps"]) for r in of_run]
    plan = made.plan
    assert (plan.design, plan.looks) == ("explicit" if name.startswith("opt") else "ladder", 1)
    assert plan.target is not None and plan.target.val_loss == 3.28 and plan.imported
    assert plan.base == plan.baseline == plan.arms[0].name
    of_arm = {arm: int(n) for arm, n in made.runs["arm"].value_counts().items()}
    means = {r["record"]: int(r["n_runs"]) for r in table("records") if "mean of" in r["source"]}
    for arm in plan.arms:
        record = arm.name if name == "ladder" else ""
        assert arm.n_logs == max(of_arm[arm.name], means.get(record, 1))


@pytest.mark.slow
def test_what_is_said_of_results_made_here_is_not_said_of_published_ones(pages):
    page = pages["r09_ladder"]
    assert "`" not in page.markup.rpartition("<footer>")[2].partition("</footer>")[0]
    assert "from the published tables." in page.markup.rpartition("<footer>")[2]
    words = page.sections["words-0",]
    assert "of a run made here the folder's name" in words
    for word in ("noise floor", "locked plan", "N*", "retuned"):
        assert word not in words
    assert "ablate verify PAGE.html" in page.sections["environment-0",]


def test_record_9_in_parts(pages):
    rows = {place: row for (_, place), row in pages["r09_ladder"].verdicts.items()}
    assert [round(rows[i]["evidence.loss"].values[0], 4) for i in range(1, 6)] == [
        -0.0123,
        -0.0086,
        -0.0093,
        -0.0128,
        -0.0053,
    ]
    assert [round(rows[i]["evidence.step"].values[0], 2) for i in range(1, 6)] == [
        3.03,
        0.97,
        5.98,
        0.01,
        2.81,
    ]
    assert "waterfall_val_loss-0" in {key for (key,) in pages["r09_ladder"].drawings}


def test_the_history_is_a_waterfall_of_time(pages):
    page = pages["ladder"]
    figure = page.data["experiments"][0]["figures"]["waterfall_train_time_s"]
    assert [r[0] for r in figure["rows"]] == [f"r{n:02d}" for n in range(4, 19)]
    added = [r[2] for r in figure["rows"][1:]]
    assert figure["rows"][0][1] + sum(added) == pytest.approx(204.345, abs=0.1)
    assert round(page.verdicts[0, 4]["evidence.time"].values[0], 3) == -0.102  # record 7 to 8
    low, high = page.verdicts[0, 4]["evidence.time_interval"].values
    assert low < -0.102 < high
    assert page.verdicts[0, 10]["n.finished"].text == "mean of 38 logs"


def test_every_row_of_the_history_says_what_the_record_changed(pages):
    page = pages["ladder"]
    told = [page.verdicts[0, place]["evidence.change"].text for place in range(15)]
    subjects = {row["record"]: row["subject"] for row in table("history/subjects")}
    assert told == [subjects[str(n)] for n in range(4, 19)]
    assert "AdamW lr 1.8e-3" in pages["optimizers_on_r07"].verdicts[0, 1]["evidence.change"].text
    assert "evidence.change" not in pages["r09_ladder"].verdicts[0, 1], "the rows' names tell"
    assert "What it changed stands in the table above" in page.sentences[0, "differences.lead"]
    assert "its code alone is compared" not in page.sentences[0, "differences.lead"]


def test_the_headline_of_record_9_says_which_intervals_hold_zero(pages):
    answer = pages["r09_ladder"].sentences[0, "answer"]
    total, parts = answer.split("No single part, each on top of those above it, ")
    assert total.startswith("After 3200 steps all parts together change the loss")
    assert "per token) by −0.0483 [" in total, "signed as its parts are"
    close, whole = parts.split(" hold zero")
    for part in (
        "momentum warm-up, 500 steps (−0.0128 [−0.0274, +0.0018])",
        "value residual, fixed 0.5 (−0.0123 [−0.0269, +0.0023])",
        *("embed shortcut", "learned mixing", "softcap 30"),
    ):
        assert part in close
    assert (
        "r09 took 493.7 s (3200 steps), r08 648.1 s (4578 steps): −23.8 [−28.2, −19.2] %" in whole
    )


def test_the_intervals_of_a_published_table_hold_for_all_its_rows_at_once(pages):
    for page in pages.values():
        n = len(page.data["experiments"][0]["plan"]["arms"]) - 1
        half = norm.ppf(1 - 0.05 / (2 * n)) * math.hypot(0.004, 0.004)
        low, high = page.verdicts[0, 1]["evidence.loss_interval"].values
        assert (high - low) / 2 == pytest.approx(half, rel=1e-4)
        assert f"hold for its {n} differences at once" in page.text


def test_a_published_page_says_what_its_rows_stand_on_and_what_to_run(pages):
    page = pages["r09_ladder"]
    assert "on top of the rows above it" in page.sentences[0, "scope"]
    assert (
        "What else a published row differed in is unknown." in page.sentences[0, "differences.lead"]
    )
    assert "ablate run r09_ladder --set scale=gpt2" in page.sentences[0, "next_run"]
    assert "ablate plan r09_ladder --set scale=gpt2" in page.text
    assert f"{published_record('r08').time_s:.1f} s to a loss of 3.2762" in page.text
    assert "of the loss turned into time" not in page.text, "it has no such interval"
    assert "of the loss turned into time" in pages["ladder"].text


def test_no_leading_figure_makes_a_record_look_slower_than_it_was(pages):
    leading = {}
    for name, page in pages.items():
        markup = page.text.split('<details class="appendix">')[0]
        leading[name] = re.findall(r'<figure id="(\w+)-0">', markup)
    assert leading["ladder"] == ["waterfall_train_time_s"]
    assert leading["r09_ladder"] == ["waterfall_val_loss"], "at equal steps time is step time"
    assert leading["optimizers_on_r07"] == ["loss_by_step", "loss_by_time"]
    drawn = {key for (key,) in pages["r09_ladder"].drawings}
    assert "waterfall_train_time_s-0" not in drawn


def test_a_waterfall_that_falls_below_half_starts_at_zero(pages):
    captions = {}
    for name in ("ladder", "r09_ladder"):
        captions[name] = re.findall(r"The axis \w[\w ]* zero", pages[name].text)[0]
    assert captions["ladder"] == "The axis starts at zero"
    assert captions["r09_ladder"] == "The axis does not start at zero"


@pytest.mark.parametrize(
    ("name", "true", "forged", "said"),
    [
        ("r09_ladder", "+0.0018]", "−0.0018]", "the headline says"),
        ("r09_ladder", " hold zero", " lower it", "is Told"),
        ("ladder", "r10 (−5.3 [", "r10 (−9.3 [", "the headline says"),
        ("optimizers_on_r07", "AdamW (+0.0651", "AdamW (+0.0051", "the headline says"),
    ],
)
def test_a_forged_headline_is_found_by_the_second_path_alone(pages, name, true, forged, said):
    page = pages[name]
    data, answer = page.data["experiments"][0], page.sentences[0, "answer"]
    rows = table_rows(data["runs"])
    assert [*check_evidence(page, 0, data, rows)] == []
    assert true in answer
    sentences = {**page.sentences, (0, "answer"): answer.replace(true, forged, 1)}
    found = [*check_evidence(replace(page, sentences=sentences), 0, data, rows)]
    assert len(found) >= 1
    assert said in found[0]


def test_a_forged_interval_of_a_published_row_is_found_by_the_second_path(pages):
    page = pages["ladder"]
    data = copy.deepcopy(page.data["experiments"][0])
    rows = table_rows(data["runs"])
    data["plan"]["arms"][3]["noise_sd"] *= 2
    assert any("loss interval" in sentence for sentence in check_evidence(page, 0, data, rows))


@pytest.mark.slow
@pytest.mark.parametrize("name", EVIDENCE)
def test_a_published_page_can_be_verified(name, tmp_path):
    page = write_report([published_experiment(name)], tmp_path / "page.html")
    assert verify(page) == []
    assert verify(page, tmp_path) == [], "there are no results of ours to compare with"


@pytest.mark.parametrize("name", EVIDENCE)
def test_a_published_page_is_held_against_the_published_tables(name):
    data = json.loads(json.dumps(plain(embed_experiment(published_experiment(name)))))
    assert list(check_published(data)) == []
    data["plan"]["remarks"] = ["Measured by us."]
    assert list(check_published(data)) == ["its plan is not that of results/published"]


def test_the_command_writes_a_page_without_any_results(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(["report", "published/r09_ladder", "-o", "page.html"])
    assert end.value.code == 0
    assert "Which part of record 9" in Path("page.html").read_text(encoding="utf-8")
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]
    with pytest.raises(SystemExit) as end:
        main(["report", "published/r9_lader"])
    assert end.value.code == 2
    assert "did you mean 'published/r09_ladder'?" in capsys.readouterr().err


def test_of_records_with_several_links_both_sides_are_of_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    links = [{"arm": "new", "parent": "old"}, {"arm": "again", "parent": "elsewhere"}]
    monkeypatch.setattr(published, "links_of_record", lambda record: links)
    monkeypatch.setattr(published, "known_records", set)
    monkeypatch.setattr(published, "logged_arm", lambda record, arm: (record, arm))
    assert published.published_pair("r88", "r87") == (("r88", "new"), ("r87", "old"))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("laddr", "did you mean 'published/ladder'?"),
        ("x", "there are published/ladder, published/"),
    ],
)
def test_evidence_that_is_not_there_is_named_with_what_there_is(name: str, hint: str) -> None:
    with pytest.raises(ValueError, match=f"unknown published evidence 'published/{name}'") as error:
        published_experiment(name)
    assert hint in str(error.value)
