"""The seven verdicts against published deltas, each from one synthetic experiment, and the published side itself."""

import json
import math
from types import SimpleNamespace

import pandas as pd
import pytest
from scipy import stats

from harness.run.plan import Plan, PlanArm, PlanCorpus
from reports.analysis.compare import compare_all
from reports.analysis.published import (
    beside_the_published,
    difference,
    judge,
    not_at_full_size,
    own_arm,
    published_verdict,
    too_uncertain,
)
from reports.inputs.load import load
from reports.inputs.published import published_record
from reports.stats.intervals import Estimate
from tests.report_fixtures import Arm, write_experiment

SURE = Estimate(value=-0.10, se=0.005)  # a published effect of 10 % known to 0.5 %


@pytest.mark.parametrize(
    ("own", "published", "verdict"),
    [
        (Estimate(value=-0.105, se=0.005, df=20), SURE, "reproduced"),
        (Estimate(value=-0.03, se=0.005, df=20), SURE, "smaller"),
        (Estimate(value=-0.19, se=0.005, df=20), SURE, "larger"),
        (Estimate(value=0.03, se=0.005, df=20), SURE, "opposite"),
        (Estimate(value=-0.08, se=0.05, df=4), SURE, "not resolved"),
        (
            Estimate(value=-0.10, se=0.0),
            Estimate(value=-0.10, se=0.03),
            "published delta too uncertain to test",
        ),
    ],
)
def test_verdicts(own, published, verdict, kept_line):
    said, why = judge(own, published)
    assert said == verdict
    kept_line(why)


@pytest.mark.parametrize(("size", "tested"), [(7.4, False), (7.5, True)])
def test_what_is_tested_is_many_of_its_own_errors(size, tested):
    assert too_uncertain(Estimate(value=-size, se=1.0)) is not tested


def test_a_published_effect_that_just_passed_the_gate_is_believed_to_be_smaller():
    """Of a figure that chance may have made large enough, no effect of ours below it is smaller."""
    just, far = Estimate(value=-7.5, se=1.0), Estimate(value=-75.0, se=10.0 / 2)
    ours = Estimate(value=-4.0, se=0.5, df=20)
    assert judge(ours, just)[0] == "not resolved"
    assert judge(Estimate(value=-40.0, se=5.0, df=20), far)[0] == "smaller"


def test_the_published_figures_error_is_in_the_margin_too():
    """Ours is 1.4 times a figure known to 5 %: it may be half of a true effect away from that."""
    ours = Estimate(value=-14.0, se=0.1, df=1000)
    assert judge(ours, Estimate(value=-10.0, se=0.5))[0] == "larger"
    assert judge(ours, Estimate(value=-10.0, se=0.1))[0] == "reproduced"


def test_a_published_effect_of_no_size_is_too_uncertain():
    assert judge(SURE, Estimate(value=0.0, se=0.01))[0] == "published delta too uncertain to test"


def test_record_7_to_8_is_one_run_against_one_run_and_too_uncertain_to_test():
    seen = published_verdict(
        "r08", "r07", "arm", ours=Estimate(value=math.log(648.063 / 721.882), se=0.001, df=20)
    )
    assert seen.verdict == "published delta too uncertain to test"
    assert seen.published_s == pytest.approx(
        -73.8, abs=0.05
    ) and seen.published_s_error == pytest.approx(43, abs=4)
    assert seen.n_published == (1, 1) and seen.published_percent == pytest.approx(-10.2, abs=0.05)


def test_many_published_runs_are_testable():
    old, new = published_record("r14"), published_record("r15")
    assert (
        (old.n, new.n) == (38, 75)
        and new.loss == pytest.approx(3.27846, abs=5e-6)
        and new.time_s == pytest.approx(236.86, abs=0.005)
    )
    delta = Estimate(
        value=math.log(new.time_s / old.time_s), se=math.hypot(new.log_time_se, old.log_time_se)
    )
    assert not too_uncertain(delta)


def test_record_9_is_read_from_its_own_ladder_and_unknown_records_are_named():
    assert published_record("r09").time_s == pytest.approx(493.742)
    with pytest.raises(ValueError, match="no published runs of 'r99': there are r04"):
        published_record("r99")


def test_the_common_error_uses_the_smaller_df():
    d = difference(Estimate(value=1.0, se=0.3, df=4), Estimate(value=0.5, se=0.4))
    assert (d.value, d.se, d.df) == (0.5, pytest.approx(0.5), 4)


