"""Commands in this process, as a user calls them in an empty folder."""

import json
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
