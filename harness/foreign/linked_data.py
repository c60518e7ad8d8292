"""Data of a trainer as links in a copy of its code."""

from collections.abc import Mapping
from pathlib import Path


def link_data(data: Mapping[str, str], folder: Path) -> None:
    """Put links to data into a clean copy; data: place in it -> path."""
    for name, path in data.items():
        _link(Path(path), folder / name)


def _link(path: Path, place: Path) -> None:
    """A link to a file or folder; into a folder that holds code too, piece by piece."""
    if place.is_dir() and path.is_dir():
        for inner in path.iterdir():
            _link(inner, place / inner.name)
    elif not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(path)
