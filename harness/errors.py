"""The one exception that means 'the user can mend this'.

The command line prints it as one line, or a line for every mistake of one file, and exits with 2.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches


class UserError(Exception):
    """What is wrong, where (file, line or field), and what to do, in one line."""


class Mistakes:
    """What is wrong in one place, gathered, so that all of it is told at once."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Whatever is refused within is kept for `refuse`."""
        try:
            yield
        except UserError as error:
            self.lines += str(error).splitlines()

    def refuse(self) -> None:
        """Raises UserError with a line for every mistake, if there was one."""
        if self.lines:
            raise UserError("\n".join(dict.fromkeys(self.lines)))


class StoppedError(UserError):
    """A signal stopped the command: how to go on. code: the exit code that says so."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """The text with what would command a terminal, or turn the reading direction, spelled out."""
    return CONTROLS.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def how_to_install(extra: str) -> str:
    """What brings the libraries of an extra, from the registry and in a checkout."""
    return (
        f"pip install 'speedrun-ablations[{extra}]', or in a checkout pip install -e '.[{extra}]'"
    )


ZEROS = re.compile(r"(?<!\d)0+(?=\d)")


def near(name: str, choices: Iterable[str]) -> str:
    """'; did you mean 'x'?', or what there is."""
    choices = list(choices)
    # r8 is r08: by spelling alone it is nearer to r18
    same = [k for k in choices if ZEROS.sub("", k) == ZEROS.sub("", name)]
    if match := same or get_close_matches(name, choices, n=1, cutoff=0.5):
        return f"; did you mean '{match[0]}'?"
    return f"; there is: {', '.join(choices)}" if choices and len(choices) <= 40 else ""
