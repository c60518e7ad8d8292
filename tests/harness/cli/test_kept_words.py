"""What commands print is what they printed when somebody last read it: a change of it is read as a diff."""

import pytest

from tests.kept_pages import first_difference
from tests.kept_words import ASKED, FOLDER, words_of


@pytest.mark.parametrize("command", ASKED)
def test_a_command_says_what_it_said(command: str) -> None:
    kept = (FOLDER / f"{command}.txt").read_text(encoding="utf-8")
    changed = first_difference(kept, words_of(command))
    assert not changed, f"{changed}; python -m tests.kept_words writes it again: read the diff"


def test_no_words_are_kept_of_a_command_that_is_not_asked() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(ASKED)
