"""compare_all: an experiment's runs in, everything the page prints out. Thin: the mathematics lives in the modules it calls."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from reports.analysis import samples
from reports.analysis.published import not_at_full_size, own_arm, published_verdict
from reports.analysis.time_estimates import Clock, decompositions, time_effects, time_estimates
from reports.analysis.types import (
    LOSSES,
    METRICS,
    UNITS,
    Cell,
    Comparison,
    Comparisons,
    NoiseFloor,
    PublishedVerdict,
    Warning,
)
from reports.inputs.experiment import Experiment
from reports.inputs.published import predecessor
from reports.stats.contrasts import Effect, Sample, analyse, block_means, correlation, paired
from reports.stats.intervals import Estimate
from reports.stats.outcomes import exact_rate
from reports.stats.sequential import attainable_p, independent_t_mixture, rate_sequence, t_mixture
from reports.stats.time_sequences import SHARE
from reports.stats.unblocked import more_runs
from reports.stats.verdicts import enough_for_sequence, enough_to_permute, verdict

ONE_SIDED = float(stats.norm.isf(0.05))  # turns a sequence's reach into the se of which two one-sided tests ask so much
PRIMARY = {"val_loss": "val_loss", "step_time": "step_ms", "time_to_target": "time_to_target"}
ENVIRONMENT_RECORDS = {"r07": "record 7 is a change of torch version: it needs an arm with that environment"}


def compare_all(experiment: Experiment, *, level: float = 0.95) -> Comparisons:
    """Every number of the page by the one declared analysis; raises ValueError where the runs cannot be compared at all."""
    plan, use = experiment.plan, samples.usable(experiment)
    baseline, arms = use.arms[0], use.arms[1:]
    losses, times = samples.of_role(use.runs, "loss"), samples.of_role(use.runs, "timing")
    budget, time_budget = samples.shared_budget(losses, use.arms), samples.shared_budget(times, use.arms)
    losses_at, times_at = samples.at_budget(losses, budget), samples.at_budget(times, time_budget)
    adaptive, unfinished = bool(plan.get("seeds_rule")), samples.pending(experiment) > 0
    extended = samples.extended(plan) and not adaptive  # a rule adds seeds as planned
    anytime = samples.watched(experiment)
    looks = max(1, int(plan.get("looks") or 1))
    primary, warnings, notes = PRIMARY[plan.get("primary") or "val_loss"], list(use.warnings), []
    warnings += [Warning.UNFINISHED] * unfinished + [Warning.EXTENDED] * extended
    if not samples.two_phase_verified(experiment, use.runs, baseline):
        warnings.append(Warning.TWO_PHASE_UNVERIFIED)
    if not plan.get("confirm"):
        warnings.append(Warning.EXPLORATORY)

    comparisons: dict[tuple[str, str], Comparison] = {}
    published_effect = None
    declared = {a["name"]: a for a in plan["arms"]}
    noisy = frozenset(name for name, a in declared.items() if a.get("alters_noise"))
    context = dict(plan=plan, declared=declared, anytime=anytime, looks=looks, level=level)
    for metric in METRICS[:-1]:  # time to target is estimated below
        table = losses_at if metric in LOSSES else times_at
        base = samples.sample(table, baseline, metric)
        present = {arm: samples.sample(table, arm, metric) for arm in arms}
        present = {arm: s for arm, s in present.items() if len(s.values) and len(base.values)}
        if metric not in LOSSES:
            present = {arm: s for arm, s in present.items() if samples.same_hardware(table, arm, baseline)}
        if anytime:
            effects, m = sequences(present, base, m=len(arms), level=level), len(arms)
        else:
            effects, m = analyse(present, base, level=level, alters_noise=noisy), len(present)
        for arm, effect in effects.items():
            comparisons[arm, metric] = _comparison(metric, arm, baseline, effect, present[arm], base, table, context, m=m)
    if samples.unequal_noise([samples.sample(losses_at, a, "val_loss") for a in use.arms]):
        warnings.append(Warning.UNEQUAL_NOISE)
    if any(not samples.same_hardware(times_at, arm, baseline) for arm in arms):
        warnings.append(Warning.MIXED_HARDWARE)

    clock = Clock.of(experiment, losses, times_at, use.arms)
    estimates = time_estimates(clock, anytime=anytime)
    for arm, effect in time_effects(clock, m=len(arms), level=level, anytime=anytime).items():
        own, base = (clock.time_sample(a, estimates[a].seconds) for a in (arm, baseline))
        comparisons[arm, "time_to_target"] = _comparison("time_to_target", arm, baseline, effect, own, base, times_at, context,
                                                         m=len(arms), extra=estimates[arm].warnings)  # fmt: skip
    if primary == "time_to_target" and not any(metric == primary for _, metric in comparisons):
        primary = "val_loss"
        notes.append("Time to target is not resolved for any arm, so the loss at equal steps decides: " + clock.why_not)
    notes += [f"{a['name']}: environment effect: {a['environment_effect']}." for a in plan["arms"] if a.get("environment_effect")]
    try:
        published_effect = _published(experiment, clock, anytime)
    except ValueError as error:
        notes.append(f"No published delta beside ours: {error}.")
    for arm in arms:
        rows = losses_at[losses_at["arm"] == arm]
        if len(rows) and (rows["status"] == "diverged").all():
            notes.append(f"All {len(rows)} runs of {arm} diverged: there is no loss to compare, see the outcomes.")
    if budget is None and len(losses):
        notes.append("The arms share no number of steps: losses are compared where each arm's own schedule ends.")
    return Comparisons(
        baseline=baseline,
        arms=arms,
        primary=primary,
        cells={arm: _cell(experiment, losses_at, times_at, arm, anytime) for arm in use.arms},
        comparisons=comparisons,
        times=estimates,
        decompositions=decompositions(clock, estimates, times_at, budget),
        noise=noise_floor(samples.sample(losses_at, baseline, "val_loss").values, anytime=anytime),
        published=published_effect,
        anytime=anytime,
        looks=looks,
        budget=budget,
        warnings=tuple(dict.fromkeys(warnings)),
        notes=tuple(notes),
    )


def sequences(arms: Mapping[str, Sample], baseline: Sample, *, m: int, level: float) -> dict[str, Effect]:
    """Anytime-valid effects at alpha / m each for m planned arms: on paired differences where two blocks are shared, else
    on independent samples."""
    out = {}
    for name, arm in arms.items():
        a, b = paired(arm, baseline)
        n, alpha = len(a), (1 - level) / m
        if n >= 2:
            d = a - b
            low, high, p = t_mixture(d, alpha)
            delta, se, floor = float(d.mean()), float(d.std(ddof=1) / math.sqrt(n)), attainable_p(n)
        else:
            delta, n = float(arm.values.mean() - baseline.values.mean()), 0
            low, high = independent_t_mixture(arm.values, baseline.values, alpha)
            p = se = floor = math.nan
        known = se > 0 if n else math.isfinite(low) or min(len(arm.values), len(baseline.values)) > 1
        diverged = arm.n_diverged or baseline.n_diverged
        out[name] = Effect(
            delta=delta,
            low=low if known and not diverged else None,
            high=high if known and not diverged else None,
            p=min(1.0, m * p) if known and n and not diverged else None,
            p_attainable=min(1.0, m * floor) if known and n else None,
            df=None,
            se=se if known and n else None,
            method="anytime-valid t-mixture" if known else "difference only",
            n_blocks=n,
            correlation=correlation(arm, baseline),
        )
    return out


def _comparison(
    metric: str, arm: str, baseline: str, effect: Effect, own: Sample, base: Sample, table: pd.DataFrame,
    context: Mapping[str, Any], *, m: int, extra: tuple[Warning, ...] = (),
) -> Comparison:  # fmt: skip
    plan, is_loss = context["plan"], metric in LOSSES
    (mean_arm, sd_arm), (mean_base, sd_base) = (samples.mean_sd(s.values if is_loss else np.exp(s.values)) for s in (own, base))
    reference = 1.0 if is_loss else float(np.exp(base.values.mean()))
    n = effect.n_blocks or min(len(own.values) + own.n_diverged, len(base.values) + base.n_diverged)
    alpha, permuted = 1 - context["level"], "permuted" in effect.method
    share = SHARE if metric == "time_to_target" else 1.0  # the slope's sequence takes the rest
    enough = enough_for_sequence(m, alpha * share) if context["anytime"] else enough_to_permute(m, alpha) if permuted else 2
    refused = effect.low is None and effect.p_attainable == 1.0 and not context["anytime"] and not permuted
    if refused:
        enough = n + more_runs(len(own.values), len(base.values), alpha / m)
    primary = PRIMARY[plan.get("primary") or "val_loss"] == metric
    margin = plan.get("margin") if primary else None

    def to_unit(value: float | None) -> float | None:
        return value if value is None or is_loss or math.isinf(value) else reference * math.expm1(min(value, 700.0))

    words = verdict(
        metric=metric, delta=effect.delta, low=to_unit(effect.low), high=to_unit(effect.high), se=effect.se, n=n, margin=margin,
        p_attainable=effect.p_attainable, enough=enough, n_arms=m, anytime=context["anytime"], scale=reference,
        unit=f" {UNITS[metric]}", level=context["level"], n_budgets=max(1, len(plan.get("budgets") or ())),
    )  # fmt: skip

    def to_ratio(value: float | None) -> float | None:
        return None if value is None or is_loss else math.exp(value) if value < 700 else math.inf

    warnings = list(extra)
    if is_loss:
        warnings += [Warning.DIVERGED] * bool(own.n_diverged + base.n_diverged)
        warnings += [Warning.ZERO_VARIANCE] * any(len(x.values) > 1 and not np.ptp(x.values) for x in (own, base))
        warnings += [Warning.OUTLIER] * bool(samples.outliers(table, arm) or samples.outliers(table, baseline))
    else:
        warnings += samples.time_warnings(table, arm, baseline)
    if effect.n_blocks == 0 and not permuted and n > 1:
        warnings += [Warning.NOT_BLOCKED, *(Warning.FEW_UNBLOCKED,) * refused]
    elif not permuted and set(block_means(own)) != set(block_means(base)):
        warnings.append(Warning.MISSING_CELLS)
    if n >= 2 and effect.low is None and not permuted and not refused and not (own.n_diverged + base.n_diverged):
        warnings.append(Warning.ZERO_VARIANCE)
    return Comparison(
        arm=arm, baseline=baseline, metric=metric, unit=UNITS[metric],
        n_arm=len(own.values) + own.n_diverged, n_baseline=len(base.values) + base.n_diverged, n_blocks=effect.n_blocks,
        mean_arm=mean_arm, mean_baseline=mean_base, sd_arm=sd_arm, sd_baseline=sd_base,
        delta=to_unit(effect.delta) or 0.0, low=to_unit(effect.low), high=to_unit(effect.high),
        ratio=to_ratio(effect.delta), ratio_low=to_ratio(effect.low), ratio_high=to_ratio(effect.high),
        level=context["level"], n_comparisons=m, method=effect.method, p=effect.p, p_attainable=effect.p_attainable, df=effect.df,
        correlation=effect.correlation, looks=context["looks"], exploratory=not plan.get("confirm"),
        estimand=context["declared"][arm].get("estimand") or "at-rate", verdict=words.text, kind=words.kind,  # type: ignore[arg-type]
        more_seeds=words.more_seeds, next_action=words.next_action, next_runs=words.next_runs,
        warnings=tuple(dict.fromkeys(warnings)),
    )  # fmt: skip


def noise_floor(values: np.ndarray, level: float = 0.95, *, anytime: bool = False) -> NoiseFloor:
    """sd of the baseline's losses with the chi square interval, which holds for a planned number of runs only."""
    n, (_, sd) = len(values), samples.mean_sd(values)
    if sd is None or anytime:
        return NoiseFloor(n=n, sd=sd, low=None, high=None)
    low, high = (sd * math.sqrt((n - 1) / stats.chi2.ppf(q, n - 1)) for q in ((1 + level) / 2, (1 - level) / 2))
    return NoiseFloor(n=n, sd=sd, low=low, high=high)


