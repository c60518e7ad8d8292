"""How numbers are written, by a table of what a reader is to see."""

import math
from typing import Any

import pytest

from harness.run.plural import plural
from reports.format import FORMATS, NONE, interval, show, significant, with_interval


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0, 4, "0"),
        (3.28, 4, "3.280"),
        (141.8234, 4, "141.8"),
        (-141.8234, 2, "-142"),
        (0.00012346, 4, "0.0001235"),
        (0.00009876, 4, "9.876e-05"),
        (12345678.0, 4, "12345678"),
        (123456789.0, 4, "1.235e+08"),
        (98765432.0, 2, "98765432"),
    ],
)
def test_digits_are_significant_ones_and_exponents_are_for_the_extremes(
    value: float, digits: int, text: str
) -> None:
    assert significant(value, digits) == text


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("loss", 3.27846, "3.2785"),
        ("loss_delta", 0.00154, "+0.0015"),
        ("loss_delta", -0.00154, "−0.0015"),
        ("loss_delta", -0.00001, "−0.000010"),
        ("loss_delta", 0.0000134, "+0.000013"),
        ("loss_delta", 0.0000009, "+0.0000009"),
        ("loss_delta", -3e-9, "0.0000"),
        ("loss_delta", 0.0, "0.0000"),
        ("own", 71.23456, "71.235"),
        ("own_delta", 0.02, "+0.02"),
        ("own_delta", -0.5, "−0.5"),
        ("own_delta", 20.0, "+20.0"),
        ("own_delta", 0.0, "0"),
        ("sd", 0.00213, "0.0021"),
        ("ms", 141.8234, "141.8"),
        ("ms_delta", 1.5, "+1.50"),
        ("s", 0.5, "0.5000"),
        ("s_gain", -12.3, "−12"),
        ("s_gain", 12.3, "+12"),
        ("percent", 0.0512, "+5.1 %"),
        ("percent", -0.0004, "0.0 %"),
        ("points", -1.25, "−1.2 %"),
        ("rate", 0.257, "26 %"),
        ("mfu", 0.4567, "45.7 %"),
        ("ratio", 1.02345, "1.023"),
        ("count", 12.0, "12"),
        ("tokens", 9999.0, "9999"),
        ("tokens", 10_000.0, "10.00K"),
        ("tokens", 123_456_789.0, "123.5M"),
        ("tokens", 1.0e9, "1.000B"),
        ("mib", 1024.4, "1024"),
        ("p", 0.00002, "< 0.0001"),
        ("p", 0.0001, "0.0001"),
        ("p", 0.00994, "0.0099"),
        ("p", 0.01, "0.010"),
        ("p", 0.0994, "0.099"),
        ("p", 0.1, "0.10"),
        ("p", 1.0, "1.00"),
        ("sd", 0.0000012, "1.2e-06"),
    ],
)
def test_each_kind_of_number_has_its_own_writing(kind: str, value: float, text: str) -> None:
    assert show(value, kind) == text


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("value", [None, math.nan])
def test_what_is_not_known_is_a_dash_of_every_kind(kind: str, value: Any) -> None:
    assert show(value, kind) == NONE


@pytest.mark.parametrize(
    ("low", "high", "kind", "text"),
    [
        (-0.002, 0.003, "loss_delta", "[−0.0020, +0.0030]"),
        (None, 0.003, "loss_delta", "[−∞, +0.0030]"),
        (-0.002, math.inf, "loss_delta", "[−0.0020, ∞]"),
        (None, None, "loss_delta", ""),
        (-0.000112, 0.000018, "loss_delta", "[−0.000112, +0.000018]"),
        (0.0, 0.000018, "loss_delta", "[0.000000, +0.000018]"),
        (-0.5, 0.0000003, "loss_delta", "[−0.5000, +0.0000003]"),
        (-0.02, 0.03, "percent", "[−2.0, +3.0] %"),
        (-0.934, 37.308, "percent", "[−93.4, +3731] %"),
        (-0.02, None, "percent", "[−2.0, ∞] %"),
        (None, 0.03, "percent", "[−∞, +3.0] %"),
    ],
)
def test_an_interval_names_its_unit_once_and_an_end_that_is_open(
    low: Any, high: Any, kind: str, text: str
) -> None:
    assert interval(low, high, kind) == text


def test_a_value_shares_the_unit_of_its_interval() -> None:
    assert with_interval(0.01, -0.02, 0.03, "percent") == "+1.0 [−2.0, +3.0] %"
    assert with_interval(0.01, None, None, "percent") == "+1.0 %"
    assert with_interval(-0.001, -0.002, 0.0, "loss_delta") == "−0.0010 [−0.0020, 0.0000]"


def test_one_thing_has_no_plural() -> None:
    assert [plural(n, "run") for n in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]
