"""The static look at a script's timed region: what it sees, at which line, and what it doubts."""

from pathlib import Path
from textwrap import indent

import pytest

from harness.foreign.clock_compare import compare_clocks
from harness.foreign.clock_hints import audit, shown_lines
from harness.foreign.script_events import Action, ClockPlace, ScriptEvent, Timeline
from harness.provenance.code import Code

TRAINERS = Path(__file__).resolve().parents[2] / "trainers"
GOOD = """
import time
import torch
model = torch.compile(model)
initial = copy.deepcopy(model.state_dict())
for _ in range(10):
    loss(model).backward()
model.load_state_dict(initial)
training_ms = 0
torch.cuda.synchronize()
t0 = time.perf_counter()
for step in range(steps + 1):
    if step % every == 0:
        torch.cuda.synchronize()
        training_ms += 1000 * (time.perf_counter() - t0)
        model.eval()
        with torch.no_grad():
            val_loss = loss(model)
        torch.cuda.synchronize()
        t0 = time.perf_counter()
    if step == steps:
        torch.save(model)
        break
    loss(model).backward()
    approx = training_ms + 1000 * (time.perf_counter() - t0)
"""


def doubts(text: str) -> list[tuple[int, str]]:
    """(line, first words) of every doubt."""
    hints = audit(Code(script="t.py", files={"t.py": text.encode()}))
    return [(h.line, " ".join(h.text.split()[:5])) for h in hints if h.doubt]


def seen(text: str) -> list[str]:
    return [
        f"{h.line}: {h.text}" for h in audit(Code(script="t.py", files={"t.py": text.encode()}))
    ]


def test_a_sound_script_is_described_without_doubt() -> None:
    assert doubts(GOOD) == []
    assert seen(GOOD) == [
        "4: compilation is asked for before the clock starts; it happens at the first step of a shape",
        "7: training before the clock starts (line 7): the state is restored at line 8",
        "11: the clock starts after a synchronisation",
        "15: the clock stops after a synchronisation",
        "16: validation while the clock is stopped (lines 16, 17)",
        "20: the clock starts after a synchronisation",
    ]


