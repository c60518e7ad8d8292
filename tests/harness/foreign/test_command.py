"""How a foreign trainer is started: what stands in braces, which program, which Python, and how often it is tried."""

import io
import os
import random
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.errors import UserError
from harness.foreign import command as command_module
from harness.foreign.command import ForeignTrainer, check_start, placeholders, variables_of
from harness.foreign.experiment import load_foreign
from harness.node.slots import Slot
from harness.provenance import code as code_module
from harness.provenance.code import Code
from harness.provenance.interpreters import asks_for, fill
from harness.run import archive
from harness.run.archive import unpacked
from harness.run.read import read_lines
from reports.inputs.load import load
from tests.foreign_bench import CPU, TRAINERS, ablate, bench, commit, limits_from, statuses, write


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return bench(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("--n={gpus}", "--n=8"),
        ("{{gpus}}", "{gpus}"),
        ('${gpus} {1..3} {a,b} {} {"lr": 0.1}', '${gpus} {1..3} {a,b} {} {"lr": 0.1}'),
    ],
)
def test_braces_are_replaced_where_they_mean_us_alone(text: str, filled: str) -> None:
    assert fill(text, {"gpus": 8}) == filled


def trainer_of(**how: Any) -> ForeignTrainer:
    asked: dict[str, Any] = {
        **{"command": "python {script}", "script": "x.py", "args": (), "env": {}, "patches": ()},
        **{"data": {}, "gpus": 0, "environment": {}},
    }
    return ForeignTrainer(**asked | how)


def test_a_command_has_the_variables_of_its_devices_and_its_environment_and_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", {"RANK": "3", "MASTER_PORT": "1", "HOME": "/h", "A": "b"})
    slot = Slot(held=("4", "6"), gpus=("4", "6"), threads=3)
    monkeypatch.chdir(tmp_path)
    own = {"SEED": "{seed}", "A": "{gpus} {{gpus}}", "PLACE": "{copy}/{script}"}
    trainer = trainer_of(env=own, environment={"python": "/opt/its/bin/python"})
    values = placeholders(trainer, seed=7, copy=Path("copy"))
    usual = {
        **slot.variables,
        **{"HOME": "/h", "PYTHONUNBUFFERED": "1", "SEED": "7", "A": "1 {gpus}"},
        **{"PLACE": f"{tmp_path}/copy/x.py", "PATH": f"/opt/its/bin:{os.defpath}"},
    }
    assert variables_of(trainer, slot, values) == {**usual, "OMP_NUM_THREADS": "3"}
    of_two = replace(trainer, gpus=2)
    values = placeholders(of_two, seed=7, copy=Path("copy"))
    assert variables_of(of_two, slot, values) == {**usual, "A": "2 {gpus}"}
    os.environ["OMP_NUM_THREADS"] = "5"
    assert variables_of(trainer, slot, values)["OMP_NUM_THREADS"] == "5"


@pytest.mark.parametrize(
    ("command", "text", "needs"),
    [
        ("python {script}", b"print(1)", ""),
        ("python {script}", b"import torch", "x.py"),
        ("torchrun {script}", b"print(1)", "torchrun"),
    ],
)
def test_torch_is_asked_of_an_environment_by_what_needs_it(
    monkeypatch: pytest.MonkeyPatch, command: str, text: bytes, needs: str
) -> None:
    trainer = trainer_of(command=command, environment={"python": "/opt/python"})
    code = Code(script="x.py", files={"x.py": text})
    there = SimpleNamespace(versions={"torch": "2"})
    monkeypatch.setattr(command_module.interpreters, "lock_of", lambda environment: there)
    check_start(trainer, code, where="here")
    there.versions = {"python": "3"}
    if not needs:
        check_start(trainer, code, where="here")
        return
    with pytest.raises(UserError) as refused:
        check_start(trainer, code, where="here")
    cure = "install it there, or name another environment"
    assert str(refused.value) == f"here: /opt/python has no torch, which {needs} needs: {cure}"


def test_a_seed_in_double_braces_is_none() -> None:
    assert asks_for("seed", "--x", "--seed={seed}")
    assert not asks_for("seed", "--seed={{seed}}", "${seed}")


WRONG = {
    "python {scrpt}": "the command: {scrpt} stands for nothing; did you mean 'script'? ({{scrpt}} gives {scrpt})",
    "torchrun --nproc-per-node {n_gpus} {script}": "{n_gpus} stands for nothing; did you mean 'gpus'?",
    "python '{script}": "the command has a quote that is not closed: python '{script}",
    "": "the command is empty: leave it out for torchrun",
    "LR=1 python {script}": "'LR=1' in the command needs a shell, and none reads it",
    "python {script} | tee log": "'|' in the command needs a shell, and none reads it",
    "pyton {script}": "the command starts pyton: no such program",
    "./run.sh {script}": "the command starts ./run.sh, which is not in the clean copy: add it with `with` (--with)",
    "/opt/nightly/bin/torchrun {script}": "whose versions would not be recorded: write torchrun, and name its interpreter",
    "python3.99 {script}": "whose versions would not be recorded: write python, and name its interpreter",
}


