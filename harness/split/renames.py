"""Names that NEW calls otherwise, wherever OLD had them."""

import ast
import copy
from collections import Counter
from collections.abc import Mapping
from typing import Any

from harness.split.told import is_telling

FIELDS: Mapping[type[ast.AST], str] = {  # what bears a name, and where
    ast.Name: "id",
    ast.Attribute: "attr",
    ast.arg: "arg",
    ast.keyword: "arg",
    ast.FunctionDef: "name",
    ast.AsyncFunctionDef: "name",
    ast.ClassDef: "name",
}


def name_in(node: Any) -> str | None:
    """The name that a node bears."""
    field = FIELDS.get(type(node))
    return None if field is None else getattr(node, field)


def accepted(pairs: Counter[tuple[str, str]], old: ast.AST, new: ast.AST) -> dict[str, str]:
    """The pairs of a name of OLD and one of NEW that are one name, everywhere.

    pairs: how often the one stands where the other stood."""
    n_old, n_new = _counts(old), _counts(new)
    used_old, used_new = _counts(old, all_lines=False), _counts(new, all_lines=False)
    own_old, own_new = _bound(old), _bound(new)
    same = {}
    for (before, after), n in pairs.items():
        is_whole = n == used_old[before] == used_new[after]
        is_exchange = n_new[before] == 0 and n_old[after] == 0
        if is_whole and is_exchange and before in own_old and after in own_new:
            same[before] = after
    return same


def _counts(tree: ast.AST, *, all_lines: bool = True) -> Counter[str]:
    """How often each name occurs, also where none is exchanged: imports, patterns, '--options'.

    all_lines: those that only tell, too."""
    counts: Counter[str] = Counter()
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if not all_lines and is_telling(node):
            continue
        waiting += ast.iter_child_nodes(node)
        name = name_in(node)
        if name is not None:
            counts[name] += 1
        elif isinstance(node, ast.alias):
            counts[node.asname or node.name] += 1
        elif isinstance(node, ast.Global | ast.Nonlocal):
            counts.update(node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            counts[node.value.lstrip("-").replace("-", "_")] += 1
        else:
            there = (getattr(node, field, None) for field in ("name", "rest"))
            counts.update(name for name in there if isinstance(name, str))
    return counts


def _bound(tree: ast.AST) -> set[str]:
    """The names that a script itself gives."""
    names = set()
    for node in ast.walk(tree):
        name = name_in(node)
        is_read = isinstance(getattr(node, "ctx", None), ast.Load)
        if name is not None and not is_read and not isinstance(node, ast.keyword):
            names.add(name)
    return names


def renamed(tree: Any, names: Mapping[str, str]) -> Any:
    """The tree with names exchanged; the one that is given stays as it is."""
    if not names:
        return tree
    tree = copy.deepcopy(tree)
    for node in ast.walk(tree):
        name = name_in(node)
        if name is not None and name in names:
            setattr(node, FIELDS[type(node)], names[name])
    return tree
