"""What a further rank of a group does; what the first one would share with it is said here."""

import gc
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.run.spec import Outcome, RunSpec
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
