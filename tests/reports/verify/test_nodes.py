"""The second path of `verify` on imported runs, whose nodes are unknown: of each end the further of two."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import reports.analysis.node_times
from harness.__main__ import main
from reports.inputs.load import load
from reports.page.embed import table_rows
from reports.page.write import render
from reports.stats.node_noise import with_nodes
from reports.verify.page import read_page
from reports.verify.verify import check_statistics
from tests.foreign_logs import year_2025

SDS = {  # log sd of a run's time: name -> (runs of an arm, one sd an arm, the baseline first)
    "three runs": (3, (0.10, 0.15)),
    "three arms": (4, (0.06,) * 4),
    "four arms": (5, (0.10,) * 5),
    "quiet": (5, (0.002, 0.002, 0.002)),
}
SHIFTS = (0.0, 0.25, -0.16, 0.3, -0.2)  # of the arms' log times


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def found(folder: Path, name: str, **planned: bool) -> list[str]:
    """What the second path says of the page of imported arms; planned: what else their plan says."""
    n, sds = SDS[name]
    for arm, sd in enumerate(sds):
        (folder / f"arm{arm}").mkdir()
        spread = sd * np.linspace(-1, 1, n) / np.linspace(-1, 1, n).std(ddof=1)
        for i, log_ms in enumerate(np.log(150.0) + SHIFTS[arm] + spread):
            text = year_2025(3.277 + 0.001 * i, ms=float(np.exp(log_ms)), seed=10 * arm + i)
            (folder / f"arm{arm}" / f"{i}.txt").write_text(text)
        with pytest.raises(SystemExit):
            main(["import", f"arm{arm}", "--experiment", "x"])
    made = load("x")
    page = read_page(render([replace(made, plan=replace(made.plan, **planned))]))
    data = page.data["experiments"][0]
    return list(check_statistics(page, 0, data, table_rows(data["runs"])))


@pytest.mark.parametrize("name", SDS)
def test_a_page_of_unknown_nodes_is_confirmed(folder: Path, name: str) -> None:
    assert found(folder, name) == []


@pytest.mark.parametrize("name", ["quiet", "three arms"])
def test_runs_tell_that_they_were_imported_whatever_their_plan_says(
    folder: Path, name: str
) -> None:
    assert found(folder, name, imported=False) == []


def test_an_interval_without_the_nodes_is_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports.analysis.node_times, "with_nodes", lambda effect, *_, **__: effect)
    assert any("step_ms.interval is printed as" in said for said in found(folder, "quiet"))


def test_a_p_value_without_the_nodes_is_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interval_alone(effect, *args, **keywords):  # type: ignore[no-untyped-def]
        return replace(with_nodes(effect, *args, **keywords), p=effect.p)

    monkeypatch.setattr(reports.analysis.node_times, "with_nodes", interval_alone)
    assert any("step_ms.p is printed as" in said for said in found(folder, "three arms"))
