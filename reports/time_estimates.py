"""An experiment's time to target: the loss model over its budgets, the step times, and what both say per arm and against the
baseline."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from reports import samples
from reports.contrasts import Effect, Sample, correlation, paired, paired_t
from reports.intervals import Interval, add_intervals, p_of_interval
from reports.loss_model import LossModel, Slope, fit, local_window
from reports.published import Estimate
from reports.sequential import attainable_p, t_mixture
from reports.types import Decomposition, Experiment, TimeEstimate, Warning

REACH = 1.2  # with a slope from outside, how far (as a factor of N) it may carry


@dataclass(frozen=True, kw_only=True)
class Clock:
    """What time to target is made of: the model of loss against steps (None with the reason) and every arm's log step times."""

    arms: tuple[str, ...]  # those with runs; the baseline first
    target: float | None
    model: LossModel | None
    runs: pd.DataFrame  # finished loss runs in the local window of budgets
    step: Mapping[str, Sample]  # log(ms per step)
    comparable: frozenset[str]  # arms timed on the baseline's hardware
    why_not: str  # '' with a model
    warnings: tuple[Warning, ...]

    @classmethod
    def of(cls, experiment: Experiment, losses: pd.DataFrame, times_at: pd.DataFrame, arms: tuple[str, ...]) -> "Clock":
        plan = experiment.plan
        target = (plan.get("target") or {}).get("val_loss")
        done = losses[(losses["status"] == "finished") & losses["val_loss"].notna()]
        here = tuple(a for a in arms if (done["arm"] == a).any())
        step = {a: samples.sample(times_at, a, "step_ms") for a in arms}
        comparable = frozenset(a for a in arms if samples.same_hardware(times_at, a, arms[0]))
        warnings: tuple[Warning, ...] = ()
        model, why = None, ""
        if target is None:
            why = "the experiment has no target loss"
        elif not here or here[0] != arms[0]:
            why = "the baseline has no finished run"
        elif (losses["status"] == "diverged").any():
            why = "runs diverged, so no mean loss against steps can be fitted"
        else:
            window = local_window(done["budget"].to_numpy(float), done["val_loss"].to_numpy(float), target)
            done = done[done["budget"].isin(window)]
            here = tuple(a for a in here if (done["arm"] == a).any())
            given = plan.get("slope")
            slope = None if not given else Slope(per_step=given["per_step"], se=given["se"], source=given.get("source", "given"))
            model = fit(
                arm=np.array([here.index(a) for a in done["arm"]]),
                budget=done["budget"].to_numpy(float),
                loss=done["val_loss"].to_numpy(float),
                block=[None if pd.isna(b) else b for b in done["block"]],
                target=target,
                slope=slope,
            )
            if model is None:
                several = len(window) > 1
                why = "too few runs for an error: add seeds" if several or slope else Warning.FEW_BUDGETS.text
                warnings = () if several or slope else (Warning.FEW_BUDGETS,)
            else:
                warnings = (Warning.SLOPE_GIVEN,) * model.given + (Warning.SLOPES_DIFFER,) * (not model.common)
        return cls(
            arms=here, target=target, model=model, runs=done, step=step, comparable=comparable, why_not=why, warnings=warnings
        )

    def log_step(self, arm: str, alpha: float = 0.05) -> tuple[float, Interval | None]:
        x = self.step[arm].values
        if len(x) < 2:
            return (float(x.mean()) if len(x) else math.nan), None
        half = stats.t.isf(alpha / 2, len(x) - 1) * x.std(ddof=1) / math.sqrt(len(x))
        return float(x.mean()), (float(x.mean() - half), float(x.mean() + half))

    def log_ratio(self, arm: str, alpha: float) -> tuple[float, Interval | None]:
        """log of time to target, arm over baseline, with its interval at 1 - alpha; None where not resolved."""
        assert self.model is not None
        i = self.arms.index(arm)
        own, base = self.step[arm], self.step[self.arms[0]]
        delta, se, df, _ = paired_t(own, base)
        steps = self.model.shift_interval(i, alpha)
        estimate = self.model.shift(i) + delta
        if steps is None or not math.isfinite(se):
            return estimate, None
        half = stats.t.isf(alpha / 2, df) * se
        return estimate, add_intervals((self.model.shift(i), steps), (delta, (delta - half, delta + half)))

    def log_ratio_estimate(self, arm: str) -> Estimate | None:
        """The same as estimate and standard error, for the comparison with a published ratio."""
        if self.model is None or arm not in self.arms[1:] or arm not in self.comparable:
            return None
        value, ends = self.log_ratio(arm, 0.05)
        if ends is None or any(self.extrapolated(a) for a in (arm, self.arms[0])):
            return None
        df = self.model.shift_df(self.arms.index(arm))
        return Estimate(value=value, se=(ends[1] - ends[0]) / 2 / float(stats.t.isf(0.025, df)), df=df)

    def extrapolated(self, arm: str) -> bool:
        """Whether the arm's budgets do not bracket the target (with a given slope: N* is further than REACH from the budget)."""
        assert self.model is not None and self.target is not None
        own = self.runs[self.runs["arm"] == arm]
        theta = self.model.theta(self.arms.index(arm))
        if self.model.given:
            return abs(theta) > math.log(REACH)
        means = own.groupby("budget")["val_loss"].mean()
        return not (means.min() <= self.target <= means.max())

    def time_sample(self, arm: str, seconds: float | None) -> Sample:
        """Time to target of the arm's runs with the arm's own N*: log seconds, for means and sd beside the comparison."""
        shift = math.log(seconds) - float(self.step[arm].values.mean()) if seconds else 0.0
        return Sample(values=self.step[arm].values + shift, blocks=self.step[arm].blocks)


