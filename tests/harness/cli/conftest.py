"""Commands in this process, as a user calls them in an empty folder."""

import builtins
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.__main__ import main


@dataclass(frozen=True)
class Said:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def ablate(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Any:
    """Run a command in an empty working directory."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Said:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        captured = capsys.readouterr()
        return Said(int(ended.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture
def said_at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever is said in this test is there at once, also in a file or a pipe."""
    late: list[tuple[object, ...]] = []
    say = builtins.print

    def noted(*values: object, flush: bool = False, **how: Any) -> None:
        if not flush:
            late.append(values)
        say(*values, flush=flush, **how)

    monkeypatch.setattr(builtins, "print", noted)
    yield
    assert late == []
