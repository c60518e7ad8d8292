"""200 arms plan, run and report as 2 do; what is said of many arms at once can be read."""

from pathlib import Path

import pytest

from harness.cli.compare import NAMED, few_of
from harness.experiment.designs import DESIGNS
from harness.run.read import read_json
from tests.fake_matrix import EXPERIMENT, Matrix, ablate

N_ARMS = 200


def with_many_changes(folder: Path) -> Matrix:
    matrix = Matrix(folder, FAKE_STEP_S="0", FAKE_MARKS=str(folder))
    lines = [f"  lr{i}: {{optim.muon_lr: {0.001 * (i + 1):.3f}}}" for i in range(N_ARMS - 1)]
    before, _, _ = EXPERIMENT.partition("changes:")
    matrix.file.write_text(f"{before}changes:\n" + "\n".join(lines) + "\nseeds: 2\n")
    return matrix


@pytest.mark.slow
def test_200_arms_are_planned(tmp_path: Path) -> None:
    planned = ablate(with_many_changes(tmp_path), "plan", str(tmp_path / "fake.yaml"), "--json")
    assert planned.code == 0, planned.err
    assert len(planned.json["arms"]) == N_ARMS
    assert planned.json["runs"] == 2 * N_ARMS


@pytest.mark.slow
@pytest.mark.long
def test_200_arms_run_and_report(tmp_path: Path) -> None:
    matrix = with_many_changes(tmp_path)
    code, out, err = matrix.run()
    assert code == 0, err
    assert f"everything is finished: {2 * N_ARMS} runs" in out
    page = tmp_path / "page.html"
    assert ablate(matrix, "report", "fake", "-o", str(page)).code == 0
    assert f"lr{N_ARMS - 2}" in page.read_text()
    assert ablate(matrix, "verify", str(page)).code == 0
    compared = ablate(matrix, "compare", "fake")
    assert compared.code == 0
    assert max(map(len, compared.out.splitlines())) < 500
    plan = read_json(matrix.results / "experiments" / "fake" / "experiment.json")
    assert len(plan["arms"]) == N_ARMS


@pytest.mark.parametrize("design", ["add-one", "leave-one-out", "ladder"])
def test_designs_of_200_changes_ask_once_for_each_arm(design: str) -> None:
    asked = []

    def feasible(changes: tuple[str, ...]) -> bool:
        asked.append(changes)
        return True

    arms = DESIGNS[design](tuple(f"c{i}" for i in range(N_ARMS)), feasible)
    assert len(arms) >= N_ARMS
    assert len(asked) <= 3 * N_ARMS


def test_a_line_on_many_arms_names_a_few() -> None:
    names = [f"c{i}" for i in range(N_ARMS)]
    assert few_of(names[:NAMED]) == ", ".join(names[:NAMED])
    assert few_of(names) == f"{', '.join(names[:NAMED])} and {N_ARMS - NAMED} more"
