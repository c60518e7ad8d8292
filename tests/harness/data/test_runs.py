"""What runs make of their corpora: the second metric on held-out text, the node's own copy, the order, exact validation."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness.__main__ import main
from harness.config.run import from_plain
from harness.corpora.cache import cache_locally, cache_root
from harness.corpora.corpus import Corpus, HeldOut, write_corpus
from harness.corpora.index import open_corpus, open_heldout
from harness.corpora.text import prepare_text
from harness.data.shards import write_shard
from harness.errors import UserError
from harness.experiment.experiment import load_experiment
from harness.experiment.plan import plan_runs
from harness.experiment.record import describe
from harness.run.read import read_lines
from harness.run.results import read_result
from harness.run.spec import Outcome, PlannedRun, RunSpec
from harness.store.attempt import claim
from harness.store.store import Store
from harness.training.loaders import loaders
from harness.training.output import Silent
from harness.training.train import Training, train
from reports.analysis.compare import compare_all
from reports.inputs.load import load
from reports.page.write import write_report
from reports.verify.verify import verify
from tests.report_arms import LADDER
from tests.report_fixtures import write_experiment

EXPERIMENT = """
name: second
question: Is the gain real on other text?
base: r07
scale: tiny
set: {data.corpus: mine, model.n_layer: 2, data.seq_len: 64, data.micro_tokens: 256, data.batch_tokens: 512, data.ranks: 1,
      data.val_tokens: 1024, data.val_every: 2, schedule.steps: 4, data.first_batch_twice: false, optim.muon_comm: redundant,
      system.checkpoint: none}
changes: {untied_head: r08.untied_head}
seeds: 1
"""


def write_text(path: Path, seed: int, n_lines: int) -> Path:
    numbers = np.random.default_rng(seed).integers(0, 1000, n_lines)
    path.write_text("".join(f"{n} is number {i}\n" for i, n in enumerate(numbers)))
    return path


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data root with 'mine', which has held-out text, and 'plain', which has none; the working directory is elsewhere."""
    monkeypatch.setenv("ABLATE_DATA", str(tmp_path / "data"))
    text, other = write_text(tmp_path / "a.txt", 0, 4000), write_text(tmp_path / "b.txt", 1, 50)
    prepare_text([text], name="mine", documents="line", heldout=[other])
    prepare_text([write_text(tmp_path / "c.txt", 2, 4000)], name="plain", documents="line")
    (tmp_path / "second.yaml").write_text(EXPERIMENT)
    return tmp_path


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def plan_of(place: Path) -> Callable[..., list[PlannedRun]]:
    """The runs of the experiment with some fields set."""

    def make(**fields: Any) -> list[PlannedRun]:
        overrides = {k.replace("__", "."): v for k, v in fields.items()}
        return plan_runs(
            load_experiment(str(place / "second.yaml"), device="cpu", overrides=overrides)
        )

    return make


@pytest.fixture
def spec_of(plan_of: Callable[..., list[PlannedRun]]) -> Callable[..., RunSpec]:
    return lambda **fields: next(r.spec for r in plan_of(**fields) if r.arm == "baseline")


def in_a_store(spec: RunSpec, root: Path) -> tuple[Path, Outcome]:
    out = claim(Store.create(root), spec)
    assert out is not None
    out.describe({"host": "here"})
    outcome = train(spec, out=out, device="cpu", stop=lambda: False)
    out.finish(outcome)
    return out.run, outcome


def test_a_corpus_gives_its_held_out_text_or_else_its_validation_text(place: Path) -> None:
    mine, plain = open_corpus("mine"), open_corpus("plain")
    own, foreign = open_heldout("mine", mine), open_heldout("plain", mine)
    assert own.shards == mine.heldout
    assert (own.n_tokens, own.bytes_per_token) == (
        mine.tokens["heldout"],
        mine.bytes_per_token["heldout"],
    )
    assert foreign.shards == plain.val
    assert open_heldout("mine", plain) == own  # another corpus's held-out text comes first
    assert len({own.fingerprint, foreign.fingerprint, mine.fingerprint}) == 3


