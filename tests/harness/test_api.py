"""The commands as Python functions: by which name a run is judged, what they raise where it is stopped."""

import errno
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import api
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


def test_an_interrupted_command_prints_one_document(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("harness.cli.toggles.print_json", interrupt)
    assert ablate("toggles", "--json") == 130
    assert json.loads(capsys.readouterr().out)["error"].startswith("interrupted")
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
