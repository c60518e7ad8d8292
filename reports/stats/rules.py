"""The public benchmark's significance rules, as its own pages apply them.

They are printed beside our verdicts, never instead of them. A record claims mean val_loss <= target
(3.28). Losses in nats per token; a rule that needs more runs than given has p None.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from reports.stats.simultaneous import Array

TRACK1_P = 0.01  # below which a record's p has to be
TRACK3_SIGMA = 0.0013  # the track's own declared sd of one run
TRACK3_THRESHOLD = 0.004  # about 3.08 sigma: p about 0.001
SLOPE_PER_STEP = 0.0045 / 100  # loss per step near the target on the optimization track
TARGET = 3.28  # the benchmark's loss to reach
STEEPEST = 1e-3  # of loss per step: a hundred steps are worth 0.0045 to 0.0145
FACTOR = 5.0  # a validation loss is within it of the target
HIGHEST = 20.0  # nats per token: above it not even a model that knows nothing
LOSS_ROUNDING = 1e-12  # of a loss near 3, in sums and differences of a few


@dataclass(frozen=True, kw_only=True)
class RuleResult:
    """What a rule says; null where a rule has no such number."""

    rule: str
    n: int | tuple[int, int]
    mean: float | tuple[float, float] | None
    sd: float | None
    statistic: float | None
    p: float | None
    threshold: float
    significant: bool


def track1(losses: Sequence[float], target: float = TARGET) -> RuleResult:
    """One-sided one-sample t test, H0: mean >= target; passes at p < 0.01.

    Raises ValueError below 2 runs or without spread."""
    x = _checked_losses(losses, "track1", target)
    if len(x) < 2:
        raise ValueError(
            "rule track1 needs at least 2 losses, got 1: a t test has no sd of one run"
        )
    mean, sd = float(x.mean()), float(x.std(ddof=1))
    if sd <= LOSS_ROUNDING * float(np.abs(x).max()):
        raise ValueError(
            f"rule track1: all {len(x)} losses are equal, so their sd is 0: "
            "is one run given several times?"
        )
    t = float((x.mean() - target) / (sd / math.sqrt(len(x))))
    p = float(stats.t.cdf(t, len(x) - 1))
    return RuleResult(
        rule="track1",
        n=len(x),
        mean=mean,
        sd=sd,
        statistic=t,
        p=p,
        threshold=TRACK1_P,
        significant=p < TRACK1_P,
    )


def track3(losses: Sequence[float], target: float = TARGET) -> RuleResult:
    """(target - mean) * sqrt(n) >= 0.004: a one-sided z test with the declared sigma 0.0013."""
    x = _checked_losses(losses, "track3", target)
    statistic = float((target - x.mean()) * math.sqrt(len(x)))
    return RuleResult(
        rule="track3",
        n=len(x),
        mean=float(x.mean()),
        sd=float(x.std(ddof=1)) if len(x) > 1 else None,
        statistic=statistic,
        p=float(stats.norm.sf(statistic / TRACK3_SIGMA)),
        threshold=TRACK3_THRESHOLD,
        significant=_reaches(statistic),
    )


def track3_pair(
    *,
    old_mean: float,
    old_n: int,
    old_steps: int,
    new_mean: float,
    new_n: int,
    new_steps: int,
    slope: float = SLOPE_PER_STEP,
) -> RuleResult:
    """Whether fewer steps lose no more than they may: a z statistic of at least 0.004.

    (loss_old - loss_new + slope * (steps_old - steps_new)) / sqrt(1/n_new + 1/n_old), of mean
    losses over n runs each; slope: loss per step.
    old_mean, old_n, old_steps and new_mean, new_n, new_steps: of the two.
    """
    counts = {"old_n": old_n, "new_n": new_n, "old_steps": old_steps, "new_steps": new_steps}
    for name, value in counts.items():
        if value < 1:
            raise ValueError(f"rule track3-pair: {name} is {value}, but must be at least 1")
    if not all(map(math.isfinite, (old_mean, new_mean, slope))):
        raise ValueError("rule track3-pair: old_mean, new_mean and slope must be numbers")
    if not 0 <= slope <= STEEPEST:
        raise ValueError(
            f"rule track3-pair: slope is {slope:g}, but must be the loss that one step less costs, "
            f"from 0 to {STEEPEST:g}; one per 100 steps is written 0.0045/100"
        )
    for name, mean in (("old_mean", old_mean), ("new_mean", new_mean)):
        if not 0 < mean <= HIGHEST:
            raise ValueError(
                f"rule track3-pair: {name} is {mean:g}, which is no validation loss in nats per "
                f"token, such as {TARGET}"
            )
    gain = old_mean - new_mean + slope * (old_steps - new_steps)
    statistic = gain / math.sqrt(1 / new_n + 1 / old_n)
    return RuleResult(
        rule="track3-pair",
        n=(old_n, new_n),
        mean=(old_mean, new_mean),
        sd=None,
        statistic=statistic,
        p=float(stats.norm.sf(statistic / TRACK3_SIGMA)),
        threshold=TRACK3_THRESHOLD,
        significant=_reaches(statistic),
    )


@dataclass(frozen=True, kw_only=True)
class LowerMean:
    """Whether one mean lies below another."""

    gap: float  # the first minus the second
    p: float  # one-sided, of the hypothesis that it does not
    n: tuple[int, int]


def lower(first: Sequence[float], second: Sequence[float], what: str) -> LowerMean:
    """Welch's one-sided t test that the first mean is the lower one: independent runs.

    Raises ValueError below 2 runs of each, or without spread. what: the numbers, in words."""
    x, y = (np.asarray(values, float) for values in (first, second))
    x, y = x[np.isfinite(x)], y[np.isfinite(y)]
    if min(len(x), len(y)) < 2:
        raise ValueError(f"a t test of {what} needs 2 runs of each, got {len(x)} and {len(y)}")
    spread = math.hypot(float(x.std(ddof=1)), float(y.std(ddof=1)))
    if spread <= LOSS_ROUNDING * float(np.abs(np.concatenate([x, y])).max()):
        raise ValueError(f"the {what} of each are all equal: a t test needs a spread")
    test = stats.ttest_ind(x, y, equal_var=False, alternative="less")
    gap = float(x.mean() - y.mean())
    return LowerMean(gap=gap, p=float(test.pvalue), n=(len(x), len(y)))


SINGLE = {"track1": track1, "track3": track3}  # rules on one list of losses


def _reaches(statistic: float) -> bool:
    """Whether it is the threshold or above, but for the rounding of decimal numbers."""
    return statistic >= TRACK3_THRESHOLD - 1e3 * LOSS_ROUNDING


def _checked_losses(losses: Sequence[float], rule: str, target: float) -> Array:
    x = np.asarray(losses, float)
    if not len(x):
        raise ValueError(
            f"rule {rule} got no losses: give final validation losses, for example 3.2785 3.2792"
        )
    if not np.isfinite(x).all():
        place = int(np.argmin(np.isfinite(x))) + 1
        raise ValueError(
            f"rule {rule} got a loss that is not a number (run {place} of {len(x)}): "
            "a diverged run misses the target, the rule has no place for it"
        )
    if (x <= 0).any():
        raise ValueError(f"rule {rule} got a loss of {x.min():g}: a validation loss is above zero")
    _check_target(target, rule)
    strange = (x < target / FACTOR) | (x > target * FACTOR)
    if strange.any():
        raise ValueError(
            f"rule {rule} got a loss of {x[strange][0]:g}, more than {FACTOR:g} times away from "
            f"the target of {target:g}: is it in other units? another benchmark's needs --target"
        )
    return x


def _check_target(target: float, rule: str) -> None:
    if not 0 < target < math.inf:
        raise ValueError(
            f"rule {rule}: the target is {target:g}, but must be a loss above zero, "
            f"such as {TARGET}"
        )


BRACKETS_AND_SEPARATORS = re.compile(r"[\s,;|\[\](){}]+")
ARRAY_WORDS = re.compile(r"\b(?:np|numpy)\.(?:float\d+|array)|\btensor\b|\barray\b")
MINUS_SIGN = "\u2212"


def parse_numbers(text: str) -> list[float]:
    """Numbers separated by spaces, commas, semicolons or newlines, or a Python or numpy list.

    The error names what is not a number."""
    _refuse_ambiguous(text)
    numbers = []
    for word in BRACKETS_AND_SEPARATORS.split(ARRAY_WORDS.sub(" ", text)):
        if not word:
            continue
        try:
            numbers.append(float(word.strip("'\"").replace(MINUS_SIGN, "-")))
        except ValueError:
            raise ValueError(
                f"'{word}' is not a number: give losses separated by spaces, commas or newlines, "
                "or EXP --arm ARM"
            ) from None
    return numbers


def _refuse_ambiguous(text: str) -> None:
    """Refuse commas between digits that may be decimal points: '3,277'."""
    for word in text.split():
        parts = [part for part in word.strip("[](){};|").split(",") if part]
        if len(parts) > 1 and any(part.isdigit() for part in parts):
            raise ValueError(
                f"'{word}': is the comma a decimal point or between two numbers? write decimal "
                "points as '.', and put a space after every comma between numbers"
            )


def parse_slope(text: str) -> float:
    """Loss per step: '0.000045' or '0.0045/100'."""
    top, _, bottom = text.partition("/")
    try:
        value = float(top) / float(bottom or 1)
    except (ValueError, ZeroDivisionError):
        raise ValueError(
            f"slope '{text}' is not a number per step: write 0.000045 or 0.0045/100"
        ) from None
    return value