def other_tokens(root: Path) -> Corpus:
    """A corpus of another vocabulary."""
    folder = root / "data" / "gpt"
    folder.mkdir()
    shards = {"train": [folder / "t.bin"], "val": [folder / "v.bin"]}
    for paths in shards.values():
        write_shard(paths[0], np.arange(3000))
    return write_corpus(
        folder, shards, vocab_size=50257, separator=50256, unit="nats per token", source="a test"
    )


def test_the_command_line_takes_held_out_text(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = ["--heldout", str(place / "b.txt"), "--heldout", str(place / "c.txt")]
    with pytest.raises(SystemExit) as ended:
        main(
            [
                "data",
                "prepare",
                "text",
                str(place / "a.txt"),
                "--name",
                "cli",
                "--by",
                "line",
                *paths,
            ]
        )
    assert ended.value.code == 0
    assert f"{open_corpus('cli').tokens['heldout']} held-out" in capsys.readouterr().out
    assert open_corpus("cli").documents["heldout"] == 4050


def test_a_text_too_short_is_bad_input_with_the_numbers(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(
            [
                "run",
                str(place / "second.yaml"),
                "--set",
                "data.val_tokens=1048576",
                "--results",
                str(place / "results"),
            ]
        )
    assert ended.value.code == 2
    assert "holds 3814 tokens, data.val_tokens 1048576 needs 1048577" in capsys.readouterr().err


def test_what_cannot_be_a_second_text_is_refused(
    place: Path, kept_line: Callable[[str], None]
) -> None:
    plain = open_corpus("plain")
    with pytest.raises(
        UserError,
        match=r"corpus 'plain' has no held-out text .*: prepare it with --heldout PATH, or name another",
    ) as no_text:
        open_heldout("plain", plain)
    with pytest.raises(UserError, match=r"no corpus 'plan' .*did you mean 'plain'"):
        open_heldout("plan", plain)
    with pytest.raises(
        UserError,
        match=r"corpus 'gpt' has a vocabulary of 50257 tokens, 'plain' one of 257: .*same tokenizer",
    ) as other:
        open_heldout(other_tokens(place).name, plain)
    kept_line(f"{no_text.value}\n{other.value}")


def test_a_short_text_gives_the_whole_micro_batches_it_has() -> None:
    def first(n_tokens: int) -> int:
        text = HeldOut(name="x", shards=(), n_tokens=n_tokens, bytes_per_token=None, fingerprint="")
        return text.first_tokens(1000, 100)

    assert [first(n) for n in (2000, 1001, 1000, 201, 101, 100)] == [1000, 1000, 900, 200, 100, 100]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"data__val_tokens": 1 << 20}, r"mine_val_000000\.bin: the validation set holds \d+ tokens, .* at most \d+"),
        ({"data__batch_tokens": 1 << 20, "data__loader": "global"}, r"mine_train_000001.bin holds \d+ tokens, .* 1048576 \+ 1"),
        ({"data__heldout": "mine", "data__micro_tokens": 2048, "data__batch_tokens": 2048, "data__val_tokens": 2048},
         r"mine_heldout_000000\.bin: the validation set holds \d+ tokens, .* use more text, or a smaller size \(scale=tiny"),
    ],
)  # fmt: skip
def test_text_too_short_is_refused_before_anything_runs(
    spec_of: Callable[..., RunSpec],
    fields: dict,
    message: str,
    kept_line: Callable[[str], None],
) -> None:
    with pytest.raises(UserError, match=message) as refused:
        spec_of(**fields)
    kept_line(str(refused.value))


