"""Batches that begin with documents: where every rank reads, and the loader of these.

A document begins with the separator. T tokens in a pass (T + 1 are read: the last is only a
target), R ranks. The ranks draw from one position, pass after pass of an update, in it rank by
rank, so that any number of processes can play them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.data.loader import Batch, BatchMemory, Layout, LoaderState, TokenStream, fill
from harness.data.shards import blocks, open_shard
from harness.errors import UserError

Piece = tuple[int, int, int]  # shard, position of its first token there, how many there are


@dataclass(frozen=True, kw_only=True)
class UpdateSize:
    """What an update reads: passes of all ranks, tokens of one, tokens of a document at most."""

    n_passes: int
    pass_tokens: int
    max_doc_len: int | None = None


class Passes(ABC):
    """A position among the documents of shards, from which one draw after another is taken."""

    def __init__(self, shards: Sequence[Path], separator: int) -> None:
        self.shards, self.separator = list(shards), separator
        self._scanned: tuple[int, NDArray[np.int64], int] | None = None
        self.reset()

    def reset(self) -> None:
        self.shard = self.at = 0

    def take(self, size: UpdateSize) -> list[list[Piece]]:
        """The pieces of every pass, and the position behind them.

        What a shard's rest cannot fill is left out. Raises UserError where no shard can.
        """
        for _ in range(len(self.shards) + 1):
            starts, end = self._documents()
            taken = self.taken_from(starts, end, size)
            if taken is not None:
                return taken
            self.shard, self.at = (self.shard + 1) % len(self.shards), 0
        raise UserError(
            f"{self.shards[0]}: no shard holds the documents of an update, {size.n_passes} "
            f"times {size.pass_tokens} tokens: use a larger corpus, or smaller data.batch_tokens, "
            "or leave data.alignment out"
        )

    @abstractmethod
    def taken_from(
        self, starts: NDArray[np.int64], end: int, size: UpdateSize
    ) -> list[list[Piece]] | None:
        """A draw from the present position on, None where the shard's rest holds none.

        starts: where the shard's documents begin. end: of the shard.
        """

    def _documents(self) -> tuple[NDArray[np.int64], int]:
        if self._scanned is None or self._scanned[0] != self.shard:
            starts, end = [], 0
            for block in blocks(open_shard(self.shards[self.shard])):
                starts.append(end + np.flatnonzero(block == self.separator))
                end += len(block)
            self._scanned = self.shard, np.concatenate(starts), end
        return self._scanned[1:]


class DocumentStarts(Passes):
    """Record 26: a pass begins with a document and reads on; `at` is a position in tokens.

    The next pass begins with the first document that a pass's tokens lie before. What is between is
    never seen. The next shard comes where fewer than two updates are left.
    """

    def taken_from(
        self, starts: NDArray[np.int64], end: int, size: UpdateSize
    ) -> list[list[Piece]] | None:
        if self.at and self.at + 2 * size.n_passes * size.pass_tokens + 1 >= end:
            return None
        taken: list[list[Piece]] = []
        document = int(np.searchsorted(starts, self.at))
        while len(taken) < size.n_passes:
            if document == len(starts):
                return None
            start = int(starts[document])
            document = int(np.searchsorted(starts, start + size.pass_tokens))
            if document == len(starts):
                return None
            taken.append([(self.shard, start, size.pass_tokens + 1)])
        self.at = int(starts[document])
        return taken


class Packed(Passes):
    """Record 29: a pass is whole documents, the last one cut; `at` is the number of a document.

    The tail of what is cut, by the pass's end or max_doc_len, is never seen.
    """

    def taken_from(
        self, starts: NDArray[np.int64], end: int, size: UpdateSize
    ) -> list[list[Piece]] | None:
        taken, document = [], self.at
        for _ in range(size.n_passes):
            pieces, missing = [], size.pass_tokens + 1
            while missing:
                if document == len(starts):
                    return None
                start = int(starts[document])
                document += 1
                after = int(starts[document]) if document < len(starts) else end
                n_tokens = min(after - start, missing, size.max_doc_len or missing)
                pieces.append((self.shard, start, n_tokens))
                missing -= n_tokens
            taken.append(pieces)
        self.at = document
        return taken


ALIGNMENTS: dict[str, type[Passes]] = {"document_start": DocumentStarts, "packed": Packed}


@dataclass(frozen=True, kw_only=True)
class Portion:
    """How an update's tokens are dealt out, and the most that a document may have of them."""

    layout: Layout
    max_doc_len: int | None = None

    @property
    def size(self) -> UpdateSize:
        layout = self.layout
        return UpdateSize(
            n_passes=layout.micro_steps * layout.ranks,
            pass_tokens=layout.micro_tokens,
            max_doc_len=self.max_doc_len,
        )


class AlignedLoader(Iterator[list[Batch]]):
    """Endless training steps as a TrainLoader gives them, of passes that begin with documents.

    portion_of: of every update. Raises UserError where no shard holds its documents.
    """

    def __init__(
        self, passes: Passes, portion_of: Callable[[int], Portion], memory: BatchMemory
    ) -> None:
        self.stream, self.passes = TokenStream(passes.shards), passes
        self.portion_of, self.memory = portion_of, memory
        self.reset()

    def reset(self) -> None:
        """Back to the first step."""
        self.n_drawn = 0
        self.passes.reset()

    def _take(self) -> tuple[Layout, list[list[Piece]]]:
        portion = self.portion_of(self.n_drawn)
        self.n_drawn += 1
        return portion.layout, self.passes.take(portion.size)

    def __next__(self) -> list[Batch]:
        layout, passes = self._take()
        step = []
        for rank in layout.own_ranks:
            x, y = self.memory.empty(layout.micro_steps, layout.rows, layout.seq_len)
            for micro in range(layout.micro_steps):
                pieces = passes[micro * layout.ranks + rank]
                tokens = np.concatenate([self.stream.read(*piece) for piece in pieces])
                fill(x[micro], y[micro], tokens)
            step.append((x, y))
        return step

    def skip(self, n_steps: int) -> None:
        """As after so many steps, of which nothing is read."""
        for _ in range(n_steps):
            self._take()

    def state_dict(self) -> LoaderState:
        """Where the next step begins."""
        return LoaderState(n_drawn=self.n_drawn, cursors=([self.passes.shard, self.passes.at],))

    def load_state_dict(self, state: LoaderState) -> None:
        self.n_drawn = state.n_drawn
        ((self.passes.shard, self.passes.at),) = state.cursors
