"""What comes out, written whole or not at all."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from harness.run.files import write_whole
from harness.run.guarded import IN_ROOT, check_folder


def write_out(out: Path, write: Callable[[IO[bytes]], Any], *, results: Path | None = None) -> Path:
    """Write a file beside its place and rename it; a link that lies there is replaced.

    results: the folder of results, in which no link is followed; one to it, or to a place of the
    user's own, is. Returns out."""
    place = out.absolute()
    below = names_below(place, results)
    for depth in range(below - 1, 0, -1):  # the folders between the results folder and the file
        folder = place.parents[depth - 1]
        with suppress(FileExistsError):
            folder.mkdir()
        check_folder(folder, below=below - depth)
    place.parent.mkdir(parents=True, exist_ok=True)
    write_whole(place, write, below=below)
    return out


def write_page(out: Path, text: str, *, results: Path | None = None) -> Path:
    """The same of a text."""
    return write_out(out, lambda file: file.write(text.encode()), results=results)


def names_below(place: Path, results: Path | None) -> int:
    """How many names at the end of a path lie in the results folder, however that is named."""
    below = IN_ROOT
    if results is not None and results.is_dir():
        for n, folder in enumerate(place.parents, IN_ROOT):
            if folder.is_dir() and folder.samefile(results):
                below = n
    return below
