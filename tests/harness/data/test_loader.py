"""The loaders against a brute-force model: every rank gets exactly the tokens that the record's rule says, in any world."""

from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.data.loader import BatchMemory, Layout, TokenStream, TrainLoader, ValLoader
from harness.data.positions import (
    SHARD_SWITCH,
    Global,
    PerRank,
    locate,
    permutation,
    refuse_short_train,
    refuse_short_val,
)
from harness.data.prefetcher import Prefetcher
from harness.data.shards import write_shard
from harness.errors import UserError
from harness.model.mask import document_ids

RULES = {  # the model's words: may a read that is not a shard's first begin at p? G tokens a round, S in the shard
    "exceeds": lambda p, G, S: p + G + 1 <= S,
    "reaches": lambda p, G, S: p + G < S,
    "reaches_with_target": lambda p, G, S: p + G + 1 < S,
}
SMALL = settings(max_examples=25, deadline=None)


def write_shards(folder: str | Path, lengths: list[int]) -> list[Path]:
    """Shards whose tokens are all different, so that equal tokens mean equal positions."""
    paths, start = [], 0
    for n, length in enumerate(lengths):
        paths.append(Path(folder, f"x_train_{n:06d}.bin"))
        write_shard(paths[-1], np.arange(start, start + length))
        start += length
    return paths


def model_reads(
    lengths: list[int], rank: int, ranks: int, b: int, kind: str, rule: str
) -> Iterator[int]:
    """First tokens of a rank's reads, by listing the admissible positions of each shard in turn."""
    G = ranks * b
    first = rank * b if kind == "per_rank" else 0
    offset = 0 if kind == "per_rank" else rank * b
    for turn in count():
        shard = turn % len(lengths)
        S = lengths[shard]
        starts = [first, *(p for p in range(first + G, S, G) if RULES[rule](p, G, S))]
        if turn == 0 and kind == "global" and not RULES[rule](0, G, S):
            continue  # tested before the very first read too
        yield from (sum(lengths[:shard]) + p + offset for p in starts)


def model_step(reads: list[Iterator[int]], b: int, draws: int) -> list[tuple[list[int], list[int]]]:
    step = []
    for rank_reads in reads:
        starts = list(islice(rank_reads, draws))
        x = [start + i for start in starts for i in range(b)]
        step.append((x, [token + 1 for token in x]))
    return step


@st.composite
def problems(draw: st.DrawFn) -> dict[str, Any]:
    world_size = draw(st.integers(1, 8))
    ranks = world_size * draw(st.integers(1, 2))
    seq_len, rows, micro_steps = (
        draw(st.integers(1, 4)),
        draw(st.integers(1, 3)),
        draw(st.integers(1, 3)),
    )
    batch_tokens = ranks * seq_len * rows * micro_steps
    return {
        "layout": dict(
            batch_tokens=batch_tokens,
            micro_tokens=seq_len * rows,
            seq_len=seq_len,
            ranks=ranks,
            world_size=world_size,
        ),
        "lengths": draw(
            st.lists(st.integers(batch_tokens + 1, 4 * batch_tokens + 3), min_size=1, max_size=9)
        ),
        "loader": draw(st.sampled_from(["per_rank", "global"])),
        "shard_switch": draw(st.sampled_from(list(RULES))),
    }


