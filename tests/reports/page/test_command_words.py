"""A command on a page names no folder of the machine where it was typed."""

from dataclasses import replace
from pathlib import Path

import pytest

from harness.run.foreign import TrainerSpec
from harness.run.plan import Lock, Plan, PlanCorpus
from reports.inputs.load import load
from reports.page.command_words import without_folders, without_paths
from reports.page.next_run import commands
from reports.page.write import write_report
from reports.verify.page import read_page
from reports.verify.verify import verify
from tests.report_fixtures import write_experiment


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("ablate run quickstart", "ablate run quickstart"),
        ("ablate run x --note 'two words'", "ablate run x --note 'two words'"),
        ("ablate run /home/me/q.yaml --results /big/res", "ablate run q.yaml --results RESULTS"),
        ("ablate run q --results=/big/res", "ablate run q --results=RESULTS"),
        ("ablate run q --results res", "ablate run q --results res"),
        ("ablate run q --set data.corpus=/a/mine", "ablate run q --set data.corpus=mine"),
        ("ablate ab /a/one.py /b/two.py -n 3", "ablate ab one.py two.py -n 3"),
        ("ablate ab /x/a/train.py /x/b/train.py", "ablate ab a/train.py b/train.py"),
        ("ablate ab /a/train.py /b/train.py", "ablate ab a/train.py b/train.py"),
        ("ablate ab /one.py /two.py", "ablate ab one.py two.py"),
        ("ablate ab /a.py /b/a.py", "ablate ab a.py b/a.py"),
        ("ablate ab /b/a.py /c/b/a.py", "ablate ab b/a.py c/b/a.py"),
        ("ablate ab '/my dir/a.py@--lr 1' b.py", "ablate ab 'a.py@--lr 1' b.py"),
        ("ablate ab '/a/x.py@--data /home/me/set' y.py", "ablate ab 'x.py@--data set' y.py"),
        ("ablate ab x.py 'y.py@--data=/home/me/set'", "ablate ab x.py y.py@--data=set"),
        ("ablate ab 'x.py@--data /a/set' 'x.py@--data /b/set'", "ablate ab 'x.py@--data a/set' 'x.py@--data b/set'"),
        ("ablate ab 'x.py@--out=~/runs/1 -n 1/2' y.py", "ablate ab 'x.py@--out=1 -n 1/2' y.py"),
        ("ablate ab x.py y.py --step-pattern 'step:([0-9]+)/[0-9]+'", "ablate ab x.py y.py --step-pattern 'step:([0-9]+)/[0-9]+'"),
        ("ablate ab x.py y.py --command 'torchrun {script} 2> /dev/null'", "ablate ab x.py y.py --command 'torchrun {script} 2> /dev/null'"),
        ("ablate ab /a/x.py y.py --log '*/log.txt'", "ablate ab x.py y.py --log '*/log.txt'"),
        ("ablate ab /a/b.py c.py && ablate run /a/b.yaml", "ablate ab b.py c.py && ablate run b.yaml"),
        ("ablate run 'an /open quote", "ablate run 'an /open quote"),
    ],
)  # fmt: skip
def test_a_whole_path_is_shown_as_what_another_reader_has(typed: str, shown: str) -> None:
    assert without_folders(typed) == shown


@pytest.mark.parametrize(
    ("kept", "shown"),
    [
        ("/home/me/a/train.py", "train.py"),
        ("~/a/train.py", "train.py"),
        ("records/a/train.py", "records/a/train.py"),
        ("torchrun --data=/big/set {script}", "torchrun --data=set {script}"),
        ("https://host.org/a/b", "https://host.org/a/b"),
        ("a loss of 1/2", "a loss of 1/2"),
        ({"file": "/home/me/x.py", "gpus": 8}, {"file": "x.py", "gpus": 8}),
        (["/a/b", None], ["b", None]),
    ],
)
def test_a_whole_path_in_a_page_s_data_is_a_name(kept, shown) -> None:
    assert without_paths(kept) == shown


def test_the_data_of_a_page_name_no_folder_of_its_machine(tmp_path) -> None:
    write_experiment(tmp_path, n_seeds=2)
    made = load("split", tmp_path)
    command = "ablate run /home/somebody/mine.yaml --results /home/somebody/res"
    side = TrainerSpec(
        file=Path("/home/somebody/new.py"), script="new.py", command="torchrun {script}", env={},
        data={"data": "/home/somebody/tokens"}, environment={"python": "/home/somebody/bin/python"},
    )  # fmt: skip
    arms = tuple(replace(arm, side=side) for arm in made.plan.arms)
    environments = {run: {**e, "command": command} for run, e in made.environments.items()}
    plan = replace(made.plan, command=command, arms=arms, plugins=("/home/somebody/plug.py",))
    page = write_report(
        [replace(made, plan=plan, environments=environments)], tmp_path / "page.html"
    )
    text = page.read_text()
    assert "somebody" not in text
    typed = "ablate run mine.yaml --results RESULTS"
    (told,) = read_page(page).data["experiments"]
    assert told["plan"]["command"] == typed
    assert {e["command"] for e in told["environments"]["pool"].values()} == {typed}
    assert verify(page) == []


def test_the_settings_of_a_page_name_no_folder_of_its_machine_and_tell_two_apart(tmp_path) -> None:
    write_experiment(tmp_path, n_seeds=2)
    made = load("split", tmp_path)
    arms = dict(zip(made.runs["run_id"], made.runs["arm"], strict=True))
    configs = {}
    for run, config in made.configs.items():
        folder = "new" if arms[run] == made.plan.arms[1].name else "old"
        data = {"tokens": f"/home/somebody/{folder}/tokens"}
        configs[run] = {**config, "config": {**config["config"], "trainer": {"data": data}}}
    environments = {run: {**e, "trainer": configs[run]} for run, e in made.environments.items()}
    locks = tuple(Lock(locked="", digest="", plan=config) for config in configs.values())
    changed = {"configs": configs, "environments": environments}
    page = write_report(
        [replace(made, **changed, plan=replace(made.plan, locks=locks))], tmp_path / "page.html"
    )
    text = page.read_text()
    assert "somebody" not in text and "old/tokens" in text and "new/tokens" in text
    assert verify(page) == []


def test_a_page_of_other_results_is_made_again_from_those() -> None:
    plan = Plan(
        name="q", baseline="base", corpus=PlanCorpus(), command="ablate run q --results /big/res"
    )
    run, report, _ = commands("q", plan)
    assert run.startswith("ablate run q --results RESULTS ")
    assert report.startswith("ablate report q --results RESULTS ")