@pytest.mark.parametrize("command", WRONG)
def test_a_command_that_cannot_be_meant_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], command: str, kept_line: Callable[[str], None]
) -> None:
    assert ablate("ab", "old.py", "new.py", "--gpus-per-run", 0, "--command", command) == 2
    error = capsys.readouterr().err
    assert WRONG[command] in error
    assert error.count("\n") == 1
    assert not Path("results").exists()
    kept_line(error)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--env", "SEED={sed}"], "variable SEED: {sed} stands for nothing; did you mean 'seed'?"),
        (["--fail-on", "slwer"], "no verdict begins so"),
        (["--experiment", "a/b"], "--experiment 'a/b' must be a file name"),
        (["--python", "p", "--container", "c"], "--python and --container: name one of them"),
    ],
)
def test_options_are_checked_before_anything_runs(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    message: str,
    kept_line: Callable[[str], None],
) -> None:
    assert ablate("ab", "old.py", "new.py", *CPU, *options) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    kept_line(error)
    assert not Path("results").exists()


def test_a_shell_a_program_of_the_copy_and_the_copy_itself(folder: Path) -> None:
    """bash -c, braces that stay, and a program with #! beside the script, told where its clean copy lies."""
    Path("run.sh").write_text('#!/bin/sh\ntest "$1" = "$PWD" && exec python "$2"\n')
    assert ablate("ab", "old.py", "new.py", "-n", 1, *CPU[:2], "--no-report", "--experiment", "x", "--with", "run.sh",
                  "--command", "./run.sh {copy} {script}") == 0  # fmt: skip
    shell = "bash -c 'test {{a}}${PWD##*/} = {{a}}copy && for i in {1..2}; do echo $i; done && exec python {script}'"
    assert (
        ablate(
            "ab",
            "old.py",
            "new.py",
            "-n",
            1,
            *CPU[:2],
            "--no-report",
            "--experiment",
            "y",
            "--command",
            shell,
        )
        == 0
    )


def test_an_interpreter_without_torch_is_refused_where_torch_is_needed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", "env"], check=True)
    own = ("--python", "env/bin/python")
    Path("own.py").write_text("import torch\n" + Path("old.py").read_text())
    for arguments in (("old.py", "new.py", "--gpus-per-run", 0), ("own.py", "old.py", *CPU)):
        assert ablate("ab", *arguments, *own) == 2
        error = capsys.readouterr().err
        assert "env/bin/python has no torch, which " in error
        assert error.count("\n") == 1
    assert not Path("results").exists()
    assert ablate("ab", "old.py", "new.py", "-n", 1, *CPU, *own, "--experiment", "x") == 0
    assert all("torch" not in e["lock"] for e in load("x").environments.values())


# ---------------------------------------------------------------- tries, limits, refs


def test_ab_tries_again_as_often_as_asked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    faulty = (TRAINERS / "faulty.py").read_text()
    Path("flaky.py").write_text(faulty)
    Path("sound.py").write_text(faulty.replace('os.environ["KIND"]', '"none"'))
    variables = ("--env", "KIND=flaky", "--env", f"MARK={folder / 'mark'}")
    assert (
        ablate(
            "ab",
            "sound.py",
            "flaky.py",
            "-n",
            2,
            *CPU,
            *variables,
            "--retries",
            1,
            "--experiment",
            "x",
        )
        == 0
    )
    out = capsys.readouterr().out
    assert out.count("flaky, block") == 2  # once it has ended, however often it was tried
    ends = [
        [r["status"] for r in read_lines(run / "attempts.jsonl") if "status" in r]
        for run in Path("results/runs").iterdir()
    ]
    assert sorted(ends) == [["failed", "finished"], ["finished"], ["finished"], ["finished"]]


def test_a_run_that_always_fails_is_tried_no_more_than_asked_and_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("faulty.py").write_text((TRAINERS / "faulty.py").read_text())
    options = (*CPU, "-n", 1, "--experiment", "x", "--env", "KIND=raise")
    assert ablate("ab", "old.py", "faulty.py", *options, "--retries", 2) == 1
    out = capsys.readouterr().out
    assert (
        "faulty, block 1: failed: its command ended with exit code 1: ValueError: the shapes do not match"
        in out
    )
    run = load("x").runs.set_index("arm").loc["faulty", "run_id"]
    assert [
        r["status"]
        for r in read_lines(Path("results/runs") / run / "attempts.jsonl")
        if "status" in r
    ] == ["failed"] * 3


@pytest.mark.slow
def test_ab_ends_a_run_at_its_wall_limit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("faulty.py").write_text((TRAINERS / "faulty.py").read_text())
    options = (
        *CPU,
        "-n",
        1,
        "--experiment",
        "x",
        "--env",
        "KIND=forever",
        "--env",
        f"AT={folder / 'at'}",
        "--wall-limit",
        1.5,
    )
    limits_from(monkeypatch, folder / "at")
    assert ablate("ab", "old.py", "faulty.py", *options) == 1
    assert statuses("x") == {"old": "finished", "faulty": "timeout"}


