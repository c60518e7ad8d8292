"""The commands as Python functions: by which name a run is judged, what they raise where it is stopped."""

import errno
import io
import json
import os
import signal
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from harness import api
from harness.cli.options import RESULTS
from harness.errors import UserError
from tests.foreign_bench import CPU, ablate, bench, write

STOP = f"import os, signal\nos.kill({os.getpid()}, signal.SIGINT)\nsignal.pause()\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return bench(tmp_path, monkeypatch)


def test_a_run_is_judged_by_the_name_that_its_file_gives_it(folder: Path) -> None:
    path = write(folder, name="mine", changes={"new": {"file": "new.py"}})
    assert path.stem != "mine"
    assert api.run(path, no_report=True)["experiment"] == "mine"


@pytest.mark.parametrize("setting", ["name=mine", ["schedule.steps=3", "name=mine"]])
def test_a_run_is_judged_by_the_name_that_it_was_set(
    setting: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def call(command: str, /, *arguments: object, **_: object) -> dict[str, Any]:
        asked.append((command, *arguments))
        return {"exit": 0}

    monkeypatch.setattr(api, "call", call)
    api.run("file.yaml", set=setting)
    assert asked == [("run", "file.yaml"), ("compare", "mine")]


@pytest.fixture
def heard() -> Iterator[None]:
    """SIGINT is heard, where the tests were started in the background, too."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard")
def test_what_a_signal_stops_is_one_document_and_an_error_in_python(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("new.py").write_text(STOP + Path("new.py").read_text())
    assert ablate("ab", "old.py", "new.py", *CPU, "-n", 1, "--json") == 130
    told = json.loads(capsys.readouterr().out)
    assert told["mend"] == "run the same command again to go on"
    with pytest.raises(UserError, match=r"interrupted: . of 2 runs are done"):
        api.ab("old.py", "new.py", n=1, gpus_per_run=0, command="python {script}", no_report=True)
    path = write(folder, changes={"new": {"file": "new.py"}})
    capsys.readouterr()
    assert ablate("run", path, "--no-report", "--json") == 130
    told = json.loads(capsys.readouterr().out)
    assert (told["command"], told["exit"]) == ("run", 130)
    assert told["said"][-1].startswith("foreign: interrupted: ")


@pytest.mark.parametrize("cause", [KeyboardInterrupt, EOFError])
def test_an_interrupted_command_prints_one_document(
    cause: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise cause

    monkeypatch.setattr("harness.cli.toggles.print_json", interrupt)
    assert ablate("toggles", "--json") == 130
    assert json.loads(capsys.readouterr().out)["error"].startswith("interrupted")
    if cause is EOFError:  # which the command line alone takes for Ctrl-D
        return
    with pytest.raises(UserError, match="interrupted"):
        api.call("toggles")


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "results/x"), "results/x: No space left"),
        (PermissionError(errno.EACCES, "Permission denied", "r"), "r: Permission denied: make it"),
        (OSError("the disk is gone"), "file: the disk is gone: make it writable"),
    ],
)
def test_what_a_disk_refuses_is_the_commands_line_in_python(
    fault: OSError,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise fault

    monkeypatch.setattr("harness.cli.toggles.print_json", refuse)
    with pytest.raises(UserError) as raised:
        api.call("toggles")
    said = str(raised.value)
    assert said.startswith(line)
    assert ablate("toggles", "--json") == 2
    printed = capsys.readouterr()
    assert json.loads(printed.out)["error"] == said
    assert printed.err == f"ablate: {said}\n"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The commands that are called; each says that it wrote a page."""
    commands: list[Any] = []

    def call(command: str, /, *arguments: object, **options: object) -> dict[str, Any]:
        commands.append((command, arguments, options))
        return {"exit": 3, "said": ["it took 2 s", "report: r/page.html"], "of": command}

    monkeypatch.setattr(api, "call", call)
    return commands


def test_an_experiment_in_python_is_its_commands(asked: list[Any]) -> None:
    mine = api.Experiment("x.yaml", "r")
    said = {"exit": 3, "said": ["it took 2 s", "report: r/page.html"]}
    assert mine.plan(price=2.0) == {**said, "of": "plan"}
    assert mine.run(no_report=True) == {**said, "of": "compare"}
    assert mine.status() == {**said, "of": "status"}
    assert mine.compare(fail_on="worse") == {**said, "of": "compare"}
    assert mine.report(out="page.html") == Path("r/page.html")
    assert api.ab("old.py", "a.py", "b.py", n=5) == {**said, "of": "ab"}
    assert asked == [
        ("plan", ("x.yaml",), {"results": "r", "price": 2.0}),
        ("run", ("x.yaml",), {"results": "r", "no_report": True}),
        ("compare", ("x.yaml",), {"results": "r"}),
        ("status", ("x.yaml",), {"results": "r"}),
        ("compare", ("x.yaml",), {"results": "r", "fail_on": "worse"}),
        ("report", ("x.yaml",), {"results": "r", "out": "page.html"}),
        ("ab", ("old.py", "a.py", "b.py"), {"n": 5}),
    ]


def test_the_package_can_be_asked_for_these_functions_and_nothing_else(asked: list[Any]) -> None:
    package: Any = import_module("harness")
    assert (package.Experiment, package.ab) == (api.Experiment, api.ab)
    assert package.run("x.yaml", seeds=2)["of"] == "compare"
    assert asked == [
        ("run", ("x.yaml",), {"seeds": 2}),
        ("compare", ("x.yaml",), {"results": RESULTS}),
    ]
    with pytest.raises(AttributeError, match="module 'harness' has no attribute 'train'"):
        package.train()


def test_a_reader_that_goes_away_ends_a_command_without_a_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gone(*_: object, **__: object) -> None:
        raise BrokenPipeError

    err = io.StringIO()
    monkeypatch.setattr("harness.cli.toggles.print_json", gone)
    monkeypatch.setattr(sys, "stderr", err)
    assert ablate("toggles", "--json") == 0
    assert err.closed, "Python would say there that it cannot write the rest"
