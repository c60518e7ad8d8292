"""A record's pull request of scripts as they are: rules from their kept code, their own logs, their diff."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.run.code import CODE_LIMIT
from reports.inputs.load import load
from reports.submission.case import Case, RuleCheck
from reports.submission.lint import VAL_TOKENS, lint
from reports.submission.script_rules import script_flags
from tests.foreign_bench import ablate, write

OLD = """
import os
import random
import sys

val_tokens = 20 * 524288

def read_tokens(buffer=bytearray(4)):
    with open("data/train.bin", "rb") as file:
        file.readinto(buffer)
    return buffer

def tuned():
    import torch
    import torch._inductor.config as config
    config.coordinate_descent_tuning = True
    return torch.compile(tuned, dynamic=False)

read_tokens()
random.seed(int(os.environ["SEED"]))
os.makedirs("logs", exist_ok=True)
with open("logs/again.txt", "w") as log:
    log.write("step:100/100 val_loss:9.9000 train_time:1ms step_avg:1.00ms\\n")
with open("logs/x.txt", "w") as log:
    log.write(open(sys.argv[0]).read() + "\\n" + "=" * 100 + "\\n")
    for step in range(0, 101, 50):
        ms = step * (1000 + random.gauss(0, 1))
        loss = 3.27 + 7 * (step < 100) + random.gauss(0, 0.001)
        line = f"step:{step}/100 val_loss:{loss:.4f} train_time:{ms:.0f}ms step_avg:{ms / max(step, 1):.2f}ms"
        print(line)
        log.write(line + "\\n")
"""
ARMS = {  # arm -> what of the script is another
    "idea": ("1000 +", "900 +"),
    "flag": (
        "    return torch.compile",
        "    config.max_autotune = True\n    return torch.compile",
    ),
    "mode": ("dynamic=False", 'dynamic=False, mode="max-autotune"'),
    "reads": ("    return buffer", "    return buffer[1:]"),
    "tokens": ("20 * 524288", "524288"),
    "long": ("import os\n", "import os\n" + "#" * CODE_LIMIT + "\n"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs of every arm."""
    folder = tmp_path_factory.mktemp("scripts")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("data").mkdir()
        Path("data/train.bin").write_bytes(b"tokens")
        Path("old.py").write_text(OLD)
        changes: dict[str, Any] = {
            "variable": {"env": {"TORCHINDUCTOR_MAX_AUTOTUNE": "1"}},
            "asked": {"args": ["--val-tokens=8", "--files=data/b.bin"]},
        }
        for arm, (gone, come) in ARMS.items():
            assert gone in OLD
            Path(f"{arm}.py").write_text(OLD.replace(gone, come))
            changes[arm] = {"file": f"{arm}.py"}
        path = write(folder, trainer={"env": {"SEED": "{seed}"}}, changes=changes, seeds=3)
        assert ablate("run", path, "--no-report", "--max-parallel", 2) == 0
    return folder


@pytest.fixture(autouse=True)
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def check(arm: str, rule: str) -> RuleCheck:
    checks = lint(Case.of(load("foreign"), arm, 3.28, results=Path("results")))
    return next(c for c in checks if c.rule == rule)


TOKENS, FLAGS = f"{VAL_TOKENS} validation tokens", "no extra compile flags"
SAID = [
    ("idea", "data untouched", "passes", "as the baseline, read by the same code: read_tokens"),
    ("reads", "data untouched", "cannot be known", "code that reads it changed: read_tokens"),
    ("idea", TOKENS, "passes", "val_tokens is 10485760 in the code"),
    ("variable", "data untouched", "passes", "read by the same code"),
    ("asked", "data untouched", "cannot be known", "given other arguments or variables"),
    (
        "asked",
        TOKENS,
        "cannot be known",
        "in the code; the rule is 10485760; its runs were given one",
    ),
    ("tokens", TOKENS, "fails", "val_tokens is 524288 in the code"),
    ("idea", FLAGS, "passes", "torch._inductor.config.coordinate_descent_tuning = True"),
    ("flag", FLAGS, "fails", "torch._inductor.config.max_autotune = True (flag.py:17)"),
    ("mode", FLAGS, "fails", "torch.compile(mode='max-autotune') (mode.py:17)"),
    ("variable", FLAGS, "fails", "TORCHINDUCTOR_MAX_AUTOTUNE=1 (environment)"),
    ("long", FLAGS, "cannot be known", "long.py was not read: it is longer than 512 KiB"),
    (
        "long",
        "data untouched",
        "cannot be known",
        "changed: read_tokens, the top level; long.py was",
    ),
    ("long", TOKENS, "cannot be known", "no number; long.py was not read"),
    ("idea", "faster than the baseline", "passes", "(Welch, one-sided), n = 3 and 3"),
    ("reads", "faster than the baseline", "fails", "p = "),
    ("idea", "p < 0.01", "passes", "loss buffer 0.0"),
    ("idea", "one code", "passes", ""),
]


