"""One arm against the baseline on one metric: from an effect to what is printed of it."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from harness.run.halving import GRID
from harness.run.plan import Plan
from reports.analysis import samples
from reports.analysis.cautions import Caution
from reports.analysis.sequence_doubts import sequence_warnings
from reports.analysis.types import COMPARED_TIMES, LOSSES, UNITS, Comparison
from reports.stats.contrasts import Effect, Method, Sample, block_means, paired
from reports.stats.time_sequences import SHARE
from reports.stats.unblocked import more_runs
from reports.stats.verdicts import (
    NOT_JUDGED,
    Evidence,
    Family,
    Next,
    Verdict,
    enough_for_sequence,
    enough_to_permute,
    verdict,
)

CLAIMS = ("helps", "hurts", "equal")  # kinds of verdicts
TimeDoubts = Callable[[str, str], tuple[Caution, ...]]  # of an arm's times and another's
LARGEST_LOG = 700.0  # above it a ratio is no number any more


@dataclass(frozen=True, kw_only=True)
class Metric:
    """What the comparisons of one metric share."""

    name: str
    plan: Plan
    baseline: str
    runs: pd.DataFrame  # that are compared
    n_arms: int  # in the family
    level: float  # simultaneous over them
    anytime: bool
    follows: Next  # what would be run next
    n_family: int  # changes that all intervals hold for: these arms, or more of the folder's
    lost: frozenset[str]  # arms that are not judged
    time_doubts: TimeDoubts

    @property
    def is_difference(self) -> bool:
        """Whether effects are differences; else they are logarithms of ratios."""
        return self.name not in COMPARED_TIMES

    @property
    def unit(self) -> str:
        """Of its values, '' of a script's own."""
        return self.plan.corpus.unit if self.name in LOSSES else UNITS.get(self.name, "")

    @property
    def better(self) -> str:
        """'lower' or 'higher'."""
        metric = self.plan.own_metrics.get(self.name)
        return "lower" if metric is None else metric.better

    @property
    def alpha(self) -> float:
        """The error rate of the family."""
        return 1 - self.level

    @property
    def family(self) -> Family:
        """What the words need to know of it."""
        decides = self.plan.primary == self.name
        return Family(
            metric=self.name,
            unit=f" {self.unit}".rstrip(),
            higher_is_better=self.better == "higher",
            n_arms=self.n_arms,
            level=self.level,
            follows=self.follows,
            decides=decides,
            has_command=is_confirmed_by_command(self.plan),
            margin=self.plan.margin if decides else None,
            n_budgets=max(1, len(self.plan.budgets)),
            borrows=self.is_difference and any(run.borrowed for run in self.plan.runs),
        )


def is_confirmed_by_command(plan: Plan) -> bool:
    """Whether `ablate confirm` writes what asks again, which it refuses to do of many kinds."""
    return not (plan.foreign or plan.imported or plan.confirm or plan.name.endswith(GRID))


@dataclass(frozen=True, kw_only=True)
class Pair:
    """An arm's values and the baseline's, with the effect between them."""

    arm: str
    effect: Effect
    of_arm: Sample
    of_baseline: Sample

    @property
    def n(self) -> int:
        """Shared blocks; without them the runs of the smaller sample, the diverged ones too."""
        return self.effect.n_blocks or min(self.n_arm, self.n_baseline)

    @property
    def n_arm(self) -> int:
        """Runs with an outcome."""
        return len(self.of_arm.values) + self.of_arm.n_diverged

    @property
    def n_baseline(self) -> int:
        """Runs with an outcome."""
        return len(self.of_baseline.values) + self.of_baseline.n_diverged

    @property
    def n_diverged(self) -> int:
        """Of both."""
        return self.of_arm.n_diverged + self.of_baseline.n_diverged

    @property
    def is_permuted(self) -> bool:
        """Whether relabelling judges it."""
        return self.effect.method is Method.PERMUTED

    def is_refused(self, *, anytime: bool) -> bool:
        """Whether too few runs without common blocks allow no interval."""
        if anytime or self.is_permuted:
            return False
        return self.effect.low is None and self.effect.p_attainable == 1.0


