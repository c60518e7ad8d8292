"""The code at the head of a log: as it is written, and as a program that comments do not move."""

import ast
import hashlib
from functools import lru_cache

from harness.foreign.log_lines import SEPARATOR
from harness.foreign.logs import DIGEST_DIGITS, is_code
from harness.provenance.source import in_words

CODE_LIMIT = 512 * 1024  # bytes: a longer text is known by its letters alone
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


class CodeDigest:
    """Digests of the code of a log: of the sections between lines of ==== that have code."""

    def __init__(self) -> None:
        self.digest: str | None = None  # of its letters
        self.program: str | None = None  # that comments, docstrings and annotations do not move
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
        words = in_words(tree)
    except RecursionError:
        return digest
    return hashlib.sha256(words.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_DIGITS]
