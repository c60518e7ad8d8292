"""Another interpreter as a change of our own trainer: its workers start there, its lock is kept, the effect is labelled."""

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from harness.errors import UserError
from harness.experiment.experiment import load_experiment
from harness.run.read import read_config
from harness.run.results import read_result
from tests.fake_matrix import EXPERIMENT, Matrix


@pytest.fixture
def interpreter(tmp_path: Path) -> Path:
    """This environment with one package more, whose version is part of every lock."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(tmp_path / "env")],
        check=True,
    )
    packages = next((tmp_path / "env" / "lib").glob("python*/site-packages"))
    (packages / "here.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    (packages / "nvidia_nccl_cu12-9.9.dist-info").mkdir()
    (packages / "nvidia_nccl_cu12-9.9.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: nvidia-nccl-cu12\nVersion: 9.9\n"
    )
    return tmp_path / "env" / "bin" / "python"


@pytest.mark.slow
def test_workers_start_in_the_arms_interpreter_and_the_effect_is_labelled(
    tmp_path: Path, interpreter: Path
) -> None:
    matrix = Matrix(tmp_path, n_seeds=1)
    matrix.file.write_text(
        EXPERIMENT
        + f"  newer: {{environment: {{python: {interpreter.relative_to(tmp_path)}}}}}\nseeds: 1\n"
    )
    code, _, err = matrix.run()
    assert (code, err) == (0, "")
    plan = json.loads((matrix.results / "experiments" / "fake" / "experiment.json").read_text())
    runs = {r["arm"]: matrix.results / "runs" / r["run_id"] for r in plan["runs"]}
    effects = {arm: read_result(run).environment_effect for arm, run in runs.items()}
    assert effects == {
        "baseline": None,
        "untied_head": None,
        "newer": "nvidia-nccl-cu12 9.9 instead of absent",
    }
    assert {a["name"]: a["environment_effect"] for a in plan["arms"]} == effects
    config = read_config(runs["newer"])
    assert config["runs_in"] == {"python": str(interpreter)}
    lock = json.loads(
        (matrix.results / "environments" / f"{config['environment']['digest']}.json").read_text()
    )
    assert lock["nvidia-nccl-cu12"] == "9.9"
    assert (
        read_config(runs["baseline"])["config"] == config["config"]
    )  # nothing but the environment differs
    assert matrix.run()[0] == 0
    assert len(list((matrix.results / "runs").iterdir())) == 3  # nothing is run again


@pytest.mark.parametrize(
    "value",
    ["/usr/bin/python", {}, {"python": 3}, {"python": "a", "container": "b"}, {"conda": "x"}],
)
def test_an_environment_is_one_interpreter_or_one_container(tmp_path: Path, value: object) -> None:
    path = tmp_path / "fake.yaml"
    path.write_text(EXPERIMENT + f"  newer: {{environment: {json.dumps(value)}}}\n")
    with pytest.raises(
        UserError,
        match=r"fake.yaml:\d+: environment is .* must be \{python: PATH\} or \{container: COMMAND\}",
    ):
        load_experiment(str(path), device="cpu")
