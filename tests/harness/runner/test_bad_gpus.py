"""One sick GPU does not eat the queue: it is retired, its runs go elsewhere; what fails everywhere is the runs' own fault."""

from pathlib import Path

import pytest

from harness.run.retired import Retired, read_retired
from harness.runner.health import NOTHING, Finding, Health
from reports.inputs.load import load
from tests.fake_driver import FakeDriver
from tests.fake_matrix import Matrix, ablate

N_SEEDS = 5


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


BAD, GOOD = ("2",), ("0",)


def end(
    health: Health, run_id: str, place: tuple[str, ...], status: str, **more: object
) -> Finding:
    facts = {"seconds": 1.0, "can_spare": True} | more
    return health.ended(run_id, place, status=status, **facts)  # type: ignore[arg-type]


def test_two_failures_in_a_row_are_looked_into_elsewhere() -> None:
    health = Health()
    assert end(health, "a", BAD, "failed") is NOTHING
    assert end(health, "b", BAD, "failed") == Finding(again=("b",), kept_out=BAD)
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
    assert end(health, "d", BAD, "failed", seconds=600.0) is NOTHING
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
