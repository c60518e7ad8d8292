"""Another interpreter as a change of our own trainer: its workers start there, its lock is kept, the effect is labelled."""

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UserError
from harness.experiment.experiment import load_experiment
from harness.provenance.interpreters import (
    asks_for,
    check_braces,
    effect,
    fill,
    located,
    lock_of,
    search_path,
    start_of,
)
from harness.provenance.lock import environment_lock
from harness.run.digests import short_digest
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


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("echo first >&2; echo last words >&2; exit 1", "last words"),
        ("echo no JSON; echo why >&2", "why"),
        ("echo no JSON", "no JSON"),
        ("printf '\\377\\n'", "\ufffd"),
        ("exit 3", "it ends with 3 and says nothing"),
    ],
)
def test_what_does_not_run_python_is_told_by_its_last_line(
    tmp_path: Path, does: str, said: str
) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{does}\n")
    program.chmod(0o755)
    for environment, start in (
        ({"python": str(program)}, program),
        ({"container": f"{program} {{gpus}}"}, f"{program} 1 python3"),
    ):
        with pytest.raises(UserError) as refused:
            lock_of(environment)
        assert str(refused.value) == f"environment: `{start}` does not run Python: {said}"


def test_an_environment_that_never_starts_is_told_and_so_is_one_without_its_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_line: Callable[[str], None]
) -> None:
    class Hangs(subprocess.TimeoutExpired):
        def __str__(self) -> str:  # Python's words are those of its version
            return f"no answer in {self.timeout} s"

    def hangs(command: list[str], *, timeout: float, **_: Any) -> None:
        raise Hangs(command[0], timeout)

    program = tmp_path / "python"
    said = []
    for _ in range(2):
        with pytest.raises(UserError) as refused:
            lock_of({"python": str(program)})
        said.append(str(refused.value))
        program.touch(mode=0o755)
        monkeypatch.setattr(subprocess, "run", hangs)
    kept_line("\n".join(said))


def test_an_environment_is_told_by_what_differs_from_this_one(tmp_path: Path) -> None:
    here = environment_lock()
    assert effect({}) is None and lock_of({}) == here
    assert effect({"python": sys.executable}) == "the same versions"
    there = {**here.versions, "torch": "9.9"}
    del there["numpy"]
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\necho a word before\necho '{json.dumps(there)}'\n")
    program.chmod(0o755)
    environment = {"python": str(program)}
    assert lock_of(environment).versions == there
    assert lock_of(environment).digest == short_digest(there) != here.digest
    torch, numpy = (here.versions[name] for name in ("torch", "numpy"))
    told = {f"torch 9.9 instead of {torch}", f"numpy absent instead of {numpy}"}
    assert set(str(effect(environment)).split(", ")) == told


def test_an_interpreter_is_meant_from_the_files_folder_or_from_the_search_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = str(Path(sys.executable).parent)
    program = tmp_path / "bin" / "its-own-python"
    program.parent.mkdir()
    program.touch(mode=0o755)
    there = str(program.parent)
    monkeypatch.setenv("PATH", os.pathsep.join([ours, there, ours, "/x"]))
    assert located({"python": "env/bin/python"}, tmp_path) == {
        "python": str(tmp_path / "env/bin/python")
    }
    assert located({"python": "/a/python"}, tmp_path) == {"python": "/a/python"}
    assert located({"python": program.name}, tmp_path) == {"python": str(program)}
    assert located({"python": "nowhere-to-be-found"}, tmp_path) == {"python": "nowhere-to-be-found"}
    assert located({"container": "docker run x"}, tmp_path) == {"container": "docker run x"}
    assert located({}, tmp_path) == {}
    assert search_path({"python": "/a/bin/python"}) == f"/a/bin:{there}:/x"
    assert search_path({}) == os.pathsep.join([ours, ours, there, ours, "/x"])
    assert search_path({"container": "docker run x"}) == os.environ["PATH"]


def test_words_in_braces_are_filled_and_what_stands_for_nothing_is_refused() -> None:
    text = "run {gpus} of {{gpus}} ${gpus} {script} {}"
    assert fill(text, {"gpus": 2, "script": "a.py"}) == "run 2 of {gpus} ${gpus} a.py {}"
    assert asks_for("gpus", "none", "{gpus}")
    assert not asks_for("gpus", "{{gpus}} ${gpus} gpus", "{script}")
    check_braces(text, "here")
    with pytest.raises(UserError) as refused:
        check_braces("{gpu} and more", "--command")
    said = "{gpu} stands for nothing; did you mean 'gpus'? ({{gpu}} gives {gpu})"
    assert str(refused.value) == f"--command: {said}"


def test_a_container_starts_python_with_what_its_words_stand_for() -> None:
    container = {"container": "docker run --gpus {gpus} -v {copy}:/x 'an image'"}
    words = ["docker", "run", "--gpus", "4", "-v", "/here:/x", "an image", "python3"]
    assert start_of(container, {"gpus": 4, "copy": "/here"}) == words
    assert start_of(container)[3:6] == ["1", "-v", f"{os.getcwd()}:/x"]
    assert start_of({"container": "box 's{seed}' '{script}'"}) == ["box", "s0", "", "python3"]
    assert start_of({"python": "/a/python"}) == ["/a/python"]
    assert start_of({}) == [sys.executable]
