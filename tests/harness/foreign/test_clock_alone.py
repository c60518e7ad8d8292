"""Two scripts of which one has no clock that is read to its end: nothing is held against the other."""

import pytest

from harness.foreign.clock_compare import compare_clocks
from harness.provenance.code import Code

WHOLE = """
import time
for _ in range(10):
    loss(model).backward()
total = 0
t0 = time.perf_counter()
for step in range(9):
    loss(model).backward()
    total += time.perf_counter() - t0
    t0 = time.perf_counter()
"""
UNWARMED = WHOLE.replace("for _ in range(10):\n    loss(model).backward()\n", "")
HALF = {
    "never stopped": UNWARMED.replace("    total += time.perf_counter() - t0\n", ""),
    "never started": UNWARMED.replace("t0 = time.perf_counter()", "pass"),
    "no Python": "if true; then",
}


def hints(old: str, new: str) -> list[int]:
    codes = [Code(script="t.py", files={"t.py": text.encode()}) for text in (old, new)]
    return [hint.line for hint in compare_clocks(*codes)]


@pytest.mark.parametrize("what", HALF)
def test_without_a_whole_clock_nothing_is_compared(what: str) -> None:
    assert hints(UNWARMED, WHOLE) != [] != hints(WHOLE, UNWARMED)
    assert hints(HALF[what], WHOLE) == hints(WHOLE, HALF[what]) == []
    assert hints(WHOLE, WHOLE) == []
