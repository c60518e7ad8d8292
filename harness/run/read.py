"""Reading the files of a run directory."""

import json
from pathlib import Path
from typing import Any

import yaml

from harness.run.document import Content
from harness.run.spec import _Yaml


def read_json(path: Path | str) -> Any:
    """A JSON file's content, None where it is missing or damaged."""
    try:
        return json.loads(_read(path))
    except (OSError, ValueError):
        return None


def _read(path: Path | str) -> str:
    with open(path, "rb", buffering=0) as file:
        return file.read().decode()


def read_config(run: Path) -> Content:
    """config.yaml of a run directory."""
    text = (run / "config.yaml").read_text(encoding="utf-8")
    content: Content = yaml.load(text, Loader=_Yaml)
    return content


def read_lines(path: Path) -> list[Content]:
    """Rows of a .jsonl file; lines cut short by a kill are left out, a missing file has no rows."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return []
    rows = []
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows
