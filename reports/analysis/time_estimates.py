"""An experiment's time to target: the loss model over its budgets, the step times, and what both say per arm and against the
baseline."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from reports.analysis import samples
from reports.analysis.time_sequences import sequence
from reports.analysis.types import Decomposition, TimeEstimate, Warning
from reports.inputs.experiment import Experiment
from reports.stats.contrasts import Effect, Sample, block_means, correlation, paired, paired_t
from reports.stats.intervals import Estimate, Interval, total
from reports.stats.loss_model import LossModel, Slope, fit, local_window
from reports.stats.sequential import smallest_alpha
from reports.stats.time_sequences import attainable

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

    def log_step(self, arm: str) -> Estimate | None:
        """log of an arm's milliseconds per step; None for a single run, which has no error."""
        x = self.step[arm].values
        if len(x) < 2:
            return None
        return Estimate(value=float(x.mean()), se=float(x.std(ddof=1)) / math.sqrt(len(x)), df=len(x) - 1.0)

    def log_ratio(self, arm: str) -> Estimate | None:
        """log of time to target, arm over baseline: steps and step time by the delta method; None where not resolved.

        se is nan where a single timed run leaves none."""
        if self.model is None or arm not in self.arms[1:] or arm not in self.comparable:
            return None
        i, both = self.arms.index(arm), (arm, self.arms[0])
        unresolved = any(self.model.beta[j] >= 0 or self.model.theta_interval(j, 0.05) is None for j in (0, i))
        if unresolved or any(self.extrapolated(a) or not len(self.step[a].values) for a in both):
            return None
        delta, se, df, _ = paired_t(*(self.step[a] for a in both))
        return total(self.model.shift(i), Estimate(value=delta, se=se, df=df))

    def sequence(self, arms: tuple[str, ...], alpha: float, *, steps_only: bool = False) -> tuple[Interval | None, int]:
        """Anytime-valid: (interval of log time to target of an arm, or of the first over the second; blocks it rests on)."""
        assert self.model is not None
        step = None if steps_only else [block_means(self.step[a]) for a in arms]
        return sequence(self.runs, self.model, arms, alpha, step)

    def extrapolated(self, arm: str) -> bool:
        """Whether the arm's budgets do not bracket the target (with a given slope: N* is further than REACH from the budget)."""
        assert self.model is not None and self.target is not None
        theta = self.model.theta(self.arms.index(arm))
        if self.model.given:
            return abs(theta) > math.log(REACH)
        own = (self.runs["arm"] == arm).to_numpy()
        budget, loss = (self.runs[key].to_numpy(float)[own] for key in ("budget", "val_loss"))
        means = [loss[budget == b].mean() for b in np.unique(budget)]
        return not (min(means) <= self.target <= max(means))

    def time_sample(self, arm: str, seconds: float | None) -> Sample:
        """Time to target of the arm's runs with the arm's own N*: log seconds, for means and sd beside the comparison."""
        shift = math.log(seconds) - float(self.step[arm].values.mean()) if seconds else 0.0
        return Sample(values=self.step[arm].values + shift, blocks=self.step[arm].blocks)


def time_estimates(clock: Clock, *, anytime: bool = False) -> dict[str, TimeEstimate]:
    """N* and time to target of every arm that has runs; empty without a target."""
    if clock.target is None:
        return {}
    return {arm: _estimate(clock, arm, anytime) for arm in clock.arms}


def _estimate(clock: Clock, arm: str, anytime: bool) -> TimeEstimate:
    budgets = tuple(sorted(int(b) for b in set(clock.runs.loc[clock.runs["arm"] == arm, "budget"])))
    empty = dict(arm=arm, target=float(clock.target or 0.0), n_star=None, n_low=None, n_high=None, seconds=None, seconds_low=None,
                 seconds_high=None, slope=None, slope_se=None, slope_given=False, extrapolated=False,
                 budgets=budgets)  # fmt: skip
    if clock.model is None:
        return TimeEstimate(**empty, reason=clock.why_not, warnings=clock.warnings)  # type: ignore[arg-type]
    model, i = clock.model, clock.arms.index(arm)
    known = {"slope": float(model.beta[i]), "slope_se": model.slope_se(i), "slope_given": model.given}
    if model.theta_interval(i, 0.05) is None or model.beta[i] >= 0:
        reason = Warning.SLOPE_UNSURE.text
        return TimeEstimate(**{**empty, **known}, reason=reason, warnings=(*clock.warnings, Warning.SLOPE_UNSURE))  # type: ignore[arg-type]
    extrapolated, log_step = clock.extrapolated(arm), clock.step[arm].values
    log_seconds = model.log_steps(i).value + float(log_step.mean()) - math.log(1e3) if len(log_step) else None
    steps, seconds = _ends(clock, arm, anytime)
    found = {
        "n_star": math.exp(model.log_steps(i).value),
        "n_low": math.exp(steps[0]) if steps else None,
        "n_high": math.exp(steps[1]) if steps else None,
        "seconds": math.exp(log_seconds) if log_seconds is not None else None,
        "seconds_low": math.exp(seconds[0]) / 1e3 if seconds else None,
        "seconds_high": math.exp(seconds[1]) / 1e3 if seconds else None,
        "extrapolated": extrapolated,
    }
    warnings = (*clock.warnings, *((Warning.NOT_BRACKETED,) * extrapolated))
    return TimeEstimate(**{**empty, **known, **found}, reason="", warnings=warnings)  # type: ignore[arg-type]


def _ends(clock: Clock, arm: str, anytime: bool) -> tuple[Interval | None, Interval | None]:
    """95 % intervals of log N* and of log milliseconds to the target."""
    assert clock.model is not None
    if anytime:
        return clock.sequence((arm,), 0.05, steps_only=True)[0], clock.sequence((arm,), 0.05)[0]
    i, x0, log_step = clock.arms.index(arm), clock.model.x0, clock.log_step(arm)
    low, high = clock.model.theta_interval(i, 0.05) or (-math.inf, math.inf)
    return (x0 + low, x0 + high), total(clock.model.log_steps(i), log_step).interval(0.05) if log_step else None


def time_effects(clock: Clock, *, m: int, level: float, anytime: bool) -> dict[str, Effect]:
    """log time to target against the baseline, Bonferroni over m planned arms; only where both N* are resolved and bracketed."""
    effects = {}
    for arm in clock.arms[1:]:
        found = clock.log_ratio(arm)
        if found is None:
            continue
        alpha, pairing, known = (1 - level) / m, (clock.step[arm], clock.step[clock.arms[0]]), math.isfinite(found.se)
        if anytime:
            both = (arm, clock.arms[0])
            bounded, n = clock.sequence(both, alpha)
            ends = bounded or (-math.inf, math.inf)
            p, floor = smallest_alpha(lambda a, both=both: clock.sequence(both, a)[0]), attainable(n)  # type: ignore[misc]
            method = "anytime-valid t-mixture over the slope's sequence"
        else:
            ends, n = found.interval(alpha), len(paired(*pairing)[0])
            p, floor, method = found.p, 0.0, "local slope, delta method, Bonferroni"
        effects[arm] = Effect(
            delta=found.value, low=ends[0] if known else None, high=ends[1] if known else None,
            p=min(1.0, m * p) if known else None, p_attainable=min(1.0, m * floor) if known else None,
            df=found.df if known and not anytime else None, se=found.se if known else None, n_blocks=n,
            correlation=correlation(*pairing), method=method if known else "difference only",
        )  # fmt: skip
    return effects


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
