"""What each change contributes: alone, as its Shapley share, and as what is lost without it.

The three agree where changes add up and differ where they interact. Each is a contrast of arm
means, so that one rule gives its error, the covariance of shared runs included. From complete
blocks: the larger error of the two-way model arm + block (reports/stats/two_way.py), and the
t-mixture of the contrast within blocks before or beyond the planned seeds. Steps and seconds to
target come from the loss model over budgets (reports/stats/loss_model.py) by the delta method, with
planned seeds alone. Intervals hold for all changes of a column at once (Bonferroni). Main effects
and interactions: reports/analysis/interactions.py.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import pandas as pd

from reports.analysis import samples
from reports.analysis.judges import Judge, Judged, Share, blocked, share
from reports.analysis.machines import cut_by_node, within_sessions
from reports.analysis.set_contrasts import (
    NOTHING,
    Contrast,
    Subset,
    added_contrasts,
    alone_contrasts,
    left_out_contrasts,
    rung_contrasts,
    shapley_contrasts,
)
from reports.analysis.time_model import TimeModel
from reports.analysis.worth import Worth, of_one_length, worth_judges
from reports.inputs.experiment import Experiment
from reports.stats.intervals import Estimate, total
from reports.stats.loss_model import LossModel

Columns = Mapping[str, Mapping[str, Contrast]]  # column -> change -> its contrast

COMPLETE = ("factorial", "shapley")  # designs that run every subset that can stand
LARGEST = (*COMPLETE, "leave-one-out")  # designs in which a change leaves with what needs it
COLUMNS = ("alone", "in_order", "shapley", "left_out")


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """The table of one metric."""

    metric: str  # val_loss, steps or tokens, seconds
    unit: str
    shares: Mapping[str, Mapping[str, Share]]  # change -> column -> Share, a missing one unknown
    leaves_with: Mapping[str, tuple[str, ...]]  # what goes with a change, because it needs it
    total: Share | None  # all changes together
    note: str
    title: str = ""  # what it is called, where that is not the metric's own


def attributions(experiment: Experiment, *, level: float = 0.95) -> list[Attribution]:
    """The tables there are to show: loss, steps to target, seconds.

    [] where the design has no two ways to compare, and the changes are not parts of a bundle."""
    plan = experiment.plan
    if experiment.memory.lost:
        return []  # a contrast of arms of which one is not judged
    every = {frozenset(arm.changes): arm.name for arm in samples.arms_off_the_axes(plan)}
    losses = samples.of_role(samples.usable(experiment).runs, "loss")
    arms = of_one_length(losses, plan, every)
    columns = contrasts_of(plan.design, arms, is_bundle=plan.is_bundle)
    ways: Counter[str] = Counter()
    for contrasts in columns.values():
        ways.update(contrasts.keys())
    # A ladder knows its first change alone and its last one left out: nothing to compare.
    is_told = plan.is_bundle or plan.design == "leave-one-out"
    if max(ways.values(), default=0) < (1 if is_told else 2):
        return []
    level = experiment.memory.level(level, len(plan.arms) - 1)
    tables = []
    worth = Worth.of(losses, plan, every)
    for judged in _judged_metrics(experiment, [*arms.values()], worth):
        if judged.judge is not None:
            tables.append(_tabulated(judged, judged.judge, columns, arms, level))
    return tables


def _judged_metrics(experiment: Experiment, names: list[str], worth: Worth | None) -> list[Judged]:
    """The loss, then the times; names: of the arms that contrasts are made of.

    worth: of a loss in steps and seconds, where arms of another length tell it."""
    use = samples.usable(experiment)
    losses = samples.of_role(use.runs, "loss")
    losses_at = samples.at_budget(losses, samples.shared_budget(losses, use.arms))
    times = samples.of_role(use.runs, "timing")
    timed = samples.at_budget(times, samples.shared_budget(use.runs, use.arms))
    times_at = cut_by_node(within_sessions(timed))
    anytime = samples.watched(experiment)
    of_loss = blocked(losses_at, "val_loss", names, anytime=anytime)
    if worth is not None:
        return [
            Judged(metric="val_loss", unit=experiment.plan.corpus.unit, judge=of_loss),
            *worth_judges(worth, losses_at, names, anytime=anytime),
        ]
    time_model = TimeModel.of(experiment, losses, times_at, use.arms)
    return [
        Judged(metric="val_loss", unit=experiment.plan.corpus.unit, judge=of_loss),
        *time_judges(time_model, times_at, names, anytime=anytime),
    ]


def contrasts_of(design: str, arms: Mapping[Subset, str], *, is_bundle: bool = False) -> Columns:
    """Column -> change -> contrast over sets, the columns that an experiment's arms can fill.

    is_bundle: the changes are parts of a bundle, of which every design tells what it can."""
    changes = _changes_of(arms)
    if len(changes) < (1 if is_bundle else 2):
        return {}
    if is_bundle and design == "ladder":
        return {"in_order": rung_contrasts(arms)}
    if is_bundle and design == "add-one":
        return {"alone": added_contrasts(arms, changes)}
    columns = {"alone": alone_contrasts(arms, changes)}
    if design in COMPLETE:
        columns["shapley"] = shapley_contrasts(arms, changes)
    columns["left_out"] = left_out_contrasts(arms, changes, with_what_needs_it=design in LARGEST)
    return {name: contrasts for name, contrasts in columns.items() if contrasts}


def _changes_of(sets: Iterable[Subset]) -> list[str]:
    """In the order of the sets."""
    changes: dict[str, None] = {}
    for s in sets:
        changes |= dict.fromkeys(sorted(s))
    return [*changes]


def _tabulated(
    judged: Judged, judge: Judge, columns: Columns, arms: Mapping[Subset, str], level: float
) -> Attribution:
    """arms: the name of every set of changes; level: simultaneous over a column."""
    changes = _changes_of(arms)
    everything = frozenset(changes)
    rows = columns.get("in_order", changes)
    shares: dict[str, dict[str, Share]] = {row: {} for row in rows}
    for column, contrasts in columns.items():
        alpha = (1 - level) / len(contrasts)
        for change, contrast in contrasts.items():
            named = {arms[s]: float(weight) for s, weight in contrast.items()}
            shares[change][column] = judge(named, alpha)
    leaves_with = {}
    for column in ("alone", "left_out"):
        for change, contrast in columns.get(column, {}).items():
            rest, whole = sorted(contrast, key=len)
            leaves_with[change] = tuple(sorted(whole - rest - {change}))
    together = None
    if everything in arms:
        together = judge({arms[everything]: 1.0, arms[NOTHING]: -1.0}, 1 - level)
    return Attribution(
        metric=judged.metric,
        unit=judged.unit,
        shares=shares,
        leaves_with=leaves_with,
        total=together,
        note=judged.note,
        title=judged.title,
    )


def time_judges(
    time_model: TimeModel, times_at: pd.DataFrame, arms: list[str], *, anytime: bool
) -> list[Judged]:
    """Steps and seconds to target where they are resolved for every arm; else at equal steps.

    Tokens in place of steps, of arms whose steps read different numbers of them.
    times_at: timed runs at one budget, for seconds at equal steps."""
    model = time_model.model
    if model is None or not all(_is_resolved(time_model, model, arm) for arm in arms):
        judge = blocked(times_at, "train_time_s", arms, anytime=anytime)
        note = (
            "at equal steps (steps to target are not resolved for every arm), as differences of"
            " mean seconds, where the table of verdicts has ratios within blocks"
        )
        return [Judged(metric="seconds", unit="s", judge=judge, note=note, title="training time")]
    times = _ResolvedTimes.of(time_model, model, arms, anytime=anytime)
    length = "tokens" if time_model.step_tokens else "steps"
    judges = [
        Judged(
            metric=length,
            unit=length,
            judge=times.judge_length,
            note="to the target",
            title=f"{length} to target",
        )
    ]
    if len(times.log_step) == len(arms):
        of_seconds = replace(
            judges[0], metric="seconds", unit="s", judge=times.judge_seconds, title="time to target"
        )
        judges.append(of_seconds)
    return judges


def _is_resolved(time_model: TimeModel, model: LossModel, arm: str) -> bool:
    if arm not in time_model.arms or time_model.extrapolated(arm):
        return False
    return bool(model.beta[time_model.arms.index(arm)] < 0)


@dataclass(frozen=True, kw_only=True)
class _ResolvedTimes:
    """Every arm's steps to target, and its step time where that has an error."""

    model: LossModel
    place: Mapping[str, int]  # of an arm in the model
    steps: Mapping[str, float]
    step_tokens: Mapping[str, float]  # {} where steps are told
    log_step: Mapping[str, Estimate]  # milliseconds
    anytime: bool

    @classmethod
    def of(
        cls, time_model: TimeModel, model: LossModel, arms: list[str], *, anytime: bool
    ) -> "_ResolvedTimes":
        place, steps, log_step = {}, {}, {}
        for arm in arms:
            place[arm] = time_model.arms.index(arm)
            steps[arm] = math.exp(model.log_steps(place[arm]).value)
            of_arm = time_model.log_step(arm)
            if of_arm is not None:
                log_step[arm] = of_arm
        return cls(
            model=model,
            place=place,
            steps=steps,
            step_tokens=time_model.step_tokens,
            log_step=log_step,
            anytime=anytime,
        )

    def judge_length(self, contrast: Mapping[str, float], alpha: float) -> Share:
        """A contrast of the arms' steps, or of their tokens."""
        parts = {}
        for arm, weight in contrast.items():
            parts[arm] = weight * self.steps[arm] * self.step_tokens.get(arm, 1.0)
        return self._sum(parts, [], alpha)

    def judge_seconds(self, contrast: Mapping[str, float], alpha: float) -> Share:
        """A contrast of the arms' seconds."""
        parts, of_step_times = {}, []
        for arm, weight in contrast.items():
            log_step = self.log_step[arm]
            part = weight * self.steps[arm] * math.exp(log_step.value) / 1e3
            parts[arm] = part
            of_step_times.append(Estimate(value=0.0, se=abs(part) * log_step.se, df=log_step.df))
        return self._sum(parts, of_step_times, alpha)

    def _sum(self, parts: Mapping[str, float], errors: list[Estimate], alpha: float) -> Share:
        """Sum of parts, each the arm's own steps or seconds times its weight.

        errors: beside that of the steps."""
        value = math.fsum(parts.values())
        if self.anytime:
            return share(value)
        se, df = self.model.error_of({self.place[arm]: part for arm, part in parts.items()})
        whole = total(Estimate(value=value, se=se, df=df), *errors)
        # Satterthwaite's df of a few parts with few df each promise too much
        least = min(df, *(error.df for error in errors)) if errors else df
        return share(value, *replace(whole, df=least).interval(alpha))
