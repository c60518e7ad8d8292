"""Tricks that change the plan after a look: each is told on the page, and none is judged as if nothing had been seen.

Where seeds changed, the page shows sequences, whose errors stand in docs/statistics.md (*anytime-valid, peeking*): whatever was
seen counts in them, so that every such choice is a choice of when to look. Where that cannot be, there is no interval at all. One
question in many experiments is judged at the share of all of them (*split in 15*).
"""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from harness.run.ledger import add_rows, gone_row, read_ledger
from harness.store.looks import note_look
from harness.store.plans import folder, read_plan
from reports.analysis.cautions import Caution
from reports.analysis.compare import compare_all
from reports.analysis.types import Comparison, Comparisons
from reports.inputs.load import load
from reports.page.write import write_report
from reports.stats.contrasts import Method
from reports.verify.verify import verify
from tests.report_fixtures import Arm, write_experiment
from tests.sealing import seal_again

ARMS = (
    Arm(name="base"),
    Arm(name="same", fields=(("model.untied_head", True),)),
    Arm(name="more", fields=(("model.embed_norm", True),)),
)


def made(root: Path, name: str = "split", seeds: int = 5, first: int = 0, **how: Any) -> None:
    """An experiment whose runs are finished, at seeds from `first` on."""
    write_experiment(root, name=name, arms=how.pop("arms", ARMS), n_seeds=seeds, **how)

    def move(plan: dict[str, Any]) -> None:
        plan["seeds"] = [seed + first for seed in plan["seeds"]]
        for run in plan["runs"]:
            run["seed"] += first
            run["block"] += first
            give_seed(root / "runs" / run["run_id"], run["seed"])
        plan["locks"][0]["plan"]["seeds"] = plan["seeds"]

    edit(root, name, move)


def give_seed(run: Path, seed: int) -> None:
    path = run / "config.yaml"
    path.write_text(re.sub(r"^seed: \d+$", f"seed: {seed}", path.read_text(), flags=re.MULTILINE))
    seal_again(run)


def edit(root: Path, name: str, change: Any) -> None:
    path = folder(root, name) / "experiment.json"
    plan = json.loads(path.read_text())
    change(plan)
    path.write_text(json.dumps(plan))


def with_seeds(root: Path, *seeds: int, name: str = "split") -> None:
    """The plan with these seeds alone, and with a lock of its own, as if its folder had been deleted and launched again."""

    def change(plan: dict[str, Any]) -> None:
        plan["seeds"] = list(seeds)
        plan["runs"] = [run for run in plan["runs"] if run["seed"] in seeds]
        plan["locks"][0]["plan"]["seeds"] = list(seeds)
        plan["looks"] = 0

    edit(root, name, change)


def look(root: Path, name: str = "split", by: str = "compare") -> None:
    plan = read_plan(root, name)
    assert plan is not None
    note_look(root, plan, by)


def judged(root: Path, name: str = "split") -> Comparisons:
    """The comparisons of a page, which `verify` finds sound, its memory too."""
    experiment = load(name, root)
    assert verify(write_report([experiment], root / "page.html")) == []
    return compare_all(experiment)


def loss(outcome: Comparisons, arm: str = "same") -> Comparison:
    found = outcome.of(arm, "val_loss")
    assert found is not None
    return found


def run_of(root: Path, arm: str, seed: int) -> Path:
    plan = read_plan(root, "split")
    assert plan is not None
    (run,) = (run for run in plan.runs if (run.arm, run.seed) == (arm, seed))
    return root / "runs" / run.run_id


def assert_sequence(outcome: Comparisons, n: int, told: str) -> None:
    c = loss(outcome)
    assert outcome.anytime and c.method is Method.SEQUENCE and c.n_blocks == n
    assert any(told in note for note in outcome.notes)


def assert_not_judged(outcome: Comparisons, told: str, arm: str = "same") -> None:
    c = loss(outcome, arm)
    assert (c.low, c.high, c.p) == (None, None, None) and c.kind == "none"
    assert Caution.NOT_JUDGED in c.warnings and Caution.ZERO_VARIANCE not in c.warnings
    assert any(told in note for note in outcome.notes)


