"""A published delta beside our own: each of the seven verdicts is printed with both numbers and its reason."""

import shutil
from typing import get_args

import pytest

from reports.analysis.compare import compare_all
from reports.analysis.types import PublishedVerdict
from reports.inputs.load import load
from reports.page.sentences import published_parts
from tests.report_arms import LADDER
from tests.report_fixtures import write_experiment

VERDICTS = get_args(PublishedVerdict.__annotations__["verdict"])


@pytest.mark.parametrize("verdict", VERDICTS)
@pytest.mark.parametrize("resolved", [True, False])
def test_a_verdict_is_printed_with_both_effects_as_ratios(verdict, resolved):
    ours = (-8.1, -9.0, -7.2) if resolved else (None, None, None)
    parts = published_parts(
        PublishedVerdict(
            record="r15", against="r14", arm="whole", verdict=verdict, why="the reason.", percent=ours[0], percent_low=ours[1],
            percent_high=ours[2], published_percent=-10.5, published_percent_low=-11.1, published_percent_high=-9.8,
            published_s=-27.8, published_s_error=1.9, n_published=(75, 38), margin_percent=5.5,
        )
    )  # fmt: skip
    words = " ".join(p.text for p in parts)
    assert parts[0].text == verdict
    assert (
        "r15 against r14, training time: published −10.5 % [−11.1, −9.8] % (75 against 38 runs, "
        "its interval by how far losses of one program scatter from run to run, turned into time"
        in words
    )
    assert ("here −8.1 % [−9.0, −7.2] %" in words) is resolved
    assert words.endswith("The reason.")
    assert "27.8" not in words, "ratios, never seconds across machines"


def test_there_are_seven_verdicts():
    assert len(VERDICTS) == 7


def test_an_experiment_that_names_a_record_has_the_published_delta_beside_its_own(tmp_path):
    write_experiment(
        tmp_path, arms=LADDER, n_seeds=3, budgets=(200, 300, 400), target=1.57, published="r08"
    )
    said = {
        p.key: p.text
        for p in published_parts(compare_all(load("split", results=tmp_path)).published)
    }
    assert said["published.verdict"] == "not testable here"
    assert said["published.theirs"] == "−10.2 %"
    assert said["published.ours"].startswith("−")


def test_an_experiment_without_a_counted_run_still_has_the_published_delta(tmp_path):
    write_experiment(tmp_path, arms=LADDER, n_seeds=1, published="r08")
    shutil.rmtree(tmp_path / "runs")
    said = {
        p.key: p.text
        for p in published_parts(compare_all(load("split", results=tmp_path)).published)
    }
    assert said["published.theirs"] == "−10.2 %"
    assert said["published.verdict"] == "not testable here"
