"""What commands print by hand: tables and JSON, how long and how far, what is said as JSON, refusals as data."""

import io
import json
import math
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import typer

from harness.cli import complete as complete_module
from harness.cli import data as data_command
from harness.cli import log
from harness.cli import progress as progress_module
from harness.cli import push as push_command
from harness.cli import status as status_module
from harness.cli.bench import line, print_measured
from harness.cli.complete import finish, page_of, say_bits, say_failures, say_stale
from harness.cli.executors import check_data
from harness.cli.imports import imported_mapping, print_imported
from harness.cli.progress import CLEAR, ProgressDisplay, duration, in_words, wall_words
from harness.cli.push import bring, sending
from harness.cli.report import WATCHED, watched_files
from harness.cli.results import merge
from harness.cli.said import error_mapping, give_json, line_of
from harness.cli.status import name_unsound, summary
from harness.cli.table import print_json, print_table, text, text_table
from harness.errors import StoppedError, UserError
from harness.foreign.imports import Imported
from harness.push.errors import PushError
from harness.run.plan import Plan, PlanCorpus, PlanRun
from harness.run.retired import Retired, note_retired
from harness.runner.executor import ExecutorOptions, Summary
from harness.store.merge import Merged
from harness.store.plans import save_plan
from harness.store.state import RunState
from harness.store.store import Store
from harness.store.verified import VerifiedResults
from tests.report_arms import LADDER
from tests.report_fixtures import write_experiment

# ---------------------------------------------------------------- tables


@pytest.mark.parametrize(
    ("value", "digits", "cell"),
    [
        (None, 4, "-"), (math.nan, 4, "-"), (True, 4, "yes"), (False, 4, "no"), (3, 4, "3"),
        (0.0, 4, "0.0000"), (1.23456, 4, "1.2346"), (1.23456, 1, "1.2"), (-0.001, 4, "-0.0010"),
        (0.00099, 4, "0.00099"), (-0.000123456, 4, "-0.000123"), (1e6, 4, "1e+06"),
        (999999.0, 4, "999999.0000"), (-2e7, 4, "-2e+07"), ([1, None, "x"], 4, "1 - x"),
        ((0.5, 2.0), 1, "0.5 2.0"), ("a\nb", 4, "a b"), ("a\x1b[1m", 4, None),
    ],
)  # fmt: skip
def test_a_cell_is_short_and_commands_no_terminal(
    value: Any, digits: int, cell: str | None
) -> None:
    printed = text(value, digits)
    assert printed == cell or (cell is None and "\x1b" not in printed and printed.startswith("a"))


def test_a_table_has_numbers_to_the_right_and_no_blanks_at_the_ends_of_its_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [{"name": "a", "n": 1, "x": 0.5}, {"name": "long", "n": None, "note": "yes"}]
    assert text_table(rows, ["name", "n", "x", "note"]).split("\n") == [
        *("name  n       x  note", "a     1  0.5000  -", "long  -       -  yes"),
    ]
    assert text_table(rows, digits=1).split("\n")[1] == "a     1  0.5"
    assert text_table([]) == ""
    print_table([])
    print_table(rows, ["name"])
    assert capsys.readouterr().out == "name\na\nlong\n"


def test_json_is_standard_an_entry_of_a_list_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    commands = "\x1b\x9b\u202e"  # to a terminal
    print_json([{"a": math.nan, "b": f"é{commands}"}, {"c": (1, math.inf)}])
    out = capsys.readouterr().out
    assert json.loads(out) == [{"a": None, "b": f"é{commands}"}, {"c": [1, None]}]
    assert out.splitlines()[0] == "[" and len(out.splitlines()) == 4
    assert not set(commands) & set(out) and "é" in out
    print_json({"a": "é"})
    assert capsys.readouterr().out == '{\n "a": "é"\n}\n'


