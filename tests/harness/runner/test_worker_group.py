"""What a further rank of a group does; what the first one would share with it is said here."""

import gc
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.run.spec import Outcome, RunSpec
from harness.runner import worker_group
from harness.runner.messages import WorkerRequest
from harness.runner.worker_group import RankGroup
from harness.store.store import Store
from tests.one_run import DONE, SPEC


class Further(RankGroup):
    """A second rank, which ends with what is shared."""

    def __init__(self, shared: Iterable[Any]) -> None:
        self.rank, self.shared = 1, iter(shared)

    def share(self, value: Any) -> Any:
        return next(self.shared)


@pytest.fixture(autouse=True)
def _collected_quickly() -> Iterator[None]:
    """After every request a rank collects garbage, among all that the tests before have imported."""
    gc.freeze()
    yield
    gc.unfreeze()


def test_a_further_rank_trains_what_the_first_one_has_until_its_process_is_ended(
    tmp_path: Path,
) -> None:
    Store.create(tmp_path / "results")
    trained: list[int] = []

    def train(spec: RunSpec, **_: Any) -> Outcome:
        trained.append(spec.seed)
        return DONE

    specs = [replace(SPEC, seed=seed) for seed in (1, 2, 3)]
    first, taken, third = (
        WorkerRequest(results=tmp_path / "results", spec=spec, token="a token") for spec in specs
    )
    with pytest.raises(StopIteration):
        Further([first, 1, taken, None, third, 1]).follow_requests(train)
    assert trained == [1, 3]  # another runner has the second


def test_a_rank_that_fails_leaves_its_reason_and_gives_the_first_one_time_to_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, waited = Store.create(tmp_path / "results"), []

    def train(spec: RunSpec, **_: Any) -> Outcome:
        raise ValueError("its shard is not there")

    def end(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(worker_group, "time", SimpleNamespace(sleep=waited.append))
    monkeypatch.setattr(os, "_exit", end)
    attempt = store.directory(SPEC.run_id) / "attempts" / "2"
    attempt.mkdir(parents=True)
    request = WorkerRequest(results=store.root, spec=SPEC, token="a token")
    with pytest.raises(SystemExit, match="1"):
        Further([request, 2]).follow_requests(train)
    told = json.loads((attempt / "rank1.json").read_text())
    assert told == {"status": "failed", "reason": "rank 1: ValueError: its shard is not there"}
    Further([]).wait_after_failure()
    assert waited == [10.0, 3.0], "the first rank ends after the others have told, before they end"


def test_what_the_first_rank_shares_comes_to_all_of_its_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    def broadcast(box: list[Any], **how: Any) -> None:
        asked.append((*box, how))
        box[0] = "theirs"

    def new_group(**how: Any) -> str:
        asked.append(how)
        return "a group"

    together = SimpleNamespace(new_group=new_group, broadcast_object_list=broadcast)
    monkeypatch.setattr(worker_group, "dist", together)
    monkeypatch.setattr(worker_group, "join_group", lambda n, device: 10 * n + len(device))
    ranks = RankGroup(2, "cpu")
    assert ranks.rank == 23
    assert ranks.share("mine") == "theirs"
    assert asked == [
        {"backend": "gloo", "timeout": timedelta(days=365)},
        ("mine", {"src": 0, "group": "a group"}),
    ]
