"""What an experiment's time to target is made of: the loss over its budgets, and its step times."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from harness.run.plan import Plan
from reports.analysis import samples
from reports.analysis.cautions import Caution
from reports.analysis.machines import is_cut, on_several_nodes
from reports.analysis.step_tokens import is_alike, step_tokens
from reports.analysis.time_sequences import sequence
from reports.inputs.experiment import Experiment, target_loss
from reports.inputs.noise import benchmark_noise
from reports.inputs.targets import without_its_block
from reports.stats.contrasts import Sample, block_means, paired_t
from reports.stats.intervals import Estimate, Interval, total
from reports.stats.loss_model import LossModel, Slope, fit, local_window

REACH = 1.2  # with a slope from outside, how far (as a factor of N) it may carry
ALPHA = 0.05  # of one arm's own interval


@dataclass(frozen=True, kw_only=True)
class TimeModel:
    """The model of loss against steps (None with the reason) and every arm's log step times."""

    arms: tuple[str, ...]  # those with runs; the baseline first
    target: float | None
    model: LossModel | None
    runs: pd.DataFrame  # finished loss runs in the local window of budgets
    step: Mapping[str, Sample]  # log(ms per step)
    comparable: frozenset[str]  # arms timed on the baseline's hardware
    why_not: str  # '' with a model
    warnings: tuple[Caution, ...]
    elsewhere: frozenset[str] = frozenset()  # arms timed on other nodes than the baseline
    is_cut: bool = False  # times of one seed come from several nodes
    step_tokens: Mapping[str, float] = field(default_factory=dict)  # where a step is no unit

    @classmethod
    def of(
        cls,
        experiment: Experiment,
        losses: pd.DataFrame,
        times_at: pd.DataFrame,
        arms: tuple[str, ...],
    ) -> "TimeModel":
        """From runs with an outcome.

        losses: of all budgets; times_at: timed runs at one budget; arms: the baseline first."""
        fitted = _fitted(experiment.plan, without_its_block(experiment.plan, losses), arms)
        step = {arm: samples.sample(times_at, arm, "step_ms") for arm in arms}
        comparable = [arm for arm in arms if samples.same_hardware(times_at, arm, arms[0])]
        elsewhere = [arm for arm in arms if on_several_nodes(times_at, arm, arms[0])]
        return cls(
            arms=fitted.arms,
            target=target_loss(experiment.plan),
            model=fitted.model,
            runs=fitted.runs,
            step=step,
            comparable=frozenset(comparable),
            elsewhere=frozenset(elsewhere),
            is_cut=is_cut(times_at),
            step_tokens=step_tokens(losses, arms),
            why_not=fitted.why_not,
            warnings=fitted.warnings,
        )

    def step_ratio(self, arm: str, other: str) -> float:
        """Tokens of an arm's step over those of another one's; 1 where both are as many."""
        if not {arm, other} <= {*self.step_tokens}:
            return 1.0
        ratio = self.step_tokens[arm] / self.step_tokens[other]
        return 1.0 if is_alike(ratio) else ratio

    def log_step(self, arm: str) -> Estimate | None:
        """log of an arm's milliseconds per step; None for a single run, which has no error.

        Where a seed's runs are on several nodes its error holds what one node may add."""
        x = self.step[arm].values
        if len(x) < 2:
            return None
        se = float(x.std(ddof=1)) / math.sqrt(len(x))
        of_runs = Estimate(value=float(x.mean()), se=se, df=len(x) - 1.0)
        if not self.is_cut:
            return of_runs
        nodes = benchmark_noise().nodes
        return total(of_runs, Estimate(value=0.0, se=nodes.sd, df=float(nodes.df)))

    def log_ratio(self, arm: str, other: str | None = None) -> Estimate | None:
        """log of time to target, arm over another one: steps and step time by the delta method.

        other: the baseline, if not given. None where not resolved; se is nan where a single timed
        run leaves none."""
        if self.model is None:
            return None
        baseline = other or self.arms[0]
        comparable = {self.arms[0], *self.comparable} & {*self.arms}
        if arm == baseline or not {arm, baseline} <= comparable:
            return None
        for name in (baseline, arm):
            if not self.resolved(name) or self.extrapolated(name):
                return None
            if not len(self.step[name].values):
                return None
        delta, se, df, n_blocks = paired_t(self.step[arm], self.step[baseline])
        shift = self.model.shift(self.arms.index(arm), self.arms.index(baseline))
        of_steps = Estimate(value=delta, se=se, df=df)
        if not n_blocks and {arm, baseline} & {*self.elsewhere}:
            of_steps = total(of_steps, benchmark_noise().nodes.of_two)
        return total(shift, of_steps)

    def resolved(self, arm: str) -> bool:
        """Whether the arm's slope is told apart from zero, and below it."""
        assert self.model is not None
        i = self.arms.index(arm)
        falls = bool(self.model.beta[i] < 0)
        return falls and self.model.theta_interval(i, ALPHA) is not None

    def sequence(
        self, arms: tuple[str, ...], alpha: float, *, steps_only: bool = False
    ) -> tuple[Interval | None, int]:
        """Anytime-valid: (interval of log time to target, blocks it rests on).

        arms: one, or the first over the second; steps_only: of log N* instead."""
        assert self.model is not None
        step = None
        if not steps_only:
            step = [block_means(self.step[arm]) for arm in arms]
        return sequence(self.runs, self.model, arms, alpha, step)

    def extrapolated(self, arm: str) -> bool:
        """Whether the arm's budgets do not bracket the target.

        With a given slope: whether N* is further than REACH from the budget."""
        assert self.model is not None and self.target is not None
        if self.model.given:
            theta = self.model.theta(self.arms.index(arm))
            return abs(theta) > math.log(REACH)
        of_arm = self.runs["arm"].to_numpy() == arm
        columns = (self.runs[name].to_numpy(float) for name in ("budget", "val_loss"))
        budget, loss = (column[of_arm] for column in columns)
        means = [loss[budget == b].mean() for b in np.unique(budget)]
        return not (min(means) <= self.target <= max(means))

    def time_sample(self, arm: str, seconds: float | None) -> Sample:
        """Time to target of the arm's runs with the arm's own N*: log seconds.

        For means and sd beside the comparison; seconds: the arm's time to target."""
        shift = 0.0
        if seconds:
            shift = math.log(seconds) - float(self.step[arm].values.mean())
        return Sample(values=self.step[arm].values + shift, blocks=self.step[arm].blocks)


