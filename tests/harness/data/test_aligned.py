"""Passes that begin with documents, against a model that goes through the tokens one by one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.config.run import RunConfig, with_fields
from harness.config.schedule import tokens_trained
from harness.data.aligned import (
    ALIGNMENTS,
    AlignedLoader,
    DocumentStarts,
    Packed,
    Portion,
    UpdateSize,
)
from harness.data.loader import BatchMemory, Layout
from harness.data.prefetcher import Prefetcher
from harness.data.shards import write_shard
from harness.errors import UserError
from harness.training.loaders import train_loader

SEPARATOR = 0
SMALL = settings(max_examples=50, deadline=None)


def text(lengths: list[int], first: int = 1) -> list[int]:
    """Documents of these lengths, their separators included; all other tokens are different."""
    tokens = []
    for length in lengths:
        tokens += [SEPARATOR, *range(first, first + length - 1)]
        first += length - 1
    return tokens


def write(folder: Path, *shards: list[int]) -> list[Path]:
    paths = [folder / f"{i}.bin" for i in range(len(shards))]
    for path, tokens in zip(paths, shards, strict=True):
        write_shard(path, np.array(tokens))
    return paths


def packed_by_hand(lengths: list[int], n_passes: int, T: int, limit: int) -> list[list[int]] | None:
    """The tokens of each pass, T + 1 of them; None where the documents do not do."""
    documents, first = [], 1
    for length in lengths:
        documents.append(text([length], first))
        first += length - 1
    passes = []
    for _ in range(n_passes):
        tokens: list[int] = []
        while len(tokens) < T + 1:
            if not documents:
                return None
            tokens += documents.pop(0)[:limit]
        passes.append(tokens[: T + 1])
    return passes


@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=30), n_passes=st.integers(1, 3), T=st.integers(1, 9),
       limit=st.integers(1, 9))  # fmt: skip
@SMALL
def test_a_pass_is_packed_with_whole_documents_the_last_one_cut(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], n_passes: int, T: int, limit: int
) -> None:
    tokens = text(lengths)
    paths = write(tmp_path_factory.mktemp("shards"), tokens)
    expected = packed_by_hand(lengths, n_passes, T, limit)
    draw = UpdateSize(n_passes=n_passes, pass_tokens=T, max_doc_len=limit)
    if expected is None:
        with pytest.raises(UserError, match="no shard holds the documents of an update"):
            Packed(paths, SEPARATOR).take(draw)
        return
    taken = Packed(paths, SEPARATOR).take(draw)
    read = [[t for _, at, n in pieces for t in tokens[at : at + n]] for pieces in taken]
    assert read == expected


def test_a_pass_that_begins_with_a_document_reads_on_and_the_rest_is_never_seen(
    tmp_path: Path,
) -> None:
    paths = write(tmp_path, text([3, 2, 4, 6, 2, 2, 2, 2, 2, 3]), text([4] * 5))
    passes = DocumentStarts(paths, SEPARATOR)
    draw = UpdateSize(n_passes=2, pass_tokens=4)
    assert passes.take(draw) == [[(0, 0, 5)], [(0, 5, 5)]]
    assert passes.at == 9  # the first document at or after 5 + 4
    assert passes.take(draw) == [[(0, 9, 5)], [(0, 15, 5)]]
    # fewer than two updates of 8 tokens are left: the next shard
    assert passes.take(draw) == [[(1, 0, 5)], [(1, 4, 5)]]
    alone = DocumentStarts(paths[:1], SEPARATOR)
    first, second, third = (alone.take(draw) for _ in range(3))
    assert second == [[(0, 9, 5)], [(0, 15, 5)]] and third == first  # the same one again


@pytest.mark.parametrize(
    ("length", "n_draws"), [(7, 1), (18, 1), (19, 1), (20, 2), (25, 2), (26, 3), (31, 3), (32, 4)]
)
def test_a_shard_is_left_where_two_updates_and_a_target_are_no_longer_in_it(
    length: int, n_draws: int, tmp_path: Path
) -> None:
    """Every token is a document: an update of 2 passes of 3 tokens begins at every sixth."""
    passes = DocumentStarts(write(tmp_path, text([1] * length), text([1] * 99)), SEPARATOR)
    draw = UpdateSize(n_passes=2, pass_tokens=3)
    for n in range(n_draws):
        assert passes.take(draw) == [[(0, 6 * n, 4)], [(0, 6 * n + 3, 4)]]
    assert passes.take(draw) == [[(1, 0, 4)], [(1, 3, 4)]]


def test_a_shard_whose_last_document_is_the_only_one_left_for_a_pass_is_left(
    tmp_path: Path, kept_line: Callable[[str], None]
) -> None:
    """None follows it, where the next pass would begin; one without any document holds no pass."""
    draw = UpdateSize(n_passes=1, pass_tokens=4)
    enough = write(tmp_path, [7] * 9, text([3, 9]), text([4, 5, 1]))
    passes = DocumentStarts(enough, SEPARATOR)
    assert passes.take(draw) == [[(2, 0, 5)]] and (passes.shard, passes.at) == (2, 4)
    with pytest.raises(UserError, match="no shard holds the documents of an update") as refused:
        DocumentStarts(enough[:2], SEPARATOR).take(draw)
    kept_line(str(refused.value))


def test_what_a_shard_s_rest_cannot_fill_is_dropped(tmp_path: Path) -> None:
    paths = write(tmp_path, [7, 7, *text([5, 5, 5])], text([9, 9]))
    passes = Packed(paths, SEPARATOR)
    draw = UpdateSize(n_passes=1, pass_tokens=7)
    assert passes.take(draw) == [[(0, 2, 5), (0, 7, 3)]]  # what opens no document is no document
    assert passes.take(draw) == [[(1, 0, 8)]]
    assert passes.take(draw) == [[(1, 9, 8)]]
    assert passes.take(draw) == [[(0, 2, 5), (0, 7, 3)]]  # once more from the first shard on


def made(paths: list[Path], kind: str, world: int, process: int) -> AlignedLoader:
    """Four ranks of two passes each; longer ones from the second update on."""

    def portion(step: int) -> Portion:
        T = 4 if step == 0 else 8
        layout = Layout(batch_tokens=8 * T, micro_tokens=T, seq_len=T, ranks=4,
                        world_size=world, process=process)  # fmt: skip
        return Portion(layout=layout)

    return AlignedLoader(ALIGNMENTS[kind](paths, SEPARATOR), portion, BatchMemory())


@pytest.mark.parametrize("kind", ALIGNMENTS)
def test_any_number_of_processes_reads_the_same_batches(kind: str, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    paths = write(tmp_path, *(text([int(n) for n in draw.integers(1, 9, 200)]) for _ in range(2)))
    whole = made(paths, kind, 1, 0)
    shares = [[made(paths, kind, world, p) for p in range(world)] for world in (2, 4)]
    seen = set()
    for step in range(40):
        seen.add(whole.passes.shard)
        expected = [[t.tolist() for t in pair] for pair in next(whole)]
        assert np.shape(expected) == (4, 2, 2, 1, 4 if step == 0 else 8)
        assert all(row[0] == SEPARATOR for x, _ in expected for (row,) in x)
        for loaders in shares:
            read = [[t.tolist() for t in pair] for loader in loaders for pair in next(loader)]
            assert read == expected
    assert seen == {0, 1}


@pytest.mark.parametrize("kind", ALIGNMENTS)
@pytest.mark.parametrize("ahead", [False, True])
def test_a_loader_goes_on_from_a_state_or_after_steps_that_were_not_read(
    kind: str, ahead: bool, tmp_path: Path
) -> None:
    paths = write(tmp_path, text([5] * 100), text([3] * 150))

    def fresh() -> Any:
        loader = made(paths, kind, 1, 0)
        return Prefetcher(loader) if ahead else loader

    def inputs(loader: Any) -> Any:
        return [[x.tolist() for x, _ in next(loader)] for _ in range(3)]

    loader, later = fresh(), fresh()
    first = inputs(loader)
    state, second = loader.state_dict(), inputs(loader)
    assert second != first
    loader.load_state_dict(state)
    assert inputs(loader) == second
    later.skip(3)
    assert inputs(later) == second
    loader.reset()
    assert inputs(loader) == first
    for each in (loader, later):
        if isinstance(each, Prefetcher):
            each.close()


STAGED = {
    "schedule.steps": 5,
    "schedule.extension_steps": 1,
    "schedule.stages": 2,
    "schedule.batch_growth": (1, 3),
    "data.alignment": "packed",
    "data.max_doc_len": (2, 6),
    "data.batch_tokens": 8,
    "data.micro_tokens": 4,
    "data.seq_len": 4,
    "data.ranks": 2,
}


def test_a_stage_has_passes_and_documents_of_its_own_length(tmp_path: Path) -> None:
    paths = write(tmp_path, text([6] * 100))
    config = with_fields(RunConfig(), STAGED)
    loader = train_loader(config, paths, separator=SEPARATOR, seed=0, rank=0, world_size=1, device="cpu")  # fmt: skip
    steps = [next(loader) for _ in range(5)]
    assert [step[0][0].shape[-1] for step in steps] == [4, 4, 12, 12, 12]
    separators = [step[0][0][0, 0].eq(SEPARATOR).nonzero().flatten().tolist() for step in steps]
    assert separators == [[0, 2], [0, 2], [0, 6], [0, 6], [0, 6]]
    assert tokens_trained(config, range(5)) == 8 * (1 + 1 + 3 + 3 + 3)
    assert tokens_trained(config, range(1, 3)) == 8 * 4
