"""The page of a GPU machine's acceptance says what its JSON says, cell by cell."""

from dataclasses import asdict
from html.parser import HTMLParser

from harness.bench.gpu_page import CheckRow, GpuCheck, cell, page, section, table

CHECKS = [
    CheckRow(
        check="training",
        preset="r08",
        status="failed",
        seconds=12.34,
        figures={"passed": False, "losses": [2.0, 1.25], "bound": 0.6, "what": "a < b"},
    ),
    CheckRow(
        check="attention",
        preset="r18",
        status="passed",
        seconds=1.0,
        figures={
            "passed": True,
            "rows": [{"what": "flex", "error": 0.00012346}, {"what": "sdpa", "bound": 3}],
            "empty": [],
        },
    ),
    CheckRow(check="gather", preset="r18", status="not run", reason="no time left"),
]


def result(**facts: object) -> GpuCheck:
    known = {"dry_run": False, "passed": True, "excepted": [], "wall_s": 61.6}
    environment = {"gpus": ["Card", "Card"], "cuda": None, "memory_gib": 79.12345}
    about = {"environment": environment, "presets": ["r08", "r18"], "checks": CHECKS}
    return GpuCheck(**{**known, **about, **facts})  # type: ignore[arg-type]


class Tables(HTMLParser):
    """Every table's rows, and every heading and paragraph."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.words: list[tuple[str, str]] = []
        self.at = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        elif tag in ("h1", "h2", "p", "title"):
            self.words.append((tag, ""))
        self.at = "span" if tag == "span" else tag

    def handle_data(self, data: str) -> None:
        if self.at in ("td", "th"):
            self.tables[-1][-1][-1] += data
        elif self.words and self.at in ("h1", "h2", "p", "title", "span"):
            tag, text = self.words[-1]
            self.words[-1] = (tag, text + data)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th", "tr"):
            self.at = ""


def read(text: str) -> Tables:
    found = Tables()
    found.feed(text)
    return found


def test_the_page_holds_the_machine_the_summary_and_every_checks_figures() -> None:
    machine, summary, *figures = read(page(result())).tables
    assert machine == [
        ["what", "found"],
        ["gpus", "Card, Card"],
        ["cuda", "–"],
        ["memory_gib", "79.12"],
    ]
    assert summary == [
        ["check", "preset", "status", "seconds", "reason"],
        ["training", "r08", "failed", "12.34", "–"],
        ["attention", "r18", "passed", "1", "–"],
        ["gather", "r18", "not run", "0", "no time left"],
    ]
    assert figures == [
        [["figure", "value"], ["losses", "2, 1.25"], ["bound", "0.6"], ["what", "a < b"]],
        [["figure", "value"], ["empty", ""]],
        [["what", "error", "bound"], ["flex", "0.0001235", "–"], ["sdpa", "–", "3"]],
    ]


def test_the_page_says_how_each_check_and_the_whole_ended() -> None:
    words = read(page(result()).strip()).words
    assert words == [
        ("title", "GPU check"),
        ("h1", "GPU check"),
        ("p", "All checks: accepted, 62 s"),
        ("h2", "training r08: failed"),
        ("p", "12.3 s"),
        ("h2", "attention r18: passed"),
        ("p", "1.0 s"),
        ("h2", "gather r18: not run"),
        ("p", "0.0 s no time left"),
    ]
    for facts, verdict, kind in (
        ({}, "accepted", "passed"),
        ({"excepted": ["gather r18 (no time left)", "x"]}, "accepted, except: ", "passed"),
        ({"passed": False, "excepted": ["x"]}, "FAILED", "failed"),
    ):
        text = page(result(**facts))
        assert f'<span class="{kind}">{verdict}' in text
    assert "gather r18 (no time left), x</span>" in page(
        result(excepted=["gather r18 (no time left)", "x"])
    )
    dry = read(page(result(dry_run=True))).words[1][1]
    assert dry.startswith("GPU check (dry run: ")


def test_single_figures_come_before_all_tables() -> None:
    figures = {"first": [{"a": 1}], "second": [{"b": 2}], "third": [{"c": 3}], "one": 4}
    row = CheckRow(check="x", preset="r08", status="passed", figures=figures)
    heads = [rows[0] for rows in read(section(row)).tables]
    assert heads == [["figure", "value"], ["a"], ["b"], ["c"]]


def test_numbers_stand_to_the_right_and_a_row_may_lack_a_column() -> None:
    assert cell(3) == '<td class="number">3</td>' and cell("x") == "<td>x</td>"
    assert table([{"a": 1}, {"b": "<"}]).count("<td>") == 3
    assert "<td>&lt;</td>" in table([{"a": 1}, {"b": "<"}])


def test_a_check_that_was_not_run_is_an_exception_unless_there_is_nothing_to_do() -> None:
    alone = CheckRow(check="gather", preset="a", status="not run", figures={"skipped": "one GPU"})
    other = CheckRow(check="runner", preset="a", status="not run", figures={"skipped": "no typer"})
    assert (alone.exception, other.exception) == (None, "runner a (None)")
    assert [row.exception for row in CHECKS] == [None, None, "gather r18 (no time left)"]
    assert [row.is_bad for row in CHECKS] == [True, False, False]
    assert CheckRow(check="x", preset="a", status="error").is_bad
    assert asdict(result())["schema"] == 2
