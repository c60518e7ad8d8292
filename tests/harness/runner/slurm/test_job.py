"""What a job asks for, which GPUs it finds, and who compiles first on its node."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UserError
from harness.run.spec import PlannedRun
from harness.runner.executor import ExecutorOptions
from harness.runner.kernels import TurnToCompile, kernel_cache
from harness.runner.limits import RunLimits
from harness.runner.slurm.cluster import Cluster
from harness.runner.slurm.job import Job, gpus_of_job
from harness.runner.slurm.send import PASS_ON, sbatch_options
from harness.runner.trainers import OwnTrainer
from tests.fake_driver import FakeDriver
from tests.one_run import SPEC

NAMES = ("CUDA_VISIBLE_DEVICES", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS")


@pytest.mark.parametrize(
    ("site", "size", "n_nodes", "cpus"),
    [
        ({}, 8, 1, 64),
        ({}, 8, 2, 32),
        ({"gres": "gpu:1"}, 1, 1, 8),
        ({"cpus_per_task": "3"}, 8, 1, "3"),
        ({"cpus_per_gpu": "3"}, 8, 1, None),
    ],
)
def test_every_gpu_of_a_job_has_its_cpus(
    site: dict[str, Any], size: int, n_nodes: int, cpus: object
) -> None:
    options = ExecutorOptions(n_nodes=n_nodes)
    config = {"timing": {"exclusive_node": False}}
    spec = replace(SPEC, config=config, world_size=size, device="cuda")
    run = PlannedRun(spec=spec, arm="a", place=0, block=0)
    assert sbatch_options(Cluster(sbatch=site), run, options).get("cpus_per_task") == cpus
    run = replace(run, spec=replace(spec, device="cpu"))
    on_cpus = sbatch_options(Cluster(device="cpu"), run, options)
    assert on_cpus["cpus_per_task"] == size // n_nodes


def test_srun_is_told_of_the_cpus() -> None:
    for given, told in (("8", "8"), ("", "none")):
        script = f"{PASS_ON}\necho ${{SRUN_CPUS_PER_TASK:-none}}"
        environment = {**os.environ, "SLURM_CPUS_PER_TASK": given}
        out = subprocess.run(
            ["bash", "-c", script], env=environment, capture_output=True, text=True, check=True
        )
        assert out.stdout.strip() == told


@pytest.mark.parametrize(
    ("variables", "n", "found"),
    [
        ({}, 4, ("0", "1", "2", "3")),  # nothing is set: all are hidden no longer
        ({"SLURM_JOB_GPUS": "2,3"}, 2, ("2", "3")),
        ({"SLURM_JOB_GPUS": "0,1,2,3", "SLURM_STEP_GPUS": "1"}, 1, ("1",)),
        ({"CUDA_VISIBLE_DEVICES": "1,3"}, 2, ("1", "3")),
        ({"CUDA_VISIBLE_DEVICES": "GPU-2"}, 1, ("GPU-2",)),
        ({"CUDA_VISIBLE_DEVICES": "1,3"}, 1, ("1", "3")),
        ({}, 2, "nothing says which 2 are this job's: add `setup: "),
        ({"SLURM_JOB_GPUS": "7"}, 1, "nothing says which 1 are this job's: add `setup: "),
        ({"CUDA_VISIBLE_DEVICES": ""}, 1, "shows 0 GPUs .* add `gpus-per-node: 1` to cluster.yaml"),
        ({}, 8, "shows 4 GPUs .* add `gpus-per-node: 8` to cluster.yaml"),
    ],
)
def test_a_job_finds_its_gpus_or_says_what_to_add(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    n: int,
    found: tuple[str, ...] | str,
    kept_line: Callable[[str], None],
) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    for name, value in (FakeDriver(tmp_path, 4).environment | variables).items():
        monkeypatch.setenv(name, value)
    if isinstance(found, tuple):
        assert gpus_of_job(n) == found
        return
    with pytest.raises(UserError) as error:
        gpus_of_job(n)
    assert re.search(found, str(error.value))
    kept_line(str(error.value))


def test_the_first_job_of_a_configuration_compiles_before_its_siblings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait for its first step; a job that dies keeps nobody, and one that is to go does not wait."""
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path))
    spec = replace(SPEC, config={**SPEC.config, "system": {"compile": "on"}})
    mark = kernel_cache(spec)
    assert mark is not None and mark.is_relative_to(tmp_path / f"kernels-{os.getuid()}")
    looks: list[int] = []

    def look() -> bool:
        looks.append(1)
        if len(looks) == 4:
            first.release()
        return True

    first, second, third = (TurnToCompile(mark) for _ in range(3))
    first.wait(lambda: True)
    assert mark.with_suffix(".lock").stat().st_mode & 0o777 == 0o600
    mark.mkdir()  # its worker begins
    third.wait(lambda: False)
    second.wait(look)
    assert len(looks) == 4
    other = TurnToCompile(mark.with_name("other"))
    other.wait(lambda: True)
    code = (
        "import sys; from pathlib import Path; from harness.runner.kernels import TurnToCompile\n"
        f"TurnToCompile(Path({str(mark)!r} + 'b')).wait(lambda: True); print('held', flush=True)\n"
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        after = TurnToCompile(Path(f"{mark}b"))

        def kill_it() -> bool:
            holder.kill()
            holder.wait()
            return True

        after.wait(kill_it)
        assert after.file is not None
    for turn in (first, other, after):
        turn.release()


def test_kernels_of_another_user_are_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path))
    spec = replace(SPEC, config={**SPEC.config, "system": {"compile": "on"}})
    kernel_cache(spec)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(
        UserError, match="is another user's: name a folder of yours in ABLATE_CACHE"
    ):
        kernel_cache(spec)


def test_a_job_that_is_to_go_is_put_back_once_its_run_has_ended(tmp_path: Path) -> None:
    """As preempted: else Slurm could begin it elsewhere while the run still writes."""

    class Run(threading.Thread):
        """One that ends when somebody waits for that."""

        def __init__(self) -> None:
            super().__init__(daemon=True)
            self.awaited = threading.Event()

        def run(self) -> None:
            self.awaited.wait()

        def join(self, timeout: float | None = None) -> None:
            self.awaited.set()
            super().join(timeout)

    job = Job(
        results=str(tmp_path),
        spec={},
        command="",
        trainer=OwnTrainer(),
        n_nodes=1,
        limits=RunLimits(),
        folder=str(tmp_path),
    )
    job.thread = Run()
    job.thread.start()
    back = job.checkpoint()
    assert not job.thread.is_alive()
    assert job.stop == "preempted"
    again = back.function
    assert isinstance(again, Job) and (again.stop, again.thread) == (None, None)
