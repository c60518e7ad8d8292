"""A record's published ladder beside our own rungs: both effects and a verdict for every change, on the page too."""

import dataclasses

import pandas as pd
import pytest

from reports.analysis.published import in_percent
from reports.analysis.published_steps import in_nats, own_effect, published_steps
from reports.inputs.experiment import Experiment
from reports.inputs.load import load
from reports.inputs.noise import PUBLISHED, benchmark_noise
from reports.inputs.published import read_table
from reports.page.write import render
from reports.verify.page import read_page
from tests.report_arms import Arm
from tests.report_fixtures import write_experiment

ROWS = read_table(PUBLISHED / "r09_ladder.csv")
CHANGES = [r["change"] for r in ROWS[1:]]


def rungs(factor: float = 1.0) -> tuple[Arm, ...]:
    """Arms of record 9's ladder whose losses differ as published, times `factor`; step times as published."""
    first = ROWS[0]
    return tuple(
        Arm(
            name=" + ".join(CHANGES[:i]) or "r08",
            loss_effect=factor * (float(r["val_loss"]) - float(first["val_loss"])),
            step_factor=float(r["step_ms"]) / float(first["step_ms"]),
            changes=tuple(CHANGES[:i]),
            fields=tuple((f"model.{c}", True) for c in CHANGES[:i]),
        )
        for i, r in enumerate(ROWS)
    )


def at_full_size(experiment: Experiment) -> Experiment:
    corpus = dataclasses.replace(experiment.plan.corpus, name="fineweb10B")
    plan = dataclasses.replace(experiment.plan, scale="gpt2", corpus=corpus)
    return dataclasses.replace(experiment, plan=plan)


def made(root, *, factor: float = 1.0, **how) -> Experiment:
    write_experiment(root, arms=rungs(factor), n_seeds=6, published="r09", sd=0.0002, **how)
    return at_full_size(load("split", results=root))


def verdicts(experiment: Experiment, metric: str = "val_loss") -> dict[str, str]:
    return {s.change: s.verdict for s in published_steps(experiment) if s.metric == metric}


def test_every_rung_stands_beside_the_published_one(tmp_path):
    steps = published_steps(made(tmp_path))
    assert [s.change for s in steps[::2]] == CHANGES
    for s, above, row in zip(steps[::2], ROWS, ROWS[1:]):
        assert s.published.value == pytest.approx(float(row["val_loss"]) - float(above["val_loss"]))
        assert s.ours.value == pytest.approx(s.published.value, abs=0.001)
    for s in steps[1::2]:
        assert s.ours.value == pytest.approx(s.published.value, abs=0.01)


def test_one_published_run_per_rung_is_too_uncertain_to_test_by(tmp_path):
    """Single runs of that era scatter by 0.004: no rung's 0.005 to 0.013 can be told within half of itself."""
    assert set(verdicts(made(tmp_path)).values()) == {"published delta too uncertain to test"}


def test_a_published_side_that_is_certain_gets_the_other_verdicts(tmp_path, monkeypatch):
    monkeypatch.setattr("reports.analysis.published_steps.era_sd", lambda record: 0.0002)
    for factor, verdict in (
        (1.0, "reproduced"),
        (0.3, "smaller"),
        (2.0, "larger"),
        (-1.0, "opposite"),
    ):
        assert set(verdicts(made(tmp_path / str(factor), factor=factor)).values()) == {verdict}


def test_other_sizes_and_unfinished_runs_are_not_judged(tmp_path):
    finished = made(tmp_path / "all")
    small = dataclasses.replace(finished, plan=dataclasses.replace(finished.plan, scale="tiny"))
    assert set(verdicts(small).values()) == {"not testable here"}
    waiting = made(tmp_path / "some", outcome={("r08", 0): "pending"})
    assert set(verdicts(waiting).values()) == {"not resolved"}
    runs = finished.runs.assign(
        status=finished.runs["status"].mask(finished.runs["arm"] == "r08", "diverged")
    )
    step = published_steps(dataclasses.replace(finished, runs=runs))[0]
    assert (step.verdict, step.why, step.ours) == ("not resolved", "runs diverged", None)


def timed(**facts):
    """Three runs of two arms in blocks on one node; facts: columns that are otherwise."""
    rows = []
    for arm, of_arm in (("a", 3.0), ("b", 3.2)):
        for block in range(3):
            rows.append({"arm": arm, "block": block, "seed": block, "status": "finished",
                         "val_loss": of_arm + 0.01 * block**2 * len(rows), "step_ms": 99.0 + len(rows),
                         "budget": 10, "role": "loss", "device": "cuda", "gpu": "H100", "node": "n0",
                         "session": None, "run_id": f"{arm}{block}", "metrics_digest": f"{arm}{block}",
                         "replicate": 0, "train_time_s": 1.0, "hardware": "x", "imported": False})  # fmt: skip
    return pd.DataFrame(rows).assign(**facts)


def test_our_own_effect_is_paired_or_says_why_there_is_none():
    runs = timed()
    effect, why = own_effect(runs, ("b", "a"), "val_loss")
    assert why == "" and effect.value == pytest.approx(0.2 + 0.03 * 5 / 3) and effect.df == 2
    of_b = runs["arm"] == "b"
    for facts, metric, said in (
        ({"status": runs["status"].mask(of_b, "diverged")}, "val_loss", "runs diverged"),
        ({"status": runs["status"].mask(of_b, "failed")}, "val_loss", "one of the two arms has no"),
        ({"status": runs["status"].mask(~of_b, "failed")}, "step_ms", "one of the two arms has no"),
        ({"gpu": runs["gpu"].mask(of_b, "A100")}, "step_ms", "the two arms ran on different hard"),
        ({"status": runs["status"].mask(runs["block"] > 0, "failed")}, "val_loss", "one run each"),
    ):
        effect, why = own_effect(runs.assign(**facts), ("b", "a"), metric)
        assert effect is None and why.startswith(said), (facts, why)
    other = runs.assign(gpu=runs["gpu"].mask(of_b, "A100"))
    assert own_effect(other, ("b", "a"), "val_loss")[1] == ""  # no loss depends on it


def test_sizes_of_losses_are_told_in_nats_with_four_digits_behind_the_point():
    assert in_nats(0.00456789) == "0.0046 nats per token"
    assert in_nats(-0.5) == "-0.5000 nats per token"
    assert in_percent(0.0456789) == "4.6 %"


def test_times_without_blocks_on_several_nodes_have_the_error_of_two_nodes():
    runs = timed(block=None)
    alone, _ = own_effect(runs, ("b", "a"), "step_ms")
    apart = runs.assign(node=runs["node"].mask(runs["arm"] == "b", "n1"))
    across, _ = own_effect(apart, ("b", "a"), "step_ms")
    assert across.value == alone.value
    assert across.se**2 == pytest.approx(alone.se**2 + benchmark_noise().nodes.of_two.se ** 2)


def test_the_page_prints_both_sides_and_no_milliseconds(tmp_path):
    text = render([made(tmp_path)])
    section = read_page(text).sections["published-steps-0",]
    assert "Exploratory" in section
    assert "−0.0123" in section  # value residual, as published
    assert "+2.1 %" in section  # 145.01 / 141.98
    assert "145.0" not in section


def test_an_experiment_of_another_record_has_no_such_table(tmp_path):
    write_experiment(tmp_path, arms=rungs()[:2], n_seeds=2, published="r08")
    assert published_steps(load("split", results=tmp_path)) == []
