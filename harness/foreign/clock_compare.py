"""Two scripts' clocks side by side: what one pays inside its timed region and the other outside.

What is compared are calls by their names, in the places where they run: a function of the script
runs where it is called. Hints, not proof: nothing is executed.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from harness.foreign.clock_hints import NOT_PYTHON, shown_lines, steps_set_back
from harness.foreign.script_events import Action, ClockPlace, Script, called
from harness.provenance.code import Code
from harness.run.foreign import ClockHint

# what costs time wherever it is called, through functions too
OF_DATA = ("from_file", "fromfile", "memmap", "readinto")
OF_STATE = ("compile", "deepcopy", "load_state_dict")
OF_MEMORY = ("collect", "empty_cache", "freeze")
GENERATED = ("next", "send")  # what runs a generator a piece further
COSTS = frozenset((*OF_DATA, *OF_STATE, *OF_MEMORY))
WORDS = {  # of the actions that are compared
    Action.VALIDATE: "validation",
    Action.SAVE: "saving",
    Action.TRAIN: "training",
}
MAX_FOLLOWED = 400  # functions of a script


Places = Mapping[ClockPlace, list[int]]  # where something is done -> lines


@dataclass(frozen=True, kw_only=True)
class _Clock:
    """What a script does at each place of its clock."""

    script: Script

    @cached_property
    def work(self) -> Mapping[str, Places]:
        """What is done where, through functions too: statements, calls, actions."""
        work: dict[str, dict[ClockPlace, list[int]]] = defaultdict(lambda: defaultdict(list))
        for statement in self.script.statements():
            place, line = self.script.place(statement), statement.lineno
            for node in _own_nodes(statement):
                if isinstance(node, ast.Call):
                    work[_name(node)][place].append(line)
                    for inner in self._followed(node):
                        work[inner][place].append(line)
        for action, activity in WORDS.items():
            for place in ClockPlace:
                lines = self.script.timeline.lines_at(place, action)
                if lines:
                    work[activity][place] += lines
        return work

    @cached_property
    def told(self) -> frozenset[str]:
        """What of its work is told: what stands in the script's own lines, and what always costs.

        A call of a function that is none of the script's costs what its arguments are."""
        told = {*WORDS.values(), *COSTS}
        for statement in self.script.statements():
            for node in _own_nodes(statement):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    name = _name(node)
                    if name.startswith("next(") or name in self._functions:
                        told.add(name)
        return frozenset(told)

    def _followed(self, call: ast.Call) -> set[str]:
        """What a call of a function of the script comes to call.

        A generator runs where the next of it is asked for."""
        start = called(call)
        todo = [start]
        if start in GENERATED:
            todo = sorted(self._generators)
        elif start in self._generators:
            return set()
        reached: set[str] = set()
        while todo and len(reached) < MAX_FOLLOWED:
            for inner in self._functions.get(todo.pop(), ()):
                if _name(inner) not in reached:
                    reached.add(_name(inner))
                    todo.append(called(inner))
        return reached

    @cached_property
    def _functions(self) -> Mapping[str, list[ast.Call]]:
        """A function's name -> what it calls."""
        functions: dict[str, list[ast.Call]] = defaultdict(list)
        for node in ast.walk(self.script.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for inner in _nodes_of(node.body):
                    if isinstance(inner, ast.Call):
                        functions[node.name].append(inner)
        return functions

    @cached_property
    def _generators(self) -> frozenset[str]:
        names = set()
        for node in ast.walk(self.script.tree):
            if not isinstance(node, ast.FunctionDef):
                continue
            if any(isinstance(n, ast.Yield | ast.YieldFrom) for n in _nodes_of(node.body)):
                names.add(node.name)
        return frozenset(names)

    @property
    def steps_not_counted(self) -> tuple[int, int] | None:
        """(step, line) where the clock is set back."""
        return next(iter(steps_set_back(self.script)), None)

    @property
    def warm_up(self) -> list[int]:
        """Lines of training before the clock starts."""
        return self.script.timeline.lines_at(ClockPlace.BEFORE, Action.TRAIN)


def _nodes_of(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """What a function runs: its decorators run where it is defined."""
    for statement in body:
        yield from ast.walk(statement)


def _own_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """A statement's nodes without those of the statements in it."""
    todo: list[ast.AST] = [statement]
    while todo:
        node = todo.pop()
        yield node
        for inner in ast.iter_child_nodes(node):
            if not isinstance(inner, ast.stmt | ast.ExceptHandler):
                todo.append(inner)


def _name(call: ast.Call) -> str:
    """The bare name of what is called, of next() what it is asked of."""
    name = called(call)
    if name == "next" and call.args:
        return f"next({ast.unparse(call.args[0])})"
    return name


# ---------------------------------------------------------------- side by side


def compare_clocks(old: Code, new: Code) -> tuple[ClockHint, ...]:
    """What OLD pays inside its timed region and NEW outside, and the other way round.

    At lines of NEW; nothing where one of them has no clock that can be read."""
    clocks = [_clock_of(code) for code in (old, new)]
    before, after = clocks
    if before is None or after is None or old.files == new.files:
        return ()
    hints = [*_kernels(before, after), *_steps(before, after), *_calls(before, after)]
    return tuple(sorted(hints, key=lambda hint: hint.line))


def _clock_of(code: Code) -> _Clock | None:
    try:
        script = Script(ast.parse(code.files[code.script]))
    except NOT_PYTHON:
        return None
    if not script.timeline.starts or not script.timeline.stops:
        return None
    return _Clock(script=script)


def _kernels(old: _Clock, new: _Clock) -> Iterator[ClockHint]:
    """Compilation and the first steps: outside the timed region in one of them."""
    if new.warm_up and not (old.warm_up or old.steps_not_counted):
        text = (
            f"training before the clock starts ({shown_lines(new.warm_up)}): "
            "compilation and first steps are paid outside the timed region here, inside it in OLD"
        )
        yield ClockHint(line=new.warm_up[0], text=text, doubt=True, compared=True)
    if old.warm_up and not (new.warm_up or new.steps_not_counted):
        text = (
            "compilation and first steps are paid inside the timed region here; OLD trains before "
            f"its clock starts ({shown_lines(old.warm_up)})"
        )
        yield ClockHint(line=new.script.timeline.starts[0], text=text, doubt=True, compared=True)


def _steps(old: _Clock, new: _Clock) -> Iterator[ClockHint]:
    """Steps that one of the clocks does not count."""
    before, after = old.steps_not_counted, new.steps_not_counted
    if (before and before[0]) == (after and after[0]):
        return
    told = []
    for whose, step in (("here", after), ("in OLD", before)):
        if step is None:
            told.append(f"from the first step on {whose}")
        else:
            told.append(f"from step {step[0]} on {whose} (line {step[1]})")
    line = new.script.timeline.starts[0] if after is None else after[1]
    yield ClockHint(
        line=line, text=f"the clock counts {' and '.join(told)}", doubt=True, compared=True
    )


def _calls(old: _Clock, new: _Clock) -> Iterator[ClockHint]:
    """What is paid inside the one timed region and only outside the other."""
    for what in sorted((old.told | new.told) & old.work.keys() & new.work.keys()):
        before, after = old.work[what], new.work[what]
        if (ClockPlace.TIMED in before) == (ClockPlace.TIMED in after):
            continue
        named = what if what in WORDS.values() else f"`{what}`"
        if ClockPlace.TIMED in before:
            place, lines = _outside(after)
            text = f"{named} is paid outside the timed region here ({place.value})"
            inside = shown_lines(before[ClockPlace.TIMED])
            yield ClockHint(
                line=lines[0],
                text=f"{text}, inside it in OLD ({inside})",
                doubt=True,
                compared=True,
            )
        else:
            place, lines = _outside(before)
            text = f"{named} is paid inside the timed region here"
            outside = f"{place.value}, {shown_lines(lines)}"
            line = after[ClockPlace.TIMED][0]
            yield ClockHint(
                line=line, text=f"{text}, outside it in OLD ({outside})", doubt=True, compared=True
            )


def _outside(work: Places) -> tuple[ClockPlace, list[int]]:
    """Where something is paid that is not timed."""
    return next(iter(work.items()))
