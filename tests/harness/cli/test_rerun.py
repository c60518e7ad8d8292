"""`ablate rerun`: what is refused before anything starts, where the repetition goes, how it is compared."""

from dataclasses import replace
from pathlib import Path

import pytest

from harness.cli.log import Membership
from harness.cli.rerun import (
    again_in,
    check_source,
    check_trust,
    check_versions,
    compared,
    note_replaced,
    plugins_of,
    spec_of,
)
from harness.errors import UserError
from harness.provenance.interpreters import lock_of
from harness.provenance.source import source_of
from harness.run.guarded import RefusedFileError
from harness.run.ledger import read_ledger
from harness.run.plan import Plan, PlanArm, PlanRun
from harness.run.results import Result
from harness.store.errors import ResultsError
from harness.store.plans import save_plan
from harness.store.store import Store
from tests.one_run import SPEC, claimed, finish

RUN = SPEC.run_id


def outcome(loss: float | None) -> Result:
    status = "diverged" if loss is None else "finished"
    return Result.from_json({"run_id": RUN, "intent_id": RUN, "status": status, "val_loss": loss})


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (1.5, 1.5, ", bit for bit as before"),
        (None, None, ", bit for bit as before"),
        (1.5, 1.5005, ", before: 1.500000, difference +5.00e-04"),
        (1.5005, 1.5, ", before: 1.500500, difference -5.00e-04"),
        (1.5, None, ", before: finished"),
        (None, 1.5, ", before: diverged"),
    ],
)
def test_a_repetition_is_compared_with_what_is_on_record(
    before: float | None, after: float | None, words: str
) -> None:
    assert compared(outcome(before), outcome(after)) == words
    assert compared(None, outcome(after)) == ""


def test_a_run_of_ours_alone_needs_no_trust_and_a_strangers_plug_in_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = {"mine": {RUN}, "theirs": {"another"}}
    monkeypatch.setattr(
        "harness.store.launches.launched_runs", lambda results, name: launched[name]
    )
    mine, theirs = (Membership(experiment=name, arm="a", plugins=()) for name in launched)
    idea = [tmp_path / "idea.py"]

    def lines(files: list[Path], *of: Membership, trust: bool = False) -> list[str]:
        return check_trust(RUN, SPEC, files, of, tmp_path, trust=trust)

    assert lines([]) == lines([], theirs) == []
    assert lines(idea, theirs, mine) == []
    assert lines(idea, theirs, trust=True) == [f"the plug-in {idea[0]}"]
    for of in ((), (theirs,)):
        with pytest.raises(UserError, match=f"^run {RUN} was not launched here by you"):
            lines(idea, *of)


def test_a_run_of_other_versions_is_not_repeated(tmp_path: Path) -> None:
    check_versions(RUN, replace(SPEC, environment_digest=lock_of(None).digest), tmp_path)
    with pytest.raises(UserError) as refused:
        check_versions(RUN, SPEC, tmp_path)
    assert str(refused.value) == (
        f"run {RUN} was made with other versions: install those of"
        f" {tmp_path}/environments/{'b' * 16}.json"
    )


def test_a_run_is_repeated_with_its_own_code_under_its_own_name(tmp_path: Path) -> None:
    here = source_of([])
    spec = replace(SPEC, source_digest=here.digest, source_files=dict(here.files))
    check_source(spec.run_id, spec, [], tmp_path)
    with pytest.raises(UserError, match=f"configuration of run {spec.run_id}: nothing is started"):
        check_source("another", spec, [], tmp_path)
    files = {**here.files, "model/gpt.py": "0" * 16}
    other = replace(spec, source_digest="a" * 16, source_files=files)
    with pytest.raises(UserError) as refused:
        check_source(other.run_id, other, [], tmp_path)
    assert f"run {other.run_id} was made by other code (model/gpt.py): bring" in str(refused.value)
    assert f"(it is in {tmp_path}/code/{'a' * 16}.zip)" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("just a word", "is not the configuration of a run"),
        ("seed: 3\n", "is not the configuration of a run"),
        (replace(SPEC, config={"log": "a.txt"}).to_yaml(), "was imported from a log: there is"),
    ],
)
def test_what_could_not_run_is_no_record(text: str, said: str, tmp_path: Path) -> None:
    store = Store.create(tmp_path)
    config = store.directory(RUN) / "config.yaml"
    config.parent.mkdir()
    config.write_text(SPEC.to_yaml())
    assert spec_of(store, RUN) == SPEC
    config.write_text(text)
    with pytest.raises(UserError, match=said):
        spec_of(store, RUN)
    config.unlink()
    config.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RefusedFileError, match="links in a results folder are not followed"):
        spec_of(store, RUN)


def test_a_repetition_goes_beside_a_result_or_into_its_place_once_at_a_time(tmp_path: Path) -> None:
    store = Store.create(tmp_path)
    assert again_in(store, RUN, aside=False, replace=False) is store
    finish(claimed(store))
    beside = again_in(store, RUN, aside=True, replace=False)
    assert beside.root == tmp_path / "reruns" and store.is_done(RUN)
    finish(claimed(beside))
    again_in(store, RUN, aside=True, replace=False)
    assert store.is_done(RUN) and not beside.is_done(RUN), "the earlier one is set aside"
    claimed(beside)
    with pytest.raises(UserError, match=rf"is being repeated .* --results {beside.root}`"):
        again_in(store, RUN, aside=True, replace=False)
    assert again_in(store, RUN, aside=True, replace=True) is store and not store.is_done(RUN)


def test_a_folder_of_repetitions_that_is_none_is_refused(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "results")
    (store.root / "reruns").symlink_to(tmp_path)
    with pytest.raises(ResultsError, match="links in a results folder are not followed"):
        again_in(store, RUN, aside=True, replace=False)


def test_what_a_replaced_run_had_shown_stays_in_the_ledger(tmp_path: Path) -> None:
    store = Store.create(tmp_path)
    finish(claimed(store))
    runs = [
        PlanRun(arm="a", seed=3, replicate=0, budget=10, role="loss", block=0, run_id=run_id)
        for run_id in (RUN, "another")
    ]
    arms = (PlanArm(name="a", of="a"),)
    save_plan(tmp_path, Plan(name="x", baseline="a", arms=arms, runs=tuple(runs)))
    both = [Membership(experiment=name, arm="a", plugins=()) for name in ("gone", "x")]
    note_replaced(tmp_path, RUN, both)
    ledger = read_ledger(tmp_path)
    [look] = ledger.looks
    assert (look.experiment, look.by, look.results[0].val_loss) == ("x", "rerun", 1.5)
    assert [*ledger.gone] == [RUN] and ledger.gone[RUN].startswith("rerun --replace")


def test_plug_ins_of_a_run_are_those_of_its_first_experiment(tmp_path: Path) -> None:
    of = [Membership(experiment=name, arm="a", plugins=(f"{name}.py",)) for name in ("x", "y")]
    assert plugins_of(SPEC, of) == [Path("x.py")]