def test_the_whole_record_is_the_arm_with_most_changes():
    arms = [("a", ("x",)), ("all", ("x", "y")), ("b", ("y",))]
    assert own_arm([PlanArm(name=name, changes=changes) for name, changes in arms]) == "all"
    arms.append(("again", ("y", "x")))  # of two, the last
    assert own_arm([PlanArm(name=name, changes=changes) for name, changes in arms]) == "again"


def test_both_effects_have_intervals_of_95_percent_in_percent_of_the_time():
    old, new = published_record("r14"), published_record("r15")
    ours = Estimate(value=-0.2, se=0.03, df=4)
    seen = published_verdict("r15", "r14", "a", ours=ours)
    assert (seen.record, seen.against, seen.arm, seen.n_published) == ("r15", "r14", "a", (75, 38))
    low, high = stats.t.interval(0.95, 4, -0.2, 0.03)
    theirs, se = math.log(new.time_s / old.time_s), math.hypot(new.log_time_se, old.log_time_se)
    found = (seen.percent_low, seen.percent, seen.percent_high)
    assert found == pytest.approx([100 * math.expm1(x) for x in (low, -0.2, high)])
    found = (seen.published_percent_low, seen.published_percent, seen.published_percent_high)
    ends = (theirs - 1.96 * se, theirs, theirs + 1.96 * se)
    assert found == pytest.approx([100 * math.expm1(x) for x in ends])
    assert seen.margin_percent == pytest.approx(50 * abs(theirs))
    assert seen.published_s == new.time_s - old.time_s
    of_each = (new.time_s * new.log_time_se, old.time_s * old.log_time_se)
    assert seen.published_s_error == pytest.approx(1.96 * math.hypot(*of_each))


@pytest.mark.parametrize(
    ("record", "how"),
    [
        ("r15", {"ours": None}),
        ("r15", {"ours": SURE, "not_testable": "nothing ran here"}),
        ("r08", {"ours": None}),
    ],
)
def test_what_cannot_be_judged_has_a_verdict_and_its_reason(record, how, kept_line):
    seen = published_verdict(record, {"r15": "r14", "r08": "r07"}[record], "a", **how)
    assert (seen.percent is None) == (how["ours"] is None)
    kept_line(f"{seen.verdict}: {seen.why}")


@pytest.mark.parametrize(
    ("of_arm", "of_base", "is_testable"),
    [
        (("2.7",), ("2.4",), True),
        (("2.7", None), ("2.4", "2.5"), True),
        (("2.7",), ("2.7",), False),
        (("2.7", "2.4"), ("2.4",), False),
        ((None,), ("2.4",), False),
        (("2.7",), (None,), False),
    ],
)
def test_a_change_of_torch_is_tested_where_the_arm_ran_with_none_of_the_baselines(
    of_arm, of_base, is_testable
):
    arms = (PlanArm(name="base"), PlanArm(name="new", changes=("torch",)))
    text = PlanCorpus(name="fineweb10B")
    plan = Plan(name="x", baseline="base", base="r06", published="r07", arms=arms, corpus=text)
    rows, environments = [], {}
    for name, versions in (("new", of_arm), ("base", of_base)):
        for torch in versions:
            rows.append({"arm": name, "run_id": f"run{len(rows)}"})
            environments[rows[-1]["run_id"]] = {"lock": {"torch": torch}}
    ran = SimpleNamespace(plan=plan, runs=pd.DataFrame(rows), environments=environments)
    unresolved = SimpleNamespace(log_ratio=lambda arm: None)
    seen = beside_the_published(ran, unresolved, anytime=False)
    assert seen.arm == "new"
    told = "record 7 is a change of torch version: it needs an arm with that environment"
    assert (seen.why == told, seen.verdict == "not testable here") == (not is_testable,) * 2


@pytest.mark.parametrize(
    ("scale", "corpus"),
    [("gpt2", "fineweb10B"), ("", "FineWeb"), ("tiny", "fineweb10B"), ("gpt2", "stdlib"), ("", "")],
)
def test_a_published_delta_is_of_full_size_on_its_text(scale, corpus, kept_line):
    kept_line(not_at_full_size(Plan(name="x", scale=scale, corpus=PlanCorpus(name=corpus))))


ARMS = (
    Arm(name="base"),
    Arm(
        name="whole",
        loss_effect=-0.012,
        step_factor=0.99,
        changes=("x",),
        fields=(("model.untied_head", True),),
    ),
)


