"""What stands at the network's input."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """What the network must know of its input.

    Ids 0..vocab_size-1, the id that opens a document, the longest sequence, and for a loss on
    prefixes the bytes of every id, None of one that is no text.
    """

    vocab_size: int
    separator: int
    seq_len: int
    texts: Sequence[bytes | None] | None = None