@dataclass(frozen=True, kw_only=True)
class _Scale:
    """From the scale of the analysis to what is printed."""

    is_difference: bool
    reference: float  # the baseline's geometric mean, of a time

    def to_unit(self, value: float | None) -> float | None:
        """A difference in the metric's unit."""
        if value is None or self.is_difference or math.isinf(value):
            return value
        return self.reference * math.expm1(min(value, LARGEST_LOG))

    def to_ratio(self, value: float | None) -> float | None:
        """Arm over baseline; None for a loss."""
        if value is None or self.is_difference:
            return None
        return math.exp(value) if value < LARGEST_LOG else math.inf


def comparison_of(metric: Metric, pair: Pair, doubts: tuple[Caution, ...] = ()) -> Comparison:
    """All that is printed of an arm on a metric.

    doubts: about how the effect was made, which come first among the warnings."""
    effect = pair.effect
    mean_arm, sd_arm = _mean_sd(pair.of_arm, metric)
    mean_baseline, sd_baseline = _mean_sd(pair.of_baseline, metric)
    reference = 1.0
    if not metric.is_difference:
        reference = float(np.exp(pair.of_baseline.values.mean()))
    scale = _Scale(is_difference=metric.is_difference, reference=reference)
    said = _verdict(metric, pair, scale)
    is_bit_equal = _is_bit_equal(metric, pair)
    warnings = [*doubts, *_warnings(metric, pair, is_bit_equal=is_bit_equal)]
    if said.kind not in CLAIMS:  # what is not claimed needs no other node
        warnings = [warning for warning in warnings if warning is not Caution.ONE_NODE]
    return Comparison(
        arm=pair.arm,
        baseline=metric.baseline,
        metric=metric.name,
        better=metric.better,
        unit=metric.unit,
        n_arm=pair.n_arm,
        n_baseline=pair.n_baseline,
        n_blocks=effect.n_blocks,
        mean_arm=mean_arm,
        mean_baseline=mean_baseline,
        sd_arm=sd_arm,
        sd_baseline=sd_baseline,
        delta=scale.to_unit(effect.delta) or 0.0,
        low=scale.to_unit(effect.low),
        high=scale.to_unit(effect.high),
        ratio=scale.to_ratio(effect.delta),
        ratio_low=scale.to_ratio(effect.low),
        ratio_high=scale.to_ratio(effect.high),
        level=round(1 - metric.alpha * metric.n_family / metric.n_arms, 12),
        n_comparisons=metric.n_family,
        method=effect.method,
        p=effect.p,
        p_attainable=effect.p_attainable,
        df=effect.df,
        correlation=effect.correlation,
        looks=max(1, metric.plan.looks),
        exploratory=not metric.plan.confirm,
        estimand=metric.plan.by_arm[pair.arm].estimand,
        verdict=said.text,
        kind=said.kind,
        more_seeds=said.more_seeds,
        fresh_seeds=said.fresh_seeds,
        next_action=said.next_action,
        next_runs=said.next_runs,
        warnings=tuple(dict.fromkeys(warnings)),
        is_bit_equal=is_bit_equal,
        of_arm=pair.of_arm,
        of_baseline=pair.of_baseline,
    )


def asking_nothing(c: Comparison) -> Comparison:
    """The same without a next step."""
    return replace(c, next_action="", next_runs=None, fresh_seeds=None, more_seeds=None)


def _is_bit_equal(metric: Metric, pair: Pair) -> bool:
    """Whether both ended at the same losses in every bit, block by block.

    What a script wrote into a log has few digits: equal ones there tell nothing of the others."""
    plan = metric.plan
    if not metric.is_difference or pair.n_diverged or plan.foreign or plan.imported:
        return False
    return _by_block(pair.of_arm) == _by_block(pair.of_baseline)


