"""What the tests on a real Slurm cluster share (Debian's slurm-wlm, two nodes with pretended GPUs)."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm_lab import HERE, LONG_S, Login


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A running cluster. `.ci/run` installs Slurm and requires it."""
    if shutil.which("slurmctld") is None and "ABLATE_REQUIRE_SLURM" not in os.environ:
        pytest.skip("Slurm is not installed: apt-get install slurm-wlm munge")
    folder = tmp_path_factory.mktemp("cluster")
    try:
        subprocess.run([HERE / "up.sh", folder], check=True, timeout=LONG_S)
        yield folder
    finally:
        subprocess.run([HERE / "down.sh", folder], check=True, timeout=LONG_S)


@pytest.fixture
def login(cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Login]:
    monkeypatch.setenv("SLURM_CONF", str(cluster / "slurm.conf"))
    monkeypatch.setenv("FAKE_MARKS", str(tmp_path))
    monkeypatch.setenv("FAKE_POLL_S", "0.5")
    session = Login(tmp_path)
    yield session
    session.close()
