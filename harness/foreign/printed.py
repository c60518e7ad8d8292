"""What a page of a record prints: its lists of losses."""

import re
from collections.abc import Iterator
from pathlib import Path

PAGES = ("README.md", "statistics.md")
LIST = re.compile(r"\[([\d.,\s]{10,20000})\]")
NEAR_TARGET = 0.1  # nats: numbers of a list that lie closer are losses


def pages_of(folder: Path) -> Iterator[tuple[Path, str]]:
    """The pages of a folder and of those in it, with their text."""
    for path in sorted(folder.rglob("*")):
        if path.name in PAGES and path.is_file():
            yield path, path.read_text(encoding="utf-8", errors="replace")


def printed_losses(folder: Path, target: float) -> Iterator[tuple[str, list[float]]]:
    """(page and line, losses) of every list of losses that a page prints."""
    for path, text in pages_of(folder):
        for match in LIST.finditer(text):
            texts = match[1].replace(",", " ").split()
            try:
                values = [float(word) for word in texts]
            except ValueError:
                continue
            if len(values) > 1 and all(abs(value - target) < NEAR_TARGET for value in values):
                line = text.count("\n", 0, match.start()) + 1
                yield f"list in {path}:{line}", values
