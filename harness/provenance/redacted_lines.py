"""A log as it comes, line by line, without secrets: those that have several lines too."""

import re
from collections.abc import Callable

from harness.provenance.own_secrets import HIDDEN
from harness.provenance.redact import redact
from harness.provenance.secret_rules import KEY_BEGINS, KEY_ENDS, NAMED

_OPEN = re.compile(  # a value that goes on behind the end of a text
    rf"(?i)((?:{NAMED}|_KEY)[\"']?\]?\s*[=:]\s*)"
    r"(?:(?P<mark>\"\"\"|''')(?:(?!(?P=mark))[\s\S])*|"
    r"(?P<block>[|>])[+-]?[ \t]*(?:\n[ \t]+[^\n]*)*|[^\s\\]+\\(?:\n[^\n]*\\)*)\n?\Z"
)
_REACH = 4000  # letters before the end of a text in which such a value begins
_MOST = 400  # lines of a secret


class RedactedLines:
    """`redact` for a text that comes piece by piece, whole lines each.

    A private key and some values have several lines: those that follow the first are left out,
    whichever piece they are in.
    """

    def __init__(self) -> None:
        self.n_left = 0  # lines that may still be of a secret
        self.goes_on: Callable[[str], bool] = _of_a_key
        self.ends: re.Pattern[str] | None = KEY_ENDS

    def __call__(self, text: str) -> str:
        given = text
        if self.n_left:
            text = self._behind_secret(text)
        begins = [key.end() for key in KEY_BEGINS.finditer(text)]
        if begins and not KEY_ENDS.search(text, begins[-1]):
            self._expect(_of_a_key, KEY_ENDS)
        elif key := _OPEN.search(text, max(0, len(text) - _REACH)):
            text = f"{text[: key.end(1)]}{HIDDEN}\n"
            if key["mark"]:
                self._expect(_any_line, re.compile(key["mark"]))
            else:
                self._expect(_is_indented if key["block"] else _is_continued, None)
        clean = redact(text)
        return clean if not clean or clean.endswith("\n") or given[-1:] != "\n" else f"{clean}\n"

    def _expect(self, goes_on: Callable[[str], bool], ends: re.Pattern[str] | None) -> None:
        """The next lines are of a secret as long as one goes on, or up to what ends it."""
        self.n_left, self.goes_on, self.ends = _MOST, goes_on, ends

    def _behind_secret(self, text: str) -> str:
        """The text without the lines of a secret at its beginning."""
        lines = text.splitlines(keepends=True)
        for place, line in enumerate(lines):
            end = self.ends.search(line) if self.ends else None
            if end is not None:
                self.n_left = 0
                return line[end.end() :].lstrip("\n") + "".join(lines[place + 1 :])
            self.n_left -= 1
            if not self.n_left or not self.goes_on(line):
                self.n_left = 0
                last = self.goes_on is _is_continued  # the line that ends it is of it
                return "".join(lines[place + last :])
        return ""


def _of_a_key(line: str) -> bool:
    """Whether a line may be one of a private key's: base64, or nothing."""
    word = line.strip().rpartition(" ")[2]  # behind what a logger puts before it
    if not word or re.fullmatch(r"[A-Za-z0-9+/=]{24,}", word):
        return True
    short = re.fullmatch(r"[A-Za-z0-9+/]{1,23}={0,2}", word)
    return short is not None and re.search(r"[\d+/=]|[a-z][A-Z]", word) is not None


def _any_line(line: str) -> bool:
    return True


def _is_indented(line: str) -> bool:
    return line[:1] in (" ", "\t")


def _is_continued(line: str) -> bool:
    return line.rstrip("\n").endswith("\\")
