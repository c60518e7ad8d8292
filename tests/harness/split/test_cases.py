"""Small pairs of scripts, each about one thing: their groups, needs and atoms are those that were reviewed."""

import pytest

from tests.split_cases import PAIRS, kept, taken_apart


@pytest.mark.parametrize("pair", PAIRS)
def test_a_small_pair_is_taken_apart_as_it_was_reviewed(pair: str) -> None:
    """Another answer that is meant: `python -m tests.split_cases`, and the diff is to be read."""
    assert taken_apart(pair) == kept()[pair]


def test_no_pair_is_kept_that_is_not_tried() -> None:
    assert list(kept()) == list(PAIRS)
