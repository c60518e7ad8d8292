"""Numbers that a script tells, and assertions about them that fail whatever it is given."""

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

DEEPEST = 8  # names that stand for names
LARGEST = 1 << 64
OPERATIONS: Mapping[type[Any], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def broken_assertions(tree: ast.AST) -> Iterator[str]:
    """The assertions at the top of a script that its own numbers break, whatever others are.

    `assert args.batch_size % (B * world_size) == 0` holds for some world only if for one."""
    if not isinstance(tree, ast.Module):
        return
    given = _given(tree)
    for statement in tree.body:
        test = statement.test if isinstance(statement, ast.Assert) else None
        is_comparison = isinstance(test, ast.Compare) and len(test.ops) == 1
        if not isinstance(test, ast.Compare) or not is_comparison or not _is_modulo(test.left):
            continue
        compare = OPERATIONS.get(type(test.ops[0]))
        left, right = (_value(side, given, 0, None) for side in (test.left, test.comparators[0]))
        if compare is not None and None not in (left, right) and not compare(left, right):
            yield f"its own numbers break `{ast.unparse(test)}`"


def _is_modulo(part: ast.expr) -> bool:
    return isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod)


def _given(tree: ast.Module) -> dict[str, ast.expr | None]:
    """The values of names and of the fields of classes; None for what is given twice."""
    given: dict[str, ast.expr | None] = {}

    def note(target: ast.expr, value: ast.expr | None) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for one, its_value in zip(target.elts, value.elts, strict=False):
                note(one, its_value)
        elif isinstance(target, ast.Name):
            given[target.id] = None if target.id in given else value

    for statement in tree.body:
        for part in statement.body if isinstance(statement, ast.ClassDef) else [statement]:
            if isinstance(part, ast.Assign):
                for target in part.targets:
                    note(target, part.value)
            elif isinstance(part, ast.AnnAssign):
                note(part.target, part.value)
    return given


def _value(
    part: ast.expr | None,
    given: Mapping[str, ast.expr | None],
    depth: int,
    untold: int | None,
) -> int | None:
    """What an expression comes to, None for no whole number; untold: for what nothing tells.

    Within what it is divided by that is 1, with which a rest of nothing is easiest to have."""
    if part is None:
        return untold
    if depth > DEEPEST:
        return None
    if isinstance(part, ast.Constant):
        return part.value if type(part.value) is int else None
    if isinstance(part, ast.BinOp):
        operation = OPERATIONS.get(type(part.op))
        of_divisor = 1 if isinstance(part.op, ast.Mod) else untold
        left = _value(part.left, given, depth + 1, untold)
        right = _value(part.right, given, depth + 1, of_divisor)
        if operation is None or left is None or right is None:
            return None
        is_division = isinstance(part.op, ast.Mod | ast.FloorDiv)
        if (is_division and right == 0) or abs(left * right) > LARGEST:
            return None
        return int(operation(left, right))
    name = part.attr if isinstance(part, ast.Attribute) else ""
    if isinstance(part, ast.Name):
        name = part.id
    return _value(given.get(name), given, depth + 1, untold)