def time_estimates(clock: Clock) -> dict[str, TimeEstimate]:
    """N* and time to target of every arm that has runs; empty without a target."""
    if clock.target is None:
        return {}
    return {arm: _estimate(clock, arm) for arm in clock.arms}


def _estimate(clock: Clock, arm: str) -> TimeEstimate:
    budgets = tuple(sorted(int(b) for b in set(clock.runs.loc[clock.runs["arm"] == arm, "budget"])))
    empty = dict(arm=arm, target=float(clock.target or 0.0), n_star=None, n_low=None, n_high=None, seconds=None, seconds_low=None,
                 seconds_high=None, slope=None, slope_se=None, slope_given=False, extrapolated=False,
                 budgets=budgets)  # fmt: skip
    if clock.model is None:
        return TimeEstimate(**empty, reason=clock.why_not, warnings=clock.warnings)  # type: ignore[arg-type]
    model, i = clock.model, clock.arms.index(arm)
    known = {"slope": float(model.beta[i]), "slope_se": model.slope_se(i), "slope_given": model.given}
    steps = model.theta_interval(i, 0.05)
    if steps is None or model.beta[i] >= 0:
        reason = Warning.SLOPE_UNSURE.text
        return TimeEstimate(**{**empty, **known}, reason=reason, warnings=(*clock.warnings, Warning.SLOPE_UNSURE))  # type: ignore[arg-type]
    theta, extrapolated = model.theta(i), clock.extrapolated(arm)
    log_step, step_ends = clock.log_step(arm)
    to_seconds = model.x0 + math.log(1e-3)
    ends = None if step_ends is None else add_intervals((theta, steps), (log_step, step_ends))
    found = {
        "n_star": math.exp(model.x0 + theta),
        "n_low": math.exp(model.x0 + steps[0]),
        "n_high": math.exp(model.x0 + steps[1]),
        "seconds": math.exp(to_seconds + theta + log_step) if math.isfinite(log_step) else None,
        "seconds_low": math.exp(to_seconds + ends[0]) if ends else None,
        "seconds_high": math.exp(to_seconds + ends[1]) if ends else None,
        "extrapolated": extrapolated,
    }
    warnings = (*clock.warnings, *((Warning.NOT_BRACKETED,) * extrapolated))
    return TimeEstimate(**{**empty, **known, **found}, reason="", warnings=warnings)  # type: ignore[arg-type]


def time_effects(
    clock: Clock, estimates: Mapping[str, TimeEstimate], *, m: int, level: float, anytime: bool
) -> dict[str, Effect]:
    """log time to target against the baseline, Bonferroni over m planned arms; only where both N* are resolved and bracketed."""
    if clock.model is None or not clock.arms:
        return {}
    good = [a for a in clock.arms if estimates[a].seconds is not None and not estimates[a].extrapolated and a in clock.comparable]
    if clock.arms[0] not in good:
        return {}
    out = {}
    for arm in good[1:]:
        alpha = (1 - level) / m
        base, df = clock.step[clock.arms[0]], clock.model.shift_df(clock.arms.index(arm))
        value, ends = clock.log_ratio(arm, alpha)
        if anytime:
            out[arm] = _sequence(clock, arm, alpha, m)
            continue
        p = p_of_interval(lambda a, arm=arm: clock.log_ratio(arm, a)[1]) if ends else None  # type: ignore[misc]
        out[arm] = Effect(
            delta=value, low=ends[0] if ends else None, high=ends[1] if ends else None,
            p=min(1.0, m * p) if p is not None else None, p_attainable=0.0 if ends else None,
            se=(ends[1] - ends[0]) / 2 / float(stats.t.isf(alpha / 2, df)) if ends else None,
            method="local slope, Fieller, Bonferroni" if ends else "difference only", df=df,
            n_blocks=len(paired(clock.step[arm], base)[0]), correlation=correlation(clock.step[arm], base),
        )  # fmt: skip
    return out


