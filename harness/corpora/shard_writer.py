"""Documents in, a corpus out: with bounded memory, whatever the size of the text.

Nothing half-made looks whole.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from harness.corpora.corpus import SPLITS, TOKENIZER_FILE, Corpus, write_corpus
from harness.corpora.tokenizers import Tokenizer
from harness.data.shards import MAX_TOKENS, ShardWriter, blocks, count_tokens, open_shard
from harness.errors import UserError
from harness.run.files import write_text

SHARD_TOKENS = 100_000_000  # as in the benchmark's files
VAL_SHARE = 0.05  # of the text, in bytes
FIRST_NUMBER = {"train": 1, "val": 0, "heldout": 0}  # in the files' names

OnProgress = Callable[[int, int], None]  # (done, total), in the unit of what is being done


def quiet(done: int, total: int) -> None:
    """The progress of a library call: none."""


def split_roles(sizes: Sequence[int]) -> list[str]:
    """The role of each document, by size in bytes.

    In order, to validation goes whatever still fits into VAL_SHARE of the whole. Where nothing
    fits (a few documents of like size) the smallest goes to validation.
    """
    room = VAL_SHARE * sum(sizes)
    roles = []
    for size in sizes:
        if size <= room:
            roles.append("val")
            room -= size
        else:
            roles.append("train")
    if "val" not in roles and roles:
        roles[sizes.index(min(sizes))] = "val"
    return roles


class CorpusWriter:
    """Writes documents into the shards of their role.

    The folder has no corpus.json until `finish`, so it counts as unprepared; what an
    interrupted preparation left is removed by the next one.
    """

    def __init__(
        self, folder: Path, tokenizer: Tokenizer, shard_tokens: int = SHARD_TOKENS
    ) -> None:
        self.folder, self.tokenizer = folder, tokenizer
        # validation and held-out text stay in one file each, so that "the first tokens" is a plain
        # slice
        self.room = {"train": shard_tokens, "val": MAX_TOKENS, "heldout": MAX_TOKENS}
        self.shards: dict[str, list[Path]] = {role: [] for role in SPLITS}
        self.documents, self.text_bytes = dict.fromkeys(SPLITS, 0), dict.fromkeys(SPLITS, 0)
        self._open: dict[str, ShardWriter] = {}
        folder.mkdir(parents=True, exist_ok=True)
        for made_before in ("corpus.json", TOKENIZER_FILE):
            (folder / made_before).unlink(missing_ok=True)
        for leftover in folder.glob(f"{folder.name}_*.bin*"):
            leftover.unlink()

    def add(self, role: str, document: Iterable[bytes]) -> None:
        """One document, as blocks of its text: a separator, then its tokens.

        It may cross into the next shard.
        """
        self._append(role, np.array([self.tokenizer.separator], dtype=np.uint16))
        self.documents[role] += 1
        for block in document:
            self._append(role, self.tokenizer.encode(block))
            self.text_bytes[role] += len(block)

    def _append(self, role: str, tokens: np.ndarray) -> None:
        while len(tokens):
            if role not in self._open:
                number = len(self.shards[role]) + FIRST_NUMBER[role]
                self.shards[role].append(
                    self.folder / f"{self.folder.name}_{role}_{number:06d}.bin"
                )
                self._open[role] = ShardWriter(self.shards[role][-1])
            writer = self._open[role]
            room = self.room[role] - writer.n_tokens
            writer.append(tokens[:room])
            tokens = tokens[room:]
            if writer.n_tokens == self.room[role]:
                self._open.pop(role).close()

    def finish(self, source: str) -> Corpus:
        """Close the shards and write corpus.json.

        Raises UserError where there is nothing to train on or to validate on.
        """
        if not (self.documents["train"] and self.documents["val"]):
            n = self.documents["train"] + self.documents["val"]
            raise UserError(
                f"{self.folder.name}: too few documents ({n}) to split into training and "
                "validation: give more text, or cut it finer (--by line or --by paragraph)"
            )
        while self._open:
            self._open.popitem()[1].close()
        self._merge_short_tail()
        if self.tokenizer.content:
            write_text(self.folder / TOKENIZER_FILE, self.tokenizer.content)
        return write_corpus(
            self.folder,
            self.shards,
            vocab_size=self.tokenizer.vocab_size,
            separator=self.tokenizer.separator,
            unit=self.tokenizer.unit,
            source=source,
            documents=self.documents,
            text_bytes=self.text_bytes,
        )

    def _merge_short_tail(self) -> None:
        """Append a short last training shard to the one before.

        A shard shorter than a batch would make the corpus unusable.
        """
        paths = self.shards["train"]
        if len(paths) > 1 and count_tokens(paths[-1]) < self.room["train"] // 2:
            tail = paths.pop()
            with ShardWriter(paths[-1]) as writer:
                for path in (paths[-1], tail):
                    for block in blocks(open_shard(path)):
                        writer.append(block)
            tail.unlink()

    def __enter__(self) -> "CorpusWriter":
        return self

    def __exit__(self, *_: object) -> None:
        while self._open:
            self._open.popitem()[1].abort()
