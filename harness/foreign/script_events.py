"""A script as a line of events: what starts or stops its clock, trains, validates.

The lines are read in the order they stand in the file; nothing is executed or followed into
functions.
"""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

CLOCKS = ("perf_counter", "time", "monotonic", "perf_counter_ns", "time_ns")


# ---------------------------------------------------------------- what a statement does


def _called(node: ast.AST) -> str:
    """The last name of what a call calls: 'synchronize' of torch.cuda.synchronize()."""
    if not isinstance(node, ast.Call):
        return ""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    if isinstance(node.func, ast.Name):
        return node.func.id
    return ""


def calls(node: ast.AST, *names: str) -> bool:
    """Whether something of one of these names is called in a piece of code."""
    return any(_called(inner) in names for inner in ast.walk(node))


def _is_clock(node: ast.AST) -> bool:
    """time.perf_counter(), or perf_counter() by itself."""
    if not isinstance(node, ast.Call) or node.args or _called(node) not in CLOCKS:
        return False
    if not isinstance(node.func, ast.Attribute):
        return True
    return isinstance(node.func.value, ast.Name) and node.func.value.id == "time"


def starts(statement: ast.stmt) -> bool:
    """t0 = time.perf_counter(), also as one of several values."""
    if not isinstance(statement, ast.Assign):
        return False
    if isinstance(statement.value, ast.Tuple):
        return any(_is_clock(value) for value in statement.value.elts)
    return _is_clock(statement.value)


def stops(statement: ast.stmt) -> bool:
    """total += 1000 * (time.perf_counter() - t0), or the same spelled out.

    A mere reading of the clock is no stop."""
    if isinstance(statement, ast.AugAssign):
        accumulates = isinstance(statement.op, ast.Add)
    elif isinstance(statement, ast.Assign):
        accumulates = bool(_names(*statement.targets) & _names(statement.value))
    else:
        return False
    return accumulates and _measures(statement.value)


def _names(*expressions: ast.expr) -> set[str]:
    """The variables that expressions name."""
    names = set()
    for expression in expressions:
        for node in ast.walk(expression):
            if isinstance(node, ast.Name):
                names.add(node.id)
    return names


def _measures(expression: ast.expr) -> bool:
    """Whether something is subtracted from a reading of the clock."""
    for node in ast.walk(expression):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and _is_clock(node.left):
            return True
    return False


def _trains(statement: ast.stmt) -> bool:
    return calls(statement, "backward")


def _validates(statement: ast.stmt) -> bool:
    return calls(statement, "eval")


def _compiles(statement: ast.stmt) -> bool:
    return calls(statement, "compile") and not calls(statement, "re")


def _restores(statement: ast.stmt) -> bool:
    return calls(statement, "load_state_dict", "deepcopy")


def _saves(statement: ast.stmt) -> bool:
    return calls(statement, "save")


def _runs_without_gradients(statement: ast.stmt) -> bool:
    """with torch.no_grad(): ..."""
    if not isinstance(statement, ast.With):
        return False
    return any(calls(i.context_expr, "no_grad", "inference_mode") for i in statement.items)


# ---------------------------------------------------------------- the script as a line of events


class Action(Enum):
    """What a statement does that concerns the clock, or a run's time."""

    START = "start"
    STOP = "stop"
    TRAIN = "train"
    VALIDATE = "validate"
    COMPILE = "compile"
    RESTORE = "restore"
    SAVE = "save"


class ClockPlace(Enum):
    """Where a line stands with respect to the clock."""

    BEFORE = "before its first start"
    TIMED = "while it runs"
    PAUSE = "while it is stopped"
    AFTER = "after its last stop"


ACTIONS: dict[Action, Callable[[ast.stmt], bool]] = {  # of simple statements
    Action.START: starts,
    Action.STOP: stops,
    Action.TRAIN: _trains,
    Action.VALIDATE: _validates,
    Action.COMPILE: _compiles,
    Action.RESTORE: _restores,
    Action.SAVE: _saves,
}


@dataclass(frozen=True, kw_only=True)
class ScriptEvent:
    """Something that a line of the script does."""

    line: int
    action: Action


def statement_blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    """Every list of statements that stand one after the other."""
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                yield block


def _defined(tree: ast.Module) -> set[int]:
    """Nodes (by id) in functions and classes, but for a function main: they run elsewhere."""
    inside = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if node.name != "main":
            inside |= {id(inner) for inner in ast.walk(node)}
    return inside


def read_events(tree: ast.Module) -> list[ScriptEvent]:
    """What the script does, in the order of its lines."""
    inside = _defined(tree)
    events = []
    for block in statement_blocks(tree):
        for statement in block:
            if id(statement) in inside:
                continue
            is_simple = not hasattr(statement, "body")
            for action, holds in ACTIONS.items():
                if is_simple and holds(statement):
                    events.append(ScriptEvent(line=statement.lineno, action=action))
            if _runs_without_gradients(statement):
                events.append(ScriptEvent(line=statement.lineno, action=Action.VALIDATE))
    return sorted(events, key=lambda event: event.line)


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """A script's events, in the order of their lines, against its clock."""

    events: list[ScriptEvent]

    @cached_property
    def starts(self) -> list[int]:
        """Lines where the clock starts."""
        return self.lines(Action.START)

    @cached_property
    def stops(self) -> list[int]:
        """Lines where the clock stops."""
        return self.lines(Action.STOP)

    def lines(self, action: Action) -> list[int]:
        """Lines of every event of an action."""
        return [event.line for event in self.events if event.action is action]

    def lines_at(self, place: ClockPlace, action: Action) -> list[int]:
        """Lines of the events of an action that stand at a place."""
        return [line for line in self.lines(action) if self.place(line) is place]

    def place(self, line: int) -> ClockPlace:
        """Where a line stands, by a clock that starts and stops at least once."""
        if line < self.starts[0]:
            return ClockPlace.BEFORE
        if self._next_start(self.stops[-1]) is None and line > self.stops[-1]:
            return ClockPlace.AFTER
        for stop in self.stops:
            start = self._next_start(stop)
            if start is not None and stop <= line <= start:
                return ClockPlace.PAUSE
        return ClockPlace.TIMED

    def _next_start(self, stop: int) -> int | None:
        return next((start for start in self.starts if start > stop), None)
