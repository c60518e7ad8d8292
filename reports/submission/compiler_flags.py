"""Flags of the compiler: those that kept code sets, and environment variables that are some."""

import ast
from collections.abc import Iterator, Mapping

from reports.submission.scripts import Scripts, aliases_of, dotted, parsed

CONFIG = "torch._inductor.config"  # what of the compiler the rules speak of
PATCHES = (f"{CONFIG}.patch", f"{CONFIG}.load_config")
COMPILE = ("torch.compile", "torch._dynamo.optimize")
VARIABLES = ("TORCHINDUCTOR_", "TORCH_COMPILE", "TORCHDYNAMO_")
HARMLESS_VARIABLES = ("TORCHINDUCTOR_CACHE_DIR",)  # where compiled kernels are kept
ENVIRON = "os.environ"
SET_VARIABLES = ("os.putenv", *(f"{ENVIRON}.{name}" for name in ("setdefault", "update")))


def compiler_variables(variables: Mapping[str, str | None]) -> set[str]:
    """Those environment variables that are flags of the compiler, as NAME=value."""
    flags = set()
    for name, value in variables.items():
        if is_variable(name):
            flags.add(f"{name}={value}")
    return flags


def is_variable(name: str) -> bool:
    """Whether an environment variable of this name is a flag of the compiler."""
    return name.startswith(VARIABLES) and name not in HARMLESS_VARIABLES


def compiler_flags(scripts: Scripts) -> dict[str, str]:
    """Every flag that the code gives the compiler -> the file and line where it stands first."""
    flags: dict[str, str] = {}
    for file, tree in parsed(scripts).items():
        aliases = aliases_of(tree)
        for node in ast.walk(tree):
            for flag in _flags_at(node, aliases):
                flags.setdefault(flag, f"{file}:{getattr(node, 'lineno', 0)}")
    return flags


def _flags_at(node: ast.AST, aliases: Mapping[str, str]) -> Iterator[str]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _flags_set(target, node.value, aliases)
    elif isinstance(node, ast.AugAssign | ast.AnnAssign) and node.value is not None:
        yield from _flags_set(node.target, node.value, aliases)
    elif isinstance(node, ast.Call):
        yield from _flags_of_call(node, aliases)


def _flags_set(target: ast.expr, value: ast.expr, aliases: Mapping[str, str]) -> Iterator[str]:
    """Flags of `target = value`."""
    for place in getattr(target, "elts", [target]):
        name = dotted(place, aliases)
        if name.startswith(f"{CONFIG}."):
            yield f"{name} = {ast.unparse(value)}"
        elif name == ENVIRON:
            yield from _variables_of(value)
        elif isinstance(place, ast.Subscript) and dotted(place.value, aliases) == ENVIRON:
            yield from _variable(place.slice, value)


def _flags_of_call(call: ast.Call, aliases: Mapping[str, str]) -> Iterator[str]:
    name = dotted(call.func, aliases)
    if name in COMPILE:
        for keyword in call.keywords:
            yield f"torch.compile({ast.unparse(keyword)})"
    elif name in PATCHES:
        yield f"{name}({', '.join(map(ast.unparse, [*call.args, *call.keywords]))})"
    elif name == "setattr" and call.args and dotted(call.args[0], aliases).startswith(CONFIG):
        place, *rest = call.args
        yield f"setattr({dotted(place, aliases)}, {', '.join(map(ast.unparse, rest))})"
    elif name in SET_VARIABLES:
        if len(call.args) > 1:
            yield from _variable(call.args[0], call.args[1])
        for argument in call.args:
            yield from _variables_of(argument)
        for keyword in call.keywords:
            yield from _variable(ast.Constant(keyword.arg), keyword.value)


def _variables_of(mapping: ast.expr) -> Iterator[str]:
    """Flags among the variables of a {"NAME": value, ...}."""
    if isinstance(mapping, ast.Dict):
        for name, value in zip(mapping.keys, mapping.values):
            yield from _variable(name, value)


def _variable(name: ast.expr | None, value: ast.expr) -> Iterator[str]:
    constant = getattr(name, "value", None)
    if isinstance(constant, str) and is_variable(constant):
        text = ast.unparse(value)
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            text = value.value
        yield f"{constant}={text}"
