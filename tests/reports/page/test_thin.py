"""A million validations: the page carries what a person can see of them, the export all, memory stays bounded."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from reports.inputs.load import load
from reports.page.thin import MOST, kept_of
from reports.page.write import write_report
from reports.verify.verify import verify
from tests.fake_matrix import DEADLINE_S, ROOT
from tests.report_fixtures import write_experiment

MIB = 2**20
REPORT = """
import os, sys
from pathlib import Path
from harness.node.memory import peak_mib
from reports.inputs.load import load
from reports.page.write import write_report
write_report([load("split", results=sys.argv[1])], Path(sys.argv[2]))
print(peak_mib(os.getpid()))  # its own: ru_maxrss begins at that of the tests' process
"""


def test_ends_and_extremes_stay() -> None:
    losses = np.linspace(5, 2, 100_000)
    losses[70_001], losses[30_003], losses[50_000] = 9.0, 0.5, np.nan
    kept = kept_of(losses)
    assert len(kept) <= MOST
    assert kept == sorted(set(kept))
    assert {0, 30_003, 70_001, 99_999} <= set(kept)


@pytest.mark.slow
def test_a_page_of_long_curves_is_small_and_verified(tmp_path: Path) -> None:
    results = write_experiment(
        tmp_path / "results", n_seeds=2, n_points=5 * MOST, budgets=(200_000,), single_steps=False
    )
    experiment = load("split", results=results)
    assert experiment.curves["run_id"].value_counts().min() >= 5 * MOST
    page = write_report([experiment], tmp_path / "page.html")
    assert not list(verify(page, results))
    assert page.stat().st_size < 5 * MIB


@pytest.mark.slow
@pytest.mark.long
def test_a_million_validations_make_a_small_page_in_bounded_memory(tmp_path: Path) -> None:
    results = write_experiment(
        tmp_path / "results", n_seeds=2, n_points=125_000, budgets=(200_000,), single_steps=False
    )
    done = subprocess.run(
        [sys.executable, "-c", REPORT, str(results), str(tmp_path / "page.html")],
        capture_output=True, text=True, check=True, timeout=2 * DEADLINE_S,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    peak_mib = float(done.stdout)
    n_rows = sum(len(p.read_bytes().splitlines()) for p in results.glob("runs/*/metrics.jsonl"))
    print(
        f"{n_rows} rows, {peak_mib:.0f} MiB, page of {(tmp_path / 'page.html').stat().st_size / MIB:.1f} MiB"
    )
    assert n_rows >= 1_000_000
    assert (tmp_path / "page.html").stat().st_size < 10 * MIB
    assert peak_mib < 800
