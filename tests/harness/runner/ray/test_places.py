"""Where runs go on a cluster of Ray's, and what comes back from a node that does not see the folder; without Ray."""

import os
from collections import Counter
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest

from harness.run.attempts import read_attempts
from harness.run.results import read_result
from harness.run.spec import Outcome, PlannedRun
from harness.runner.executor import ExecutorOptions
from harness.runner.messages import WorkerEvent
from harness.runner.ray.incoming import packed, take_in
from harness.runner.ray.places import Need, RayNode, kinds_of_blocks, need_of, selector
from harness.store.claims import last_attempt
from harness.store.store import Store
from tests.harness.store.test_ends import SPEC, claimed
from tests.one_run import finish

ONE = ExecutorOptions()
NODES = [
    RayNode(name="a", kind="H100", gpus=8, cpus=64),
    RayNode(name="b", kind="A100", gpus=4, cpus=32),
    RayNode(name="c", kind="", gpus=0, cpus=16),
]


def planned(
    block: int = 0, *, size: int = 1, device: str = "cuda", exclusive: bool = False
) -> PlannedRun:
    config = {**SPEC.config, "timing": {"exclusive_node": exclusive}}
    spec = replace(SPEC, world_size=size, device=device, config=config)
    return PlannedRun(arm="baseline", block=block, place=0, spec=spec)


def test_a_process_needs_a_gpu_and_a_cpu_or_a_cpu_alone() -> None:
    assert need_of(planned(size=4), ONE, NODES) == Need(gpus=4, cpus=4)
    assert need_of(planned(size=4), ExecutorOptions(n_nodes=2), NODES) == Need(gpus=2, cpus=2)
    assert need_of(planned(size=3, device="cpu"), ONE, NODES) == Need(gpus=0, cpus=3)


def test_a_timing_run_needs_the_whole_of_the_largest_node_that_has_room() -> None:
    assert need_of(planned(size=2, exclusive=True), ONE, NODES) == Need(gpus=8, cpus=64)
    assert need_of(planned(size=2, exclusive=True), ONE, NODES[1:]) == Need(gpus=4, cpus=32)
    assert need_of(planned(size=16, exclusive=True), ONE, NODES) == Need(gpus=16, cpus=16)


def test_blocks_have_one_class_each_in_proportion_to_its_room() -> None:
    runs = [planned(block) for block in range(12)]
    needs = {run.spec.run_id: Need(gpus=1, cpus=1) for run in runs}
    kinds = kinds_of_blocks(runs, needs, NODES)
    assert Counter(kinds.values()) == {"H100": 8, "A100": 4}
    assert sorted(kinds) == list(range(12))
    assert [kinds[block] for block in range(3)] == ["H100", "A100", "H100"]


@pytest.mark.parametrize(
    ("gpus", "cpus", "rooms"),
    [
        (1, 1, [8, 4, 0]),
        (3, 20, [2, 1, 0]),
        (0, 17, [3, 1, 0]),
        (0, 16, [4, 2, 1]),
        (5, 1, [1, 0, 0]),
    ],
)
def test_a_node_has_room_for_whole_runs_alone(gpus: int, cpus: int, rooms: list[int]) -> None:
    need = Need(gpus=gpus, cpus=cpus)
    assert [need.room(node) for node in NODES] == rooms
    assert [need.fits(node) for node in NODES] == [room > 0 for room in rooms]


def test_where_one_class_alone_has_room_no_block_is_bound_to_it() -> None:
    runs = [planned(block, size=8) for block in range(3)]
    needs = {run.spec.run_id: Need(gpus=8, cpus=8) for run in runs}
    assert kinds_of_blocks(runs, needs, NODES) == {}


@pytest.mark.parametrize(
    ("kind", "kept_off", "asked"),
    [
        (None, [], {}),
        ("H100", [], {"ray.io/accelerator-type": "H100"}),
        (None, ["b", "a"], {"ray.io/node-id": "!in(a,b)"}),
        ("H100", ["a"], {"ray.io/accelerator-type": "H100", "ray.io/node-id": "!in(a)"}),
        ("", [], {"ray.io/node-id": "in(c)"}),
        ("", ["c"], {}),
    ],
)
def test_what_ray_is_asked_for(
    kind: str | None, kept_off: list[str], asked: dict[str, str]
) -> None:
    assert selector(kind, kept_off, NODES) == asked


# ---------------------------------------------------------------- what comes back


@pytest.fixture
def here(tmp_path: Path) -> Store:
    return Store.create(tmp_path / "here")


@pytest.fixture
def there(tmp_path: Path) -> Store:
    return Store.create(tmp_path / "there")


def test_a_failed_run_brings_its_reason_and_its_log(here: Store, there: Store) -> None:
    out = claimed(there)
    out.log("the last line")
    out.finish(Outcome(status="failed", reason="it broke"))
    event = WorkerEvent(status="failed", reason="it broke")
    assert take_in(here, SPEC.run_id, event, packed(there.root), node="n1") == event
    [row] = read_attempts(here.directory(SPEC.run_id))
    assert (row.status, row.reason, row.node) == ("failed", "it broke", "n1")
    log = here.directory(SPEC.run_id) / "log.txt"
    assert "the last line" in log.read_text()
    log.write_text("of another attempt\n")
    take_in(here, SPEC.run_id, event, packed(there.root), node="n1")
    assert log.read_text() == "of another attempt\n", "what is here stays"
    silent = WorkerEvent(status="preempted")
    assert take_in(here, SPEC.run_id, silent, packed(there.root), node="n2") == silent
    *_, row = read_attempts(here.directory(SPEC.run_id))
    assert (row.status, row.reason or "", row.node) == ("preempted", "", "n2")


def test_files_of_any_age_are_packed(there: Store) -> None:
    """An archive alone would refuse what is dated before 1980, as clocks that are not set date it."""
    old = there.root / "old.txt"
    old.write_text("x")
    os.utime(old, (0, 0))
    with ZipFile(BytesIO(packed(there.root))) as archive:
        assert archive.read("old.txt") == b"x"


def test_a_result_whose_files_do_not_hold_is_none(here: Store, there: Store) -> None:
    out = claimed(there)
    out.describe({"host": "there"})
    out.finish(Outcome(status="diverged", reason="the loss was not finite"))
    (there.directory(SPEC.run_id) / "metrics.jsonl").write_text("another\n")
    event = WorkerEvent(status="diverged")
    told = take_in(here, SPEC.run_id, event, packed(there.root), node="n1")
    assert told.status == "failed"
    assert "metrics.jsonl" in (told.reason or "")
    assert read_result(here.directory(SPEC.run_id)) is None
    assert last_attempt(here.directory(SPEC.run_id)) == 0


def test_a_sound_result_comes_with_all_its_files(here: Store, there: Store) -> None:
    finish(claimed(there))
    event = WorkerEvent(status="finished", val_loss=1.5)
    assert take_in(here, SPEC.run_id, event, packed(there.root), node="n1") == event
    assert read_result(here.directory(SPEC.run_id)) == read_result(there.directory(SPEC.run_id))