# ---------------------------------------------------------------- progress


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (99.4, "99 s"), (100, "2 min"), (5999, "100 min"), (6000, "1.7 h"), (36000, "10.0 h")],
)  # fmt: skip
def test_seconds_are_said_as_a_person_says_them(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_where_wall_time_went_is_shares_of_the_whole() -> None:
    walls = [{"train_s": 60.0, "validate_s": 20.0, "total_s": 90.0, "idle_s": 9.95, "data_s": 0.04}]
    said = wall_words([*walls])
    assert said.startswith("100 s, 80.0 % of it training or validation: ") or said.startswith(
        "2 min"
    )
    assert "training 60.0 %" in said and "validation 20.0 %" in said and "idle 10.0 %" in said
    assert "data" not in said
    assert wall_words([]) == "0 s, 0.0 % of it training or validation: "


def planned(arm: str, seed: int, budget: int = 100) -> Any:
    spec = SimpleNamespace(run_id=f"{arm}{seed}", seed=seed, budget=budget, trunk=None)
    return SimpleNamespace(arm=arm, spec=spec)


def ended(run: Any, status: str, loss: float | None = None, reason: str | None = None) -> Any:
    return SimpleNamespace(run=run, status=status, val_loss=loss, reason=reason)


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 50.0
        told = SimpleNamespace(monotonic=lambda: self.now_s)
        monkeypatch.setattr(progress_module, "time", told)


@pytest.mark.usefixtures("said_at_once")
def test_every_run_that_ends_is_a_line_with_the_time_that_is_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock(monkeypatch)
    runs = [planned("a", n) for n in range(4)]
    display = ProgressDisplay(runs, n_done=3)
    display.begin(1)
    for run, status, loss, reason in (
        (runs[0], "finished", 1.23456, None),
        (runs[1], "failed", None, "it broke"),
        (runs[2], "diverged", None, "no number"),
    ):
        clock.now_s += 40.0
        display.on_end(ended(run, status, loss, reason))
    assert capsys.readouterr().out.splitlines() == [
        "[4/7] a, seed 0, 100 steps: finished val_loss 1.2346, at most about 2 min left",
        "[4/7] a, seed 1, 100 steps: failed: it broke, about 2 min left",
        "[5/7] a, seed 2, 100 steps: diverged: no number, about 80 s left",
    ]
    display.live = True
    display.on_end(ended(runs[3], "finished", 2.0))
    assert (
        capsys.readouterr().out == f"{CLEAR}[6/7] a, seed 3, 100 steps: finished val_loss 2.0000\n"
    )


def test_where_all_runs_may_wait_there_is_one_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    display = ProgressDisplay([planned("a", n) for n in range(4)], 0)
    for at_once, lanes in ((3, 3), (4, 1), (0, 1), (9, 1), (1, 1)):
        display.begin(at_once)
        assert display.pace.lanes == lanes


@pytest.mark.usefixtures("said_at_once")
def test_the_live_line_says_where_every_run_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock(monkeypatch)
    runs = [planned("a", 0), planned("b", 1)]
    at = [SimpleNamespace(run=run, step=7, val_loss=loss) for run, loss in zip(runs, (None, 2.5))]
    assert [in_words(one) for one in at] == [
        *("a seed 0 step 7/100", "b seed 1 step 7/100 loss 2.500"),
    ]
    display = ProgressDisplay(runs, 1)
    line_of_two = "[1/3] a seed 0 step 7/100 | b seed 1 step 7/100 loss 2.500"
    assert display.live_line(at) == line_of_two  # type: ignore[arg-type]
    clock.now_s += 10
    display.pace.end(10.0, 100)
    assert display.live_line(at[:1]) == "[1/3] a seed 0 step 7/100 | at most about 20 s left"  # type: ignore[arg-type]
    looks: list[float] = []

    class Done(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            looks.append(timeout or 0)
            return len(looks) > 2

    executor: Any = SimpleNamespace(progress=lambda: at * 20)
    display.watch(executor, Done())
    assert capsys.readouterr().out == "" and looks == []
    display.live = True
    display.watch(executor, Done())
    first, second, last, end = capsys.readouterr().out.split(CLEAR)[0:4]
    assert (first, end) == ("", "") and len(second) == len(last) == 200 and looks == [1.0] * 3


# ---------------------------------------------------------------- refusals and JSON


@pytest.mark.parametrize(
    ("said", "where", "mend"),
    [
        ("--steps 0: must be at least 1", "--steps 0", None),
        ("x.yaml: unknown key 'a'; did you mean 'b'?", "x.yaml", "did you mean 'b'?"),
        ("experiment 'x: y': is gone: run it again", "experiment 'x: y'", "run it again"),
        ("nothing to say", None, None),
        ("there is none here: make one", None, "make one"),
        ("x.yaml: a (b; c) is wrong: write 'd; e'", "x.yaml", "write 'd; e'"),
        ("x.yaml: first; second\nz.yaml: other; more", "x.yaml", "second"),
        (": odd", None, None),
    ],
)
def test_a_refusal_has_its_place_in_front_and_the_way_out_at_its_end(
    said: str, where: str | None, mend: str | None
) -> None:
    assert error_mapping(said) == {"error": said, "where": where, "mend": mend}


def test_an_error_is_one_line_without_secrets() -> None:
    assert line_of(UserError("x: no")) == "x: no"
    error = OSError(28, "No space left on device", "/full/x")
    assert line_of(error).startswith("/full/x: No space left on device: make it writable")
    assert line_of(OSError()).startswith("file: ")
    fault = line_of(KeyError("first\nsecond"))
    assert "a fault of its own, KeyError: " in fault and "\n" not in fault and "--debug" in fault


def app_with(run: Callable[..., None]) -> typer.Typer:
    app, group = typer.Typer(), typer.Typer()
    app.command("one-thing")(run)
    group.command("inner")(run)

    @app.command()
    def own(json: bool = False) -> None:
        print("own", json)

    app.add_typer(group, name="group")
    give_json(app)
    return app


def called(app: typer.Typer, *arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        app(list(arguments))
    return int(end.value.code or 0)


def test_every_command_says_as_json_what_it_says_and_how_it_ended(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def one_thing(name: str, code: int = 0) -> None:
        """A command."""
        print(f"first {name}")
        print("second")
        if code == 9:
            raise StoppedError("stopped here", code=7)
        if code:
            raise typer.Exit(code)

    app = app_with(one_thing)
    for arguments, code, more in (
        (["x"], 0, []),
        (["x", "--code", "3"], 3, []),
        (["x", "--code", "9"], 7, ["stopped here"]),
    ):
        for names in (["one-thing"], ["group", "inner"]):
            assert called(app, *names, *arguments, "--json") == code
            out, err = capsys.readouterr()
            assert json.loads(out) == {
                "schema": 1,
                "command": "one-thing",
                "exit": code,
                "said": ["first x", "second", *more],
            }
            assert err == "first x\nsecond\n" + "".join(f"{line}\n" for line in more)
    assert called(app, "one-thing", "y") == 0
    assert capsys.readouterr().out == "first y\nsecond\n"
    called(app, "own", "--json")
    assert capsys.readouterr().out == "own True\n"


# ---------------------------------------------------------------- the end of a run


def test_what_failed_is_told_with_its_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs: Any = [planned("a", n) for n in range(5)]
    states = ["failed", "finished", "damaged", "diverged", "oom"]
    statuses = {f"a{n}": status for n, status in enumerate(states)}
    summary_of: Any = SimpleNamespace(statuses=statuses, reasons={"a0": "it broke"})
    store = Store(tmp_path)
    say_failures(runs, store, summary_of)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"a, seed 0: failed: it broke ({store.directory('a0') / 'log.txt'})"
    assert [line.split(": ")[1] for line in lines] == ["failed", "damaged", "oom"]


@pytest.mark.parametrize(("stopped", "code"), [("interrupted", 130), ("preempted", 143)])
def test_a_call_that_was_stopped_says_what_is_done_and_how_to_go_on(
    stopped: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs: Any = [planned("a", n) for n in range(4)]
    summary_of = Summary(
        had_result={"a0": "finished"}, statuses={"a1": "diverged", "a2": stopped}, stopped=stopped
    )
    with pytest.raises(typer.Exit) as ended:
        finish("split", runs, Store(tmp_path), summary_of, report=True)
    assert ended.value.exit_code == code
    assert capsys.readouterr().out == (
        f"{stopped}: 2 of 4 runs are done; run the same command again to go on\n"
    )


@pytest.mark.parametrize(
    ("had", "now", "code", "said"),
    [
        ({"a0": "finished"}, {"a1": "diverged"}, 0, "everything is finished: 2 runs, 1 diverged"),
        ({"a0": "finished"}, {"a1": "failed"}, 1, "1 of 2 runs have a result: 1 run, 0 diverged"),
        ({"a0": "finished", "a1": "finished"}, {}, 0, "everything is finished: 2 runs, 0 diverged"),
        ({}, {"trunk": "finished"}, 1, "0 of 2 runs have a result: 0 runs, 0 diverged"),
    ],
)
def test_a_call_ends_with_how_it_went_and_its_answer_and_its_page(
    had: dict[str, str],
    now: dict[str, str],
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs: Any = [planned("a", n) for n in range(2)]
    done = [name for name, status in (had | now).items() if status in ("finished", "diverged")]
    done = [name for name in done if name != "trunk"]

    def written(name: str, store: Store, finished: list[str], *, anew: bool) -> str:
        assert (name, finished, anew) == ("split", done, bool(now))
        return "page.html"

    monkeypatch.setattr(complete_module, "page_of", written)
    monkeypatch.setattr(complete_module, "say_answer", lambda name, _: print("answer of", name))
    summary_of = Summary(had_result=had, statuses=now)
    for report in (True, False):
        with pytest.raises(typer.Exit) as ended:
            finish("split", runs, Store(tmp_path), summary_of, report=report)
        assert ended.value.exit_code == code
        lines = [line for line in capsys.readouterr().out.splitlines() if "log.txt" not in line]
        assert lines == [f"split: {said}", *["answer of split", "report: page.html"] * report]


def test_an_answer_begins_with_what_was_asked_again_and_ends_with_what_follows(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kept_line: Callable[[str], None],
) -> None:
    write_experiment(tmp_path, arms=LADDER[:3], n_seeds=3, n_points=3)
    again = SimpleNamespace(sentence="Asked again on 4 fresh seeds since (x): yes.")
    monkeypatch.setattr("reports.page.confirmed.asked_again", lambda loaded, confirmed: [again])
    complete_module.say_answer("split", Store(tmp_path))
    kept_line(capsys.readouterr().out)


@pytest.mark.usefixtures("said_at_once")
def test_a_damaged_result_is_told_and_its_run_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    statuses = {"a0": ("finished", None), "a1": (None, "a1 is damaged"), "a2": (None, None)}
    monkeypatch.setattr(VerifiedResults, "status", lambda self, run_id: statuses[run_id])
    monkeypatch.setattr("harness.runner.trunks.trunks_to_make", lambda *_: ([], ["t is damaged"]))
    asked: list[str] = []

    class Made:
        def __init__(self, runs: Any, store: Store, options: ExecutorOptions) -> None:
            asked.extend(run.spec.run_id for run in runs)

        def at_once(self) -> int:
            return 2

        def run(self) -> Summary:
            return Summary(statuses=dict.fromkeys(asked, "finished"))

    runs: Any = [planned("a", n) for n in range(3)]
    make: Any = Made
    store, options = Store.create(tmp_path), ExecutorOptions(experiment="x")
    summary_of = complete_module.complete(store, runs, make, options)
    assert summary_of.had_result == {"a0": "finished"} and asked == ["a1", "a2"]
    assert capsys.readouterr().out.splitlines()[:-1] == [
        "a1 is damaged: set aside, it is run again",
        "t is damaged: set aside, it is run again",
        "2 of 3 runs to do, 2 at a time",
    ]


def test_bits_are_told_where_a_token_is_not_a_byte(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        ("base", "finished", "loss", 100, 1.0),
        ("base", "finished", "loss", 100, 2.0),
        ("base", "finished", "loss", 50, 9.0),
        ("base", "diverged", "loss", 100, 9.0),
        ("a", "finished", "timing", 100, 9.0),
        ("a", "finished", "loss", 100, 1.25),
        ("b", "finished", "loss", 100, math.nan),
    ]
    runs = pd.DataFrame(rows, columns=["arm", "status", "role", "budget", "bits_per_byte"])
    import reports.analysis.samples

    monkeypatch.setattr(reports.analysis.samples, "usable", lambda e: SimpleNamespace(runs=runs))
    outcome: Any = SimpleNamespace(budget=100, baseline="base", arms=["a", "b"])
    corpus = PlanCorpus(bytes_per_token=4.0, unit="nats per token")
    loaded: Any = SimpleNamespace(plan=Plan(name="x", corpus=corpus))
    say_bits(loaded, outcome)
    assert capsys.readouterr().out == "bits per byte: base 1.5000, a 1.2500\n"
    say_bits(loaded, SimpleNamespace(budget=None, baseline="base", arms=[]))  # type: ignore[arg-type]
    assert capsys.readouterr().out == "bits per byte: base 4.0000\n"
    say_bits(loaded, SimpleNamespace(budget=7, baseline="base", arms=[]))  # type: ignore[arg-type]
    for other in (replace(corpus, bytes_per_token=None), replace(corpus, unit="nats per byte")):
        say_bits(SimpleNamespace(plan=Plan(name="x", corpus=other)), outcome)  # type: ignore[arg-type]
    assert capsys.readouterr().out == ""


def test_a_page_is_written_anew_where_what_it_shows_is_newer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    import harness.cli.report

    written: list[tuple[list[str], Path]] = []
    page = tmp_path / "experiments" / "x" / "report.html"
    files = [page.with_name("experiment.json"), tmp_path / "runs" / "r1" / "result.json"]

    def write_page(names: list[str], root: Path) -> Path:
        written.append((names, root))
        return page

    monkeypatch.setattr(harness.cli.report, "write_page", write_page)
    for path in (page, *files):
        path.parent.mkdir(parents=True, exist_ok=True)
    store = Store(tmp_path)

    def n_written(*, anew: bool = False) -> int:
        written.clear()
        assert page_of("x", store, ["r1"], anew=anew) == page
        assert written in ([], [(["x"], tmp_path)])
        return len(written)

    for path in files:
        path.touch()
        os.utime(path, (100, 100))
    assert n_written() == 1  # there is none
    page.touch()
    os.utime(page, (100, 100))
    assert (n_written(), n_written(anew=True)) == (0, 1)
    for path in files:
        os.utime(path, (101, 101))
        assert n_written() == 1
        os.utime(path, (99, 99))


def test_a_page_after_a_run_is_of_the_present_code_and_looks_at_no_file_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import harness.cli.report

    asked: list[tuple[str, dict[str, Any]]] = []

    def load(name: str, **how: Any) -> Any:
        asked.append((name, how))
        return SimpleNamespace(name=name, plan=SimpleNamespace(grid=None))

    def write(loaded: Any, results: Path, out: Path | None) -> Path:
        assert (results, [e.name for e in loaded]) == (tmp_path, [*"ab"])
        return out or Path("beside its plan")

    monkeypatch.setattr(harness.cli.report, "load_for_report", load)
    monkeypatch.setattr(harness.cli.report, "write_loaded", write)
    write_page = harness.cli.report.write_page
    assert write_page([*"ab"], tmp_path) == Path("beside its plan")
    how = {"results": tmp_path, "accept_stale": False, "verify": False, "look": "report"}
    assert asked == [("a", how), ("b", how)]
    there = tmp_path / "page.html"
    assert write_page([*"ab"], tmp_path, out=there, accept_stale=True) == there
    assert asked[-1] == ("b", how | {"accept_stale": True})


# ---------------------------------------------------------------- status


def state(status: str, **facts: Any) -> Any:
    return SimpleNamespace(state=RunState(status=status, **facts))


def test_the_states_of_runs_are_counted_and_what_is_left_is_told_by_the_finished_ones() -> None:
    assert summary([]) == "no runs"
    assert summary([state("pending"), state("failed"), state("pending")]) == "2 pending, 1 failed"
    walls = [{"total_s": 30.0, "train_s": 30.0}, {"total_s": 50.0}, {"train_s": 1.0}]
    done = [state("finished", wall=wall) for wall in walls]
    first, second = summary([*done, state("running"), state("running"), state("pending")]).split(
        "\n"
    )
    assert (
        first == "3 finished, 2 running, 1 pending; about 60 s left"
    )  # three of 40 s on two lanes
    assert second == f"wall time: {wall_words(walls)}"
    assert summary([*done[:1], state("pending")]).startswith(
        "1 finished, 1 pending; about 30 s left"
    )
    assert " left" not in summary(done)


def test_what_is_not_sound_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import harness.store.deep
    import harness.store.plans

    plans = [("a", "plan a", ""), ("b", None, "b cannot be read"), ("c", "plan c", "")]
    monkeypatch.setattr(harness.store.plans, "readable_plans", lambda results: plans)
    monkeypatch.setattr(
        harness.store.deep, "wrong_in", lambda results, plan: ["shared", f"of {plan}"]
    )
    monkeypatch.setattr(status_module, "plan_of", lambda name, results: f"planned {name}")
    name_unsound(None, tmp_path)
    name_unsound("x", tmp_path)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        *("shared", "of plan a", "b cannot be read", "of plan c", "shared", "of planned x"),
    ]


class Looked:
    """`ablate status` of runs that get further between two looks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *looks: list[Any]) -> None:
        self.looks, self.slept = [*looks], list[float]()
        monkeypatch.setattr(status_module, "state_rows", lambda *_: self.looks.pop(0))
        monkeypatch.setattr(status_module, "cells_of", lambda rows: [{"arm": len(rows)}])
        monkeypatch.setattr(status_module, "retired_words", lambda *_: [])
        monkeypatch.setattr(status_module.time, "sleep", self.slept.append)


@pytest.mark.usefixtures("said_at_once")
def test_who_watches_looks_again_until_nothing_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    running, pending, done = state("running"), state("pending"), state("finished")
    asked = {"experiment": "x", "watch": True, "every": 7.0, "results": tmp_path}
    for terminal in (False, True):
        looks = [[running, pending], [running, pending], [pending, done], [done, state("failed")]]
        looked = Looked(monkeypatch, *looks)
        monkeypatch.setattr(status_module.sys.stdout, "isatty", lambda is_one=terminal: is_one)
        status_module.status(**asked)
        assert (looked.looks, looked.slept) == ([], [7.0] * 3)
        out = capsys.readouterr().out
        lines = ["1 running, 1 pending", "1 pending, 1 finished", "1 finished, 1 failed"]
        if terminal:
            assert out.count("\033[H\033[2Jarm  seed") == 4 and out.count(lines[0]) == 2
        else:
            assert out.splitlines() == lines, "a line where something changed"


def test_a_look_at_every_file_says_what_is_not_sound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(status_module, "name_unsound", lambda *of: print("unsound of", *of))
    for verify, n_said in ((True, 1), (False, 0)):
        Looked(monkeypatch, [state("finished")])
        status_module.status(None, every=0.1, results=tmp_path, verify=verify)
        out = capsys.readouterr().out
        assert out.count(f"unsound of None {tmp_path}\n") == n_said
        assert out.endswith("1 finished\n") and "seed" not in out
    with pytest.raises(UserError, match="--every 0: must be a positive number of seconds"):
        status_module.status(None, every=0.0, results=tmp_path)


def test_what_was_never_launched_cannot_be_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_module, "plan_of", lambda name, results: Plan(name="x"))
    with pytest.raises(UserError) as refused:
        status_module.cancel("x.yaml", results=tmp_path)
    assert str(refused.value) == (
        f"experiment 'x' was never launched in {tmp_path}: nothing to cancel"
    )


@pytest.mark.parametrize(
    ("going", "jobs", "code", "said"),
    [
        ([0], 0, 0, "x: stopped: 1 finished"),
        ([2, 1, 0], 3, 0, "3 jobs taken out of the queue\nx: stopped: 1 finished"),
        ([1] * 9, 0, 1, "x: 1 run not stopped yet: 1 finished"),
    ],
)
def test_who_cancels_waits_a_minute_for_what_goes_on(
    going: list[int],
    jobs: int,
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan, waited = Plan(name="x"), [0.0]
    save_plan(tmp_path, plan)

    def sleep(seconds: float) -> None:
        assert seconds == 0.5
        waited.append(10.0)

    monkeypatch.setattr(status_module, "plan_of", lambda name, results: plan)
    monkeypatch.setattr("harness.cli.executors.cancel_everywhere", lambda results, name: jobs)
    monkeypatch.setattr(status_module, "count_running", lambda name, results: going.pop(0))
    monkeypatch.setattr(status_module, "state_rows", lambda *_: [state("finished")])
    clock = SimpleNamespace(monotonic=lambda: sum(waited), sleep=sleep)
    monkeypatch.setattr(status_module, "time", clock)
    with pytest.raises(typer.Exit) as ended:
        status_module.cancel("x.yaml", results=tmp_path)
    assert ended.value.exit_code == code
    assert capsys.readouterr().out == f"{said}\n"
    assert len(going) == (2 if code else 0), "six looks, ten seconds apart"


def test_a_place_that_was_given_no_more_runs_is_told_below_the_table_of_its_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "experiments" / "x"
    folder.mkdir(parents=True)
    retired = Retired(at="2026-01-05T08:00:00", place="GPU 3 of node", n_failed=2, reason="ECC")
    note_retired(folder, retired)
    monkeypatch.setattr(status_module, "plan_of", lambda name, results: Plan(name="x"))
    monkeypatch.setattr(status_module, "state_rows", lambda *_: [])
    status_module.status("x.yaml", every=1.0, results=tmp_path)
    assert capsys.readouterr().out.splitlines()[-2:] == ["no runs", retired.words]
    status_module.status(None, every=1.0, results=tmp_path)
    assert capsys.readouterr().out.splitlines() == ["no runs"]


# ---------------------------------------------------------------- log, import, push, merge


def test_of_a_run_that_is_not_known_whole_what_is_known_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = SimpleNamespace(reason="no number at step 3")
    for result, words in ((reason, " (no number at step 3)"), (SimpleNamespace(reason=None), "")):
        details: Any = SimpleNamespace(run="r", state="diverged", result=result)
        assert log.state_words(details) == f"r: diverged{words}"
    assert log.run_words({}) == log.data_words({}) == log.code_words({}, {"commit": "c"}) == ""
    config = {"seed": 3, "budget": None, "role": "loss", "world_size": 2, "device": "cuda"}
    assert log.run_words(config) == "seed 3, its own steps, role loss, 2 x cuda"
    planned_run = PlanRun(
        arm="a", seed=0, replicate=0, budget=1, role="loss", block=0, run_id="r", older=("old",)
    )
    plan = Plan(name="x", runs=(planned_run,), plugins=("p.py",))
    plans = [("bad", None, "cannot be read"), ("x", plan, "")]
    monkeypatch.setattr("harness.store.plans.readable_plans", lambda results: plans)
    for run_id, n in (("r", 1), ("old", 1), ("other", 0)):
        member = log.Membership(experiment="x", arm="a", plugins=("p.py",))
        assert log.experiments_of(tmp_path, run_id) == [member] * n


def test_an_import_says_what_became_of_every_file(capsys: pytest.CaptureFixture[str]) -> None:
    imported = Imported(
        n_added=1,
        n_present=2,
        n_with_code_lines=1,
        copies={"b.txt": "a.txt"},
        twins={"c.json": "a.txt"},
        skipped={"d.pt": "weights"},
        refused={"e.txt": "is cut"},
        mixed={"A": "2 programs"},
        seeds={"A": {7: ["a.txt", "f.txt"]}},
    )
    print_imported("x", imported)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:6] == [
        "b.txt: the same log as a.txt: one run",
        "c.json: a summary or a twin of a.txt: one run",
        "d.pt: weights: left out",
        "e.txt: refused: is cut",
        "A: mixes 2 programs: --arm-by code tells them apart",
        "A: seed 7 was used by 2 logs: a.txt, f.txt",
    ]
    assert lines[-1] == "x: 1 run imported, 2 there already, 2 copies, 1 file refused"
    assert imported_mapping("x", imported)["arms"] == []


def test_runs_of_another_machine_are_brought_in_or_it_is_told_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Place:
        def __init__(self, name: str) -> None:
            self.name = name

        def bring(self, store: Store, *, mend: bool) -> Merged:
            if "gone" in self.name:
                raise PushError("no such host")
            return Merged(copied=["a", "b"], problems=["c is damaged"] * self.name.count("bad"))

    monkeypatch.setattr("harness.push.place.place_of", Place)
    for names, code in ((["box:good"], 0), (["box:good", "box:bad"], 1)):
        with pytest.raises(typer.Exit) as ended:
            merge(names, results=tmp_path, json=True)
        assert ended.value.exit_code == code
        rows = json.loads(capsys.readouterr().out)
        assert [(row["folder"], row["copied"]) for row in rows] == [(n, ["a", "b"]) for n in names]
    with pytest.raises(UserError) as refused:
        bring("ssh://me:secret@gone/r", Store(tmp_path))
    assert str(refused.value) == "ssh://me:...@gone/r: no such host: nothing was begun"


class Sender:
    """The process that sends; it says nothing in time, and then what it is told to say."""

    def __init__(self, *words: str | type[BaseException]) -> None:
        self.words, self.waited, self.is_killed = [*words], list[float | None](), False

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        self.waited.append(timeout)
        said = self.words.pop(0)
        if said is subprocess.TimeoutExpired:
            raise subprocess.TimeoutExpired("push", timeout or 0.0)
        if not isinstance(said, str):
            raise said
        return said, None

    def kill(self) -> None:
        self.is_killed = True


@pytest.mark.usefixtures("said_at_once")
@pytest.mark.parametrize(
    ("words", "last", "is_killed"),
    [
        (["box:x: every finished run is there\n"], "box:x: every finished run is there", False),
        ([""], "sending ended: `ablate push box:x --results {}` sends the rest", False),
        ([subprocess.TimeoutExpired, "all\n"], "all", False),
        ([subprocess.TimeoutExpired, KeyboardInterrupt], None, True),
    ],
)
def test_what_is_left_is_sent_at_the_end_unless_that_is_interrupted(
    words: list[Any],
    last: str | None,
    is_killed: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sender = Sender(*words)
    monkeypatch.setattr("harness.cli.push.subprocess.Popen", lambda *_, **__: sender)
    with suppress(KeyboardInterrupt), sending("box:x", tmp_path):
        pass
    assert (tmp_path / "runs").is_dir()  # what the sender looks into, before there is a run
    first, *rest = capsys.readouterr().out.splitlines()
    assert (first, sender.is_killed) == ("finished runs are sent to box:x", is_killed)
    waits = ["what is left is sent to box:x; Ctrl-C leaves it here"] * (len(words) - 1)
    assert rest == waits + ([last.format(tmp_path)] if last else [])
    assert sender.waited[0] == 3.0 and sender.waited[1:] == [None] * (len(words) - 1)
    with sending(None, tmp_path):
        pass
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("left", "error", "code", "said"),
    [
        (0, "", 0, "there: every finished run is there, 5 of them sent now"),
        (1, "no route", 1, "1 finished run is not in there: no route: `ablate push there {}`"),
        (2, "no route", 1, "2 finished runs are not in there: no route: `ablate push there {}`"),
        (3, "", 1, "3 finished runs are not in there: `ablate push there {}`"),
    ],
)
@pytest.mark.parametrize("ends", ["what it asks on", "its caller"])
def test_who_sends_beside_a_call_looks_until_that_has_ended_and_then_sends_what_is_left(
    left: int,
    error: str,
    code: int,
    said: str,
    ends: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    happened: list[str] = []

    class Sending:
        n_sent = 5

        def __init__(self, results: Path, place: Any, name: str, say: Any) -> None:
            self.error = error
            happened.append(name)

        def look(self) -> None:
            happened.append("looks")

        def finish(self) -> int:
            happened.append("finishes")
            return left

    callers = [7, 7, 7 if ends == "what it asks on" else 1]
    asked: list[list[Any]] = [[], [], [1] if ends == "what it asks on" else []]

    def select(read: Any, write: Any, other: Any, timeout: float) -> tuple[list[Any], Any, Any]:
        assert timeout == 0.1
        return asked.pop(0), [], []

    def connect(place: Any) -> None:
        happened.append("connects")

    (tmp_path / "runs").mkdir()
    monkeypatch.setattr("harness.push.send.Sender", Sending)
    monkeypatch.setattr("harness.push.folder.FolderPlace.connect", connect)
    monkeypatch.setattr(push_command, "select", SimpleNamespace(select=select))
    monkeypatch.setattr(push_command.os, "getppid", lambda: callers.pop(0))

    def push(**how: Any) -> None:
        if code == 0:
            push_command.push("there", results=tmp_path, **how)
            return
        with pytest.raises(typer.Exit) as ended:
            push_command.push("there", results=tmp_path, **how)
        assert ended.value.exit_code == code

    push(caller=7)
    looks = ["looks"] * 2
    assert happened == ["there", "connects", *looks, "finishes"]
    words = f"--results {tmp_path}"
    expected = f"{said.format(words)} sends the rest" if left else said
    assert capsys.readouterr().out == f"{expected}\n"
    happened.clear()
    monkeypatch.chdir(tmp_path)
    push()
    assert happened == ["there", "finishes"], "who is asked by hand sends once"
    with pytest.raises(UserError, match="nothing: no runs here; name another with --results"):
        push_command.push("there", results=tmp_path / "nothing")


def test_a_page_is_watched_by_every_file_of_the_runs_that_are_planned(tmp_path: Path) -> None:
    runs = [
        PlanRun(arm="a", seed=n, replicate=0, budget=1, role="loss", block=0, run_id=name)
        for n, name in enumerate(("r1", "r2"))
    ]
    save_plan(tmp_path, Plan(name="x", runs=tuple(runs)))
    for run in ("r2", "other"):
        (tmp_path / "runs" / run).mkdir(parents=True)
        for name in WATCHED:
            (tmp_path / "runs" / run / name).touch()
    file = tmp_path / "mine.yaml"
    file.write_text("name: x\n")
    seen = watched_files(["gone", str(file)], tmp_path)
    assert [name for name, _ in seen] == [str(tmp_path / "runs" / "r2" / name) for name in WATCHED]
    assert watched_files(["x"], tmp_path) == seen and watched_files(["gone"], tmp_path) == []


# ---------------------------------------------------------------- bench and data


def test_large_numbers_are_in_millions_and_the_utilisation_in_percent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert line("flops_per_token", 123456789.0) == {
        "what": "flops_per_token",
        "value": "123.5 million",
    }
    assert line("matrix_flops_per_s", 5.5e12)["value"] == "5500 billion"
    assert line("mfu", 0.4567)["value"] == "45.7 %" and line("steps", 10)["value"] == 10
    parts = [{"part": "forward", "ms": 1.5, "share": 0.25}]
    print_measured({"steps": 10, "peak": None, "mfu": 0.5}, parts)
    assert capsys.readouterr().out.splitlines() == [
        *("what   value", "steps  10", "mfu    50.0 %", ""),
        *("part         ms  share", "forward  1.5000  25.0 %"),
    ]


class Terminal(io.StringIO):
    def __init__(self, is_one: bool) -> None:
        super().__init__()
        self.is_one = is_one

    def isatty(self) -> bool:
        return self.is_one


@pytest.mark.usefixtures("said_at_once")
def test_percent_is_told_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for is_one, said in ((True, "\r 33 %\r100 %\n"), (False, "")):
        err = Terminal(is_one)
        monkeypatch.setattr(data_command.sys, "stderr", err)
        for done, total in ((1, 3), (3, 3), (0, 0)):
            data_command.progress(done, total)
        assert err.getvalue() == said


@pytest.mark.usefixtures("said_at_once")
@pytest.mark.parametrize(
    ("stale", "words"), [([], ""), (["a", "b"], "2 runs are of other code; they are run again\n")]
)
def test_runs_that_are_stale_are_told_where_there_are_any(
    stale: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(
        "harness.store.plans.stale_runs", lambda root, plan: (stale, "runs are of other code")
    )
    say_stale(Store.create(tmp_path), "x")
    assert capsys.readouterr().out == words


def test_what_is_hashed_is_told_while_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where standard output is a file or a pipe, which nobody sees before it is flushed."""
    seen: list[str] = []

    class Pipe(io.StringIO):
        def flush(self) -> None:
            seen.append(self.getvalue())

    def verify(corpus: str, say: Callable[[str], None]) -> None:
        say("hashing 2 shards, 9 MiB")
        assert seen[-1].endswith(f"corpus {corpus}: hashing 2 shards, 9 MiB\n")

    monkeypatch.setattr("harness.corpora.index.open_corpus", lambda name: name)
    monkeypatch.setattr("harness.corpora.verify.verify", verify)
    monkeypatch.setattr("sys.stdout", Pipe())
    runs: Any = [SimpleNamespace(spec=name) for name in ("mine", "its", "mine")]
    trainer: Any = SimpleNamespace(corpora=lambda spec: [spec])
    check_data(runs, trainer)
    assert len(seen) == 2


def test_a_shard_is_sound_or_exit_1_with_every_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from dataclasses import dataclass, field

    import harness.corpora.check

    @dataclass
    class Facts:
        file: str = "x.bin"
        role: str = "train"
        tokens: int = 7
        lowest: int = 0
        highest: int = 5
        separators: int = 2

    @dataclass
    class Report:
        ok: bool
        files: list[Facts] = field(default_factory=lambda: [Facts()])
        documents: dict[str, dict[str, int]] = field(default_factory=lambda: {"train": {"n": 2}})
        problems: list[str] = field(default_factory=lambda: ["bad header"])
        warnings: list[str] = field(default_factory=lambda: ["odd"])

    for ok in (True, False):
        monkeypatch.setattr(harness.corpora.check, "check", lambda path, ok=ok: Report(ok=ok))
        for as_json in (True, False):
            code = 0
            try:
                data_command.check(tmp_path, json=as_json)
            except typer.Exit as end:
                code = end.exit_code
            out = capsys.readouterr().out
            assert code == (0 if ok else 1)
            if as_json:
                assert json.loads(out)["ok"] == ok and json.loads(out)["files"][0]["tokens"] == 7
            else:
                assert out.splitlines() == [
                    "file   role   tokens  lowest  highest  separators",
                    "x.bin  train       7       0        5           2",
                    *("role   n", "train  2", "problem: bad header", "warning: odd"),
                    "sound" if ok else "not sound",
                ]


def test_every_corpus_is_a_row_with_what_is_known_of_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import harness.corpora.index
    from harness.corpora.index import CorpusRow

    rows = [
        CorpusRow(
            name="a", place="/a", missing=None, bytes=3 << 20, tokens={"train": 5, "val": 2},
            fingerprint="0123456789abcdef",
        ),
        CorpusRow(name="b", place="/b", missing="get it", bytes=0),
    ]  # fmt: skip
    monkeypatch.setattr(harness.corpora.index, "list_corpora", lambda root: rows)
    data_command.list_(json=True)
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == ["a", "b"]
    data_command.list_()
    assert [row.split() for row in capsys.readouterr().out.splitlines()] == [
        ["name", "tokens", "MiB", "fingerprint", "place", "missing"],
        ["a", "7", "3.0000", "0123456789ab", "/a", "-"],
        ["b", "-", "0.0000", "-", "/b", "get", "it"],
    ]


def test_a_pending_run_says_why_it_is_stale_and_others_keep_their_own_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import harness.store.plans
    import harness.store.store

    states = {
        "r0": RunState(status="pending"),
        "r1": RunState(status="failed", reason="it broke"),
        "r2": RunState(status="pending"),
    }
    runs = [
        SimpleNamespace(run_id=name, arm="a", seed=n, role="loss") for n, name in enumerate(states)
    ]
    plan = SimpleNamespace(runs=runs)
    (tmp_path / "runs").mkdir()
    monkeypatch.setattr(status_module, "plan_of", lambda name, results: plan)
    monkeypatch.setattr(status_module, "remember_look", lambda *_: None)
    monkeypatch.setattr(
        harness.store.plans, "stale_runs", lambda *_: (frozenset({"r0", "r1"}), "stale: why")
    )
    monkeypatch.setattr(harness.store.store.Store, "state", lambda self, name: states[name])
    rows = status_module.state_rows("x", tmp_path)
    assert [(row.run, row.seed, row.state.reason) for row in rows] == [
        *(("r0", 0, "stale: why"), ("r1", 1, "it broke"), ("r2", 2, None)),
    ]
    with pytest.raises(UserError, match="no runs here"):
        status_module.state_rows("x", tmp_path / "elsewhere")


def test_what_a_call_took_is_of_its_own_runs_and_the_hours_since_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import harness.experiment.cost
    from harness.cli import ab_until

    counted: list[list[str]] = []

    def spent(runs: Any, results: Path) -> float:
        counted.append([run.spec.run_id for run in runs])
        return 3.0

    monkeypatch.setattr(harness.experiment.cost, "spent", spent)
    monkeypatch.setattr(ab_until, "time", SimpleNamespace(monotonic=lambda: 9100.0))
    until: Any = SimpleNamespace(
        made={"a0", "a2"}, began=100.0, options=SimpleNamespace(results=tmp_path),
        _price=lambda hours: 2 * hours,
    )  # fmt: skip
    found = ab_until.Until.spent(until, [planned("a", n) for n in range(3)])
    assert counted == [["a0", "a2"]]
    assert (found.runs, found.wall_hours, found.hours, found.price) == (2, 2.5, 3.0, 6.0)
