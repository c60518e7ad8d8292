"""A static look at where a script's clock starts and stops, and at what happens before, between and after: hints, not proof.

The lines are read in the order they stand in the file; nothing is executed or followed into functions.
"""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from harness.provenance.code import Code

CLOCKS = ("perf_counter", "time", "monotonic", "perf_counter_ns", "time_ns")
NEAR = 3  # statements before a start or stop in which a synchronisation belongs to it


@dataclass(frozen=True, kw_only=True)
class Hint:
    """What was seen at a line (0: nowhere); doubt: it may make a time mean something else than it says."""

    line: int
    text: str
    doubt: bool = False


def _called(node: ast.AST) -> str:
    """The last name of what a call calls: 'synchronize' of torch.cuda.synchronize()."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""


def _calls(node: ast.AST, *names: str) -> bool:
    return any(_called(n) in names for n in ast.walk(node))


def _is_clock(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or node.args or _called(node) not in CLOCKS:
        return False
    return not isinstance(node.func, ast.Attribute) or (isinstance(node.func.value, ast.Name) and node.func.value.id == "time")


def _starts(statement: ast.stmt) -> bool:
    """t0 = time.perf_counter(), also as one of several values"""
    if not isinstance(statement, ast.Assign):
        return False
    values = statement.value.elts if isinstance(statement.value, ast.Tuple) else [statement.value]
    return any(_is_clock(v) for v in values)


def _stops(statement: ast.stmt) -> bool:
    """total += 1000 * (time.perf_counter() - t0), or the same spelled out; a mere reading of the clock is no stop."""
    if isinstance(statement, ast.AugAssign):
        adds = isinstance(statement.op, ast.Add)
    elif isinstance(statement, ast.Assign):
        own = {n.id for t in statement.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
        adds = any(isinstance(n, ast.Name) and n.id in own for n in ast.walk(statement.value))
    else:
        return False
    differences = [n for n in ast.walk(statement.value) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Sub)]
    return adds and any(_is_clock(d.left) for d in differences)


def _blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    """Every list of statements that stand one after the other."""
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                yield block


def _simple(statement: ast.stmt) -> bool:
    return not hasattr(statement, "body")


@dataclass(frozen=True, kw_only=True)
class _Event:
    line: int
    kind: str


KINDS: dict[str, Callable[[ast.stmt], bool]] = {  # of simple statements
    "start": _starts,
    "stop": _stops,
    "train": lambda s: _calls(s, "backward"),
    "validate": lambda s: _calls(s, "eval"),
    "compile": lambda s: _calls(s, "compile") and not _calls(s, "re"),
    "restore": lambda s: _calls(s, "load_state_dict", "deepcopy"),
    "save": lambda s: _calls(s, "save"),
}


def _events(tree: ast.Module) -> list[_Event]:
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    inside = {id(s) for f in functions if f.name != "main" for s in ast.walk(f)}
    found = []
    for block in _blocks(tree):
        for s in block:
            if id(s) in inside:
                continue
            found += [_Event(line=s.lineno, kind=kind) for kind, holds in KINDS.items() if _simple(s) and holds(s)]
            if isinstance(s, ast.With) and any(_calls(i.context_expr, "no_grad", "inference_mode") for i in s.items):
                found.append(_Event(line=s.lineno, kind="validate"))
    return sorted(found, key=lambda e: e.line)


def _unsynchronised(tree: ast.Module) -> Iterator[Hint]:
    for block in _blocks(tree):
        for i, s in enumerate(block):
            word = "starts" if _starts(s) else "stops" if _stops(s) else None
            if word and not any(_calls(before, "synchronize") for before in block[max(0, i - NEAR) : i]):
                text = f"the clock {word} without a synchronisation before it: work that still runs on the GPU is counted wrongly"
                yield Hint(line=s.lineno, text=text, doubt=True)
            elif word:
                yield Hint(line=s.lineno, text=f"the clock {word} after a synchronisation")


def _set_back(tree: ast.Module) -> Iterator[Hint]:
    """if step == 10: t0 = time.perf_counter()"""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Compare) and any(_starts(s) for s in node.body):
            at, is_equal = node.test.comparators[0], isinstance(node.test.ops[0], ast.Eq)
            is_step = isinstance(node.test.left, ast.Name) and "step" in node.test.left.id
            if is_step and is_equal and isinstance(at, ast.Constant) and isinstance(at.value, int):
                yield Hint(line=node.lineno, text=f"the clock starts anew at step {at.value}: what was before is not counted")


def _lines(events: list[_Event]) -> str:
    lines = [str(line) for line in dict.fromkeys(e.line for e in events)]
    return ("line " if len(lines) == 1 else "lines ") + ", ".join(lines[:5]) + (" ..." if len(lines) > 5 else "")


def audit(code: Code) -> tuple[Hint, ...]:
    """Hints on a script's timed region, in the order of its lines."""
    try:
        tree = ast.parse(code.files[code.script])
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return (Hint(line=0, text=f"{code.script} is not Python that this Python can read: its timed region was not looked at"),)
    events = _events(tree)
    starts, stops = ([e.line for e in events if e.kind == kind] for kind in ("start", "stop"))
    if not starts or not stops:
        missing = "starts" if not starts else "stops"
        return (
            Hint(line=0, text=f"{code.script} has no line where a clock {missing}: its times cannot be looked at", doubt=True),
        )
    pauses = [(stop, next((s for s in starts if s > stop), None)) for stop in stops]
    last = max(stops) if pauses[-1][1] is None else None

    def where(line: int) -> str:
        if line < starts[0]:
            return "before"
        if last is not None and line > last:
            return "after"
        return "pause" if any(a <= line <= b for a, b in pauses if b is not None) else "timed"

    def of(kind: str, place: str) -> list[_Event]:
        return [e for e in events if e.kind == kind and where(e.line) == place]

    hints = [*_unsynchronised(tree), *_set_back(tree)]
    if warm := of("train", "before"):
        restored = [e for e in events if e.kind == "restore" and warm[-1].line <= e.line <= starts[0]]
        words = (
            f"the state is restored at {_lines(restored)}"
            if restored
            else "no restoring of the state was seen before the clock starts"
        )
        hints.append(
            Hint(line=warm[0].line, text=f"training before the clock starts ({_lines(warm)}): {words}", doubt=not restored)
        )
    if compiled := of("compile", "before"):
        hints.append(
            Hint(
                line=compiled[0].line,
                text="compilation is asked for before the clock starts; it happens at the first step of a shape",
            )
        )
    if inside := of("validate", "timed"):
        hints.append(Hint(line=inside[0].line, text=f"validation while the clock runs ({_lines(inside)})", doubt=True))
    elif paused := of("validate", "pause"):
        hints.append(Hint(line=paused[0].line, text=f"validation while the clock is stopped ({_lines(paused)})"))
    for place, words in (("pause", "while the clock is stopped"), ("after", "after the clock's last stop")):
        if hidden := of("train", place):
            hints.append(Hint(line=hidden[0].line, text=f"training {words} ({_lines(hidden)})", doubt=True))
    if saved := of("save", "timed"):
        hints.append(Hint(line=saved[0].line, text=f"saving while the clock runs ({_lines(saved)})", doubt=True))
    return tuple(sorted(hints, key=lambda h: h.line))
