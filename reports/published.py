"""Our effect against the public benchmark's: the published side has errors too, often too large to test anything.

Effects are log ratios of times (arm / baseline): times are never compared in seconds across machines. A record's published time
is its
logs' training time; its error is the run-to-run noise of the loss turned into steps by the era's slope (one run 0.004 in loss at
0.0037 per 100 steps is 108 steps), because a record's step count was tuned until its loss just met the target.
"""

import csv
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from reports.intervals import Estimate
from reports.page_numbers import settled
from reports.types import PublishedVerdict

PUBLISHED = Path(__file__).parent.parent / "results" / "published"
RUNS = PUBLISHED / "official_runs.csv"
POWER = 0.8  # a published delta that a perfect measurement would confirm less often than this is too uncertain to test
ERA_SD = ((14, 0.004), (18, 0.002))  # up to this record: one run's sd of the final loss, from the public logs
TODAY_SD = 0.0013  # recipes after January 2025: 0.0012 to 0.0015
NATS_PER_LOG_STEP = (
    0.0037 / 100 * 5100
)  # the slope of late 2024 as d loss / d log N: 0.19; recipes of 2026 (0.0145 per 100 at 1300) agree


def era_sd(record: str) -> float:
    """One run's sd of the final loss in the era of a record, or of an ablation named after one; today's for any other name."""
    number = int(record[-2:]) if record[-2:].isdigit() else math.inf
    return next((sd for last, sd in ERA_SD if number <= last), TODAY_SD)


@dataclass(frozen=True, kw_only=True)
class PublishedRecord:
    record: str
    n: int
    loss: float
    time_s: float
    steps: int

    @property
    def log_time_se(self) -> float:
        """Standard error of log(time to target): loss noise over slope; timing noise is several times smaller."""
        return era_sd(self.record) / NATS_PER_LOG_STEP / math.sqrt(self.n)


def read_table(path: Path) -> list[dict[str, str]]:
    """The rows of a published table; raises ValueError where the file is missing."""
    if not path.is_file():
        raise ValueError(f"{path}: the published runs are missing: restore the file from the repository")
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def final_rows(path: Path = RUNS) -> dict[tuple[str, str, str], dict[str, str]]:
    """(record, arm, run) -> the last validation row of each published run."""
    return {(r["record"], r["arm"], r["run"]): r for r in read_table(path)}


def summaries(path: Path = PUBLISHED / "records.csv") -> dict[str, dict[str, str]]:
    """record -> its row of the table of records, for those that are known as the mean of many logs."""
    return {r["record"]: r for r in read_table(path) if r["source"].startswith("mean of")}


def published_losses(record: str, path: Path = RUNS) -> list[float]:
    """Final losses of a record's official runs."""
    return [float(r["val_loss"]) for (rec, arm, _), r in final_rows(path).items() if rec == record and arm == record]


def published_record(record: str, path: Path = RUNS) -> PublishedRecord:
    """A record's official runs in five numbers; raises ValueError naming the records there are."""
    final, means = final_rows(path), summaries()
    rows = [r for (rec, arm, _), r in final.items() if rec == record and (arm == record or arm.endswith(f"(= {record})"))]
    if not rows and record in means:
        r = means[record]
        return PublishedRecord(
            record=record, n=int(r["n_runs"]), loss=float(r["val_loss"]), time_s=float(r["train_time_s"]), steps=int(r["steps"])
        )
    if not rows:
        known = sorted({rec for rec, _, _ in final if rec.startswith("r")} | set(means))
        raise ValueError(f"no published runs of '{record}': there are {', '.join(known)}")
    return PublishedRecord(
        record=record,
        n=len(rows),
        loss=float(np.mean([float(r["val_loss"]) for r in rows])),
        time_s=float(np.mean([float(r["train_time_ms"]) for r in rows])) / 1e3,
        steps=int(rows[0]["total_steps"]),
    )


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


def predecessor(record: str, base: str | None = None) -> str:
    """The record a delta is against: the experiment's base, or the record before."""
    return base or f"r{int(record[1:]) - 1:02d}"


def own_arm(arms: list[Mapping[str, object]]) -> str:
    """The arm that stands for the whole record: the one with most changes, the last of those."""
    return str(max(enumerate(arms), key=lambda pair: (len(pair[1].get("changes") or ()), pair[0]))[1]["name"])  # type: ignore[arg-type]


def _percent(log_ratio: float) -> float:
    return 100 * math.expm1(log_ratio)


def _pc(value: float) -> str:
    return f"{settled(100 * value):.1f} %"
