"""Where every virtual rank reads: positions and rules for changing shards, in integers alone.

S tokens in a shard, b tokens in one read (b + 1 are taken: the last is only a target), R ranks,
G = R * b tokens that the ranks read together in one round. A record's ranks are virtual: any
number of processes can play them (ladder.md 2.0.9).
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.errors import UserError

Read = tuple[int, int]  # (shard, position of the first token in it)


def exceeds(pos: int, G: int, S: int) -> bool:
    """Records 2 to 11."""
    return pos + G + 1 > S


def reaches(pos: int, G: int, S: int) -> bool:
    """Records 12 to 14."""
    return pos + G >= S


def reaches_with_target(pos: int, G: int, S: int) -> bool:
    """Records 15 to 18."""
    return pos + G + 1 >= S


# rule -> whether to go to the next shard, of (pos, G, S)
SHARD_SWITCH: dict[str, Callable[[int, int, int], bool]] = {
    "exceeds": exceeds,
    "reaches": reaches,
    "reaches_with_target": reaches_with_target,
}


def refuse_short_train(
    shards: Sequence[Path],
    lengths: Sequence[int],
    *,
    batch_tokens: int,
    micro_tokens: int,
    ranks: int,
    loader: str,
    order: str,
    growth: int = 1,
) -> None:
    """Raises UserError with the numbers where one round of all ranks does not fit.

    Into a shard, or, where `order` is shuffled, into all of them together. lengths: their tokens.
    batch_tokens: of an update of all ranks; micro_tokens: of one rank's pass. loader: data.loader.
    shards: their files. growth: of the stage whose passes and batches are the largest.
    """
    if order == "shuffled":
        needed = batch_tokens
        held = [("the training shards together hold", sum(lengths))]
    else:
        needed = batch_tokens if loader == "global" else ranks * micro_tokens
        held = [(f"{path} holds", n_tokens) for path, n_tokens in zip(shards, lengths)]
    needed *= growth
    stage = f" in the stage of batches {growth} times as large" if growth > 1 else ""
    smaller = "data.batch_tokens, data.micro_tokens or" if growth > 1 else "data.batch_tokens and"
    field = "schedule.batch_growth" if growth > 1 else "data.micro_tokens"
    for what, n_tokens in held:
        if n_tokens < needed + 1:
            raise UserError(
                f"{what} {n_tokens} tokens, but the ranks together read {needed} + 1{stage}: "
                f"use a larger corpus, or smaller {smaller} {field}"
            )


def refuse_short_val(
    shards: Sequence[Path], lengths: Sequence[int], *, val_tokens: int, round_tokens: int
) -> None:
    """Raises UserError with the numbers where a validation set is too short.

    It must hold val_tokens, a multiple of round_tokens, and the last one's target.
    """
    available = sum(lengths)
    if available >= val_tokens + 1:
        return
    most = (available - 1) // round_tokens * round_tokens
    mend = "use more text, or a smaller size (scale=tiny, data.micro_tokens)"
    if most > 0:
        mend = f"set data.val_tokens to at most {most}"
    raise UserError(
        f"{shards[0]}: the validation set holds {available} tokens, data.val_tokens "
        f"{val_tokens} needs {val_tokens + 1} (the last one's target): {mend}"
    )


class PerRank(Iterator[Read]):
    """Records 2 to 17: rank r starts a shard at r*b and tests its own advanced position.

    So ranks change shards at different times. lengths: tokens of each shard. read_tokens: b, of
    one read. shard_switch: a test of SHARD_SWITCH, by name.
    """

    def __init__(
        self, lengths: Sequence[int], *, rank: int, ranks: int, read_tokens: int, shard_switch: str
    ) -> None:
        self.lengths, self.start, self.round = lengths, rank * read_tokens, ranks * read_tokens
        self.switch = SHARD_SWITCH[shard_switch]
        self.reset()

    def reset(self) -> None:
        self.shard, self.pos = 0, self.start

    def __next__(self) -> Read:
        read = self.shard, self.pos
        self.pos += self.round
        if self.switch(self.pos, self.round, self.lengths[self.shard]):
            self.shard, self.pos = (self.shard + 1) % len(self.lengths), self.start
        return read

    def skip(self, n_reads: int) -> None:
        for _ in range(n_reads):
            next(self)

    @property
    def state(self) -> list[int]:
        return [self.shard, self.pos]

    @state.setter
    def state(self, state: list[int]) -> None:
        self.shard, self.pos = state


class Global(PerRank):
    """Record 18: one position common to all ranks, tested before the read.

    Rank r reads at pos + r*b.
    """

    def reset(self) -> None:
        self.shard, self.pos = 0, 0

    def __next__(self) -> Read:
        if self.switch(self.pos, self.round, self.lengths[self.shard]):
            self.shard, self.pos = (self.shard + 1) % len(self.lengths), 0
        read = self.shard, self.pos + self.start
        self.pos += self.round
        return read


class Shuffled(Iterator[Read]):
    """Chunks of b tokens of the shards put end to end, in an order drawn from (seed, epoch).

    Every chunk comes once an epoch. The ranks deal the permuted chunks among themselves:
    micro-batch by micro-batch, within it rank by rank, `rows` to each. A chunk may cross into the
    next shard. Only the seed, the corpus and b decide the order of the chunks. lengths: tokens of
    each shard. read_tokens: b.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        *,
        rank: int,
        ranks: int,
        read_tokens: int,
        rows: int,
        seed: int,
    ) -> None:
        self.lengths = tuple(lengths)
        self.rank, self.ranks = rank, ranks
        self.read_tokens, self.rows = read_tokens, rows
        self.seed = seed
        self.n_chunks = (sum(lengths) - 1) // read_tokens
        self.reset()

    def reset(self) -> None:
        self.n_read = 0

    def __next__(self) -> Read:
        micro, row = divmod(self.n_read, self.rows)
        epoch, turn = divmod((micro * self.ranks + self.rank) * self.rows + row, self.n_chunks)
        self.n_read += 1
        return locate(
            self.lengths, int(permutation(self.seed, epoch, self.n_chunks)[turn]) * self.read_tokens
        )

    def skip(self, n_reads: int) -> None:
        self.n_read += n_reads

    @property
    def state(self) -> list[int]:
        return [self.n_read]

    @state.setter
    def state(self, state: list[int]) -> None:
        (self.n_read,) = state


def locate(lengths: Sequence[int], pos: int) -> Read:
    """The shard that holds token `pos` of the shards put end to end, and its position there."""
    for shard, length in enumerate(lengths):
        if pos < length:
            return shard, pos
        pos -= length
    raise IndexError(f"{pos} tokens beyond the last shard")


# the ranks of one process share it; two, because a step may reach into the next epoch
@lru_cache(maxsize=2)
def permutation(seed: int, epoch: int, n: int) -> NDArray[np.uint32]:
    """(n,) the numbers 0..n-1 in an order of (seed, epoch).

    From raw bits, the part of numpy's streams that never changes.
    """
    bits = np.random.PCG64(np.random.SeedSequence([seed, epoch])).random_raw(n)
    return np.argsort(bits, kind="stable").astype(np.uint32)
