"""From an interval to words: what is known, and what to do next.

The words follow from the interval alone, so they cannot disagree. What to do next follows from the
analysis that would come then: seeds added to a finished plan are judged by sequences, which need
far more of them, so a finished page sends to a new experiment; a page of sequences says how many
more blocks its sequence needs. Either number is one after which 8 of 10 such pages are decided: it
counts how unsure the difference itself still is."""

import enum
import math
from dataclasses import dataclass
from typing import Literal

from reports.stats.digits import settled
from reports.stats.planning import seeds_needed, upper_sd
from reports.stats.sequential import critical_t

WORDS = {
    "val_loss": ("better", "worse"),
    "heldout_loss": ("better", "worse"),
    "step_ms": ("faster", "slower"),
    "train_time_s": ("faster", "slower"),
    "time_to_target": ("faster", "slower"),
}
OF_ANY_METRIC = (
    *("no difference larger than", "undecided", "too few runs", "no error estimate"),
    "not judged",
)
VERDICTS = ("better", "worse", "faster", "slower", *OF_ANY_METRIC)
MANY_SEEDS = 100  # a difference that needs more than this is answered by its bound, not by more
FINISH = "finish the planned runs"
ACCEPT = "take the interval as the answer"
DECIDED = 0.8
SURE = 0.8416  # the normal's quantile at DECIDED
SURER = 1.6449  # at 0.95: what an effect exceeds, as one that drew attention looks larger

Kind = Literal["helps", "hurts", "equal", "undecided", "none"]


OF_OWN = ("better", "worse")  # of a metric of a script's own


def words_of(metric: str) -> tuple[str, ...]:
    """The verdicts that a metric can get."""
    return WORDS.get(metric, OF_OWN) + OF_ANY_METRIC


class Next(enum.Enum):
    """The analysis of what would be run next."""

    FRESH = enum.auto()  # a finished plan: a new experiment, with the planned analysis
    PLANNED = enum.auto()  # runs of the plan are to come, and with them the planned analysis
    SEQUENCE = enum.auto()  # seeds are added by a rule or were added already


@dataclass(frozen=True, kw_only=True)
class Family:
    """What the comparisons of one metric have in common."""

    metric: str
    higher_is_better: bool = False
    unit: str = ""  # of low, high and the margin
    n_arms: int  # compared at once
    level: float = 0.95  # simultaneous over the arms
    follows: Next = Next.FRESH
    margin: float | None  # the largest difference that does not matter, in the unit
    decides: bool = True  # the metric that the plan declares
    n_budgets: int = 1  # at which every seed is run
    has_command: bool = True  # `ablate confirm` writes the new experiment
    borrows: bool = False  # its baseline's values: more seeds of it are of the arms alone


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What the runs say of one arm against the baseline."""

    delta: float  # on the scale of the analysis, a logarithm for times; so is se
    se: float | None
    df: float | None = None  # of se
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
    more_seeds: int | None = None  # of the same experiment
    fresh_seeds: int | None = None  # of a new one
    next_action: str = ""
    next_runs: int | None = None


NOT_JUDGED = Verdict(
    text="not judged", kind="none", next_action="see the warnings of this comparison"
)


def verdict(evidence: Evidence, family: Family) -> Verdict:
    """Words for one comparison of a family."""
    attainable = evidence.p_attainable
    if evidence.n < 2 or (attainable is not None and attainable > 1 - family.level):
        return _asking("too few runs", "none", _enough_seeds(evidence, family), family)
    low, high = evidence.low, evidence.high
    if low is None or high is None:
        return Verdict(
            text="no error estimate",
            kind="none",
            next_action="see the warnings of this comparison",
        )
    good, bad = WORDS.get(family.metric, OF_OWN)
    below, above = Verdict(text=good, kind="helps"), Verdict(text=bad, kind="hurts")
    if family.higher_is_better:
        below, above = above, below
    if high < 0 or (high == 0 and evidence.delta < 0):
        return below
    if low > 0 or (low == 0 and evidence.delta > 0):
        return above
    return _around_zero(evidence, family, reach=max(-low, high))


def _around_zero(evidence: Evidence, family: Family, *, reach: float) -> Verdict:
    """Of an interval that holds zero and reaches so far from it."""
    margin = family.margin
    if margin is not None and reach < margin:
        return Verdict(
            text=f"no difference larger than {_number(margin)}{family.unit}", kind="equal"
        )
    text, joint = "undecided", ":"
    if math.isfinite(reach):
        low, high = _ends(evidence.low or 0.0, evidence.high or 0.0)
        text, joint = f"undecided: {low} to {high}{family.unit}", ","
    if family.follows is Next.SEQUENCE:
        more = more_seeds(evidence, family)
        if more is None:
            text += f"{joint} more than {MANY_SEEDS} more seeds needed"
            return Verdict(text=text, kind="undecided", next_action=ACCEPT)
        text += f"{joint} {more} more {_seeds(more)} needed"
        return _asking(text, "undecided", more, family)
    if family.follows is Next.PLANNED:
        return Verdict(text=text, kind="undecided", next_action=FINISH)
    difference = _difference_to_find(evidence, family)
    seeds = None if difference is None else fresh_seeds(difference, evidence, family)
    if difference is None or seeds is None:
        return _bounded(text, evidence, family, reach)
    return _asking(text, "undecided", seeds, family, difference * evidence.scale)


def more_seeds(evidence: Evidence, family: Family) -> int | None:
    """Seeds per arm still needed until the sequence leaves zero, or fits into the margin.

    So many that DECIDED of the sequences from here are decided by then; None where MANY_SEEDS do
    not do. The mean of all n + k blocks is as unsure as k new blocks and the present mean make it:
    sd sqrt(k / (n (n + k)))."""
    sd = _sd_of_blocks(evidence)
    if sd is None or sd == 0:
        return None
    n = evidence.n
    reach = abs(evidence.delta)
    if family.margin is not None:
        reach = max(reach, family.margin / evidence.scale - reach)
    for total in range(n + 1, n + MANY_SEEDS + 1):
        critical = float(critical_t(total, (1 - family.level) / family.n_arms))
        unsure = SURE * math.sqrt((total - n) / (n * total))
        if critical * sd / math.sqrt(total) + unsure * sd <= reach:
            return total - n
    return None


def fresh_seeds(difference: float, evidence: Evidence, family: Family) -> int | None:
    """Seeds of a new experiment with the planned analysis that find the difference with DECIDED.

    None where MANY_SEEDS do not do, or nothing is known of the noise. difference: on the scale of
    the analysis."""
    sd = _sd_of_blocks(evidence)
    if not difference > 0 or sd is None or sd == 0:
        return None
    return seeds_needed(
        difference,
        sd=sd / math.sqrt(2),
        n_arms=family.n_arms,
        power=DECIDED,
        level=family.level,
        most=MANY_SEEDS,
    )


def _difference_to_find(evidence: Evidence, family: Family) -> float | None:
    """The margin; without one what the effect exceeds in 19 of 20. None where that is zero.

    On the scale of the analysis."""
    if family.margin is not None:
        return max(family.margin / evidence.scale, 0.0)
    if evidence.se is None:
        return None
    least = abs(evidence.delta) - SURER * evidence.se
    return least if least > 0 else None


def _sd_of_blocks(evidence: Evidence) -> float | None:
    """Of one block's difference: the upper bound of what was seen, where its df are known."""
    if evidence.se is None:
        return None
    sd = evidence.se * math.sqrt(evidence.n)
    df = evidence.n - 1.0 if evidence.df is None else evidence.df
    return upper_sd(sd, df + 1) if df >= 1 else sd


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


