"""Files of a results folder changed by whoever knows their seals, for tests of what comes after those."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from harness.run.plan_file import sealed_text
from harness.run.results import GROWING, Result, result_text, sealed
from harness.run.versions import FIRST


def write_plan(path: Path, content: dict[str, Any]) -> None:
    """experiment.json with this content."""
    content = {key: value for key, value in content.items() if key != "digest"}
    old = content["schema"] == FIRST
    path.write_text(json.dumps(content) if old else sealed_text(content))


def seal_again(run: Path, **changes: Any) -> None:
    """result.json of a run with these changes, for its files as they are now."""
    result = {**json.loads((run / "result.json").read_text()), **changes}
    for name in result["digests"]:
        content = (run / name).read_bytes()
        if name not in GROWING:
            result.setdefault("bytes", {})[name] = len(content)
        sealed_part = content[: result["bytes"][name]]
        result["digests"][name] = hashlib.sha256(sealed_part).hexdigest()
    if "digest" in result:
        (run / "result.json").write_text(result_text(sealed(result)))
    else:
        (run / "result.json").write_text(result_text(Result.from_json(result)))


def edit_runs(root: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change config.yaml of every run: change(document)."""
    for path in (root / "runs").glob("*/config.yaml"):
        document = yaml.safe_load(path.read_text())
        change(document)
        path.write_text(yaml.safe_dump(document, sort_keys=False))
        if (path.parent / "result.json").exists():
            seal_again(path.parent)
