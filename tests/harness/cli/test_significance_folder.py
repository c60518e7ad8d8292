"""`ablate significance DIR`: what a record's page claims, against its logs and the losses that it prints."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from harness.__main__ import main
from harness.cli.significance_folder import Claim
from reports.stats.rules import track1
from tests.foreign_bench import ablate
from tests.foreign_logs import year_2025

LOSSES = (3.2771, 3.2784, 3.2790, 3.2779)
PRINTED = (3.2751, 3.2762, 3.2771)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    logs = tmp_path / "A"
    logs.mkdir()
    for i, loss in enumerate(LOSSES):
        (logs / f"{i}.txt").write_text(year_2025(loss, seed=i))
        base = year_2025(loss + 0.01, seed=9 + i).replace(
            "import torch\n", "import torch\nOLD = 1\n"
        )
        (logs / f"baseline_{i}.txt").write_text(base)
    return logs


def check(capsys: pytest.CaptureFixture[str], folder: Path) -> tuple[int, dict[str, Any]]:
    with pytest.raises(SystemExit) as ended:
        main(["significance", str(folder), "--json"])
    return int(ended.value.code or 0), json.loads(capsys.readouterr().out)


def test_claims_are_held_against_each_arm_and_each_printed_list(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    p, of_list = track1(LOSSES).p, track1(PRINTED).p
    assert p is not None
    assert of_list is not None
    (folder / "README.md").write_text(
        f"Logs:\n# p={p:.4f} (significant)\n\nAll of them:\n[{', '.join(map(str, PRINTED))}]\n"
        f"p-value: {of_list:.5f}\nprint(f'p={{p:.4f}}')\ntimes [152.2, 153.1]\n"
    )
    code, facts = check(capsys, folder)
    assert code == 0
    assert facts["not_borne_out"] == []
    claims = {row["arm"]: row["claims"] for row in facts["samples"]}
    assert claims == {
        "A/candidate": f"p={p:.4f}",
        "A/baseline": "",
        "list in " + str(folder / "README.md") + ":5": f"p={of_list:.5f}",
    }
    assert [row["n"] for row in facts["samples"]] == [4, 4, 3]


def test_a_run_counts_once_and_one_that_diverged_not_at_all(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(folder / "0.txt", folder / "again.txt")
    (folder / "diverged.txt").write_text(year_2025(math.nan, seed=5))
    assert [row["n"] for row in check(capsys, folder)[1]["samples"]] == [4, 4]


def test_a_claim_that_nothing_gives_is_named_with_its_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "README.md").write_text("Very sure:\np = 0.0001\n")
    code, facts = check(capsys, folder)
    assert code == 1
    (line,) = facts["not_borne_out"]
    assert line.startswith(f"{folder / 'README.md'}:2: p=0.0001: ")
    (folder / "README.md").write_text("p = 0.0001\nAgain: p = 0.0001\nand p < 0.0001\n")
    code, facts = check(capsys, folder)
    assert [line.partition(": no")[0].rpartition("/")[2] for line in facts["not_borne_out"]] == [
        *("README.md:1: p=0.0001", "README.md:3: p<0.0001"),
    ]
    assert ablate("significance", folder) == 1
    head, *rows, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["arm", "n", "mean", "sd", "p", "claims"] and len(rows) == 2
    mean = sum(LOSSES) / len(LOSSES)
    assert [row.split()[2] for row in rows] == [f"{mean:.6f}", f"{mean + 0.01:.6f}"]
    assert [first, second] == facts["not_borne_out"]
    (folder / "README.md").unlink()
    assert ablate("significance", folder) == 0


def test_an_arm_that_the_rule_says_nothing_of_has_the_reason_in_place_of_claims(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for n in (1, 2, 3):
        (folder / f"{n}.txt").unlink()
    code, facts = check(capsys, folder)
    rows = {row["arm"]: row for row in facts["samples"]}
    with pytest.raises(ValueError) as why:
        track1(LOSSES[:1])
    one, several = rows["A/candidate"], rows["A/baseline"]
    assert (code, one["n"], one["p"], one["claims"]) == (0, 1, None, str(why.value))
    assert several["p"] is not None and several["claims"] == ""


@pytest.mark.parametrize(
    ("text", "is_bound", "near", "far"),
    [
        ("0.012", False, (0.0115, 0.0125), (0.0114, 0.0126)),
        ("1e-3", False, (0.000951, 0.001049), (0.000949, 0.001051)),
        ("2.5E-4", False, (0.000238, 0.000262), (0.000237, 0.000263)),
        ("0.01", True, (0.0, 0.0099), (0.01, 0.02)),
    ],
)
def test_a_p_value_is_the_claimed_one_at_the_digits_that_are_printed(
    text: str, is_bound: bool, near: tuple[float, float], far: tuple[float, float]
) -> None:
    decimals = len(text.lower().partition("e")[0].partition(".")[2])
    claim = Claim(where="", text=text, value=float(text), n_decimals=decimals, is_bound=is_bound)
    assert all(claim.holds(p) for p in near) and not any(claim.holds(p) for p in far)


def test_a_bound_is_held_as_a_bound(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    p = track1(LOSSES).p
    assert p is not None
    (folder / "README.md").write_text(f"p < {2 * p:.6f}\n")
    assert check(capsys, folder)[0] == 0
    (folder / "README.md").write_text(f"p < {p / 2:.6f}\n")
    assert check(capsys, folder)[0] == 1


def test_a_folder_without_logs_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["significance", str(tmp_path)])
    assert ended.value.code == 2
    assert "holds no whole log" in capsys.readouterr().err
