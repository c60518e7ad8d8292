"""Reading a report back.

Its embedded data, and what it prints and draws.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

from harness.run.parse import parse_json
from harness.run.versions import PAGE, check_version

DATA = '<script type="application/json" id="data">'  # what it holds stands up to the next </script>
REFRESH = re.compile(r'\n<meta http-equiv="refresh" content="(\d+\.\d+)">\n')
MOST_BYTES = 1 << 30  # of a page that is read
VOID = {"meta", "link", "br", "input", "path", "circle", "rect", "line"}
Attributes = dict[str, str | None]
Row = Mapping[str, Any]  # one of the table of runs
Embedded = Mapping[str, Any]  # what a page carries of one experiment, or a file of its runs


@dataclass(frozen=True, kw_only=True)
class Printed:
    """One printed piece: its text and the values it carries at full precision."""

    text: str
    values: tuple[float | None, ...]


@dataclass(kw_only=True)
class Page:
    """What a report prints, by where it stands.

    verdicts[(experiment, arm)][key], and texts by (experiment, ...).
    """

    text: str = ""  # all of it
    data: Embedded = field(default_factory=dict)
    verdicts: dict[tuple[int, int], dict[str, Printed]] = field(default_factory=dict)
    sentences: dict[tuple[Any, ...], str] = field(default_factory=dict)
    rows: dict[tuple[Any, ...], str] = field(default_factory=dict)
    # (element and attribute, its text)
    drawings: dict[tuple[Any, ...], list[tuple[str, str]]] = field(default_factory=dict)
    # data-v outside the table of verdicts
    carried: dict[tuple[Any, ...], str] = field(default_factory=dict)
    # data-v in the table of runs: the data as they are
    sorted_by: dict[tuple[Any, ...], str] = field(default_factory=dict)
    sections: dict[tuple[Any, ...], str] = field(default_factory=dict)
    markup: str = ""  # the text of the page without its data
    embedded: str = ""  # the text of its data
    refresh_s: float | None = None  # it loads itself again so often


class OpenElement(NamedTuple):
    """An open element, with what it has from those around it."""

    tag: str
    attributes: Attributes
    begins: int  # the place of its first piece of text among all
    is_drawn: bool  # an svg, or inside one
    figure: str | None  # the id of the innermost one
    experiment: str | None  # the innermost data-experiment


OUTERMOST = OpenElement(
    tag="", attributes={}, begins=0, is_drawn=False, figure=None, experiment=None
)  # around the outermost element


class Reader(HTMLParser):
    """Walks the markup once; knows the experiment, the table row and the figure it is in."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.page = Page()
        self.json = ""
        self._open: list[OpenElement] = []
        self._texts: list[str] = []
        self._n: Counter[tuple[Any, ...]] = Counter()

    def updatepos(self, i: int, j: int) -> int:
        """The parser's place in lines, which nobody asks for and which takes long to count."""
        return j

    def _attribute(self, name: str) -> str | None:
        """The value of this attribute in the innermost open element that has it."""
        for element in reversed(self._open):
            if name in element.attributes:
                return element.attributes[name]
        return None

    def _next(self, *where: Any) -> tuple[Any, ...]:
        """The place of one more piece in a list that has no keys of its own."""
        self._n[where] += 1
        return (*where, self._n[where])

    def _around(self) -> OpenElement:
        """The innermost open element."""
        return self._open[-1] if self._open else OUTERMOST

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        around, attributes = self._around(), dict(attrs)
        is_drawn = around.is_drawn or tag == "svg"
        if is_drawn:
            pieces = self.page.drawings.setdefault((around.figure,), [])
            pieces.append(("element", tag))
            for name, value in attrs:
                pieces.append((f"{tag} {name}", value or ""))
        if tag in VOID:
            return
        figure = attributes.get("id") if tag == "figure" else around.figure
        element = OpenElement(
            tag=tag,
            attributes=attributes,
            begins=len(self._texts),
            is_drawn=is_drawn,
            figure=figure,
            experiment=attributes.get("data-experiment", around.experiment),
        )
        self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_data(self, data: str) -> None:
        self._texts.append(data)
        around = self._around()
        if around.is_drawn:
            self.page.drawings.setdefault((around.figure,), []).append(("text", data))

    def handle_endtag(self, tag: str) -> None:
        while self._open:
            element = self._open.pop()
            self._close(element)
            if element.tag == tag:
                return

    def _close(self, element: OpenElement) -> None:
        attributes = element.attributes
        if element.tag == "script" and attributes.get("id") == "data":
            self.json = "".join(self._texts[element.begins :])
        experiment = self._around().experiment
        if experiment is None:
            return
        index = int(experiment)
        self._print(index, element)
        self._carry(index, attributes)

    def _words(self, element: OpenElement) -> str:
        """All that is said inside an element, in one line."""
        return " ".join("".join(self._texts[element.begins :]).split())

    def _print(self, index: int, element: OpenElement) -> None:
        """Keep the words of an element that has just closed, by where they stand."""
        tag, attributes = element.tag, element.attributes
        key = attributes.get("data-key")
        arm, table = self._attribute("data-arm"), self._attribute("data-table")
        if key and table == "verdicts" and arm is not None:
            values = numbers(attributes.get("data-v"))
            printed = Printed(text=self._words(element), values=values)
            self.page.verdicts.setdefault((index, int(arm)), {})[key] = printed
        elif key and table != "runs":
            self.page.sentences[(index, key)] = self._words(element)
        elif tag == "section":
            self.page.sections[(attributes.get("aria-labelledby"),)] = self._words(element)
        elif tag == "tr" and attributes.get("data-run"):
            self.page.rows[(index, attributes["data-run"])] = self._words(element)
        elif tag == "tr" and attributes.get("data-id"):
            self.page.rows[(index, "unfinished", attributes["data-id"])] = self._words(element)
        elif tag in ("li", "dd"):
            listed = self._attribute("class")
            if listed in ("facts", "notes"):
                self.page.sentences[self._next(index, listed)] = self._words(element)

    def _carry(self, index: int, attributes: Attributes) -> None:
        """Keep what an element carries outside the table of verdicts."""
        carried, table = attributes.get("data-v"), self._attribute("data-table")
        if carried is None or (attributes.get("data-key") and table == "verdicts"):
            return
        if table == "runs":
            self.page.sorted_by[self._next(index, self._attribute("data-run"))] = carried
        else:
            self.page.carried[self._next(index, table)] = carried


