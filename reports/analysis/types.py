"""What the statistics hand to the page: every number that is printed, and what to doubt about it.

    outcome = compare_all(load("quickstart"))  # analysis/compare.py of inputs/load.py
    outcome.of("untied_head", "val_loss")  # Comparison or None

One declared analysis serves the page, chosen by the design and never by the data: it is told in
reports/stats/contrasts.py and docs/statistics.md. Delta is always arm minus baseline in the
metric's unit: below zero is better for every metric but those of a script's own whose `better` is
'higher'.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from harness.run.readings import OwnMetric
from reports.analysis.cautions import Caution
from reports.stats.contrasts import Method, Sample
from reports.stats.verdicts import Kind

LOSSES = ("val_loss", "heldout_loss")  # in the corpus's unit
# compared as logarithms; losses and metrics of a script's own as differences
COMPARED_TIMES = ("step_ms", "train_time_s", "time_to_target")
TIME_OF_ONE = {"steps": "step time", "tokens": "time a token"}  # of what schedules are as long as
UNITS = {
    "step_ms": "ms",
    "train_time_s": "s",
    "time_to_target": "s",
}


@dataclass(frozen=True, kw_only=True)
class ArmOutcomes:
    """One arm's outcomes: counts of runs at the compared budget, its own mean and sd per metric."""

    arm: str
    n_finished: int
    n_diverged: int
    n_failed: int  # failed, oom, timeout: no outcome
    n_pending: int  # pending, running, interrupted
    n_stale: int  # left out
    diverged_rate: float | None  # diverged / (finished + diverged)
    diverged_low: float | None  # exact 95 % interval (Clopper and Pearson 1934)
    diverged_high: float | None
    values: Mapping[str, tuple[float, ...]]  # column of runs -> its values over finished runs
    mean: Mapping[str, float]  # the same -> mean
    sd: Mapping[str, float]  # the same -> sd; one with fewer than two runs is absent, never 0
    outliers: tuple[str, ...]  # run_ids far from the others of the arm


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One arm against the baseline on one metric.

    delta, low, high are in the metric's unit, arm minus baseline. Times are analysed as logarithms:
    ratio, ratio_low and ratio_high (arm / baseline) carry the result there and delta, low, high are
    the ratio times the baseline's geometric mean; None for other metrics. low and high are None
    with too little data (`n = 1`), or +-inf where an anytime-valid sequence is still unbounded.
    """

    arm: str
    baseline: str
    metric: str
    better: str = "lower"  # or 'higher'
    unit: str  # '' of a metric of a script's own
    n_arm: int  # runs with an outcome, the diverged ones too
    n_baseline: int
    n_blocks: int  # shared blocks; 0 where the samples are independent
    mean_arm: float
    mean_baseline: float
    sd_arm: float | None  # the arm's own; None for one run
    sd_baseline: float | None
    delta: float
    low: float | None
    high: float | None
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    level: float  # simultaneous over the arms of this metric, 0.95
    n_comparisons: int  # arms in the family
    method: Method
    p: float | None  # adjusted for the family, two-sided; agrees with the interval
    p_attainable: float | None  # the smallest adjusted p of so many runs; None: no test is possible
    df: float | None
    correlation: float | None  # over shared blocks: did pairing help? None below 3 blocks
    looks: int  # how often results were looked at, 1 for a planned analysis
    exploratory: bool
    estimand: str  # 'at-rate' or 'retuned'
    # as reports/stats/verdicts.py words it
    verdict: str
    kind: Kind  # the verdict for colours and exit codes
    more_seeds: int | None  # per arm, that the sequence still needs, where undecided
    fresh_seeds: int | None  # per arm, of the new experiment that would decide
    next_action: str  # in words, with its cost in runs; '' when nothing is left to do
    next_runs: int | None  # runs that it costs, None where it is not a matter of runs
    warnings: tuple[Caution, ...]
    is_bit_equal: bool  # arm and baseline ended at the same losses in every bit, block by block
    of_arm: Sample = field(repr=False, compare=False)  # that it was made from; times as logarithms
    of_baseline: Sample = field(repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class TimeEstimate:
    """Steps and seconds an arm needs for the target loss: N* and N* x step time.

    None where not resolved, with the reason. Intervals are 95 % for this arm alone (not
    simultaneous), anytime-valid where the comparisons are; None while those are unbounded."""

    arm: str
    target: float
    n_star: float | None = None
    n_low: float | None = None
    n_high: float | None = None
    tokens: float | None = None  # of N* steps, where steps of the arms read other numbers of them
    tokens_low: float | None = None
    tokens_high: float | None = None
    seconds: float | None = None
    seconds_low: float | None = None
    seconds_high: float | None = None
    slope: float | None = None  # d loss / d log N (below zero)
    slope_se: float | None = None
    slope_given: bool = False  # from outside, not from these runs
    extrapolated: bool = False  # the arm's budgets do not bracket the target: gets no verdict
    reason: str = ""  # '' when resolved, else why not and what would help
    budgets: tuple[int, ...]  # those used
    warnings: tuple[Caution, ...]


@dataclass(frozen=True, kw_only=True)
class Decomposition:
    """dT = s_mean * dN + N_mean * ds exactly: learning gain (fewer steps) and systems gain.

    Arm minus baseline; seconds below zero are time saved, percents are of the baseline's time. At a
    single budget N is one for all, the learning part None and total_s the systems part. Where a
    step of the two reads other numbers of tokens, N and s are of tokens: fewer of them, faster."""

    arm: str
    learning_s: float | None
    systems_s: float
    total_s: float
    learning_percent: float | None
    systems_percent: float
    total_percent: float
    n_baseline: float  # steps: N* where resolved, else the budget
    n_arm: float
    step_ms_baseline: float
    step_ms_arm: float
    note: str  # what N means here, in words
    step_ratio: float = 1.0  # tokens of the arm's step over those of the baseline's
    # whether the interval of N* in tokens leaves zero; None: the loss at equal steps tells it
    is_learning_told: bool | None = None


PublishedWord = Literal[
    "reproduced",
    "smaller",
    "larger",
    "opposite",
    "not resolved",
    "published delta too uncertain to test",
    "not testable here",
]


@dataclass(frozen=True, kw_only=True)
class PublishedVerdict:
    """Our effect beside the published one, as percent of the baseline's time (below 0: faster)."""

    record: str  # 'r08'
    against: str  # 'r07'
    arm: str
    verdict: PublishedWord
    why: str  # one sentence
    percent: float | None
    percent_low: float | None
    percent_high: float | None
    published_percent: float
    published_percent_low: float  # with its own error: run-to-run noise through the era's slope
    published_percent_high: float
    published_s: float  # the logs' seconds, arm minus baseline, and their 95 % half-width
    published_s_error: float
    n_published: tuple[int, int]  # runs of the record and of its predecessor
    margin_percent: float


