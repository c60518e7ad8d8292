"""The built package, installed in an environment of its own, does what a checkout does, from any folder."""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from reports.verify.verify import verify

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("model", "optim", "harness", "reports", "experiments", "results/published")
FILES = ("pyproject.toml", "README.md", "LICENSE", "results/published/README.md")


def install(wheel: Path, folder: Path) -> Path:
    """`ablate` of the wheel in a new environment, which borrows what it depends on, but for matplotlib."""
    venv.create(folder)
    site = next(folder.glob("lib/python3*/site-packages"))
    packages = [path for path in sys.path if path.endswith("site-packages")]
    (site / "dependencies.pth").write_text("\n".join(packages))  # whose own .pth files nobody reads
    (site / "matplotlib.py").write_text("raise ImportError('for `ablate figures` alone')")
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "--python", python]
    subprocess.run([*pip, "install", "--no-deps", "--no-index", wheel], check=True)
    return folder / "bin" / "ablate"


@pytest.mark.slow
def test_the_wheel_runs_and_writes_a_report_by_itself(tmp_path):
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
    shutil.rmtree(source)
    ablate = install(next(tmp_path.glob("*.whl")), installed)
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "ABLATE_DATA")}
    environment["OMP_NUM_THREADS"] = "1"

    def said(*words: str) -> str:
        done = subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = "import harness, reports; print(harness.__file__, reports.__file__)"
    places = said(str(installed / "bin" / "python"), "-c", where).split()
    assert all(Path(place).is_relative_to(installed) for place in places)
    assert "new-change" in said(ablate, "--help")
    assert '"r18"' in said(ablate, "records", "--json")
    said(ablate, "report", "published/r09_ladder", "-o", "page.html")
    assert verify(tmp_path / "page.html") == []
    said(ablate, "new-change", "my_idea", "--kind", "optimizer")
    assert "class Lion" in (tmp_path / "my_idea.py").read_text()
    small = ["seeds=2", "budgets=[2, 4]", "data.val_tokens=2048", "data.val_every=2"]
    settings = [word for setting in small for word in ("--set", setting)]
    assert "everything is finished: 16 runs" in said(ablate, "run", "quickstart", *settings)
    assert verify(tmp_path / "results/experiments/quickstart/report.html") == []
