"""One sick GPU does not eat the queue: it is retired, its runs go elsewhere; what fails everywhere is the runs' own fault."""

import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.node.slots import Node
from harness.run.retired import Retired, read_retired
from harness.run.spec import PlannedRun
from harness.runner import trainers
from harness.runner.execute import Execution
from harness.runner.executor import ExecutorOptions, Summary
from harness.runner.health import NOTHING, Finding, Health, tell_retired
from harness.runner.local import Runner
from harness.runner.messages import WorkerEvent
from harness.store.store import Store
from reports.inputs.load import load
from tests.fake_driver import FakeDriver
from tests.fake_matrix import Matrix, ablate
from tests.harness.runner.piped import piped
from tests.one_run import SPEC

N_SEEDS = 5
CONFIG = {"system": {"compile": "off"}, "timing": {"exclusive_node": False}}


def matrix_on_gpus(folder: Path, kind: str) -> Matrix:
    fake = {str(seed): kind for seed in range(N_SEEDS)}
    driver = FakeDriver(folder, 4)
    environment = {"CUDA_VISIBLE_DEVICES": "0,1,2,3", "FAKE_MARKS": str(folder)}
    return Matrix(folder, n_seeds=N_SEEDS, FAKE=fake, **environment, **driver.environment)


def test_a_gpu_that_fails_every_run_is_retired_and_its_runs_go_elsewhere(tmp_path: Path) -> None:
    matrix = matrix_on_gpus(tmp_path, "bad gpus 2")
    code, out, err = matrix.run("--set", "system.compile=off")
    assert code == 0, out + err
    assert set(matrix.statuses().values()) == {"finished"}
    ends = [end for seed in range(N_SEEDS) for run in matrix.ends(seed) for end in run]
    assert ends.count("finished") == 2 * N_SEEDS
    assert ends.count("failed") == 2
    experiment = matrix.results / "experiments" / "fake"
    (retired,) = read_retired(experiment)
    assert retired.place.startswith("GPU 2 of ")
    assert "uncorrectable ECC error" in retired.words
    assert retired.words in out
    assert retired.words in ablate(matrix, "status", "fake").out
    page = tmp_path / "page.html"
    assert ablate(matrix, "report", "fake", "-o", str(page)).code == 0
    assert retired.place in page.read_text()
    assert ablate(matrix, "verify", str(page)).code == 0
    assert load("fake", results=str(matrix.results)).retired == (retired.words,)


@pytest.mark.slow
def test_runs_that_fail_on_every_gpu_retire_none(tmp_path: Path) -> None:
    matrix = matrix_on_gpus(tmp_path, "raise")
    code, out, _ = matrix.run("--set", "system.compile=off")
    assert code == 1
    assert matrix.statuses() == {}
    assert read_retired(matrix.results / "experiments" / "fake") == []
    assert "0 of 10 runs have a result" in out
    for seed in range(N_SEEDS):
        for ends in matrix.ends(seed):
            assert ends in (["failed"], ["failed", "failed"])  # tried elsewhere once at most


def on_one_gpu_after_another(
    store: Store, gpus: Sequence[str], fails: Callable[[int, str], bool]
) -> tuple[Summary, list[tuple[int, str]]]:
    """Of three runs of a call: how it ended, and seed and GPU of all that began; fails: a seed on a GPU."""
    runs = [
        PlannedRun(arm="base", block=n, place=0, spec=replace(SPEC, seed=n, config=CONFIG))
        for n in range(3)
    ]
    begun: list[tuple[int, str]] = []

    def execute_here(worker: Any, run: Execution) -> WorkerEvent:
        begun.append((run.spec.seed, worker.slot.gpus[0]))
        if fails(*begun[-1]):
            return WorkerEvent(status="failed", reason="ECC error")
        return WorkerEvent(status="finished")

    (store.root / "experiments" / "fake").mkdir()
    node = Node(gpus=gpus, max_parallel=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainers, "execute", execute_here)
        summary = Runner(runs, store, node, ExecutorOptions(experiment="fake")).run()
    return summary, begun


def test_here_a_gpu_is_kept_out_while_another_is_tried_and_retired_where_that_does_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store.create(tmp_path)
    summary, begun = on_one_gpu_after_another(store, "01", lambda seed, gpu: gpu == "0")
    assert begun == [(0, "0"), (1, "0"), (1, "1"), (0, "1"), (2, "1")]
    assert set(summary.statuses.values()) == {"finished"} and summary.reasons == {}
    (retired,) = read_retired(tmp_path / "experiments" / "fake")
    assert retired.place == f"GPU 0 of {socket.gethostname()}"
    assert (retired.n_failed, retired.reason) == (2, "ECC error")
    assert capsys.readouterr().out == f"{retired.words}; its runs go elsewhere\n"


