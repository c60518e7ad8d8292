"""Two dictionaries taken apart: every entry that differs is one choice, whatever stands beside it."""

import itertools

import pytest

from harness.split.groups import take_apart
from harness.split.source import decoded

PAIRS = {  # the entries before and after
    "a value": ({"a": 1, "b": 2}, {"a": 1, "b": 3}),
    "an entry more": ({"a": 1}, {"a": 1, "b": 2}),
    "an entry less": ({"a": 1, "b": 2, "c": 3}, {"a": 1, "c": 3}),
    "another key in its place": ({"a": 1, "b": 2, "c": 3}, {"a": 1, "x": 2, "c": 3}),
    "several": ({"a": 1, "b": 2, "c": 3, "d": 4}, {"b": 5, "c": 3, "x": 6, "y": 7}),
}


def script(entries: dict[str, int]) -> str:
    return f"x = {entries!r}\n".replace("'", '"')


def value_of(text: str) -> dict[str, int]:
    names: dict[str, dict[str, int]] = {}
    exec(text, names)
    return names["x"]


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("turn", [1, -1])
def test_every_entry_that_differs_is_a_choice_of_its_own(pair: str, turn: int) -> None:
    before, after = PAIRS[pair][::turn]
    old, new = (decoded(script(entries).encode(), pair) for entries in (before, after))
    whole = take_apart(old, new).difference
    differing = {key for key in {*before, *after} if before.get(key) != after.get(key)}
    assert whole.n_atoms == len(differing)
    moved = set()
    for atom in range(whole.n_atoms):
        one = value_of(whole.text({atom}))
        (key,) = {key for key in {*before, *one} if before.get(key) != one.get(key)}
        assert one.get(key) == after.get(key)
        moved.add(key)
    assert moved == differing
    for chosen in itertools.combinations(range(whole.n_atoms), 2):
        both = value_of(whole.text(set(chosen)))
        assert len({k for k in {*before, *both} if before.get(k) != both.get(k)}) == 2
    everything = value_of(whole.text(range(whole.n_atoms)))
    assert (value_of(whole.text(())), everything) == (before, after)
    assert [*everything] == [*after]


def test_what_has_a_key_twice_or_two_mappings_in_it_is_one_choice() -> None:
    for before, after in (
        ("x = {**a, 'k': 1}\n", "x = {**a, **b, 'k': 2}\n"),
        ("x = {1: a, 2: b}\n", "x = {1: a, 2: c, 1: d}\n"),
    ):
        old, new = (decoded(text.encode(), "x") for text in (before, after))
        whole = take_apart(old, new).difference
        assert whole.n_atoms == 1 and whole.text({0}) == new