@pytest.mark.slow
def test_a_plan_that_is_only_looked_at_stays_what_it_is(tmp_path: Path) -> None:
    made(tmp_path)
    before = loss(judged(tmp_path))
    for by in ("status", "compare", "report", "export", "compare"):
        look(tmp_path, by=by)
    outcome = judged(tmp_path)
    assert loss(outcome) == before and outcome.notes == ()
    (only,) = read_ledger(tmp_path).looks  # nothing new was shown by the others
    assert (only.by, len(only.results), only.seeds) == ("status", 15, (0, 1, 2, 3, 4))


def test_fewer_seeds(tmp_path: Path) -> None:
    made(tmp_path, seeds=8)
    look(tmp_path)
    with_seeds(tmp_path, 0, 1, 2)
    assert_sequence(judged(tmp_path), 8, "what was seen at seeds 3, 4, 5, 6 and 1 more counts")


def test_dropped_seeds(tmp_path: Path) -> None:
    made(tmp_path, seeds=5)
    look(tmp_path)
    with_seeds(tmp_path, 0, 2, 4)
    assert_sequence(judged(tmp_path), 5, "what was seen at seeds 1, 3 counts")


def test_swapped_seeds(tmp_path: Path) -> None:
    made(tmp_path, seeds=10)
    with_seeds(tmp_path, *range(5))
    look(tmp_path)
    shutil.rmtree(folder(tmp_path, "split"))
    made(tmp_path, name="other", seeds=1)  # an experiment beside it changes nothing
    shutil.rmtree(folder(tmp_path, "other"))
    rest = tmp_path / "rest"
    made(rest, seeds=10)  # the same runs: the fixture's draws are fixed
    shutil.copytree(folder(rest, "split"), folder(tmp_path, "split"))
    with_seeds(tmp_path, *range(5, 10))
    assert_sequence(judged(tmp_path), 10, "what was seen at seeds 0, 1, 2, 3 and 1 more counts")


def test_a_stop_in_a_longer_plan(tmp_path: Path) -> None:
    made(tmp_path, seeds=8)
    edit(tmp_path, "split", lambda plan: plan.update(seeds=list(range(20))))
    look(tmp_path)
    with_seeds(tmp_path, *range(8))
    assert_sequence(judged(tmp_path), 8, "(split; 20 seeds from")


def test_a_renamed_copy(tmp_path: Path) -> None:
    made(tmp_path, seeds=5)
    look(tmp_path)
    made(tmp_path, name="copy", seeds=5, first=5, seed=1)
    assert_sequence(judged(tmp_path, "copy"), 10, "(split; 5 seeds from")


@pytest.mark.slow
def test_one_experiment_split_in_fifteen(tmp_path: Path) -> None:
    for i in range(15):
        one = Arm(name="same", fields=(("model.untied_head", i),))
        made(tmp_path, name=f"part{i}", seeds=4, arms=(ARMS[0], one), seed=i)
    alone = loss(judged(tmp_path, "part3"))
    for i in range(15):
        look(tmp_path, f"part{i}")
    outcome = judged(tmp_path, "part3")
    c = loss(outcome)
    assert (c.n_comparisons, c.level, alone.n_comparisons) == (15, 0.95, 1)
    assert c.p is not None and alone.p is not None and c.p == pytest.approx(min(1, 15 * alone.p))
    (note,) = [note for note in outcome.notes if "15 changes were asked about base" in note]
    assert "one or more mislead with a chance of up to 17%: confirm what pleased." in note
    later = loss(judged(tmp_path, "part1"))  # the first one's page, as it would be written now
    assert later.n_comparisons == 15


def test_what_was_asked_in_one_go_is_not_called_grown(tmp_path: Path) -> None:
    made(tmp_path)
    look(tmp_path)
    made(tmp_path, name="part", arms=ARMS[:2])
    (note,) = judged(tmp_path, "part").notes
    assert note.startswith("2 changes were asked about base") and "mislead" not in note


def test_a_deleted_experiment_folder(tmp_path: Path) -> None:
    made(tmp_path, seeds=8)
    look(tmp_path)
    kept = tmp_path / "kept"
    shutil.move(folder(tmp_path, "split"), kept)
    shutil.copytree(kept, folder(tmp_path, "split"))
    with_seeds(tmp_path, 0, 1, 2)
    assert_sequence(judged(tmp_path), 8, "split; 8 seeds from")


