"""What a file may hold where a dataclass declares a number."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from harness.run.metrics import Validation
from harness.run.typed import typed

POINT = {"step": 3, "val_loss": 4.5, "train_time_s": 1.5, "step_times_ms": [500.0, None, 7]}


def test_numbers_and_none_are_read_as_they_are():
    read = Validation.from_json(POINT)
    assert (read.step, read.val_loss, read.step_times_ms) == (3, 4.5, [500.0, None, 7])
    assert Validation.from_json({"step": 3}).val_loss is None
    for farthest in (1e100, -1e100):
        assert Validation.from_json(POINT | {"val_loss": farthest}).val_loss == farthest


@pytest.mark.parametrize("value", [True, "4.5", [4.5], math.nan, math.inf, -1e101, 2**63])
@pytest.mark.parametrize("field", ["val_loss", "step_times_ms"])
def test_what_cannot_be_reckoned_with_is_refused_by_its_field(field, value):
    found = [value] if field == "step_times_ms" else value
    with pytest.raises(ValueError, match=field):
        Validation.from_json(POINT | {field: found})


def test_a_refusal_names_the_type_and_the_first_60_letters_of_what_was_found():
    with pytest.raises(ValueError) as refused:
        Validation.from_json(POINT | {"val_loss": "x" * 61})
    assert str(refused.value) == f"val_loss is '{'x' * 60}', of type str"


def test_a_whole_number_has_64_bits_with_its_sign():
    for ends in (2**63 - 1, -(2**63)):
        assert Validation.from_json(POINT | {"step": ends}).step == ends
    for beyond in (2**63, -(2**63) - 1):
        with pytest.raises(ValueError, match="step"):
            Validation.from_json(POINT | {"step": beyond})


@dataclass(frozen=True, kw_only=True)
class Told:
    number: float = 0.0
    texts: Sequence[str] = ()
    pairs: tuple[float, ...] = ()
    by_name: Mapping[str, float | None] | None = None
    anything: Mapping[str, Any] = field(default_factory=dict)
    either: Sequence[str | Mapping[str, str]] = ()
    parts: tuple[Any, ...] = ()
    whatever: Any = None


GOOD: dict[str, list[Any]] = {
    "number": [0, 1.5, 1e100, -1e100],
    "texts": [[], ["a"], ("a", "b")],
    "pairs": [[1, 2.5], ()],
    "by_name": [None, {}, {"a": 1.5, "b": None}],
    "anything": [{"a": [None], "b": {"c": object()}}],
    "either": [["a", {"b": "c"}, {}]],
    "parts": [[None, 1.5, ["a"]]],
    "whatever": [None, 1, "a", math.nan, [object()]],
}
BAD: dict[str, list[Any]] = {
    "number": [None, True, "1", math.nan, math.inf, 1.1e100, -1.1e100, [1.0], 2**63],
    "texts": ["a", None, ["a", 1], {"a": 1}, ["a", None]],
    "pairs": [1.5, ["1"], [None], {1.5: 1.5}],
    "by_name": [[], "a", {"a": "b"}, {1: 1.5}, {"a": True}, 7],
    "anything": [None, "a", [], {1: "a"}],
    "either": [["a", 1], [{"b": 1}], [["a"]], "a", [None]],
    "parts": [None, "a", {"a": 1}],
    "whatever": [],
}


@pytest.mark.parametrize("name", GOOD)
def test_what_a_field_holds_is_of_its_type_to_the_last_value_in_it(name: str) -> None:
    for good in GOOD[name]:
        told = Told(**{name: good})
        assert typed(told) is told
    for bad in BAD[name]:
        with pytest.raises(ValueError) as refused:
            typed(Told(**{name: bad}))
        kind = type(bad).__name__
        assert str(refused.value) == f"{name} is {str(bad)[:60]!r}, of type {kind}"


@dataclass(frozen=True)
class Disturbed:
    kind: Literal["still", "load"]


def test_a_word_is_one_of_those_that_there_are():
    assert typed(Disturbed(kind="load")).kind == "load"
    for other in ("loud", None, ["load"], 1):
        with pytest.raises(ValueError, match="kind"):
            typed(Disturbed(kind=other))
