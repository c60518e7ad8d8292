"""A results folder: a damaged run is mended by one, what cannot be written names the folder, what is no step is none."""

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.run.read import read_lines
from harness.run.results import read_result
from harness.store import store as store_module
from harness.store.errors import ResultsError
from harness.store.shown import ShownProgress
from harness.store.state import Progress
from harness.store.store import Store
from tests.fake_matrix import DEADLINE_S
from tests.one_run import SPEC, claimed, finish


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.create(tmp_path / "results")


def full(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_damaged_run_that_another_runner_mends_is_waited_for(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(claimed(store))
    path = store.directory(SPEC.run_id) / "metrics.jsonl"
    sound = path.read_text()
    path.write_text(sound.replace("1.5", "1.4"))
    held = store.hold(SPEC.run_id)
    assert held is not None and store.hold(SPEC.run_id) is None
    waited: list[float] = []

    def mend(seconds: float) -> None:
        waited.append(seconds)
        path.write_text(sound)
        store.let_go(SPEC.run_id, held)

    monkeypatch.setattr(store_module, "time", SimpleNamespace(sleep=mend, time=None))
    result = read_result(path.parent)
    assert store.repair(SPEC.run_id) == (result, None) and result is not None
    assert len(waited) == 1
    path.write_text(sound.replace("1.5", "1.4"))
    found, wrong = store.repair(SPEC.run_id)
    assert found is None and "metrics.jsonl" in (wrong or "")
    assert not path.exists() and len([*(store.root / "aside").iterdir()]) == 1


def test_nothing_is_held_of_a_run_that_is_not_there_or_is_moved_away(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object, **__: object) -> None:
        raise FileNotFoundError

    assert store.hold("none") is None
    claimed(store).release()
    monkeypatch.setattr(store_module, "take", gone)
    assert store.hold(SPEC.run_id) is None
    monkeypatch.setattr(store_module, "take", full)
    with pytest.raises(ResultsError, match="No space left on device"):
        store.hold(SPEC.run_id)


def in_the_way(store: Store) -> None:
    (store.root / "aside").write_text("")
    store.set_aside(SPEC.run_id)


def lost(store: Store) -> None:
    (store.runs / "lost").write_text("")
    store.note_lost("lost", status="failed", reason="why")


@pytest.mark.parametrize(
    "write",
    [
        in_the_way,
        lost,
        lambda store: store.note_end(SPEC.run_id, token="mine", status="failed", reason="why"),
    ],
)
def test_what_cannot_be_written_names_the_results_folder(
    store: Store, monkeypatch: pytest.MonkeyPatch, write: Callable[[Store], None]
) -> None:
    out = claimed(store)
    out.release()
    path = out.run / "attempts.jsonl"
    path.write_text(path.read_text().replace('"token": ""', '"token": "mine"'))
    monkeypatch.setattr(store_module, "note_attempt", full)
    with pytest.raises(ResultsError, match=str(store.root)):
        write(store)


def test_a_run_that_was_lost_before_it_began_has_an_end(store: Store) -> None:
    for _ in range(2):
        store.note_lost("r", status="failed", reason="no such node", node="n1")
    first, second = read_lines(store.directory("r") / "attempts.jsonl")
    for row in (first, second):
        assert (row["attempt"], row["status"], row["reason"]) == (None, "failed", "no such node")
        assert row["node"] == "n1"


@pytest.mark.parametrize(
    ("content", "step"),
    [("[]", None), ('{"step": "x"}', None), ('{"step": 4, "steps": 10, "val_loss": 2.5}', 4)],
)
def test_what_is_no_step_is_none(store: Store, content: str, step: Any) -> None:
    out = claimed(store)
    assert store.progress(SPEC.run_id) is None
    (out.folder / "progress.json").write_text(content)
    shown = store.progress(SPEC.run_id)
    assert (None if shown is None else shown.step) == step
    out.release()


@pytest.mark.parametrize("mine", [True, False])
def test_progress_that_has_no_folder_any_more_is_an_error_while_the_run_is_ours(
    tmp_path: Path, mine: bool
) -> None:
    asked = threading.Event()

    def still_mine() -> bool:
        asked.set()
        return mine

    shown = ShownProgress(tmp_path / "set aside", still_mine)
    shown.show(Progress(step=1))
    assert asked.wait(DEADLINE_S)
    shown.end()
    assert isinstance(shown.error, FileNotFoundError) == mine