def _by_block(sample: Sample) -> list[tuple[str, float]]:
    """The values with their blocks, in one order."""
    return sorted(zip(map(str, sample.blocks), sample.values.tolist(), strict=True))


def _mean_sd(sample: Sample, metric: Metric) -> tuple[float, float | None]:
    """In the metric's unit."""
    return samples.mean_sd(sample.values if metric.is_difference else np.exp(sample.values))


def _verdict(metric: Metric, pair: Pair, scale: _Scale) -> Verdict:
    if pair.arm in metric.lost:
        return NOT_JUDGED
    effect = pair.effect
    evidence = Evidence(
        delta=effect.delta,
        se=effect.se,
        df=effect.df,
        low=scale.to_unit(effect.low),
        high=scale.to_unit(effect.high),
        p_attainable=effect.p_attainable,
        n=pair.n,
        enough=_enough(metric, pair),
        scale=scale.reference,
    )
    return verdict(evidence, metric.family)


def _enough(metric: Metric, pair: Pair) -> int:
    """The smallest n at which the effect's method could reach the level at all."""
    m, alpha = metric.n_arms, metric.alpha
    if metric.anytime:
        share = SHARE if metric.name == "time_to_target" else 1.0  # the slope takes the rest
        return enough_for_sequence(m, alpha * share)
    if pair.is_refused(anytime=False):
        return pair.n + more_runs(len(pair.of_arm.values), len(pair.of_baseline.values), alpha / m)
    return enough_to_permute(m, alpha) if pair.is_permuted else 2


def _warnings(metric: Metric, pair: Pair, *, is_bit_equal: bool) -> list[Caution]:
    """What is doubtful about the values, then about how they were paired."""
    warnings: list[Caution] = []
    if pair.arm in metric.lost:
        warnings.append(Caution.CHOSEN if metric.plan.halving else Caution.NOT_JUDGED)
    if metric.is_difference:
        warnings += _loss_warnings(metric, pair)
    else:
        warnings += metric.time_doubts(pair.arm, metric.baseline)
    if is_bit_equal:
        warnings.append(Caution.BIT_EQUAL)
    if pair.is_permuted:
        return warnings
    is_refused = pair.is_refused(anytime=metric.anytime)
    tells_no_error = pair.effect.low is None and Caution.ZERO_VARIANCE in warnings
    if pair.effect.n_blocks == 0 and pair.n > 1 and not tells_no_error:
        warnings.append(Caution.NOT_BLOCKED)
        if is_refused:
            warnings.append(Caution.FEW_UNBLOCKED)
    elif set(block_means(pair.of_arm)) != set(block_means(pair.of_baseline)):
        warnings.append(Caution.MISSING_CELLS)
    if metric.anytime:
        warnings += sequence_warnings(*paired(pair.of_arm, pair.of_baseline))
    no_interval = pair.n >= 2 and pair.effect.low is None and pair.arm not in metric.lost
    if no_interval and not is_refused and not pair.n_diverged and not is_bit_equal:
        warnings.append(Caution.ZERO_VARIANCE)
    return warnings


def _loss_warnings(metric: Metric, pair: Pair) -> list[Caution]:
    warnings = []
    if pair.n_diverged:
        warnings.append(Caution.DIVERGED)
    if _are_all_equal(pair.of_arm) or _are_all_equal(pair.of_baseline):
        warnings.append(Caution.ZERO_VARIANCE)
    of = "val_loss" if metric.name in LOSSES else metric.name
    if any(samples.outliers(metric.runs, arm, of) for arm in (pair.arm, metric.baseline)):
        warnings.append(Caution.OUTLIER)
    return warnings


def _are_all_equal(sample: Sample) -> bool:
    return len(sample.values) > 1 and not np.ptp(sample.values)
