"""python -m tests.kept_lines: write tests/data/lines again, what is said to input that is refused, word for word.

A file for each file of tests that takes `kept_line`, to be reviewed as a diff. Such a test still says itself which words
matter to it; here every other word and number is held to what it was when somebody last read it.
"""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import yaml

TESTS = Path(__file__).parent
FOLDER = TESTS / "data" / "lines"
WRITES = "WRITE_KEPT_LINES"  # a variable


def file_of(test_file: Path) -> Path:
    """The file of what a file of tests keeps."""
    inner = test_file.relative_to(TESTS).with_suffix("")
    return FOLDER / (".".join(inner.parts).replace("test_", "") + ".yaml")


@cache
def kept(file: Path) -> dict[str, str]:
    """By the names of tests with their cases."""
    return yaml.safe_load(file.read_text(encoding="utf-8")) if file.exists() else {}


def hold(test_file: Path, case: str, said: str) -> None:
    """Compare what was said with what is kept of this case, or keep it."""
    file = file_of(test_file)
    if WRITES not in os.environ:
        assert said == kept(file).get(case), "python -m tests.kept_lines writes it again"
        return
    assert "PYTEST_XDIST_WORKER" not in os.environ, "one process writes: the last of several wins"
    kept(file)[case] = said
    text = yaml.safe_dump(kept(file), allow_unicode=True, sort_keys=False, width=120)
    file.write_text(text, encoding="utf-8")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for file in FOLDER.iterdir():
        file.unlink()
    files = [f for f in sorted(TESTS.rglob("test_*.py")) if "kept_line(" in f.read_text("utf-8")]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow or double", *files]
    subprocess.run(command, check=True, env={**os.environ, WRITES: "1"})


if __name__ == "__main__":
    main()
