"""A run's log: whole up to a size, beyond it its head and its tail, whatever is printed and however fast."""

import io
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.store import log_file
from harness.store.log_file import HEAD, TAIL, HeadAndTail

HEAD_N, TAIL_N = 20, 30
LINES = st.lists(st.text("abcdefgh", max_size=18).map(lambda text: text + "\n"), max_size=40)
NOTE = "[... {:.1f} MiB of the log are left out here ...]\n"


class Clock:
    """Seconds that are told; writing a tail takes `cost_s` of them."""

    def __init__(self, cost_s: float = 0.0) -> None:
        self.now_s, self.spent_s, self.cost_s = 1000.0, 0.0, cost_s

    def thread_time(self) -> float:
        self.spent_s += self.cost_s
        return self.spent_s


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    told = Clock()
    times = SimpleNamespace(monotonic=lambda: told.now_s, thread_time=told.thread_time)
    monkeypatch.setattr(log_file, "time", times)
    return told


def log(file: io.StringIO) -> HeadAndTail:
    return HeadAndTail(file, lambda text: text, head=HEAD_N, tail=TAIL_N)


def kept(lines: list[str]) -> tuple[str, str, int]:
    """(head, tail, characters between): the first lines that fit, the fewest last ones that fill the tail."""
    head = 0
    while head < len(lines) and sum(map(len, lines[: head + 1])) <= HEAD_N:
        head += 1
    rest = lines[head:]
    first = len(rest)
    while first and sum(map(len, rest[first:])) < TAIL_N:
        first -= 1
    return "".join(lines[:head]), "".join(rest[first:]), sum(map(len, rest[:first]))


@given(LINES)
def test_at_its_end_a_log_is_its_head_and_its_tail_with_a_word_between(lines: list[str]) -> None:
    file = io.StringIO()
    out = log(file)
    for line in lines:
        out.write(line)
        assert file.getvalue().endswith(line)  # a process that is killed leaves its last words
        assert len(file.getvalue()) < HEAD_N + 60 + 2 * TAIL_N + 20
    out.end()
    head, tail, between = kept(lines)
    note = NOTE.format(between / 2**20) if between else ""
    assert file.getvalue() == head + note + tail
    assert out.is_in(file.getvalue().encode())
    out.end()
    assert file.getvalue() == head + note + tail


@given(LINES)
def test_of_a_flood_the_tail_is_written_at_the_end(lines: list[str]) -> None:
    file = io.StringIO()
    out = log(file)
    out.next_s = float("inf")  # not yet
    for line in lines:
        out.write(line)
    head, tail, between = kept(lines)
    assert file.getvalue() == head
    out.end()
    note = NOTE.format(between / 2**20) if between else ""
    assert file.getvalue() == head + note + tail


def test_a_tail_costs_a_tenth_of_the_time_at_most(clock: Clock) -> None:
    file = io.StringIO()
    out = log(file)
    out.write("h" * HEAD_N)
    clock.cost_s = 0.5  # to write a tail
    out.write("first\n")
    out.write("second\n")
    assert file.getvalue() == "h" * HEAD_N + "first\n"
    clock.now_s += 4.9
    out.write("third\n")
    assert not file.getvalue().endswith("third\n")
    clock.now_s += 0.1
    out.write("fourth\n")
    assert file.getvalue() == "h" * HEAD_N + "first\nsecond\nthird\nfourth\n"


def test_how_much_is_left_out_is_said_in_mebibytes() -> None:
    assert HEAD == TAIL == 4 * 2**20
    file = io.StringIO()
    out = HeadAndTail(file, lambda text: text)
    line = "x" * (2**20 - 1) + "\n"
    for _ in range(11):
        out.write(line)
    out.end()
    assert NOTE.format(3.0) in file.getvalue()
    assert file.getvalue().count("\n") == 4 + 1 + 4


def test_every_text_is_cleaned_before_it_is_written() -> None:
    file = io.StringIO()
    out = HeadAndTail(file, str.upper, head=HEAD_N, tail=TAIL_N)
    for n in range(9):
        out.write(f"line {n}\n")
    out.end()
    assert file.getvalue().replace(" MiB of the log are left out here", "").isupper()


def test_a_content_holds_what_was_written_in_its_order_whatever_stands_between() -> None:
    out = log(io.StringIO())
    out.write("one\n")
    out.write("two\n")
    assert out.is_in(b"one\ntwo\n")
    assert out.is_in(b"a library\none\nmore\ntwo\nend")
    for other in (b"two\none\n", b"one\n", b"two\n", b"", b"one\ntw\n"):
        assert not out.is_in(other)
    out = log(io.StringIO())
    out.write("one\n")
    out.write("one\n")
    assert not out.is_in(b"one\n") and out.is_in(b"one\none\n")


def test_the_file_is_cut_once_it_holds_more_than_two_tails() -> None:
    file = io.StringIO()
    out = log(file)
    out.write("h" * HEAD_N)
    tail = ["a" * TAIL_N, "b" * TAIL_N]
    for text in tail:
        out.write(text)
    assert file.getvalue() == "h" * HEAD_N + "".join(tail), "two tails are not cut"
    out.write("\n")
    assert file.getvalue() == "h" * HEAD_N + NOTE.format(0.0) + tail[1] + "\n"
    out.write("c" * (TAIL_N - 1))
    with_more = "h" * HEAD_N + NOTE.format(0.0) + tail[1] + "\n" + "c" * (TAIL_N - 1)
    assert file.getvalue() == with_more, "what a cut left counts from then on"
