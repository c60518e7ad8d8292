"""Drawings of numbers made by hand are what they were: a change of one is read as a diff."""

import pytest

from tests.kept_drawings import DRAWINGS, FOLDER, drawn_of
from tests.kept_pages import first_difference


@pytest.mark.parametrize("name", DRAWINGS)
def test_drawings_are_what_they_were(name: str) -> None:
    kept = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    changed = first_difference(kept, drawn_of(name))
    assert not changed, f"{changed}; python -m tests.kept_drawings writes it again: read the diff"


def test_no_kept_drawing_is_of_a_theme_that_is_gone() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(DRAWINGS)