def _cell(experiment: Experiment, losses: pd.DataFrame, times: pd.DataFrame, arm: str, anytime: bool) -> Cell:
    planned = experiment.runs[experiment.runs["arm"] == arm]
    own, timed = (t[(t["arm"] == arm) & (t["status"] == "finished")] for t in (losses, times))
    n_diverged, n = int((losses[losses["arm"] == arm]["status"] == "diverged").sum()), len(losses[losses["arm"] == arm])
    low, high = (None, None) if not n else rate_sequence(n_diverged, n, 0.05) if anytime else exact_rate(n_diverged, n)
    mean: dict[str, float] = {}
    sd: dict[str, float] = {}
    of_loss = (*LOSSES, "bits_per_byte", "steps", "peak_allocated_mib")
    for metric in (*of_loss, "step_ms", "train_time_s", "tokens_per_s", "mfu"):
        values = (own if metric in of_loss else timed)[metric].to_numpy(float)
        values = values[~np.isnan(values)]
        if len(values):
            mean[metric], spread = samples.mean_sd(values)
            sd |= {} if spread is None else {metric: spread}
    is_outcome, is_pending = planned["status"].isin(samples.OUTCOMES), planned["status"].isin(samples.PENDING)
    return Cell(
        arm=arm, n_planned=len(planned), n_finished=len(own), n_diverged=n_diverged,
        n_failed=int((~is_outcome & ~is_pending).sum()), n_pending=int(is_pending.sum()),
        n_stale=0 if experiment.accept_stale else int((planned["stale"].astype(bool) & is_outcome).sum()),
        diverged_rate=n_diverged / n if n else None, diverged_low=low, diverged_high=high, mean=mean, sd=sd,
        first_crossing_s=tuple(own["first_crossing_s"].dropna().astype(float)),
        n_censored=int(own["censored"].astype(bool).sum()),
        outliers=samples.outliers(losses, arm),
    )  # fmt: skip


