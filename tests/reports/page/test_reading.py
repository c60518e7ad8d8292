"""How to read the verdicts: the page explains each kind that stands on it by an arm of its own, and `verify` holds it."""

import json
import re

import pytest

from reports.inputs.load import load
from reports.page.write import write_report
from reports.verify.verify import verify
from tests.report_arms import Arm
from tests.report_fixtures import write_experiment

BASE = Arm(name="base")
FAR = Arm(name="far", loss_effect=0.2, fields=(("plugin.arm", "far"),))
FARTHER = Arm(name="farther", loss_effect=0.4, fields=(("plugin.arm", "farther"),))
NEAR = Arm(name="near", loss_effect=0.0, fields=(("plugin.arm", "near"),))


def lines_of(folder, *, margin):
    """(the page, what it says under the heading: verdict -> sentence)."""
    write_experiment(
        folder, arms=[BASE, FAR, FARTHER, NEAR], n_seeds=5, sd=0.002, design="add-one", target=None
    )
    path = folder / "experiments/split/experiment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"margin": margin}))
    page = write_report([load("split", folder)], folder / "page.html")
    said = re.search(r'<dl class="reading">(.*?)</dl>', page.read_text())[1]
    return page, dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", said))


@pytest.mark.slow
def test_each_kind_is_told_by_the_arm_that_shows_it_best(tmp_path):
    page, lines = lines_of(tmp_path, margin=0.05)
    assert [*lines] == ["the rule", "worse", "no difference larger than 0.05 nats per byte"]
    assert "be it within the margin or beyond" in lines["the rule"]
    assert re.match(
        r"The interval of farther, \+0\.4\d+ \[.*\], lies wholly on the worse", lines["worse"]
    )
    equal = lines["no difference larger than 0.05 nats per byte"]
    assert re.match(
        r"The interval of near, \S+ \[.*\], lies wholly within the margin of 0.05", equal
    )
    assert verify(page) == []
    page.write_text(
        page.read_text().replace("wholly within the margin", "partly within the margin")
    )
    assert verify(page) != []


@pytest.mark.parametrize(("margin", "why"), [(None, "no margin says"), (0.0001, "reaches beyond")])
def test_undecided_is_not_said_to_be_nothing(tmp_path, margin, why):
    page, lines = lines_of(tmp_path, margin=margin)
    (undecided,) = [verdict for verdict in lines if verdict.startswith("undecided")]
    assert lines[undecided].startswith("The interval of near, ")
    assert f"holds zero and {why}" in lines[undecided].replace(", and", " and")
    assert "it is no sign that there is none" in lines[undecided]
    assert ("no difference larger" in lines["the rule"]) == (margin is not None)
    answer = re.search(r'data-key="answer">(.*?)</p>', page.read_text())[1]
    assert re.search(r"near \(\S+ \[\S+,\u00a0\S+\]\) is undecided", answer), answer
