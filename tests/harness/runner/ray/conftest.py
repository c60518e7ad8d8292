"""What the tests on a real Ray cluster share."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fake_matrix import ROOT
from tests.ray_lab import RayCluster


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RayCluster]:
    """What runs on its nodes has the environment of this test."""
    monkeypatch.setenv("FAKE_MARKS", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "tests")]))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("ABLATE_DEAD_AFTER_S", "5")
    monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    made: list[RayCluster] = []

    def start() -> RayCluster:
        made.append(RayCluster())
        return made[-1]

    yield start()
    for started in made:
        started.cluster.shutdown()
