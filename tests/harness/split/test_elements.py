"""Elements of lists that others stand in place of: none is lost, however many there are."""

import pytest

from harness.split.groups import take_apart
from harness.split.source import decoded

PAIRS = {
    "one in place of one": ("x = [a, b(1), c]\n", "x = [a, q[2], c]\n"),
    "two in place of two": ("x = [a, b(1), e.f, c]\n", "x = [a, q[2], 'w', c]\n"),
    "three in place of three": ("f({a, b(1), e.f, -g})\n", "f({a, q[2], 'w', h ** 2})\n"),
    "two in place of one": ("x = (a, b(1), c)\n", "x = (a, q[2], 'w', c)\n"),
    "none in place of two": ("x = [a, b(1), e.f, c]\n", "x = [a, c]\n"),
}


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("turn", [1, -1])
def test_every_element_of_both_lists_is_made_again(pair: str, turn: int) -> None:
    old, new = (decoded(text.encode(), pair) for text in PAIRS[pair][::turn])
    whole = take_apart(old, new).difference
    assert (whole.text(()), whole.text(range(whole.n_atoms))) == (old, new)
