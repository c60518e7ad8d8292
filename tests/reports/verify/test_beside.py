"""What changes add with each other and without, of rows and pages by hand: every pair, each number, each word."""

from collections.abc import Mapping
from typing import Any

import pytest

from reports.verify.beside import ValueAndEnds, check_beside, effects_beside
from reports.verify.page import Page

LOSSES = {"base": 3.0, "a": 2.9, "b": 2.8, "ab": 2.75, "c": 3.1, "ac": 2.95, "d": 2.7}
PLAN = {
    "baseline": "base",
    "arms": [
        *({"name": name, "changes": [*name.removeprefix("base")]} for name in LOSSES),
        {"name": "ab at x2", "of": "ab", "changes": ["a", "b"]},  # a point of an axis
    ],
}
WOBBLE = (0.02, -0.03, 0.01, 0.0)  # of each arm at another place
ROWS = [
    {"arm": arm, "block": block, "status": "finished", "val_loss": loss + WOBBLE[(i + block) % 4]}
    for i, (arm, loss) in enumerate(LOSSES.items())
    for block in range(4)
]
PAIRS = {  # with the other, without it, beyond the sum
    ("a", "b"): (-0.05, -0.1, 0.05),
    ("b", "a"): (-0.15, -0.2, 0.05),
    ("a", "c"): (-0.15, -0.1, -0.05),
    ("c", "a"): (0.05, 0.1, -0.05),
}


def printed(*rows: tuple[Any, Any, Any], answer: str = "") -> Page:
    """A page whose table has these rows of three numbers, each of which may have its ends."""
    texts = [repr(part).strip("()").replace(" ", "") for row in rows for part in row]
    carried: dict[Any, str] = {(0, "beside", n): text for n, text in enumerate(texts)}
    return Page(carried=carried, sentences={(0, "answer"): answer})


def said(page: Page, *, anytime: bool = False) -> list[str]:
    return [*check_beside(page, 0, PLAN, ROWS, raised=1.0, anytime=anytime)]


def test_each_row_of_a_table_of_pairs_is_that_of_a_pair_or_named_by_its_two_effects() -> None:
    effects = effects_beside(PLAN, ROWS, 0.05)
    assert effects.keys() == PAIRS.keys()
    for pair, numbers in PAIRS.items():
        found = effects[pair]
        of_pair = (found.with_other[0], found.without[0], found.beyond)
        assert of_pair == pytest.approx(numbers)
    rows = [*PAIRS.values()]
    assert said(printed(*rows)) == said(printed(*rows[::-1])) == said(printed()) == []
    wrong = (-0.05, -0.11, 0.05)
    assert said(printed(rows[0], wrong, rows[2])) == ["beside: no pair gives -0.05 and -0.11"]
    mixed = (*rows[0][:2], rows[2][2])
    assert said(printed(*rows, mixed)) == ["beside: no pair gives -0.05 and -0.1"]
    with pytest.raises(ValueError):  # two numbers of three, which `verify` tells
        said(Page(carried={(0, "beside", 0): "-0.05", (0, "beside", 1): "-0.1"}))


def test_an_interval_of_a_pair_is_held_to_the_rows_but_that_of_a_sequence() -> None:
    one = effects_beside(PLAN, ROWS, 0.05)["a", "b"]
    parts: tuple[ValueAndEnds, ...] = (one.with_other, one.without)
    for value, low, high in parts:
        assert low is not None and high is not None
        assert value - low == pytest.approx(high - value)
    assert said(printed((*parts, one.beyond))) == []
    for place in range(2):
        for end in (1, 2):
            lie: list[Any] = [list(part) for part in parts]
            lie[place][end] += 1e-3
            lies = printed((tuple(lie[0]), tuple(lie[1]), one.beyond))
            assert len(said(lies)) == 1
            assert said(lies, anytime=True) == []


def test_the_more_pairs_and_the_smaller_the_share_the_wider_is_an_interval_of_a_pair() -> None:
    def half_width(rows: list[Mapping[str, Any]], alpha: float) -> float:
        value, low, _ = effects_beside(PLAN, rows, alpha)["a", "b"].with_other
        assert low is not None
        return value - low

    without_c: list[Mapping[str, Any]] = [row for row in ROWS if row["arm"] != "c"]
    assert half_width([*ROWS], 0.05) == pytest.approx(half_width(without_c, 0.025))
    assert half_width([*ROWS], 0.05) > half_width(without_c, 0.05)


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        ("a is shown to help with b: −0.0500 with it, −0.1000 without.", []),
        (
            "a is shown to help with b: −0.0500 with it, −0.2000 without.",
            ["the headline says a −0.2000 beside b, the rows give -0.1"],
        ),
        (
            "c is shown to help with a: +0.0500 with it, +0.1000 without.",
            ["the headline says that c is shown to help, the rows say otherwise"],
        ),
        ("c is shown to hurt only without a: +0.0500 with it, +0.1000 without.", []),
        ("The two together add −0.0500 beyond", []),
        ("The two together add +0.0501 beyond", []),
        (
            "The two together add +0.0502 beyond",
            ["the headline says +0.0502 beyond the sum, which no pair gives"],
        ),
    ],
)
def test_a_sentence_on_a_pair_is_held_to_its_rows(answer: str, wrong: list[str]) -> None:
    assert said(printed(answer=answer)) == wrong
