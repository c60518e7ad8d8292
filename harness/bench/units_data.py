"""Units of the data: where passes begin with documents, and which documents a pass holds.

A unit's shards are its arrays shard0, shard1, ...; each rank of a script makes one pass an update.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from harness.bench.unit import Arrays, Pairs, Unit
from harness.data.aligned import DocumentStarts, Packed, UpdateSize
from harness.data.loader import TokenStream, ValLoader
from harness.data.shards import write_shard
from harness.model.mask import document_ids

SEPARATOR = 50256  # of the records' tokens


@contextmanager
def shards_of(arrays: Arrays) -> Iterator[list[Path]]:
    """The unit's shards as files, while they are read."""
    names = [name for name in arrays if name.startswith("shard") and name[5:].isdecimal()]
    names.sort(key=lambda name: int(name[5:]))
    with TemporaryDirectory() as folder:
        paths = [Path(folder, f"{name}.bin") for name in names]
        for name, path in zip(names, paths, strict=True):
            write_shard(path, arrays[name])
        yield paths


def bos_starts_r26(arrays: Arrays) -> Pairs:
    """Of every update: shard, position, tokens it moves on by, where each rank's pass begins."""
    size = UpdateSize(n_passes=int(arrays["world"]), pass_tokens=int(arrays["local_tokens"]))
    rows = []
    with shards_of(arrays) as paths:
        passes = DocumentStarts(paths, SEPARATOR)
        for _ in arrays["shard_pos_span_starts"]:
            shard, began = passes.shard, passes.at
            starts = [start for ((_, start, _),) in passes.take(size)]
            if passes.shard != shard:
                began = 0
            rows.append([passes.shard, began, passes.at - began, *starts])
    yield arrays["shard_pos_span_starts"], np.array(rows)


def ends_of_pieces(ids_T: np.ndarray) -> np.ndarray:
    """0, where a document ends in the pass, and T, as the mask parts them."""
    document_T = document_ids(torch.tensor(ids_T.astype(np.int64)), SEPARATOR).numpy()
    inside = np.flatnonzero(np.diff(document_T)) + 1
    return np.array([0, *inside, len(ids_T)])


LIMITS = {128: 100, 256: 150}  # tokens in a pass of the unit: tokens of a document at most


def bos_aligned(arrays: Arrays) -> Pairs:
    """Passes of whole documents on every rank, longer and with longer documents later on."""
    told = [name.split("/")[1:3] for name in arrays if name.startswith("packed/")]
    ranks = 1 + max(int(rank.removeprefix("rank")) for rank, _ in told)
    n_batches = 1 + max(int(batch.removeprefix("batch")) for _, batch in told)
    with shards_of(arrays) as paths:
        passes, stream = Packed(paths, SEPARATOR), TokenStream(paths)
        for k in range(n_batches):
            T = len(arrays[f"packed/rank0/batch{k}/inputs"])
            size = UpdateSize(n_passes=ranks, pass_tokens=T, max_doc_len=LIMITS[T])
            for rank, pieces in enumerate(passes.take(size)):
                tokens = np.concatenate([stream.read(*piece) for piece in pieces])
                name = f"packed/rank{rank}/batch{k}"
                yield arrays[f"{name}/inputs"], tokens[:-1]
                yield arrays[f"{name}/last_target"], tokens[-1]
                yield arrays[f"{name}/cum_lengths"], ends_of_pieces(tokens[:-1])


def validation_packing(arrays: Arrays) -> Pairs:
    """One rank's passes of validation: all tokens, cut where documents begin."""
    inputs, rank, ranks = arrays["inputs"], int(arrays["rank"]), int(arrays["world"])
    n, T = inputs.shape
    with shards_of(arrays) as paths:
        val = ValLoader(
            paths,
            val_tokens=n * ranks * T,
            micro_tokens=T,
            seq_len=T,
            world_size=ranks,
            process=rank,
        )
        for k, (x, y) in enumerate(val):
            yield inputs[k], x[0].numpy()
            yield arrays["targets"][k], y[0].numpy()
            yield np.unique(arrays["cum_lengths"][k]), ends_of_pieces(x[0].numpy())


PAIRS: Mapping[str, Callable[[Arrays], Pairs]] = {
    "bos_starts_r26": bos_starts_r26,
    "bos_aligned": bos_aligned,
    "validation_packing": validation_packing,
}
DATA_UNITS: Mapping[str, Unit] = {
    name: Unit(pairs=pairs, bound=0.0) for name, pairs in PAIRS.items()
}
