"""What the rules say of foreign scripts: of their kept code, the files that they read and what they were given."""

from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pandas as pd
import pytest

from harness.run.plan import Plan, PlanArm
from reports.inputs.experiment import Experiment
from reports.submission.case import Case
from reports.submission.script_rules import script_data, script_flags, script_validation

READS = "def read(f, buffer):\n    f.readinto(buffer)\n"
OLD_PYTHON = "print 1"
FILES = {"fineweb": "data", "eval": "other"}
NOT_KEPT = "the code of the runs is not kept"
SHOWN = "eval, fineweb (fingerprint 0123456789abcdef)"


def case(folder: Path, **facts: Any) -> Case:
    """Two runs of an arm and of its baseline; facts: what is otherwise.

    ours, theirs: files of code, None of one that is not kept; data: files linked by name; prints:
    fingerprints of the arm's runs, then the baseline's; args: of the arm; counted: baseline's runs."""
    of_runs = facts.get("prints", ("0123456789abcdefg",) * 4)
    rows, configs = [], {}
    (folder / "code").mkdir()
    for arm, code in (("a", "ours"), ("base", "theirs")):
        files = facts.get(code, {"x.py": READS})
        if files is not None:
            with ZipFile(folder / "code" / f"{code}.zip", "w") as kept:
                for name, text in files.items():
                    kept.writestr(name, text)
        for n in range(2):
            rows.append({"arm": arm, "run_id": f"{arm}{n}", "stale": False, "budget": 9})
            args = facts.get("args", []) if arm == "a" else []
            trainer = {"data": facts.get("data", FILES), "args": args}
            configs[f"{arm}{n}"] = {"config": {"trainer": trainer}, "source": {"digest": code}}
    runs = pd.DataFrame(rows).assign(fingerprint=of_runs, status="finished")
    if not facts.get("counted", True):
        runs.loc[2:, "status"] = "failed"
    plan = Plan(name="x", baseline="base", arms=(PlanArm(name="base"), PlanArm(name="a")))
    experiment = Experiment(
        name="x", plan=plan, runs=runs, curves=runs, environments={}, configs=configs, results={}
    )
    return Case.of(experiment, "a", 3.28, results=folder)


@pytest.mark.parametrize(
    ("facts", "said", "reason"),
    [
        ({}, "passes", f"{SHOWN} as the baseline, read by the same code: read"),
        ({"data": {}}, "cannot be known", "the script finds its data itself: link it with --data"),
        (
            {"prints": ("0", "1", "0", "0")},
            "fails",
            "the runs read 2 different sets of files as eval, fineweb",
        ),
        (
            {"prints": ("0", "0", "1", "1")},
            "fails",
            "arm and baseline read different files as eval, fineweb",
        ),
        (
            {"counted": False},
            "cannot be known",
            f"{SHOWN}: the baseline has no finished run here",
        ),
        ({"ours": None}, "cannot be known", f"{SHOWN} as the baseline: {NOT_KEPT}"),
        ({"theirs": None}, "cannot be known", f"{SHOWN} as the baseline: {NOT_KEPT}"),
        (
            {"ours": {"x.py": "a = 1"}, "theirs": {"x.py": "a = 1"}},
            "cannot be known",
            f"{SHOWN} as the baseline: no function that reads it was seen",
        ),
        (
            {"ours": {"x.py": "a = 1"}},
            "cannot be known",
            f"{SHOWN} as the baseline, but code that reads it changed: read",
        ),
        (
            {"ours": {"x.py": READS, "y.py": OLD_PYTHON}, "args": ["--a=1"]},
            "cannot be known",
            f"{SHOWN} as the baseline, but its runs were given other arguments or variables; "
            "y.py was not read: it cannot be parsed",
        ),
    ],
)
def test_data_are_untouched_where_the_same_code_reads_the_same_files(
    tmp_path: Path, facts: dict[str, Any], said: str, reason: str
) -> None:
    assert script_data(case(tmp_path, **facts)) == (said, reason)


@pytest.mark.parametrize(
    ("files", "said", "reason"),
    [
        (None, "cannot be known", NOT_KEPT),
        ({"x.py": "a = 1"}, "cannot be known", "the code gives val_tokens no number"),
        (
            {"x.py": "val_tokens = 10", "y.py": "a.val_tokens = 9"},
            "cannot be known",
            "the code gives val_tokens several numbers: 9, 10",
        ),
        ({"x.py": "val_tokens = 10"}, "passes", "val_tokens is 10 in the code; the rule is 10"),
        ({"x.py": "val_tokens = 9"}, "fails", "val_tokens is 9 in the code; the rule is 10"),
        (
            {"x.py": "val_tokens = 10", "y.py": OLD_PYTHON},
            "cannot be known",
            "val_tokens is 10 in the code; the rule is 10; y.py was not read: it cannot be parsed",
        ),
        (
            {"x.py": "val_tokens = 9", "y.py": OLD_PYTHON},
            "fails",
            "val_tokens is 9 in the code; the rule is 10",
        ),
    ],
)
def test_validation_tokens_are_known_where_the_code_gives_one_number(
    tmp_path: Path, files: Any, said: str, reason: str
) -> None:
    assert script_validation(case(tmp_path, ours=files), 10) == (said, reason)


@pytest.mark.parametrize(
    ("facts", "said", "reason"),
    [
        ({}, "passes", "none in the code or the variables that it is given"),
        ({"ours": None}, "cannot be known", NOT_KEPT),
        (
            {"ours": {"y.py": OLD_PYTHON}},
            "cannot be known",
            "y.py was not read: it cannot be parsed",
        ),
        (
            {"ours": {"y.py": OLD_PYTHON}, "theirs": {"z.py": OLD_PYTHON}},
            "passes",
            "none in the code or the variables that it is given",
        ),
    ],
)
def test_flags_are_none_where_all_code_was_read(
    tmp_path: Path, facts: dict[str, Any], said: str, reason: str
) -> None:
    assert script_flags(case(tmp_path, **facts)) == (said, reason)
