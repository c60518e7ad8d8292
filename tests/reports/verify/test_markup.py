"""`verify` vouches for the whole page: whatever does not follow from the data in it is named."""

import json
import random
import re
from pathlib import Path

import pytest

from harness.run.parse import parse_json
from reports.inputs.load import load
from reports.page.embed import script_json
from reports.page.write import judged, write_report
from reports.verify.markup import aligned, check_markup, parted, same_piece
from reports.verify.page import DATA, Page, read_page
from reports.verify.rendered import remade
from reports.verify.verify import OtherVersionError, verify
from tests.findings import PAGES
from tests.report_arms import LADDER
from tests.report_fixtures import write_experiment
from tests.warm import forked_ablate

WINNER = "<p>winner, p &lt; 0.001</p>"
TAMPERED = {  # what somebody does -> what of the page, what they put there, what `verify` names
    "an added paragraph": ("</main>", f"{WINNER}</main>", "winner"),
    "a paragraph behind the end": ("</html>", f"</html>{WINNER}", "winner"),
    "a paragraph before the page": ("<!doctype html>", f"{WINNER}<!doctype html>", "winner"),
    "an item in a list of facts": ('<ul class="facts">', '<ul class="facts"><li>won</li>', "won"),
    "an added row": ("<tbody>", "<tbody><tr><td>won</td></tr>", "won"),
    "a style sheet": ("</head>", "<style>.bad{color:green}</style></head>", ".bad{color:green}"),
    "a rule in the style sheet": ("</style>", ".verdict{visibility:hidden}</style>", "hidden"),
    "a rule taken out": (".visually-hidden", ".not-at-all-hidden", "not-at-all-hidden"),
    "a script": ("</body>", "<script>cells[3].innerText='won'</script></body>", "innerText"),
    "a line in the script": ("</script>\n</body>", "\nwon()</script>\n</body>", "won()"),
    "an attribute": ('<td class="', '<td onclick="won()" class="', "onclick"),
    "a class": ('class="answer"', 'class="answer good"', "answer good"),
    "a style of an element": (
        '<p class="answer"',
        '<p style="display:none" class="answer"',
        "none",
    ),
    "a comment that hides a text": ('<p class="lead">', '<!--<p class="lead">', "<!--"),
    "a comment": ("<main", "<!-- won --><main", "won"),
    "a caption": ("<figcaption><h3>", "<figcaption><h3>Won: ", "Won: "),
    "a caption of a table": ("One row per arm", "One row per winner", "winner"),
    "a heading": (">What was trained<", ">What has won<", "What has won"),
    "a word of what the columns mean": ("Where the true difference", "Where a difference", "Where"),
    "a title": ("<title>", "<title>Won: ", "Won: "),
    "the policy of the page": ("default-src 'none'; ", "", "default-src"),
    "a page that loads another": ("<title>", '<base href="https://a.example/"><title>', "base"),
    "a refresh elsewhere": (
        "<title>",
        '<meta http-equiv="refresh" content="1;url=https://a.example"><title>',
        "refresh",
    ),
    "a button": ("Runs as CSV", "Runs as CSV, won", "won"),
    "the footer": ("<footer><p>Written by", "<footer><p>Checked by", "Checked by"),
    "a second set of data": (
        "</main>",
        '</main><script type="application/json" id="other">{}</script>',
        "other",
    ),
    "a command that was used": ("ablate run ", "ablate run --lucky ", "--lucky"),
    "a drawing's element": ("<svg ", '<svg><text x="1" y="1">won</text></svg><svg ', "won"),
    "an entity instead of a letter": ("Every run&nbsp;", "Every&#32;run&nbsp;", "&#32;"),
    "a letter that looks alike": (
        "Verdicts&nbsp;",
        "Verdict\N{CYRILLIC SMALL LETTER DZE}&nbsp;",
        "",
    ),
}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("page")
    write_experiment(root, arms=LADDER[:2], n_seeds=2, n_points=3)
    return write_report([load("split", results=root)], root / "page.html").read_text()


@pytest.fixture(scope="module")
def made(page: str) -> list[Page]:
    """What follows from the page's data."""
    return remade([judged(data) for data in read_page(page).data["experiments"]], (0, -1, 1, None))


def test_every_part_of_a_page_is_vouched_for(page: str, made: list[Page]) -> None:
    assert len(TAMPERED) > 25
    assert [*check_markup(read_page(page), made)] == []
    missed = []
    for what, (old, new, named) in TAMPERED.items():
        assert old in page, what
        found = [*check_markup(read_page(page.replace(old, new, 1)), made)]
        told = [line for line in found if line.startswith("line ") and named in line]
        if not told:
            missed.append((what, found))
    assert missed == []


def verify_text(text: str, folder: Path) -> list[str]:
    (folder / "page.html").write_text(text, encoding="utf-8")
    return verify(folder / "page.html")


def test_several_changes_are_each_named_with_their_lines(page: str, tmp_path: Path) -> None:
    text = page.replace("<footer>", f"{WINNER}\n<footer>").replace("</head>", "<b>B</b></head>")
    text = text.replace(">Every run<", ">Each runs<")
    found = verify_text(text, tmp_path)
    for word in ("winner", "<b>B</b>", "Each runs"):
        line = next(n for n, line in enumerate(text.split("\n"), 1) if word in line)
        assert [s for s in found if word in s and s.startswith(f"line {line}: ")], (word, found)


