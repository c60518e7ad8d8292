"""What is remembered of experiments as the command line plans them: what was seen counts in the same question alone."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from harness.corpora.index import prepare
from harness.experiment.experiment import load_experiment
from harness.experiment.plan import plan_runs
from harness.experiment.record import describe
from harness.run.ledger import read_ledger
from harness.run.plan import Plan
from harness.run.results import result_in
from harness.store.attempt import claim
from harness.store.looks import note_look
from harness.store.store import Store
from reports.inputs.memory import Memory, Value, remember
from reports.inputs.memory_words import other_words
from tests.fake_matrix import EXPERIMENT
from tests.fake_trainer import outcome

FLOOR = EXPERIMENT.replace("untied_head: r08.untied_head", "floor: {schedule.lr_floor: 0.3}")
LATE = "branch_at: 10\n"


@pytest.fixture(scope="module", autouse=True)
def _corpus() -> None:
    prepare("stdlib")


def made(folder: Path, keys: str, codes: Mapping[str, str] | None = None) -> Plan:
    """The plan of a file with these keys, its runs finished; codes: of arms that have one of their own."""
    file = folder / "fake.yaml"
    file.write_text(f"{FLOOR}{keys}")
    experiment = load_experiment(str(file), device="cpu")
    runs = []
    for run in plan_runs(experiment, need_data=False):
        code = (codes or {}).get(run.arm, run.spec.source_digest)
        runs.append(replace(run, spec=replace(run.spec, source_digest=code)))
    store = Store.create(folder / "results")
    for i, run in enumerate(runs):
        out = claim(store, run.spec)
        if out is not None:
            out.describe({"host": "here"})
            out.finish(outcome("finished", run.spec.budget, 2.0 + i / 100, None))
    return describe(experiment, runs, before=None, command="ablate run")


def remembered(folder: Path, plan: Plan) -> tuple[Memory, Plan]:
    results = folder / "results"

    def value_of(run_id: str) -> Value | None:
        result = result_in(f"{results}/runs/{run_id}", run_id)
        return result and (result.val_loss,)

    return remember(plan, read_ledger(results), results / "runs", value_of)


@pytest.mark.parametrize("budgets", ["", "budgets: [20]\n", "budgets: [16, 20]\n"])
def test_what_was_seen_at_other_seeds_counts(tmp_path: Path, budgets: str) -> None:
    note_look(tmp_path / "results", made(tmp_path, f"seeds: 2\n{budgets}"), "compare")
    plan = made(tmp_path, f"seeds: [2, 3]\n{budgets}")
    memory, whole = remembered(tmp_path, plan)
    assert memory.changed and whole.seeds == (2, 3, 0, 1) and len(whole.runs) == 2 * len(plan.runs)
    (note,) = memory.notes
    assert "what was seen at seeds 0, 1 counts: intervals are anytime-valid" in note


def test_what_was_seen_counts_where_each_arm_has_the_code_that_it_has_now(tmp_path: Path) -> None:
    """As scripts have, which are of one code each."""
    codes = {"floor": "f" * 16}
    note_look(tmp_path / "results", made(tmp_path, "seeds: 2\n", codes), "compare")
    _, whole = remembered(tmp_path, made(tmp_path, "seeds: [2, 3]\n", codes))
    assert whole.seeds == (2, 3, 0, 1)
    memory, whole = remembered(tmp_path, made(tmp_path, "seeds: [4, 5]\n"))
    assert whole.seeds == (4, 5) and "other code" in str(memory.notes)


def test_what_was_seen_of_another_length_does_not_count(tmp_path: Path) -> None:
    note_look(tmp_path / "results", made(tmp_path, "seeds: 2\nbudgets: [16]\n"), "compare")
    memory, whole = remembered(tmp_path, made(tmp_path, "seeds: [2, 3]\n"))
    assert whole.seeds == (2, 3)
    assert "other code" not in str(memory.notes)


@pytest.mark.parametrize(
    ("seen", "asked"), [("", LATE), (LATE, ""), (LATE, "budgets: [20]\n"), (LATE, "branch_at: 9\n")]
)
def test_an_effect_from_a_branch_on_is_another_question(
    tmp_path: Path, seen: str, asked: str
) -> None:
    note_look(tmp_path / "results", made(tmp_path, f"seeds: 2\n{seen}"), "compare")
    plan = made(tmp_path, f"seeds: [2, 3]\n{asked}")
    assert remembered(tmp_path, plan) == (Memory(family=1), plan)


def test_one_branch_is_one_question(tmp_path: Path) -> None:
    note_look(tmp_path / "results", made(tmp_path, f"seeds: 2\n{LATE}"), "compare")
    memory, whole = remembered(tmp_path, made(tmp_path, f"seeds: [2, 3]\n{LATE}"))
    assert memory.changed and whole.seeds == (2, 3, 0, 1)


def test_one_result_of_other_code_is_spoken_of_as_one() -> None:
    said = "Beside the runs here, {} seen under other code: not counted."
    assert other_words(1) == said.format("1 result of these arms was")
    assert other_words(8) == said.format("8 results of these arms were")
