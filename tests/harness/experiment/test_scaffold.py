"""`ablate new-change`: what it writes works as it is, and it overwrites nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.__main__ import main
from harness.config import plugins
from harness.experiment.experiment import load_experiment

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv(plugins.VARIABLE, "")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ablate(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    return int(end.value.code or 0)


def python(here: Path, *arguments: str) -> str:
    """Run Python in the working directory; returns what it prints, which must be a success."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=here,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_files_are_named_and_the_next_commands_said(here, capsys):
    assert ablate("new-change", "idea") == 0
    said = capsys.readouterr().out
    for name in ("idea.py", "experiments/idea.yaml", "test_idea.py"):
        assert (here / name).is_file()
        assert name in said
    assert "NAME" not in "".join(
        p.read_text(encoding="utf-8") for p in here.rglob("*idea*") if p.is_file()
    )


def test_its_experiment_loads_by_name_and_sets_its_toggle(here):
    ablate("new-change", "idea")
    baseline, arm = load_experiment("idea", device="cpu").arms
    assert dict(arm.fields) == {"plugin.idea.gain": 1.0}
    assert not baseline.config.plugin


@pytest.mark.slow
def test_its_law_test_passes_as_it_is(here):
    ablate("new-change", "idea")
    assert "5 passed" in python(
        here, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "test_idea.py"
    )


BREAKS = {
    "off is not off": (
        "if toggles.gain is None:\n        return\n",
        "gain = toggles.gain or 2.0\n",
    ),
    "no effect": ("return (mlp.gain * y_BTC).to(y_BTC.dtype)", "return y_BTC"),
    "a look at the future": ("mlp.gain * y_BTC", "mlp.gain * y_BTC + y_BTC.flip(1)"),
}


@pytest.mark.slow
@pytest.mark.parametrize("broken", BREAKS)
def test_its_laws_bite(here, broken):
    ablate("new-change", "idea")
    old, new = BREAKS[broken]
    text = (here / "idea.py").read_text(encoding="utf-8")
    assert old in text
    (here / "idea.py").write_text(
        text.replace(old, new).replace("init=toggles.gain", "init=toggles.gain or 2.0"),
        encoding="utf-8",
    )
    with pytest.raises(AssertionError, match="failed"):
        python(here, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_idea.py")


REFUSED = {
    "my-idea": "did you mean 'my_idea'?",
    "class": "cannot name a Python file",
    "3d": "cannot name a Python file",
    "../idea": "cannot name a Python file",
    "größe": "cannot name a Python file",
    "": "cannot name a Python file",
    "x" * 81: "cannot name a Python file",
    "torch": "torch.py would hide the module 'torch': choose another name, such as my_torch",
    "model": "would hide the module 'model'",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_name_is_refused_in_one_line(here, capsys, name):
    assert ablate("new-change", name) == 2
    said = capsys.readouterr().err
    assert REFUSED[name] in said
    assert said.count("\n") == 1
    assert not list(here.iterdir())


@pytest.mark.parametrize("taken", ["idea.py", "experiments/idea.yaml", "test_idea.py"])
def test_nothing_is_overwritten(here, capsys, taken):
    (here / taken).parent.mkdir(exist_ok=True)
    (here / taken).write_text("mine", encoding="utf-8")
    assert ablate("new-change", "idea") == 2
    assert f"{taken}: is there already" in capsys.readouterr().err
    assert [p for p in here.rglob("*") if p.is_file()] == [here / taken]
    assert (here / taken).read_text(encoding="utf-8") == "mine"


SIZES = (
    "data.corpus=own",
    "data.batch_tokens=256",
    "data.micro_tokens=256",
    "data.val_tokens=1024",
    "schedule.steps=6",
)


@pytest.mark.slow
def test_its_experiment_runs_and_is_known_as_finished(here, monkeypatch):
    monkeypatch.setenv("ABLATE_DATA", str(here / "data"))
    ablate("new-change", "idea")
    python(
        here,
        "-m",
        "harness",
        "data",
        "prepare",
        "text",
        str(ROOT / "harness"),
        str(ROOT / "model"),
        "--name",
        "own",
    )
    small = [argument for size in SIZES for argument in ("--set", size)]
    out = python(
        here,
        "-m",
        "harness",
        "run",
        "idea",
        "--seeds",
        "2",
        "--max-parallel",
        "1",
        "--no-report",
        *small,
    )
    assert "4 runs, 0 diverged" in out
    rows = json.loads(python(here, "-m", "harness", "status", "idea", "--json"))
    assert [r["status"] for r in rows] == ["finished"] * 4
