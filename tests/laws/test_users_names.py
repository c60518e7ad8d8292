"""A user's own model.py, optim/, results/ and experiments/ never meet ours, however the user's code is started."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.foreign_bench import CPU, TRAINERS

ROOT = Path(__file__).resolve().parents[2]
OWN = 'OWN = "the user\'s"\n'
IMPORTS_OWN = """
import model, results
from optim.muon import OWN as muon
assert (model.OWN, results.OWN, muon) == ("the user's",) * 3, (model, results, muon)
"""
PLUGIN = """
from dataclasses import dataclass
from harness.model.config import toggle

@dataclass(frozen=True, kw_only=True)
class Toggles:
    gain: float = toggle(1.0, record=None, doc="times the output")

def build(model, toggles):
    model.norm.register_forward_hook(lambda module, inputs, output: output * toggles.gain)
"""
EXPERIMENT = """
name: idea
question: Does a plug-in beside files of the same names as ours run?
base: r07
scale: tiny
set: {data.corpus: own, model.n_layer: 2, data.seq_len: 64, data.micro_tokens: 512, data.batch_tokens: 512, data.ranks: 1,
      data.val_tokens: 1024, schedule.steps: 3, data.first_batch_twice: false, optim.muon_comm: redundant, system.checkpoint: none}
changes: {louder: {plugin.idea.gain: 1.5}}
plugins: [idea.py]
seeds: 1
"""
FOREIGN = """
name: foreign
question: Does a foreign trainer import its own files?
trainer: {command: "python {script}", file: old.py, gpus: 0, with: [model.py, results.py, optim]}
changes: {again: {args: [--better=0.02]}}
seeds: 1
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working directory full of names that are ours, too. optim has no __init__.py: installed packages would win over it."""
    here = tmp_path / "work"
    (here / "optim").mkdir(parents=True)
    for name in ("model.py", "results.py", "optim/muon.py", "training.py", "data.py", "config.py"):
        (here / name).write_text(OWN)
    return here


def python(here: Path, *arguments: str, path: Path | None = None) -> str:
    """Run Python in a folder; returns what it prints. path: where an installed wheel lies."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment |= {"OMP_NUM_THREADS": "1", "ABLATE_DATA": str(here / "corpora")}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=here, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


OURS = """
from harness import Experiment, ab, run
from reports import compare_all, load
from harness.training.train import train
from harness.optim.muon import Muon
print(load.__module__, train.__module__, Muon.__module__)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        pytest.param(IMPORTS_OWN + OURS, id="theirs first"),
        pytest.param(OURS + IMPORTS_OWN, id="ours first"),
    ],
)
def test_in_a_notebook(folder: Path, code: str) -> None:
    said = python(folder, "-c", code + "print(model.__file__, muon)\n")
    ours, theirs = said.splitlines()
    assert ours == "reports.inputs.load harness.training.train harness.optim.muon"
    assert theirs == f"{folder / 'model.py'} the user's"


def test_in_scripts_that_ab_starts(folder: Path) -> None:
    fast = (TRAINERS / "fast.py").read_text()
    for name in ("old.py", "new.py"):
        (folder / name).write_text(IMPORTS_OWN + fast)
    beside = [option for name in ("model.py", "results.py", "optim") for option in ("--with", name)]
    said = python(
        folder, "-m", "harness", "ab", "old.py", "new.py", "-n", "1", *CPU, *beside, "--json"
    )
    assert [arm["runs"] for arm in json.loads(said)["arms"]] == [1, 1]


@pytest.mark.slow
def test_in_the_arms_of_a_foreign_experiment(folder: Path) -> None:
    (folder / "old.py").write_text(IMPORTS_OWN + (TRAINERS / "fast.py").read_text())
    (folder / "foreign.yaml").write_text(FOREIGN)
    said = python(folder, "-m", "harness", "run", "foreign.yaml", "--no-report")
    assert "everything is finished: 2 runs" in said
    run = next((folder / "results" / "runs").iterdir()).name
    assert "\nfinished: " in python(folder, "-m", "harness", "rerun", run)


@pytest.mark.slow
def test_in_the_arms_of_a_difference_taken_apart(folder: Path) -> None:
    old = IMPORTS_OWN + (TRAINERS / "fast.py").read_text()
    (folder / "old.py").write_text(old)
    (folder / "new.py").write_text(old.replace('"BETTER", "0"', '"BETTER", "0.02"'))
    python(folder, "-m", "harness", "split", "old.py", "new.py", "-o", "parts", *CPU[:-1])
    experiment = folder / "parts" / "experiment.yaml"
    experiment.write_text(experiment.read_text().replace("seeds: 10", "seeds: 1"))
    said = python(folder, "-m", "harness", "run", str(experiment), "--no-report")
    assert "everything is finished: 2 runs" in said


@pytest.mark.slow
def test_in_a_plug_in(folder: Path) -> None:
    (folder / "idea.py").write_text(PLUGIN)
    (folder / "idea.yaml").write_text(EXPERIMENT)
    python(folder, "-m", "harness", "data", "prepare", "text", str(ROOT / "model"), "--name", "own")
    said = python(folder, "-m", "harness", "run", "idea.yaml", "--max-parallel", "1", "--no-report")
    assert "everything is finished: 2 runs" in said


@pytest.mark.slow
def test_beside_an_installed_wheel(folder: Path, tmp_path: Path) -> None:
    source, installed = tmp_path / "source", tmp_path / "installed"
    for part in ("model", "optim", "harness", "reports", "experiments", "results/published"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / part, source / part, symlinks=True, ignore=ignore)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    build = [
        "-m",
        "pip",
        "wheel",
        str(source),
        "--no-deps",
        "--no-build-isolation",
        "-q",
        "-w",
        str(tmp_path),
    ]
    python(tmp_path, *build)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        wheel.extractall(installed)
    names = {path.name for path in installed.iterdir() if path.suffix != ".dist-info"}
    assert names == {"harness", "reports"}
    python(folder, "-c", OURS + IMPORTS_OWN, path=installed)
    assert str(installed) in python(
        folder, "-c", "import harness.model.gpt as m; print(m.__file__)", path=installed
    )
