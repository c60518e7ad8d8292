"""The built package alone writes a report: templates, records and published tables are inside."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from reports.verify.verify import verify

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("model", "optim", "harness", "reports", "experiments", "results/published")
FILES = ("pyproject.toml", "README.md", "LICENSE", "results/published/README.md")


@pytest.mark.slow
def test_the_wheel_writes_a_report_by_itself(tmp_path):
    source, installed = tmp_path / "source", tmp_path / "installed"
    for part in PARTS:
        shutil.copytree(
            ROOT / part, source / part, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in FILES:
        shutil.copy(ROOT / name, source / name)
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        ".",
        "--no-deps",
        "--no-build-isolation",
        "-q",
        "-w",
        str(tmp_path),
    ]
    subprocess.run(build, cwd=source, check=True)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        wheel.extractall(installed)
    shutil.rmtree(source)
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    where = [
        sys.executable,
        "-c",
        "import harness, reports; print(harness.__file__, reports.__file__)",
    ]
    said = subprocess.run(
        where, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
    ).stdout
    assert all(Path(p).is_relative_to(installed) for p in said.split())
    command = [sys.executable, "-m", "harness", "report", "published/r09_ladder", "-o", "page.html"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True)
    assert verify(tmp_path / "page.html") == []
    idea = [sys.executable, "-m", "harness", "new-change", "my_idea", "--kind", "optimizer"]
    subprocess.run(idea, cwd=tmp_path, env=environment, check=True)
    assert "class Lion" in (tmp_path / "my_idea.py").read_text()
    records = [sys.executable, "-m", "harness", "records", "--json"]
    assert (
        b'"r18"'
        in subprocess.run(
            records, cwd=tmp_path, env=environment, check=True, capture_output=True
        ).stdout
    )
