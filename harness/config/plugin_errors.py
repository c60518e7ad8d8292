"""What the code of a plug-in raised, in one line: its file and line, and what is there instead."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.config.plugins import PAGE, paths
from harness.errors import UserError, near

MOST_NAMES = 40  # that are listed


def raised_by_plug_in(error: BaseException) -> str | None:
    """One line on an error that a plug-in in force met, in its own lines or in what they called.

    None where none of its lines stands in the traceback."""
    files = {str(path) for path in paths()}
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename in files]
    if not frames:
        return None
    said = (str(error).splitlines() or [""])[0]
    if isinstance(error, AttributeError) and error.name is not None:
        said = f"{type(error.obj).__name__} has no '{error.name}'{_there(error.obj, error.name)}"
    met = frames[-1]
    what = f"{type(error).__name__}: {said}".rstrip(": ")
    return f"plug-in {met.filename}:{met.lineno}: {met.name}: {what}; see {PAGE}"


def _there(thing: Any, name: str) -> str:
    """What a thing has in a wrong name's place: of a part of the network its parts."""
    names = {*vars(thing)} if hasattr(thing, "__dict__") else {*dir(thing)}
    for kind in ("_modules", "_parameters", "_buffers"):
        names |= {*getattr(thing, kind, ())}
    there = sorted(n for n in names - {"training"} if not n.startswith("_"))
    listed = f"; there is: {', '.join(there)}" if 0 < len(there) <= MOST_NAMES else ""
    nearest = near(name, there)
    return nearest + listed if "did you mean" in nearest else listed


@contextmanager
def told_in_a_line() -> Iterator[None]:
    """What a plug-in raises within is a UserError of one line."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        line = raised_by_plug_in(error)
        if line is None:
            raise
        raise UserError(line) from error
