"""The page's table for a paper: what is printed, that nothing in it is taken for a command, and plain numbers."""

import csv
import io
import json
import re
import shutil
import string
import subprocess
from dataclasses import replace
from typing import Any

import pytest

from harness.__main__ import main
from reports.analysis.arm_columns import ARM_COLUMNS
from reports.analysis.compare import compare_all
from reports.inputs.columns import Between, Column
from reports.inputs.load import load
from reports.inputs.published_experiments import published_experiment
from reports.latex import escaped
from reports.page.write import render
from reports.paper.table import (
    OF_KEY,
    PAPER_FORMATS,
    WORDS,
    PaperTable,
    column_names,
    joined,
    plain_numbers,
)
from reports.verify.page import read_page
from tests.report_arms import HOSTILE, LADDER
from tests.report_fixtures import write_experiment

HOW = {
    "ladder": {"n_seeds": 3},
    "budgets": {"arms": LADDER[:3], "design": "add-one", "budgets": (200, 300, 450)},
    "trouble": {"n_seeds": 3, "outcome": {("r07", 0): "diverged", ("untied_head", 2): "failed"}},
    "hostile": {"arms": HOSTILE, "design": "add-one", "n_seeds": 3},
}

ON_PAGE = "trouble"
WITH_ENDS = "ladder"  # its page has intervals of losses and step times
PUBLISHED = ("ladder", "r09_ladder", "optimizers_on_r07")


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Name -> the table of an experiment."""
    folder = tmp_path_factory.mktemp("results")
    made = {}
    for name, how in HOW.items():
        write_experiment(folder, name=name, n_points=3, **how)
        experiment = load(name, folder)
        made[name] = PaperTable.of(experiment, compare_all(experiment))
    return made


@pytest.fixture(scope="module")
def page(tables):
    """The page of one of them."""
    return read_page(render([tables[ON_PAGE].experiment]))


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.slow
def test_markdown_prints_every_number_of_the_pages_table(tables, page):
    table = tables[ON_PAGE]
    lines = PAPER_FORMATS["markdown"](table).splitlines()
    assert len(lines) == 2 + len(table.rows)
    for place, row in enumerate(table.rows):
        said = lines[2 + place].replace("\\", "").replace("&lt;", "<").replace("&gt;", ">")
        assert len(re.findall(r"(?<!\\)\|", lines[2 + place])) == len(table.heads) + 1
        for key, part in page.verdicts[0, row.place].items():
            if key not in ("next_action", "unfinished"):
                assert part.text in said, key


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        (ON_PAGE, {"val_loss.mean"}),
        (WITH_ENDS, {"val_loss.mean", "val_loss.interval", "step_ms.effect"}),
    ],
)
def test_csv_has_the_numbers_that_the_page_carries_with_their_units(tables, name, seen):
    table = tables[name]
    page = read_page(render([table.experiment]))
    rows = rows_of(PAPER_FORMATS["csv"](table))
    assert [row["verdict"] for row in rows] == [
        page.verdicts[0, row.place]["verdict"].text for row in table.rows
    ]
    assert seen <= {key for row in table.rows for key in page.verdicts[0, row.place]}
    for row, printed in zip(rows, table.rows, strict=True):
        parts = page.verdicts[0, printed.place]
        loss = parts.get("val_loss.mean")
        if loss is not None:
            assert float(row["val_loss_nats_per_byte"]) == pytest.approx(loss.values[0], rel=1e-6)
        delta, time = parts.get("val_loss.interval"), parts.get("step_ms.effect")
        if delta is not None:
            ends = row["delta_val_loss_low_nats_per_byte"], row["delta_val_loss_high_nats_per_byte"]
            assert [float(end) for end in ends] == pytest.approx(delta.values, rel=1e-5, abs=1e-7)
        if time is not None:
            shown = float(row["delta_step_time_percent"])
            assert shown == pytest.approx(100 * time.values[0], rel=1e-5)
        assert int(row["n_finished"]) == parts["n.finished"].values[0]


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_evidence_is_printed_in_every_format_as_its_page_compares_it(name):
    experiment = published_experiment(name)
    table = PaperTable.of(experiment, compare_all(experiment))
    printed = {kind: write(table) for kind, write in PAPER_FORMATS.items()}
    assert len(printed["markdown"].splitlines()) == 2 + len(table.rows)
    assert printed["latex"].count(r"\tabularnewline") == len(table.rows)
    rows, n_compared = rows_of(printed["csv"]), 0
    assert "verdict" not in rows[0]  # nothing is judged
    for row, of_page in zip(rows, table.rows, strict=True):
        carried = {part.key: part.v for cell in of_page.cells for part in cell.parts}
        assert float(row["val_loss_nats_per_token"]) == pytest.approx(
            float(carried["val_loss.mean"])
        )
        if "evidence.loss_interval" not in carried:
            continue
        n_compared += 1
        ends = row["delta_val_loss_low_nats_per_token"], row["delta_val_loss_high_nats_per_token"]
        of_interval = [float(end) for end in carried["evidence.loss_interval"].split(",")]
        assert [float(end) for end in ends] == pytest.approx(of_interval, abs=1e-7)
        step = float(row["delta_step_time_percent"]) / 100
        assert step == pytest.approx(float(carried["evidence.step_ratio"]), abs=1e-6)
    assert n_compared == len(rows) - 1


def test_an_interval_follows_its_estimate_without_a_comma():
    assert joined(["1.5", "[1.0, 2.0]", "n 3"]) == "1.5 [1.0, 2.0], n 3"
    assert joined(["1.5", "\\[1.0, 2.0\\]"]) == "1.5 \\[1.0, 2.0\\]"
    assert joined([]) == ""


def test_every_statistic_of_the_page_has_a_name_of_its_own_with_a_unit():
    names = []
    for column in ARM_COLUMNS:
        if column.format and column.key not in WORDS:
            names += column_names(column, "nats")
    assert len(set(names)) == len(names)
    bare = [name for name in names if not re.search(r"_(nats|ms|s|percent|p|byte)$", name)]
    assert set(bare) <= {name for of_key in OF_KEY.values() for name in of_key}


@pytest.mark.parametrize("name", HOW)
def test_latex_is_ascii_balanced_and_has_a_row_for_every_arm(tables, name):
    table = tables[name]
    text = PAPER_FORMATS["latex"](table)
    assert text.isascii()
    assert_balanced(text)
    assert text.count(r"\tabularnewline") == len(table.rows)
    body = text[text.index(r"\midrule") : text.index(r"\bottomrule")]
    for line in body.splitlines()[1:]:
        assert len(re.findall(r"(?<!\\)&", line)) == len(table.heads) - 1
    for rule in (r"\toprule", r"\midrule", r"\bottomrule"):
        assert text.count(rule) == 1


def assert_balanced(text: str) -> None:
    plain = re.sub(r"\\[{}\\]", "", text)
    depth = 0
    for character in plain:
        depth += (character == "{") - (character == "}")
        assert depth >= 0
    assert depth == 0


@pytest.mark.parametrize("character", [*string.printable, "é", "ü", "ß", "中", "😀", "\u202e", "−"])
def test_no_character_is_a_command_of_tex(character):
    text = escaped(f"a{character}b")
    assert text.isascii()
    assert_balanced(text)
    commands = r"\\ensuremath\{[<>|]\}|\\([{}$&#%_]|[a-zA-Z]+|[`'^~\"=]\{)"
    left = re.sub(commands, "", text)
    assert not set(left) & set("\\$&#%_^~<>|\"`'"), left


def test_a_letter_with_an_accent_is_its_command_and_another_alphabet_is_its_number():
    assert escaped("éüç") == "\\'{e}\\\"{u}\\c{c}"
    assert escaped("中") == "{[}U+4E2D{]}"


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
@pytest.mark.parametrize("name", HOW)
def test_latex_compiles(tables, name, tmp_path):
    table = tables[name]
    head = "\\documentclass{article}\\usepackage{booktabs,graphicx}\\begin{document}\n"
    source = tmp_path / "t.tex"
    source.write_text(f"{head}{PAPER_FORMATS['latex'](table)}\n\\end{{document}}\n")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", source.name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert name == "hostile" or "Overfull \\hbox" not in done.stdout


def test_compare_prints_it_and_refuses_what_there_is_not(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    root = write_experiment(tmp_path / "results", arms=LADDER[:2], n_seeds=3, design="add-one")
    path = root / "experiments" / "split" / "experiment.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "imported": True}))
    for arguments, code, said in (
        (["--format", "csv"], 0, "arm,verdict,n_finished"),
        (["--format", "latx"], 2, "did you mean 'latex'?"),
        (["--format", "csv", "--json"], 2, "name one"),
    ):
        with pytest.raises(SystemExit) as end:
            main(["compare", "split", *arguments])
        assert (end.value.code or 0) == code
        captured = capsys.readouterr()
        assert said in captured.out + captured.err


@pytest.mark.parametrize(
    ("value", "form", "numbers"),
    [
        (None, "{:loss}", [None, None, None]),
        (0.25, "{:loss}", [0.25]),
        (0.25, "{:percent}", [25.0]),
        (("1 of 3", Between(low=0.5, high=None), 0.25), "{} {:loss} {}", [0.5, None, 0.25]),
        (("1 of 3", Between(low=0.5, high=None), 0.25), "{} {:percent} {}", [50.0, None, 25.0]),
    ],
)
def test_the_numbers_of_a_statistic_stand_one_after_another_without_its_words(
    value: Any, form: str, numbers: list[float | None]
) -> None:
    column: Column[Any] = Column(key="x", meaning="", format=form, value=lambda row: value)
    row: Any = None
    assert plain_numbers(column, row, 3) == numbers


def test_a_new_statistic_of_an_arm_is_called_as_its_key_says() -> None:
    column = replace(ARM_COLUMNS[0], key="val_loss.median")
    assert column_names(column, "nats_per_token") == ("val_loss_median_nats_per_token",)


@pytest.mark.parametrize(
    ("key", "names"),
    [
        ("val_loss.effect", ("delta_val_loss_nats",)),
        ("own_val_loss.interval", ("own_part_val_loss_low_nats", "own_part_val_loss_high_nats")),
        ("step_ms.effect", ("delta_step_time_percent",)),
        ("acc.effect", ("delta_acc",)),
        ("acc.mean", ("acc",)),
        ("acc.sd", ("acc_sd",)),
        ("acc.p", ("delta_acc_p",)),
    ],
)
def test_a_scripts_own_metric_has_no_unit(key, names):
    assert column_names(Column(key=key, meaning=""), "nats") == names
