"""Why a run failed: the exception of its own last traceback, whatever its launcher prints after it."""

import pytest

from harness.foreign import failure as failure_module
from harness.foreign.failure import FailureReason

LAUNCHER = """\
E1123 02:31:14.183000 8027 elastic/api.py:1002] failed (exitcode: {code}) local_rank: {rank} (pid: 8141) of binary: python
Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
  File "torch/distributed/launcher/api.py", line 383, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
"""
MISSING = """\
Traceback (most recent call last):
  File "/copy/train.py", line 1, in <module>
    import triton
ModuleNotFoundError: No module named 'triton'
"""
BARE = """\
Traceback (most recent call last):
  File "/copy/train.py", line 9, in <module>
    main()
  File "/copy/train.py", line 4, in main
    assert world_size == 8
           ^^^^^^^^^^^^^^^
AssertionError
"""
UNUSUAL = """\
Traceback (most recent call last):
  File "/copy/train.py", line 2, in <module>
    model(x)
torch._dynamo.exc.Unsupported: a graph break
"""
HANDLED = "ValueError: no cache yet, one is made\n"


def reason(text: str, code: int = 1) -> str:
    failure = FailureReason()
    for line in text.splitlines():
        failure.feed(line)
    return failure.reason(code)


def of_rank(text: str, rank: int) -> str:
    return "".join(f"[rank{rank}]: {line}\n" for line in text.splitlines())


CASES = {
    "before the group is up": (
        MISSING + LAUNCHER.format(code=1, rank=0),
        "rank 0 ended with exit code 1: ModuleNotFoundError: No module named 'triton'",
    ),
    "a bare assert": (
        BARE,
        "its command ended with exit code 1: AssertionError: assert world_size == 8 (train.py, line 4)",
    ),
    "a bare assert of a rank": (
        of_rank(MISSING, 2) + of_rank(BARE, 5) + LAUNCHER.format(code=1, rank=5),
        "rank 5 ended with exit code 1: AssertionError: assert world_size == 8 (train.py, line 4)",
    ),
    "an exception that is not named like one": (
        HANDLED + UNUSUAL,
        "its command ended with exit code 1: torch._dynamo.exc.Unsupported: a graph break",
    ),
    "what was handled and printed after it": (
        MISSING + HANDLED,
        "its command ended with exit code 1: ModuleNotFoundError: No module named 'triton'",
    ),
    "the last of several": (
        BARE
        + "\nDuring handling of the above exception, another exception occurred:\n\n"
        + MISSING,
        "its command ended with exit code 1: ModuleNotFoundError: No module named 'triton'",
    ),
    "killed, after another's traceback": (
        MISSING + LAUNCHER.format(code=-9, rank=1),
        "rank 1 was killed by signal 9",
    ),
    "a last word alone": (
        "give a data path\n",
        "its command ended with exit code 1: give a data path",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_run_is_told_by_its_own_last_traceback(case: str) -> None:
    text, expected = CASES[case]
    assert reason(text) == expected


def test_few_ranks_are_kept_and_those_go_on_being_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_module, "MAX_RANKS", 8)
    failure = FailureReason()
    for rank in range(200):
        for line in of_rank(MISSING + HANDLED, rank).splitlines():
            failure.feed(line)
    held = {*failure.tracebacks, *failure.traced, *failure.raised}
    assert held == {str(rank) for rank in range(8)}
    for line in (of_rank(BARE, 5) + BARE + LAUNCHER.format(code=1, rank=5)).splitlines():
        failure.feed(line)
    assert failure.reason(1).startswith("rank 5 ended with exit code 1: AssertionError")
    assert failure.traced[None].startswith("AssertionError")


@pytest.mark.parametrize(
    ("code", "ended"),
    [
        *((1, "ended with exit code 1"), (128, "ended with exit code 128")),
        *((129, "was killed by signal 1"), (192, "was killed by signal 64")),
        *((193, "ended with exit code 193"), (-9, "was killed by signal 9")),
    ],
)
def test_a_code_beyond_128_is_that_of_a_signal_as_far_as_there_are_any(
    code: int, ended: str
) -> None:
    assert reason("", code) == f"its command {ended}"


@pytest.mark.parametrize(
    ("before", "line"),
    [("", "no data " * 99), ("", f"ValueError: {'x' * 400}"), (MISSING[:-1], "x" * 400)],
    ids=["a last word", "an exception in words", "a traceback's"],
)
def test_of_a_long_line_a_reason_has_three_hundred_characters(before: str, line: str) -> None:
    said = f"{before}{line}".splitlines()[-1]
    assert reason(f"{before}{line}\n") == f"its command ended with exit code 1: {said[:300]}"
