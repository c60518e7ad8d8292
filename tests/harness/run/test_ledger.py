"""The memory of a results folder: whole lines whoever writes, nothing read that is none, nothing lost but a look where nobody may write."""

import json
import multiprocessing
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.run.ledger import (
    FILE,
    Ledger,
    Look,
    Seen,
    StreamRow,
    add_rows,
    gone_row,
    missing_rows,
    read_ledger,
    renamed_row,
)
from harness.run.stream import place_of


def a_look(
    experiment: str = "split", n: int = 3, at: str = "2026-01-05T08:00:00.000+00:00"
) -> Look:
    results = []
    for seed in range(n):
        name = f"{experiment}{seed}"
        results.append(Seen(claim="c0", seed=seed, intent_id=f"i{name}", run_id=f"r{name}", val_loss=1.5 + seed, train_time_s=4.0))  # fmt: skip
    return Look(at=at, by="compare", experiment=experiment, confirm=False, baseline="c0", arms={"c1": "an arm"},
                seeds=(0, 1), results=tuple(results))  # fmt: skip


def write(folder: str, writer: int) -> None:
    for i in range(20):
        add_rows(Path(folder), [a_look(f"by{writer}.{i}", n=200).to_json()])


def test_what_is_added_is_read(tmp_path: Path) -> None:
    assert read_ledger(tmp_path).looks == ()
    add_rows(tmp_path, [a_look().to_json(), a_look("other").to_json()])
    ledger = read_ledger(tmp_path)
    assert ledger.looks == (a_look(), a_look("other")) and ledger.words == ""


def test_a_row_of_the_first_format_is_read(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps(a_look().to_json()) + "\n")
    assert read_ledger(tmp_path) == Ledger(looks=(a_look(),))


def test_a_line_in_which_a_digit_was_changed_says_nothing(tmp_path: Path) -> None:
    add_rows(tmp_path, [a_look().to_json(), gone_row("clean", ["r1"])])
    path = tmp_path / FILE
    path.write_text(path.read_text().replace("1.5", "1.4").replace('"r1"', '"r2"'))
    ledger = read_ledger(tmp_path)
    assert (ledger.looks, ledger.gone, ledger.n_passed_over) == ((), {}, 2)


def test_two_people_write_whole_lines(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=write, args=(str(tmp_path), i)) for i in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    ledger = read_ledger(tmp_path)
    assert ledger.n_passed_over == 0
    names = sorted(look.experiment for look in ledger.looks)
    assert names == sorted(f"by{w}.{i}" for w in range(2) for i in range(20))


def test_a_torn_last_line_is_passed_over_and_spoils_no_other(tmp_path: Path) -> None:
    add_rows(tmp_path, [a_look().to_json()])
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"kind": "look", "at": "2026')
    assert read_ledger(tmp_path).looks == (a_look(),)
    add_rows(tmp_path, [a_look("next").to_json()])
    ledger = read_ledger(tmp_path)
    assert ledger.looks == (a_look(), a_look("next"))
    assert ledger.words == "ledger.jsonl has 1 lines that say nothing: they were passed over"


PLACED = {"kind": "stream", "candidate": "a1", "kept": True, **vars(place_of("daily", 1, 0))}
NONSENSE: dict[str, Any] = {
    "no object": [1, 2],
    "another kind": {"kind": "x"},
    "without results": {"kind": "look", "at": "2026-01-01"},
    "a name that leads out": a_look().to_json() | {"experiment": "../../x"},
    "a name with markup": a_look().to_json() | {"experiment": "<b>"},
    "a command with an escape": a_look().to_json() | {"by": "\x1b[31m"},
    "no time": a_look().to_json() | {"at": "soon"},
    "a seed beyond all": a_look().to_json() | {"seeds": [10**30]},
    "results of nothing": a_look().to_json() | {"results": [[1]]},
    "a run beyond the folder": a_look().to_json() | {"results": [["c0", 0, "i", "../../etc", 1.0, 1.0]]},
    "runs that are none": {"kind": "gone", "at": "2026-01-01", "by": "clean", "runs": 7},
    "a removal by nobody": {"kind": "gone", "at": "2026-01-01", "by": "x" * 41, "runs": ["r1"]},
    "a seed below all": a_look().to_json() | {"seeds": [-1]},
    "a seed just beyond": a_look().to_json() | {"seeds": [2**31]},
    "a seed that is text": a_look().to_json() | {"seeds": ["1"]},
    "a result at no seed": a_look().to_json() | {"results": [["c0", -1, "i", "r", 1.0, 1.0]]},
    "a claim that is none": a_look().to_json() | {"results": [["../c", 0, "i", "r", 1.0, 1.0]]},
    "an arm of no claim": a_look().to_json() | {"arms": {"../c": "a"}},
    "a baseline of no claim": a_look().to_json() | {"baseline": "../c"},
    "a place before the first": PLACED | {"number": 0, "parts": 0},
    "a place after fewer than none": PLACED | {"n_kept": -1},
    "a part that is another": PLACED | {"parts": 4},
    "a stream that leads out": PLACED | {"stream": "../x"},
    "a candidate that leads out": PLACED | {"candidate": "../x"},
    "an experiment renamed to no name": {"kind": "renamed", "experiment": "split", "name": "../x"},
}  # fmt: skip


