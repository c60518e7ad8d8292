"""Benches: what is reported, how two candidates are compared, and the plain scripts beside the core."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.__main__ import BOUNDS, PLAIN, largest_difference, missed, peak_of, peaks
from harness.__main__ import main
from harness.bench.breakdown import breakdown
from harness.bench.steps import (
    DOCUMENT_TOKENS,
    Candidate,
    interleave,
    median_interval,
    ratio,
    resolve,
    synthetic,
)
from harness.corpora.index import prepare
from harness.data.shards import open_shard
from harness.errors import UserError
from harness.node.memory import peak_mib

SMALL = {
    "model.n_layer": 2, "model.d_model": 32, "model.head_dim": 16, "data.ranks": 1, "data.seq_len": 64, "data.micro_tokens": 64,
    "data.batch_tokens": 256, "data.val_tokens": 256,
}  # fmt: skip
ARGUMENTS = [argument for k, v in SMALL.items() for argument in ("--set", f"{k}={v}")]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    prepare("stdlib", root)
    return root


@pytest.fixture
def data(corpora: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABLATE_DATA", str(corpora))


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    out, err = capsys.readouterr()
    return int(end.value.code or 0), out, err


def documented(which: int) -> set[str]:
    """The keys of the page's JSON: 0 of a bench, 1 of a comparison."""
    page = (Path(__file__).resolve().parents[3] / "docs" / "command-line.md").read_text(
        encoding="utf-8"
    )
    section = page.split("### `ablate bench")[1].split("\n### ")[0].replace("\n", " ")
    shape = section.split("`{")[1 + which].split("}`")[0]
    return {
        key.split(":")[0].strip() for key in shape.replace("[{part, ms, share}]", "").split(",")
    }