def test_arms_on_different_second_texts_are_refused(place: Path) -> None:
    file = place / "second.yaml"
    changed = EXPERIMENT.replace(
        "untied_head: r08.untied_head", "a: {data.heldout: mine}, b: {data.heldout: plain}"
    )
    file.write_text(changed)
    with pytest.raises(
        UserError, match=r"second\.yaml: its arms name different held-out text in data\.heldout"
    ):
        plan_runs(load_experiment(str(file), device="cpu"))


def test_the_last_weights_are_validated_on_it_outside_the_clock(
    spec_of: Callable[..., RunSpec], tmp_path: Path
) -> None:
    spec = spec_of(data__heldout="mine", system__checkpoint="final")
    without = spec_of()
    run, outcome = in_a_store(spec, tmp_path / "results")
    _, plain = in_a_store(without, tmp_path / "results")
    result, rows = read_result(run), read_lines(run / "metrics.jsonl")
    assert result is not None
    assert [r["kind"] for r in rows].count("heldout") == 1
    assert rows[-1] == {"kind": "heldout", "step": 4, "heldout_loss": result.heldout_loss}
    assert "step:4/4 heldout_loss:" in (run / "log.txt").read_text()
    assert outcome.final.val_loss == plain.final.val_loss  # it touches nothing else
    assert math.isnan(plain.final.heldout_loss)
    training = Training(spec, device="cpu", out=Silent())
    training.core.model.load_state_dict(
        torch.load(run / "checkpoint.pt", weights_only=True)["model"]
    )
    corpus, config = open_corpus("mine"), from_plain(spec.config)
    tokens = torch.from_numpy(
        np.fromfile(corpus.heldout[0], dtype="<u2", offset=1024).astype(np.int64)
    )
    n = (len(tokens) - 1) // config.data.micro_tokens
    assert n == 3  # all that it has, whole micro-batches
    x, y = (t[: n * 256].view(n, 4, 64) for t in (tokens[:-1], tokens[1:]))
    by_hand = float(training.core.evaluate(4, zip(x, y)).double().mean())
    assert result.heldout_loss == pytest.approx(by_hand, abs=1e-9)


def test_a_diverged_run_has_none(spec_of: Callable[..., RunSpec], tmp_path: Path) -> None:
    run, outcome = in_a_store(
        spec_of(data__heldout="mine", optim__muon_lr=100, optim__adam_lr=100), tmp_path / "results"
    )
    assert outcome.status == "diverged"
    assert json.loads((run / "result.json").read_text())["heldout_loss"] is None


def test_its_content_is_part_of_the_identity(spec_of: Callable[..., RunSpec], place: Path) -> None:
    spec = spec_of(data__heldout="mine")
    assert RunSpec.from_mapping(spec.to_mapping()).run_id == spec.run_id
    prepare_text(
        [place / "a.txt"],
        name="mine",
        documents="line",
        heldout=[write_text(place / "b.txt", 7, 50)],
    )
    assert open_corpus("mine").fingerprint == spec.data_fingerprint
    assert spec_of(data__heldout="mine").run_id != spec.run_id
    with pytest.raises(UserError, match="the held-out text of 'mine' has fingerprint"):
        Training(spec, device="cpu", out=Silent())
    old = replace(spec, heldout_fingerprint=None).to_mapping()
    del old["data"]["heldout"]
    assert RunSpec.from_mapping(old).heldout_fingerprint is None


def test_the_plan_names_it(place: Path) -> None:
    experiment = load_experiment(
        str(place / "second.yaml"), device="cpu", overrides={"data.heldout": "plain"}
    )
    corpus = describe(experiment, plan_runs(experiment), before=None, command="").corpus
    assert corpus.heldout == {
        "name": "plain",
        "fingerprint": open_heldout("plain", open_corpus("mine")).fingerprint,
    }


# ---------------------------------------------------------------- the node's own copy


