"""From an interval to words: what is known, and what to do next. The words follow from the interval alone, so they cannot
disagree."""

import itertools
import math
from dataclasses import dataclass
from typing import Any

from reports.format import settled
from reports.stats.planning import planned_critical
from reports.stats.sequential import critical_t

WORDS = {
    "val_loss": ("better", "worse"),
    "heldout_loss": ("better", "worse"),
    "step_ms": ("faster", "slower"),
    "train_time_s": ("faster", "slower"),
    "time_to_target": ("faster", "slower"),
}
VERDICTS = (
    "better", "worse", "faster", "slower", "no difference larger than", "undecided", "too few runs", "no error estimate",
)  # fmt: skip
MANY_SEEDS = 100  # a difference that needs more than this is answered by its bound, not by more runs


def words_of(metric: str) -> tuple[str, ...]:
    """The verdicts that a metric can get."""
    return WORDS[metric] + VERDICTS[4:]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    text: str
    kind: str
    more_seeds: int | None
    next_action: str
    next_runs: int | None = None


def more_seeds(
    delta: float, se: float, n: int, *, margin: float | None, n_arms: int, anytime: bool, level: float = 0.95
) -> int | None:
    """Seeds per arm beyond n until the interval would leave zero, or fit into the margin, were delta and noise as they look
    now."""
    sd = se * math.sqrt(n)  # of one block's difference
    reach = max(abs(delta), margin - abs(delta) if margin is not None else 0.0)
    if sd == 0 or reach <= 0:
        return None
    for total in range(n + 1, n + MANY_SEEDS + 1):
        critical = float(critical_t(total, (1 - level) / n_arms)) if anytime else planned_critical(total, n_arms, level)[0]
        if critical * sd / math.sqrt(total) <= reach:
            return total - n
    return None


def verdict(
    *,
    metric: str,
    delta: float,
    low: float | None,
    high: float | None,
    p_attainable: float | None,
    se: float | None,
    n: int,
    enough: int,
    n_arms: int,
    anytime: bool,
    margin: float | None,
    scale: float = 1.0,
    unit: str = "",
    level: float = 0.95,
    n_budgets: int = 1,
) -> Verdict:
    """Words for one comparison. low, high and margin are in `unit`; delta and se on the scale of the analysis, a logarithm for
    times, on which a small difference of `scale` in the unit is one.

    enough: the smallest n at which the method could reach the level at all."""
    good, bad = WORDS[metric]
    if n < 2 or (p_attainable is not None and p_attainable > 1 - level):
        need = max(enough - n, 1)
        return Verdict(text="too few runs", kind="none", more_seeds=need, **_seeds(need, n_arms, n_budgets))
    if low is None or high is None:
        return Verdict(text="no error estimate", kind="none", more_seeds=None, next_action="see the warnings of this comparison")
    if high < 0 or (high == 0 and delta < 0):
        return Verdict(text=good, kind="helps", more_seeds=None, next_action="")
    if low > 0 or (low == 0 and delta > 0):
        return Verdict(text=bad, kind="hurts", more_seeds=None, next_action="")
    reach = max(-low, high)
    if margin is not None and reach < margin:
        return Verdict(text=f"no difference larger than {_number(margin)}{unit}", kind="equal", more_seeds=None, next_action="")
    wanted = None if margin is None else margin / scale
    more = more_seeds(delta, se, n, margin=wanted, n_arms=n_arms, anytime=anytime, level=level) if se is not None else None
    if more is not None:
        return Verdict(
            text=f"undecided: {more} more seed{'s' if more > 1 else ''} needed",
            kind="undecided",
            more_seeds=more,
            **_seeds(more, n_arms, n_budgets),
        )
    if margin is None and math.isfinite(reach):
        return Verdict(
            text=f"no difference larger than {_number(_up(reach))}{unit}", kind="equal", more_seeds=None, next_action=""
        )
    text = f"undecided: more than {MANY_SEEDS} more seeds needed"
    return Verdict(
        text=text, kind="undecided", more_seeds=None, next_action="accept the interval, or widen the margin in a new plan"
    )


def enough_to_permute(n_arms: int, alpha: float) -> int:
    """Runs per arm from which a relabelling test of n_arms arms can reach alpha."""
    return next(n for n in itertools.count(2) if 2 * n_arms / math.comb(2 * n, n) <= alpha)


def enough_for_sequence(n_arms: int, alpha: float) -> int:
    """Blocks from which the anytime-valid interval at alpha / n_arms is bounded."""
    return next(n for n in itertools.count(2) if math.isfinite(critical_t(n, alpha / n_arms)))


def _seeds(more: int, n_arms: int, n_budgets: int) -> dict[str, Any]:
    runs = more * (n_arms + 1) * n_budgets
    return {"next_action": f"run {more} more seed{'s' if more > 1 else ''}: {runs} runs", "next_runs": runs}


def _up(value: float) -> float:
    """To two significant digits, never below the value: it is a bound."""
    value = settled(value)
    digit = 10.0 ** (math.floor(math.log10(value)) - 1) if value > 0 else 1.0
    return math.ceil(round(value / digit, 9)) * digit


def _number(value: float) -> str:
    value = settled(value)
    return f"{value:.2g}" if abs(value) < 1000 else f"{value:.0f}"
