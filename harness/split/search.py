"""The smallest part of a list with which something passes: delta debugging."""

from collections.abc import Callable, Sequence
from typing import TypeVar

Element = TypeVar("Element")


def smallest(every: Sequence[Element], passes: Callable[[list[Element]], bool]) -> list[Element]:
    """A part of the list that passes, and passes with none of its pieces left out.

    Raises nothing where even the whole does not pass: then it is the whole. Zeller and Hildebrandt,
    Simplifying and Isolating Failure-Inducing Input (2002)."""
    kept = list(every)
    if not kept or not passes(kept):
        return kept
    n_pieces = 2
    while len(kept) > 1:
        size = -(-len(kept) // n_pieces)
        pieces = [kept[start : start + size] for start in range(0, len(kept), size)]
        smaller = _smaller(kept, pieces, passes)
        if smaller is not None:
            kept, n_pieces = smaller, 2
        elif n_pieces >= len(kept):
            break
        else:
            n_pieces = min(len(kept), 2 * n_pieces)
    return [] if len(kept) == 1 and passes([]) else kept


def _smaller(
    kept: list[Element],
    pieces: list[list[Element]],
    passes: Callable[[list[Element]], bool],
) -> list[Element] | None:
    """A piece that passes, or all but a piece that does; None where neither is found."""
    for piece in pieces:
        if len(piece) < len(kept) and passes(piece):
            return piece
    for piece in pieces:
        rest = [element for element in kept if element not in piece]
        if len(rest) < len(kept) and rest and passes(rest):
            return rest
    return None