@pytest.mark.parametrize("what", NONSENSE)
def test_a_strangers_nonsense_is_passed_over(what: str, tmp_path: Path) -> None:
    text = json.dumps(NONSENSE[what]) + "\n" + "[" * 100_000 + "\n\xff\n"
    (tmp_path / FILE).write_bytes(text.encode("latin-1"))
    ledger = read_ledger(tmp_path)
    assert ledger.looks == () and ledger.gone == {} and ledger.n_passed_over == 3
    assert ledger.streams == {}
    assert "\n" not in ledger.words


def test_what_just_makes_sense_is_read_and_what_is_gone_is_told_by_whom_and_when(
    tmp_path: Path,
) -> None:
    seen = Seen(claim="c1", seed=None, intent_id="i", run_id="r", val_loss=None, train_time_s=None)
    far = replace(seen, seed=2**31 - 1, val_loss=2.0, train_time_s=3.0)
    look = replace(a_look(), seeds=(0, 2**31 - 1), results=(seen, far), confirm=True)
    at = "2026-01-05T08:01:59.123+00:00"
    gone = {"kind": "gone", "at": at, "by": "x" * 40, "runs": ["r1", "r2"]}
    add_rows(tmp_path, [look.to_json(), gone, PLACED])
    ledger = read_ledger(tmp_path)
    assert (ledger.looks, ledger.words, ledger.n_passed_over) == ((look,), "", 0)
    assert ledger.gone == dict.fromkeys(("r1", "r2"), f"{'x' * 40}, 2026-01-05T08:01")
    place, row = place_of("daily", 1, 0), ledger.streams["daily"]["a1"]
    assert row == StreamRow(place=place, candidate="a1", kept=True)
    assert row.to_json().items() >= PLACED.items()


def test_looks_until_it_was_renamed_are_at_an_experiment_by_its_new_name(tmp_path: Path) -> None:
    looks = [a_look(), a_look("other")]
    rows = [*looks, renamed_row("split", "ours"), a_look(n=1)]
    add_rows(tmp_path, [row.to_json() if isinstance(row, Look) else row for row in rows])
    names = [look.experiment for look in read_ledger(tmp_path).looks]
    assert names == ["ours", "other", "split"]
    assert missing_rows(tmp_path, tmp_path) == []
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    add_rows(elsewhere, [a_look().to_json(), a_look("new").to_json()])
    assert missing_rows(tmp_path, elsewhere) == [a_look("new").to_json()]


def test_a_ledger_that_may_not_be_read_is_told_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("{}")
    (tmp_path / FILE).symlink_to(tmp_path / "elsewhere")
    assert "links in a results folder are not followed" in read_ledger(tmp_path).words
    with pytest.raises(OSError, match="not followed"):
        add_rows(tmp_path, [a_look().to_json()])
    assert (tmp_path / "elsewhere").read_text() == "{}"
    (tmp_path / FILE).unlink()
    with (tmp_path / FILE).open("wb") as file:
        file.truncate(65 << 20)
    assert "larger than the 64 MiB" in read_ledger(tmp_path).words


def test_merging_brings_what_is_missing_once(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    add_rows(ours, [a_look().to_json()])
    add_rows(theirs, [a_look().to_json(), a_look("more").to_json(), a_look("more").to_json()])
    for _ in range(2):
        add_rows(ours, missing_rows(ours, theirs))
    assert read_ledger(ours).looks == (a_look(), a_look("more"))


def test_ten_thousand_results_are_read_in_no_time(tmp_path: Path) -> None:
    add_rows(tmp_path, [a_look(n=10_000).to_json()])
    began = time.process_time()
    (look,) = read_ledger(tmp_path).looks
    took_s = time.process_time() - began
    assert len(look.results) == 10_000
    assert took_s < 0.5, took_s  # a tenth of the status of so many runs, on a slow machine
    print(took_s)


def test_a_line_that_a_full_disk_cuts_is_an_error_and_spoils_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_all = os.write
    monkeypatch.setattr(os, "write", lambda file, content: write_all(file, content[:-9]))
    with pytest.raises(OSError, match="No space left on device"):
        add_rows(tmp_path, [a_look().to_json()])
    monkeypatch.undo()
    add_rows(tmp_path, [a_look("other").to_json()])
    ledger = read_ledger(tmp_path)
    assert (ledger.looks, ledger.n_passed_over) == ((a_look("other"),), 1)
