"""Published deltas held against our own, each with a verdict."""

import math
from collections.abc import Callable, Sequence

from scipy import stats

from harness.run.plan import Plan, PlanArm
from reports.analysis.time_model import TimeModel
from reports.analysis.types import PublishedVerdict, PublishedWord
from reports.inputs.experiment import Experiment
from reports.inputs.published import predecessor, published_pair
from reports.stats.digits import settled
from reports.stats.intervals import Estimate
from reports.stats.repetition import ALPHA, WITHIN_SHARE, gate, of_ratio

# Turns a sequence's reach into the se of which two one-sided tests ask so much
ONE_SIDED = float(stats.norm.isf(ALPHA))
ENVIRONMENT_RECORDS = {
    "r07": "record 7 is a change of torch version: it needs an arm with that environment"
}

Judgement = tuple[PublishedWord, str]  # and why


def in_percent(value: float) -> str:
    """A fraction, as a sentence has it."""
    return f"{settled(100 * value):.1f} %"


def difference(a: Estimate, b: Estimate) -> Estimate:
    """a - b of independent estimates with the smaller df.

    Satterthwaite's would say 'reproduced' at the margin in up to 6 %."""
    return Estimate(value=a.value - b.value, se=math.hypot(a.se, b.se), df=min(a.df, b.df))


def too_uncertain(published: Estimate) -> bool:
    """Whether even a measurement without error would seldom show the same effect.

    Seldom: in less than POWER of all cases."""
    return abs(published.value) < gate() * published.se


def judge(
    ours: Estimate, published: Estimate, *, say: Callable[[float], str] = in_percent
) -> Judgement:
    """(verdict, why): the verdicts of PublishedVerdict but the one about testability.

    say: words a size.
    """
    if too_uncertain(published):
        return (
            "published delta too uncertain to test",
            f"the published effect's own standard error is {say(published.se)}, and it is "
            f"{say(abs(published.value))}: even a perfect repetition would seldom pass",
        )
    most = of_ratio(ours, published, 1 + WITHIN_SHARE)
    least = of_ratio(ours, published, 1 - WITHIN_SHARE)
    if most.less < ALPHA and least.more < ALPHA:
        return (
            "reproduced",
            f"two one-sided tests at {ALPHA:g} place the effect within {WITHIN_SHARE:.0%} of the "
            "published one",
        )
    our_half = stats.t.isf(ALPHA / 2, ours.df) * ours.se
    if abs(ours.value) > our_half and ours.value * published.value < 0:
        return "opposite", "the interval of our effect lies wholly on the other side of zero"
    same = of_ratio(ours, published, 1.0)
    d = difference(ours, published)
    if min(same.less, same.more) < ALPHA / 2:
        return (
            "smaller" if same.less < same.more else "larger",
            f"the effects differ by {say(abs(d.value))}, more than their common error allows",
        )
    two_sided = stats.t.isf(ALPHA / 2, d.df) * d.se
    return (
        "not resolved",
        f"the effects differ by {say(d.value)} with a 95 % error of {say(two_sided)}, and a "
        f"repetition's may by {WITHIN_SHARE:.0%} of the published one",
    )


def not_at_full_size(plan: Plan) -> str:
    """Why a published delta cannot be tested by this plan's runs.

    '' where they are of its size and on its data."""
    scale, corpus = plan.scale or "gpt2", plan.corpus.name
    if scale == "gpt2" and corpus.lower().startswith("fineweb"):
        return ""
    return (
        "the published delta belongs to the full size on FineWeb, "
        f"these runs are {scale} on {corpus or 'other data'}"
    )


