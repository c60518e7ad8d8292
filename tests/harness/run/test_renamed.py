"""A word that was renamed is read under its old name for a release, with one line that says so."""

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import UserError
from harness.experiment.experiment import Experiment, load_experiment
from harness.experiment.record import locks_with
from harness.run import renamed
from harness.run.digests import spaced_digest
from harness.run.document import Content
from harness.run.plan import Lock, Plan
from harness.run.renamed import Renamed

FILE = """
name: old
question: Is it read?
base: r07
scale: tiny
{line}
changes: {{untied_head: r08.untied_head}}
at_scale: {{tiny: {{primary: {primary}}}}}
"""
TABLE = Renamed(
    keys={"repeats": "seeds"},
    fields={"schedule.updates": "schedule.steps"},
    values={"primary": {"step_time": "step_ms"}},
)


@pytest.fixture(autouse=True)
def _says_it_again() -> None:
    renamed.say.cache_clear()


@pytest.fixture
def _old_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renamed, "RENAMED", TABLE)


def load(
    folder: Path, *, line: str = "", primary: str = "step_ms", overrides: Content | None = None
) -> Experiment:
    path = folder / "old.yaml"
    path.write_text(FILE.format(line=line, primary=primary))
    return load_experiment(str(path), device="cpu", overrides=overrides)


def test_an_old_value_is_read_with_its_line(tmp_path: Path, capsys) -> None:
    assert load(tmp_path, primary="step_time").primary == "step_ms"
    said = capsys.readouterr().err
    assert said == (
        f"{tmp_path}/old.yaml:8: primary step_time is now step_ms; "
        "this release still reads the old word\n"
    )


def test_what_is_new_says_nothing(tmp_path: Path, capsys) -> None:
    assert load(tmp_path).primary == "step_ms"
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("_old_words")
@pytest.mark.parametrize(
    ("line", "read", "said"),
    [
        ("repeats: 2", lambda e: len(e.seeds) == 2, "repeats is now seeds"),
        (
            "set: {schedule.updates: 40}",
            lambda e: e.baseline.config.schedule.steps == 40,
            "schedule.updates is now schedule.steps",
        ),
    ],
)
def test_an_old_key_is_read_with_its_line(tmp_path: Path, capsys, line, read, said) -> None:
    assert read(load(tmp_path, line=line))
    assert capsys.readouterr().err == (
        f"{tmp_path}/old.yaml:6: {said}; this release still reads the old word\n"
    )


@pytest.mark.usefixtures("_old_words")
def test_set_takes_an_old_name(tmp_path: Path, capsys) -> None:
    old = {"repeats": 2, "schedule.updates": 40, "primary": "step_time"}
    experiment = load(tmp_path, primary="val_loss", overrides=old)
    assert len(experiment.seeds) == 2
    assert experiment.baseline.config.schedule.steps == 40
    assert experiment.primary == "step_ms"
    assert capsys.readouterr().err.count("--set: ") == 3


@pytest.mark.usefixtures("_old_words")
def test_an_error_below_an_old_key_names_its_line(
    tmp_path: Path, kept_line: Callable[[str], None]
) -> None:
    with pytest.raises(UserError, match=r"old\.yaml:6: seeds is 0") as refused:
        load(tmp_path, line="repeats: 0")
    kept_line(str(refused.value))


@pytest.mark.usefixtures("_old_words")
def test_both_names_at_once_are_refused(tmp_path: Path, kept_line: Callable[[str], None]) -> None:
    with pytest.raises(
        UserError, match=r"old\.yaml:6: repeats is now seeds, which is given too"
    ) as refused:
        load(tmp_path, line="repeats: 2\nseeds: 3")
    kept_line(str(refused.value))


def test_a_plan_on_disk_is_read_in_todays_words() -> None:
    row = {"arm": "baseline", "seed": 0, "replicate": 0, "budget": 1, "role": "loss", "block": 0}
    content = {"name": "old", "primary": "step_time", "runs": [{**row, "order": 3, "run_id": "a"}]}
    plan = Plan.from_mapping(content)
    assert plan.primary == "step_ms"
    assert [run.place for run in plan.runs] == [3]
    assert Plan.from_mapping(plan.to_mapping()) == plan


def test_a_word_is_no_change_of_plan() -> None:
    old = {"primary": "step_time", "seeds": [0, 1]}
    locks = (Lock(locked="2026-01-01", digest=spaced_digest(old)[:16], plan=old),)
    assert locks_with(locks, {**old, "primary": "step_ms"}) == locks
    assert len(locks_with(locks, {**old, "primary": "val_loss"})) == 2


def test_a_plan_that_goes_back_to_what_it_was_is_locked_again() -> None:
    first, second = {"seeds": [0, 1]}, {"seeds": [0, 1, 2]}
    locks = locks_with(locks_with((), first), second)
    assert locks_with(locks, second) == locks
    assert [lock.plan for lock in locks_with(locks, first)] == [first, second, first]
