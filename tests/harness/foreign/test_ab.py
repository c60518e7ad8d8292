"""`ablate ab` and foreign trainers in experiment files: scripts are run as they are, every end is an outcome, nothing is lost."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.experiment.designs import LIMITS
from harness.foreign.experiment import load_foreign
from harness.foreign.plan import UNKNOWN_CORPUS
from harness.run.foreign import TrainerLimits
from harness.run.read import read_lines
from harness.run.results import read_result
from reports.inputs.load import load
from tests.fake_matrix import DEADLINE_S, STARTED, gone, wait_for
from tests.foreign_bench import CPU, TRAINERS, ablate, bench, commit, limits_from, statuses, write

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return bench(tmp_path, monkeypatch)


# ---------------------------------------------------------------- two scripts


def test_two_scripts_with_a_known_difference(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("marks").mkdir()
    marks = ("--env", f"MARKS={folder / 'marks'}")
    assert ablate("ab", "old.py", "new.py", "-n", 3, *CPU, *marks, "--target", "3.4", "--json") == 0
    verdict = json.loads(capsys.readouterr().out)
    old, new = verdict["arms"]
    assert (old["arm"], old["runs"], old["steps"], new["arm"], new["runs"]) == (
        "old",
        3,
        20,
        "new",
        3,
    )
    assert old["time_s"] == pytest.approx(20, rel=0.01)
    loss = next(c for c in verdict["comparisons"] if c["metric"] == "val_loss")
    assert loss["low"] < -0.02 < loss["high"] < 0
    assert (loss["verdict"], loss["n"], loss["method"]) == (
        "better",
        3,
        "Welch t, Holm",
    )  # no seeds: never paired
    assert [r["rule"] for r in verdict["rules"]] == ["track1", "track3", "track3-pair"]
    assert all(r["significant"] for r in verdict["rules"])
    assert verdict["looks"] == 1
    assert [hint["arm"] for hint in verdict["hints"] if hint["doubt"]] == ["old", "new"]  # no clock
    runs = load(verdict["experiment"]).runs
    assert runs["self_reported"].all()
    assert set(runs["budget"]) == {20}


def test_a_second_call_does_what_is_missing_and_judges(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("marks").mkdir()
    options = (*CPU, "--env", f"MARKS={folder / 'marks'}")
    assert ablate("ab", "old.py", "new.py", "-n", 3, *options, "--fail-on", "better") == 1
    capsys.readouterr()
    assert ablate("ab", "old.py", "new.py", "-n", 3, *options, "--fail-on", "worse") == 0
    out = capsys.readouterr().out
    assert "runs to do" not in out
    assert "1 look at the results" in out
    assert ablate("ab", "old.py", "new.py", "-n", 4, *options) == 0
    out = capsys.readouterr().out
    assert "2 of 8 runs to do" in out
    assert "2 looks at the results" in out


def test_finished_runs_are_sent_on_and_another_box_goes_on_with_them(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = folder / "there"
    options = (*CPU, "--env", "SEED={seed}", "--target", "3.4", "--push", there)
    assert ablate("ab", "old.py", "new.py", "-n", 2, *options, "--json") == 0
    first = json.loads(capsys.readouterr().out)
    shutil.rmtree("results")  # the box is gone
    assert ablate("ab", "old.py", "new.py", "-n", 3, *options, "--pull") == 0
    out = capsys.readouterr().out
    assert f"{there}: 4 runs brought in" in out
    assert "2 of 6 runs to do" in out
    assert f"{there}: every finished run is there, 2 of them sent now" in out
    assert load("ab-old-new", results=str(there)).runs["status"].tolist() == ["finished"] * 6
    assert first["experiment"] == "ab-old-new"
    assert ablate("ab", "old.py", "new.py", *CPU, "--pull") == 2
    assert ablate("ab", "old.py", "new.py", *options, "--push", "nosuch://x") == 2
    assert "nosuch" in capsys.readouterr().err


def test_another_executors_options_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ablate("ab", "old.py", "new.py", *CPU, "--address", "auto") == 2
    assert "are for --executor ray" in capsys.readouterr().err
    assert ablate("ab", "old.py", "new.py", *CPU, "--executor", "k8s") == 2
    assert "--executor k8s: must be local or slurm or ray" in capsys.readouterr().err
    assert ablate("ab", "old.py", "new.py", *CPU, "--executor", "ray", "--pool") == 2
    assert "--pool: borrows from runs on nodes like this one" in capsys.readouterr().err


@pytest.mark.slow
def test_a_call_that_is_cancelled_elsewhere_ends_its_script(folder: Path) -> None:
    Path("slow.py").write_text(
        "import os, time\nopen(os.environ['AT'], 'w').close()\ntime.sleep(3600)\n"
    )
    command = [sys.executable, "-m", "harness", "ab", "slow.py", "old.py", "-n", "1", *CPU]
    process = subprocess.Popen(
        [*command, "--env", f"AT={folder / 'at'}", "--experiment", "x"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    )
    STARTED.append(process)
    wait_for(lambda: (folder / "at").exists() or process.poll() is not None)
    assert ablate("cancel", "x") == 0
    _, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, "interrupted" in err) == (130, True)


def test_what_a_script_prints_is_kept_without_secrets(folder: Path) -> None:
    telling = "import sys\nsecret = 'hf_' + 'a1B2' * 8\nprint('token', secret)\nprint(secret, file=sys.stderr)\n"
    Path("telling.py").write_text(telling + Path("old.py").read_text())
    assert ablate("ab", "telling.py", "old.py", "-n", 1, *CPU) == 0
    kept = [p.read_bytes() for p in Path("results").rglob("*") if p.is_file()]
    assert not [text for text in kept if b"hf_" + b"a1B2" * 8 in text]
    assert (
        sum(text.count(b"token [redacted]\n") + text.count(b"\n[redacted]\n") for text in kept) == 2
    )


def test_a_seed_that_the_script_takes_makes_blocks(folder: Path) -> None:
    ask = ("ab", "old.py", "new.py", "-n", 2, *CPU, "--env", "SEED={seed}", "--experiment")
    assert ablate(*ask, "x") == ablate(*ask, "y") == 0  # seeds may have been seen: it explores
    runs = load("x").runs
    assert sorted(runs["seed"]) == [0, 0, 1, 1]
    assert sorted(runs["block"]) == [0, 0, 1, 1]
    loss = runs.set_index(["arm", "seed"])["val_loss"]
    assert loss["old", 0] - loss["new", 0] == pytest.approx(
        0.02, abs=2e-4
    )  # the same noise in both


def test_the_same_script_twice_is_two_arms(folder: Path) -> None:
    assert ablate("ab", "old.py", "old.py", "-n", 2, *CPU, "--experiment", "null") == 0
    runs = load("null").runs
    assert runs["run_id"].nunique() == 4
    assert set(runs["arm"]) == {"old.py", "old.py again"}


def test_two_refs_of_a_repository(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("helper").mkdir()
    Path("helper/losses.py").write_text("BETTER = 0.0\n")
    code = Path("old.py").read_text()
    Path("train_gpt.py").write_text(
        code.replace("import os\n", "import os\nfrom helper.losses import BETTER\n").replace(
            "noise -", "noise - BETTER -"
        )
    )
    commit("main", "train_gpt.py", "helper")
    Path("helper/losses.py").write_text("BETTER = 0.5\n")
    commit("idea", "helper")
    Path("helper/losses.py").write_text("what is on disk does not count")
    assert ablate("ab", "main", "idea", "-n", 1, *CPU, "--json") == 0
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["arms"][0]["val_loss"] - verdict["arms"][1]["val_loss"] == pytest.approx(
        0.5, abs=0.01
    )
    assert ablate("ab", "main:train_gpt.py", "ida", *CPU) == 2
    assert "no commit 'ida' in the repository" in capsys.readouterr().err


def test_every_run_has_a_clean_copy_with_its_data_linked(folder: Path) -> None:
    Path("data").mkdir()
    Path("data/tokens.bin").write_bytes(b"tokens")
    Path("own.py").write_text(
        "import os, pathlib\n"
        "assert sorted(os.listdir()) == ['data', 'own.py'], os.listdir()\n"
        "assert os.path.islink('data') and pathlib.Path('data/tokens.bin').read_bytes() == b'tokens'\n"
        "open('left_behind', 'w').close()\n"
        "print('step:1/1 val_loss:3.0 train_time:100ms step_avg:100ms')\n"
    )
    Path("other.py").write_text(Path("own.py").read_text().replace("own.py", "other.py"))
    assert ablate("ab", "own.py", "other.py", "-n", 2, *CPU) == 0
    assert sorted(os.listdir()) == ["data", "new.py", "old.py", "other.py", "own.py", "results"]
    assert not list(Path("results/runs").glob("*/attempts/*/copy"))
    corpus = load("ab-own-other").plan.corpus
    assert corpus.name == "data" and corpus.fingerprint != UNKNOWN_CORPUS.fingerprint


def test_nothing_to_judge_is_told_and_is_no_pass(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(TRAINERS / "faulty.py", "faulty.py")
    options = (*CPU, "-n", 1, "--experiment", "x", "--env", "KIND=nan")
    assert ablate("ab", "old.py", "faulty.py", *options) == 0  # a diverged run is a finding
    assert "diverged" in capsys.readouterr().out
    assert ablate("ab", "old.py", "faulty.py", *options, "--fail-on", "worse") == 1
    assert (
        ablate(
            "ab", "faulty.py", "old.py", *CPU, "-n", 1, "--experiment", "y", "--env", "KIND=raise"
        )
        == 1
    )


@pytest.mark.slow
def test_a_run_that_finishes_in_another_experiment_brings_its_number_of_steps(folder: Path) -> None:
    (folder / "marks").mkdir()
    turns = ("--env", f"MARKS={folder / 'marks'}", "-n", 1, *CPU)
    script = Path("old.py").read_text()
    waiting = f"import os\nassert os.path.exists({str(folder / 'go')!r})\n{script}"
    Path("late.py").write_text(waiting)
    Path("later.py").write_text(f"{waiting}\nlater = True\n")
    assert ablate("ab", "late.py", "later.py", "--experiment", "first", *turns) == 1
    (folder / "go").touch()
    assert ablate("ab", "late.py", "later.py", "--experiment", "second", *turns) == 0
    assert ablate("report", "first") == 0
    assert {run.budget for run in load("first", results="results").plan.runs} == {20}


# ---------------------------------------------------------------- how runs end

ENDS = {
    "crash": ("failed", "its command was killed by signal 11"),
    "raise": ("failed", "its command ended with exit code 1: ValueError: the shapes do not match"),
    "rank": ("failed", "rank 5 ended with exit code 1: ValueError: the shapes do not match"),
    "oom": ("oom", "CUDA out of memory"),
    "short": (
        "failed",
        "its log: it ends without its final validation: the last one is at step 7 of 8",
    ),
    "silent": ("failed", "its log: it has no validation loss in the benchmark's format"),
    "nan": ("diverged", "the loss was not finite or exploded at step 4"),
    "none": ("finished", None),
}


def test_every_end_is_an_outcome_like_any_other(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(TRAINERS / "faulty.py", "faulty.py")
    changes = {kind: {"env": {"KIND": kind}} for kind in ENDS}
    trainer = {"file": "faulty.py", "env": {"KIND": "none"}}
    arms = {kind: [kind] for kind in ENDS if kind != "none"}
    path = write(folder, trainer=trainer, changes=changes, design="explicit", arms=arms)
    assert ablate("run", path, "--max-parallel", 4, "--no-report") == 1
    runs = load("foreign").runs.set_index("arm")
    for kind, (status, reason) in ENDS.items():
        row = runs.loc["baseline" if kind == "none" else kind]
        assert row["status"] == status, kind
        assert (reason or "") in str(row["reason"]), kind
    assert runs.loc["nan", "steps"] == 4
    out = capsys.readouterr().out
    counts = re.findall(r"^\[(\d)/8\]", out, re.MULTILINE)
    assert (len(counts), counts, counts[-1]) == (8, sorted(counts), "2")
    assert "2 of 8 runs have a result" in out


def test_a_chain_is_run_and_judged_against_the_parents_that_the_file_names(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = {name: {"env": {"BETTER": str(i / 10)}} for i, name in enumerate("abc", start=1)}
    path = write(
        folder,
        changes=changes,
        design="chain",
        arms={name: [name] for name in "abc"},
        parents={"c": "a"},
        seeds=2,
    )
    assert ablate("run", path, "--no-report") == 0
    plan = load("foreign").plan
    assert plan.parents == {"a": "baseline", "b": "a", "c": "a"}
    capsys.readouterr()
    assert ablate("compare", "foreign", "--json") == 0
    parts = json.loads(capsys.readouterr().out)["increments"]
    losses = {(c["arm"], c["baseline"]): c["delta"] for c in parts if c["metric"] == "val_loss"}
    assert [*losses] == [("a", "baseline"), ("b", "a"), ("c", "a")]
    assert losses["c", "a"] == pytest.approx(2 * losses["b", "a"], abs=0.05)
    assert ablate("report", "foreign") == 0
    assert ablate("verify", "results/experiments/foreign/report.html") == 0


@pytest.mark.slow
def test_a_hanging_script_is_ended_and_leaves_nothing_behind(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(TRAINERS / "faulty.py", "faulty.py")
    first, other = (
        {"CHILD": str(folder / name), "AT": str(folder / f"at {name}")} for name in "ab"
    )
    trainer = {"file": "faulty.py", "silence_limit": 2, "env": {"KIND": "hang", **first}}
    path = write(folder, trainer=trainer, changes={"other": {"env": other}})
    limits_from(monkeypatch, folder / "at a", folder / "at b")
    assert ablate("run", path, "--max-parallel", 2, "--no-report") == 1
    assert list(load("foreign").runs["reason"]) == ["it printed nothing for 2 s"] * 2
    assert not any(psutil.pid_exists(int((folder / child).read_text())) for child in "ab")


def test_a_script_whose_run_was_changed_beside_it_has_no_result(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    harm = f"""
from pathlib import Path
for run in Path({str(folder / "results" / "runs")!r}).iterdir():
    if not (run / "result.json").exists():
        (run / "environment.json").write_text("")