@dataclass(frozen=True, kw_only=True)
class _FittedLoss:
    """The half of a TimeModel that is about losses."""

    arms: tuple[str, ...]
    runs: pd.DataFrame
    model: LossModel | None = None
    why_not: str = ""
    warnings: tuple[Caution, ...] = ()


def _fitted(plan: Plan, losses: pd.DataFrame, arms: tuple[str, ...]) -> _FittedLoss:
    """The local loss model, or why there is none."""
    done = losses[(losses["status"] == "finished") & losses["val_loss"].notna()]
    present = _those_with_runs(arms, done)
    why_not, target = "", target_loss(plan)
    if plan.target is None:
        why_not = "the experiment has no target loss"
    elif target is None:
        why_not = "the target is set by the baseline's first block, which is not finished"
    elif not present or present[0] != arms[0]:
        why_not = "the baseline has no finished run"
    elif (losses["status"] == "diverged").any():
        why_not = "runs diverged, so no mean loss against steps can be fitted"
    if target is None or why_not:
        return _FittedLoss(arms=present, runs=done, why_not=why_not)
    budgets, val_losses = done["budget"].to_numpy(float), done["val_loss"].to_numpy(float)
    window = local_window(budgets, val_losses, target)
    done = done[done["budget"].isin(window)]
    present = _those_with_runs(arms, done)
    model = fit(
        arm=np.array([present.index(arm) for arm in done["arm"]]),
        budget=done["budget"].to_numpy(float),
        loss=done["val_loss"].to_numpy(float),
        block=[None if pd.isna(block) else block for block in done["block"]],
        target=target,
        slope=slope_of(plan),
    )
    if model is not None:
        return _FittedLoss(arms=present, runs=done, model=model, warnings=_doubts(model))
    if len(window) > 1 or plan.slope:
        why_not = "too few runs for an error: add seeds"
        return _FittedLoss(arms=present, runs=done, why_not=why_not)
    return _FittedLoss(
        arms=present,
        runs=done,
        why_not=Caution.FEW_BUDGETS.text,
        warnings=(Caution.FEW_BUDGETS,),
    )


def _those_with_runs(arms: tuple[str, ...], runs: pd.DataFrame) -> tuple[str, ...]:
    present = set(runs["arm"])
    return tuple(arm for arm in arms if arm in present)


def slope_of(plan: Plan) -> Slope | None:
    """The slope that the experiment gives from outside."""
    if not plan.slope:
        return None
    per_step, se = float(plan.slope["per_step"]), float(plan.slope["se"])
    return Slope(per_step=per_step, se=se, source=str(plan.slope.get("source", "given")))


def _doubts(model: LossModel) -> tuple[Caution, ...]:
    doubts = []
    if model.given:
        doubts.append(Caution.SLOPE_GIVEN)
    if not model.common:
        doubts.append(Caution.SLOPES_DIFFER)
    return tuple(doubts)
