"""What a file may hold where a dataclass declares a number."""

import math
from dataclasses import dataclass
from typing import Literal

import pytest

from harness.run.metrics import Validation
from harness.run.typed import typed

POINT = {"step": 3, "val_loss": 4.5, "train_time_s": 1.5, "step_times_ms": [500.0, None, 7]}


def test_numbers_and_none_are_read_as_they_are():
    read = Validation.from_json(POINT)
    assert (read.step, read.val_loss, read.step_times_ms) == (3, 4.5, [500.0, None, 7])
    assert Validation.from_json({"step": 3}).val_loss is None


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


@dataclass(frozen=True)
class Disturbed:
    kind: Literal["still", "load"]


def test_a_word_is_one_of_those_that_there_are():
    assert typed(Disturbed(kind="load")).kind == "load"
    for other in ("loud", None, ["load"], 1):
        with pytest.raises(ValueError, match="kind"):
            typed(Disturbed(kind=other))
