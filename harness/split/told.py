"""Lines that only tell: what they say is no change of the training."""

import ast
import copy
import re
from typing import Any

LOGGING = re.compile(r"(master_?)?(print|log|logg(er|ing)|write|warn|info|debug|nvidia_smi)\w*")


def tells(func: Any) -> bool:
    """Whether what is called prints or logs, by its name."""
    names = []
    while isinstance(func, ast.Attribute):
        names.append(func.attr)
        func = func.value
    if isinstance(func, ast.Name):
        names.append(func.id)
    return any(LOGGING.fullmatch(name) for name in names)


def is_telling(statement: Any) -> bool:
    """Whether a statement is a call that prints or logs."""
    is_call = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    return is_call and tells(statement.value.func)


def as_it_runs(definition: Any) -> Any:
    """A definition without annotations and texts that stand for themselves."""
    tree = copy.deepcopy(definition)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
        body = getattr(node, "body", None)
        if isinstance(body, list):
            body[:] = [part for part in body if not _is_text(part)]
    return tree


def _is_text(statement: Any) -> bool:
    is_constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_constant and isinstance(statement.value.value, str)
