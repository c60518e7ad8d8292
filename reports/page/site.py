"""A site of pages without a server: findings, the history and chosen experiments under one index.

Every page is one file that loads nothing; links are relative, so the folder may lie anywhere.
"""

import html
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path, PurePosixPath

from markdown_it import MarkdownIt
from markdown_it.token import Token

from reports.inputs.files import write_page

GENERATOR = '<meta name="generator" content="ablate site">'
TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.DOTALL)
ELSEWHERE = re.compile(r"[a-z]+:|//", re.IGNORECASE)  # an address that is no path
FINDINGS, EXPERIMENTS = "findings", "experiments"
AS_THEY_ARE = (".html", ".yaml")


@dataclass(frozen=True, kw_only=True)
class SitePage:
    """A page of the site. path: from its index, with slashes."""

    path: str
    title: str

    @property
    def group(self) -> str:
        """The folder that it stands in."""
        return str(PurePosixPath(self.path).parent)


def may_become_site(folder: Path) -> bool:
    """Whether it holds nothing, or a site of ours."""
    if not folder.exists() or not any(folder.iterdir()):
        return True
    index = folder / "index.html"
    return index.is_file() and GENERATOR in index.read_text(encoding="utf-8")


def write_site(folder: Path, findings: Path) -> Path:
    """The findings' pages beside the experiments that are there, and the index; returns that."""
    shutil.rmtree(folder / FINDINGS, ignore_errors=True)
    files = [path for path in sorted(findings.rglob("*")) if path.is_file()]
    for path in files:
        place = folder / FINDINGS / path.relative_to(findings)
        if path.suffix == ".md":
            write_page(place.with_suffix(".html"), rendered(path, files))
        elif path.suffix in AS_THEY_ARE:
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
    pages = []
    for kind in (FINDINGS, EXPERIMENTS):
        for path in sorted((folder / kind).rglob("*.html")):
            title = title_of(path.read_text(encoding="utf-8"))
            pages.append(SitePage(path=path.relative_to(folder).as_posix(), title=title))
    return write_page(folder / "index.html", index(pages))


def title_of(text: str) -> str:
    """What a page calls itself."""
    match = TITLE.search(text)
    return html.unescape(match[1].strip()) if match else "untitled"


def rendered(path: Path, files: Sequence[Path]) -> str:
    """A text of the findings as a page; links to what is not among the files become words."""
    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = reader.parse(path.read_text(encoding="utf-8"))
    for token in tokens:
        for child in token.children or ():
            if child.type == "link_open":
                child.attrSet("href", target(str(child.attrGet("href")), path, files))
    heading = next((tokens[i + 1] for i, t in enumerate(tokens) if t.type == "heading_open"), None)
    title = path.stem if heading is None else heading_words(heading)
    body = reader.renderer.render(tokens, reader.options, {}).replace('<a href="">', "<a>")
    return document(title, body)


def heading_words(heading: Token) -> str:
    """A heading without its marks."""
    return "".join(child.content for child in heading.children or ())


def target(link: str, page: Path, files: Sequence[Path]) -> str:
    """Where a link leads on the site; empty where that is not on it."""
    if ELSEWHERE.match(link) or link.startswith("#"):
        return link
    name, hash_mark, place = link.partition("#")
    meant = (page.parent / name).resolve()
    if meant not in [file.resolve() for file in files]:
        return ""
    if meant.suffix not in (".md", *AS_THEY_ARE):
        return ""
    if name.endswith(".md"):
        name = f"{name.removesuffix('.md')}.html"
    return f"{name}{hash_mark}{place}"


def index(pages: Sequence[SitePage]) -> str:
    """The list of all pages, by folder."""
    body = "<h1>Findings and experiments</h1>\n"
    for group in dict.fromkeys(page.group for page in pages):
        body += f"<h2>{html.escape(group)}</h2>\n<ul>\n"
        for page in pages:
            if page.group == group:
                name, title = PurePosixPath(page.path).name, html.escape(page.title)
                body += f'<li><a href="{html.escape(page.path)}">{title}</a> <small>'
                body += f"{html.escape(name)}</small></li>\n"
        body += "</ul>\n"
    return document("Findings and experiments", body, generator=GENERATOR)


def document(title: str, body: str, *, generator: str = "") -> str:
    """A whole page in the report's style."""
    css = resources.files("reports.page").joinpath("templates/report.css").read_text("utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"{generator}<title>{html.escape(title)}</title>\n<style>{css}</style>\n</head>\n"
        f'<body>\n<main id="main">\n{body}</main>\n</body>\n</html>\n'
    )
