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
    assert redacted("any word\n") == "any word\n"
