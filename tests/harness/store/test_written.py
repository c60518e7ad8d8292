"""A result vouches for what its attempt wrote: files that somebody changed while the run was made are under no seal."""

import os
from pathlib import Path
from typing import Any

import pytest

from harness.run.metrics import Validation
from harness.run.results import GROWING, examine, stats_of
from harness.run.spec import TRUNK_FILE
from harness.store.store import Store
from tests.fake_matrix import Matrix
from tests.one_run import DONE, SPEC, claimed, finish


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def another_digit(path: Path) -> None:
    path.write_text(path.read_text().replace("3", "4", 1))


def another_word(path: Path) -> None:
    """Of the same length, in the middle."""
    path.write_text(path.read_text().replace("a word", "b word").replace('"attempt"', '"attemqt"'))


def emptied(path: Path) -> None:
    path.write_text("")


@pytest.mark.parametrize("name", ["config.yaml", "environment.json", "metrics.jsonl"])
@pytest.mark.parametrize("harm", [cut, another_digit, Path.unlink])
def test_files_that_changed_while_a_run_was_made_give_no_result(
    tmp_path: Path, name: str, harm: Any
) -> None:
    store = Store.create(tmp_path / "results")
    out = claimed(store)
    out.describe({"host": "here 3"})
    out.metric(Validation(step=3, val_loss=2.5, train_time_s=0.3))
    out.forget_metrics()
    out.metric(Validation(step=3, val_loss=1.5, train_time_s=1.0))
    assert out.checked(DONE) == DONE
    harm(out.run / name)
    failed = out.checked(DONE)
    assert (failed.status, failed.reason) == (
        "failed",
        f"its files changed while it ran ({name})",
    )
    out.finish(failed)
    assert not (out.run / "result.json").exists()
    finish(claimed(store))
    assert store.repair(SPEC.run_id)[1] is None


@pytest.mark.parametrize("name", GROWING)
@pytest.mark.parametrize("harm", [cut, another_word, emptied, Path.unlink])
def test_a_file_that_others_write_into_holds_at_the_end_what_the_run_wrote(
    tmp_path: Path, name: str, harm: Any
) -> None:
    store = Store.create(tmp_path / "results")
    out = claimed(store)
    out.describe({"host": "here"})
    out.log("a word")
    out.metric(Validation(step=10, val_loss=1.5, train_time_s=1.0))
    with (out.run / name).open("a") as file:
        file.write("{}\n")  # a warning of a library, a row of a runner
    os.write(out.log_file.fileno(), b"printed by a library, no line")
    out.log("the last word")
    assert out.checked(DONE) == DONE
    harm(out.run / name)
    failed = out.checked(DONE)
    assert (failed.status, failed.reason) == ("failed", f"its files changed while it ran ({name})")
    assert out.finish(failed)
    assert not (out.run / "result.json").exists()
    finish(claimed(store))
    assert store.repair(SPEC.run_id)[1] is None


@pytest.mark.parametrize(
    "options",
    [(), pytest.param(("--worker", "fresh"), marks=pytest.mark.slow)],
)
def test_a_worker_whose_files_changed_says_so_and_its_run_is_made_again(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    matrix = Matrix(tmp_path, n_seeds=1, FAKE={"0": "hold once"})
    process = matrix.start("--max-parallel", "1", *options)
    matrix.at("hold", 1)
    (mark,) = tmp_path.glob("at hold *")
    cut(matrix.results / "runs" / mark.name.split()[2] / "metrics.jsonl")
    (tmp_path / "go").touch()
    out, err = process.communicate()
    assert (process.returncode, err) == (1, "")
    assert "failed: its files changed while it ran (metrics.jsonl)" in out
    assert matrix.run()[0] == 0
    assert sorted(matrix.ends(0)) == [["failed", "finished"], ["finished"]]
    assert matrix.trailing() == []


def test_a_trunk_is_vouched_for_too_and_is_read_where_it_may_have_changed(tmp_path: Path) -> None:
    store = Store.create(tmp_path)
    out = claimed(store)
    out.save(TRUNK_FILE, lambda file: file.write(b"weights"))
    finish(out)
    trunk, written = out.run / TRUNK_FILE, (out.run / "result.json").stat().st_mtime_ns

    def wrong() -> list[str | None]:
        """Without the facts of its files, and with them."""
        stats = (None, stats_of(str(out.run)))
        return [examine(out.run, SPEC.run_id, stats=facts)[1] for facts in stats]

    assert wrong() == [None, None]
    trunk.write_bytes(b"changed")
    said = f"{trunk} is not the file that the run wrote"
    os.utime(trunk, ns=(written + 1, written + 1))
    assert wrong() == [said, said]
    os.utime(trunk, ns=(written, written))  # as one that nobody touched: too large to be read
    assert wrong() == [said, None]
