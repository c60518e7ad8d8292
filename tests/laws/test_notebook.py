"""docs/notebook.md is true: its code runs as it stands and prints what the page says it prints."""

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

from tests.report_arms import LADDER
from tests.report_fixtures import write_experiment

PAGE = Path(__file__).resolve().parents[2] / "docs" / "notebook.md"
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_every_block_prints_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_experiment(
        tmp_path / "results", arms=LADDER[:3], n_seeds=3, n_points=5, design="add-one", target=None
    )
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert [kind for kind, _ in blocks] == ["python", "text"] * (len(blocks) // 2)
    assert len(blocks) >= 8
    names: dict[str, Any] = {}
    for (_, code), (_, said) in zip(blocks[::2], blocks[1::2]):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, PAGE.name, "exec"), names)
        assert [line.rstrip() for line in printed.getvalue().splitlines()] == said.splitlines()