def test_a_result_that_is_replaced(tmp_path: Path) -> None:
    made(tmp_path)
    look(tmp_path)
    path = run_of(tmp_path, "same", 2) / "result.json"
    result = json.loads(path.read_text())
    result["val_loss"] -= 0.01
    path.write_text(json.dumps(result))
    add_rows(tmp_path, [gone_row("rerun --replace", [path.parent.name])])
    outcome = compare_all(load("split", tmp_path))
    assert_not_judged(outcome, "seed 2 are other ones than were seen (rerun --replace, ")
    assert loss(outcome, "more").low is not None  # whose results are what they were


@pytest.mark.slow
def test_a_result_that_is_replaced_by_its_like(tmp_path: Path) -> None:
    made(tmp_path)
    before = loss(judged(tmp_path))
    look(tmp_path)
    add_rows(tmp_path, [gone_row("rerun --replace", [run_of(tmp_path, "same", 2).name])])
    look(tmp_path)
    assert loss(judged(tmp_path)) == before


def test_results_that_are_deleted(tmp_path: Path) -> None:
    made(tmp_path)
    look(tmp_path)
    shutil.rmtree(run_of(tmp_path, "same", 1))
    with_seeds(tmp_path, 0, 2, 3, 4)
    assert_not_judged(judged(tmp_path), "seed 1 were seen and are gone")


def test_results_that_are_deleted_at_the_end_leave_a_sequence(tmp_path: Path) -> None:
    made(tmp_path, seeds=9)
    look(tmp_path)
    shutil.rmtree(run_of(tmp_path, "same", 8))
    with_seeds(tmp_path, *range(8))
    assert_sequence(judged(tmp_path), 8, "other seeds than are planned now")


def test_seeds_picked_by_the_baseline(tmp_path: Path) -> None:
    made(tmp_path, seeds=6)
    whole = json.loads((folder(tmp_path, "split") / "experiment.json").read_text())
    edit(tmp_path, "split", lambda plan: plan.update(
        arms=plan["arms"][:1] + plan["arms"][2:], runs=[r for r in plan["runs"] if r["arm"] != "same"]))  # fmt: skip
    look(tmp_path)
    (folder(tmp_path, "picked")).mkdir()
    whole["name"] = "picked"
    whole["arms"] = whole["arms"][:2]
    whole["runs"] = [run for run in whole["runs"] if run["arm"] != "more"]
    whole["locks"][0]["locked"] = "2999-01-01T00:00:00+00:00"
    (folder(tmp_path, "picked") / "experiment.json").write_text(json.dumps(whole))
    with_seeds(tmp_path, 1, 3, 5, name="picked")
    assert_not_judged(
        judged(tmp_path, "picked"), "the baseline's results at seeds 0, 2, 4 were seen"
    )
    edit(tmp_path, "picked", lambda plan: plan.update(whole))
    with_seeds(tmp_path, 0, 1, 2, name="picked")
    assert (
        loss(judged(tmp_path, "picked")).low is not None
    )  # whoever takes them in order picks none


@pytest.mark.slow
def test_a_confirmatory_file_run_twice_is_one_sequence(tmp_path: Path) -> None:
    made(tmp_path, name="first", seeds=5, first=1000, confirm=True)
    look(tmp_path, "first")
    assert not loss(judged(tmp_path, "first")).exploratory
    made(tmp_path, name="again", seeds=5, first=1005, seed=1, confirm=True)
    assert_sequence(judged(tmp_path, "again"), 10, "(first; 5 seeds from")


def test_a_confirmation_on_seeds_that_were_seen_confirms_nothing(tmp_path: Path) -> None:
    made(tmp_path, seeds=5, first=1000, confirm=True)
    look(tmp_path)
    edit(tmp_path, "split", lambda plan: plan["locks"][0].update(locked="2999-01-01T00:00:00+00:00"))  # fmt: skip
    outcome = judged(tmp_path)
    assert loss(outcome).exploratory and Caution.EXPLORATORY in outcome.warnings
    assert any(note.startswith("Nothing is confirmed here: results at seeds 1000") for note in outcome.notes)  # fmt: skip
    assert "confirmed on fresh seeds" not in (tmp_path / "page.html").read_text()