def numbers(carried: str | None) -> tuple[float | None, ...]:
    """The values that an element carries, in the order of its attribute."""
    if carried is None:
        return ()
    values: list[float | None] = []
    for value in carried.split(","):
        if value:
            values.append(float(value))
        else:
            values.append(None)
    return tuple(values)


def read_page(report: Path | str) -> Page:
    """The page of a file, or of its text.

    Raises ValueError where it is no report of this program.
    """
    if isinstance(report, Path):
        name, text = str(report), text_of(report)
    else:
        name, text = "the page", report
    reader = Reader()
    try:
        reader.feed(text)
        reader.close()
        page = reader.page
        page.text = text
        page.data = parse_json(reader.json)
        if check_version({"schema": page.data["format"]}, PAGE, name) < PAGE:
            raise ValueError
    except (ValueError, KeyError, TypeError, AssertionError):
        raise ValueError(
            f"{name}: holds no data of an `ablate report` page; write the page again from its"
            " results"
        ) from None
    before, _, behind = text.partition(DATA)
    page.embedded, end, after = behind.partition("</script>")
    page.markup = f"{before}{DATA}{end}{after}"
    if refreshed := REFRESH.search(before):
        page.refresh_s = float(refreshed[1])
    return page


def text_of(path: Path) -> str:
    """The text of a file that may be no page; raises ValueError where it is too large for one."""
    n_bytes = path.stat().st_size
    if n_bytes > MOST_BYTES:
        raise ValueError(f"{path}: {n_bytes} bytes are no page of `ablate report`")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{path}: is no text in UTF-8, so no page of `ablate report`") from None