@SMALL
@given(problems(), st.booleans())
def test_every_rank_gets_the_tokens_of_the_rule(problem: dict[str, Any], twice: bool) -> None:
    layout, lengths, kind, rule = (
        problem["layout"],
        problem["lengths"],
        problem["loader"],
        problem["shard_switch"],
    )
    micro_steps = layout["batch_tokens"] // layout["ranks"] // layout["micro_tokens"]
    b, draws = (
        (layout["micro_tokens"], micro_steps)
        if kind == "per_rank"
        else (layout["micro_tokens"] * micro_steps, 1)
    )
    with TemporaryDirectory() as folder:
        paths = write_shards(folder, lengths)
        for process in range(layout["world_size"]):
            here = Layout(**layout, process=process)
            loader = TrainLoader(
                paths, here, loader=kind, shard_switch=rule, first_batch_twice=twice
            )
            reads = [
                model_reads(lengths, rank, here.ranks, b, kind, rule) for rank in here.own_ranks
            ]
            if twice:
                reads = [repeat_first(each) for each in reads]
            for _ in range(2 + 3 * sum(lengths) // layout["batch_tokens"]):  # about three epochs
                for (x, y), (x_model, y_model) in zip(
                    next(loader), model_step(reads, b, draws), strict=True
                ):
                    assert x.shape == y.shape == (micro_steps, here.rows, here.seq_len)
                    assert x.flatten().tolist() == x_model
                    assert y.flatten().tolist() == y_model


def repeat_first(reads: Iterator[int]) -> Iterator[int]:
    first = next(reads)
    yield from (first, first)
    yield from reads


@pytest.mark.parametrize(
    "options", [{"loader": "per_rank"}, {"loader": "global"}, {"order": "shuffled", "seed": 3}]
)
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_fewer_processes_read_the_batches_of_eight(
    tmp_path: Path, options: dict[str, Any], world_size: int
) -> None:
    paths = write_shards(tmp_path, [203, 97, 131])
    sizes = dict(batch_tokens=96, micro_tokens=6, seq_len=3, ranks=8)

    def steps(world: int) -> list[list[list[int]]]:
        loaders = [
            TrainLoader(paths, Layout(**sizes, world_size=world, process=p), **options)
            for p in range(world)
        ]
        return [
            [x.flatten().tolist() for loader in loaders for x, _ in next(loader)] for _ in range(20)
        ]

    assert steps(world_size) == steps(8)


@pytest.mark.parametrize("rule", SHARD_SWITCH)
def test_ranks_6_and_7_take_one_batch_less_from_a_shard_of_1e8(rule: str) -> None:
    """ladder.md 1F: 190 / 189 with a position per rank, 190 for all with a global one."""
    for kind, expected in ((PerRank, [190] * 6 + [189] * 2), (Global, [190] * 8)):
        taken = []
        for rank in range(8):
            cursor = kind(
                [100_000_000] * 2, rank=rank, ranks=8, read_tokens=65536, shard_switch=rule
            )
            shards = [shard for shard, _ in islice(cursor, 250)]
            taken.append(shards.index(1))
        assert taken == expected


def test_rules_differ_by_one_token_where_the_ladder_says() -> None:
    """A shard of exactly k rounds and a target admits the k-th read except under the strictest rule."""
    for rule, taken in {"exceeds": 3, "reaches": 3, "reaches_with_target": 2}.items():
        cursor = PerRank([3 * 8 + 1] * 2, rank=0, ranks=2, read_tokens=4, shard_switch=rule)
        assert [shard for shard, _ in islice(cursor, 6)].index(1) == taken


@SMALL
@given(problems(), st.lists(st.integers(0, 1), min_size=50, max_size=50), st.booleans())
def test_documents_of_a_batch_are_those_of_the_text(
    problem: dict[str, Any], pattern: list[int], shuffled: bool
) -> None:
    """Two positions of a sequence are one document to the mask if and only if no separator lies between them in the text."""
    layout, lengths = problem["layout"], problem["lengths"]
    text = np.arange(1, sum(lengths) + 1)
    text[np.resize(pattern, len(text)) == 1] = 0  # the separator
    document_of = {
        int(token): n
        for n, part in enumerate(np.split(text, np.flatnonzero(text == 0)))
        for token in part
        if token
    }
    with TemporaryDirectory() as folder:
        paths, start = [], 0
        for n, length in enumerate(lengths):
            paths.append(Path(folder, f"x_train_{n:06d}.bin"))
            write_shard(paths[-1], text[start : start + length])
            start += length
        order = "shuffled" if shuffled else "sequential"
        loader = TrainLoader(
            paths,
            Layout(**layout),
            loader=problem["loader"],
            shard_switch=problem["shard_switch"],
            order=order,
        )
        for _ in range(3):
            for x, _ in next(loader):
                for row in x.view(-1, layout["seq_len"]):
                    seen = document_ids(row, separator=0).tolist()
                    pairs = [(s, document_of[int(token)]) for s, token in zip(seen, row) if token]
                    assert (
                        len(set(pairs)) == len({s for s, _ in pairs}) == len({d for _, d in pairs})
                    )


@SMALL
@given(problems(), st.booleans())
def test_no_process_reads_more_than_its_part(problem: dict[str, Any], shuffled: bool) -> None:
    """Every token is fetched by the process that trains on it and no other, but for the one target behind each read."""
    layout, steps = problem["layout"], 4
    with TemporaryDirectory() as folder:
        paths = write_shards(folder, problem["lengths"])
        for process in range(layout["world_size"]):
            here = Layout(**layout, process=process)
            order = "shuffled" if shuffled else "sequential"
            loader = TrainLoader(
                paths,
                here,
                loader=problem["loader"],
                shard_switch=problem["shard_switch"],
                order=order,
            )
            fetched: list[list[int]] = []
            loader.stream = Watched(loader.stream, fetched)  # type: ignore[assignment]
            used = [
                token
                for _ in range(steps)
                for x, _ in next(loader)
                for token in x.flatten().tolist()
            ]
            assert sorted(token for tokens in fetched for token in tokens[:-1]) == sorted(used)
            assert (
                len(used) == layout["batch_tokens"] // layout["ranks"] * len(here.own_ranks) * steps
            )


class Watched:
    """A stream that notes what is read from it."""

    def __init__(self, stream: TokenStream, fetched: list[list[int]]) -> None:
        self.stream, self.fetched = stream, fetched

    def read(self, shard: int, pos: int, n_tokens: int) -> Any:
        tokens = self.stream.read(shard, pos, n_tokens)
        self.fetched.append(tokens.tolist())
        return tokens


def test_targets_cross_nothing(tmp_path: Path) -> None:
    """The loader never reads past a shard: the last target of a rank's read lies in the same shard as its inputs."""
    lengths = [49, 50, 51]
    paths = write_shards(tmp_path, lengths)
    owner = np.repeat(np.arange(3), lengths)
    loader = TrainLoader(paths, Layout(batch_tokens=24, micro_tokens=3, seq_len=3, ranks=8))
    for _ in range(20):
        for x, y in next(loader):
            assert (owner[x] == owner[y]).all()


@SMALL
@given(problems(), st.integers(0, 2**31))
def test_shuffled_deals_every_chunk_once_an_epoch(problem: dict[str, Any], seed: int) -> None:
    layout, lengths = problem["layout"], problem["lengths"]
    seq_len = layout["seq_len"]
    n_chunks = (sum(lengths) - 1) // seq_len
    with TemporaryDirectory() as folder:
        paths = write_shards(folder, lengths)
        loaders = [
            TrainLoader(paths, Layout(**layout, process=p), order="shuffled", seed=seed)
            for p in range(layout["world_size"])
        ]
        dealt: list[list[int]] = []
        while len(dealt) < 2 * n_chunks:
            step = [batch for loader in loaders for batch in next(loader)]
            for micro in range(step[0][0].shape[0]):
                for x, y in step:
                    assert torch.equal(y, x + 1)
                    dealt += x[micro].tolist()
    assert all(
        row == list(range(row[0], row[0] + seq_len)) and row[0] % seq_len == 0 for row in dealt
    )
    chunks = [row[0] // seq_len for row in dealt]
    for epoch in (0, 1):
        assert sorted(chunks[epoch * n_chunks : (epoch + 1) * n_chunks]) == list(range(n_chunks))
    order = np.concatenate(
        [permutation(seed, epoch, n_chunks) for epoch in range(2 + len(chunks) // n_chunks)]
    )
    assert (
        chunks == order[: len(chunks)].tolist()
    )  # whatever the ranks, processes and batches: the same for every arm


def test_the_seed_alone_decides_the_shuffled_order() -> None:
    orders = {key: tuple(permutation(*key, 50).tolist()) for key in [(0, 0), (0, 1), (1, 0)]}
    assert len(set(orders.values())) == 3
    permutation.cache_clear()
    assert tuple(permutation(0, 0, 50).tolist()) == orders[0, 0]


@pytest.mark.parametrize(
    ("seed", "epoch", "order"),
    [
        (0, 0, [3, 2, 1, 6, 0, 7, 4, 5]),
        (0, 1, [7, 4, 5, 1, 6, 2, 0, 3]),
        (7, 0, [6, 3, 4, 0, 2, 7, 5, 1]),
        (7, 3, [2, 4, 7, 3, 5, 1, 0, 6]),
    ],
)
def test_results_do_not_move_with_numpys_version(seed: int, epoch: int, order: list[int]) -> None:
    assert permutation(seed, epoch, 8).tolist() == order


def test_the_second_epoch_is_read_in_its_own_order(tmp_path: Path) -> None:
    """Eight sequences of 3 tokens, read 4 a step: the third step is the second epoch's first."""
    paths = write_shards(tmp_path, [25])
    layout = Layout(batch_tokens=12, micro_tokens=12, seq_len=3, ranks=1)
    loader = TrainLoader(paths, layout, order="shuffled", seed=7)
    read = [x.view(-1, 3)[:, 0] // 3 for _ in range(4) for x, _ in next(loader)]
    first, second = torch.cat(read[:2]).tolist(), torch.cat(read[2:]).tolist()
    assert first == [6, 3, 4, 0, 2, 7, 5, 1]
    assert second == [1, 3, 2, 7, 4, 5, 0, 6]


def test_sequential_order_ignores_the_seed(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, [100])
    layout = Layout(batch_tokens=16, micro_tokens=8, seq_len=4, ranks=2)
    first, second = (next(TrainLoader(paths, layout, seed=seed)) for seed in (0, 1))
    assert all(torch.equal(a, b) for one, other in zip(first, second) for a, b in zip(one, other))


@pytest.mark.parametrize(
    "options", [{}, {"first_batch_twice": True}, {"loader": "global"}, {"order": "shuffled"}]
)
@pytest.mark.parametrize("ahead", [False, True])
def test_a_loader_goes_on_where_its_state_was_saved(
    tmp_path: Path, options: dict[str, Any], ahead: bool
) -> None:
    paths = write_shards(tmp_path, [90, 70])
    layout = Layout(batch_tokens=16, micro_tokens=4, seq_len=2, ranks=2)

    def make() -> TrainLoader | Prefetcher:
        loader = TrainLoader(paths, layout, **options)
        return Prefetcher(loader) if ahead else loader

    def inputs(loader: TrainLoader | Prefetcher, n: int) -> list[list[int]]:
        return [x.flatten().tolist() for _ in range(n) for x, _ in next(loader)]

    loader, other = make(), make()
    start = loader.state_dict()
    everything = inputs(loader, 12)
    loader.reset()
    assert inputs(loader, 1) == everything[:2]
    middle = loader.state_dict()
    assert inputs(loader, 11) == everything[2:]
    other.load_state_dict(middle)
    assert inputs(other, 11) == everything[2:]
    loader.load_state_dict(start)
    assert inputs(loader, 12) == everything
    for each in (loader, other):
        if isinstance(each, Prefetcher):
            each.close()


def test_prefetching_changes_nothing(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, [90, 70])
    layout = Layout(batch_tokens=16, micro_tokens=4, seq_len=2, ranks=2)
    plain, ahead = TrainLoader(paths, layout), Prefetcher(TrainLoader(paths, layout))
    for _ in range(15):
        for (x, y), (x_ahead, y_ahead) in zip(next(plain), next(ahead), strict=True):
            assert torch.equal(x, x_ahead)
            assert torch.equal(y, y_ahead)
        assert plain.state_dict() == ahead.state_dict()
    ahead.close()


def test_what_the_prefetching_thread_raises_reaches_the_loop(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, [90, 70])
    loader = TrainLoader(paths, Layout(batch_tokens=16, micro_tokens=4, seq_len=2, ranks=2))
    paths[1].unlink()
    ahead = Prefetcher(loader)
    with pytest.raises(UserError, match="cannot be read"):
        list(islice(ahead, 10))
    ahead.close()


@pytest.mark.parametrize(
    ("input_dtype", "expected"), [("int32", torch.int32), ("int64", torch.int64)]
)
def test_dtypes_are_as_asked_and_high_tokens_stay_positive(
    tmp_path: Path, input_dtype: str, expected: torch.dtype
) -> None:
    write_shard(tmp_path / "a.bin", np.full(20, 65535))
    ((x, y),) = next(
        TrainLoader(
            [tmp_path / "a.bin"],
            Layout(batch_tokens=8, micro_tokens=8, seq_len=8, ranks=1),
            memory=BatchMemory(input_dtype=input_dtype),
        )
    )
    assert (x.dtype, y.dtype) == (expected, torch.int64)
    assert int(x.min()) == int(y.min()) == 65535


@pytest.mark.parametrize(
    ("options", "length", "message"),
    [
        ({}, 64, r"000001\.bin holds 64 tokens, but the ranks together read 64 \+ 1"),
        (
            {"loader": "global"},
            128,
            r"000001\.bin holds 128 tokens, but the ranks together read 128 \+ 1",
        ),
        (
            {"order": "shuffled"},
            10,
            r"together hold 100 tokens, but the ranks together read 128 \+ 1",
        ),
    ],
)
def test_a_shard_too_short_is_refused_with_the_numbers(
    tmp_path: Path,
    options: dict[str, Any],
    length: int,
    message: str,
    kept_line: Callable[[str], None],
) -> None:
    paths = write_shards(tmp_path, [90 if options.get("order") else 200, length])
    with pytest.raises(UserError, match=message) as refused:
        TrainLoader(paths, Layout(batch_tokens=128, micro_tokens=8, seq_len=4, ranks=8), **options)
    kept_line(str(refused.value))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"micro_tokens": 10}, "data.micro_tokens 10 is no multiple of data.seq_len 4"),
        (
            {"batch_tokens": 100},
            r"data.batch_tokens 100 is no multiple of data.ranks 8 x data.micro_tokens 8 = 64",
        ),
        ({"world_size": 3}, "3 processes cannot share data.ranks 8 evenly"),
        ({"world_size": 16}, "16 processes cannot share data.ranks 8 evenly"),
    ],
)
def test_sizes_that_do_not_divide_are_refused(
    change: dict[str, int], message: str, kept_line: Callable[[str], None]
) -> None:
    with pytest.raises(UserError, match=message) as refused:
        Layout(**{"batch_tokens": 128, "micro_tokens": 8, "seq_len": 4, "ranks": 8, **change})
    kept_line(str(refused.value))


@pytest.mark.parametrize("process", [-1, 2])
def test_a_process_is_one_of_its_world(process: int) -> None:
    sizes = {"batch_tokens": 128, "micro_tokens": 8, "seq_len": 4, "ranks": 8, "world_size": 2}
    with pytest.raises(ValueError, match=f"process {process} of a world of 2"):
        Layout(**sizes, process=process)
    assert [Layout(**sizes, process=n).micro_steps for n in (0, 1)] == [2, 2]


def test_a_token_beyond_the_last_shard_is_nowhere() -> None:
    assert [locate([3, 2], pos) for pos in (0, 2, 3, 4)] == [(0, 0), (0, 2), (1, 0), (1, 1)]
    with pytest.raises(IndexError, match="0 tokens beyond the last shard"):
        locate([3, 2], 5)


@SMALL
@given(
    world_size=st.integers(1, 8),
    seq_len=st.integers(1, 4),
    rows=st.integers(1, 3),
    n_micro=st.integers(1, 20),
    cut=st.floats(0.05, 1),
    spare=st.integers(1, 5),
)
def test_validation_is_the_first_tokens_in_every_world(
    world_size: int, seq_len: int, rows: int, n_micro: int, cut: float, spare: int
) -> None:
    val_tokens = n_micro * rows * seq_len
    total = val_tokens + spare
    lengths = [n for n in (int(total * cut), total - int(total * cut)) if n]
    with TemporaryDirectory() as folder:
        paths = write_shards(folder, lengths)
        loaders = [
            ValLoader(
                paths,
                val_tokens=val_tokens,
                micro_tokens=rows * seq_len,
                seq_len=seq_len,
                world_size=world_size,
                process=p,
            )
            for p in range(world_size)
        ]
        for _ in range(2):  # every validation reads the same tokens
            parts = [list(loader) for loader in loaders]
            batches = [parts[micro % world_size][micro // world_size] for micro in range(n_micro)]
            assert sum(map(len, parts)) == n_micro == loaders[0].n_micro
            assert all(x.shape == y.shape == (rows, seq_len) for x, y in batches)
            assert torch.cat([x.flatten() for x, _ in batches]).tolist() == list(range(val_tokens))
            assert torch.cat([y.flatten() for _, y in batches]).tolist() == list(
                range(1, val_tokens + 1)
            )


def test_the_validation_mean_is_the_same_in_every_world(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, [500])
    table = torch.randn(500, generator=torch.Generator().manual_seed(0))

    def mean(world_size: int) -> float:
        total = 0.0
        for process in range(world_size):
            loader = ValLoader(
                paths,
                val_tokens=480,
                micro_tokens=16,
                seq_len=8,
                world_size=world_size,
                process=process,
            )
            total += sum(float((table[x] * table[y]).mean()) for x, y in loader) / loader.n_micro
        return total

    exact = float((table[:480] * table[1:481]).double().mean())
    assert [mean(world_size) for world_size in (1, 2, 4, 8)] == pytest.approx([exact] * 4, abs=1e-6)


def test_a_validation_set_too_short_is_refused_with_what_would_fit(
    tmp_path: Path, kept_line: Callable[[str], None]
) -> None:
    paths = write_shards(tmp_path, [100])
    whole = ValLoader(paths, val_tokens=99, micro_tokens=9, seq_len=9)
    assert [y.flatten().tolist()[-1] for _, y in whole] == [*range(9, 100, 9)]  # the last token too
    with pytest.raises(UserError, match=r"holds 100 tokens, data.val_tokens 100 needs 101"):
        ValLoader(paths, val_tokens=100, micro_tokens=10, seq_len=10)
    with pytest.raises(
        UserError, match=r"holds 100 tokens, data.val_tokens 128 needs 129 .* to at most 96"
    ):
        ValLoader(paths, val_tokens=128, micro_tokens=32, seq_len=8)
    with pytest.raises(
        UserError,
        match=r"data.val_tokens 100, data.micro_tokens 32, data.seq_len 8: each must be a multiple",
    ) as refused:
        ValLoader(paths, val_tokens=100, micro_tokens=32, seq_len=8)
    kept_line(str(refused.value))
    with pytest.raises(UserError, match=r"data\.val_tokens 96, .*, data\.seq_len 5"):
        ValLoader(paths, val_tokens=96, micro_tokens=32, seq_len=5)


@pytest.mark.parametrize(
    ("available", "mend"),
    [
        (129, None),
        (128, "set data.val_tokens to at most 96"),
        (97, "set data.val_tokens to at most 96"),
        (96, "set data.val_tokens to at most 64"),
        (33, "set data.val_tokens to at most 32"),
        (32, "use more text, or a smaller size (scale=tiny, data.micro_tokens)"),
    ],
)
def test_what_fits_is_whole_passes_and_the_last_ones_target(
    available: int, mend: str | None
) -> None:
    sizes = {"val_tokens": 128, "round_tokens": 32}
    lengths = [available - 10, 10]
    if mend is None:
        refuse_short_val([Path("a.bin")], lengths, **sizes)
        return
    with pytest.raises(UserError) as refused:
        refuse_short_val([Path("a.bin")], lengths, **sizes)
    assert str(refused.value) == (
        f"a.bin: the validation set holds {available} tokens, data.val_tokens 128 needs 129 (the "
        f"last one's target): {mend}"
    )


@pytest.mark.parametrize(
    ("options", "what", "needed"),
    [
        ({"loader": "per_rank"}, "b.bin holds", 32),
        ({"loader": "global"}, "b.bin holds", 64),
        ({"loader": "per_rank", "order": "shuffled"}, "the training shards together hold", 64),
        ({"loader": "global", "growth": 2}, "b.bin holds", 128),
    ],
)
def test_a_round_of_all_ranks_and_its_last_target_must_be_there(
    options: dict[str, Any], what: str, needed: int
) -> None:
    asked = {"batch_tokens": 64, "micro_tokens": 8, "ranks": 4, "order": "sequential"} | options
    paths = [Path("a.bin"), Path("b.bin")]
    first = 5 if asked["order"] == "shuffled" else 1000
    of_first = first if asked["order"] == "shuffled" else 0
    refuse_short_train(paths, [first, needed + 1 - of_first], **asked)
    with pytest.raises(UserError) as refused:
        refuse_short_train(paths, [first, needed - of_first], **asked)
    grown = "growth" in options
    stage = " in the stage of batches 2 times as large" if grown else ""
    fields = "data.batch_tokens and data.micro_tokens"
    if grown:
        fields = "data.batch_tokens, data.micro_tokens or schedule.batch_growth"
    assert str(refused.value) == (
        f"{what} {needed} tokens, but the ranks together read {needed} + 1{stage}: use a larger "
        f"corpus, or smaller {fields}"
    )


def test_a_process_opens_only_the_shards_it_reads(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, [100] * 5)
    loader = TrainLoader(paths, Layout(batch_tokens=16, micro_tokens=8, seq_len=4, ranks=2))
    for _ in range(7):
        next(loader)
    assert set(loader.stream.opened) == {0, 1}
