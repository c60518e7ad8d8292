"""The loaders: tokens as tensors, step by step, for one process of any world size.

A record's ranks (8) are virtual: process p of W plays ranks p*R/W .. (p+1)*R/W - 1, so that 1, 2, 4
or 8 processes read the same global batches. Shapes: M micro-steps, B rows, T sequence; B*T is one
micro-batch, what one rank passes forward at once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from harness.data.positions import (
    Global,
    PerRank,
    Shuffled,
    locate,
    refuse_short_train,
    refuse_short_val,
)
from harness.data.shards import Tokens, count_tokens, open_shard
from harness.errors import UserError

Batch = tuple[Tensor, Tensor]  # inputs and targets
SEQUENTIAL = {"per_rank": PerRank, "global": Global}
DTYPES = {"int32": torch.int32, "int64": torch.int64}


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a step's tokens are dealt out; raises UserError where the numbers do not divide."""

    batch_tokens: int  # one update, all ranks
    micro_tokens: int  # one forward pass of one rank
    seq_len: int
    ranks: int = 8
    world_size: int = 1
    process: int = 0

    def __post_init__(self) -> None:
        if self.micro_tokens % self.seq_len:
            raise UserError(
                f"data.micro_tokens {self.micro_tokens} is no multiple of data.seq_len "
                f"{self.seq_len}: change one of them"
            )
        if self.batch_tokens % (self.ranks * self.micro_tokens):
            raise UserError(
                f"data.batch_tokens {self.batch_tokens} is no multiple of data.ranks {self.ranks} "
                f"x data.micro_tokens {self.micro_tokens} = {self.ranks * self.micro_tokens}: "
                "change one of them"
            )
        if self.ranks % self.world_size:
            raise UserError(
                f"{self.world_size} processes cannot share data.ranks {self.ranks} evenly: use a "
                "divisor of it as world size"
            )
        if not 0 <= self.process < self.world_size:
            raise ValueError(f"process {self.process} of a world of {self.world_size}")

    @property
    def micro_steps(self) -> int:
        return self.batch_tokens // (self.ranks * self.micro_tokens)

    @property
    def rows(self) -> int:
        return self.micro_tokens // self.seq_len

    @property
    def own_ranks(self) -> range:
        """The virtual ranks that this process plays."""
        share = self.ranks // self.world_size
        return range(self.process * share, (self.process + 1) * share)


class TokenStream:
    """Shards put end to end.

    Each is mapped when first read, so a process touches only what it needs.
    """

    def __init__(self, shards: Sequence[Path]) -> None:
        self.shards, self.lengths = list(shards), [count_tokens(path) for path in shards]
        self.opened: dict[int, Tokens] = {}

    def read(self, shard: int, pos: int, n_tokens: int) -> Tokens:
        """(n_tokens,) from `pos` of a shard on, into the next ones if need be.

        A view where one shard holds it all.
        """
        if shard not in self.opened:
            self.opened[shard] = open_shard(self.shards[shard])
        piece = self.opened[shard][pos : pos + n_tokens]
        if len(piece) == n_tokens:
            return piece
        return np.concatenate([piece, self.read(shard + 1, 0, n_tokens - len(piece))])


@dataclass(frozen=True, kw_only=True)
class BatchMemory:
    """How batches lie in memory. pinned: page-locked, where there is CUDA to copy them to."""

    input_dtype: str = "int64"
    pinned: bool = False

    def empty(self, *shape: int) -> Batch:
        """Inputs and targets of a shape, not yet filled."""
        pin = self.pinned and torch.cuda.is_available()
        inputs = torch.empty(shape, dtype=DTYPES[self.input_dtype], pin_memory=pin)
        targets = torch.empty(shape, dtype=torch.int64, pin_memory=pin)
        return inputs, targets


def fill(x: Tensor, y: Tensor, tokens: Tokens) -> None:
    """Inputs and targets from n + 1 tokens.

    They are converted straight into the tensors' memory, no copy between.
    """
    np.copyto(x.view(-1).numpy(), tokens[:-1], casting="unsafe")
    np.copyto(y.view(-1).numpy(), tokens[1:], casting="unsafe")


@dataclass(frozen=True, kw_only=True)
class LoaderState:
    """Where the next step begins."""

    n_drawn: int
    cursors: tuple[list[int], ...]  # of every virtual rank played here


class TrainLoader(Iterator[list[Batch]]):
    """Endless training steps: `next` gives one (x_MBT, y_MBT) for each virtual rank played here.

    loader: "per_rank" (a position per rank and micro-batch, records 2 to 17) or "global" (one for
    all ranks and a whole step, record 18; the rule is then tested before the read).
    shard_switch: positions.SHARD_SWITCH.
    first_batch_twice: the loader is reset after its first draw, so micro-steps 0 and 1 see the
    same micro-batch (records 4 to 11).
    order: "sequential" ignores the seed; "shuffled" deals out sequences in an order of its own,
    ignoring loader and shard_switch.
    shards: their files, or a stream of them.
    Raises UserError where a shard is too short.
    """

    def __init__(
        self,
        shards: Sequence[Path] | TokenStream,
        layout: Layout,
        *,
        loader: str = "per_rank",
        shard_switch: str = "exceeds",
        first_batch_twice: bool = False,
        order: str = "sequential",
        seed: int = 0,
        memory: BatchMemory = BatchMemory(),
    ) -> None:
        self.stream = shards if isinstance(shards, TokenStream) else TokenStream(shards)
        self.layout, self.memory = layout, memory
        self.first_batch_twice = first_batch_twice
        refuse_short_train(
            self.stream.shards,
            self.stream.lengths,
            batch_tokens=layout.batch_tokens,
            micro_tokens=layout.micro_tokens,
            ranks=layout.ranks,
            loader=loader,
            order=order,
        )
        self.read_tokens = layout.micro_tokens  # tokens of one read, and reads of one draw
        self.reads_per_draw = 1
        self.draws_per_step = layout.micro_steps
        self.cursors: Sequence[PerRank | Shuffled]
        if order == "shuffled":
            self.read_tokens, self.reads_per_draw = layout.seq_len, layout.rows
            self.cursors = self._shuffled(seed)
        else:
            if loader == "global":
                self.read_tokens = layout.micro_tokens * layout.micro_steps
                self.draws_per_step = 1
            self.cursors = self._sequential(SEQUENTIAL[loader], shard_switch)
        self.reset()

    def _shuffled(self, seed: int) -> list[Shuffled]:
        cursors = []
        for rank in self.layout.own_ranks:
            cursor = Shuffled(
                self.stream.lengths,
                rank=rank,
                ranks=self.layout.ranks,
                read_tokens=self.read_tokens,
                rows=self.layout.rows,
                seed=seed,
            )
            cursors.append(cursor)
        return cursors

    def _sequential(self, kind: type[PerRank], shard_switch: str) -> list[PerRank]:
        cursors = []
        for rank in self.layout.own_ranks:
            cursor = kind(
                self.stream.lengths,
                rank=rank,
                ranks=self.layout.ranks,
                read_tokens=self.read_tokens,
                shard_switch=shard_switch,
            )
            cursors.append(cursor)
        return cursors

    def reset(self) -> None:
        """Back to the first step."""
        self.n_drawn = 0
        for cursor in self.cursors:
            cursor.reset()

    def __next__(self) -> list[Batch]:
        layout = self.layout
        shape = layout.micro_steps, layout.rows, layout.seq_len
        step = [self.memory.empty(*shape) for _ in self.cursors]
        reads = [zip(x.view(-1, self.read_tokens), y.view(-1, self.read_tokens)) for x, y in step]
        for _ in range(self.draws_per_step):
            self._begin_draw()
            for cursor, places in zip(self.cursors, reads):
                for _ in range(self.reads_per_draw):
                    fill(*next(places), self.stream.read(*next(cursor), self.read_tokens + 1))
        return step

    def _begin_draw(self) -> None:
        if self.first_batch_twice and self.n_drawn == 1:
            for cursor in self.cursors:
                cursor.reset()
        self.n_drawn += 1

    def skip(self, n_steps: int) -> None:
        """As after so many steps, of which nothing is read."""
        for _ in range(n_steps * self.draws_per_step):
            self._begin_draw()
            for cursor in self.cursors:
                cursor.skip(self.reads_per_draw)

    def state_dict(self) -> LoaderState:
        """Where the next step begins."""
        cursors = tuple(cursor.state for cursor in self.cursors)
        return LoaderState(n_drawn=self.n_drawn, cursors=cursors)

    def load_state_dict(self, state: LoaderState) -> None:
        self.n_drawn = state.n_drawn
        for cursor, saved in zip(self.cursors, state.cursors, strict=True):
            cursor.state = saved


class ValLoader:
    """The first `val_tokens` tokens of the validation set, in passes of one size.

    Iterating yields this process's (x_BT, y_BT). The micro-batches are the same for every world
    size and go round the processes, which may get different numbers of them: the exact mean is
    the sum of all processes' micro-batch means, divided by `n_micro`.
    shards: files of tokens. micro_tokens: in one forward pass, in sequences of seq_len tokens.
    process: which of the world_size processes this is, from 0.
    """

    def __init__(
        self,
        shards: Sequence[Path],
        *,
        val_tokens: int,
        micro_tokens: int,
        seq_len: int,
        world_size: int = 1,
        process: int = 0,
        memory: BatchMemory = BatchMemory(),
    ) -> None:
        if val_tokens % micro_tokens or micro_tokens % seq_len:
            raise UserError(
                f"data.val_tokens {val_tokens}, data.micro_tokens {micro_tokens}, data.seq_len "
                f"{seq_len}: each must be a multiple of the next, so that the mean is exact"
            )
        self.stream = TokenStream(shards)
        refuse_short_val(
            shards, self.stream.lengths, val_tokens=val_tokens, round_tokens=micro_tokens
        )
        self.n_micro = val_tokens // micro_tokens
        self.micro_tokens, self.shape = micro_tokens, (micro_tokens // seq_len, seq_len)
        self.world_size, self.process = world_size, process
        self.memory = memory

    def __iter__(self) -> Iterator[Batch]:
        for micro in range(self.process, self.n_micro, self.world_size):
            x, y = self.memory.empty(*self.shape)
            shard, pos = locate(self.stream.lengths, micro * self.micro_tokens)
            fill(x, y, self.stream.read(shard, pos, self.micro_tokens + 1))
            yield x, y