def experiment(
    root,
    *,
    published,
    scale="gpt2",
    corpus="fineweb10B",
    base="r14",
    arms=ARMS,
    primary="val_loss",
    margin=0.01,
    **how,
):
    """Losses near 1.58 at 300 steps, with a slope of 0.15 per unit of 300 / N; time to target follows from three budgets."""
    how = {"n_seeds": 4, "sd": 0.0005, **how}
    write_experiment(
        root, arms=arms, budgets=(250, 300, 350), target=1.575, published=published, **how
    )
    path = root / "experiments" / "split" / "experiment.json"
    plan = json.loads(path.read_text())
    plan |= {
        "scale": scale,
        "base": base,
        "corpus": {**plan["corpus"], "name": corpus},
        "primary": primary,
        "margin": margin,
    }
    path.write_text(json.dumps(plan))
    return compare_all(load("split", root)).published


def test_record_7_to_8_is_too_uncertain_from_the_logs_alone(tmp_path):
    """Whatever we measure, however well: one run against one run."""
    seen = experiment(tmp_path, published="r08", base="r07")
    assert seen.verdict == "published delta too uncertain to test" and seen.percent is not None
    assert (
        seen.published_s == pytest.approx(-73.8, abs=0.05)
        and "even a perfect repetition would seldom pass" in seen.why
    )


def test_a_wide_interval_is_not_resolved(tmp_path):
    seen = experiment(tmp_path, published="r15", sd=0.03)
    assert seen.verdict == "not resolved" and seen.percent_high - seen.percent_low > 10


def test_the_margin_is_the_published_figures_alone(tmp_path):
    """Not the plan's, which is for our own verdicts."""
    by_default = experiment(tmp_path / "a", published="r15")
    seconds = experiment(tmp_path / "b", published="r15", primary="time_to_target", margin=0.25)
    assert by_default.margin_percent == pytest.approx(50 * abs(math.log(236.86 / 264.63)), abs=0.01)
    assert (seconds.margin_percent, seconds.verdict) == (
        by_default.margin_percent,
        by_default.verdict,
    )


@pytest.mark.slow
def test_an_unfinished_repetition_is_judged_by_its_sequence(tmp_path):
    planned = experiment(tmp_path / "a", published="r15", n_seeds=9)
    early = experiment(
        tmp_path / "b", published="r15", n_seeds=9, outcome={("whole", 8): "pending"}
    )
    assert early.percent_low < planned.percent_low and early.percent_high > planned.percent_high


def test_an_experiment_at_another_scale_is_not_testable_here(tmp_path):
    seen = experiment(tmp_path, published="r15", scale="tiny", corpus="stdlib")
    assert (
        seen.verdict == "not testable here"
        and "tiny on stdlib" in seen.why
        and seen.percent is not None
    )


def test_a_change_of_torch_without_that_environment_is_not_testable(tmp_path):
    seen = experiment(tmp_path, published="r07", base="r06")
    assert seen.verdict == "not testable here" and "torch" in seen.why


@pytest.mark.parametrize(
    ("loss_effect", "step_factor", "verdict"),
    [
        (-0.012, 0.96, "reproduced"),
        (-0.002, 1.0, "smaller"),
        (-0.03, 0.90, "larger"),
        (0.01, 1.05, "opposite"),
    ],
)
def test_whole_experiments_get_their_verdict(tmp_path, loss_effect, step_factor, verdict):
    """Record 14 to 15 is -10.5 % in time; loss -0.012 is about -7.5 % of the steps here."""
    whole = Arm(
        name="whole",
        loss_effect=loss_effect,
        step_factor=step_factor,
        changes=("x",),
        fields=(("model.untied_head", True),),
    )
    seen = experiment(tmp_path, published="r15", arms=(ARMS[0], whole))
    assert seen.verdict == verdict and seen.percent_low < seen.percent < seen.percent_high
    assert seen.published_percent == pytest.approx(100 * (236.86 / 264.63 - 1), abs=0.01)


def test_a_single_budget_does_not_resolve_a_time(tmp_path):
    write_experiment(tmp_path, arms=ARMS, n_seeds=3, published="r15")
    path = tmp_path / "experiments" / "split" / "experiment.json"
    plan = json.loads(path.read_text())
    path.write_text(
        json.dumps(
            plan
            | {"scale": "gpt2", "base": "r14", "corpus": {**plan["corpus"], "name": "fineweb10B"}}
        )
    )
    seen = compare_all(load("split", tmp_path)).published
    assert seen.verdict == "not resolved" and seen.percent is None
