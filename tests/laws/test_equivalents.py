"""Sabotages that are named as equivalent are of the code as it is."""

from pathlib import Path

from tests.mutation.fates import equivalents

ROOT = Path(__file__).resolve().parents[2]


def test_every_equivalent_sabotage_is_of_a_line_of_the_code():
    gone = [
        f"{path}: {was}"
        for path, was, _ in equivalents()
        if was not in map(str.strip, (ROOT / path).read_text(encoding="utf-8").splitlines())
    ]
    assert gone == []