BROKEN = {
    "no synchronisation before a stop": (
        GOOD.replace(
            "        torch.cuda.synchronize()\n        training_ms +=", "        training_ms +="
        ),
        (14, "the clock stops without a"),
    ),
    "no synchronisation before the start": (
        GOOD.replace("torch.cuda.synchronize()\nt0", "t0"),
        (10, "the clock starts without a"),
    ),
    "validation while the clock runs": (
        GOOD.replace("        model.eval()\n", "").replace(
            "    approx =", "    model.eval()\n    approx ="
        ),
        (24, "validation while the clock runs"),
    ),
    "training while the clock is stopped": (
        GOOD.replace("val_loss = loss(model)", "loss(model).backward()"),
        (18, "training while the clock is"),
    ),
    "a warm-up that keeps what it learned": (
        GOOD.replace("model.load_state_dict(initial)", "pass"),
        (7, "training before the clock starts"),
    ),
    "a synchronisation long before the start": (
        GOOD.replace("synchronize()\nt0", "synchronize()\na = 1\nb = 2\nc = 3\nt0"),
        (14, "the clock starts without a"),
    ),
    "a state that is restored once the clock runs": (
        GOOD.replace("model.load_state_dict(initial)", "pass").replace(
            "for step", "model.load_state_dict(initial)\nfor step"
        ),
        (7, "training before the clock starts"),
    ),
    "saving in a branch that goes on": (
        GOOD.replace("        break\n", ""),
        (22, "saving while the clock runs"),
    ),
    "saving before the stop of a branch that leaves": (
        GOOD.replace(
            "        break\n",
            "        torch.cuda.synchronize()\n        training_ms += time.perf_counter() - t0\n        break\n",
        ),
        (22, "saving while the clock runs"),
    ),
    "saving right before the stop of a branch that leaves": (
        GOOD.replace(
            "        break\n", "        training_ms += time.perf_counter() - t0\n        break\n"
        ),
        (22, "saving while the clock runs"),
    ),
    "saving in a loop of its own that is left": (
        "import time\nfor step in range(9):\n    t0 = time.perf_counter()\n    for part in parts:\n"
        "        torch.save(part)\n        break\n    ms += time.perf_counter() - t0\n",
        (5, "saving while the clock runs"),
    ),
    "saving in a loop of its own that is left where something is": (
        "import time\nfor step in range(9):\n    t0 = time.perf_counter()\n    for part in parts:\n"
        "        torch.save(part)\n        if part:\n            break\n"
        "    ms += time.perf_counter() - t0\n",
        (5, "saving while the clock runs"),
    ),
    "saving before a stop behind the loop": (
        GOOD + "training_ms += time.perf_counter() - t0\n",
        (22, "saving while the clock runs"),
    ),
    "training after the last stop": (
        GOOD + "training_ms += time.perf_counter() - t0\nloss(model).backward()\n",
        (27, "training after the clock's last"),
    ),
    "training by a function after the last stop": (
        GOOD + "training_ms += time.perf_counter() - t0\nbackward(loss(model))\n",
        (27, "training after the clock's last"),
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_may_falsify_a_time_is_doubted_at_its_line(kind: str) -> None:
    text, expected = BROKEN[kind]
    assert expected in doubts(text)


def test_the_ten_untimed_steps_are_told() -> None:
    text = GOOD.replace(
        "    if step == steps:",
        "    if step == 10:\n        t0 = time.perf_counter()\n    if step == steps:",
    )
    assert "21: the clock starts anew at step 10: what was before is not counted" in seen(text)


@pytest.mark.parametrize(
    "test", ["step > 10", "warm", "f(step) == 10", "epoch == 10", "step == first", "step == 1.5"]
)
def test_a_clock_that_is_set_back_at_no_step_that_is_named_is_not_told(test: str) -> None:
    text = GOOD.replace(
        "    if step == steps:",
        f"    if {test}:\n        t0 = time.perf_counter()\n    if step == steps:",
    )
    assert not any("anew" in hint for hint in seen(text))


def test_of_many_lines_five_are_shown_each_once() -> None:
    assert shown_lines([3, 3]) == "line 3"
    assert shown_lines([3, 5, 3]) == "lines 3, 5"
    assert shown_lines([1, 2, 3, 4, 5]) == "lines 1, 2, 3, 4, 5"
    assert shown_lines([1, 2, 3, 4, 5, 6]) == "lines 1, 2, 3, 4, 5 ..."


def test_a_script_without_a_clock_and_one_that_is_no_python_are_told_at_a_line() -> None:
    assert doubts("\nprint('step:1/1 val_loss:3')") == [(2, "t.py has no line where")]
    assert doubts("\nt = timer.perf_counter()")[0][1] == "t.py has no line where"
    assert doubts("\n\nprint('hello')") == [(1, "t.py has no line where")]
    assert seen("#!/bin/sh\nif true; then echo; fi")[0].startswith("2: t.py is not Python")


UNWARMED = GOOD.replace("for _ in range(10):\n    loss(model).backward()\n", "\n\n")
SOUND = {
    "a synchronisation shortly before the start": GOOD.replace(
        "synchronize()\nt0", "synchronize()\na = 1\nb = 2\nt0"
    ),
    "a state that is restored in the line that learned": GOOD.replace(
        "backward()\nmodel.load", "backward(); model.load", 1
    ),
    "a state that is restored in the line that starts the clock": GOOD.replace(
        "model.load_state_dict(initial)", "pass"
    ).replace("\nt0", "\nmodel.load_state_dict(initial); t0"),
    "a tensor of its own starts the backward engine": (
        "import torch\ntorch.empty(1, requires_grad=True).backward()\n"
        + UNWARMED.replace("model.load_state_dict(initial)", "pass").replace("copy.deep", "")
    ),
    "a barrier waits for the device": GOOD.replace("torch.cuda.synchronize", "dist.barrier"),
    "a reading that is added up later": GOOD.replace(
        "training_ms += 1000 * (time.perf_counter() - t0)",
        "passed = time.perf_counter() - t0\n        training_ms += 1000 * passed",
    ),
    "validation after the last reading": GOOD.replace(
        "        torch.save(model)", "        model.eval()\n        torch.save(model)"
    ),
    "evaluation behind the loop": GOOD + "model.eval()\n",
    "a clock that is imported by its name": GOOD.replace("time.perf_counter()", "perf_counter()"),
    "a call of what a call gave is no action": GOOD.replace("= loss(model)", "= losses()(model)"),
    "a loop beside the branch that leaves": GOOD.replace(
        "    if step == steps:", "    for part in parts:\n        feed(part)\n    if step == steps:"
    ),
    "sys.exit leaves as break does": GOOD.replace("        break", "        sys.exit()"),
    "a loop until something is": GOOD.replace("for step in range(steps + 1):", "while step:"),
    "a script in its main, which is left by a return": f"def main():\n{indent(GOOD, '    ')}".replace(
        "        break", "        return"
    ),
    "what is done in a class stands nowhere": GOOD.replace(
        "    approx =", "    class A:\n        torch.save(1)\n    approx ="
    ),
}


@pytest.mark.parametrize("kind", SOUND)
def test_what_moves_no_time_is_not_doubted(kind: str) -> None:
    assert doubts(SOUND[kind]) == []


# ---------------------------------------------------------------- two clocks

FED = GOOD.replace(
    "loss(model).backward()\n    approx", "loss(model, next(batches)).backward()\n    approx"
)
FETCHED = FED.replace("training_ms = 0\n", "training_ms = 0; batch = next(batches)\n").replace(
    "next(batches)).b", "batch).b"
)
READ_BY = """
def read():
    return memmap(path)
"""
COLLECTED = GOOD.replace("    approx =", "    gc.collect()\n    approx =")
COLLECTED_BEFORE = GOOD.replace("training_ms = 0\n", "training_ms = 0; gc.collect()\n")
SET_BACK = UNWARMED.replace(
    "    if step == steps:",
    "    if step == 10:\n        t0 = time.perf_counter()\n    if step == steps:",
)
STOP = """\
        torch.cuda.synchronize()
        training_ms += 1000 * (time.perf_counter() - t0)
"""
VALIDATE = """\
        model.eval()
        with torch.no_grad():
            val_loss = loss(model)
"""
VALIDATED = GOOD.replace(STOP + VALIDATE, VALIDATE + STOP)
CLOCKS = {  # what -> OLD, NEW, the hints on NEW, and those the other way round
    "kernels": (
        UNWARMED,
        GOOD,
        [
            "7: training before the clock starts (line 7): compilation and first steps are paid outside the timed region here, inside it in OLD"
        ],
        [
            "11: compilation and first steps are paid inside the timed region here; OLD trains before its clock starts (line 7)"
        ],
    ),
    "batches": (
        FED,
        FETCHED,
        [
            "9: `next(batches)` is paid outside the timed region here (before its first start), inside it in OLD (line 24)"
        ],
        [
            "24: `next(batches)` is paid inside the timed region here, outside it in OLD (before its first start, line 9)"
        ],
    ),
    "garbage": (
        COLLECTED,
        COLLECTED_BEFORE,
        [
            "9: `collect` is paid outside the timed region here (before its first start), inside it in OLD (line 25)"
        ],
        [
            "25: `collect` is paid inside the timed region here, outside it in OLD (before its first start, line 9)"
        ],
    ),
    "steps that are not counted": (
        SET_BACK,
        GOOD,
        ["11: the clock counts from the first step on here and from step 10 on in OLD (line 21)"],
        ["21: the clock counts from step 10 on here (line 21) and from the first step on in OLD"],
    ),
    "the same steps are not counted from another line on": (
        SET_BACK,
        "import os\n" + SET_BACK,
        [],
        [],
    ),
    "validation": (
        VALIDATED,
        GOOD,
        [
            "16: validation is paid outside the timed region here (while it is stopped), inside it in OLD (lines 14, 15)"
        ],
        [
            "14: validation is paid inside the timed region here, outside it in OLD (while it is stopped, lines 16, 17)"
        ],
    ),
    "a function runs where it is called": (
        READ_BY + GOOD.replace("    approx =", "    read()\n    approx ="),
        READ_BY + GOOD.replace("training_ms = 0\n", "training_ms = 0; memmap(path)\n"),
        [
            "12: `memmap` is paid outside the timed region here (before its first start), inside it in OLD (line 28)"
        ],
        [
            "28: `memmap` is paid inside the timed region here, outside it in OLD (before its first start, line 12)"
        ],
    ),
    "a clock in a function that nobody calls": (
        GOOD,
        "def begin():\n    t0 = time.perf_counter()\n" + GOOD,
        [],
        [],
    ),
    "the same work in a function of another name": (
        READ_BY + GOOD.replace("    approx =", "    read()\n    approx ="),
        READ_BY.replace("read", "load") + GOOD.replace("    approx =", "    load()\n    approx ="),
        [],
        [],
    ),
}


@pytest.mark.parametrize("what", CLOCKS)
def test_what_one_clock_counts_and_the_other_does_not_is_told_at_its_line(what: str) -> None:
    old, new, forth, back = CLOCKS[what]
    for before, after, expected in ((old, new, forth), (new, old, back)):
        codes = [Code(script="t.py", files={"t.py": text.encode()}) for text in (before, after)]
        told = compare_clocks(*codes)
        assert [f"{hint.line}: {hint.text}" for hint in told] == expected
        assert all(hint.doubt and hint.compared for hint in told)


def test_a_generator_runs_where_the_next_of_it_is_asked_for() -> None:
    made = "\ndef batches():\n    yield memmap(path)\n"
    asked = GOOD.replace("training_ms = 0\n", "training_ms = 0; loader = batches()\n").replace(
        "    approx =", "    next(loader)\n    approx ="
    )
    inline = GOOD.replace("    approx =", "    memmap(path)\n    approx =")
    codes = [Code(script="t.py", files={"t.py": t.encode()}) for t in (inline, made + asked)]
    assert compare_clocks(*codes) == ()


def test_the_tiny_training_is_sound() -> None:
    code = (TRAINERS / "tiny_torch.py").read_text()
    assert doubts(code) == [(25, "the clock starts without a")]  # nothing runs on a GPU there


def test_a_line_between_two_readings_of_a_clock_that_stops_three_times_is_in_its_pause() -> None:
    actions = ((10, Action.START), (20, Action.STOP), (30, Action.START), (40, Action.STOP))
    events = [*actions, (50, Action.START), (60, Action.STOP)]
    of_script = Timeline(events=[ScriptEvent(line=n, action=action) for n, action in events])
    places = {line: of_script.place(line) for line in (5, 15, 25, 35, 45, 55, 65)}
    assert places == {
        **{5: ClockPlace.BEFORE, 15: ClockPlace.TIMED, 25: ClockPlace.PAUSE},
        **{35: ClockPlace.TIMED, 45: ClockPlace.PAUSE, 55: ClockPlace.TIMED},
        65: ClockPlace.AFTER,
    }
    at_events = {line: of_script.place(line) for line in (10, 20, 30, 40, 50, 60)}
    assert at_events == {
        **{10: ClockPlace.TIMED, 20: ClockPlace.PAUSE, 30: ClockPlace.PAUSE},
        **{40: ClockPlace.PAUSE, 50: ClockPlace.PAUSE, 60: ClockPlace.TIMED},
    }
