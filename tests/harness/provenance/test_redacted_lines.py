"""A secret of several lines is left out of a log whichever piece its lines come in."""

import pytest

from harness.provenance.redacted_lines import RedactedLines


@pytest.mark.parametrize("mark", ['"""', "'''"])
def test_a_text_of_several_lines_that_is_a_secrets_is_left_out_up_to_its_end(mark: str) -> None:
    redacted = RedactedLines()
    first = redacted(f"start\nMY_PASSWORD = {mark}correct\n")
    assert first.startswith("start\n") and "correct" not in first
    assert redacted("any word, and another\n") == ""
    assert redacted(f"the last{mark}\ngo on\n") == "go on\n"
    later = f"x = {mark}any word{mark}, and another\n"
    assert redacted(later) == later
    assert redacted("any word\n") == "any word\n"


BLOCK = "password: |\n"
KEY = "-----BEGIN PRIVATE KEY-----\n"


@pytest.mark.parametrize(
    ("first", "others", "left"),
    [
        (BLOCK, ["  one\n", "\ttwo\n  three\nb: 1\n", "  c\n"], ["", "b: 1\n", "  c\n"]),
        ("HF_TOKEN=abcd\\\n", ["efgh\\\n", "ijkl\n", "next\n"], ["", "", "next\n"]),
        (KEY, ["QUJDRA==\n", "\n", "a/b\nnext\n", "abc1\n"], ["", "", "next\n", "abc1\n"]),
        (KEY, ["a" * 24 + "\n", "a" * 23 + "\n"], ["", "a" * 23 + "\n"]),
        (KEY, ["12:00 " + "a" * 24 + "\n", "12:00 word\n"], ["", "12:00 word\n"]),
        (KEY, ["a1\n-----END PRIVATE KEY-----\nb1\n", "c1\n"], ["b1\n", "c1\n"]),
    ],
)
def test_the_lines_behind_a_secret_are_left_out_while_they_are_of_it(
    first: str, others: list[str], left: list[str]
) -> None:
    redacted = RedactedLines()
    assert redacted(f"before\n{first}").startswith("before\n")
    assert [redacted(text) for text in others] == left


@pytest.mark.parametrize(
    ("first", "line"), [(BLOCK, "  word\n"), (KEY, "abc1\n"), ('MY_PASSWORD = """a\n', "word\n")]
)
def test_a_secret_without_an_end_is_given_up_after_400_lines(first: str, line: str) -> None:
    redacted = RedactedLines()
    redacted(first)
    assert [redacted(line) for _ in range(401)] == [""] * 399 + [line] * 2


@pytest.mark.parametrize(("n_letters", "is_seen"), [(4000, True), (4001, False)])
def test_a_value_that_goes_on_begins_at_most_4000_letters_before_the_end(
    n_letters: int, is_seen: bool
) -> None:
    redacted = RedactedLines()
    lines = "  word and word\n" * 240
    text = f"start\n{BLOCK}{lines}"
    text += "  " + "x" * (n_letters - len(BLOCK + lines) - 3) + "\n"
    assert redacted(text).startswith("start\npassword: [redacted]")
    assert (redacted("  the end\n") == "") is is_seen


def test_the_end_of_a_key_that_did_not_begin_is_left_where_it_is() -> None:
    text = "-----END PRIVATE KEY----- and more\n"
    assert RedactedLines()(text) == text
