"""The device is part of the plan: a driver that fails never turns a matrix for GPUs into one for the CPU."""

from pathlib import Path

import pytest

from harness.errors import UserError
from harness.node import nvidia
from harness.node.nvidia import list_gpus
from harness.run.plan import Plan
from harness.run.read import read_json
from tests.fake_driver import FakeDriver
from tests.fake_matrix import Matrix, ablate

N = 2  # arms, so runs of a seed
OFF = ("--set", "system.compile=off")


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return FakeDriver(tmp_path, 2)


@pytest.mark.slow
def test_a_driver_that_fails_plans_nothing_anew_on_the_cpu(
    tmp_path: Path, driver: FakeDriver
) -> None:
    matrix = Matrix(tmp_path, n_seeds=2, FAKE={"1": "raise once"}, **driver.environment)
    assert matrix.run(*OFF)[0] == 1
    plan = Plan.from_mapping(read_json(matrix.results / "experiments" / "fake" / "experiment.json"))
    assert plan.device == "cuda"
    before = matrix.statuses()
    assert len(before) == 2 * N - 1
    for how, words in (
        (
            "broken",
            "experiment 'fake' was planned on cuda, and this call would plan it anew on cpu",
        ),
        ("silent", "nvidia-smi does not answer within 1 s"),
    ):
        driver.be(how)
        if how == "silent":  # a driver that answers has as long as it ever has
            matrix.environment["FAKE_DRIVER_S"] = "1"
        code, out, err = matrix.run(*OFF)
        assert (code, out) == (2, "")
        assert words in err
        assert len(err.splitlines()) == 1
        assert matrix.statuses() == before
        driver.recover()
    matrix.environment.pop("FAKE_DRIVER_S")
    driver.be("broken")
    planned = ablate(matrix, "plan", str(matrix.file), *OFF)
    assert f"{2 * N - 1} done" in planned.out, planned.out + planned.err
    driver.recover()
    assert matrix.run(*OFF)[0] == 0
    assert matrix.statuses().items() > before.items()
    assert len(matrix.statuses()) == 2 * N
    driver.be("broken")
    code, out, err = matrix.run(*OFF, "--set", "device=cpu")
    assert code == 0, out + err
    assert len(matrix.statuses()) == 4 * N
    driver.recover()
    code, _, err = matrix.run(*OFF)
    assert code == 2
    assert "was planned on cpu" in err


def test_a_driver_that_fails_is_told_only_where_a_gpu_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no nvidia-smi
    monkeypatch.setattr(nvidia, "DEVICES", tmp_path)
    (tmp_path / "nvidiactl").touch()
    assert list_gpus() == []
    (tmp_path / "nvidia0").touch()
    with pytest.raises(UserError, match="nvidia-smi fails on a node with GPUs"):
        list_gpus()


def test_a_plan_for_gpus_does_not_run_where_there_are_none(tmp_path: Path) -> None:
    matrix = Matrix(tmp_path, n_seeds=1, CUDA_VISIBLE_DEVICES="")
    code, _, err = matrix.run(*OFF, "--set", "device=cuda")
    assert code == 2
    assert "planned on cuda, and this node shows no GPU" in err
    code, _, err = matrix.run("--set", "device=gpu")
    assert (code, err) == (2, "ablate: --set device=gpu: must be cpu or cuda\n")
