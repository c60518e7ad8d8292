"""Elements of lists that others stand in place of: none is lost, however many there are."""

import pytest

from harness.split.groups import take_apart
from harness.split.source import decoded

PAIRS = {  # and how many choices that is
    "one in place of one": ("x = [a, b(1), c]\n", "x = [a, q[2], c]\n", 1),
    "two in place of two": ("x = [a, b(1), e.f, c]\n", "x = [a, q[2], 'w', c]\n", 4),
    "three in place of three": ("f({a, b(1), e.f, -g})\n", "f({a, q[2], 'w', h ** 2})\n", 1),
    "two in place of one": ("x = (a, b(1), c)\n", "x = (a, q[2], 'w', c)\n", 3),
    "none in place of two": ("x = [a, b(1), e.f, c]\n", "x = [a, c]\n", 2),
}


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("turn", [1, -1])
def test_every_element_of_both_lists_is_made_again(pair: str, turn: int) -> None:
    *texts, n_choices = PAIRS[pair]
    old, new = (decoded(str(text).encode(), pair) for text in texts[::turn])
    whole = take_apart(old, new).difference
    assert whole.n_atoms == n_choices
    assert (whole.text(()), whole.text(range(whole.n_atoms))) == (old, new)