"""
    script = (TRAINERS / "faulty.py").read_text().replace('os.environ["KIND"]', '"none"')
    Path("harmed.py").write_text(script + harm)
    assert ablate("ab", "old.py", "harmed.py", "-n", 1, *CPU, "--experiment", "x") == 1
    assert "its files changed while it ran (environment.json)" in capsys.readouterr().out
    assert sorted(statuses("x").values()) == ["failed", "finished"]


def test_a_run_that_failed_is_tried_again_as_often_as_asked(folder: Path) -> None:
    shutil.copy(TRAINERS / "faulty.py", "faulty.py")
    trainer = {
        "file": "faulty.py",
        "retries": 1,
        "env": {"KIND": "flaky", "MARK": str(folder / "mark")},
    }
    assert (
        ablate(
            "run", write(folder, trainer=trainer, changes={"x": {"args": ["--x"]}}), "--no-report"
        )
        == 0
    )
    ends = [
        [r["status"] for r in read_lines(run / "attempts.jsonl") if "status" in r]
        for run in Path("results/runs").iterdir()
    ]
    assert sorted(ends) == [["failed", "finished"], ["finished"]]


def test_a_script_that_goes_on_for_ever_meets_its_wall_limit(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(TRAINERS / "faulty.py", "faulty.py")
    forever = {"KIND": "forever", "AT": str(folder / "at")}
    path = write(
        folder,
        trainer={"file": "faulty.py", "env": {"KIND": "none"}},
        changes={"forever": {"env": forever}},
    )
    limits_from(monkeypatch, folder / "at")
    assert ablate("run", path, "--wall-limit", 1.5, "--no-report") == 1
    assert statuses("foreign") == {"baseline": "finished", "forever": "timeout"}


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGKILL]
)
def test_a_killed_call_leaves_no_process_and_goes_on(folder: Path, number: signal.Signals) -> None:
    Path("slow.py").write_text(
        "import os, time, pathlib\npathlib.Path(os.environ['PIDS'], str(os.getpid())).touch()\n"
        "time.sleep(0 if os.path.exists(os.environ['GO']) else 3600)\n"
        "print('step:1/1 val_loss:3.0 train_time:100ms step_avg:100ms')\n"
    )
    Path("pids").mkdir()
    shutil.copy("slow.py", "slow2.py")
    Path("slow2.py").write_text(Path("slow2.py").read_text() + "x = 1\n")
    variables = ["--env", f"PIDS={folder / 'pids'}", "--env", f"GO={folder / 'go'}"]
    command = [
        sys.executable,
        "-m",
        "harness",
        "ab",
        "slow.py",
        "slow2.py",
        "-n",
        "1",
        *CPU,
        *variables,
    ]
    process = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    STARTED.append(process)
    wait_for(lambda: os.listdir("pids") or process.poll() is not None)
    process.send_signal(number)
    out, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == (143 if number == signal.SIGTERM else -number), out
    pids = list(map(int, os.listdir("pids")))
    assert pids
    wait_for(lambda: all(map(gone, pids)), seen=lambda: pids)
    Path("go").touch()
    assert ablate(*command[3:]) == 0
    assert sorted(statuses("ab-slow-slow2").values()) == ["finished", "finished"]


def test_a_script_that_prints_its_own_code_first_is_read_right(folder: Path) -> None:
    Path("own.py").write_text(
        '"""\nstep:1/1 val_loss:9.0 train_time:5ms step_avg:5ms\n"""\nimport sys\n'
        "print(open(sys.argv[0]).read())\nprint('=' * 100)\nprint('step:2/2 val_loss:3.0 train_time:100ms step_avg:50ms')\n"
    )
    assert ablate("ab", "own.py", "old.py", "-n", 1, *CPU, "--experiment", "x") == 0
    known = load("x")
    run = known.runs.set_index("arm").loc["own", "run_id"]
    result = read_result(Path("results/runs") / run)
    assert result is not None
    assert result.val_loss == 3.0
    assert list(known.curves.loc[known.curves["run_id"] == run, "val_loss"]) == [3.0]


def test_a_run_is_made_again_from_the_code_it_ran(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        ablate("ab", "old.py", "new.py", "-n", 1, *CPU, "--env", "SEED={seed}", "--experiment", "x")
        == 0
    )
    Path("old.py").unlink()
    Path("new.py").write_text("raise SystemExit('edited since')\n")
    capsys.readouterr()
    assert ablate("rerun", load("x").runs["run_id"][0]) == 0
    assert "bit for bit as before" in capsys.readouterr().out


# ---------------------------------------------------------------- experiment files


def test_changes_are_variables_arguments_patches_and_files(folder: Path) -> None:
    patch = subprocess.run(
        ["diff", "-u", "old.py", "new.py"], capture_output=True, text=True
    ).stdout.replace("new.py", "old.py")
    Path("idea.diff").write_text(patch)
    changes = {
        "by_variable": {"env": {"BETTER": "0.1"}},
        "by_argument": {"args": ["--better=0.2"]},
        "by_patch": {"patch": "idea.diff"},
        "by_file": {"file": "new.py"},
    }
    path = write(folder, trainer={"env": {"SEED": "{seed}"}}, changes=changes)
    assert ablate("run", path, "--no-report") == 0
    loss = load("foreign").runs.set_index("arm")["val_loss"]
    gains = {arm: round(loss["baseline"] - loss[arm], 3) for arm in changes}
    assert gains == {"by_variable": 0.1, "by_argument": 0.2, "by_patch": 0.02, "by_file": 0.02}


def test_comments_make_nothing_stale_and_code_does(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(folder, changes={"x": {"env": {"BETTER": "0.1"}}})
    assert ablate("run", path, "--no-report") == 0
    Path("old.py").write_text("# a comment\n" + Path("old.py").read_text())
    capsys.readouterr()
    assert ablate("run", path, "--no-report") == 0
    assert "runs to do" not in capsys.readouterr().out
    Path("old.py").write_text(Path("old.py").read_text().replace("3.27", "3.28"))
    assert ablate("run", path, "--no-report") == 0
    assert "2 of 2 runs to do" in capsys.readouterr().out


def test_another_interpreter_is_an_environment_effect(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = folder / "env" / "bin" / "python"
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(folder / "env")],
        check=True,
    )
    path = write(folder, changes={"bare": {"environment": {"python": str(own)}}})
    assert ablate("run", path, "--no-report") == 0
    known = load("foreign")
    bare = known.runs.set_index("arm").loc["bare", "run_id"]
    effect = known.results[bare].environment_effect
    assert "torch absent instead of" in effect
    assert (
        known.results[known.runs.set_index("arm").loc["baseline", "run_id"]].environment_effect
        is None
    )
    assert "torch" not in known.environments[bare]["lock"]
    capsys.readouterr()
    assert ablate("compare", "foreign") == 0
    assert "bare: environment effect: " in capsys.readouterr().out


BAD = {
    "a patch that does not apply": (
        {"x": {"patch": "bad.diff"}},
        "bad.diff: does not apply to old.py",
    ),
    "a patch that is missing": ({"x": {"patch": "none.diff"}}, "none.diff: no such patch"),
    "an unknown key": ({"x": {"arg": ["--x"]}}, "unknown key 'arg'; did you mean 'args'?"),
    "arguments that are no list": (
        {"x": {"args": "--x"}},
        "args is '--x', but must be a list of arguments",
    ),
    "no such interpreter": (
        {"x": {"environment": {"python": "/none/python"}}},
        "/none/python: no such program",
    ),
    "an interpreter that is none": (
        {"x": {"environment": {"python": "/bin/false"}}},
        "`/bin/false` does not run Python: it ends with 1 and says nothing",
    ),
    "nothing changed": ({"x": {"env": {"BETTER": "0"}}}, "arm 'x' is the baseline"),
    "no such script": ({"x": {"file": "ol.py"}}, "no file ol.py in"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_is_found_before_anything_runs(
    folder: Path, capsys: pytest.CaptureFixture[str], kind: str, kept_line: Callable[[str], None]
) -> None:
    Path("bad.diff").write_text(
        "--- a/old.py\n+++ b/old.py\n@@ -1,1 +1,1 @@\n-nothing like it\n+x\n"
    )
    changes, message = BAD[kind]
    assert ablate("run", write(folder, trainer={"env": {"BETTER": "0"}}, changes=changes)) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "foreign.yaml:" in error
    assert error.count("\n") == 1
    assert not Path("results").exists()
    kept_line(error)


IDEA = {"idea": {"file": "new.py"}}
NO_KEYS = {"command": None, "file": None, "gpus": None}
MISTAKES: dict[
    str, tuple[dict[str, Any], str]
] = {  # -> what the file says, and from `:` on the error
    "an empty trainer": (
        {"trainer": NO_KEYS, "changes": IDEA},
        ":2: trainer must be a mapping with command, file, ref, args, env, patch,",
    ),
    "a truth for a number": (
        {"trainer": {"gpus": True}, "changes": IDEA},
        ":5: trainer: gpus is True, but must be a number of GPUs, 0 for a CPU run",
    ),
    "an environment of another key": (
        {"trainer": {"environment": {"pythn": "p"}}, "changes": IDEA},
        ":2: trainer: environment is {'pythn': 'p'}, but must be {python: PATH} or {container: COMMAND}",
    ),
    "a limit of nothing": (
        {"trainer": {"silence_limit": 0}, "changes": IDEA},
        ":6: silence_limit is 0, but must be above zero",
    ),
    "fewer than no retries": (
        {"trainer": {"retries": -1}, "changes": IDEA},
        ":6: retries is -1, but must be at least 0",
    ),
    "arms of a design that makes its own": (
        {"changes": IDEA, "design": "ladder", "arms": {"a": ["idea"]}},
        ":11: design ladder makes its own arms: say `design: explicit`, or leave `arms` out",
    ),
    "no change": ({"changes": {}}, ":7: there is nothing to compare: name a change"),
    "no arm": (
        {"changes": IDEA, "design": "explicit", "arms": {}},
        ":7: there is nothing to compare: name a change",
    ),
    "a change that is none": (
        {"changes": IDEA, "design": "explicit", "arms": {"both": ["idea", "ide"]}},
        ":12: unknown change 'ide'; did you mean 'idea'?",
    ),
    "a script that is not there": (
        {"changes": {"idea": {"file": "gone.py"}}},
        ":8: no file gone.py in ",
    ),
    "more changes than a design takes": (
        {"changes": {f"c{i}": {"args": [f"--{i}"]} for i in range(6)}, "design": "shapley"},
        ":26: design shapley takes at most 5 changes, not 6",
    ),
    "a key that is none": (
        {"changes": IDEA, "design": "explicit", "arms": {"a": ["idea"]}, "seed": 3},
        ":14: unknown key 'seed'; did you mean 'seeds'?",
    ),
    "a script and a repository": (
        {"trainer": {"repo": "."}, "changes": IDEA},
        ":2: trainer needs either `file`, a script, or `repo`, a git repository",
    ),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_a_mistake_in_a_file_is_told_at_its_line(
    folder: Path, capsys: pytest.CaptureFixture[str], kind: str, kept_line: Callable[[str], None]
) -> None:
    says, message = MISTAKES[kind]
    assert ablate("plan", write(folder, **says)) == 2
    error = capsys.readouterr().err
    assert f"foreign.yaml{message}" in error
    assert (error.count("\n"), error.count("foreign.yaml:")) == (1, 1)
    kept_line(error)


def test_a_chain_without_arms_is_a_ladder_of_the_changes(folder: Path) -> None:
    changes = {name: {"args": [f"--{name}"]} for name in ("a", "b")}
    listed = {"last": ["a", "b"], "one": "b"}
    made = load_foreign(write(folder, changes=changes, design="chain"), {})
    assert [arm.changes for arm in made.arms] == [(), ("a",), ("a", "b")]
    told = load_foreign(write(folder, changes=changes, design="chain", arms=listed), {})
    assert [(arm.name, arm.changes) for arm in told.arms[1:]] == [
        *(("last", ("a", "b")), ("one", ("b",))),
    ]


def test_limits_of_a_file_are_those_of_its_runs(folder: Path) -> None:
    given = {"wall_limit": 5, "silence_limit": 0.5, "retries": 0, "output_limit": 2}
    limits = TrainerLimits(wall_s=5, silence_s=0.5, retries=0, output_mib=2)
    assert load_foreign(write(folder, trainer=given, changes=IDEA), {}).limits == limits
    assert load_foreign(write(folder, changes=IDEA), {}).limits == TrainerLimits()
    last = load_foreign(write(folder, trainer={"output_limit": 2}, changes=IDEA), {})
    assert last.limits == TrainerLimits(output_mib=2)


def test_a_setting_of_our_own_trainer_is_none_of_a_file_with_scripts(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ablate("plan", write(folder, changes=IDEA), "--set", "lr=1", "--set", "x=2") == 2
    error = capsys.readouterr().err
    assert "--set lr: a foreign trainer has no such field; put arguments into" in error


def test_the_least_that_a_limit_may_be_and_gpus_that_are_asked_for_in_place_of_the_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(folder, trainer={"retries": 0, "wall_limit": 0.5}, changes=IDEA)
    read = load_foreign(path, {})
    assert (read.limits.retries, read.limits.wall_s) == (0, 0.5)
    assert [arm.trainer.gpus for arm in read.arms] == [0, 0]
    assert [arm.trainer.gpus for arm in load_foreign(path, {}, gpus=3).arms] == [3, 3]
    monkeypatch.setitem(LIMITS, "shapley", 1)
    as_many = load_foreign(write(folder, changes=IDEA, design="shapley"), {})
    assert [arm.name for arm in as_many.arms] == ["baseline", "idea"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["old.py", "none.py"], "and no such script; did you mean 'new.py'?"),
        (["old.py", "new.py", "--env", "X"], "--env X: must be NAME=VALUE"),
        (["old.py", "new.py", "-n", "0"], "-n 0: must be at least 1"),
        (["old.py", "new.py", "--data", "none"], "none does not exist"),
        (["old.py", "new.py", "--gpus-per-run", "99"], "a run needs 99 GPUs, this node shows"),
    ],
)
def test_bad_arguments_are_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert ablate("ab", *arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_script_has_a_gpu_of_its_own_unless_it_is_said_to_need_none(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert ablate("ab", "old.py", "new.py", "-n", 1, "--command", "python {script}") == 2
    assert "a run needs 1 GPUs, this node shows 0" in capsys.readouterr().err


@pytest.mark.slow
def test_a_real_training_from_nothing_to_the_verdict(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The default command (torchrun), the report and its verification, on a real tiny training."""
    shutil.copy(TRAINERS / "tiny_torch.py", "slow_rate.py")
    Path("fast_rate.py").write_text(
        Path("slow_rate.py").read_text().replace('"LR", "0.01"', '"LR", "0.05"')
    )
    options = ("--gpus-per-run", 0, "--env", "SEED={seed}", "--target", 1.0)
    assert ablate("ab", "slow_rate.py", "fast_rate.py", "-n", 2, *options) == 0
    out = capsys.readouterr().out
    assert "better" in out
    page = Path("results/experiments/ab-slow_rate-fast_rate/report.html")
    assert (
        "What the scripts&#39; clocks count" in page.read_text()
        or "What the scripts' clocks count" in page.read_text()
    )
    assert ablate("verify", page, "--results", "results") == 0
