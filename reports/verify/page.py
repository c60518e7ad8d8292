"""Reading a report back.

Its embedded data, what it prints and draws, and whether two readings say the same.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from reports.stats.digits import same_number

VOID = {"meta", "link", "br", "input", "path", "circle", "rect", "line"}
NUMBER = re.compile(r"([+−-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?)")
COORDINATE = re.compile(r"-?\d+(?:\.\d+)?|[^\s,]")  # a number, else a command of a path
GEOMETRY = {
    "d",
    "x",
    "y",
    "x1",
    "y1",
    "x2",
    "y2",
    "cx",
    "cy",
    "r",
    "rx",
    "width",
    "height",
    "viewbox",
}  # as a parser spells them


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

    data: dict[str, Any] = field(default_factory=dict)
    verdicts: dict[tuple[int, int], dict[str, Printed]] = field(default_factory=dict)
    sentences: dict[tuple[Any, ...], str] = field(default_factory=dict)
    rows: dict[tuple[Any, ...], str] = field(default_factory=dict)
    drawings: dict[tuple[Any, ...], list[tuple[str, str]]] = field(
        default_factory=dict
    )  # (element and attribute, its text)
    carried: dict[tuple[Any, ...], str] = field(
        default_factory=dict
    )  # data-v outside the table of verdicts
    sorted_by: dict[tuple[Any, ...], str] = field(
        default_factory=dict
    )  # data-v in the table of runs: the data as they are
    sections: dict[tuple[Any, ...], str] = field(default_factory=dict)


class Reader(HTMLParser):
    """Walks the markup once; knows the experiment, the table row and the figure it is in."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.page = Page()
        self.json = ""
        self._open: list[tuple[str, dict[str, str | None]]] = []
        self._text: list[list[str]] = []
        self._n: Counter[tuple[Any, ...]] = Counter()

    def _attribute(self, name: str) -> str | None:
        return next((a[name] for _, a in reversed(self._open) if name in a), None)

    def _next(self, *where: Any) -> tuple[Any, ...]:
        """The place of one more piece in a list that has no keys of its own."""
        self._n[where] += 1
        return (*where, self._n[where])

    def _figure(self) -> str | None:
        return next((a.get("id") for tag, a in reversed(self._open) if tag == "figure"), None)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "svg" or any(t == "svg" for t, _ in self._open):
            pieces = self.page.drawings.setdefault((self._figure(),), [])
            pieces += [("element", tag), *((f"{tag} {name}", value or "") for name, value in attrs)]
        if tag not in VOID:
            self._open.append((tag, dict(attrs)))
            self._text.append([])

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_data(self, data: str) -> None:
        for text in self._text:
            text.append(data)
        if any(tag == "svg" for tag, _ in self._open):
            self.page.drawings.setdefault((self._figure(),), []).append(("text", data))

    def handle_endtag(self, tag: str) -> None:
        while self._open:
            name, attributes = self._open.pop()
            self._close(name, attributes, "".join(self._text.pop()))
            if name == tag:
                return

    def _close(self, tag: str, attributes: dict[str, str | None], text: str) -> None:
        if tag == "script" and attributes.get("id") == "data":
            self.json = text
        experiment = self._attribute("data-experiment")
        if experiment is None:
            return
        index, words = int(experiment), " ".join(text.split())
        key, arm, table = (
            attributes.get("data-key"),
            self._attribute("data-arm"),
            self._attribute("data-table"),
        )
        if key and table == "verdicts" and arm is not None:
            self.page.verdicts.setdefault((index, int(arm)), {})[key] = Printed(
                text=words, values=numbers(attributes.get("data-v"))
            )
        elif key and table != "runs":
            self.page.sentences[(index, key)] = words
        elif tag == "section":
            self.page.sections[(attributes.get("aria-labelledby"),)] = words
        elif tag == "tr" and (run := attributes.get("data-run")):
            self.page.rows[(index, run)] = words
        elif tag == "tr" and (run := attributes.get("data-id")):
            self.page.rows[(index, "unfinished", run)] = words
        elif tag in ("li", "dd") and (listed := self._attribute("class")) in ("facts", "notes"):
            self.page.sentences[self._next(index, listed)] = words
        if (carried := attributes.get("data-v")) is not None and not (key and table == "verdicts"):
            if table == "runs":
                self.page.sorted_by[self._next(index, self._attribute("data-run"))] = carried
            else:
                self.page.carried[self._next(index, table)] = carried


def numbers(carried: str | None) -> tuple[float | None, ...]:
    return () if carried is None else tuple(float(v) if v else None for v in carried.split(","))


def read_page(report: Path | str) -> Page:
    """The page of a file, or of its text.

    Raises ValueError where it is no report of this program.
    """
    name = report if isinstance(report, Path) else "the page"
    text = report.read_text(encoding="utf-8") if isinstance(report, Path) else report
    reader = Reader()
    reader.feed(text)
    reader.close()
    try:
        reader.page.data = json.loads(reader.json)
        if reader.page.data["format"] != 2:
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise ValueError(
            f"{name}: holds no data of an `ablate report` page; write the page again from its"
            " results"
        ) from None
    return reader.page


def same_text(printed: str, options: Sequence[str]) -> bool:
    """Whether each number, and each piece between, stands at its place in an option."""
    if printed in options:
        return True
    pieces = NUMBER.split(printed)
    found = [split for o in options if len(split := NUMBER.split(o)) == len(pieces)]
    return bool(found) and all(piece in {f[i] for f in found} for i, piece in enumerate(pieces))


def same_drawn(name: str, text: str, options: Sequence[str]) -> bool:
    """The same of a piece of a drawing: its coordinates as numbers, anything else as text."""
    if name.rpartition(" ")[2] not in GEOMETRY:
        return same_text(text, options)
    drawn = coordinates(text)
    found = [split for o in options if len(split := coordinates(o)) == len(drawn)]
    return bool(found) and all(part in {f[i] for f in found} for i, part in enumerate(drawn))


def coordinates(text: str) -> list[str | float]:
    return [float(part) if part[-1].isdigit() else part for part in COORDINATE.findall(text)]


def numbers_of(carried: str) -> list[float | None] | str:
    """What an element carries: numbers, or else words."""
    try:
        return list(numbers(carried))
    except ValueError:
        return carried


def same_data(own: Any, options: Sequence[Any]) -> bool:
    """Whether JSON data are those of the options.

    Numbers that were computed as numbers, counts and words exactly.
    """
    if type(own) is type(options[0]) and own == options[0]:
        return True
    if isinstance(own, Mapping):
        found = [o for o in options if isinstance(o, Mapping) and set(o) == set(own)]
        return bool(found) and all(same_data(own[key], [o[key] for o in found]) for key in own)
    if isinstance(own, list):
        lists = [o for o in options if isinstance(o, list) and len(o) == len(own)]
        return bool(lists) and all(
            same_data(value, [o[i] for o in lists]) for i, value in enumerate(own)
        )
    if isinstance(own, float):
        return any(isinstance(o, float) and same_number(own, o) for o in options)
    return any(type(own) is type(o) and own == o for o in options)


def shortened(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"
