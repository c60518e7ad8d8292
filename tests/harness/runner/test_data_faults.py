"""Faults around data and memory, made for real: shards that change under a run, memory that runs out and is asked for less."""

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.corpora.index import prepare
from harness.run.digests import file_digest
from harness.run.read import read_config, read_lines
from harness.run.results import read_result
from harness.run.spec import RunSpec
from harness.runner.execute import split_finer
from harness.runner.unchanged import Shard, check_data, facts_of, look_at
from harness.store.attempt import claim
from harness.store.store import Store
from tests.fake_matrix import DEADLINE_S, Matrix
from tests.one_run import DONE, SPEC, finish


@pytest.fixture
def own_data(tmp_path: Path) -> Path:
    """A copy of the corpus that a test may damage; made first, or awaited where another test makes it."""
    corpus = prepare("stdlib")
    shutil.copytree(corpus.folder, tmp_path / "data" / "stdlib")
    return tmp_path / "data"


@pytest.mark.parametrize("harm", ["changed", pytest.param("missing", marks=pytest.mark.slow)])
def test_a_shard_that_changes_while_a_run_reads_it_costs_that_run(
    tmp_path: Path, own_data: Path, harm: str
) -> None:
    matrix = Matrix(tmp_path, n_seeds=1, FAKE={"0": "hold"}, ABLATE_DATA=str(own_data))
    shard = sorted((own_data / "stdlib").glob("*.bin"))[0]
    kept = shard.read_bytes()
    process = matrix.start("--max-parallel", "2")
    matrix.at("hold", 2)
    if harm == "changed":
        shard.write_bytes(kept[:-2] + b"\0\0")
    else:
        shard.unlink()
    (tmp_path / "go").touch()
    out, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1
    assert (
        out.count(f"failed: its data changed while it ran ({shard.name})") == 4
    )  # as it ends, and in the summary
    assert matrix.statuses() == {}
    shard.write_bytes(kept)
    assert matrix.run()[0] == 0
    assert [ends[-1] for ends in matrix.ends(0)] == ["finished", "finished"]


