"""Merging: two experiments of one name are one where they ask the same question, and refused where they do not."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UserError
from harness.store.merge import files_of_run, merge
from harness.store.plans import folder
from harness.store.store import Store
from tests.report_fixtures import Arm, write_experiment

ARMS = (Arm(name="base"), Arm(name="same", fields=(("model.untied_head", True),)))
QUESTIONS: dict[str, tuple[Any, Any]] = {
    "parents": ({"same": "base"}, {"same": "same"}),
    "prior_noise": (None, {"sd": 0.0018, "source": "38 runs", "df": 4}),
    "branch_at": (100, None),
    "margin": (0.01, 0.02),
    "confirm": (False, True),
}


def made(root: Path, **keys: Any) -> Path:
    write_experiment(root, arms=ARMS, n_seeds=1)
    path = folder(root, "split") / "experiment.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))
    return root


@pytest.mark.parametrize("key", QUESTIONS)
def test_what_asks_something_else_is_another_experiment(key: str, tmp_path: Path) -> None:
    ours, theirs = QUESTIONS[key]
    here = Store.create(made(tmp_path / "here", **{key: ours}))
    merge(made(tmp_path / "same", **{key: ours}), here)
    with pytest.raises(UserError, match=f"'split' in .* has another {key} than in "):
        merge(made(tmp_path / "there", **{key: theirs}), here)


def test_a_results_folder_behind_a_link_is_read_as_any_other(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    there = made(tmp_path / "disk" / "there")
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    run = min((there / "runs").iterdir())
    (run / "attempts" / "1").mkdir(parents=True)
    (run / "attempts" / "1" / "log.txt").write_text("the first try\n")
    names, left_out = files_of_run(tmp_path / "link" / "there" / "runs" / run.name)
    assert {"result.json", "attempts/1/log.txt"} <= {*names} and left_out == []


def test_what_lies_among_the_runs_and_is_none_is_told(tmp_path: Path) -> None:
    there = made(tmp_path / "there")
    (there / "runs" / "notes").touch()
    (there / "runs" / "not a run").mkdir()
    (there / "runs" / ".hidden").touch()
    done = merge(there, Store.create(tmp_path / "here"))
    none = [f"{there / 'runs' / name}: is no folder of a run" for name in ("not a run", "notes")]
    assert sorted(line for line in done.problems if "is no folder" in line) == none


def test_a_plan_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    there = made(tmp_path / "there")
    path = folder(there, "split") / "experiment.json"
    path.write_text("{")
    done = merge(there, Store.create(tmp_path / "here"))
    assert [line for line in done.problems if str(path) in line and "remove it" in line]
    assert done.experiments == []
