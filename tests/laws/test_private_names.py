"""Tests ask for behaviour: they know no private name of the code, so that moving it changes no expectation."""

import ast
import re
from collections.abc import Iterator

from tests.laws.test_plain_lines import ROOT, SOURCE, nodes

BY_TEXT = {
    "setattr",
    "delattr",
    "object",
    "patch",
    "getattr",
}  # monkeypatch, patch: a name as a text


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def defined(text: str) -> Iterator[str]:
    """The private names that a file gives to functions, classes, variables and attributes."""
    for node in nodes(text):
        name = getattr(node, "name", None)
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            name = node.id if isinstance(node, ast.Name) else node.attr
        if isinstance(name, str) and is_private(name):
            yield name


def known(text: str) -> Iterator[tuple[int, str]]:
    """The private names that a file of tests has of others, with their lines."""
    for node in ast.walk(ast.parse(text)):  # read once: not worth keeping
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) not in ("self", "cls"):
            yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in BY_TEXT:
            texts = [a.value for a in node.args if isinstance(a, ast.Constant)]
            names = (t.rpartition(".")[2] for t in texts if isinstance(t, str))
            yield from ((node.lineno, name) for name in names)


def test_no_test_knows_a_private_name() -> None:
    private = {name for text in SOURCE.values() for name in defined(text)}
    assert len(private) > 500, "they are found"
    told: list[str] = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        text = path.read_text()
        if private.isdisjoint(re.findall(r"\w+", text)):
            continue
        for line, name in known(text):
            if is_private(name) and name in private:
                told.append(f"{path.relative_to(ROOT)}:{line} {name}")
    assert told == []


def test_every_way_to_a_private_name_is_seen() -> None:
    text = "\n".join(
        (
            "from harness.x import _imported",
            "x._read()",
            "x._written = 1",
            "monkeypatch.setattr(x, '_replaced', 1)",
            "self._own",
            "monkeypatch.setattr('harness.x._dotted', 1)",
            "getattr(x, '_got')",
        )
    )
    found = {(line, name) for line, name in known(text) if is_private(name)}
    assert found == {
        (1, "_imported"),
        (2, "_read"),
        (3, "_written"),
        (4, "_replaced"),
        (6, "_dotted"),
        (7, "_got"),
    }
    assert [*defined("def _f():\n    _x = self._y = 1\n    __z = 2")] == ["_f", "_x", "_y"]
