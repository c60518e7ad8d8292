"""Tests that are slow for what they take alone: they reach nothing that quick tests do not reach (`tests.mutation.doubles` chose them)."""

from pathlib import Path

FILE = Path(__file__).parent / "data" / "doubles.txt"


def doubles() -> frozenset[str]:
    """Their ids, as pytest writes them."""
    return frozenset(FILE.read_text(encoding="utf-8").splitlines())