def test_a_page_with_very_much_more_on_it_is_told_in_few_lines(page: str, made: list[Page]) -> None:
    full = page.replace("</main>", "<i>x</i>\n" * 30_000 + "</main>")
    assert len([*check_markup(read_page(full), made)]) == 1
    found = [*check_markup(read_page(re.sub(r"(<td[^>]*>)", r"\1!", page)), made)]
    assert len([s for s in found if s.startswith("line ")]) == 20
    assert found[20:] == ["and more of that kind"]


def test_what_is_named_commands_no_terminal(page: str, made: list[Page]) -> None:
    found = check_markup(read_page(page.replace("</main>", "<p>\x1b[2Jwon</p></main>")), made)
    assert [s for s in found if "\\x1b[2Jwon" in s]


def test_data_that_no_page_has_are_named(page: str, tmp_path: Path) -> None:
    before, _, behind = page.partition(DATA)
    text, _, after = behind.partition("</script>")
    data = parse_json(text)
    data["experiments"][0]["winner"] = "r08"
    found = verify_text(f"{before}{DATA}{script_json(data)}</script>{after}", tmp_path)
    assert found == ["the data of split hold winner, which no page has"]
    loose = json.dumps(parse_json(text))
    found = verify_text(f"{before}{DATA}{loose}</script>{after}", tmp_path)
    assert found == ["the data in the page are not written as `ablate report` writes them"]


def test_a_page_that_loads_itself_again_passes(tmp_path: Path) -> None:
    write_experiment(tmp_path, arms=LADDER[:2], n_seeds=2, outcome={("r07", 0): "pending"})
    page = write_report([load("split", results=tmp_path)], tmp_path / "page.html", refresh_s=5.0)
    assert 'http-equiv="refresh"' in page.read_text()
    assert verify(page) == []


def test_a_page_of_another_version_is_said_to_be_one(page: str, tmp_path: Path) -> None:
    for name in ("0123456789ab", "zzz"):
        older = re.sub(r'"written_by":"\w+"', f'"written_by":"{name}"', page, count=1)
        assert older != page
        assert verify_text(older, tmp_path) == []  # it says the same
        older = older.replace("<footer><p>Written", "<footer><p>Made")
        with pytest.raises(OtherVersionError, match=rf"the writer is {name}.*line \d+"):
            verify_text(older, tmp_path)
    older = older.replace("zzz", "0123456789ab")
    with pytest.raises(OtherVersionError, match=r"the writer is 0123456789ab.*line \d+"):
        verify_text(older, tmp_path)
    done = forked_ablate("verify", str(tmp_path / "page.html"), cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    # a value that its rows do not give is false in every version
    found = verify_text(
        older.replace('"val_loss.mean" data-v="1', '"val_loss.mean" data-v="0'), tmp_path
    )
    assert "val_loss.mean" in found[0]
    assert "are not vouched for" in found[-1]


def test_a_published_page_with_a_word_more_is_not_vouched_for(tmp_path: Path) -> None:
    smallest = min(PAGES, key=lambda path: path.stat().st_size)
    text = smallest.read_text(encoding="utf-8").replace("</main>", f"{WINNER}</main>")
    text = re.sub(r'"written_by":"\w+"', '"written_by":"another"', text)
    with pytest.raises(OtherVersionError, match="winner"):
        verify_text(text, tmp_path)


def test_numbers_that_two_processors_write_are_the_same_numbers() -> None:
    assert same_piece('<path d="M96.8 2">', ['<path d="M96.75 2">', '<path d="M96.8 2">'])
    assert same_piece('<path d="M96.80 2">', ['<path d="M96.8 2">'])
    assert not same_piece('<path d="M96.7 2">', ['<path d="M96.8 2">', '<path d="M96.9 2">'])
    assert not same_piece('<path d="M96.8 2" r="1">', ['<path d="M96.8 2">'])
    printed = ["<p>", "p = 0.035", "</p>"]
    options = [["<p>", "p = 0.034", "</p>"], ["<p>", "p = 0.035", "</p>"]]
    assert [*parted(printed, options)] == []
    assert [*parted(printed, options[:1])] == [
        (1, "'p = 0.035' stands where the data in the page give 'p = 0.034'")
    ]


def test_what_is_said_to_be_equal_of_two_lists_is_and_the_rest_makes_one_of_the_other():
    draw = random.Random(0)
    for _ in range(100):
        a, b = ("".join(draw.choices("xyz", k=draw.randrange(12))) for _ in range(2))
        tail = "".join(draw.choices("xyz", k=draw.randrange(4)))
        made, n_equal = "", 0
        for tag, i1, i2, j1, j2 in aligned(a + tail, b + tail):
            if tag == "equal":
                assert (a + tail)[i1:i2] == (b + tail)[j1:j2]
                n_equal += i2 - i1
            made += (b + tail)[j1:j2]
        assert made == b + tail and n_equal >= len(tail)
