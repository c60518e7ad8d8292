"""An arm's row of the page, and what its statistics are read from."""

from dataclasses import dataclass

from reports.analysis.types import ArmOutcomes, Comparisons, Decomposition, TimeEstimate
from reports.inputs.columns import Between
from reports.stats.digits import known


@dataclass(frozen=True, kw_only=True)
class ArmRow:
    """An arm, in the outcome of its experiment."""

    arm: str
    outcome: Comparisons

    @property
    def runs(self) -> ArmOutcomes:
        """What was measured of it."""
        return self.outcome.cells[self.arm]

    def values(self, metric: str) -> tuple[float, ...]:
        """What its finished runs measured: a column of runs, at the compared budget."""
        return self.runs.values.get(metric, ())

    @property
    def time(self) -> TimeEstimate | None:
        """Steps and seconds to the target loss."""
        return self.outcome.times.get(self.arm)

    @property
    def gain(self) -> Decomposition | None:
        """Learning gain and systems gain."""
        return self.outcome.decompositions.get(self.arm)


def mean(row: ArmRow, *, metric: str) -> float | None:
    value = row.runs.mean.get(metric)
    if known(value):
        return value
    return None


def whole_mean(row: ArmRow, *, metric: str) -> float | None:
    """The mean, an integer where it is whole."""
    value = mean(row, metric=metric)
    if value is not None and value == int(value):
        return int(value)
    return value


def sd(row: ArmRow, *, metric: str) -> float | None:
    value = row.runs.sd.get(metric)
    if known(value):
        return value
    return None


def of_all_parts(row: ArmRow) -> str | None:
    """Of a rung that stands on others: that its difference to the baseline is theirs, too."""
    comparison = row.outcome.of(row.arm, "val_loss")
    part = row.outcome.increments.get((row.arm, "val_loss"))
    if comparison is None or part is None or part.baseline == comparison.baseline:
        return None
    return "all parts up to here"


def target_reason(row: ArmRow) -> str | None:
    if row.time is None or row.time.seconds is not None:
        return None
    return "not resolved"


def target_seconds(row: ArmRow) -> float | None:
    if row.time is None:
        return None
    return row.time.seconds


def step_tokens_of(row: ArmRow) -> float | None:
    return row.outcome.step_tokens.get(row.arm)


def target_part(row: ArmRow, *, part: str) -> float | None:
    """A field of what it takes to the target."""
    if row.time is None:
        return None
    value: float | None = getattr(row.time, part)
    return value


def target_tokens_interval(row: ArmRow) -> Between | None:
    time = row.time
    if time is None or time.tokens is None:
        return None
    return Between(time.tokens_low, time.tokens_high)


def target_interval(row: ArmRow) -> Between | None:
    time = row.time
    if time is None or time.seconds is None:
        return None
    return Between(time.seconds_low, time.seconds_high)


def target_extrapolated(row: ArmRow) -> str | None:
    time = row.time
    if time is None or time.seconds is None or not time.extrapolated:
        return None
    return "extrapolated"


def is_split(gain: Decomposition | None) -> bool:
    """Whether a change in time is resolved into its parts."""
    return gain is not None and None not in (gain.learning_percent, gain.learning_s)


RESOLVED_BY = {"learning": "val_loss", "systems": "step_ms"}  # part of a gain -> its interval's


def has_resolved(outcome: Comparisons, arm: str, side: str) -> bool:
    """Whether the loss (learning) or the step time (systems) is judged to differ.

    Where a step reads other numbers of tokens: the tokens to the target, or the time a token."""
    c, gain = outcome.of(arm, RESOLVED_BY[side]), outcome.decompositions.get(arm)
    if c is None or gain is None or gain.step_ratio == 1:
        return c is not None and c.kind in ("helps", "hurts")
    if side == "learning" and gain.is_learning_told is not None:
        return gain.is_learning_told
    if side == "systems" and c.ratio_low is not None and c.ratio_high is not None:
        return c.ratio_low > gain.step_ratio or c.ratio_high < gain.step_ratio
    return c.kind in ("helps", "hurts")


def gain_reason(row: ArmRow) -> str | None:
    """What of a gain the runs do not resolve."""
    if row.gain is None:
        return None
    open_sides = [side for side in RESOLVED_BY if not has_resolved(row.outcome, row.arm, side)]
    if not is_split(row.gain) or len(open_sides) == len(RESOLVED_BY):
        return "not resolved"
    if open_sides:
        return f"{open_sides[0]} not resolved"
    return None


def gain_part(row: ArmRow, *, part: str) -> float | None:
    """A field of the decomposition, where that is resolved."""
    if not is_split(row.gain) or not has_resolved(row.outcome, row.arm, part.partition("_")[0]):
        return None
    value: float = getattr(row.gain, part)
    return value


def gain_seconds(row: ArmRow) -> tuple[float | None, float | None] | None:
    seconds = gain_part(row, part="learning_s"), gain_part(row, part="systems_s")
    if None in seconds:
        return None
    return seconds


def diverged(row: ArmRow) -> tuple[int, float | None, Between] | None:
    """How many, their rate and its interval."""
    runs = row.runs
    if not runs.n_diverged:
        return None
    return runs.n_diverged, runs.diverged_rate, Between(runs.diverged_low, runs.diverged_high)
