"""Arms of imported logs: never of two programs, numbers of steps or machines; named so that a reader knows them."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.__main__ import main
from harness.foreign.log_arms import ArmBy, LogPlace, Program, name_arms
from reports.inputs.load import load
from tests.foreign_logs import LINE, SMI, late_2024, year_2025


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def bring_in(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["import", *map(str, arguments), "--experiment", "x", "--json"])
    facts: dict[str, Any] = json.loads(capsys.readouterr().out)
    facts["arms"] = {row["arm"]: row["runs"] for row in facts["arms"]}
    return facts


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def new_code(text: str) -> str:
    return text.replace("import torch\n", "import torch\nIDEA = True\n")


def record(root: Path, name: str) -> None:
    """A record's folder that holds a baseline and its candidate, as files beside each other."""
    for i in range(3):
        put(root / name / f"{i}a.txt", new_code(year_2025(3.277 + i / 1e3, seed=i)))
        put(root / name / f"comparison_{i}b.txt", year_2025(3.279 + i / 1e3, seed=9 + i))


def test_a_baseline_and_its_candidate_in_one_folder_are_two_arms(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("2025-09-05_SkipMLPBlocks", "2025-09-10_Other"):
        record(folder / "records", name)
    put(folder / "records/2025-09-10_Other/extra.txt", new_code(year_2025(3.3, seed=50)))
    # the two folders' baselines are equal code, and equal logs: another loss makes them others
    for path in (folder / "records/2025-09-10_Other").iterdir():
        path.write_text(path.read_text().replace("allocated: 31361", "allocated: 31362"))
    facts = bring_in(capsys, "records")
    assert facts["arms"] == {
        "2025-09-05_SkipMLPBlocks/candidate": 3,
        "2025-09-05_SkipMLPBlocks/baseline": 3,
        "2025-09-10_Other/candidate": 4,
        "2025-09-10_Other/baseline": 3,
    }
    runs = load("x").runs
    assert runs.groupby("arm")["run_id"].nunique().to_dict() == facts["arms"]


def test_subfolders_are_arms_of_their_own_and_two_folders_baselines_never_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for i, name in enumerate(("A", "B")):
        put(folder / "r" / name / "baseline" / "1.txt", year_2025(3.28 + i / 1e3, seed=i))
        put(folder / "r" / name / "this_pr" / "2.txt", new_code(year_2025(3.27 + i / 1e3, seed=i)))
    facts = bring_in(capsys, "r")
    assert list(facts["arms"]) == ["A/baseline", "A/this_pr", "B/baseline", "B/this_pr"]


def test_equal_code_at_other_steps_is_another_arm(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "import os\nSTEPS = int(os.environ['STEPS'])\n"
    for steps in (250, 500):
        text = year_2025(3.28, steps=steps, seed=steps)
        put(folder / "A" / f"{steps}.txt", code + text[text.index("=" * 100) :].partition("\n")[2])
    for path in (folder / "A").iterdir():
        text = path.read_text()
        path.write_text(code + "=" * 100 + "\n" + text[text.index("Running Python") :])
    assert list(bring_in(capsys, "A")["arms"]) == [
        "A/candidate (250 steps)",
        "A/candidate (500 steps)",
    ]


def test_eight_gpus_and_one_are_two_arms(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(folder / "A" / "1.txt", year_2025(3.28))
    one = "\n".join(line for line in SMI.splitlines() if not line.startswith("|   1"))
    put(folder / "A" / "2.txt", year_2025(3.281, seed=1).replace(SMI, one))
    assert list(bring_in(capsys, "A")["arms"]) == [
        "A/candidate (2 x NVIDIA H100 80GB HBM3)",
        "A/candidate (1 x NVIDIA H100 80GB HBM3)",
    ]


def test_folders_of_seeds_are_one_arm(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in range(3):
        put(folder / "A" / "idea" / f"seed_{seed}" / "stdout.txt", year_2025(3.28, seed=seed))
    assert bring_in(capsys, "A")["arms"] == {"idea": 3}


@pytest.mark.parametrize(
    ("by", "arms", "mixed"),
    [
        ("code", ["A/baseline", "A/this_pr"], {}),
        ("folder", ["A"], {"A": "2 programs"}),
        ("subfolder", ["A/baseline", "A/this_pr"], {}),
    ],
)
def test_arms_are_cut_as_asked_and_a_mixture_is_told(
    by: str,
    arms: list[str],
    mixed: dict[str, str],
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    put(folder / "r" / "A" / "baseline" / "1.txt", year_2025(3.28))
    put(folder / "r" / "A" / "this_pr" / "2.txt", new_code(year_2025(3.27, seed=1)))
    facts = bring_in(capsys, "r", "--arm-by", by)
    assert (list(facts["arms"]), facts["mixed"]) == (arms, mixed)


def test_a_later_import_joins_no_arm_of_another_program(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder / "A" / "1.txt", year_2025(3.28))
    assert bring_in(capsys, "A")["arms"] == {"A": 1}
    (folder / "A" / "1.txt").unlink()
    put(folder / "A" / "2.txt", new_code(year_2025(3.27, seed=1)))
    arms = bring_in(capsys, "A")["arms"]
    assert list(arms.values()) == [1, 1]
    assert [name.partition(" (code ")[0] for name in arms] == ["A", "A"]


# ---------------------------------------------------------------- once


def test_a_summary_and_a_twin_count_once_with_a_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = year_2025(3.2777)
    final = [line for line in text.splitlines() if "val_loss:3.2777" in line][-1]
    put(folder / "A" / "seed_0" / "final_val_loss.txt", final + "\n")
    put(folder / "A" / "seed_0" / "stdout.txt", text)
    body = text[text.rindex(LINE) :]
    points = [line for line in body.splitlines() if line.startswith("step:")]
    put(folder / "A" / "twin.out", "\n".join(points) + "\n")  # without its head and its memory
    facts = bring_in(capsys, "A")
    assert facts["imported"] == 1
    log = "A/seed_0/stdout.txt"
    assert facts["twins"] == {"A/seed_0/final_val_loss.txt": log, "A/twin.out": log}
    assert facts["refused"] == {}


def test_two_runs_that_end_alike_are_two(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = year_2025(3.2777)
    put(folder / "A" / "1.txt", text)
    put(folder / "A" / "2.txt", text.replace("step:125/250 val_loss:5", "step:125/250 val_loss:6"))
    assert bring_in(capsys, "A")["imported"] == 2


def test_a_profilers_trace_is_passed_over_with_a_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder / "A" / "1.txt", year_2025(3.28))
    put(folder / "A" / "rank0-chrome-trace.json.gz", "\x1f\x8b")
    facts = bring_in(capsys, "A")
    assert facts["skipped"] == {"A/rank0-chrome-trace.json.gz": "a profiler's trace, no log"}
    assert facts["refused"] == {}


def test_both_runs_of_one_file_come_in(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(folder / "A" / "1.txt", late_2024(3.2777) + late_2024(3.2812, seed=1))
    assert bring_in(capsys, "A")["imported"] == 2
    results = load("x").results.values()
    assert sorted(result.content["log"] for result in results) == [
        "A/1.txt (run 1)",
        "A/1.txt (run 2)",
    ]


# ---------------------------------------------------------------- facts


def test_paths_stay_as_they_were_given(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(folder / "b" / "A" / "1.txt", year_2025(3.28))
    (folder / "a").symlink_to("b")
    bring_in(capsys, "a/A/../A/1.txt")
    (result,) = load("x").results.values()
    assert result.content["log"] == "a/A/../A/1.txt"
    (log,) = Path("results/runs").glob("*/log.txt")
    assert log.read_text() == "imported from a/A/../A/1.txt\n"


def test_no_table_of_gpus_is_not_no_gpus(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(folder / "A" / "1.txt", year_2025(3.28).replace(SMI, "no table"))
    bring_in(capsys, "A")
    (environment,) = load("x").environments.values()
    assert environment["gpus"] is None


@pytest.mark.parametrize("printed", [True, False])
def test_a_seed_that_two_logs_used_is_flagged(
    printed: bool, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for i, seed in enumerate((1, 2, 1)):
        text = year_2025(3.28 + i / 1e3, seed=i)
        name = f"{i}.txt" if printed else f"{i}_seed{seed}.txt"
        if printed:
            text = text.replace("step:0/250", f"Using seed={seed}\nstep:0/250", 1)
            text = text.replace("Running Python", f"Using seed={seed}\nRunning Python", 1)
        put(folder / "A" / name, text)
    facts = bring_in(capsys, "A")
    reused = facts["seeds_reused"]["A"]
    assert list(reused) == ["1"]
    assert len(reused["1"]) == 2
    with pytest.raises(SystemExit):
        main(["import", "A", "--experiment", "y"])
    assert "A: seed 1 was used by 2 logs: " in capsys.readouterr().out


def test_two_programs_of_one_role_are_two_arms_named_by_their_code(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for i in range(2):
        put(folder / "A" / f"{i}.txt", year_2025(3.28 + i / 1e3, seed=i))
        put(folder / "A" / f"{i}n.txt", new_code(year_2025(3.27 + i / 1e3, seed=9 + i)))
    arms = bring_in(capsys, "A")["arms"]
    assert list(arms.values()) == [2, 2]
    assert all(name.startswith("A/candidate (code ") for name in arms)


def test_the_plan_of_imported_logs_keeps_the_command_that_brought_them(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder / "A" / "1.txt", year_2025(3.28, seed=1))
    monkeypatch.setattr(sys, "argv", ["/bin/ablate", "import", "A", "--experiment", "x"])
    bring_in(capsys, "A")
    assert load("x").plan.command == "ablate import A --experiment x"


def test_a_machine_of_which_nothing_is_known_is_told_from_one_that_is_named() -> None:
    place = LogPlace(folder="A")
    named = Program(code="abcdef0123", steps=8, machine=("2 GPUs", "torch 2.9"))
    bare, other = replace(named, machine=()), replace(named, code=None, steps=9)
    assert name_arms([(place, named), (place, bare)], ArmBy.CODE) == [
        "A/candidate (2 GPUs, torch 2.9)",
        "A/candidate (unknown machine)",
    ]
    assert name_arms([(place, named), (place, other)], ArmBy.CODE) == [
        "A/candidate (code abcdef, 8 steps)",
        "A/candidate (without code, 9 steps)",
    ]
    assert name_arms([(place, named), (place, named)], ArmBy.CODE) == ["A", "A"]
