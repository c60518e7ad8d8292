"""The pages that begin with a question are true: their first commands run as they stand, in an empty folder, and leave what the page says.

Those of your-idea.md, an idea of each kind: tests/harness/experiment.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fake_matrix import ROOT
from tests.laws.test_docs import blocks

LEAVES = {  # page -> a file that its commands make
    "your-scripts.md": "results/experiments/rates/report.html",
    "your-logs.md": "results/experiments/logs/report.html",
    "your-cluster.md": "cluster.yaml",
}
SLOW = ("your-scripts.md",)


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.slow] * (page in SLOW)) for page in LEAVES]
)
def test_the_commands_of_a_page_run_as_they_stand(page: str, tmp_path: Path) -> None:
    programs, folder = tmp_path / "bin", tmp_path / "folder"
    programs.mkdir()
    folder.mkdir()
    program = programs / "ablate"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m harness "$@"\n')
    program.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", blocks(page, "sh")[0]],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert (folder / LEAVES[page]).exists()


def test_every_question_stands_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(f"(docs/{page})" in text for page in ("your-idea.md", *LEAVES))
