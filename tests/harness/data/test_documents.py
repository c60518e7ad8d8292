"""Documents of shards, and their tokens with the documents in another order."""

from pathlib import Path

import numpy as np
import pytest

from harness.data.documents import Documents, OrderedStream
from harness.data.shards import write_shard

SEPARATOR = 9


def shards_of(folder: Path, tokens: list[int], *ends: int) -> list[Path]:
    paths = []
    for i, piece in enumerate(np.split(np.array(tokens, dtype=np.uint16), ends)):
        paths.append(folder / f"{i}.bin")
        write_shard(paths[-1], piece)
    return paths


TOKENS = [9, 1, 2, 9, 9, 3, 4, 5, 9, 6]


@pytest.mark.parametrize("ends", [(), (4,), (2, 7), (3, 5), (1, 2, 3)])
def test_a_document_begins_with_the_separator_and_may_go_on_in_the_next_shard(
    tmp_path: Path, ends: tuple[int, ...]
) -> None:
    documents = Documents(shards_of(tmp_path, TOKENS, *ends), SEPARATOR)
    assert documents.lengths.tolist() == [3, 1, 4, 2]
    assert [d.tolist() for d in documents] == [[9, 1, 2], [9], [9, 3, 4, 5], [9, 6]]


def test_tokens_before_the_first_separator_are_a_document(tmp_path: Path) -> None:
    documents = Documents(shards_of(tmp_path, TOKENS[1:]), SEPARATOR)
    assert [d.tolist() for d in documents] == [[1, 2], [9], [9, 3, 4, 5], [9, 6]]


def test_more_than_is_looked_at_in_one_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.data.shards.BLOCK_TOKENS", 3)
    documents = Documents(shards_of(tmp_path, TOKENS, 5), SEPARATOR)
    assert documents.lengths.tolist() == [3, 1, 4, 2]


@pytest.mark.parametrize("ends", [(), (2, 7)])
def test_every_window_of_the_new_order_is_that_of_the_documents_put_end_to_end(
    tmp_path: Path, ends: tuple[int, ...]
) -> None:
    documents = Documents(shards_of(tmp_path, TOKENS, *ends), SEPARATOR)
    stream = OrderedStream(documents, np.array([2, 0, 3, 1]))
    whole = [9, 3, 4, 5, 9, 1, 2, 9, 6, 9]
    assert stream.lengths == [len(whole)]
    for start in range(len(whole)):
        for n in range(1, len(whole) - start + 1):
            assert stream.read(0, start, n).tolist() == whole[start : start + n]
