"""The statistics of an arm, each declared once.

A page shows those with a format in its table of verdicts, below their head, a heading of
reports/analysis/headings.py: the first large, the others small below it. `ablate ab` shows those
for the terminal.
"""

from collections.abc import Callable
from functools import partial
from operator import attrgetter

from reports.analysis.arm_values import (
    ArmRow,
    diverged,
    gain_part,
    gain_reason,
    gain_seconds,
    mean,
    of_all_parts,
    sd,
    step_tokens_of,
    target_extrapolated,
    target_interval,
    target_part,
    target_reason,
    target_seconds,
    target_tokens_interval,
    whole_mean,
)
from reports.analysis.comparison_columns import COMPARISON_COLUMNS, EFFECT
from reports.analysis.types import Comparison, effect_kind
from reports.inputs.columns import Column

ArmColumn = Column[ArmRow]


def of_comparison(row: ArmRow, *, metric: str, column: Column[Comparison]) -> object:
    """A statistic of the arm's comparison on a metric; None where there is none."""
    comparison = row.outcome.of(row.arm, metric)
    if comparison is None:
        return None
    return column.of(comparison)


def own_part(row: ArmRow, *, metric: str, column: Column[Comparison]) -> object:
    """The same of a ladder's rung against the one before it, where the metric decides."""
    increment = row.outcome.increments.get((row.arm, metric))
    if increment is None or metric != row.outcome.primary:
        return None
    return column.of(increment)


def effect_columns(
    head: str, metric: str, *, of: Callable[..., object] = of_comparison, key: str = ""
) -> list[ArmColumn]:
    """What a page prints of the comparisons on a metric, or of its increments."""
    kind = effect_kind(metric)
    columns = []
    for column in COMPARISON_COLUMNS:
        if not column.format:
            continue
        columns.append(
            Column(
                key=f"{key or metric}.{column.key}",
                head=head,
                value=partial(of, metric=metric, column=column),
                format=column.format.replace(EFFECT, kind),
                meaning=column.meaning,
            )
        )
    return columns