@pytest.mark.slow
@pytest.mark.usefixtures("data")
def test_a_bench_tells_time_work_memory_and_where_a_step_goes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, err = said(capsys, "bench", "r08", "--steps", "4", "--json", *ARGUMENTS)
    assert (code, err) == (0, "")
    result = json.loads(out)
    assert set(result) == documented(0)
    assert 0 < result["step_ms_median"] <= result["step_ms_p95"]
    assert result["tokens_per_s"] == pytest.approx(256_000 / result["step_ms_median"])
    assert result["mfu"] == pytest.approx(
        result["flops_per_token"] * result["tokens_per_s"] / result["matrix_flops_per_s"]
    )
    assert result["peak_rss_mib"] > 50 and result["peak_allocated_mib"] is None
    assert result["loader_ratio"] == pytest.approx(
        result["loader_tokens_per_s"] / result["tokens_per_s"]
    )
    parts = {row["part"]: row["share"] for row in result["breakdown"]}
    assert set(parts) == {
        "data",
        "forward",
        "backward",
        "optimizer",
        "optimizer Adam",
        "optimizer Muon",
        "gaps",
    }
    assert sum(parts.values()) == pytest.approx(1) and min(parts.values()) >= 0
    assert all(parts[part] > 0 for part in ("data", "forward", "backward", "optimizer"))


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize(
    ("first", "a", "b"),
    [(["r08"], "optim.ns_steps=1", "optim.ns_steps=9"), ([], "r08", "r11")],
    ids=["settings", "presets"],
)
def test_two_settings_or_two_presets_are_compared(
    first: list[str], a: str, b: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = said(
        capsys, "bench", *first, "--compare", a, b, "--steps", "6", "--json", *ARGUMENTS
    )
    assert (code, err) == (0, "")
    result = json.loads(out)
    assert set(result) == documented(1)
    assert (result["a"], result["b"], result["rounds"]) == (a, b, 6)
    assert 0 < result["low"] <= result["ratio"] <= result["high"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "bench needs a preset"),
        (["r99"], "unknown record 'r99'"),
        (["r08", "--scale", "tinny"], "did you mean 'tiny'?"),
        (["r08", "--steps", "0"], "--steps 0: must be at least 1"),
        (["r08", "--set", "model.head_dim=7"], "model.head_dim=7 does not divide"),
        (["r08", "--set", "model.n_leyer=2"], "did you mean 'model.n_layer'?"),
        (["--compare", "optim.ns_steps=1", "r08"], "a setting needs a preset"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_line(
    arguments: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
    kept_line: Callable[[str], None],
) -> None:
    code, out, err = said(capsys, "bench", *arguments)
    assert (code, out) == (2, "")
    assert words in err and err.count("\n") == 1
    kept_line(err)


def test_interleaving_takes_turns_and_keeps_the_sides_apart() -> None:
    order: list[str] = []
    pairs = interleave(lambda: order.append("a") or 1.0, lambda: order.append("b") or 2.0, 3)  # type: ignore[func-returns-value]
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert pairs == [(1.0, 2.0)] * 3
    found = ratio(pairs)
    assert (found.rounds, found.a_ms, found.b_ms, found.ratio) == (3, 1.0, 2.0, 2.0)


def test_the_interval_of_a_median_is_that_of_the_sign_test() -> None:
    assert median_interval(range(5)) == (None, None)  # 2 / 2^5 > 0.05
    assert median_interval(range(6)) == (0, 5)  # 2 / 2^6 < 0.05
    assert median_interval(range(14)) == (2, 11)  # 2 (1 + 14 + 91 + 364) / 2^14 > 0.05
    assert median_interval(range(20)) == (5, 14)  # the tables' order statistics 6 and 15
    with pytest.raises(UserError, match="at least one step"):
        ratio([])


def test_synthetic_documents_end_where_the_separator_stands_and_nowhere_else() -> None:
    for vocab in ((50_257, 50_256), (50_257, 256), (4, 3), (4, 1)):
        with synthetic(100_000, vocab) as text:
            ids = np.asarray(open_shard(text.shards[0]))
        assert 0.99 * (vocab[0] - 1) < ids.max() <= vocab[0] - 1 and len(ids) == 100_000
        assert (text.name, text.vocab_size, text.separator) == ("synthetic", *vocab)
        assert (ids == text.separator).mean() == pytest.approx(1 / DOCUMENT_TOKENS, rel=0.5)


def test_synthetic_text_trains_and_is_gone_afterwards() -> None:
    config, substituted = resolve("r18", scale="tiny", device="cpu", settings={**SMALL, "model.n_layer": 6, "data.seq_len": 128,
                                                                              "data.micro_tokens": 128})  # fmt: skip
    with synthetic(100_000, (300, 299)) as text:
        assert any("flex" in words for words in substituted)
        candidate = Candidate(config, text, device="cpu")
        assert len(candidate.timed(2)) == 2
        assert {row.part for row in breakdown(candidate, steps=1)} >= {
            "backward",
            "optimizer Muon",
        }
    assert not text.shards[0].exists()


@pytest.mark.slow
@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("name", list(PLAIN))
@pytest.mark.parametrize("width", [64, 128])
def test_the_plain_scripts_compute_what_the_core_computes(name: str, width: int) -> None:
    torch.set_num_threads(1)
    assert largest_difference(name, width, steps=3) < 1e-5


def test_a_missed_bound_is_told_and_a_held_one_is_not() -> None:
    held = {"record": "r08", "width": 64, **{key: bound for key, (bound, _) in BOUNDS.items()}}
    assert missed(held) == []
    for key, (bound, words) in BOUNDS.items():
        (message,) = missed({**held, key: 1.5 * bound})
        assert message.startswith(f"r08 width 64: {words}")
    assert "at least six rounds" in missed({**held, "high": None})[0]


@pytest.mark.slow
@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("name", list(PLAIN))
def test_the_core_needs_no_more_memory_than_the_plain_script(name: str) -> None:
    core, plain = peaks(name, 64)
    assert 50 < core <= 1.02 * plain


def test_a_process_is_charged_with_its_own_memory_alone() -> None:
    """Not with that of the process which started it, as the kernel's ru_maxrss may be."""
    held = bytearray(os.urandom(1 << 20)) * 256
    words = "import os; from harness.node.memory import peak_mib; print(peak_mib(os.getpid()))"
    assert 5 < peak_of("-c", words) < 100 < 256 < peak_mib(os.getpid())
    assert len(held) == 256 << 20
