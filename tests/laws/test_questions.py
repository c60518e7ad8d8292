"""The pages that begin with a question are true: their first commands run as they stand, in an empty folder, and leave what the page says.

Those of your-idea.md, an idea of each kind: tests/harness/experiment.
"""

import re
import subprocess
import sys
from pathlib import Path
from venv import EnvBuilder

import pytest

from tests.fake_matrix import ROOT
from tests.laws.test_docs import blocks

LEAVES = {  # page -> a file that its commands make
    "your-scripts.md": "results/experiments/rates/report.html",
    "your-logs.md": "results/experiments/logs/report.html",
    "your-cluster.md": "cluster.yaml",
}
QUIET = {"PATH": "/usr/bin:/bin", "HOME": "/", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What `make install` leaves: an environment with its programs, none of which is on PATH."""
    programs = tmp_path / ".venv" / "bin"
    EnvBuilder(symlinks=True, with_pip=False).create(programs.parent)
    for name, module in (("ablate", "harness"), ("pytest", "pytest"), ("python", "")):
        arguments = f'-m {module} "$@"' if module else '"$@"'
        (programs / name).unlink(missing_ok=True)
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments}\n')
        (programs / name).chmod(0o755)
    (tmp_path / "folder").mkdir()
    return tmp_path


def typed(checkout: Path, first: str, then: str) -> str:
    """What is printed: `first` typed in the checkout, `then` in a folder, in one terminal."""
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", f"{first}\ncd folder\n{then}"],
        cwd=checkout, env=QUIET, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("page", LEAVES)
def test_the_commands_of_a_page_run_as_they_stand(page: str, checkout: Path) -> None:
    typed(checkout, *blocks(page, "sh")[:2])
    assert (checkout / "folder" / LEAVES[page]).exists()


@pytest.mark.parametrize("page", ["your-idea.md", *LEAVES])
def test_every_program_of_a_page_is_on_path_once_its_first_command_ran(
    page: str, checkout: Path
) -> None:
    first, *others = blocks(page, "sh")
    programs = set(re.findall(r"^(ablate|pytest|python)\b", "".join(others), re.MULTILINE))
    assert "ablate" in programs
    for program in programs:
        found = typed(checkout, first, f"command -v {program}").strip()
        assert Path(found) == checkout / ".venv" / "bin" / program


def test_every_question_stands_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(f"(docs/{page})" in text for page in ("your-idea.md", *LEAVES))