def published_verdict(
    record: str,
    against: str,
    arm: str,
    *,
    ours: Estimate | None,
    not_testable: str = "",
) -> PublishedVerdict:
    """Beside the published delta of `record` against `against`.

    ours: the log ratio of times to target, None where not resolved; not_testable: why nothing can
    be said here.
    arm: whose figures these are.
    """
    new, old = published_pair(record, against)
    delta = math.log(new.time_s / old.time_s)
    published = Estimate(value=delta, se=math.hypot(new.log_time_se, old.log_time_se))
    verdict, why = _testable_verdict(ours, published, not_testable)
    percent, percent_low, percent_high = None, None, None
    if ours is not None:
        our_half = stats.t.isf(0.025, ours.df) * ours.se
        percent = _percent(ours.value)
        percent_low, percent_high = _percent(ours.value - our_half), _percent(ours.value + our_half)
    half = 1.96 * published.se
    error_s = math.hypot(new.time_s * new.log_time_se, old.time_s * old.log_time_se)
    return PublishedVerdict(
        record=record,
        against=against,
        arm=arm,
        verdict=verdict,
        why=why,
        percent=percent,
        percent_low=percent_low,
        percent_high=percent_high,
        published_percent=_percent(delta),
        published_percent_low=_percent(delta - half),
        published_percent_high=_percent(delta + half),
        published_s=new.time_s - old.time_s,
        published_s_error=1.96 * error_s,
        n_published=(new.n, old.n),
        margin_percent=100 * WITHIN_SHARE * abs(delta),
    )


def _testable_verdict(ours: Estimate | None, published: Estimate, not_testable: str) -> Judgement:
    if not_testable:
        return "not testable here", not_testable
    if ours is not None:
        return judge(ours, published)
    if too_uncertain(published):
        return judge(Estimate(value=0.0, se=0.0), published)
    return "not resolved", "the time to target of arm or baseline is not resolved here"


def beside_the_published(
    experiment: Experiment, time_model: TimeModel, *, anytime: bool
) -> PublishedVerdict | None:
    """The published delta beside ours, of the arm that holds the whole record.

    On the time to target; None where the experiment reproduces nothing."""
    plan = experiment.plan
    candidates = [arm for arm in plan.arms if arm.name != plan.baseline]
    if not plan.published or not candidates:
        return None
    arm = own_arm(candidates)
    not_testable = not_at_full_size(plan) or _same_environment(experiment, arm)
    return published_verdict(
        plan.published,
        predecessor(plan.published, plan.base),
        arm,
        ours=_own_effect(time_model, arm, anytime=anytime),
        not_testable=not_testable,
    )


def own_arm(arms: Sequence[PlanArm]) -> str:
    """The arm that stands for the whole record: with most changes, the last of those."""
    whole = arms[0]
    for arm in arms[1:]:
        if len(arm.changes) >= len(whole.changes):
            whole = arm
    return whole.name


def _same_environment(experiment: Experiment, arm: str) -> str:
    """Why a record that is a change of environment cannot be tested; '' where that was made."""
    why = ENVIRONMENT_RECORDS.get(experiment.plan.published or "", "")
    ours = _torch_versions(experiment, arm)
    baselines = _torch_versions(experiment, experiment.plan.baseline)
    if ours and baselines and not ours & baselines:
        return ""
    return why


def _torch_versions(experiment: Experiment, arm: str) -> set[str]:
    """Of torch, in which the arm's runs were made."""
    versions = set()
    for run_id in experiment.runs.loc[experiment.runs["arm"] == arm, "run_id"]:
        lock = experiment.environments.get(run_id, {}).get("lock") or {}
        if lock.get("torch") is not None:
            versions.add(lock["torch"])
    return versions


def _own_effect(time_model: TimeModel, arm: str, *, anytime: bool) -> Estimate | None:
    """The log ratio of times to target; None where not resolved, or without an error."""
    ours = time_model.log_ratio(arm)
    if ours is None:
        return None
    if anytime:
        ends, _ = time_model.sequence((arm, time_model.arms[0]), 0.05)
        if ends is None:
            return None
        reach = max(ends[1] - ours.value, ours.value - ends[0])
        ours = Estimate(value=ours.value, se=reach / ONE_SIDED)
    return ours if math.isfinite(ours.se) else None


def _percent(log_ratio: float) -> float:
    return 100 * math.expm1(log_ratio)
