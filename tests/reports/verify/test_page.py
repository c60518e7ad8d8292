"""`verify` finds what does not follow from the rows, and finds nothing on a page that was left alone."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from reports.inputs.load import load
from reports.page.embed import script_json, table_rows
from reports.page.write import write_report
from reports.verify.files import check_results
from reports.verify.page import read_page
from reports.verify.verify import verify
from tests.findings import FINDINGS, PAGES
from tests.report_arms import FACTORIAL, HOSTILE, LADDER
from tests.report_fixtures import write_experiment

TROUBLE = {
    ("r07", 0): "diverged",
    ("untied_head", 1): "diverged",
    ("r08", 3): "failed",
    ("r08", 2): "pending",
}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of a ladder with diverged and failed runs, and its page."""
    root = write_experiment(tmp_path_factory.mktemp("original"), n_seeds=4, outcome=TROUBLE)
    write_report([load("split", results=root)], root / "report.html")
    return root


@pytest.fixture
def made(original: Path, tmp_path: Path) -> tuple[Path, Path]:
    """(page, results) to be tampered with."""
    shutil.copytree(original, tmp_path, dirs_exist_ok=True)
    return tmp_path / "report.html", tmp_path


def with_data(page: Path, change: Callable[[dict], None]) -> Path:
    """The page with its embedded data changed, its markup left alone."""
    text = page.read_text(encoding="utf-8")
    found = re.search(r'(<script type="application/json" id="data">)(.*?)(</script>)', text, re.S)
    data = json.loads(found[2])
    change(data["experiments"][0])
    page.write_text(
        text[: found.start(2)] + script_json(data) + text[found.end(2) :], encoding="utf-8"
    )
    return page


def columns_of(data: dict) -> list[str]:
    """What a row of the table of runs holds: the columns that vary."""
    return [c for c in data["runs"]["columns"] if c not in data["runs"]["same"]]


def with_markup(page: Path, old: str, new: str) -> Path:
    text = page.read_text(encoding="utf-8")
    assert old in text, old
    page.write_text(text.replace(old, new, 1), encoding="utf-8")
    return page


def test_an_honest_page_passes_with_and_without_its_results(made):
    page, results = made
    assert verify(page) == []
    assert verify(page, results) == []


