"""The code at the head of a log: its letters, its program, and its recipe.

Comments move no program, whole numbers and words in quotes no recipe. A text beyond CODE_LIMIT is
known by its letters alone.
"""

import ast
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from harness.foreign.log_lines import SEPARATOR
from harness.foreign.log_text import log_lines
from harness.foreign.logs import DIGEST_DIGITS, is_code
from harness.run.code import CODE_LIMIT, in_words

# What two programs of one recipe may differ in: comments, words in quotes, whole numbers
COMMENT = re.compile(rb"#[^\n]*")
QUOTED = re.compile(rb"\"[^\"\n]*\"|'[^'\n]*'")
WHOLE = re.compile(rb"(?<![\w.])\d[\d_]*(?![\w.])")
# The head of another file, behind the script: its name between two dashed lines
FILE = re.compile(rb"^-{20,}[ \t]*\r?\n# ?([\w.-]+\.py)[ \t]*\r?\n-{20,}[ \t]*\r?\n", re.MULTILINE)
MOST_LINES = 30_000  # of a log in which its script is looked for
MOST_SECTIONS = 4  # between lines of ==== that are one script
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, kw_only=True)
class LogProgram:
    """The code that a log opens with."""

    script: bytes
    modules: Mapping[str, bytes]  # file name -> what the script imports from its own folder

    @property
    def digest(self) -> str:
        """Of what it does."""
        texts = (self.script, *self.modules.values())
        return " ".join([*self.modules, *(program_of(text, "") for text in texts)])


def program_in(path: Path) -> LogProgram | None:
    """The script at the head of a log, between lines of ====; None where there is none.

    It may hold such lines itself, in a text: it is the first that is Python and imports something.
    Other files may stand behind it, each below its name. Raises LogError for a file that is no
    text."""
    sections: list[list[bytes]] = [[]]
    for line in log_lines(path):
        sections[-1].append(line)
        if SEPARATOR.match(line):
            sections.append([])
        if sum(map(len, sections)) > MOST_LINES:
            break
    for first in range(len(sections)):
        for last in range(first, min(first + MOST_SECTIONS, len(sections) - 1)):
            lines = [line for section in sections[first : last + 1] for line in section]
            text = b"".join(lines[:-1])  # but for the line of ==== at its end
            script, *others = FILE.split(text)
            if _is_script(script):
                modules = dict(zip(others[::2], others[1::2]))
                named = {name.decode(): content for name, content in modules.items()}
                return LogProgram(script=script, modules=named)
    return None


def _is_script(text: bytes) -> bool:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(isinstance(statement, ast.Import | ast.ImportFrom) for statement in tree.body)


class CodeDigest:
    """Digests of the code of a log: of the sections between lines of ==== that have code."""

    def __init__(self) -> None:
        self.digest: str | None = None  # of its letters
        self.program: str | None = None  # that comments, docstrings and annotations do not move
        self.recipe: str | None = None  # that whole numbers do not move, such as its steps
        self._begin()

    def _begin(self) -> None:
        self.section = hashlib.sha256()
        self.is_code = False
        self.text: list[bytes] = []
        self.size = 0

    def feed(self, line: bytes) -> None:
        """Read one line that holds no measurement."""
        if SEPARATOR.match(line):
            if self.is_code:
                self.digest = self.section.hexdigest()[:DIGEST_DIGITS]
                self.program = self._program(self.digest)
                self.recipe = self._recipe(self.digest)
            self._begin()
            return
        whole = line.rstrip(b"\r\n") + b"\n"
        self.section.update(whole)
        if is_code(line):
            self.is_code = True
        self.size += len(whole)
        if self.size <= CODE_LIMIT:
            self.text.append(whole)
        else:
            self.text = []

    def _program(self, digest: str) -> str:
        if self.size > CODE_LIMIT:
            return digest
        return program_of(b"".join(self.text), digest)

    def _recipe(self, digest: str) -> str:
        if self.size > CODE_LIMIT:
            return digest
        return recipe_of(b"".join(self.text))


@lru_cache(maxsize=256)
def program_of(text: bytes, digest: str) -> str:
    """Digest of a text's syntax tree without comments, docstrings and annotations of functions.

    Its letters' digest where it is no Python."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return digest
    for node in ast.walk(tree):
        if isinstance(node, FUNCTION):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
    try:
        syntax = in_words(tree)
    except RecursionError:
        return digest
    return hashlib.sha256(syntax.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_DIGITS]


@lru_cache(maxsize=256)
def recipe_of(text: bytes) -> str:
    """Digest of a text without comments, quoted words, white space and whole numbers.

    Equal for a program at two lengths of its schedule. It goes by the letters, so that what is no
    whole Python has one, too."""
    plain = WHOLE.sub(b"N", QUOTED.sub(b"''", COMMENT.sub(b"", text)))
    return hashlib.sha256(b"".join(plain.split())).hexdigest()[:DIGEST_DIGITS]
