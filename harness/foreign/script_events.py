"""A script as a line of events: what starts or stops its clock, trains, validates.

The lines are read in the order they stand in the file; nothing is executed or followed into
functions.
"""

import ast
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

FACTORIES = ("empty", "full", "ones", "rand", "randn", "tensor", "zeros")  # torch's
EXITS = ("exit", "_exit", "quit")
CLOCKS = ("perf_counter", "time", "monotonic", "perf_counter_ns", "time_ns")


# ---------------------------------------------------------------- what a statement does


def called(node: ast.AST) -> str:
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
    return any(called(inner) in names for inner in ast.walk(node))


def _is_clock(node: ast.AST) -> bool:
    """time.perf_counter(), or perf_counter() by itself."""
    if not isinstance(node, ast.Call) or node.args or called(node) not in CLOCKS:
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


def stops(statement: ast.stmt, added: Set[str] = frozenset()) -> bool:
    """total += 1000 * (time.perf_counter() - t0), or the same spelled out.

    A mere reading of the clock is no stop, but one into a variable that is added up.
    added: the variables that are."""
    if isinstance(statement, ast.AugAssign):
        accumulates = isinstance(statement.op, ast.Add)
    elif isinstance(statement, ast.Assign):
        targets = _names(*statement.targets)
        accumulates = bool(targets & (_names(statement.value) | added))
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


def added_up(tree: ast.AST) -> set[str]:
    """The variables that something adds to another: total += passed."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            names |= _names(node.value)
    return names


def _measures(expression: ast.expr) -> bool:
    """Whether something is subtracted from a reading of the clock."""
    for node in ast.walk(expression):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and _is_clock(node.left):
            return True
    return False


def _trains(statement: ast.stmt) -> bool:
    """A backward pass, but for torch.empty(1).backward(), which starts its engine."""
    return any(called(node) == "backward" and not _of_nothing(node) for node in ast.walk(statement))


def _of_nothing(call: ast.AST) -> bool:
    """Whether a method is called on a tensor that was made for it."""
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return False
    return called(call.func.value) in FACTORIES


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
    leaves: bool = False  # the clock is not read after it: the loop is left


def statement_blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    """Every list of statements that stand one after the other."""
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                yield block


def _leaves(statement: ast.stmt) -> bool:
    """break, return, or sys.exit()."""
    exits = isinstance(statement, ast.Expr) and called(statement.value) in EXITS
    return exits or isinstance(statement, ast.Break | ast.Return)


def _in_loop(loop: ast.For | ast.While, block: list[ast.stmt]) -> bool:
    """Whether a block belongs to a loop, or a function, inside this one: it leaves that alone."""
    for node in ast.walk(loop):
        if node is loop or not isinstance(node, ast.For | ast.While | ast.FunctionDef):
            continue
        if any(inner is block[-1] for inner in ast.walk(node)):
            return True
    return False


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
        lines = []
        for event in self.events:
            if event.action is action and self.place(event.line, leaves=event.leaves) is place:
                lines.append(event.line)
        return lines

    def place(self, line: int, *, leaves: bool = False) -> ClockPlace:
        """Where a line stands, by a clock that starts and stops at least once.

        leaves: the clock is not read after it."""
        if leaves:
            return ClockPlace.AFTER
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


class Script:
    """A script's syntax tree, and which of its statements stand where."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.added = added_up(tree)
        self.inside = self._defined()
        self.leaving = self._leaving()
        self.timeline = Timeline(events=self._events())

    def statements(self) -> Iterator[ast.stmt]:
        """Every statement that runs where it stands."""
        for block in statement_blocks(self.tree):
            yield from (statement for statement in block if id(statement) not in self.inside)

    def stops(self, statement: ast.stmt) -> bool:
        """Whether a statement stops the clock."""
        return stops(statement, self.added)

    def place(self, statement: ast.stmt) -> "ClockPlace":
        """Where a statement stands, by a clock that starts and stops at least once."""
        return self.timeline.place(statement.lineno, leaves=id(statement) in self.leaving)

    def _defined(self) -> set[int]:
        """Nodes (by id) in functions and classes, but for a function main: they run elsewhere."""
        inside = set()
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            if node.name != "main":
                inside |= {id(inner) for inner in ast.walk(node)}
        return inside

    def _leaving(self) -> set[int]:
        """Nodes (by id) behind the last stop: in a block that leaves its loop, or behind that."""
        leaving: set[int] = set()
        for loop in ast.walk(self.tree):
            if not isinstance(loop, ast.For | ast.While) or self._stops_behind(loop):
                continue
            for block in statement_blocks(loop):
                if block is not loop.orelse and _leaves(block[-1]) and not _in_loop(loop, block):
                    leaving |= {id(n) for s in self._behind_stop(block) for n in ast.walk(s)}
            if self._holds_stop(loop):
                end = loop.end_lineno or loop.lineno
                leaving |= {id(s) for s in self.statements() if s.lineno > end}
        return leaving

    def _stops_behind(self, loop: ast.For | ast.While) -> bool:
        end = loop.end_lineno or loop.lineno
        return any(self.stops(s) and s.lineno > end for s in self.statements())

    def _holds_stop(self, statement: ast.stmt) -> bool:
        return any(isinstance(n, ast.stmt) and self.stops(n) for n in ast.walk(statement))

    def _behind_stop(self, block: list[ast.stmt]) -> list[ast.stmt]:
        """What of a block comes after its last stop."""
        first = 0
        for i, statement in enumerate(block):
            if self._holds_stop(statement):
                first = i + 1
        return block[first:]

    def _events(self) -> list[ScriptEvent]:
        """What the script does, in the order of its lines."""
        events = []
        for statement in self.statements():
            actions = []
            if not hasattr(statement, "body"):
                actions = [action for action, holds in ACTIONS.items() if holds(statement)]
                if self.stops(statement):
                    actions.append(Action.STOP)
            if _runs_without_gradients(statement):
                actions.append(Action.VALIDATE)
            leaves = id(statement) in self.leaving
            for action in actions:
                event = ScriptEvent(line=statement.lineno, action=action, leaves=leaves)
                events.append(event)
        return sorted(events, key=lambda event: event.line)
