"""A static look at where a script's clock starts and stops, and at what happens around it.

Hints, not proof: the script is read, not executed.
"""

import ast
from collections.abc import Iterator

from harness.foreign.script_events import (
    Action,
    ClockPlace,
    Script,
    Timeline,
    calls,
    starts,
    statement_blocks,
)
from harness.provenance.code import Code
from harness.run.foreign import ClockHint

NEAR = 3  # statements before a start or stop in which a synchronisation belongs to it
MAX_LINES_SHOWN = 5
WAITS = {"synchronize": "a synchronisation", "barrier": "a barrier"}  # for the device
TIME_PRINTED = ("train_time", "step_avg", "val_loss")  # words of the line that tells a time
NOT_PYTHON = (SyntaxError, ValueError, RecursionError, MemoryError)


def audit(code: Code) -> tuple[ClockHint, ...]:
    """Hints on a script's timed region, in the order of its lines."""
    try:
        tree = ast.parse(code.files[code.script])
    except NOT_PYTHON as error:
        line = getattr(error, "lineno", None) or 1
        text = "is not Python that this Python can read: its timed region was not looked at"
        return (ClockHint(line=line, text=f"{code.script} {text}"),)
    script = Script(tree)
    timeline = script.timeline
    if not timeline.starts or not timeline.stops:
        missing = "stops" if timeline.starts else "starts"
        text = f"has no line where a clock {missing}: its times cannot be looked at"
        line = _line_of_the_time(tree)
        return (ClockHint(line=line, text=f"{code.script} {text}", doubt=True),)
    hints = [
        *_synchronisations(script),
        *_set_back(script),
        *_warm_up(timeline),
        *_compilation(timeline),
        *_validation(timeline),
        *_untimed_training(timeline),
        *_saving(timeline),
    ]
    return tuple(sorted(hints, key=lambda hint: hint.line))


def _line_of_the_time(tree: ast.Module) -> int:
    """Where a script prints its time, else its loss, else where it begins."""
    texts = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.append(node)
    for word in TIME_PRINTED:
        for node in texts:
            if word in str(node.value):
                return node.lineno
    return 1


def _synchronisations(script: Script) -> Iterator[ClockHint]:
    for block in statement_blocks(script.tree):
        for i, statement in enumerate(block):
            if starts(statement):
                turns = "starts"
            elif script.stops(statement):
                turns = "stops"
            else:
                continue
            before = block[max(0, i - NEAR) : i]
            waited = _waited_for(before)
            if waited is not None:
                text = f"the clock {turns} after {waited}"
                yield ClockHint(line=statement.lineno, text=text)
            else:
                text = (
                    f"the clock {turns} without a synchronisation before it: "
                    "work that still runs on the GPU is counted wrongly"
                )
                yield ClockHint(line=statement.lineno, text=text, doubt=True)


def _waited_for(statements: list[ast.stmt]) -> str | None:
    """What of these statements waits for the device, in words; None where nothing does."""
    for name, wait in WAITS.items():
        if any(calls(statement, name) for statement in statements):
            return wait
    return None


def _set_back(script: Script) -> Iterator[ClockHint]:
    for step, line in steps_set_back(script):
        text = f"the clock starts anew at step {step}: what was before is not counted"
        yield ClockHint(line=line, text=text)


def steps_set_back(script: Script) -> Iterator[tuple[int, int]]:
    """(step, line) where a clock is set back: `if step == 10: t0 = time.perf_counter()`."""
    for node in ast.walk(script.tree):
        if not isinstance(node, ast.If) or not any(starts(s) for s in node.body):
            continue
        step = _step_asked(node.test)
        if step is not None:
            yield step, node.lineno


def _step_asked(test: ast.expr) -> int | None:
    """10 of `step == 10`, None of any other condition."""
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Eq):
        return None
    if not isinstance(test.left, ast.Name) or "step" not in test.left.id:
        return None
    value = test.comparators[0]
    if isinstance(value, ast.Constant) and isinstance(value.value, int):
        return value.value
    return None


def _warm_up(timeline: Timeline) -> Iterator[ClockHint]:
    trained = timeline.lines_at(ClockPlace.BEFORE, Action.TRAIN)
    if not trained:
        return
    first_start = timeline.starts[0]
    restored = [n for n in timeline.lines(Action.RESTORE) if trained[-1] <= n <= first_start]
    if restored:
        what = f"the state is restored at {shown_lines(restored)}"
    else:
        what = "no restoring of the state was seen before the clock starts"
    text = f"training before the clock starts ({shown_lines(trained)}): {what}"
    yield ClockHint(line=trained[0], text=text, doubt=not restored)


def _compilation(timeline: Timeline) -> Iterator[ClockHint]:
    compiled = timeline.lines_at(ClockPlace.BEFORE, Action.COMPILE)
    if compiled:
        text = (
            "compilation is asked for before the clock starts; "
            "it happens at the first step of a shape"
        )
        yield ClockHint(line=compiled[0], text=text)


def _validation(timeline: Timeline) -> Iterator[ClockHint]:
    timed = timeline.lines_at(ClockPlace.TIMED, Action.VALIDATE)
    paused = timeline.lines_at(ClockPlace.PAUSE, Action.VALIDATE)
    if timed:
        text = f"validation while the clock runs ({shown_lines(timed)})"
        yield ClockHint(line=timed[0], text=text, doubt=True)
    elif paused:
        text = f"validation while the clock is stopped ({shown_lines(paused)})"
        yield ClockHint(line=paused[0], text=text)


def _untimed_training(timeline: Timeline) -> Iterator[ClockHint]:
    paused = timeline.lines_at(ClockPlace.PAUSE, Action.TRAIN)
    if paused:
        text = f"training while the clock is stopped ({shown_lines(paused)})"
        yield ClockHint(line=paused[0], text=text, doubt=True)
    after = timeline.lines_at(ClockPlace.AFTER, Action.TRAIN)
    if after:
        text = f"training after the clock's last stop ({shown_lines(after)})"
        yield ClockHint(line=after[0], text=text, doubt=True)


def _saving(timeline: Timeline) -> Iterator[ClockHint]:
    timed = timeline.lines_at(ClockPlace.TIMED, Action.SAVE)
    if timed:
        text = f"saving while the clock runs ({shown_lines(timed)})"
        yield ClockHint(line=timed[0], text=text, doubt=True)


def shown_lines(lines: list[int]) -> str:
    """'line 3', or 'lines 3, 5', each once."""
    different = list(dict.fromkeys(lines))
    if len(different) == 1:
        return f"line {different[0]}"
    listed = ", ".join(str(line) for line in different[:MAX_LINES_SHOWN])
    if len(different) > MAX_LINES_SHOWN:
        listed += " ..."
    return f"lines {listed}"
