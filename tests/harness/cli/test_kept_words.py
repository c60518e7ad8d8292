"""What commands print is what they printed when somebody last read it: a change of it is read as a diff."""

import pytest

from tests.kept_pages import first_difference
from tests.kept_words import ASKED, FOLDER, words_of


@pytest.mark.parametrize("theme", ASKED)
def test_commands_say_what_they_said(theme: str) -> None:
    kept = (FOLDER / f"{theme}.txt").read_text(encoding="utf-8")
    changed = first_difference(kept, words_of(theme))
    assert not changed, f"{changed}; python -m tests.kept_words writes it again: read the diff"


def test_no_words_are_kept_of_commands_that_are_not_asked() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(ASKED)
