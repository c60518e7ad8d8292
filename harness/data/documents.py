"""The documents of training shards, and the same tokens with the documents in another order.

A document begins with the corpus's separator. The shards count as put end to end: a document may
go on in the next one; tokens before the first separator are a document, too.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.data.loader import TokenStream
from harness.data.positions import locate
from harness.data.shards import Tokens, blocks, open_shard


class Documents:
    """The documents as they lie; `documents[i]` gives the tokens of one, its separator first."""

    def __init__(self, shards: Sequence[Path], separator: int) -> None:
        self.stream = TokenStream(shards)
        self.starts = _starts(shards, separator)
        # (n,) tokens of each
        self.lengths: NDArray[np.int64] = np.diff(self.starts, append=sum(self.stream.lengths))

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, i: int) -> Tokens:
        return self.read(i, 0, int(self.lengths[i]))

    def read(self, i: int, start: int, n_tokens: int) -> Tokens:
        """(n_tokens,) of document i, from its token `start` on."""
        place = locate(self.stream.lengths, int(self.starts[i]) + start)
        return self.stream.read(*place, n_tokens)


def _starts(shards: Sequence[Path], separator: int) -> NDArray[np.int64]:
    """(n,) the position of every document's first token in the shards put end to end."""
    found, before = [np.zeros(1, dtype=np.int64)], 0
    for path in shards:
        for block in blocks(open_shard(path)):
            found.append(before + np.flatnonzero(block == separator))
            before += len(block)
    return np.unique(np.concatenate(found))


class OrderedStream(TokenStream):
    """The documents put end to end in an order of their own: one shard of all tokens."""

    def __init__(self, documents: Documents, order: NDArray[np.int64]) -> None:
        super().__init__(documents.stream.shards)
        self.documents, self.order = documents, order
        self.ends = np.cumsum(documents.lengths[order])
        self.lengths = [int(self.ends[-1])]

    def read(self, shard: int, pos: int, n_tokens: int) -> Tokens:
        """(n_tokens,) from `pos` on."""
        turn, pieces = int(np.searchsorted(self.ends, pos, side="right")), []
        while n_tokens:
            i = int(self.order[turn])
            length = int(self.documents.lengths[i])
            start = pos - (int(self.ends[turn]) - length)
            piece = self.documents.read(i, start, min(n_tokens, length - start))
            pieces.append(piece)
            pos, n_tokens, turn = pos + len(piece), n_tokens - len(piece), turn + 1
        return np.concatenate(pieces)