def _enough_seeds(evidence: Evidence, family: Family) -> int:
    """Until the method can reach the level at all: more ones, or those of a new experiment."""
    if family.follows is Next.FRESH:
        return max(evidence.enough, 2)
    return max(evidence.enough - evidence.n, 1)


def _bounded(text: str, evidence: Evidence, family: Family, reach: float) -> Verdict:
    """Of what MANY_SEEDS do not decide: its bound, or half of it where they find that."""
    action, half = ACCEPT, reach / 2
    if family.margin is not None:
        action += f" (to find the margin takes over {MANY_SEEDS} seeds)"
    is_typed = family.decides and family.has_command and math.isfinite(half)
    if is_typed and fresh_seeds(half / evidence.scale, evidence, family) is not None:
        action += f", or look for half its reach: ablate confirm --detect {_number(half)}"
    return Verdict(text=text, kind="undecided", next_action=action)


def _asking(
    text: str, kind: Kind, seeds: int, family: Family, difference: float | None = None
) -> Verdict:
    """With the next step and its cost; seeds: more ones, or those of a new experiment.

    difference: that a new experiment is to find, in the unit."""
    with_baseline = not (family.borrows and family.follows is Next.SEQUENCE)
    runs = seeds * (family.n_arms + with_baseline) * family.n_budgets
    if family.follows is Next.PLANNED:
        return Verdict(text=text, kind=kind, next_action=FINISH)
    if family.follows is Next.SEQUENCE:
        action = f"run {seeds} more {_seeds(seeds)}: {runs} {_runs(runs)}"
        return Verdict(text=text, kind=kind, more_seeds=seeds, next_action=action, next_runs=runs)
    is_typed = family.decides and family.has_command
    command = "ablate confirm" if is_typed else "a new experiment"
    if difference is not None and is_typed:
        command += f" --detect {_number(difference)}"
    least = "" if kind == "undecided" else "or more "
    cost = f"{runs} {_runs(runs)}"
    if family.n_budgets > 1:
        cost += (
            f" = {seeds} {_seeds(seeds)} x {family.n_arms + 1} arms x {family.n_budgets} budgets"
        )
    action = f"{command}: {seeds} fresh {_seeds(seeds)} {least}({cost})"
    return Verdict(text=text, kind=kind, fresh_seeds=seeds, next_action=action, next_runs=runs)


def _seeds(n: int) -> str:
    return "seeds" if n > 1 else "seed"


def _runs(n: int) -> str:
    return "run" if n == 1 else "runs"


def _ends(low: float, high: float) -> tuple[str, str]:
    """Both ends with the decimals that give the further one two significant digits."""
    low, high = settled(low), settled(high)
    reach = float(f"{max(-low, high):.1e}")
    decimals = max(0, 1 - math.floor(math.log10(reach))) if reach else 0
    texts = []
    for end in (low, high):
        text = f"{end:+.{decimals}f}"
        if not text.strip("+-0."):  # what rounds to nothing has no sign
            text = text[1:]
        texts.append(text.replace("-", "−"))
    return texts[0], texts[1]


def _number(value: float) -> str:
    value = settled(value)
    if abs(value) < 1000:
        return f"{value:.2g}"
    return f"{value:.0f}"