def test_refs_of_a_repository_are_arms_of_a_file(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = folder / "repo"
    (repository / "records").mkdir(parents=True)
    script = repository / "records" / "train.py"
    code = (folder / "old.py").read_text()
    with pytest.MonkeyPatch.context() as there:
        there.chdir(repository)
        for branch, better in (("main", "0"), ("idea", "0.5")):
            script.write_text(code.replace('"BETTER", "0"', f'"BETTER", "{better}"'))
            commit(branch, "records")
    script.write_text("what is on disk does not count")
    trainer = {
        "file": None,
        "repo": "repo",
        "ref": "main",
        "script": "records/train.py",
        "env": {"SEED": "{seed}"},
    }
    path = write(folder, trainer=trainer, changes={"idea": {"ref": "idea"}})
    assert ablate("run", path, "--no-report") == 0
    loss = load("foreign").runs.set_index("arm")["val_loss"]
    assert loss["baseline"] - loss["idea"] == pytest.approx(0.5, abs=2e-4)
    capsys.readouterr()
    assert ablate("plan", write(folder, trainer=trainer, changes={"idea": {"ref": "ideas"}})) == 2
    assert "no commit 'ideas' in the repository" in capsys.readouterr().err


def test_an_arm_may_be_a_script_on_disk_beside_those_of_a_repository(folder: Path) -> None:
    (folder / "repo").mkdir()
    with pytest.MonkeyPatch.context() as there:
        there.chdir(folder / "repo")
        for branch in ("idea", "main"):
            Path("train.py").write_text(f"# {branch}\n")
            commit(branch, "train.py")
    trainer = {"file": None, "repo": "repo", "script": "train.py"}
    changes = {"disk": {"file": "new.py"}, "branch": {"ref": "idea"}}
    e = load_foreign(write(folder, trainer=trainer, changes=changes), {})
    assert {arm.name: (arm.written.file, arm.written.ref) for arm in e.arms} == {
        **{"baseline": (None, None), "disk": (folder / "new.py", None)},
        "branch": (None, "idea"),
    }
    scripts = [arm.code.files[arm.code.script] for arm in e.arms]
    assert scripts == [b"# main\n", (folder / "new.py").read_bytes(), b"# idea\n"]


def test_the_words_of_a_container_stand_in_front_and_its_python_is_recorded(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", "env"], check=True)
    box = f"env PATH={folder}/env/bin:/usr/bin:/bin BOX={{seed}} PLACE={{copy}}"
    Path("own.py").write_text(
        "import os, sys\nif 'BOX' in os.environ:\n    assert os.environ['PLACE'] == os.getcwd()\n"
        "    assert sys.prefix.endswith('/env'), sys.prefix\nprint('step:1/1 val_loss:3.0 train_time:9ms step_avg:9ms')\n"
    )
    changes = {"boxed": {"environment": {"container": box}}}
    path = write(
        folder, trainer={"file": "own.py", "env": {"SEED": "{seed}"}}, changes=changes, seeds=2
    )
    assert ablate("run", path, "--no-report") == 0
    known = load("foreign")
    boxed = known.runs[known.runs["arm"] == "boxed"]
    assert list(boxed["status"]) == ["finished"] * 2
    locks = [known.environments[run]["lock"] for run in boxed["run_id"]]
    assert all("torch" not in lock for lock in locks)
    assert "torch absent instead of" in known.results[boxed["run_id"].iloc[0]].environment_effect
    capsys.readouterr()
    assert (
        ablate("run", write(folder, trainer={"command": "torchrun {script}"}, changes=changes)) == 2
    )
    assert (
        f"foreign.yaml:8: {box.format(seed=0, copy=folder)} python3 has no torch, which torchrun"
        in capsys.readouterr().err
    )


def test_more_than_can_be_read_again_is_not_kept_as_code(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = random.Random(1).randbytes(40_000)
    code = Code(script="train.py", files={"train.py": b"", "noise": noise})
    monkeypatch.setattr(code_module, "MOST_OF_OTHERS", 50_000)
    assert unpacked(code.zipped()) == dict(code.files)
    with zipfile.ZipFile(io.BytesIO(code.zipped())) as kept:  # of no day: the same bytes always
        assert {entry.date_time for entry in kept.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    monkeypatch.setattr(code_module, "MOST_OF_OTHERS", 30_000)
    with pytest.raises(UserError, match=r"the code of train.py: its archive has .*data is linked"):
        code.zipped()
    monkeypatch.setattr(code_module, "MOST_OF_OTHERS", 1 << 20)
    larger = Code(script="train.py", files={"train.py": b"", "noise": noise * 53})
    with pytest.raises(UserError, match="its archive has 2 MiB, more than the 1 MiB that one may"):
        larger.zipped()
    monkeypatch.setattr(archive, "MAX_BYTES", 30_000)
    with pytest.raises(UserError, match=r"2 files of 0 MiB are more .*: name less of it"):
        code.zipped()
    monkeypatch.setattr(archive, "MAX_BYTES", 50_000)
    monkeypatch.setattr(archive, "MAX_FILES", 1)
    with pytest.raises(UserError, match="2 files of 0 MiB are more than code may have"):
        code.zipped()