def test_a_run_reads_the_copy_on_its_node(
    spec_of: Callable[..., RunSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "disk"))
    training = Training(
        spec_of(data__cache="local", data__heldout="mine"), device="cpu", out=Silent()
    )
    assert training.heldout is not None
    for loader in (training.stream, training.val, training.heldout):
        assert all(path.is_relative_to(tmp_path / "disk") for path in loader.stream.shards)
    plain = Training(spec_of(data__heldout="mine"), device="cpu", out=Silent())
    assert plain.val.stream.shards == list(open_corpus("mine").val)
    assert training.validate(0, training.heldout) == plain.validate(0, plain.heldout)  # type: ignore[arg-type]
    assert [x.tolist() for x, _ in next(training.stream)] == [
        x.tolist() for x, _ in next(plain.stream)
    ]


def test_the_copy_lies_where_the_environment_says_or_in_a_folder_of_the_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ABLATE_CACHE", "/local")
    assert cache_root() == Path("/local")
    monkeypatch.delenv("ABLATE_CACHE")
    assert cache_root() == Path(tempfile.gettempdir()) / f"ablate-{os.getuid()}"


def test_a_killed_copy_is_no_copy_and_is_made_again(place: Path) -> None:
    code = """
import os, signal, stat, sys
from harness.corpora import cache
from harness.corpora.index import open_corpus
fsync, files = os.fsync, []
def fsync_once(fd):
    if stat.S_ISREG(os.fstat(fd).st_mode):
        files.append(fd)
    if len(files) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    fsync(fd)
os.fsync = fsync_once
cache.cache_locally(open_corpus("mine"), sys.argv[1])
"""
    corpus, disk = open_corpus("mine"), place / "disk"
    done = subprocess.run(
        [sys.executable, "-c", code, str(disk)],
        cwd=Path(__file__).resolve().parents[3],
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    (folder,) = disk.glob("mine-*")
    half, whole = sorted(path.name for path in folder.iterdir())
    assert half.startswith(".mine_val_000000.bin.")
    assert whole == "mine_train_000001.bin"
    assert cache_locally(corpus, disk).files == corpus.files
    assert not list(folder.glob(".*"))


def test_a_place_that_cannot_be_written_is_named_with_the_way_out(place: Path) -> None:
    (place / "file").write_text("")
    with pytest.raises(
        UserError,
        match=r"file.*: .* name another folder in ABLATE_CACHE, or set data\.cache to none",
    ):
        cache_locally(open_corpus("mine"), place / "file")


# ---------------------------------------------------------------- order and validation


def test_a_block_has_one_order_of_the_data_and_every_seed_another(
    plan_of: Callable[..., list[PlannedRun]],
) -> None:
    corpus = open_corpus("mine")
    runs = plan_of(data__order="shuffled", seeds=3)
    first = {}
    for run in runs:
        stream, _ = loaders(
            from_plain(run.spec.config),
            corpus,
            seed=run.spec.seed,
            rank=0,
            world_size=1,
            device="cpu",
        )
        first[run.arm, run.spec.seed] = [
            t.tolist() for _ in range(3) for pair in next(stream) for t in pair
        ]
    assert {arm for arm, _ in first} == {"baseline", "untied_head"}
    for seed in range(3):
        assert first["baseline", seed] == first["untied_head", seed]
    assert (
        first["baseline", 0] != first["baseline", 1] != first["baseline", 2] != first["baseline", 0]
    )


@pytest.mark.parametrize("n", [1, 2, 4, 8])
def test_the_validation_loss_is_one_for_every_world_and_number_of_ranks(
    spec_of: Callable[..., RunSpec], n: int
) -> None:
    """n virtual ranks on one process, and n processes, played in turn: the same as the tokens in one go, in fp32."""
    spec = spec_of(data__ranks=n, data__batch_tokens=2048, data__val_tokens=2048)
    config, corpus = from_plain(spec.config), open_corpus("mine")
    training = Training(spec, device="cpu", out=Silent())
    assert config.precision.mode == "fp32"
    total = 0.0
    for process in range(n):
        _, val = loaders(config, corpus, seed=0, rank=process, world_size=n, device="cpu")
        total += float(training.core.evaluate(0, val).double().sum()) / val.n_micro
    tokens = torch.from_numpy(
        np.fromfile(corpus.val[0], dtype="<u2", offset=1024, count=2049).astype(np.int64)
    )
    whole = float(
        training.core.evaluate(0, [(tokens[:-1].view(-1, 64), tokens[1:].view(-1, 64))])
        .double()
        .mean()
    )
    assert total == pytest.approx(whole, abs=1e-6)
    assert training.validate(0, training.val) == pytest.approx(whole, abs=1e-6)


# ---------------------------------------------------------------- in the report


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two arms and the baseline at four seeds: on the held-out text one gains nothing, the other loses."""
    write_experiment(
        tmp_path, arms=(*LADDER[:2], LADDER[-1]), n_seeds=4, n_points=4, design="add-one"
    )
    plan_file = tmp_path / "experiments" / "split" / "experiment.json"
    plan = json.loads(plan_file.read_text())
    plan["corpus"] |= {
        "bytes_per_token": 4.0,
        "heldout": {"name": "other", "fingerprint": "e" * 64},
    }
    plan_file.write_text(json.dumps(plan))
    rng = np.random.default_rng(0)
    for run in plan["runs"]:
        file = tmp_path / "runs" / run["run_id"] / "result.json"
        result = json.loads(file.read_text())
        gain = 0.05 if run["arm"] == "r08" else 0.0
        file.write_text(
            json.dumps(result | {"heldout_loss": 1.9 + gain + 0.001 * rng.standard_normal()})
        )
    return tmp_path


def test_it_stands_beside_the_validation_loss(results: Path) -> None:
    experiment = load("split", results=results)
    assert (
        list(experiment.runs.columns).index("heldout_loss")
        == list(experiment.runs.columns).index("val_loss") + 2
    )
    bits = experiment.runs["val_loss"] / math.log(2) / 4.0
    assert experiment.runs["bits_per_byte"].to_numpy() == pytest.approx(bits.to_numpy())
    outcome = compare_all(experiment)
    first, last = outcome.of("untied_head", "heldout_loss"), outcome.of("r08", "heldout_loss")
    assert first is not None
    assert last is not None
    assert (last.verdict, last.ratio, last.unit) == ("worse", None, "nats per byte")
    assert last.delta == pytest.approx(0.05, abs=0.005)
    assert abs(first.delta) < 0.005
    assert outcome.of("r08", "val_loss").verdict == "better"  # type: ignore[union-attr]
    assert outcome.primary == "val_loss"


def test_the_page_prints_it_and_can_be_verified(results: Path) -> None:
    page = write_report([load("split", results=results)], results / "report.html")
    text = page.read_text(encoding="utf-8")
    for words in (
        ">held-out loss</th>",
        ">Δ held-out loss</th>",
        "other, fingerprint eeeeeeeeeeeeeeee",
        " bits/byte<",
        ">bits/byte</th>",
    ):
        assert words in text, words
    assert verify(page, results) == []
    wrong = text.replace(
        'data-key="heldout_loss.mean" data-v="1.', 'data-key="heldout_loss.mean" data-v="0.', 1
    )
    page.write_text(wrong, encoding="utf-8")
    assert any("heldout_loss.mean" in line for line in verify(page))
    forged = re.sub(r"untied_head \([+−]?0\.0000\d*", "untied_head (−0.0900", text, count=1)
    assert forged != text
    page.write_text(forged, encoding="utf-8")
    assert any("the headline says untied_head −0.0900" in line for line in verify(page))


def test_a_page_without_second_text_has_no_column_for_it(tmp_path: Path) -> None:
    write_experiment(tmp_path, arms=LADDER[:2], n_seeds=2, design="add-one")
    text = write_report([load("split", results=tmp_path)], tmp_path / "r.html").read_text(
        encoding="utf-8"
    )
    assert "held-out loss</th>" not in text
    assert "bits/byte</th>" not in text
