"""A candidate's place in a stream of candidates: which share of the error rate it may spend.

Online control of false discoveries with e-values (e-LOND: Xu and Ramdas 2024). Of the error rate
alpha the t-th candidate gets alpha_t = alpha g_t (1 + candidates kept before it), the g_t adding up
to 1; it is kept where its e-value reaches 1 / alpha_t. Of those kept the false ones are then at
most alpha in expectation, however the candidates depend on each other.
"""

import math
from dataclasses import dataclass
from typing import Self

from harness.run.document import Content, Document
from harness.run.typed import typed

WEIGHTS = 2.1097428  # what 1 / (k ln^2 k) adds up to, from k = 2 on


@dataclass(frozen=True, kw_only=True)
class StreamPlace:
    """A candidate in a stream."""

    stream: str
    number: int  # from 1 on
    parts: int  # it is judged at this part of the error rate
    n_kept: int  # before it

    @classmethod
    def from_mapping(cls, content: Document) -> Self:
        return typed(cls(**{name: content[name] for name in cls.__dataclass_fields__}))

    def to_mapping(self) -> Content:
        return dict(vars(self))


def place_of(stream: str, number: int, n_kept: int) -> StreamPlace:
    """The place of the next candidate."""
    return StreamPlace(stream=stream, number=number, parts=parts_of(number, n_kept), n_kept=n_kept)


def parts_of(number: int, n_kept: int) -> int:
    """1 / (g_t (1 + n_kept)), rounded up."""
    k = number + 1
    return math.ceil(WEIGHTS * k * math.log(k) ** 2 / (1 + n_kept))
