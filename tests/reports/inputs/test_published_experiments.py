"""The benchmark's own evidence: the tables agree with the logs, and its pages say what they hold."""

import csv
import json
from pathlib import Path

import pytest

from harness.__main__ import main
from reports.inputs.noise import PUBLISHED
from reports.inputs.published import final_rows, published_record
from reports.inputs.published_experiments import EVIDENCE, published_experiment
from reports.page.embed import embed_experiment, plain
from reports.page.write import render, write_report
from reports.verify.page import Page, read_page
from reports.verify.verify import check_published, verify


def table(name: str) -> list[dict[str, str]]:
    with (PUBLISHED / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def pages() -> dict[str, Page]:
    return {
        name: read_page(render([published_experiment(name)])) for name in ("ladder", "r09_ladder")
    }


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
