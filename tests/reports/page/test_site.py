"""A site: an index from which every page is reached, links that hold wherever the folder lies, nothing from elsewhere."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from harness.__main__ import main
from reports.page.site import target, write_site
from tests.report_fixtures import write_experiment

ROOT = Path(__file__).resolve().parents[3]
LOADS = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src")}


class Links(HTMLParser):
    """Where a page leads, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.leads: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if (tag, name) in LOADS and not str(value).startswith("data:"):
                self.loads.append(str(value))
            elif (tag, name) == ("a", "href"):
                self.leads.append(str(value))


def findings(folder: Path) -> Path:
    made = folder / "findings"
    (made / "one").mkdir(parents=True)
    (made / "one" / "page.html").write_text("<title>One &amp; only</title>")
    (made / "one" / "page.yaml").write_text("name: one\n")
    (made / "README.md").write_text(
        "# What `was` found\n\n[a page](one/page.html), [the text](one/note.md#end), [outside](../elsewhere.md), "
        "[far](https://example.org)\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n<script>alert(1)</script>\n"
    )
    (made / "one" / "note.md").write_text("A note.\n")
    return made


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["site", *map(str, arguments)])
    out, err = capsys.readouterr()
    return int(end.value.code or 0), out, err


def test_every_page_is_reached_and_every_link_holds(tmp_path: Path) -> None:
    index = write_site(tmp_path / "site", findings(tmp_path))
    leads = Links(index.read_text()).leads
    assert leads == ["findings/README.html", "findings/one/note.html", "findings/one/page.html"]
    assert "One &amp; only" in index.read_text() and "What was found" in index.read_text()
    text = (tmp_path / "site" / "findings" / "README.html").read_text()
    assert Links(text).leads == ["one/page.html", "one/note.html#end", "https://example.org"]
    assert "<a>outside</a>" in text and "<td>1</td>" in text and "<script>" not in text
    assert (tmp_path / "site" / "findings" / "one" / "page.yaml").is_file()


HEAD = (
    '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
)


def unstyled(page: Path) -> str:
    return re.sub(r"<style>.+?</style>", "", page.read_text(), flags=re.DOTALL)


def test_an_index_is_a_list_for_every_folder_of_the_findings_and_of_the_experiments(
    tmp_path: Path,
) -> None:
    (tmp_path / "site" / "experiments").mkdir(parents=True)
    (tmp_path / "site" / "experiments" / "bare.html").write_text("no title")
    index = write_site(tmp_path / "site", findings(tmp_path))
    assert index == tmp_path / "site" / "index.html"
    title = "Findings and experiments"
    assert unstyled(index) == (
        f'{HEAD}<meta name="generator" content="ablate site"><title>{title}</title>\n\n</head>\n'
        f'<body>\n<main id="main">\n<h1>{title}</h1>\n'
        "<h2>findings</h2>\n<ul>\n"
        '<li><a href="findings/README.html">What was found</a> <small>README.html</small></li>\n'
        "</ul>\n<h2>findings/one</h2>\n<ul>\n"
        '<li><a href="findings/one/note.html">note</a> <small>note.html</small></li>\n'
        '<li><a href="findings/one/page.html">One &amp; only</a> <small>page.html</small></li>\n'
        "</ul>\n<h2>experiments</h2>\n<ul>\n"
        '<li><a href="experiments/bare.html">untitled</a> <small>bare.html</small></li>\n'
        "</ul>\n</main>\n</body>\n</html>\n"
    )
    assert unstyled(tmp_path / "site" / "findings" / "one" / "note.html") == (
        f"{HEAD}<title>note</title>\n\n</head>\n"
        '<body>\n<main id="main">\n<p>A note.</p>\n</main>\n</body>\n</html>\n'
    )


@pytest.mark.parametrize(
    ("link", "leads"),
    [
        ("one/page.html", "one/page.html"),
        ("one/page.yaml", "one/page.yaml"),
        ("one/note.md", "one/note.html"),
        ("one/note.md#end", "one/note.html#end"),
        ("./one/../README.md", "./one/../README.html"),
        ("one/data.csv", ""),
        ("one/absent.html", ""),
        ("one", ""),
        ("#here", "#here"),
        ("mailto:me@host", "mailto:me@host"),
        ("//host/page.html", "//host/page.html"),
    ],
)
def test_a_link_of_a_text_leads_to_what_the_site_has_or_nowhere(
    tmp_path: Path, link: str, leads: str
) -> None:
    made = findings(tmp_path)
    (made / "one" / "data.csv").write_text("1\n")
    files = [path for path in made.rglob("*") if path.is_file()]
    assert target(link, made / "README.md", files) == leads


def test_an_experiment_has_its_page_beside_the_findings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_experiment(tmp_path / "results", n_seeds=2)
    folder = tmp_path / "site"
    of = ("--findings", findings(tmp_path), "--results", tmp_path / "results")
    assert said(capsys, folder, "split", *of)[0] == 0
    assert "<h1" in (folder / "experiments" / "split.html").read_text(encoding="utf-8")
    assert "experiments/split.html" in Links((folder / "index.html").read_text()).leads


def test_what_is_gone_from_the_findings_is_gone_from_the_site(tmp_path: Path) -> None:
    made = findings(tmp_path)
    write_site(tmp_path / "site", made)
    (made / "one" / "page.html").unlink()
    index = write_site(tmp_path / "site", made)
    assert "page.html" not in index.read_text()
    assert not (tmp_path / "site" / "findings" / "one" / "page.html").exists()


@pytest.mark.slow
def test_our_own_findings_and_an_experiment_are_a_site_that_loads_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    folder = tmp_path / "site"
    code, out, err = said(capsys, folder, "published/optimizers_on_r07", "--results", tmp_path)
    assert (code, err) == (0, "") and out.strip() == str(folder / "index.html")
    pages = sorted(folder.rglob("*.html"))
    assert (folder / "findings" / "history" / "history.html") in pages
    assert any("experiments" in page.parts for page in pages)
    reached = set()
    for page in pages:
        links = Links(page.read_text(encoding="utf-8"))
        assert links.loads == []
        for lead in links.leads:
            name = lead.partition("#")[0]
            if name and "://" not in name:
                assert (page.parent / name).is_file(), (page, lead)
                reached.add((page.parent / name).resolve())
    assert {page.resolve() for page in pages} - reached == {(folder / "index.html").resolve()}


def test_it_writes_into_no_folder_of_somebody_elses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made, other = findings(tmp_path), tmp_path / "other"
    other.mkdir()
    (other / "index.html").write_text("mine")
    code, _, err = said(capsys, other, "--findings", made)
    assert code == 2 and "no site of ours" in err and (other / "index.html").read_text() == "mine"
    assert said(capsys, tmp_path / "new", "--findings", tmp_path / "absent")[0] == 2
    for _ in range(2):  # over its own it may
        assert said(capsys, tmp_path / "new", "--findings", made)[0] == 0