IN_TOKENS = (  # of JSON, where a step is no unit
    *("arm", "step_tokens", "steps_to_target", "tokens_to_target", "tokens_to_target_low"),
    *("tokens_to_target_high", "learning_percent", "systems_percent"),
)
ARM_COLUMNS: tuple[ArmColumn, ...] = (
    Column(
        key="arm",
        json_name="arm",
        in_terminal=True,
        meaning="The arm's name.",
    ),
    Column(
        key="n.finished",
        head="runs",
        value=attrgetter("runs.n_finished"),
        format="{:count} finished",
        json_name="runs",
        in_terminal=True,
        meaning="Finished runs at the compared budget.",
    ),
    Column(
        key="n_diverged",
        value=attrgetter("runs.n_diverged"),
        json_name="diverged",
        in_terminal=True,
        meaning="Runs whose loss was not finite or exploded.",
    ),
    Column(
        key="n.diverged",
        head="runs",
        value=diverged,
        format="{:count} diverged, rate {:rate} {:rate}",
        meaning="The same with their rate and its interval.",
    ),
    Column(
        key="n.failed",
        head="runs",
        value=attrgetter("runs.n_failed"),
        hides_zero=True,
        format="{:count} failed",
        json_name="failed",
        meaning="Runs that ended without an outcome.",
    ),
    Column(
        key="n.to_come",
        head="runs",
        value=attrgetter("runs.n_pending"),
        hides_zero=True,
        format="{:count} to come",
        json_name="to_come",
        meaning="Planned runs that are pending, running or interrupted.",
    ),
    Column(
        key="n.stale",
        head="runs",
        value=attrgetter("runs.n_stale"),
        hides_zero=True,
        format="{:count} stale",
        json_name="stale",
        meaning="Runs of an older source, left out.",
    ),
    Column(
        key="step_ms.mean",
        head="step time, ms",
        value=partial(mean, metric="step_ms"),
        format="{:ms}",
        json_name="step_ms",
        meaning="Mean time of one training step, milliseconds.",
    ),
    Column(
        key="step_ms.sd",
        head="step time, ms",
        value=partial(sd, metric="step_ms"),
        format="sd {:sd}",
        json_name="step_ms_sd",
        meaning="Its standard deviation over runs; none for one run.",
    ),
    Column(
        key="steps.mean",
        head="step time, ms",
        value=partial(whole_mean, metric="steps"),
        format="{:count} steps",
        json_name="steps",
        in_terminal=True,
        meaning="Mean number of steps per run.",
    ),
    Column(
        key="step_tokens",
        value=step_tokens_of,
        json_name="step_tokens",
        meaning=(
            "Tokens of a step, the mean over the schedule, where arms' steps read different "
            "numbers of them."
        ),
    ),
    Column(
        key="train_time_s.mean",
        head="training time, s",  # of published evidence alone
        value=partial(mean, metric="train_time_s"),
        format="{:s}",
        json_name="time_s",
        in_terminal=True,
        meaning="Mean of the training clock, seconds.",
    ),
    Column(
        key="train_time_s.sd",
        value=partial(sd, metric="train_time_s"),
        json_name="time_s_sd",
        in_terminal=True,
        meaning="Its standard deviation over runs; none for one run.",
    ),
    Column(
        key="val_loss.mean",
        head="loss",
        value=partial(mean, metric="val_loss"),
        format="{:loss}",
        json_name="val_loss",
        in_terminal=True,
        meaning="Mean validation loss of the finished runs.",
    ),
    Column(
        key="val_loss.sd",
        head="loss",
        value=partial(sd, metric="val_loss"),
        format="sd {:sd}",
        json_name="val_loss_sd",
        in_terminal=True,
        meaning="Its standard deviation over runs; none for one run.",
    ),
    Column(
        key="bits_per_byte.mean",
        head="loss",
        value=partial(mean, metric="bits_per_byte"),
        format="{:loss} bits/byte",
        json_name="bits_per_byte",
        meaning="The loss in bits per byte of text, where the corpus knows its bytes.",
    ),
    Column(
        key="heldout_loss.mean",
        head="held-out loss",
        value=partial(mean, metric="heldout_loss"),
        format="{:loss}",
        json_name="heldout_loss",
        meaning="Mean loss on the held-out text.",
    ),
    Column(
        key="heldout_loss.sd",
        head="held-out loss",
        value=partial(sd, metric="heldout_loss"),
        format="sd {:sd}",
        json_name="heldout_loss_sd",
        meaning="Its standard deviation over runs; none for one run.",
    ),
    *effect_columns("own part", "val_loss", of=own_part, key="own_val_loss"),
    *effect_columns("own part", "time_to_target", of=own_part, key="own_time_to_target"),
    *effect_columns("own part", "step_ms", of=own_part, key="own_step_ms"),
    *effect_columns("Δ loss", "val_loss"),
    Column(
        key="val_loss.of_all_parts",
        head="Δ loss",
        value=of_all_parts,
        format="{}",
        meaning="That a ladder's difference to the baseline is of all parts up to the arm.",
    ),
    *effect_columns("Δ held-out loss", "heldout_loss"),
    *effect_columns("Δ step time", "step_ms"),
    *effect_columns("Δ time to target", "time_to_target"),
    Column(
        key="target.reason",
        head="time to target",
        value=target_reason,
        format="{}",
        meaning="That the runs do not resolve it.",
    ),
    Column(
        key="target.seconds",
        head="time to target",
        value=target_seconds,
        format="{:s} s",
        json_name="time_to_target_s",
        meaning="Seconds to the target loss.",
    ),
    Column(
        key="target.interval",
        head="time to target",
        value=target_interval,
        format="{:s}",
        meaning="Its 95 % interval, of this arm alone.",
    ),
    Column(
        key="target.steps",
        value=partial(target_part, part="n_star"),
        json_name="steps_to_target",
        meaning="N*: steps of the schedule that ends at the target loss.",
    ),
    Column(
        key="target.tokens",
        head="time to target",
        value=partial(target_part, part="tokens"),
        format="{:tokens} tokens",
        json_name="tokens_to_target",
        meaning="Tokens that those steps read, where arms' steps read different numbers of them.",
    ),
    Column(
        key="target.tokens_interval",
        head="time to target",
        value=target_tokens_interval,
        format="{:tokens}",
        meaning="Their 95 % interval, of this arm alone.",
    ),
    Column(
        key="target.tokens_low",
        value=partial(target_part, part="tokens_low"),
        json_name="tokens_to_target_low",
        meaning="The lower end of their 95 % interval; null where unbounded or unknown.",
    ),
    Column(
        key="target.tokens_high",
        value=partial(target_part, part="tokens_high"),
        json_name="tokens_to_target_high",
        meaning="The upper end of their 95 % interval; null where unbounded or unknown.",
    ),
    Column(
        key="target.extrapolated",
        head="time to target",
        value=target_extrapolated,
        format="{}",
        meaning="That the budgets do not bracket the target.",
    ),
    Column(
        key="gain.none",
        head="gain",
        value=gain_reason,
        format="{}",
        meaning="That the runs do not resolve it.",
    ),
    Column(
        key="learning.percent",
        head="gain",
        value=partial(gain_part, part="learning_percent"),
        format="learning {:points}",
        json_name="learning_percent",
        meaning=(
            "Change in time by fewer steps, percent of the baseline's; by fewer tokens where arms' "
            "steps read different numbers of them."
        ),
    ),
    Column(
        key="systems.percent",
        head="gain",
        value=partial(gain_part, part="systems_percent"),
        format="systems {:points}",
        json_name="systems_percent",
        meaning=(
            "Change in time by faster steps, percent of the baseline's; by faster tokens where "
            "arms' steps read different numbers of them."
        ),
    ),
    Column(
        key="gain.seconds",
        head="gain",
        value=gain_seconds,
        format="{:s_gain} s, {:s_gain} s",
        meaning="Both in seconds.",
    ),
)