def test_data_that_stays_as_it_is_costs_nothing(
    own_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABLATE_DATA", str(own_data))
    before = look_at("stdlib")
    assert len(before) >= 2
    assert check_data(before, DONE) is DONE
    first = before[0].path
    first.chmod(0o600)  # no change of what it holds
    assert check_data(before, DONE) is DONE
    stat = first.stat()
    change_token(first)
    os.utime(first, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # as if nobody had been there
    assert check_data(before, DONE).status == "failed"
    change_token(first)
    before = look_at("stdlib")
    os.utime(first, (1, 1))  # a time alone is a change
    assert check_data(before, DONE).status == "failed"
    assert look_at("nothing of this name") == []


def change_token(shard: Path) -> None:
    """One bit of one token in the middle."""
    content = bytearray(shard.read_bytes())
    content[len(content) // 4 * 2] ^= 1
    shard.write_bytes(content)


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_no_run_begins_on_other_tokens_than_its_plan_names(
    tmp_path: Path, own_data: Path, real: bool
) -> None:
    """A shard of the same size: refused before the first run, and by the worker that finds it later."""
    matrix = Matrix(tmp_path, n_seeds=1, real=real, ABLATE_DATA=str(own_data))
    matrix.environment |= {"ABLATE_CACHE": str(tmp_path / "cache"), "FAKE": '{"0": "train"}'}
    shard = sorted((own_data / "stdlib").glob("*_train_*"))[0]
    change_token(shard)
    code, out, err = matrix.run()
    assert (code, len(err.splitlines())) == (2, 1)
    assert f"{shard}: its content is not what corpus.json says" in err
    assert "corpus stdlib: hashing 2 shards, 16 MiB" in out
    assert list((matrix.results / "runs").iterdir()) == []
    change_token(shard)
    assert matrix.run()[0] == 0


@pytest.mark.slow
def test_a_worker_begins_nothing_on_tokens_that_changed_after_the_plan(
    tmp_path: Path, own_data: Path
) -> None:
    """One token, with the file's times as they were: the run in progress is lost, the next one does not begin."""
    matrix = Matrix(tmp_path, n_seeds=1, real=True, FAKE={"0": "hold"}, ABLATE_DATA=str(own_data))
    matrix.environment["ABLATE_CACHE"] = str(tmp_path / "cache")
    shard = sorted((own_data / "stdlib").glob("*_train_*"))[0]
    process = matrix.start("--max-parallel", "1")
    matrix.at("hold", 1)
    stat = shard.stat()
    change_token(shard)
    os.utime(shard, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    (tmp_path / "go").touch()
    out, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1
    assert f"failed: its data changed while it ran ({shard.name})" in out
    assert f"failed: {shard}: its content is not what corpus.json says" in out
    assert matrix.statuses() == {}


def with_data(spec: RunSpec, *, accumulate: str = "mean", **data: int) -> RunSpec:
    config = {
        "data": {"micro_tokens": 512, "seq_len": 64, "val_tokens": 4096, **data},
        "system": {"accumulate": accumulate},
    }
    return RunSpec.from_mapping({**spec.to_mapping(), "config": config})


def test_smaller_passes_are_taken_only_where_the_mathematics_stays() -> None:
    finer = split_finer(with_data(SPEC))
    assert finer is not None
    assert finer.config["data"]["micro_tokens"] == 256
    assert split_finer(with_data(SPEC, micro_tokens=64)) is None  # a row is the least
    assert split_finer(with_data(SPEC, accumulate="sum")) is None  # sums of more passes are larger
    assert split_finer(with_data(SPEC, val_tokens=4000)) is None  # other validation tokens


def test_a_run_out_of_memory_is_tried_again_in_smaller_passes(tmp_path: Path) -> None:
    matrix = Matrix(tmp_path, n_seeds=1, FAKE={"0": "memory above 128"})
    code, out, _ = matrix.run()
    assert code == 1
    assert "oom: MemoryError" in out
    ends = [
        r
        for runs in matrix.runs().values()
        for run in runs
        for r in read_lines(run / "attempts.jsonl")
        if "ended" in r
    ]
    assert {r["status"] for r in ends} == {"oom"}
    assert all(r["peak_rss_mib"] > 10 for r in ends)
    code, out, _ = matrix.run("--oom-retries", "1")
    assert code == 1  # 256 tokens are still too many
    code, out, _ = matrix.run("--oom-retries", "3")
    assert code == 0, out
    assert [e[-3:] for e in matrix.ends(0)] == [["oom", "oom", "finished"]] * 2
    run = matrix.runs()[0][0]
    result = read_result(run)
    assert result is not None
    assert (
        "data.micro_tokens=128 instead of 512: memory ran out before"
        in result.content["substituted"]
    )
    assert read_config(run)["config"]["data"]["micro_tokens"] == 512  # the run is the same run


def test_two_who_mend_the_same_run_do_not_undo_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one judges the run as damaged, and then finds it mended by the first."""
    store = Store.create(tmp_path / "results")
    first = claim(store, SPEC)
    assert first is not None
    finish(first)
    metrics = first.run / "metrics.jsonl"
    metrics.write_bytes(b"")
    hold = store.hold

    def late(run_id: str) -> int | None:
        monkeypatch.setattr(store, "hold", hold)
        assert Store(store.root).repair(run_id)[1] is not None
        again = claim(Store(store.root), SPEC)
        assert again is not None
        finish(again)
        return hold(run_id)

    monkeypatch.setattr(store, "hold", late)
    assert store.repair(SPEC.run_id)[1] is None
    assert read_result(first.run) is not None
    assert len(list((store.root / "aside").iterdir())) == 1
    assert store.state(SPEC.run_id).status == "finished"
    assert not (first.run / "attempts" / "1").exists()


def test_numbers_that_are_not_finite_are_null_wherever_they_stand(tmp_path: Path) -> None:
    out = claim(Store.create(tmp_path), SPEC)
    assert out is not None

    class Row:
        def to_json(self) -> dict[str, Any]:
            return {
                "kind": "train",
                "step": 1,
                "step_times": [1.0, float("nan"), [float("inf")]],
                "more": {"x": float("-inf")},
            }

    out.metric(Row())
    finish(out)
    row = read_lines(out.run / "metrics.jsonl")[0]
    assert row["step_times"] == [1.0, None, [None]]
    assert row["more"] == {"x": None}


def test_a_file_is_read_again_only_where_it_may_have_changed(tmp_path: Path) -> None:
    """Size, time and place alike: the system's own note of a change decides, whichever way it moved."""
    path = tmp_path / "shard.bin"
    path.write_bytes(b"tokens")
    now = facts_of(str(path))
    assert now is not None
    assert not Shard(path=path, facts=now, sha256="of other bytes").changed()
    for later in (-1, 1):
        touched = Shard(path=path, facts=(*now[:3], now[3] + later), sha256="of other bytes")
        assert touched.changed()
        assert not replace(touched, sha256=file_digest(path)).changed()
    gone = tmp_path / "gone.bin"
    assert facts_of(str(gone)) is None
    assert Shard(path=gone, facts=now, sha256=None).changed()
    assert Shard(path=path, facts=None, sha256=None).changed()
    assert not Shard(path=gone, facts=None, sha256=None).changed()