def _published(experiment: Experiment, clock: Clock, anytime: bool) -> PublishedVerdict | None:
    """The published delta beside ours, on the time to target of the arm that holds the whole record."""
    plan = experiment.plan
    record = plan.get("published")
    if not record:
        return None
    candidates = [a for a in plan["arms"] if a["name"] != plan["baseline"]]
    if not candidates:
        return None
    arm = own_arm(candidates)
    why = ENVIRONMENT_RECORDS.get(record, "")

    def torches(name: str) -> set[str | None]:
        ids = experiment.runs.loc[experiment.runs["arm"] == name, "run_id"]
        return {(experiment.environments.get(r, {}).get("lock") or {}).get("torch") for r in ids} - {None}

    versions = {a: torches(a) for a in (arm, plan["baseline"])}
    if why and versions[arm] and versions[plan["baseline"]] and not versions[arm] & versions[plan["baseline"]]:
        why = ""
    why = not_at_full_size(plan) or why
    own = clock.log_ratio(arm)
    if own is not None and anytime:
        ends, _ = clock.sequence((arm, clock.arms[0]), 0.05)
        own = None if ends is None else Estimate(value=own.value, se=max(ends[1] - own.value, own.value - ends[0]) / ONE_SIDED)
    if own is not None and not math.isfinite(own.se):
        own = None
    margin, base = plan.get("margin"), clock.log_step(clock.arms[0]) if clock.arms else None
    in_log = None  # a margin of another metric than time says nothing here: half the published delta then
    if margin is not None and plan.get("primary") == "time_to_target" and clock.model is not None and base is not None:
        in_log = margin / math.exp(clock.model.log_steps(0).value + base.value - math.log(1e3))
    against = predecessor(record, plan.get("base"))
    return published_verdict(record, against, arm, own=own, not_testable=why, margin=in_log)
