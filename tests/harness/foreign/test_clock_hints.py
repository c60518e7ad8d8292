"""The static look at a script's timed region: what it sees, at which line, and what it doubts."""

from pathlib import Path

import pytest

from harness.foreign.clock_hints import audit
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


def test_a_sound_script_is_described_without_doubt_but_for_saving() -> None:
    assert doubts(GOOD) == [(22, "saving while the clock runs")]
    assert seen(GOOD) == [
        "4: compilation is asked for before the clock starts; it happens at the first step of a shape",
        "7: training before the clock starts (line 7): the state is restored at line 8",
        "11: the clock starts after a synchronisation",
        "15: the clock stops after a synchronisation",
        "16: validation while the clock is stopped (lines 16, 17)",
        "20: the clock starts after a synchronisation",
        "22: saving while the clock runs (line 22)",
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
    "training after the last stop": (
        GOOD + "training_ms += time.perf_counter() - t0\nloss(model).backward()\n",
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


def test_a_script_without_a_clock_and_one_that_is_no_python_are_told() -> None:
    assert doubts("print('step:1/1 val_loss:3')") == [(0, "t.py has no line where")]
    assert "is not Python" in seen("#!/bin/sh\nif true; then echo; fi")[0]


def test_the_tiny_training_is_sound() -> None:
    code = (TRAINERS / "tiny_torch.py").read_text()
    assert doubts(code) == [(25, "the clock starts without a")]  # nothing runs on a GPU there
