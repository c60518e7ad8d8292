"""Reading the files of a run directory."""

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from harness.run.document import Content
from harness.run.guarded import IN_FOLDER, read_bytes
from harness.run.parse import parse_json, parse_yaml

OWN_LINES = re.compile(r"^(seed|replicate): (\d+)$", re.MULTILINE)  # tell the runs of one arm apart


def read_json(path: Path | str, *, below: int = IN_FOLDER) -> Any:
    """A JSON file's content, None where it is missing, damaged or must not be opened.

    below: see harness/run/guarded.py.
    """
    try:
        return parse_json(read_bytes(path, below=below))
    except (OSError, ValueError):
        return None


def read_config(run: Path) -> Content:
    """config.yaml of a run directory; raises OSError or ValueError where it is none."""
    content = parse_yaml(read_bytes(run / "config.yaml").decode())
    if not isinstance(content, dict):
        raise ValueError(f"{run / 'config.yaml'}: holds no mapping")
    return content


def parse_config(text: str) -> Content:
    """A config.yaml, of which most runs differ in a line or two: the rest is parsed once."""
    content = dict(parse_shared(OWN_LINES.sub("", text)))
    for key, value in OWN_LINES.findall(text):
        content[key] = int(value)
    return content


@lru_cache(maxsize=256)
def parse_shared(text: str) -> Content:
    content = parse_yaml(text)
    if not isinstance(content, dict):
        raise ValueError("a config.yaml holds no mapping")
    return content


def read_lines(path: Path, *, below: int = IN_FOLDER) -> list[Content]:
    """Rows of a .jsonl file; lines cut short by a kill are left out, a missing file has no rows."""
    try:
        lines = read_bytes(path, below=below).splitlines()
    except OSError:
        return []
    rows = []
    for line in lines:
        try:
            row = parse_json(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows
