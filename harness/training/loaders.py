"""What a configuration asks of the loaders: the training stream and the validation sets."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.config.run import RunConfig
from harness.config.schedule import growth_at, max_doc_len_at
from harness.corpora.corpus import Corpus
from harness.data.aligned import ALIGNMENTS, AlignedLoader, Portion
from harness.data.loader import BatchMemory, Layout, TokenStream, TrainLoader, ValLoader
from harness.data.prefetcher import Prefetcher, StepLoader
from harness.training.hooks import Hooks


def train_loader(
    config: RunConfig,
    shards: Sequence[Path] | TokenStream,
    *,
    separator: int,
    seed: int,
    rank: int,
    world_size: int,
    device: str,
) -> StepLoader:
    """The training steps of this process, number `rank` of `world_size`.

    separator: what opens a document. seed: of the order of the data, where that is shuffled.
    device: "cpu" or "cuda".
    shards: files of tokens, or a stream that has an order of its own already.
    """
    d = config.data
    memory = BatchMemory(input_dtype=d.input_dtype, pinned=d.pinned and device == "cuda")

    def portion(step: int) -> Portion:
        growth = growth_at(config, step)
        layout = Layout(
            batch_tokens=growth * d.batch_tokens,
            micro_tokens=growth * d.micro_tokens,
            seq_len=growth * d.seq_len,
            ranks=d.ranks,
            world_size=world_size,
            process=rank,
        )
        return Portion(layout=layout, max_doc_len=max_doc_len_at(config, step))

    if d.alignment is not None and not isinstance(shards, TokenStream):
        return AlignedLoader(ALIGNMENTS[d.alignment](shards, separator), portion, memory)
    return TrainLoader(
        shards,
        portion(0).layout,
        loader=d.loader,
        shard_switch=d.shard_switch,
        order="sequential" if isinstance(shards, TokenStream) else d.order,
        seed=seed,
        first_batch_twice=d.first_batch_twice,
        memory=memory,
    )


def loaders(
    config: RunConfig, corpus: Corpus, *, seed: int, rank: int, world_size: int, device: str
) -> tuple[Any, ValLoader]:
    """The training stream and the validation set of this process, as train_loader takes them.

    seed, rank, world_size, device: as there.
    """
    ordered = Hooks(config).stream(corpus.train, corpus.separator, seed)
    train = train_loader(
        config,
        ordered or corpus.train,
        separator=corpus.separator,
        seed=seed,
        rank=rank,
        world_size=world_size,
        device=device,
    )
    val = val_loader(
        config, corpus.val, config.data.val_tokens, rank=rank, world_size=world_size, device=device
    )
    return Prefetcher(train) if device == "cuda" else train, val


def val_loader(
    config: RunConfig,
    shards: Sequence[Path],
    n_tokens: int,
    *,
    rank: int,
    world_size: int,
    device: str,
) -> ValLoader:
    """The share of process `rank` of `world_size` in the first n_tokens of a set.

    shards: files of tokens. device: "cpu" or "cuda".
    """
    d = config.data
    micro_tokens, seq_len = d.val_portion
    return ValLoader(
        shards,
        val_tokens=n_tokens,
        micro_tokens=micro_tokens,
        seq_len=seq_len,
        world_size=world_size,
        process=rank,
        memory=BatchMemory(input_dtype=d.input_dtype, pinned=d.pinned and device == "cuda"),
    )
