"""Published deltas held against our own, each with a verdict."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from scipy import stats

from reports.analysis.types import PublishedVerdict
from reports.format import settled
from reports.inputs.published import POWER, published_record
from reports.stats.intervals import Estimate


def difference(a: Estimate, b: Estimate) -> Estimate:
    """a - b of independent estimates with the smaller df: Satterthwaite's would say 'reproduced' at the margin in up to 6 %."""
    return Estimate(value=a.value - b.value, se=math.hypot(a.se, b.se), df=min(a.df, b.df))


def too_uncertain(published: Estimate, margin: float, alpha: float = 0.05) -> bool:
    """Whether even a perfect measurement of the same effect would pass the two one-sided tests less often than POWER."""
    return 2 * stats.norm.cdf(margin / published.se - stats.norm.isf(alpha)) - 1 < POWER if published.se > 0 else False


def judge(
    own: Estimate, published: Estimate, *, margin: float, alpha: float = 0.05, say: Callable[[float], str] | None = None
) -> tuple[str, str]:
    """(verdict, why): the verdicts of reports.types.PublishedVerdict but the one about testability; `say` words a size."""
    say = say or _pc
    if margin <= 0:
        raise ValueError(
            f"margin is {margin}, but an equivalence margin must be positive: half the published delta is the default"
        )
    if too_uncertain(published, margin, alpha):
        return (
            "published delta too uncertain to test",
            f"the published effect's own standard error is {say(published.se)}, against a margin of {say(margin)}: "
            "even a perfect repetition would seldom pass",
        )
    d = difference(own, published)
    one_sided, two_sided = stats.t.isf(alpha, d.df) * d.se, stats.t.isf(alpha / 2, d.df) * d.se
    if abs(d.value) + one_sided < margin:
        return "reproduced", f"two one-sided tests at {alpha:g} place the difference within {say(margin)}"
    own_half = stats.t.isf(alpha / 2, own.df) * own.se
    if abs(own.value) > own_half and own.value * published.value < 0:
        return "opposite", "the interval of our effect lies wholly on the other side of zero"
    if abs(d.value) > two_sided:
        word = "smaller" if d.value * published.value < 0 else "larger"
        return word, f"the effects differ by {say(abs(d.value))}, more than their common error allows"
    return (
        "not resolved",
        f"the effects differ by {say(d.value)} with a 95 % error of {say(two_sided)}, against a margin of {say(margin)}",
    )


def not_at_full_size(plan: Mapping[str, Any]) -> str:
    """Why a published delta cannot be tested by this plan's runs; '' where they are of its size and on its data."""
    scale, corpus = plan.get("scale") or "gpt2", str((plan.get("corpus") or {}).get("name") or "")
    if scale == "gpt2" and corpus.lower().startswith("fineweb"):
        return ""
    return f"the published delta belongs to the full size on FineWeb, these runs are {scale} on {corpus or 'other data'}"


def published_verdict(
    record: str, against: str, arm: str, *, own: Estimate | None, not_testable: str = "", margin: float | None = None
) -> PublishedVerdict:
    """Beside the published delta of `record` against `against`: own is the log ratio of times to target, None where not resolved.

    margin is in log time; by default half the published delta."""
    new, old = published_record(record), published_record(against)
    delta = math.log(new.time_s / old.time_s)
    side = Estimate(value=delta, se=math.hypot(new.log_time_se, old.log_time_se))
    margin = abs(delta) / 2 if margin is None else margin
    if not_testable:
        verdict, why = "not testable here", not_testable
    elif too_uncertain(side, margin):
        verdict, why = judge(own or Estimate(value=0.0, se=0.0), side, margin=margin)
    elif own is None:
        verdict, why = "not resolved", "the time to target of arm or baseline is not resolved here"
    else:
        verdict, why = judge(own, side, margin=margin)
    half = 1.96 * side.se
    own_half = stats.t.isf(0.025, own.df) * own.se if own else math.nan
    return PublishedVerdict(
        record=record,
        against=against,
        arm=arm,
        verdict=verdict,  # type: ignore[arg-type]
        why=why,
        percent=_percent(own.value) if own else None,
        percent_low=_percent(own.value - own_half) if own else None,
        percent_high=_percent(own.value + own_half) if own else None,
        published_percent=_percent(delta),
        published_percent_low=_percent(delta - half),
        published_percent_high=_percent(delta + half),
        published_s=new.time_s - old.time_s,
        published_s_error=1.96 * math.hypot(new.time_s * new.log_time_se, old.time_s * old.log_time_se),
        n_published=(new.n, old.n),
        margin_percent=100 * margin,
    )


def own_arm(arms: list[Mapping[str, object]]) -> str:
    """The arm that stands for the whole record: the one with most changes, the last of those."""
    return str(max(enumerate(arms), key=lambda pair: (len(pair[1].get("changes") or ()), pair[0]))[1]["name"])  # type: ignore[arg-type]


def _percent(log_ratio: float) -> float:
    return 100 * math.expm1(log_ratio)


def _pc(value: float) -> str:
    return f"{settled(100 * value):.1f} %"
