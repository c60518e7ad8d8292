"""Files are whole or absent; a damaged run is set aside; a folder that cannot be written is said in one line."""

import errno
import json
import os
import pickle
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.cli.complete import complete
from harness.errors import UserError
from harness.run import remembered, results
from harness.run.digests import short_digest
from harness.run.files import append_row, write_text
from harness.run.metrics import Validation
from harness.run.read import read_lines
from harness.run.results import DIGESTED, SEALED, Result, examine, read_result, result_text
from harness.run.spec import PlannedRun
from harness.runner.executor import ExecutorOptions, Summary
from harness.store import verified
from harness.store.attempt import claim
from harness.store.store import Store
from harness.store.verified import VerifiedResults
from tests.fake_matrix import Matrix, wait_for
from tests.one_run import DONE, SPEC, claimed, finish


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.create(tmp_path / "results")


@contextmanager
def mounted(place: Path, *options: str) -> Iterator[Path]:
    """A mount of its own; the test is skipped, with the reason, where this user may not mount."""
    place.mkdir(exist_ok=True)
    done = subprocess.run(
        ["mount", *options, str(place)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"cannot mount here: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    text = path.read_text()
    path.write_text(text.replace("1.5", "1.4") if "1.5" in text else text.replace("3", "4", 1))


@pytest.mark.parametrize("name", ["result.json", *DIGESTED, "log.txt"])
@pytest.mark.parametrize("harm", [cut, flip, Path.unlink, lambda p: p.write_bytes(b"\xff\xfe\x00")])
def test_a_damaged_run_is_set_aside_and_can_be_run_again(
    store: Store, name: str, harm: Any
) -> None:
    out = claimed(store)
    out.describe({"host": "here 3"})
    out.metric(Validation(step=10, val_loss=1.5, train_time_s=1.0))
    out.finish(DONE)
    assert store.repair(SPEC.run_id)[1] is None
    harm(out.run / name)
    if (out.run / "result.json").exists():
        _, wrong = store.repair(SPEC.run_id)
        assert wrong is not None
        assert name in wrong
        assert not out.run.exists()
        assert len(list((store.root / "aside").iterdir())) == 1
    again = claimed(store)
    finish(again)
    assert read_result(again.run) is not None


@pytest.mark.slow
def test_a_damaged_matrix_mends_itself(tmp_path: Path) -> None:
    matrix = Matrix(tmp_path)
    assert matrix.run()[0] == 0
    whole = matrix.table()
    runs = [run for runs in matrix.runs().values() for run in runs]
    for run, name in zip(runs, ["metrics.jsonl", "result.json", "config.yaml"], strict=False):
        cut(run / name)
    code, out, _ = matrix.run()
    assert code == 0
    assert out.count("set aside, it is run again") == 3
    assert "3 of 4 runs to do" in out
    assert matrix.table() == whole


@pytest.mark.slow
def test_a_results_folder_can_be_moved(tmp_path: Path) -> None:
    matrix = Matrix(tmp_path)
    assert matrix.run()[0] == 0
    before = matrix.table()
    moved = tmp_path / "elsewhere" / "results"
    moved.parent.mkdir()
    shutil.move(matrix.results, moved)
    matrix.results = moved
    assert matrix.table() == before
    assert "everything is finished" in matrix.run()[1]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_text(path, "old")

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_text(path, "new")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "old"


def test_a_torn_row_costs_itself_alone(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    append_row(path, {"a": 1})
    with path.open("ab") as file:
        file.write(b'{"a": 2, "te')
    append_row(path, {"a": 3})
    path.write_bytes(path.read_bytes() + b"\xff\n17\n")
    assert read_lines(path) == [{"a": 1}, {"a": 3}]


def test_the_first_failing_write_of_a_run_gives_it_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = os.fsync

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        UserError,
        match=r"results folder .*: No space left on device: make it writable, free some space",
    ):
        claim(store, SPEC)
    monkeypatch.setattr(os, "fsync", sync)
    finish(claimed(store))


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, out, err = Matrix(tmp_path, results=tmp_path / "file" / "results").run()
    assert (code, out) == (2, "")
    assert err.startswith(f"ablate: results folder {tmp_path}/file/results: Not a directory: ")
    assert err.count("\n") == 1


@pytest.mark.slow
def test_a_read_only_folder_is_one_line_and_can_be_read(tmp_path: Path) -> None:
    matrix = Matrix(tmp_path)
    assert matrix.run()[0] == 0
    whole, statuses = matrix.table(), matrix.statuses()
    with mounted(tmp_path / "read_only", "--bind", "-o", "ro", str(matrix.results)) as place:
        if os.access(place, os.W_OK):
            subprocess.run(["mount", "-o", "remount,ro,bind", str(place)], check=True)
        matrix.results = place
        code, _, err = matrix.run("--seeds", "3")
        assert code == 2
        assert err.startswith(
            f"ablate: results folder {place}: Read-only file system: make it writable"
        )
        assert err.count("\n") == 1
        assert matrix.table() == whole
        assert {i: s.status for i, s in Store(place).states()} == statuses


def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "-t", "tmpfs", "-o", "size=3m", "tmpfs") as place:
        matrix = Matrix(tmp_path, n_seeds=4, results=place / "results")
        ballast = place / "ballast"
        ballast.write_bytes(b"x" * (2 << 20))
        matrix.environment["FAKE_LOG_BYTES"] = str(200_000)
        code, _, err = matrix.run()
        assert code == 2
        assert err.count("\n") == 1
        assert "No space left on device" in err
        done = matrix.statuses()
        assert [s for s in Store(place / "results").states() if s[1].status == "running"] == []
        ballast.unlink()
        matrix.environment["FAKE_LOG_BYTES"] = "0"
        code, _, err = matrix.run()
        assert (code, err) == (0, "")
        assert matrix.statuses().items() >= done.items()
        assert matrix.trailing() == []
        assert set(matrix.statuses().values()) == {"finished"}
        json.loads((place / "results/experiments/fake/experiment.json").read_text())


@pytest.mark.parametrize("name", ["result.json", *SEALED])
def test_what_was_found_sound_is_read_again_only_when_a_file_changed(
    store: Store, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembered, "WORTH_WRITING", 1)
    monkeypatch.setattr(remembered, "FRESH_NS", 0)
    run = store.directory(SPEC.run_id)
    out = claimed(store)
    out.describe({"host": "here"})
    finish(out)
    first = VerifiedResults(store)
    assert first.status(SPEC.run_id) == ("finished", None)
    first.save()
    with monkeypatch.context() as blind:
        blind.setattr(Store, "repair", lambda store, run_id: pytest.fail("read again"))
        blind.setattr(verified, "examine", lambda *_, **__: pytest.fail("read again"))
        assert VerifiedResults(store).status(SPEC.run_id) == ("finished", None)
    before, text = (run / name).stat(), (run / name).read_text()

    def written_anew() -> bool:
        """At another tick of the file system's clock."""
        (run / name).write_text(text.swapcase())
        return (run / name).stat().st_ctime_ns != before.st_ctime_ns

    wait_for(written_anew)
    if name == "result.json":  # its size and its time as they were: it vouches for itself
        os.utime(run / name, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert VerifiedResults(store).status(SPEC.run_id)[0] is None
    assert not run.exists()


def test_what_a_runner_found_sound_is_read_in_whole_before_a_page_trusts_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page asks for more: every file read, not its size and time alone."""
    monkeypatch.setattr(remembered, "FRESH_NS", 0)
    finish(claimed(store))
    known = VerifiedResults(store)
    assert known.status(SPEC.run_id) == ("finished", None)
    found = known.known
    found.remembered, stats = found.learned, results.stats_of(f"{store.runs}/{SPEC.run_id}")
    assert found.status(SPEC.run_id, stats, whole=False) == "finished"
    assert found.status(SPEC.run_id, stats, whole=True) is None
    monkeypatch.setattr(remembered, "read_known", lambda *_: pytest.fail("taken as it was"))
    folder = store.directory(SPEC.run_id)
    assert remembered.examine_known(folder, SPEC.run_id, found)[1] is None
    assert found.status(SPEC.run_id, stats, whole=True) is not None


def test_a_run_without_a_result_or_with_a_damaged_one_has_no_status(store: Store) -> None:
    known = VerifiedResults(store)
    assert known.status("nowhere") == (None, None)
    out = claimed(store)
    assert known.status(SPEC.run_id) == (None, None)
    finish(out)
    path = out.run / "result.json"
    path.write_text(path.read_text().replace("finished", "diverged"))
    status, wrong = known.status(SPEC.run_id)
    assert status is None and wrong is not None and str(path) in wrong
    assert not out.run.exists()


@pytest.mark.parametrize(
    "layout",
    [
        lambda r: result_text(Result.from_json(r)),
        lambda r: json.dumps(r, indent=1),
        lambda r: json.dumps(dict(reversed(r.items()))),
    ],
)
def test_a_result_holds_its_digest_in_any_layout_and_with_no_other_number(
    store: Store, layout: Any
) -> None:
    out = claimed(store)
    out.describe({"host": "hier: «ä», \u2028 and \n"})
    finish(out)
    path = out.run / "result.json"
    result = json.loads(path.read_text())
    path.write_text(layout(result))
    assert examine(out.run, SPEC.run_id) == (Result.from_json(result), None)
    path.write_text(layout({**result, "val_loss": 1.0}))
    assert examine(out.run, SPEC.run_id)[1] == f"{path} is not the file that the run wrote"


def test_a_result_as_it_was_written_is_found_sound_without_encoding_it_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = claimed(store)
    finish(out)
    monkeypatch.setattr(results, "short_digest", lambda value: pytest.fail("encoded again"))
    assert examine(out.run, SPEC.run_id)[1] is None


def test_what_was_found_sound_is_no_more_than_a_cache(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembered, "WORTH_WRITING", 1)
    finish(claimed(store))
    fresh = VerifiedResults(store)
    monkeypatch.setattr(
        remembered, "FRESH_NS", 3600 * 10**9
    )  # however long it takes from there to here
    assert fresh.status(SPEC.run_id) == ("finished", None)
    assert fresh.known.learned == {}  # it could change within the grain of the clock
    monkeypatch.setattr(remembered, "FRESH_NS", 0)
    for content in ("", "[]", "{", f'{{"{SPEC.run_id}": 3}}'):
        fresh.known.path.parent.mkdir(exist_ok=True)
        fresh.known.path.write_text(content)
        assert VerifiedResults(store).status(SPEC.run_id) == ("finished", None)
    shutil.rmtree(fresh.known.path.parent)
    fresh.known.path.parent.write_text("in the way: nothing can be written")
    again = VerifiedResults(store)
    assert again.status(SPEC.run_id) == ("finished", None)
    again.save()
    assert len(again.known.learned) == 1


def test_what_a_call_has_run_is_not_read_by_the_next(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembered, "WORTH_WRITING", 1)
    monkeypatch.setattr(remembered, "FRESH_NS", 0)

    class OneRun:
        def __init__(
            self, missing: list[PlannedRun], store: Store, options: ExecutorOptions
        ) -> None:
            self.missing = missing

        def at_once(self) -> int:
            return 1

        def run(self) -> Summary:
            finish(claimed(store))
            return Summary(statuses={SPEC.run_id: "finished"})

    planned = [PlannedRun(arm="baseline", block=0, place=0, spec=SPEC)]
    assert complete(store, planned, OneRun, ExecutorOptions(experiment="fake")).had_result == {}
    monkeypatch.setattr(Store, "repair", lambda store, run_id: pytest.fail("read again"))
    assert complete(store, planned, OneRun, ExecutorOptions(experiment="fake")).had_result == {
        SPEC.run_id: "finished"
    }


def test_a_seed_moves_the_digest_as_the_definition_says() -> None:
    odd = replace(SPEC, data_name='é "seed":null, {seed}', runs_in={"python": "/seed"})
    for first in (SPEC, odd):
        for seed in (0, 7, 12345):
            spec = first.at_seed(seed)
            assert spec == replace(first, seed=seed)
            asked = {**spec.asked(), "config": short_digest(spec.config)}
            assert spec.intent_id == short_digest(asked)
            assert spec.run_id == replace(first, seed=seed).run_id


def test_what_is_replaced_in_a_run_at_another_seed_moves_its_name() -> None:
    spec = SPEC.at_seed(7)
    other = replace(spec, config={"model": {"n_layer": 3}})
    assert other.at_seed(7) == other
    assert len({spec.intent_id, other.intent_id, other.at_seed(8).intent_id}) == 3
    sent = pickle.loads(pickle.dumps(spec))  # as the ranks of a group hand it on
    assert (sent, sent.at_seed(8).run_id) == (spec, spec.at_seed(8).run_id)
    assert replace(spec, source_digest="d" * 16).intent_id == spec.intent_id
    assert replace(spec, source_digest="d" * 16).run_id != spec.run_id