def test_here_a_gpu_is_used_again_where_its_runs_fail_on_another_too(tmp_path: Path) -> None:
    store = Store.create(tmp_path)
    summary, begun = on_one_gpu_after_another(store, "01", lambda seed, gpu: seed < 2)
    assert begun == [(0, "0"), (1, "0"), (1, "1"), (2, "0")]
    assert [*summary.statuses.values()] == ["failed", "failed", "finished"]
    assert read_retired(tmp_path / "experiments" / "fake") == []
    (tmp_path / "experiments" / "fake").rmdir()
    _, begun = on_one_gpu_after_another(store, "0", lambda seed, gpu: seed < 2)
    assert begun == [(0, "0"), (1, "0"), (2, "0")], "there is no other"


def test_the_first_reason_that_was_told_is_told_of_a_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown_so_far = piped(monkeypatch)
    for reasons in ({"b": "ECC error", "c": "later"}, {"a": ""}):
        tell_retired(Finding(failed=("a", "b", "c")), "GPU 0 of n1", reasons, tmp_path)
    first, second = read_retired(tmp_path)
    assert (first.reason, second.reason) == ("ECC error", "no reason was told")
    places = [f"{retired.words}; its runs go elsewhere\n" for retired in (first, second)]
    assert shown_so_far() == "".join(places)


BAD, GOOD = ("2",), ("0",)


def end(
    health: Health, run_id: str, place: tuple[str, ...], status: str, **more: object
) -> Finding:
    facts = {"seconds": 1.0, "can_spare": True} | more
    return health.ended(run_id, place, status=status, **facts)  # type: ignore[arg-type]


def test_two_failures_in_a_row_are_looked_into_elsewhere() -> None:
    health = Health()
    assert end(health, "a", BAD, "failed") is NOTHING
    assert end(health, "b", BAD, "failed", seconds=60.0) == Finding(again=("b",), kept_out=BAD)
    assert end(health, "b", GOOD, "finished") == Finding(
        again=("a",), retired=BAD, failed=("a", "b")
    )
    assert end(health, "a", GOOD, "finished") is NOTHING


def test_runs_that_were_on_a_place_before_it_was_suspected_or_retired_go_elsewhere_too() -> None:
    health = Health()
    for run_id in ("a", "b", "c"):
        end(health, run_id, BAD, "failed")
    found = end(health, "b", GOOD, "finished")
    assert found == Finding(again=("a", "c"), retired=BAD, failed=("a", "b", "c"))
    assert end(health, "d", BAD, "failed") == Finding(again=("d",))
    assert end(health, "d", BAD, "failed") is NOTHING


def test_what_fails_elsewhere_too_frees_the_place_and_is_not_tried_a_third_time() -> None:
    health = Health()
    end(health, "a", BAD, "failed")
    end(health, "b", BAD, "failed")
    assert end(health, "b", GOOD, "failed") == Finding(freed=BAD)
    assert health.in_a_row == {}
    end(health, "c", GOOD, "failed")
    assert end(health, "b", GOOD, "failed") is NOTHING


def test_what_is_no_sign_of_a_sick_place() -> None:
    health = Health()
    end(health, "a", BAD, "failed")
    assert end(health, "b", BAD, "finished") is NOTHING  # in between
    assert end(health, "c", BAD, "failed") is NOTHING
    assert end(health, "d", BAD, "failed", seconds=60.1) is NOTHING
    assert end(health, "e", BAD, "oom") is NOTHING
    assert end(health, "f", BAD, "failed", can_spare=False) is NOTHING
    assert health.untold("a") is NOTHING
    assert end(health, "g", BAD, "failed").kept_out == BAD
    assert health.untold("g") == Finding(freed=BAD)


def test_what_was_retired_is_told_with_its_minute() -> None:
    retired = Retired(
        at="2026-11-25T07:09:26+00:00", place="GPU 2 of n1", n_failed=3, reason="ECC error"
    )
    assert retired.words == (
        "GPU 2 of n1 was retired at 2026-11-25T07:09: 3 runs in a row failed there at once and did "
        "well elsewhere (ECC error)"
    )
