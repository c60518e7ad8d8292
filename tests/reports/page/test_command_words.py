"""A command on a page names no folder of the machine where it was typed."""

import pytest

from harness.run.plan import Plan, PlanCorpus
from reports.page.command_words import without_folders
from reports.page.next_run import commands


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
        ("ablate ab '/my dir/a.py@--lr 1' b.py", "ablate ab 'a.py@--lr 1' b.py"),
        ("ablate ab /a/b.py c.py && ablate run /a/b.yaml", "ablate ab b.py c.py && ablate run b.yaml"),
        ("ablate run 'an /open quote", "ablate run 'an /open quote"),
    ],
)  # fmt: skip
def test_a_whole_path_is_shown_as_what_another_reader_has(typed: str, shown: str) -> None:
    assert without_folders(typed) == shown


def test_a_page_of_other_results_is_made_again_from_those() -> None:
    plan = Plan(
        name="q", baseline="base", corpus=PlanCorpus(), command="ablate run q --results /big/res"
    )
    run, report, _ = commands("q", plan)
    assert run.startswith("ablate run q --results RESULTS ")
    assert report.startswith("ablate report q --results RESULTS ")
