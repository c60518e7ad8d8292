"""Code as a digest that comments, docstrings and layout do not move."""

import ast
import hashlib
from collections.abc import Collection, Mapping
from typing import Any

from harness.run.digests import text_digest

# bytes of somebody else's code that are parsed: a tree can take 600 times as many
CODE_LIMIT = 512 * 1024
# what may begin with a docstring
DOCUMENTED = (
    ast.Module,
    ast.ClassDef,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
)


def in_words(node: object) -> str:
    """A syntax tree as text, without docstrings.

    What `ast.dump` of Python 3.11 says, whatever the version (3.12 added type_params, 3.13 leaves
    empty lists out).
    """
    if isinstance(node, list):
        return f"[{', '.join(map(in_words, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = []
    for name in node._fields:
        value: Any = getattr(node, name, None)
        if (value is None and getattr(type(node), name, ...) is None) or (
            name == "type_params" and not value
        ):
            continue
        if (
            name == "body"
            and isinstance(node, DOCUMENTED)
            and ast.get_docstring(node, clean=False) is not None
        ):
            value = value[1:]
        fields.append(f"{name}={in_words(value)}")
    return f"{type(node).__name__}({', '.join(fields)})"


Digests = Mapping[str, str]  # sha256 of a text, in hex -> its digest
# every run of a folder names the same few files
_known: dict[str, str] = {}


def digests_among(wanted: Collection[str]) -> Digests:
    """What this process has made of texts, of these digests: another one need not parse them."""
    return {key: digest for key, digest in _known.copy().items() if digest in wanted}


def take_digests(digests: Digests) -> None:
    """What another process made of texts, which this one then does not parse."""
    _known.update(digests)


def code_digest(text: str) -> str:
    """16 hex digits that comments, docstrings and layout do not move, nor the version of Python."""
    key = hashlib.sha256(text.encode()).hexdigest()
    if key not in _known:
        _known[key] = text_digest(in_words(ast.parse(text)))
    return _known[key]
