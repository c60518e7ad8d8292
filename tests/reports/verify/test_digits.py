"""`verify` finds a lie of one unit of the last printed digit, wherever on a page it stands."""

import json
import math
import random
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from reports import load
from reports.format import show
from reports.page.embed import script_json
from reports.page.write import judged, write_report
from reports.stats.digits import kept, moved, pixel, same_number, settled
from reports.verify.markup import check_markup
from reports.verify.page import Page, read_page
from reports.verify.rendered import compared, remade
from reports.verify.same import same_drawn, same_text
from reports.verify.verify import verify
from tests.report_arms import FACTORIAL, LADDER
from tests.report_fixtures import write_experiment

DATA = re.compile(r'(<script type="application/json" id="data">)(.*?)(</script>)', re.S)
DIGITS = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")
PLACES = {  # what is lied about -> the markup in which every number is tried, or a sample of them
    "a verdict's text": r'<tr[^>]* data-arm="\d+">.*?</tr>',
    "a row of a study": r'<table class="plain cards" data-table="(?:attribution|published|sensitivity)[^"]*".*?</table>',
    "the headline": r'<p class="answer".*?</p>',
    "facts and notes": r'<ul class="(?:facts|notes)">.*?</ul>',
    "a row of the runs": r'<tr data-run="[^"]*">.*?</tr>',
    "a caption": r"<figcaption>.*?</figcaption>",
    "the place of a dot among many": r'class="dots" d="[^"]*"',
    "the rows of dots": r' data-rows="[^"]*"',
    "the centre of a dot": r'circle cx="[^"]*" cy="[^"]*"',
    "a bar": r'<rect x="[^"]*" y="[^"]*" width="[^"]*" height="[^"]*"',
    "a line": r'<line x1="[^"]*" y1="[^"]*" x2="[^"]*" y2="[^"]*"',
    "a curve, a tick, an interval": r'<path(?: class="\w+")? d="[^"]*"',
    "the place of a label": r'<text x="[^"]*" y="[^"]*"',
    "a label": r"<text [^>]*>[^<]*</text>",
    "a tooltip": r' data-tip="[^"]*"',
    "a text alternative": r"<desc [^>]*>[^<]*</desc>",
    "a carried value": r' data-v="[^"]*"',
}
# numbers of each place, drawn at random with a fixed seed: the whole page would take an hour
TRIED = [2, pytest.param(8, marks=pytest.mark.slow)]
# a number in the middle between two printed ones may be either: of a wide drawing with budgets,
# the first budget's dots stand at 96.75 and the last one's at 709.25
IN_THE_MIDDLE = ("[96.8 -> 96.7]", "[709.2 -> 709.3]")
EXPERIMENTS = ("ladder", "factorial", "budgets")
NAMES = (
    "id",
    "class",
    "data-arm",
    "data-run",
    "data-arm-group",
    "data-experiment",
    "data-csv",
    "aria-labelledby",
    "r",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("digits")
    trouble = {("r07", 0): "diverged", ("r08", 3): "failed", ("r08", 2): "pending"}
    write_experiment(root, name="ladder", n_seeds=4, n_nodes=2, n_points=7, outcome=trouble)
    write_experiment(
        root, name="factorial", arms=FACTORIAL, n_seeds=2, n_points=4, design="factorial"
    )
    write_experiment(
        root, name="budgets", arms=LADDER[:2], n_seeds=2, n_points=4, budgets=(200, 300, 400)
    )
    experiments = [load(name, results=root) for name in EXPERIMENTS]
    write_report(experiments, root / "page.html")
    for experiment in experiments:
        write_report([experiment], root / f"{experiment.name}.html")
    write_experiment(root, name="small", arms=LADDER[:2], n_seeds=3, n_points=7)
    write_report([load("small", results=root)], root / "small.html")
    return root


@pytest.fixture(scope="module")
def text(folder: Path) -> str:
    return (folder / "page.html").read_text(encoding="utf-8")


def pages_of(text: str) -> list[Page]:
    """Every page that follows from a page's data: what a lie is held against."""
    return remade([judged(data) for data in read_page(text).data["experiments"]], (0, -1, 1, None))


@pytest.fixture(scope="module")
def made(text: str) -> list[Page]:
    return pages_of(text)


@pytest.fixture(scope="module")
def alone(folder: Path) -> list[tuple[str, str, list[Page]]]:
    """The experiments' own pages, which are read in a third of the time: markup, data, what follows from these."""
    pages = []
    for name in EXPERIMENTS:
        text = (folder / f"{name}.html").read_text(encoding="utf-8")
        data = DATA.search(text)
        assert data is not None
        pages.append((DATA.sub("", text), data[0], pages_of(text)))
    return pages


def neighbours(number: str) -> Iterator[str]:
    """The number one unit of its last digit higher and lower."""
    digits, _, power = number.partition("e")
    unit = Decimal(1).scaleb(-len(digits.partition(".")[2]))
    for changed in (Decimal(digits) + unit, Decimal(digits) - unit):
        if changed >= 0:
            yield f"{changed:f}" + (f"e{power}" if power else "")


def numbers_in(markup: str, pattern: str) -> list[tuple[int, int]]:
    """Where the numbers of these pieces stand: of attributes and texts whose numbers a page shows, not of names."""
    found = []
    for piece in re.finditer(pattern, markup, re.S):
        for number in DIGITS.finditer(piece[0]):
            before = piece[0][: number.start()]
            inside = re.search(r'([\w-]+)="[^"<>]*$', before)
            if (inside is None and before.rfind("<") > before.rfind(">")) or re.search(
                r"[\w#&]$", before.rstrip(".")
            ):
                continue  # the name of an element or an attribute, or a part of a word
            if inside and inside[1] in NAMES:
                continue
            found.append((piece.start() + number.start(), piece.start() + number.end()))
    return found


def is_found(lie: Page, made: list[Page]) -> bool:
    """Among what a reader sees, or else in the text of the page."""
    return any(compared(lie, made)) or any(check_markup(lie, made))


@pytest.mark.parametrize("n_tried", TRIED)
@pytest.mark.parametrize("place", PLACES)
def test_one_unit_of_the_last_digit_is_found(place, n_tried, alone):
    """Higher and lower, on the page of its experiment."""
    found = [
        (page, start, end)
        for page, (markup, _, _) in enumerate(alone)
        for start, end in numbers_in(markup, PLACES[place])
    ]
    assert found, place
    chance, missed = random.Random(0), []
    for page, start, end in chance.sample(found, min(n_tried, len(found))):
        markup, data, made = alone[page]
        for other in neighbours(markup[start:end]):
            lie = read_page(markup[:start] + other + markup[end:] + data)
            if not is_found(lie, made):
                missed.append(
                    f"{markup[start - 60 : start]}[{markup[start:end]} -> {other}]{markup[end : end + 20]}"
                )
    assert [m for m in missed if not any(either in m for either in IN_THE_MIDDLE)] == []


@pytest.mark.parametrize(
    "place",
    [pytest.param(p, marks=[pytest.mark.slow] * (i % 4 > 0)) for i, p in enumerate(PLACES)],
)
def test_it_is_found_on_a_page_of_several_experiments(place, text, made):
    """One number of each place, of any of them."""
    markup, data = DATA.sub("", text), DATA.search(text)
    assert data is not None
    chance = random.Random(1)
    start, end = chance.choice(numbers_in(markup, PLACES[place]))
    other = chance.choice([*neighbours(markup[start:end])])
    lie = read_page(markup[:start] + other + markup[end:] + data[0])
    assert is_found(lie, made), f"{markup[start - 60 : start]}[{markup[start:end]} -> {other}]"


def cells(figures: dict, exact: dict) -> list[tuple[str, int, int]]:
    """Every column of every figure's data with a fraction in it: (figure, row, column) of the first value that is not half
    way between two written ones, as means of an even number of runs often are."""
    first: dict[tuple[str, int], tuple[str, int, int]] = {}
    for key, figure in figures.items():
        for i, row in enumerate(figure.get("rows", ())):
            for j, value in enumerate(row):
                if isinstance(value, float) and value:
                    unit = 10.0 ** -len(repr(value).partition(".")[2])
                    if abs(abs(exact[key]["rows"][i][j] - value) / unit - 0.5) > 1e-3:
                        first.setdefault((key, j), (key, i, j))
    return list(first.values())


def test_one_unit_of_the_last_digit_of_a_figures_data_is_found(text, made):
    page = read_page(text)
    exact = made[-1].data["experiments"]
    tried = [
        (index, *cell)
        for index, own in enumerate(page.data["experiments"])
        for cell in cells(own["figures"], exact[index]["figures"])
    ]
    assert len(tried) > 40
    for index, key, i, j in tried:
        row = page.data["experiments"][index]["figures"][key]["rows"][i]
        honest = row[j]
        for other in neighbours(repr(abs(honest))):
            row[j] = float(other) * (1 if honest > 0 else -1)
            assert f"the data of the figure {key}-{index} does not follow from the rows" in set(
                compared(page, made)
            ), (key, i, j)
        row[j] = honest
    assert not any(compared(page, made))


def test_counts_and_words_of_a_figures_data_are_compared_exactly(text, made):
    page = read_page(text)
    figures = page.data["experiments"][0]["figures"]
    for figure in figures.values():
        for row in figure.get("rows", ())[:2]:
            for j, value in enumerate(row):
                if isinstance(value, (str, int)):
                    row[j] = value + ("x" if isinstance(value, str) else 1)
                    assert any(compared(page, made)), row
                    row[j] = value
    assert not any(compared(page, made))


def changed(folder: Path, out: Path, change: Callable[[dict], None]) -> Path:
    """The small page with its embedded data changed, its markup left alone."""
    text = (folder / "small.html").read_text(encoding="utf-8")
    found = DATA.search(text)
    assert found is not None
    data = json.loads(found[2])
    change(data["experiments"][0])
    out.write_text(
        text[: found.start(2)] + script_json(data) + text[found.end(2) :], encoding="utf-8"
    )
    return out


def finished(data: dict, column: str) -> tuple[list, int, str]:
    """(a finished run's row, the place of a column in it, its id)."""
    columns = [c for c in data["runs"]["columns"] if c not in data["runs"]["same"]]
    row = data["runs"]["rows"][0]  # all of the small page's are
    return row, columns.index(column), row[columns.index("run_id")]


@pytest.mark.parametrize(
    ("column", "unit"),
    [("val_loss", 1e-4), ("step_ms", 1e-2), ("train_time_s", 1e-3), ("steps", 1)],
)
def test_one_printed_unit_in_a_run_is_found(column, unit, folder, tmp_path):
    def more(data: dict) -> None:
        if column in data["runs"]["same"]:
            data["runs"]["same"][column] += unit
            return
        row, at, _ = finished(data, column)
        row[at] += unit

    assert verify(changed(folder, tmp_path / "page.html", more))


@pytest.mark.parametrize(
    ("name", "at", "unit"),
    [
        ("val_loss", 5, 1e-6),
        ("val_loss", -1, 1e-6),
        ("train_time_s", 5, 1e-4),
        ("quantiles", 4, 1e-3),
    ],
)
def test_one_unit_in_a_curve_or_in_step_times_is_found_in_the_results(
    name, at, unit, folder, tmp_path
):
    def more(data: dict) -> None:
        run_id = finished(data, "val_loss")[2]
        values = data["step_times"][run_id] if name == "quantiles" else data["curves"][run_id][name]
        values[at] = round(values[at] + unit, 6)

    assert verify(changed(folder, tmp_path / "page.html", more), folder)


def test_a_page_of_full_digits_is_true(folder, tmp_path):
    """As pages were written before computed values were rounded."""
    with moved(None):
        page = write_report([load("small", results=folder)], tmp_path / "page.html")
    assert re.search(r'data-v="-?0\.\d{12,}', page.read_text())
    assert verify(page) == []


@pytest.mark.parametrize(
    ("value", "texts"),
    [(0.12345, {"0.1234", "0.1235"}), (0.12346, {"0.1235"}), (-0.12345, {"−0.1234", "−0.1235"})],
)
def test_either_rounding_of_a_value_in_the_middle_is_right_and_only_then(value, texts):
    written = set()
    for side in (-1, 0, 1):
        with moved(side):
            written.add(show(value, "loss"))
    assert written == texts
    assert all(same_text(f"a loss of {t}.", [f"a loss of {w}." for w in written]) for t in texts)
    assert not same_text("a loss of 0.1233.", [f"a loss of {w}." for w in written])


@pytest.mark.parametrize("noise", [-4e-16, 0.0, 4e-16])
def test_the_last_bits_are_never_written(noise):
    assert show(0.12345 + noise, "loss") == show(0.12345, "loss")
    assert show(noise, "loss_delta") == show(0.0, "loss_delta") == "0.0000"
    assert show(noise, "sd") == "0"
    assert pixel(410.25 + 1e3 * noise) == pixel(410.25)
    assert kept(3.14159265 + noise) == kept(3.14159265)
    assert settled(2.5 + noise) == 2.5
    assert settled(math.inf) == math.inf and settled(-math.inf) == -math.inf


def test_the_tolerance_of_data_is_half_a_unit():
    exact = 0.123456749
    assert same_number(kept(exact), exact)
    assert same_number(exact, kept(exact))
    assert not same_number(kept(exact) + 1e-7, kept(exact))
    assert not same_number(None, 0.0)


def test_an_honest_page_of_every_kind_of_place_is_left_alone(folder):
    assert verify(folder / "page.html", folder) == []
    assert verify(folder / "small.html", folder) == []


@pytest.mark.parametrize(
    ("name", "text", "same"),
    [
        ("rect width", "10.00", True),
        ("rect width", "10.1", False),
        ("rect width", "10.0%", False),
        ("rect fill", "10.00", False),
    ],
)
def test_coordinates_are_numbers_and_nothing_else_is(name, text, same):
    assert same_drawn(name, text, ["10.0"]) is same


def test_numbers_are_as_before_once_none_is_moved_any_more() -> None:
    value = 0.1 + 0.2

    def ends_early() -> None:
        with moved(None):
            assert kept(value) == value != 0.3
            raise KeyError

    with pytest.raises(KeyError):
        ends_early()
    assert kept(value) == 0.3
