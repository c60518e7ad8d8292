"""`ablate ab --stream NAME`: candidates one after the other share one error rate, which every kept one raises."""

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import Any

import pytest

from harness.cli import ab_stream
from harness.run import ledger as ledger_module
from harness.run.ledger import FILE, Ledger, StreamRow, add_rows, give_place, read_ledger
from harness.run.stream import StreamPlace, parts_of, place_of
from reports.analysis.compare import compare_all
from reports.inputs.load import load
from reports.page.write import write_report
from reports.verify.verify import verify
from tests.foreign_bench import CPU, ablate, bench


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What of an experiment is looked at here."""

    name: str
    stream: StreamPlace | None = None


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "marks").mkdir()
    monkeypatch.setenv("MARKS", str(tmp_path / "marks"))  # a run's noise is that of its turn
    return bench(tmp_path, monkeypatch)


def asked(
    capsys: pytest.CaptureFixture[str], *arguments: object, exit_code: int
) -> tuple[dict[str, Any], list[str]]:
    """(how it ended, the notes)"""
    capsys.readouterr()
    options = (*CPU, "--until", "decided", "--stream", "daily", "--json")
    assert ablate("ab", *arguments, *options) == exit_code
    verdict = json.loads(capsys.readouterr().out)
    return verdict["decision"], verdict["notes"]


def test_all_candidates_together_spend_one_error_rate() -> None:
    spent = [1 / parts_of(number, 0) for number in range(1, 5000)]
    assert 0.75 < sum(spent) <= 1
    assert spent == sorted(spent, reverse=True)
    assert parts_of(9, 3) <= parts_of(9, 1) / 2 + 1  # kept ones raise what is left to spend
    assert place_of("x", 3, 1) == StreamPlace(stream="x", number=3, parts=parts_of(3, 1), n_kept=1)


def test_a_kept_candidate_raises_what_the_next_may_spend_and_the_baseline_moves(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, notes = asked(capsys, "old.py", "new.py", exit_code=0)
    assert first["stream"] == {"stream": "daily", "number": 1, "parts": 3, "n_kept": 0}
    assert any("Candidate 1 of the stream 'daily'" in note and "1/3" in note for note in notes)
    experiment = load("ab-old-new")
    loss = compare_all(experiment).of("new", "val_loss")
    assert loss is not None and loss.n_comparisons == 3
    assert verify(write_report([experiment], folder / "page.html")) == []
    Path("newer.py").write_text(Path("new.py").read_text() + "\nnewer = True\n")
    budget = ("--budget", "2runs")
    second, _ = asked(capsys, "new.py", "newer.py", *budget, exit_code=5)
    assert second["stream"] == {
        "stream": "daily",
        "number": 2,
        "parts": parts_of(2, 1),
        "n_kept": 1,
    }
    again, _ = asked(capsys, "new.py", "newer.py", *budget, exit_code=5)
    assert again["stream"] == second["stream"]  # it has its place
    told = ("--until", "decided", "--stream", "daily", "--price", 3.6e6)
    assert ablate("ab", "new.py", "newer.py", *CPU, *told, *budget) == 5
    said = capsys.readouterr().out.splitlines()
    assert said[-3:-1] == [
        "undecided: another block would take more than --budget 2runs",
        "candidate 2 of the stream daily: not kept",
    ]
    spent = r"2 runs, 0\.00 h, 0\.00 hours of devices, price [1-9]\d*\.\d\d"
    assert re.fullmatch(f"this call: {spent}; 3 blocks in all", said[-1])
    rows = read_ledger(Path("results")).streams["daily"]
    assert sorted((row.place.number, row.kept) for row in rows.values()) == [(1, True), (2, False)]


def test_a_stream_is_asked_for_by_evidence_that_holds_in_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ablate("ab", "old.py", "new.py", *CPU, "--stream", "daily") == 2
    assert "--stream: needs --until decided" in capsys.readouterr().err


def test_a_place_that_nobody_was_given_is_passed_over(tmp_path: Path) -> None:
    sound = StreamRow(place=place_of("daily", 1, 0), candidate="a1", kept=True)
    cheap = StreamRow(
        place=StreamPlace(stream="daily", number=7, parts=1, n_kept=0), candidate="b2", kept=False
    )
    add_rows(tmp_path, [sound.to_json(), cheap.to_json()])
    ledger = read_ledger(tmp_path)
    assert (tmp_path / FILE).is_file()
    assert ledger.streams == {"daily": {"a1": sound}}
    assert ledger.n_passed_over == 1


def placed_at_once(
    monkeypatch: pytest.MonkeyPatch, place: Callable[[str], int], n: int = 2
) -> list[int]:
    """The numbers of so many candidates, of which each would read before any has its place."""
    together = Barrier(n)

    def read(results: Path) -> Ledger:
        ledger = read_ledger(results)
        with suppress(BrokenBarrierError):
            together.wait(0.2)
        return ledger

    monkeypatch.setattr(ledger_module, "read_ledger", read)
    with ThreadPoolExecutor(n) as pool:
        return sorted(pool.map(place, [f"c{i}" for i in range(n)]))


def test_two_candidates_at_once_have_two_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def place(candidate: str) -> int:
        given = ab_stream.in_stream(Asked(name=candidate), tmp_path, "daily").stream
        return int(given.number)

    monkeypatch.setattr(ab_stream, "candidate_of", lambda e: e.name)
    assert placed_at_once(monkeypatch, place) == [1, 2]


def test_a_number_is_of_the_first_that_took_it_and_a_candidate_keeps_its_own(
    tmp_path: Path,
) -> None:
    def row(candidate: str, number: int) -> StreamRow:
        return StreamRow(place=place_of("daily", number, 0), candidate=candidate, kept=False)

    rows = [row("a1", 1), row("b2", 1), row("a1", 2), row("c3", 5)]
    add_rows(tmp_path, [each.to_json() for each in rows])
    ledger = read_ledger(tmp_path)
    assert ledger.streams == {"daily": {"a1": rows[0], "c3": rows[3]}}
    assert ledger.n_passed_over == 2
    assert give_place(tmp_path, "daily", "b2") == place_of("daily", 6, 0)
    assert give_place(tmp_path, "daily", "c3") == rows[3].place
