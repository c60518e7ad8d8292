"""From an interval to words: what is known, and what to do next.

The words follow from the interval alone, so they cannot disagree."""

import math
from dataclasses import dataclass
from typing import Literal

from reports.stats.digits import settled
from reports.stats.planning import planned_critical
from reports.stats.sequential import critical_t

WORDS = {
    "val_loss": ("better", "worse"),
    "heldout_loss": ("better", "worse"),
    "step_ms": ("faster", "slower"),
    "train_time_s": ("faster", "slower"),
    "time_to_target": ("faster", "slower"),
}
OF_ANY_METRIC = ("no difference larger than", "undecided", "too few runs", "no error estimate")
VERDICTS = ("better", "worse", "faster", "slower", *OF_ANY_METRIC)
MANY_SEEDS = 100  # a difference that needs more than this is answered by its bound, not by more

Kind = Literal["helps", "hurts", "equal", "undecided", "none"]


def words_of(metric: str) -> tuple[str, ...]:
    """The verdicts that a metric can get."""
    return WORDS[metric] + OF_ANY_METRIC


@dataclass(frozen=True, kw_only=True)
class Family:
    """What the comparisons of one metric have in common."""

    metric: str
    unit: str = ""  # of low, high and the margin
    n_arms: int  # compared at once
    level: float = 0.95  # simultaneous over the arms
    anytime: bool
    margin: float | None  # the largest difference that does not matter, in the unit
    n_budgets: int = 1  # at which every seed is run


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What the runs say of one arm against the baseline."""

    delta: float  # on the scale of the analysis, a logarithm for times; so is se
    se: float | None
    low: float | None  # in the family's unit; so is high
    high: float | None
    p_attainable: float | None
    n: int  # blocks, or runs of the smaller arm
    enough: int  # the smallest n at which the method could reach the level at all
    scale: float = 1.0  # of a small difference: what one on the analysis' scale is in the unit


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The words for one comparison."""

    text: str
    kind: Kind
    more_seeds: int | None = None
    next_action: str = ""
    next_runs: int | None = None


def verdict(evidence: Evidence, family: Family) -> Verdict:
    """Words for one comparison of a family."""
    attainable = evidence.p_attainable
    if evidence.n < 2 or (attainable is not None and attainable > 1 - family.level):
        missing = max(evidence.enough - evidence.n, 1)
        return _asking_for_seeds("too few runs", "none", missing, family)
    low, high = evidence.low, evidence.high
    if low is None or high is None:
        return Verdict(
            text="no error estimate",
            kind="none",
            next_action="see the warnings of this comparison",
        )
    good, bad = WORDS[family.metric]
    if high < 0 or (high == 0 and evidence.delta < 0):
        return Verdict(text=good, kind="helps")
    if low > 0 or (low == 0 and evidence.delta > 0):
        return Verdict(text=bad, kind="hurts")
    return _around_zero(evidence, family, reach=max(-low, high))


def _around_zero(evidence: Evidence, family: Family, *, reach: float) -> Verdict:
    """Of an interval that holds zero and reaches so far from it."""
    margin = family.margin
    if margin is not None and reach < margin:
        return _no_difference_above(margin, family)
    more = more_seeds(evidence, family)
    if more is not None:
        text = f"undecided: {more} more {_seeds(more)} needed"
        return _asking_for_seeds(text, "undecided", more, family)
    if margin is None and math.isfinite(reach):
        return _no_difference_above(_up(reach), family)
    return Verdict(
        text=f"undecided: more than {MANY_SEEDS} more seeds needed",
        kind="undecided",
        next_action="accept the interval, or widen the margin in a new plan",
    )


def more_seeds(evidence: Evidence, family: Family) -> int | None:
    """Seeds per arm still needed until the interval leaves zero, or fits into the margin.

    Were difference and noise as they look now; None where MANY_SEEDS do not do."""
    if evidence.se is None:
        return None
    n = evidence.n
    sd = evidence.se * math.sqrt(n)  # of one block's difference
    reach = abs(evidence.delta)
    if family.margin is not None:
        reach = max(reach, family.margin / evidence.scale - reach)
    if sd == 0 or reach <= 0:
        return None
    for total in range(n + 1, n + MANY_SEEDS + 1):
        if _critical(total, family) * sd / math.sqrt(total) <= reach:
            return total - n
    return None


def _critical(n: int, family: Family) -> float:
    """The critical t of n blocks."""
    if family.anytime:
        return float(critical_t(n, (1 - family.level) / family.n_arms))
    return planned_critical(n, family.n_arms, family.level)[0]


def enough_to_permute(n_arms: int, alpha: float) -> int:
    """Runs per arm from which a relabelling test of n_arms arms can reach alpha."""
    n = 2
    while 2 * n_arms / math.comb(2 * n, n) > alpha:
        n += 1
    return n


def enough_for_sequence(n_arms: int, alpha: float) -> int:
    """Blocks from which the anytime-valid interval at alpha / n_arms is bounded."""
    n = 2
    while math.isinf(critical_t(n, alpha / n_arms)):
        n += 1
    return n


def _asking_for_seeds(text: str, kind: Kind, more: int, family: Family) -> Verdict:
    runs = more * (family.n_arms + 1) * family.n_budgets
    return Verdict(
        text=text,
        kind=kind,
        more_seeds=more,
        next_action=f"run {more} more {_seeds(more)}: {runs} runs",
        next_runs=runs,
    )


def _no_difference_above(bound: float, family: Family) -> Verdict:
    return Verdict(
        text=f"no difference larger than {_number(bound)}{family.unit}",
        kind="equal",
    )


def _seeds(n: int) -> str:
    return "seeds" if n > 1 else "seed"


def _up(value: float) -> float:
    """To two significant digits, never below the value: it is a bound."""
    value = settled(value)
    digit = 1.0
    if value > 0:
        digit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.ceil(round(value / digit, 9)) * digit


def _number(value: float) -> str:
    value = settled(value)
    if abs(value) < 1000:
        return f"{value:.2g}"
    return f"{value:.0f}"