@pytest.mark.parametrize(("arm", "rule", "said", "reason"), SAID)
def test_a_script_is_judged_by_what_its_runs_know(
    arm: str, rule: str, said: str, reason: str, kept_line: Callable[[str], None]
) -> None:
    found = check(arm, rule)
    assert (found.said, reason in found.reason) == (said, True), found.reason
    kept_line(found.reason)


def test_a_variable_of_another_value_is_another_flag() -> None:
    experiment = load("foreign")
    of_baseline = Case.of(experiment, "variable", 3.28).baseline["run_id"]
    for value, said in (("0", "fails"), ("1", "passes")):
        for run_id in of_baseline:
            experiment.environments[run_id]["variables"] = {"TORCHINDUCTOR_MAX_AUTOTUNE": value}
        checks = lint(Case.of(experiment, "variable", 3.28, results=Path("results")))
        assert next(c for c in checks if c.rule == FLAGS).said == said


def test_flags_beside_a_baseline_whose_code_is_not_kept_cannot_be_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Case, "baseline_scripts", None)
    for arm in ("idea", "long"):
        said, reason = script_flags(Case.of(load("foreign"), arm, 3.28, results=Path("results")))
        assert said == "cannot be known"
        assert ("the baseline's code is not kept" in reason) is (arm == "idea"), reason


def test_the_same_files_are_no_longer_the_same_where_their_size_is_another() -> None:
    experiment = load("foreign")
    experiment.runs.loc[experiment.runs["arm"] == "idea", "fingerprint"] = "a" * 64
    checks = lint(Case.of(experiment, "idea", 3.28, results=Path("results")))
    assert next(c for c in checks if c.rule == "data untouched").said == "fails"


def test_its_logs_are_the_scripts_own_with_their_code_and_are_imported_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ablate("submission", "foreign", "--arm", "idea", "-o", "pr", "--json") == 0
    rules = json.loads(capsys.readouterr().out)["rules"]
    assert "fails" not in {r["verdict"] for r in rules}
    logs = sorted(Path("pr/logs").glob("*.txt"))
    assert len(logs) == 3
    assert all("900 + random.gauss" in log.read_text().split("=" * 100)[0] for log in logs)
    assert ablate("import", *logs, "--experiment", "again", "--arm", "idea") == 0
    own = load("foreign").runs
    own = own[own["arm"] == "idea"]
    again = load("again").runs
    assert sorted(again["val_loss"]) == pytest.approx(sorted(own["val_loss"]), abs=1e-4)
    assert sorted(again["train_time_s"]) == pytest.approx(sorted(own["train_time_s"]))
    diff = Path("pr/changes.diff").read_text()
    assert "-        ms = step * (1000 + random" in diff
    assert "+        ms = step * (900 + random" in diff
    page = Path("pr/README.md").read_text()
    assert "Lines of code: 1 new, 1 gone (`changes.diff`)" in page
    assert "loss buffer" in page


def test_a_script_without_a_log_of_its_own_is_told_by_what_it_printed() -> None:
    for kept in Path("results/runs").glob("*/own-*"):
        kept.rename(kept.with_name(f"was-{kept.name}"))
    try:
        assert ablate("submission", "foreign", "--arm", "tokens", "-o", "printed") == 0
    finally:
        for kept in Path("results/runs").glob("*/was-own-*"):
            kept.rename(kept.with_name(kept.name.removeprefix("was-")))
    logs = sorted(Path("printed/logs").glob("*.txt"))
    assert all("val_tokens = 524288" in log.read_text() for log in logs)
    assert ablate("import", *logs, "--experiment", "printed", "--arm", "tokens") == 0
    assert set(load("printed").runs["steps"]) == {100}


def test_a_log_that_does_not_tell_its_length_is_imported() -> None:
    lines = [
        f"step:{step}/0 val_loss:{4 - step / 100:.4f} train_time:{step * 9}ms step_avg:9.00ms\n"
        for step in (0, 50, 100)
    ]
    Path("open.txt").write_text("".join(lines))
    assert ablate("import", "open.txt", "--experiment", "open", "--arm", "x") == 0
    assert list(load("open").runs["steps"]) == [100]
