"""The second path finds a lie in what a page says of noise, changes, open verdicts and their number."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from reports.inputs.load import load
from reports.page.write import render
from reports.verify.page import read_page
from reports.verify.verify import check_data
from tests.report_arms import FACTORIAL, LADDER, Arm
from tests.report_fixtures import write_experiment

HARMFUL = [replace(arm, loss_effect=abs(arm.loss_effect)) for arm in FACTORIAL]
PAGES: dict[str, str] = {}
TWO = (Arm(name="base"), Arm(name="same", fields=(("model.untied_head", True),)))


def written(folder, **facts) -> str:
    write_experiment(folder, n_points=3, target=None, **facts)
    return render([load("split", folder)])


def noisy(folder) -> str:
    """Two arms of which neither a loss nor a time is told apart, times over a factor of two."""
    write_experiment(folder, arms=TWO, n_seeds=4, n_points=3, target=None, sd=0.01)
    experiment = load("split", folder)
    runs = experiment.runs
    factor = 1 + 0.9 * ((runs["seed"] * 2 + (runs["arm"] == "same") * 3) % 4) / 4
    experiment.runs["step_ms"] = runs["step_ms"] * factor
    return render([experiment])


MADE: dict[str, Callable[..., str]] = {
    "noisy": noisy,
    "ladder": lambda folder: written(folder, arms=LADDER[:4], n_seeds=4),
    "shares": lambda folder: written(folder, arms=HARMFUL, n_seeds=3, design="shapley"),
}


def page_of(kind: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    if kind not in PAGES:
        PAGES[kind] = MADE[kind](tmp_path_factory.mktemp(kind))
    return PAGES[kind]


def wrong(text: str) -> list[str]:
    return check_data(read_page(text), None)


@pytest.mark.parametrize(
    ("kind", "said", "lie", "names"),
    [
        ("noisy", r"undecided: −0\.0(\d)", r"undecided: −0.1\1", "does not tell the ends"),
        ("noisy", r"to \+0\.0(\d)", r"to +0.1\1", "does not tell the ends"),
        ("noisy", r"alone took from (\d)", r"alone took from 1\1", "ms a step of"),
        ("noisy", r" to (\d[\d.]+) ms a step", r" to 1\1 ms a step", "ms a step of"),
        (
            *("ladder", r'(own_val_loss\.sd_paired" data-v=")0\.0', r"\g<1>0.1"),
            "own_val_loss.sd_paired is",
        ),
        ("ladder", r'("val_loss\.sd_paired" data-v=")0\.0', r"\g<1>0.1", "val_loss.sd_paired is"),
        ("ladder", r'(data-key="sets 0 [^"]+">)on', r"\1off", "is printed as off"),
        ("ladder", r'(data-key="sets 1) ', r"\1 not.", "is printed as nothing"),
        ("shares", r"; (\d) (are|is) (worse|undecided)", r"; 9 are \3", "the headline says that 9"),
    ],
)
def test_a_lie_is_found_where_it_stands(kind, said, lie, names, tmp_path_factory):
    text = page_of(kind, tmp_path_factory)
    assert wrong(text) == []
    told = re.sub(said, lie, text, count=1)
    assert told != text
    assert any(names in sentence for sentence in wrong(told)), wrong(told)


def test_a_change_that_others_need_has_its_number_with_them_in_a_row_of_its_own(tmp_path):
    arms = [Arm(name="base")]
    for changes in (("a",), ("a", "b")):
        fields = tuple((f"plugin.{change}", change) for change in changes)
        arms.append(Arm(name=" + ".join(changes), changes=changes, fields=fields))
    text = written(tmp_path, arms=arms, n_seeds=3, design="shapley")
    rows = re.findall(r'<tr><th scope="row">(a[^<]*)</th>(.*?)</tr>', text)
    told = {name: re.findall(r"<span>([^<]*)</span>", cells) for name, cells in rows}
    assert told["a"][-1] == "–" and told["a with b"][:-1] == ["", ""]
    assert re.match(r"[+−]0\.\d{4} \[", told["a with b"][-1])
    assert wrong(text) == []