@pytest.mark.slow
def test_pages_of_every_kind_pass(tmp_path):
    write_experiment(tmp_path, name="hostile", arms=HOSTILE, n_seeds=3, design="add-one")
    write_experiment(
        tmp_path, name="six", arms=LADDER[:3], n_seeds=6, confirm=True, sd=0.001, published="r08"
    )
    write_experiment(tmp_path, name="budgets", arms=LADDER, n_seeds=3, budgets=(200, 300, 400))
    write_experiment(
        tmp_path,
        name="diverged",
        arms=LADDER[:3],
        n_seeds=5,
        outcome={("r07", 0): "diverged", ("untied_head", 1): "diverged"},
    )
    names = ("hostile", "six", "budgets", "diverged")
    page = write_report([load(n, results=tmp_path) for n in names], tmp_path / "report.html")
    assert verify(page, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_what_a_page_of_the_findings_says_to_run_asks_its_question(path: Path) -> None:
    plan = read_page(path).data["experiments"][0]["plan"]
    typed = plan["command"].split()[2]
    root = FINDINGS.parents[1]
    file = root / (typed if typed.endswith(".yaml") else f"experiments/{typed}.yaml")
    asked = yaml.safe_load(file.read_text())
    assert (asked["name"], asked["question"]) == (plan["name"], plan["question"])


@pytest.mark.slow
@pytest.mark.parametrize("order", "123")
def test_no_number_depends_on_the_order_of_a_set(tmp_path, order):
    write_experiment(tmp_path, arms=FACTORIAL, n_seeds=4, design="factorial")
    page = write_report([load("split", results=tmp_path)], tmp_path / "page.html")
    command = [sys.executable, "-m", "harness", "verify", str(page)]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONHASHSEED": order},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


def test_an_effect_that_the_runs_do_not_tell_passes(tmp_path):
    lost = {
        ("r07", 0): "diverged",
        ("r08", 1): "failed",
        ("r08", 2): "failed",
        ("r08", 3): "failed",
    }
    write_experiment(tmp_path, n_seeds=4, outcome=lost)
    assert verify(write_report([load("split", results=tmp_path)], tmp_path / "report.html")) == []


def test_a_changed_aggregate_is_found(made):
    page, _ = made
    printed = re.search(
        r'data-key="val_loss.mean" data-v="([^"]+)" class="value">([\d.]+)<',
        page.read_text(encoding="utf-8"),
    )
    lower = f"{float(printed[2]) - 0.01:.4f}"
    found = verify(
        with_markup(page, printed[0], printed[0].replace(f">{printed[2]}<", f">{lower}<"))
    )
    assert any("val_loss.mean" in f and lower in f for f in found)


@pytest.mark.slow
def test_an_aggregate_changed_in_text_and_value_alike_is_found_by_plain_sums(made):
    page, _ = made
    printed = re.search(
        r'data-key="val_loss.mean" data-v="([^"]+)" class="value">([\d.]+)<',
        page.read_text(encoding="utf-8"),
    )
    found = verify(with_markup(page, printed[1], str(float(printed[1]) - 0.01)))
    assert any("the rows give" in f and "val_loss.mean" in f for f in found)


@pytest.mark.slow
def test_a_changed_row_is_found(made):
    page, results = made

    def lower_one(data: dict) -> None:
        at = columns_of(data).index("val_loss")
        row = next(r for r in data["runs"]["rows"] if r[at] is not None)
        row[at] -= 0.02

    found = verify(with_data(page, lower_one))
    assert any("is not the last point of its curve" in f for f in found)
    assert any("val_loss.mean" in f for f in found)
    assert any("in result.json" in f for f in verify(page, results))


@pytest.mark.slow
def test_a_row_changed_together_with_its_curve_is_found_with_the_results(made):
    page, results = made

    def lower_both(data: dict) -> None:
        columns = columns_of(data)
        row = next(r for r in data["runs"]["rows"] if r[columns.index("val_loss")] is not None)
        row[columns.index("val_loss")] -= 0.02
        curve = data["curves"][row[columns.index("run_id")]]
        curve["val_loss"][-1] = round(row[columns.index("val_loss")], 6)

    with_data(page, lower_both)
    assert any("the curve's val_loss" in f for f in verify(page, results))


def test_a_changed_verdict_word_is_found(made):
    page, _ = made
    printed = re.search(
        r'<span data-key="verdict" class="verdict (?:good|bad|open|even)">([^<]+)<',
        page.read_text(encoding="utf-8"),
    )
    found = verify(with_markup(page, printed[0], printed[0].replace(f">{printed[1]}<", ">faster<")))
    assert any("verdict is printed as 'faster'" in f for f in found)


@pytest.mark.slow
def test_a_citation_of_other_data_is_found_by_both_paths(made):
    page, _ = made
    with_markup(page, f"data digest {'f' * 64}", f"data digest {'f' * 63}e")
    said = verify(page)
    assert any("does not name the data of the runs" in line for line in said)
    assert any("the sentence" in line and "citation" in line for line in said)


@pytest.mark.slow
def test_a_changed_headline_is_found(made):
    page, _ = made
    found = verify(
        with_markup(
            page,
            '<p class="answer" data-key="answer">',
            '<p class="answer" data-key="answer">Certain: ',
        )
    )
    assert any("answer" in f for f in found)


def test_a_dropped_diverged_run_is_found(made):
    page, _ = made

    def drop(data: dict) -> None:
        at = columns_of(data).index("status")
        gone = next(r for r in data["runs"]["rows"] if r[at] == "diverged")
        data["runs"]["rows"].remove(gone)

    found = verify(with_data(page, drop))
    assert any("is planned but has no row" in f for f in found)
    assert any("n.diverged" in f for f in found)


@pytest.mark.slow
def test_a_diverged_run_dropped_from_rows_results_and_plan_is_found_by_what_is_printed(made):
    page, _ = made

    def drop(data: dict) -> None:
        columns = columns_of(data)
        gone = next(r for r in data["runs"]["rows"] if r[columns.index("status")] == "diverged")
        run_id = gone[columns.index("run_id")]
        data["runs"]["rows"].remove(gone)
        data["plan"]["runs"] = [r for r in data["plan"]["runs"] if r["run_id"] != run_id]
        del data["results"][run_id], data["curves"][run_id]

    assert any("n.diverged" in f for f in verify(with_data(page, drop)))


@pytest.mark.slow
def test_a_changed_figure_and_a_changed_table_row_are_found(made):
    page, _ = made
    drawn = re.search(r'class="dots" d="M[\d.]+', page.read_text(encoding="utf-8"))
    found = verify(with_markup(page, drawn[0], 'class="dots" d="M1.0'))
    assert any("the figure" in f for f in found)


@pytest.mark.slow
def test_changed_figure_data_are_found(made):
    page, _ = made

    def bend(data: dict) -> None:
        data["figures"]["forest_val_loss"]["rows"][0][1] = -1.0

    assert any("forest_val_loss" in f for f in verify(with_data(page, bend)))


def test_changed_files_are_found(made):
    page, results = made
    finished = [
        p.parent
        for p in sorted((results / "runs").glob("*/result.json"))
        if '"finished"' in p.read_text()
    ]
    (finished[0] / "metrics.jsonl").write_text((finished[0] / "metrics.jsonl").read_text() + "\n")
    result = json.loads((finished[1] / "result.json").read_text())
    (finished[1] / "result.json").write_text(json.dumps(result | {"val_loss": 1.0}))
    (finished[2] / "result.json").unlink()
    found = verify(page, results)
    assert any("metrics.jsonl is not the file that the run wrote" in f for f in found)
    assert any("result.json is not the one" in f for f in found)
    assert any("is missing" in f for f in found)


def test_results_that_are_hidden_from_a_page_or_copied_into_it_are_found(made):
    page, results = made
    (data,) = read_page(page).data["experiments"]
    first, second, *_ = [row["run_id"] for row in table_rows(data["runs"]) if row["steps"]]

    def found(with_curves: bool = True) -> str:
        rows = table_rows(data["runs"])
        return "\n".join(check_results(data, rows, results, with_curves=with_curves))

    assert found() == ""
    taken = data["results"].pop(first)
    assert f"run {first} has a result in {results} that the page does not show" in found()
    data["results"] |= {first: taken, "0" * 16: taken}
    assert f"run {'0' * 16}: {results / 'runs' / ('0' * 16) / 'result.json'} is missing" in found()
    del data["results"]["0" * 16]
    digests = data["result_digests"]
    digests[first], digests[second] = digests[second], digests[first]
    for run in (first, second):
        said = f"run {run}: result.json is not the one this page was made from"
        assert said in found() and said in found(with_curves=False)


@pytest.mark.slow
def test_changed_step_times_are_found_in_the_drawing_and_in_the_results(made):
    page, results = made

    def slow_one(data: dict) -> None:
        run_id = next(iter(data["step_times"]))
        data["step_times"][run_id][-3] *= 2

    found = verify(with_data(page, slow_one), results)
    assert any("step_distribution" in f for f in found)
    assert any("the step times on the page are not those of metrics.jsonl" in f for f in found)


def test_a_file_that_is_no_report_is_refused_in_one_line(tmp_path):
    (tmp_path / "x.html").write_text("<html><body>hello</body></html>")
    with pytest.raises(ValueError, match="holds no data of an `ablate report` page"):
        verify(tmp_path / "x.html")