@dataclass(frozen=True, kw_only=True)
class NoiseFloor:
    """sd of the baseline's final loss over seeds, with its 95 % interval (chi square).

    None below two runs, and the interval also while the page shows sequences."""

    n: int
    sd: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True)
class OwnWords:
    """What a page calls an arm that has a part of its own, and what that is held against."""

    arm: str = "arm"
    before: str = "the arm before it"
    briefly: str = "the one before it"  # beside a sentence that names the arm


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparisons:
    """Everything the page prints; a metric that cannot be compared is absent."""

    baseline: str
    arms: tuple[str, ...]  # in the plan's order, without the baseline
    primary: str  # metric that decides (falls back to val_loss, see `notes`)
    cells: Mapping[str, ArmOutcomes]  # every arm, the baseline first
    comparisons: Mapping[tuple[str, str], Comparison]  # (arm, metric)
    increments: Mapping[tuple[str, str], Comparison]  # rung - rung before, arm - parent
    own_words: OwnWords
    own: Mapping[str, OwnMetric] = field(default_factory=dict)  # what scripts measure of their own
    times: Mapping[str, TimeEstimate]  # every arm, where the experiment has a target
    decompositions: Mapping[str, Decomposition]
    step_tokens: Mapping[str, float] = field(default_factory=dict)  # where a step is no unit
    noise: NoiseFloor
    published: PublishedVerdict | None
    anytime: bool  # sequences instead of fixed-n intervals
    looks: int
    budget: int | None  # at which losses and times are compared: the longest that all arms share
    warnings: tuple[Caution, ...]  # of the experiment as a whole
    notes: tuple[str, ...]  # sentences about the analysis that belong above the table

    def __repr__(self) -> str:
        """What it holds, in one line."""
        return (
            f"<Comparisons: {len(self.arms)} arms against {self.baseline!r}, "
            f"{len(self.comparisons)} comparisons, judged by {self.primary}>"
        )

    @property
    def length(self) -> Literal["steps", "tokens"]:
        """What schedules are as long as."""
        return "tokens" if self.step_tokens else "steps"

    def of(self, arm: str, metric: str) -> Comparison | None:
        """The comparison of an arm on a metric."""
        return self.comparisons.get((arm, metric))

    def judged(self, arm: str, metric: str = "") -> Comparison | None:
        """What the verdict is about: a ladder's or chain's increment, else the comparison."""
        return (self.increments or self.comparisons).get((arm, metric or self.primary))


def effect_kind(metric: str) -> str:
    """What kind of number an effect is, as reports/format.py writes it."""
    if metric in COMPARED_TIMES:
        return "percent"
    return "loss_delta" if metric in LOSSES else "own_delta"


def effect(c: Comparison) -> tuple[float, float | None, float | None]:
    """(estimate, low, high) as drawn and printed: a difference, of times a baseline's fraction."""
    if c.ratio is None:
        return c.delta, c.low, c.high
    low, high = None, None
    if c.ratio_low is not None:
        low = -math.inf  # a ratio of 0 is no bound
        if c.ratio_low > 0:
            low = c.ratio_low - 1.0
    if c.ratio_high is not None:
        high = c.ratio_high - 1.0
    return c.ratio - 1.0, low, high