def _sequence(clock: Clock, arm: str, alpha: float, m: int) -> Effect:
    """Anytime-valid: per shared block the log ratio from its mean losses and step times, at the fitted slope."""
    assert clock.model is not None
    i, base = clock.arms.index(arm), clock.arms[0]

    def per_block(name: str, j: int) -> Sample:
        own = clock.runs[(clock.runs["arm"] == name) & clock.runs["block"].notna()]
        mean = own.groupby("block")["val_loss"].mean() / -float(clock.model.beta[j])  # type: ignore[union-attr]
        step = dict(zip(clock.step[name].blocks, clock.step[name].values, strict=True))
        average = float(clock.step[name].values.mean())
        return Sample(
            values=mean.to_numpy(float) + np.array([step.get(b, average) for b in mean.index]), blocks=tuple(mean.index)
        )

    a, b = paired(per_block(arm, i), per_block(base, 0))
    n, d = len(a), a - b
    low, high, p = t_mixture(d, alpha)
    known = n >= 2 and bool(d.std(ddof=1) > 0)
    return Effect(
        delta=float(d.mean()) if n else clock.log_ratio(arm, alpha)[0], low=low if known else None, high=high if known else None,
        p=min(1.0, m * p) if known else None, p_attainable=min(1.0, m * attainable_p(n)) if known else None, df=None,
        se=float(d.std(ddof=1) / math.sqrt(n)) if known else None, n_blocks=n, correlation=None,
        method="anytime-valid t-mixture at the fitted slope",
    )  # fmt: skip


def decompose(n_baseline: float, s_baseline: float, n_arm: float, s_arm: float) -> tuple[float, float]:
    """(learning, systems) parts of n_arm * s_arm - n_baseline * s_baseline: mid-points, so that they sum exactly."""
    learning = (s_arm + s_baseline) / 2 * (n_arm - n_baseline)
    return learning, (n_arm + n_baseline) / 2 * (s_arm - s_baseline)


def decompositions(
    clock: Clock, estimates: Mapping[str, TimeEstimate], times_at: pd.DataFrame, budget: int | None
) -> dict[str, Decomposition]:
    """Learning and systems gain of every arm timed on the baseline's hardware."""
    out: dict[str, Decomposition] = {}
    baseline = next(iter(clock.step))
    for arm in list(clock.step)[1:]:
        if arm not in clock.comparable or not len(clock.step[arm].values) or not len(clock.step[baseline].values):
            continue
        s0, s1 = (float(np.exp(clock.step[a].values.mean())) / 1e3 for a in (baseline, arm))
        pair = [estimates.get(a) for a in (baseline, arm)]
        resolved = all(e is not None and e.n_star is not None and not e.extrapolated for e in pair)
        if resolved:
            n0, n1 = (float(e.n_star) for e in pair)  # type: ignore[union-attr,arg-type]
            note = f"steps to reach {clock.target:g}"
        else:
            own = [times_at.loc[times_at["arm"] == a, "steps"].dropna() for a in (baseline, arm)]
            if not all(map(len, own)):
                continue
            n0, n1 = float(budget or own[0].mean()), float(budget or own[1].mean())
            note = "at the steps that were run; what learning gained is not resolved in time"
            if n0 != n1:
                note = "at each arm's own steps, whatever loss they reach"
                resolved = True
        learning, systems = decompose(n0, s0, n1, s1)
        t0 = n0 * s0
        out[arm] = Decomposition(
            arm=arm, learning_s=learning if resolved else None, systems_s=systems,
            total_s=learning + systems if resolved else systems,
            learning_percent=100 * learning / t0 if resolved else None, systems_percent=100 * systems / t0,
            total_percent=100 * ((learning + systems) if resolved else systems) / t0, n_baseline=n0, n_arm=n1,
            step_ms_baseline=s0 * 1e3, step_ms_arm=s1 * 1e3, note=note,
        )  # fmt: skip
    return out
