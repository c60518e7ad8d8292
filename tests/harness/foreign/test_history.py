"""The public repository's history as rows: a table of records of every track, its logs as runs, printed losses beside them."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.errors import UserError
from harness.foreign import history, history_pages
from harness.foreign.history import TRACKS, TableRow, rows_of_history, runs_as_figures, table_rows
from harness.foreign.history_pages import printed_rows
from harness.foreign.history_rows import HistoryRun

SHORT = """# Records
| # | time | what | date | log |
1 | 45 minutes | start | 05/28/24 | [log](records/track_1_short/2024-05-28_A/a.txt) |
| 2| 1.5 hours | next | 2024/06/06 | [log](records/track_1_short/2024-06-06_B) |
3 | 12.345 seconds | no log here | 07/01/24 | no link |
4 | 9 minutes | of another track | 07/02/24 | [log](records/track_2_medium/2024-07-02_C/c.txt) |
5 | 9 minutes | of no date | soon | [log](records/track_1_short/x/x.txt) |
6 | a while | in words | 07/03/24 | [log](records/track_1_short/2024-07-03_D/d.txt) |
7 | 9 minutes | names track_2 in words | 07/04/24 | none |
1234 | 9 minutes | no record | 07/04/24 | none |
"""
OPTIMIZATION = """
1 | 5000 (!) | start | 01/02/25 | [log](results/2025-01-02_A/a.txt)
2 | 4900 | no record | 01/03/25 | [log](results/2025-01-03_B/b.txt)
3 | none (!) | unknown | 01/04/25 |
"""


def test_the_rows_of_a_table_are_its_records_in_their_order() -> None:
    assert [*table_rows(SHORT, "short")] == [
        TableRow(record="1", published=2700.0, date="2024-05-28", log="records/track_1_short/2024-05-28_A/a.txt"),
        TableRow(record="2", published=5400.0, date="2024-06-06", log="records/track_1_short/2024-06-06_B"),
        TableRow(record="3", published=12.35, date="2024-07-01", log=None),
        TableRow(record="6", published=None, date="2024-07-03", log="records/track_1_short/2024-07-03_D/d.txt"),
    ]  # fmt: skip
    (other,) = table_rows(SHORT, "medium")
    assert (other.record, other.log) == ("4", "records/track_2_medium/2024-07-02_C/c.txt")
    first, third = table_rows(OPTIMIZATION, "optimization")
    assert (first.record, first.published, first.date) == ("1", 5000.0, "2025-01-02")
    assert first.log == "records/track_3_optimization/results/2025-01-02_A/a.txt"
    assert (third.record, third.published, third.log) == ("3", None, None)


CARD = {"name": "H100", "driver_version": "575"}


def run(arm: str, log: str, **facts: Any) -> dict[str, Any]:
    """A run of an imported log, by its arm; facts: of its result."""
    usual = {
        **{"log": log, "status": "finished", "budget": 100, "val_loss": 3.28, "program": "p"},
        **{"train_time_s": 20.0, "peak_allocated_mib": 7, "recipe": None},
    }
    return {"arm": arm, "gpus": [CARD] * facts.pop("gpus", 8), "result": {**usual, **facts}}


def imported(runs: list[dict[str, Any]], **aliases: dict[str, str]) -> Any:
    """Stands for the import of logs."""

    def import_logs(logs: list[Path], *, store: Any, experiment: str) -> SimpleNamespace:
        rows = []
        for n, one in enumerate(runs if experiment == "short" else []):
            folder = store.root / "runs" / f"r{n}"
            folder.mkdir(parents=True)
            environment = {"gpus": one["gpus"], "cuda": "12.4", "torch": "2.9"}
            (folder / "result.json").write_text(json.dumps(one["result"]))
            (folder / "environment.json").write_text(json.dumps(environment))
            rows.append(SimpleNamespace(run_id=f"r{n}", arm=one["arm"]))
        known = {"copies": {}, "twins": {}} | aliases
        return SimpleNamespace(plan=SimpleNamespace(runs=rows), **known)

    return import_logs


def checkout(root: Path, text: str) -> Path:
    for folder, page in TRACKS.values():
        (root / folder).mkdir(parents=True)
        (root / page).parent.mkdir(parents=True, exist_ok=True)
        (root / page).write_text("")
    (root / "README.md").write_text(text)
    return root


def at(folder: str) -> str:
    return f"/x/records/track_1_short/{folder}"


def test_a_run_is_a_row_and_a_record_has_its_arm_and_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = "2024-05-28_A", "2024-06-06_B"
    runs = [
        run(a, at(f"{a}/abcdefghij.txt"), val_loss=3.3, gpus=0, train_time_s=None),
        run(b, at(f"{b}/b1.txt")),
        run(b, at(f"{b}/b2.txt"), val_loss=3.1, recipe="r"),
        run(b, at(f"{b}/b3.txt"), status="diverged"),
        run(f"{b} (2)", at(f"{b}/other.txt")),
        *(run(f"{b}/baseline", at(f"{b}/baseline/{n}.txt"), val_loss=3.5) for n in range(3)),
        run("no date", at("c/c.txt"), budget=30),
    ]
    text = "\n".join(
        f"{n} | {n} minutes | x | 0{n}/01/24 | {log}"
        for n, log in (
            (1, f"[log](records/track_1_short/{a}/abcdefghij.txt)"),
            (2, f"[log](records/track_1_short/{b})"),
            (3, "none"),
            (4, "[log](records/track_1_short/copy/copied.txt)"),
        )
    )
    copies = {at("copy/copied.txt"): at(f"{a}/abcdefghij.txt"), at("copy/none.txt"): "gone"}
    monkeypatch.setattr(history, "import_logs", imported(runs, copies=copies))
    read = rows_of_history(checkout(tmp_path / "repo", text), tmp_path / "scratch")
    assert [
        (r.track, r.record, r.date, r.published, r.arm, r.parent, r.beside) for r in read.records
    ] == [
        ("short", "1", "2024-01-01", "60", a, "", ""),
        ("short", "2", "2024-02-01", "120", b, f"{b}/baseline", "yes"),
        ("short", "3", "2024-03-01", "180", "", b, ""),
        ("short", "4", "2024-04-01", "240", a, "", ""),
    ]
    rows = [(r.arm, r.run, r.val_loss) for r in read.runs]
    assert rows == [
        (a, "abcdefgh", 3.3),
        *((b, "b1", 3.28), (b, "b2", 3.1), (f"{b} (2)", "other", 3.28)),
        *((f"{b}/baseline", str(n), 3.5) for n in range(3)),
        ("no date", "c", 3.28),
    ]
    by_name = {r.run: r for r in read.runs}
    unknown, known = by_name["abcdefgh"], by_name["b2"]
    assert (unknown.gpu, unknown.n_gpus, unknown.driver, unknown.train_time_s) == ("", "", "", "")
    assert (unknown.step_ms, unknown.date) == ("", "2024-05-28")
    assert (known.gpu, known.n_gpus, known.driver, known.cuda, known.torch) == (
        *("H100", 8, "575"),
        *("12.4", "2.9"),
    )
    assert (known.step_ms, known.peak_mib, known.program, known.recipe) == (200.0, 7, "p", "r")
    assert (by_name["c"].step_ms, by_name["c"].date) == (666.6667, "")
    assert runs_as_figures("mine", tmp_path / "scratch" / "short", plan_of(runs))[0].track == "mine"


def plan_of(runs: list[dict[str, Any]]) -> Any:
    rows = [SimpleNamespace(run_id=f"r{n}", arm=one["arm"]) for n, one in enumerate(runs)]
    return SimpleNamespace(runs=rows)


@pytest.mark.parametrize(
    ("n_runs", "gpus", "is_beside"), [(3, 8, True), (2, 8, False), (3, 1, False)]
)
def test_a_baseline_beside_a_record_has_three_runs_on_as_many_gpus(
    n_runs: int, gpus: int, is_beside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    b = "2024-06-06_B"
    beside = [run(f"{b}/baseline", at(f"{b}/baseline/{n}.txt"), gpus=gpus) for n in range(n_runs)]
    runs = [run(b, at(f"{b}/b.txt")), *beside]
    monkeypatch.setattr(history, "import_logs", imported(runs))
    text = f"1 | 9 minutes | x | 01/01/24 | [log](records/track_1_short/{b}/b.txt)"
    (record,) = rows_of_history(checkout(tmp_path / "repo", text), tmp_path / "s").records
    assert (record.arm, record.parent) == (b, f"{b}/baseline" if is_beside else "")


BESIDE = "2024-06-06_B"


@pytest.mark.parametrize(
    ("sizes", "arm", "parent"),  # runs of arms
    [
        ({"candidate": 2, "control": 3, "main": 4, "old": 3}, "candidate", "main"),
        ({"candidate": 2, "one": 3, "main": 5}, "one", "main"),
        ({"main": 5, "old": 3}, "main", "old"),  # nothing else is there
        ({"main": 5}, "main", ""),
    ],
)
def test_of_a_records_folder_the_largest_candidate_is_held_against_its_largest_baseline(
    sizes: dict[str, int], arm: str, parent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = "2024-01-01_A/baseline"
    runs = [run(far, at(f"{far}/{n}.txt")) for n in range(9)]
    for name, size in sizes.items():
        inner = f"{BESIDE}/{name}"
        runs += [run(inner, at(f"{inner}/{n}.txt")) for n in range(size)]
    monkeypatch.setattr(history, "import_logs", imported(runs))
    text = f"1 | 9 minutes | x | 01/01/24 | [log](records/track_1_short/{BESIDE}/)"
    (record,) = rows_of_history(checkout(tmp_path / "repo", text), tmp_path / "s").records
    beside = f"{BESIDE}/{parent}" if parent else ""
    assert (record.arm, record.parent) == (f"{BESIDE}/{arm}", beside)


def test_another_folder_is_no_checkout(tmp_path: Path) -> None:
    said = "{}: no records/track_1_short or no README.md: name a checkout of the public repository"
    root = checkout(tmp_path / "repo", "")
    (root / TRACKS["short"][1]).unlink()
    for folder in (tmp_path, root):
        with pytest.raises(UserError) as refused:
            rows_of_history(folder, tmp_path / "scratch")
        assert str(refused.value) == said.format(folder)


def test_a_printed_list_is_of_the_arm_whose_logs_hold_more_than_half_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = {
        "A": [("p", (3.28, 3.29, 3.30)), ("p", (1.0, 2.0))],
        "B": [("p", (3.28, 3.28, 3.29, 3.30))],
        "C": [],
        "D": [("p", (3.28, 3.28, 3.30))],
    }
    for name in lists:
        (tmp_path / name).mkdir()
    (tmp_path / "file").touch()
    monkeypatch.setattr(history_pages, "printed_losses", lambda folder, target: lists[folder.name])
    losses = [("A", 3.28), ("A", 3.29), ("A/x", 3.28), ("A (2)", 3.30001), ("B", 3.28), ("B", 3.28)]
    losses += [("D (2)", 3.28), ("D (2)", 3.30), ("D (2)", 3.31)]
    runs = [HistoryRun(track="short", arm=arm, val_loss=loss) for arm, loss in losses]
    rows = printed_rows(tmp_path, runs)
    assert [(r.track, r.folder, r.arm, r.n, r.n_in_logs, r.mean, r.sd) for r in rows] == [
        ("short", "A", "", 2, 0, 1.5, 0.707107),
        ("short", "A", "A", 3, 2, 3.29, 0.01),
        ("short", "B", "", 4, 0, 3.2875, 0.009574),  # two of four are no more than half
        ("short", "D", "D (2)", 3, 2, 3.286667, 0.011547),  # one log holds one of the two
    ]
